"""Ten million rows from end to end, in a new process: ours, Spark's own windows, and Flink SQL."""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median
from typing import Final

import polars as pl

from benchmarks.engine_process import engine_runs
from benchmarks.environments import python_of
from benchmarks.peers.__main__ import CORES, read, write_for_flink
from benchmarks.peers.workloads import WORKLOADS as WINDOWS
from benchmarks.report import Report, spread
from benchmarks.spark_windows import (
    ALL,
    APPENDED,
    MILLION,
    OURS,
    RUNS,
    STORES,
    TUMBLING,
    WORKLOADS,
    Workload,
    bids,
    compare,
)

GOALS: Final = {1_000: 10.0, 200_000: 16.0}
"""The seconds that 10 million bids may take from end to end, by the number of keys."""


def flink_seconds(workload: Workload) -> list[float]:
    """The seconds of Flink SQL for the same rows and windows, in several runs, after it was started."""
    assert (workload.windows, WINDOWS["tumbling"].size) == (TUMBLING, 10_000)
    with tempfile.TemporaryDirectory(prefix="slackwater-bench-") as name:
        folder = Path(name)
        files = bids(folder / "in", workload.keys, workload.batch, workload.batches)
        millis = pl.col("ts").dt.epoch("ms").alias("millis")
        rows = pl.read_parquet(files / "*.parquet").select("auction", "price", millis)
        write_for_flink(rows, folder / "csv")
        start = (pl.col("millis") // 10_000 * 10_000).alias("start")
        price = pl.col("price")
        values = {"bids": pl.len().cast(pl.Int64), "total": price.sum(), "best": price.max()}
        expected = rows.group_by("auction", start).agg(**values).sort("auction", "start")
        seconds = []
        for number in range(RUNS):
            output = folder / f"out-{number}"
            command = [str(python_of("flink")), "-m", "benchmarks.peers.flink_engine", "--started"]
            places = ["--workload", "tumbling", "--data", str(folder), "--output", str(output)]
            log = Path("build") / "bench" / "flink.log"
            (run,) = engine_runs([*command, *places, "--cores", str(CORES)], log)
            assert run.error is None, run.error
            assert read(output).sort("auction", "start").equals(expected), f"{workload}: Flink differs"
            seconds.append(run.seconds)
    return seconds


def run(report: Report) -> None:
    """With few and with many keys."""
    sides = ALL[len(WORKLOADS)].sides
    section = report.section(
        "On Spark: ten million rows from end to end",
        f"Ten micro-batches of {MILLION:,} bids, tumbling windows of 10 s, Parquet in, CSV out, a new "
        "process with a heap of 4 GiB, because the default store keeps its state there; seconds from the "
        f"session to the last results, without the start of the JVM: median of {RUNS} runs, lowest and "
        "highest. In brackets the part until the first results. With `append_to` the tasks write the files, "
        "which are Parquet files. Flink SQL 2.3 reads the same rows as CSV files, with state on the heap and "
        "checkpoints in files every 10 s, after its JVM has started; its results are equal.",
        (
            "keys",
            OURS,
            APPENDED,
            *(f"Spark, {side}" for side in sides if side in STORES),
            "Flink SQL",
            "goal",
        ),
    )
    for number in range(len(WORKLOADS), len(ALL)):
        each = compare(number)
        cells = []
        for side in each.workload.sides:
            first = median(run.first for run in each.runs[side])
            cells.append(f"{spread([run.whole for run in each.runs[side]], 1)} [{first:.1f}]")
        cells.append(spread(flink_seconds(each.workload), 1))
        goal = GOALS[each.workload.keys]
        section.row(each.workload.keys, *cells, f"{goal:g}")
        for side in (OURS, APPENDED):
            took = median(run.whole for run in each.runs[side])
            verdict = "met" if took <= goal else "MISSED"
            section.verdict(f"{side}, {each.workload.keys:,} keys: {took:.1f} s (goal {goal:g} s: {verdict})")
    report.show(section)
