"""The time of `slackwater ingest` for a small job, with the start of Spark measured apart.

The command reads 24 rows from SQLite and writes a Parquet folder. In turn with it runs a program that starts
Spark with the same settings, runs one task in a Python worker and stops: what remains is the share of this
project. The environment variable `MEASURED_SOURCE` selects the `src` folder of another checkout.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import pyarrow.dataset as ds

from benchmarks.report import Report, record

ROWS = 24
RUNS = 3
JOB = """
ms.watermark: [{name: system, type: datetime, range: {from: 2024-01-01, to: 2024-01-02}}]
ms.time.column: at
ms.timezone: UTC
ms.source.type: sql
ms.source.url: sqlite:///orders.db
ms.source.table: orders
ms.target.type: parquet
ms.target.path: copied
"""
COMMAND = (sys.executable, "-m", "slackwater.cli", "ingest", "orders.yaml")
START = """
from slackwater.spark.session import session
spark = session("start")
spark.range(1, numPartitions=1).mapInArrow(lambda batches: batches, "id long").collect()
spark.stop()
"""
SPARK_ALONE = (sys.executable, "-c", START)


def run(report: Report) -> None:
    """Run both in turn, check the rows, and add a section to the report."""
    section = report.section(
        "Ingestion: a small job",
        f"`slackwater ingest` of {ROWS} rows from SQLite into a Parquet folder, in turn with a program that "
        "starts Spark with the same settings, runs a task in a Python worker and stops. Wall-clock seconds "
        f"of the whole process, median of {RUNS} runs.",
        ("program", "seconds", "of them after Spark alone"),
    )
    seconds: dict[str, list[float]] = {"Spark alone": [], "slackwater ingest": []}
    for _ in range(RUNS):
        with TemporaryDirectory() as name:
            folder = Path(name)
            _write_job(folder)
            seconds["Spark alone"].append(_timed(SPARK_ALONE, folder))
            seconds["slackwater ingest"].append(_timed(COMMAND, folder))
            if ds.dataset(folder / "copied" / "rows").count_rows() != ROWS:
                raise AssertionError("the folder does not have all rows")
    for each in seconds.values():
        record(each)
    spark, whole = (median(each) for each in seconds.values())
    section.row("Spark alone", f"{spark:.2f}", "")
    section.row("slackwater ingest", f"{whole:.2f}", f"{whole - spark:.2f}")
    report.show(section)


def _timed(command: tuple[str, ...], folder: Path) -> float:
    source = str(Path(__file__).parent.parent / "src")
    environment = {**os.environ, "PYTHONPATH": os.environ.get("MEASURED_SOURCE", source)}
    began = time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return time.perf_counter() - began


def _write_job(folder: Path) -> None:
    (folder / "orders.yaml").write_text(JOB, encoding="utf-8")
    with sqlite3.connect(folder / "orders.db") as database:
        database.execute("create table orders (id integer, at text, price real)")
        rows = [(hour, f"2024-01-01 {hour:02d}:00:00", hour * 1.5) for hour in range(ROWS)]
        database.executemany("insert into orders values (?, ?, ?)", rows)
