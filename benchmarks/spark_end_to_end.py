"""Ten million rows on Spark from end to end, in a new process, compared with Spark's own windows."""

from __future__ import annotations

from statistics import median
from typing import Final

from benchmarks.report import Report, spread
from benchmarks.spark_windows import (
    ALL,
    APPENDED,
    MILLION,
    OURS,
    RUNS,
    STORES,
    WORKLOADS,
    compare,
)

GOALS: Final = {1_000: 10.0, 200_000: 16.0}
"""The seconds that 10 million bids may take from end to end, by the number of keys."""


def run(report: Report) -> None:
    """With few and with many keys."""
    sides = ALL[len(WORKLOADS)].sides
    section = report.section(
        "On Spark: ten million rows from end to end",
        f"Ten micro-batches of {MILLION:,} bids, tumbling windows of 10 s, Parquet in, CSV out, a new "
        "process with a heap of 4 GiB, because the default store keeps its state there; seconds from the "
        f"session to the last results, without the start of the JVM: median of {RUNS} runs, lowest and "
        "highest. In brackets the part until the first results. With `append_to` the tasks write the files, "
        "which are Parquet files.",
        ("keys", OURS, APPENDED, *(f"Spark, {side}" for side in sides if side in STORES), "goal"),
    )
    for number in range(len(WORKLOADS), len(ALL)):
        each = compare(number)
        cells = []
        for side in each.workload.sides:
            whole = sorted(run.whole for run in each.runs[side])
            cells.append(f"{spread(whole, 1)} [{each.first_results(side):.1f}]")
        goal = GOALS[each.workload.keys]
        section.row(each.workload.keys, *cells, f"{goal:g}")
        for side in (OURS, APPENDED):
            took = median(run.whole for run in each.runs[side])
            verdict = "met" if took <= goal else "MISSED"
            section.verdict(f"{side}, {each.workload.keys:,} keys: {took:.1f} s (goal {goal:g} s: {verdict})")
    report.show(section)
