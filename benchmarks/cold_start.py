"""The start of a query: in a new process, and once more in the same session.

Four files of 1,000 bids, one a batch, tumbling windows, Parquet in and out: the figures are those of the
start, and not of the rows. Both sides run on `sw.session()`, in turns.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Final

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import msgspec  # after the number of threads is set, which Polars reads once
from pyspark.sql import SparkSession

import slackwater as sw
from benchmarks.cold_process import in_new_process, print_result
from benchmarks.report import Report, spread
from benchmarks.spark_windows import OURS, QUIET, TUMBLING, bids, read, spark_windows, windows

ROWS: Final = 1_000
FILES: Final = 4
RUNS: Final = 3
SIDES: Final = (OURS, "Spark, RocksDB")
SECOND_GOAL: Final = 1.0
"""The seconds that the first batch of a second query may take."""


class Start(msgspec.Struct):
    """The start of one query, in seconds."""

    built: float
    """From the session to the start of the query."""
    first: float
    """The first batch."""
    later: float
    """The median of the batches after it."""


def start(spark: SparkSession, side: str, work: Path, number: int) -> Start:
    """Run the query from its definition to the end of its input."""
    began = time.perf_counter()
    rows = read(spark, work / "in")
    result = windows(rows, TUMBLING.ours).to_df() if side == OURS else spark_windows(rows, TUMBLING.native())
    writer = result.writeStream.option("checkpointLocation", str(work / f"checkpoint-{number}"))
    query = writer.trigger(availableNow=True).start(str(work / f"out-{number}"), format="parquet")
    built = time.perf_counter() - began
    query.awaitTermination()
    took = [one.durationMs["triggerExecution"] / 1000 for one in query.recentProgress if one.numInputRows > 0]
    assert len(took) == FILES, f"{side}: {len(took)} batches"
    return Start(built, took[0], median(took[1:]))


def starts(side: str, work: Path) -> list[Start]:
    """The first and the second query of this process."""
    bids(work / "in", 100, ROWS, FILES)
    spark = sw.session(config=QUIET)
    spark.sparkContext.setLogLevel("ERROR")
    return [start(spark, side, work, number) for number in range(2)]


def run(report: Report) -> None:
    """Both sides."""
    section = report.section(
        "On Spark: the start of a query",
        f"{FILES} files of {ROWS:,} bids, one a batch, tumbling windows, Parquet in and out. Every side is a "
        "new process on `sw.session()`, which runs the query twice. Seconds, without the start of the JVM; "
        f"median of {RUNS} runs in turns, lowest and highest.",
        ("query", "run", "built", "first batch", "later batches"),
    )
    runs: dict[str, list[list[Start]]] = {side: [] for side in SIDES}
    for _ in range(RUNS):
        for side in SIDES:
            with tempfile.TemporaryDirectory(prefix="slackwater-bench-") as name:
                runs[side].append(in_new_process("benchmarks.cold_start", list[Start], side, name))
    for side, found in runs.items():
        for number, name in enumerate(("first of the process", "second")):
            each = [one[number] for one in found]
            parts = ([one.built for one in each], [one.first for one in each], [one.later for one in each])
            section.row(side, name, *(spread(seconds) for seconds in parts))
    second = median(one[1].first for one in runs[OURS])
    verdict = "met" if second <= SECOND_GOAL else "MISSED"
    section.verdict(f"first batch of a second query: {second:.2f} s (goal {SECOND_GOAL:g} s: {verdict})")
    report.show(section)


if __name__ == "__main__":
    side_name, folder_name = sys.argv[1:]
    print_result(starts(side_name, Path(folder_name)))
