"""Where the time of a micro-batch goes: CPU of the JVM by kind of thread, and of the Python workers.

Every side runs in a new process on `sw.session()`. After the batches that warm up, the CPU of all threads is
read from the system with every commit, so the figures depend little on other load. The limit is what Polars
takes in one process to read the same Parquet file, group its rows by window and key, and write the panes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Final

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import msgspec  # after the number of threads is set, which Polars reads once
import polars as pl

import slackwater as sw
from benchmarks.processes import thread_cpu
from benchmarks.report import Report, timed
from benchmarks.spark_windows import BATCH, OURS, QUIET, TUMBLING, bids, read, spark_windows, windows

BATCHES: Final = 12
WARM: Final = 6
KEYS: Final = (1_000, 200_000)
SIDES: Final = (OURS, "Spark, RocksDB")
PARTS: Final = {
    "tasks": r"Executor task",
    "Python": r"python",
    "compiler": r"C[12] Compiler|C Compiler|Sweeper",
    "garbage": r"GC Thread|G1 |VM Thread",
    "planning": r"stream executio",
    "listeners": r"spark-listener",
}
"""The columns of the table: regular expressions for the names of threads, of which there are 15 letters."""
REST: Final = "rest"


class Breakdown(msgspec.Struct):
    """The batches of a side after those that warm up: seconds of CPU and of wall time per batch."""

    cpu: dict[str, float]
    wall: float
    planned: float
    """The part of the wall time for planning."""


def part_of(thread: str) -> str:
    """The column of a thread.

    >>> part_of("C2 CompilerThre"), part_of("python3.11"), part_of("dag-scheduler-e")
    ('compiler', 'Python', 'rest')
    """
    return next((part for part, names in PARTS.items() if re.match(names, thread)), REST)


def measure(side: str, keys: int, work: Path) -> Breakdown:
    """Run a side in this process, and read the CPU of its threads with every commit."""
    spark = sw.session(config=QUIET)
    spark.sparkContext.setLogLevel("ERROR")
    bids(work / "in", keys, BATCH, BATCHES)
    rows = read(spark, work / "in")
    result = windows(rows, TUMBLING.ours).to_df() if side == OURS else spark_windows(rows, TUMBLING.native())
    writer = result.writeStream.option("checkpointLocation", str(work / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(work / "out"), format="parquet")
    first, last = ((work / "checkpoint" / "commits" / str(number)) for number in (WARM - 1, BATCHES - 1))
    before = _when(first)
    after = _when(last)
    query.awaitTermination()
    cpu: defaultdict[str, float] = defaultdict(float)
    for thread, (name, seconds) in after.items():
        _, earlier = before.get(thread, (name, 0.0))
        cpu[part_of(name)] += (seconds - earlier) / (BATCHES - WARM)
    batches = [one for one in query.recentProgress if one.numInputRows > 0][WARM:]
    wall = median(one.durationMs["triggerExecution"] for one in batches) / 1000
    planned = median(one.durationMs["queryPlanning"] for one in batches) / 1000
    return Breakdown(dict(cpu), wall, planned)


def _when(commit: Path) -> dict[tuple[int, int], tuple[str, float]]:
    """The CPU of all threads as soon as a batch has committed."""
    while not commit.exists():
        time.sleep(0.02)
    return thread_cpu()


def limit(keys: int, work: Path) -> float:
    """The CPU seconds that Polars takes for a batch: read, group, write."""
    (file, *_) = sorted(bids(work / "limit", keys, BATCH, 1).iterdir())

    def batch() -> None:
        frame = pl.read_parquet(file, columns=["auction", "price", "ts"])
        start = pl.col("ts").dt.truncate("10s").alias("start")
        price = pl.col("price")
        panes = frame.group_by("auction", start).agg(
            pl.len().alias("bids"), price.sum().alias("total"), price.max().alias("best")
        )
        panes.write_parquet(work / "panes.parquet", compression="snappy")

    return timed(batch, runs=5).cpu_seconds


def run(report: Report) -> None:
    """Both sides, with few and with many keys."""
    section = report.section(
        "On Spark: where a micro-batch goes",
        f"Tumbling windows of 10 s, batches of {BATCH:,} bids, Parquet in and out; mean milliseconds of "
        f"CPU per batch over {BATCHES - WARM} batches after {WARM} that warm up, and medians of wall time. "
        "Tasks: reading, Arrow, rows and writing Parquet in the JVM. Compiler and garbage: the JVM itself, "
        "which still compiles in these batches. Planning: the thread of the query. The limit is Polars in "
        "one process: read the Parquet file of a batch, group it, write the panes.",
        ("query", "keys", *PARTS, REST, "all CPU", "wall", "of it planning", "limit"),
    )
    for keys in KEYS:
        with tempfile.TemporaryDirectory(prefix="slackwater-bench-") as name:
            least = limit(keys, Path(name))
        for side in SIDES:
            with tempfile.TemporaryDirectory(prefix="slackwater-bench-") as name:
                command = [sys.executable, "-m", "benchmarks.breakdown", side, str(keys), name]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                assert done.returncode == 0, done.stderr[-2000:]
            found = msgspec.json.decode(done.stdout.splitlines()[-1], type=Breakdown)
            section.row(
                side,
                keys,
                *(round(1000 * found.cpu.get(part, 0)) for part in (*PARTS, REST)),
                *(round(1000 * seconds) for seconds in (sum(found.cpu.values()), found.wall, found.planned)),
                round(1000 * least),
            )
    report.show(section)


if __name__ == "__main__":
    side_name, key_count, folder_name = sys.argv[1:]
    print(msgspec.json.encode(measure(side_name, int(key_count), Path(folder_name))).decode())
