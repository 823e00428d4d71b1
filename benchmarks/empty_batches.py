"""What a micro-batch costs before it does anything: batches without rows, each side in a new process."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import pyarrow as pa
from pyspark.sql import DataFrame

import slackwater as sw
from benchmarks.cold_process import in_new_process, print_result
from benchmarks.processes import empty_batch_seconds
from benchmarks.report import Report, spread
from benchmarks.spark_windows import OURS, QUIET, TUMBLING, spark_windows, windows

RUNS: Final = 3
BATCHES: Final = 20
SCHEMA: Final = pa.schema(
    [
        ("auction", pa.int64()),
        ("bidder", pa.int64()),
        ("price", pa.int64()),
        ("ts", pa.timestamp("us", "UTC")),
    ]
)
SIDES: Final[dict[str, Callable[[DataFrame], DataFrame]]] = {
    OURS: lambda rows: windows(rows, TUMBLING.ours).to_df(),
    "Spark, RocksDB": lambda rows: spark_windows(rows, TUMBLING.native()),
}


def measure(side: str, work: Path) -> float:
    """The median seconds of a batch without rows in this process."""
    spark = sw.session(config=QUIET)
    spark.sparkContext.setLogLevel("ERROR")
    return empty_batch_seconds(spark, SIDES[side], SCHEMA, work, BATCHES)


def run(report: Report) -> None:
    """Both sides, in turns."""
    section = report.section(
        "On Spark: a batch without rows",
        f"The fixed cost of a query: median of the last {BATCHES - BATCHES // 4} of {BATCHES} batches "
        f"without rows. Each of {RUNS} runs is a new process on `sw.session()`; median, lowest and highest.",
        ("query", "seconds per batch"),
    )
    runs: dict[str, list[float]] = {side: [] for side in SIDES}
    for _ in range(RUNS):
        for side in SIDES:
            with tempfile.TemporaryDirectory(prefix="slackwater-bench-") as name:
                runs[side].append(in_new_process("benchmarks.empty_batches", float, side, name))
    for side, seconds in runs.items():
        section.row(side, spread(seconds))
    report.show(section)


if __name__ == "__main__":
    side_name, folder_name = sys.argv[1:]
    print_result(measure(side_name, Path(folder_name)))
