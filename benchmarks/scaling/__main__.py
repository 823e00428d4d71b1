"""`python -m benchmarks.scaling`: measure micro-batches on a cluster on this machine, and fit a model.

A standalone cluster with 1, 2 and 4 executors of one core each runs on loopback. Every query counts and sums
bids per auction and window. Writes the tables of docs/scaling.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.scaling.model import Shape
from benchmarks.scaling.page import PAGE, RESULTS, load, write_page

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCHES: Final = 7
WARM: Final = 3
"""Batches that are not timed: workers start, and the JVM compiles."""
PARTITIONS: Final = 4
"""Stateful tasks of a batch."""
EMPTY_TASKS: Final = (100, 1_100)
"""The tasks of two jobs that do nothing: the difference is what the driver needs to schedule a task."""
WINDOW: Final = 10_000_000
"""The size of a window in microseconds."""


@dataclass(frozen=True)
class Experiment:
    """A query with batches of one shape."""

    rows: int = 200_000
    keys: int = 10_000
    windows: int = 1
    """Windows that every batch touches, and that stay open."""
    buckets: int = 4
    tasks: int = 4
    """Files of a batch, each read by a map task."""

    def shape(self, executors: int) -> Shape:
        """The batch in terms of the model."""
        groups = round(self.keys * self.windows * (1 - np.exp(-self.rows / (self.keys * self.windows))))
        return Shape(self.rows, groups, self.windows, self.buckets, PARTITIONS, self.tasks, executors)

    def write(self, folder: Path) -> None:
        """Write the files of all batches; no window is complete before the end."""
        random = np.random.default_rng(7)
        folder.mkdir(parents=True)
        share = self.rows // self.tasks
        for number in range(BATCHES * self.tasks):
            times = random.integers(0, self.windows * WINDOW, share)
            table = pa.table(
                {
                    "auction": random.integers(0, self.keys, share),
                    "price": random.integers(1, 10_000, share),
                    "ts": pa.array(times).cast(pa.timestamp("us", "UTC")),
                }
            )
            path = folder / f"{number:05}.parquet"
            pq.write_table(table, path)
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


BASE: Final = Experiment()
EXPERIMENTS: Final = (
    BASE,
    replace(BASE, rows=1_000_000),
    replace(BASE, keys=100_000),
    replace(BASE, rows=1_000_000, keys=200_000),
    replace(BASE, rows=2_000_000),
    replace(BASE, rows=2_000_000, keys=4_000_000),
    replace(BASE, windows=20),
    replace(BASE, windows=200, keys=1_000),
    replace(BASE, windows=200, keys=1_000, buckets=64),
    replace(BASE, buckets=16),
    replace(BASE, buckets=64),
    replace(BASE, buckets=256),
    replace(BASE, tasks=32),
    replace(BASE, buckets=64, tasks=32),
)
"""Each differs from the first in one or more respects."""
FEW: Final = (*EXPERIMENTS[:6], replace(BASE, tasks=32))
"""Those that run on another number of executors."""


def run_experiments(master: str, executors: int, experiments: Sequence[Experiment]) -> dict[str, Any]:
    """Run queries on a cluster, and return the seconds of their batches; runs in a process of its own."""
    import slackwater as sw

    config = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.executor.cores": "1",
        "spark.executor.memory": "900m",
        "spark.driver.host": "127.0.0.1",
        "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        # Every file is a map task of its own.
        "spark.sql.files.openCostInBytes": str(1 << 30),
        "spark.sql.files.maxPartitionBytes": str(1 << 30),
        "spark.sql.files.minPartitionNum": "1",
    }
    spark = sw.session("scaling", master=master, partitions=PARTITIONS, config=config)
    spark.sparkContext.setLogLevel("ERROR")
    results = []
    with tempfile.TemporaryDirectory(prefix="slackwater-scaling-") as name:
        # The first query is not timed: executors start and the JVMs compile.
        _seconds(spark, BASE, Path(name) / "warm-up")
        for number, experiment in enumerate(experiments):
            seconds = _seconds(spark, experiment, Path(name) / str(number))
            results.append({"seconds": seconds, **asdict(experiment.shape(executors))})
            print(f"{executors} executors, {experiment}: {median(seconds):.2f} s", flush=True)
    empty = _empty_task(spark)
    spark.stop()
    return {"empty_task": empty, "batches": results}


def _seconds(spark: SparkSession, experiment: Experiment, folder: Path) -> list[float]:
    """The seconds of the batches of a query, after those that warm up."""
    import slackwater as sw

    experiment.write(folder / "in")
    reader = spark.readStream.schema("auction bigint, price bigint, ts timestamp")
    rows = reader.option("maxFilesPerTrigger", experiment.tasks).parquet(str(folder / "in"))
    stream = sw.stream(
        rows, event_time="ts", watermark=sw.lag("1 day"), clock="1 hour", buckets=experiment.buckets
    )
    panes = stream.key_by("auction").window(sw.fixed("10 seconds"))
    frame = panes.agg(bids=sw.count(), total=sw.sum("price")).to_df()
    writer = frame.writeStream.format("noop").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    query.awaitTermination()
    timed = [one for one in query.recentProgress if one.numInputRows >= experiment.rows]
    seconds = [one.durationMs["triggerExecution"] / 1_000 for one in timed]
    assert len(seconds) == BATCHES, f"{experiment}: {len(seconds)} batches"
    return seconds[WARM:]


def _empty_task(spark: SparkSession) -> float:
    """The seconds for a task of Spark that does nothing, as part of a job with many."""

    def job(tasks: int) -> float:
        began = time.perf_counter()
        spark.range(tasks, numPartitions=tasks).write.format("noop").mode("overwrite").save()
        return time.perf_counter() - began

    few, many = (median(job(tasks) for _ in range(3)) for tasks in EMPTY_TASKS)
    return (many - few) / (EMPTY_TASKS[1] - EMPTY_TASKS[0])


def measure(executors: int) -> dict[str, Any]:
    """Start a cluster with this many executors, run the experiments on it in a driver, and stop it."""
    from tests.cluster.standalone import running_cluster

    with tempfile.TemporaryDirectory(prefix="slackwater-scaling-") as name:
        folder = Path(name)
        output = folder / "results.json"
        with running_cluster(folder, workers=executors) as cluster:
            arguments = ["--master", cluster.url, "--executors", str(executors), "--output", str(output)]
            subprocess.run([sys.executable, "-m", "benchmarks.scaling", *arguments], check=True)
        results: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))
    return results


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="benchmarks.scaling", description=__doc__)
    parser.add_argument("--executors", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--master", help="the cluster to run on; without it, one is started")
    parser.add_argument("--output", type=Path, help="where the results of --master go")
    arguments = parser.parse_args()
    if arguments.master is not None:
        (executors,) = arguments.executors
        chosen = EXPERIMENTS if executors == 2 else FEW
        results = run_experiments(arguments.master, executors, chosen)
        arguments.output.write_text(json.dumps(results), encoding="utf-8")
        return
    busy = os.getloadavg()[0]
    known = load(RESULTS)
    batches = [one for one in known["batches"] if one["executors"] not in arguments.executors]
    empty = dict(known.get("empty_task", {}))
    for executors in arguments.executors:
        found = measure(executors)
        batches += found["batches"]
        empty[str(executors)] = round(found["empty_task"], 6)
    batches.sort(key=lambda one: (one["executors"], one["rows"], one["groups"], one["buckets"]))
    rows = ",\n".join(json.dumps(one) for one in batches)
    head = f'"processors": {os.cpu_count()}, "load": {busy:.1f}, "empty_task": {json.dumps(empty)}'
    RESULTS.write_text(f'{{{head}, "batches": [\n{rows}\n]}}\n', encoding="utf-8")
    write_page()
    print(f"written to {PAGE.relative_to(PAGE.parents[1])}")


if __name__ == "__main__":
    main()
