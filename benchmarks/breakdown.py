"""Where the time of a micro-batch goes: CPU of the JVM by kind of thread, and of the Python workers.

Every side runs in a new process on `sw.session()`. After the batches that warm up, the CPU of all threads is
read from the system with every commit, so the figures depend little on other load. The limit is what Polars
takes in one process to read the same Parquet file, group its rows by window and key, and write the panes.
"""

from __future__ import annotations

import os
import re
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
from benchmarks.cold_process import in_new_process, print_result
from benchmarks.processes import thread_cpu
from benchmarks.report import Report, record, timed
from benchmarks.spark_windows import (
    APPENDED,
    BATCH,
    OURS,
    QUIET,
    ROCKSDB,
    TUMBLING,
    Workload,
    bids,
    side_writer,
)

WARM: Final = 6
MEASURED: Final = 6
RUNS: Final = 3
KEYS: Final = (1_000, 200_000)
SIDES: Final = (OURS, APPENDED, ROCKSDB)
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
    # One batch more than is measured: the thread of a query ends right after its last commit.
    workload = Workload(TUMBLING, keys, batches=WARM + MEASURED + 1)
    bids(work / "in", keys, workload.batch, workload.batches)
    writer = side_writer(spark, workload, side, work).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(work / "checkpoint")).start()
    before, after = (
        _cpu_at_commit(work / "checkpoint", number) for number in (WARM - 1, WARM + MEASURED - 1)
    )
    query.awaitTermination()
    cpu: defaultdict[str, float] = defaultdict(float)
    for thread, (name, seconds) in after.items():
        _, earlier = before.get(thread, (name, 0.0))
        cpu[part_of(name)] += (seconds - earlier) / MEASURED
    batches = [one for one in query.recentProgress if one.numInputRows > 0][WARM : WARM + MEASURED]
    wall = median(one.durationMs["triggerExecution"] for one in batches) / 1000
    planned = median(one.durationMs["queryPlanning"] for one in batches) / 1000
    return Breakdown(dict(cpu), wall, planned)


def wait_for_commit(checkpoint: Path, batch: int) -> None:
    """Wait until a batch of a query has committed."""
    while not (checkpoint / "commits" / str(batch)).exists():
        time.sleep(0.005)


def _cpu_at_commit(checkpoint: Path, batch: int) -> dict[tuple[int, int], tuple[str, float]]:
    """The CPU of all threads as soon as a batch has committed."""
    wait_for_commit(checkpoint, batch)
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
    """All sides, with few and with many keys."""
    section = report.section(
        "On Spark: where a micro-batch goes",
        f"Tumbling windows of 10 s, batches of {BATCH:,} bids, Parquet in and out; mean milliseconds of "
        f"CPU per batch over {MEASURED} batches after {WARM} that warm up, and medians of wall time; median "
        f"of {RUNS} runs in turns, each in a new process. Tasks: reading, Arrow, rows and writing Parquet in "
        "the JVM. Compiler and garbage: the JVM itself, which still compiles in these batches. Planning: the "
        "thread of the query. The limit is Polars in one process: read the Parquet file of a batch, group "
        "it, write the panes.",
        ("query", "keys", *PARTS, REST, "all CPU", "wall", "of it planning", "limit"),
    )
    for keys in KEYS:
        with tempfile.TemporaryDirectory(prefix="slackwater-bench-") as name:
            least = limit(keys, Path(name))
        runs: dict[str, list[Breakdown]] = {side: [] for side in SIDES}
        for _ in range(RUNS):
            for side in SIDES:
                with tempfile.TemporaryDirectory(prefix="slackwater-bench-") as name:
                    runs[side].append(in_new_process("benchmarks.breakdown", Breakdown, side, keys, name))
        for side, found in runs.items():
            whole = [sum(one.cpu.values()) for one in found]
            record(whole)
            record([one.wall for one in found])
            seconds = (
                *(median(one.cpu.get(part, 0) for one in found) for part in (*PARTS, REST)),
                median(whole),
                median(one.wall for one in found),
                median(one.planned for one in found),
                least,
            )
            name = f"Spark, {side}" if side == ROCKSDB else side
            section.row(name, keys, *(round(1000 * each) for each in seconds))
    report.show(section)


if __name__ == "__main__":
    side_name, key_count, folder_name = sys.argv[1:]
    print_result(measure(side_name, int(key_count), Path(folder_name)))
