"""The cost of telemetry in a store as a share of batch time.

python -m benchmarks.telemetry_cost [--origins 10000]

The same query runs alternately with and without a store. What exists only for telemetry is measured by CPU
time, which other work on the machine does not change: the recorder and the listener on the driver, and in the
workers the delays, the samples and the report of each bucket.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import polars as pl
from pyspark.sql import SparkSession

from slackwater import windows
from slackwater.monitoring.origins import OriginSummary
from slackwater.progress.watermark_policies import Lag, lag
from slackwater.spark.api.stream import stream
from slackwater.spark.monitor.telemetry import Telemetry, telemetry
from slackwater.spark.runtime.delay_reports import observed_delays, reported_delays
from slackwater.spark.runtime.source_progress import SourceProgress, SourceRules
from slackwater.spark.session import session
from slackwater.spark.wire.buffers import Observation, Peak
from slackwater.spark.wire.wire_columns import ORIGIN, TIME
from slackwater.time import SECOND, now

ROWS, FILES, PAIRS, TASKS = 50_000, 12, 2, 2
SHARE = 0.02
_OPENING = 3
"""The batches in which a recorder opens its store and prepares its statements."""


def main() -> int:
    """Print the shares; the exit code is 1 if the cost of all parts is more than 2 % of batch time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--origins", type=int, default=20, help="the number of origins; default: 20")
    origins: int = parser.parse_args().origins
    spark = session(master=f"local[{TASKS}]", partitions=TASKS, config={"spark.ui.enabled": "false"})
    with TemporaryDirectory() as name:
        folder = Path(name)
        _write_input(folder / "in", origins)
        _run(spark, folder, "warm", None)
        plain, recorded = [], []
        driver, lost, size = 0.0, 0, 0
        for number in range(PAIRS):
            plain += _run(spark, folder, f"plain-{number}", None)[0]
            seconds, cpu, dropped, largest = _run(spark, folder, f"stored-{number}", folder / f"{number}.db")
            recorded += seconds
            driver, lost, size = driver + cpu / PAIRS, lost + dropped, max(size, largest)
    spark.stop()
    batch = statistics.median(recorded)
    in_workers = _worker_seconds(origins)
    share = (driver + in_workers) / batch
    lines = [
        f"{len(recorded)} batches of {ROWS} rows and {origins} origins",
        f"median {batch * 1e3:.0f} ms with a store, {statistics.median(plain) * 1e3:.0f} ms without",
        f"driver (listener and recorder): {driver * 1e3:.1f} ms of CPU a batch, {driver / batch:.2%}",
        f"workers (delays and reports): {in_workers * 1e3:.1f} ms of CPU a batch, {in_workers / batch:.2%}",
        f"together {share:.2%} of batch time; at most {SHARE:.0%} is promised",
        f"report of a bucket: {size} bytes at most; lost: {lost}",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if share <= SHARE and not lost else 1


def _write_input(folder: Path, origins: int) -> None:
    folder.mkdir()
    for number in range(FILES):
        rows = pl.select(value=pl.int_range(ROWS)).with_columns(
            key=(pl.col("value") % 200).cast(pl.String),
            origin=(pl.col("value") % origins).cast(pl.String),
            at=pl.from_epoch(now() + pl.col("value") * 200 + number * 10 * SECOND, "us").dt.replace_time_zone(
                "UTC"
            ),
        )
        rows.write_parquet(folder / f"{number:03}.parquet")


def _run(
    spark: SparkSession, folder: Path, name: str, store: Path | None
) -> tuple[list[float], float, int, int]:
    """Batch times without the first, CPU seconds on the driver a batch, lost reports, the largest report."""
    schema = spark.read.parquet(str(folder / "in")).schema
    df = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    panes = (
        stream(df, event_time="at", watermark=lag("2 seconds"), origin="origin")
        .key_by("key")
        .window(windows.fixed("5 seconds"))
        .agg(n=windows.count(), total=windows.sum("value"))
        .to_df()
    )
    url = None if store is None else f"sqlite:///{store}"
    with telemetry(spark, batches=FILES + 5, store=url) as heard, _listening(heard) as spent:
        query = panes.writeStream.format("noop").option("checkpointLocation", str(folder / name))
        query.trigger(availableNow=True).start().awaitTermination()
        recorder = heard.recorder
        (history,) = heard.queries()
    sizes = [
        len(msgspec.json.encode(bucket))
        for batch in history.batches
        for operator in batch.report.operators
        for bucket in operator.buckets
    ]
    seconds = [batch.duration / SECOND for batch in history.batches[1:]]
    if recorder is None:
        return seconds, 0.0, 0, max(sizes)
    # Opening the store and the first statements are no cost of a batch.
    began = spent[_OPENING][1]
    writing = (recorder.cpu_seconds - began) / (len(spent) - _OPENING)
    listening = math.fsum(one for one, _ in spent) / len(spent)
    return seconds, writing + listening, recorder.lost, max(sizes)


@contextmanager
def _listening(heard: Telemetry) -> Iterator[list[tuple[float, float]]]:
    """For each call of the listener its CPU seconds, and those of the recorder until then."""
    spent: list[tuple[float, float]] = []
    original = heard.onQueryProgress

    def timed(event: object) -> None:
        began = time.thread_time()
        original(event)  # type: ignore[arg-type]
        recorder = heard.recorder
        spent.append((time.thread_time() - began, 0.0 if recorder is None else recorder.cpu_seconds))

    heard.onQueryProgress = timed  # type: ignore[method-assign]
    yield spent


def _worker_seconds(origins: int, repeats: int = 20) -> float:
    """CPU seconds of a batch in the workers: the delays that tasks observe, and the report of the origins."""
    frame = pl.DataFrame(
        {TIME: range(ROWS // TASKS), ORIGIN: [str(row % origins) for row in range(ROWS // TASKS)]}
    )
    progress = SourceProgress(SourceRules(Lag(0)), 0)
    progress.advance([Observation(str(number), [Peak(number, 1)]) for number in range(origins)], 0)
    began = time.process_time()
    for _ in range(repeats):
        delays = [found for _ in range(TASKS) for found in observed_delays(frame, None)]
        reported = reported_delays([(None, delays, ROWS)])
        msgspec.json.encode((OriginSummary.of_columns(progress.origin_columns()), reported))
    return (time.process_time() - began) / repeats


if __name__ == "__main__":
    sys.exit(main())
