"""The windowed operator: rows per second on one core, and the cost of a batch by the state it touches.

Bids are seeded, a little out of order, in batches of 500,000; the watermark follows two seconds behind. The
sums of every run are compared with a plain Polars ``group_by`` over all bids before anything is timed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import numpy as np  # after the number of threads is set, which Polars reads once
import polars as pl

from benchmarks.report import Report, timed
from slackwater.time import END_OF_TIME, SECOND
from slackwater.windows import (
    AfterCount,
    AfterWatermark,
    ColumnarAccumulation,
    Count,
    Fixed,
    Max,
    Repeatedly,
    Sessions,
    Sliding,
    Sum,
    Window,
    WindowedOperator,
)
from slackwater.windows.engine.window_state import WindowState
from slackwater.windows.spec.windowing_strategy import Mode
from slackwater.windows.triggers import DEFAULT_TRIGGER, Trigger

BIDS = 5_000_000
BATCH = 500_000
BIDS_A_SECOND = 10_000
DISORDER = 2 * SECOND
ACCUMULATIONS: dict[str, ColumnarAccumulation] = {
    "bids": Count(),
    "total": Sum("price"),
    "best": Max("price"),
}
EARLY = AfterWatermark(early=Repeatedly(AfterCount(1_000)), late=Repeatedly(AfterCount(1)))
FLAT = 1.5
"""With the most untouched state a batch may cost this much more than with none."""


def bids(keys: int, number: int = BIDS, seed: int = 7) -> list[pl.DataFrame]:
    """Seeded bids in batches, each at most two seconds behind the latest before it."""
    rng = np.random.default_rng(seed)
    arrival = np.arange(number, dtype=np.int64) * (SECOND // BIDS_A_SECOND)
    frame = pl.DataFrame(
        {
            "auction": rng.integers(0, keys, number),
            "price": rng.integers(1, 10_000, number),
            "ts": arrival + DISORDER - rng.integers(0, DISORDER, number),
        }
    )
    return [frame.slice(start, BATCH) for start in range(0, number, BATCH)]


def fold(
    operator: WindowedOperator, batches: list[pl.DataFrame], *, to_the_end: bool = True
) -> list[pl.DataFrame]:
    """All panes of a run over the batches, with the end of the input after the last."""
    state = operator.initial_state()
    panes: list[pl.DataFrame] = []
    for number, batch in enumerate(batches, 1):
        watermark = number * BATCH * (SECOND // BIDS_A_SECOND)
        state, output = operator.step(state, batch, {"default": watermark}, now=watermark)
        panes.append(output.panes)
    if to_the_end:
        state, output = operator.step(state, None, {"default": END_OF_TIME}, now=END_OF_TIME - 1)
        panes.append(output.panes)
    return panes


@dataclass(frozen=True)
class Workload:
    """One row of the table."""

    name: str
    keys: int
    window: Window
    trigger: Trigger = DEFAULT_TRIGGER
    mode: Mode = "accumulating"
    aim: int | None = None

    def operator(self) -> WindowedOperator:
        """The operator of this workload."""
        return WindowedOperator(
            window=self.window,
            trigger=self.trigger,
            accumulations=ACCUMULATIONS,
            key=("auction",),
            event_time="ts",
            mode=self.mode,
        )


TUMBLING, SLIDING = "tumbling 10 s", "sliding 60 s every 10 s"
HALF = 0.5
"""Sliding windows must reach this share of the speed of fixed ones, although every element is in six."""
WORKLOADS = (
    Workload(TUMBLING, 1_000, Fixed(10 * SECOND), aim=5_000_000),
    Workload(TUMBLING, 200_000, Fixed(10 * SECOND), aim=1_500_000),
    Workload(SLIDING, 1_000, Sliding(60 * SECOND, 10 * SECOND)),
    Workload(SLIDING, 200_000, Sliding(60 * SECOND, 10 * SECOND)),
    Workload("sessions, gap 10 s", 1_000, Sessions(10 * SECOND)),
    Workload("sessions, gap 10 s", 200_000, Sessions(10 * SECOND), aim=1_000_000),
    Workload("tumbling, early every 1,000", 1_000, Fixed(10 * SECOND), EARLY),
    Workload("tumbling, early every 1,000", 10, Fixed(10 * SECOND), EARLY),
    Workload("the same, with retractions", 10, Fixed(10 * SECOND), EARLY, "accumulating_and_retracting"),
    Workload("the same, with retractions", 1_000, Fixed(10 * SECOND), EARLY, "accumulating_and_retracting"),
)


def run(report: Report) -> None:
    """All sections."""
    section = report.section(
        "Windowed operator: rows per second",
        f"{BIDS:,} bids in batches of {BATCH:,}, count, sum and maximum, one core, in one process.",
        ("workload", "keys", "rows per second", "panes", "aim"),
    )
    rates: dict[tuple[str, int], int] = {}
    for workload in WORKLOADS:
        batches = bids(workload.keys)
        panes = pl.concat(
            [frame for frame in fold(workload.operator(), batches) if frame.height], how="vertical_relaxed"
        )
        check(workload, pl.concat(batches), panes)
        timing = timed(partial(fold, workload.operator(), batches), runs=3)
        rate = rates[workload.name, workload.keys] = int(BIDS / timing.undisturbed)
        met = (
            ""
            if workload.aim is None
            else f"{'met' if rate >= workload.aim else 'MISSED'} ({workload.aim:,})"
        )
        section.row(workload.name, workload.keys, rate, panes.height, met)
    for keys in (1_000, 200_000):
        share = rates[SLIDING, keys] / rates[TUMBLING, keys]
        verdict = "met" if share >= HALF else "missed"
        section.verdict(f"sliding at {share:.2f} times tumbling with {keys:,} keys (aim: {HALF}, {verdict})")
    report.show(section)
    _growth(report)


def check(workload: Workload, all_bids: pl.DataFrame, panes: pl.DataFrame) -> None:
    """Last panes (or results minus retractions) equal a plain group_by."""
    standing = panes.group_by("auction", "window_start", "window_end").agg(
        (pl.col("bids") * pl.when("retraction").then(-1).otherwise(1)).sum()
        if workload.mode == "accumulating_and_retracting"
        else pl.col("bids").last(),
        pl.col("total").last(),
        pl.col("best").last(),
    )
    got = standing.sort("auction", "window_start").select("auction", "window_start", "bids", "total", "best")
    want = expected(workload.window, all_bids).sort("auction", "window_start").select(got.columns)
    assert got.equals(want.cast(got.schema)), f"{workload.name}, {workload.keys} keys: wrong result"


def expected(window: Window, all_bids: pl.DataFrame) -> pl.DataFrame:
    """The same aggregation by plain Polars."""
    aggregations = [
        pl.len().alias("bids"),
        pl.col("price").sum().alias("total"),
        pl.col("price").max().alias("best"),
    ]
    time = pl.col("ts")
    if isinstance(window, Sessions):
        ordered = all_bids.sort("auction", "ts")
        cut = (pl.col("auction") != pl.col("auction").shift(1)) | (time.diff() >= window.gap)
        numbered = ordered.with_columns(cut.fill_null(value=True).cum_sum().alias("session"))
        return numbered.group_by("auction", "session").agg(time.min().alias("window_start"), *aggregations)
    if isinstance(window, Fixed):
        return all_bids.group_by("auction", (time - time % window.size).alias("window_start")).agg(
            aggregations
        )
    assert isinstance(window, Sliding)
    parts = all_bids.group_by("auction", (time - time % window.every).alias("window_start")).agg(aggregations)
    shifted = [
        parts.with_columns(pl.col("window_start") - back) for back in range(0, window.size, window.every)
    ]
    merged = [pl.col("bids").sum(), pl.col("total").sum(), pl.col("best").max()]
    return pl.concat(shifted).group_by("auction", "window_start").agg(merged)


# ---- cost of a batch by the size of the state that it does not touch


def _growth(report: Report) -> None:
    section = report.section(
        "Windowed operator: the cost of a batch depends on the windows it touches",
        "A batch of 100,000 bids into one window, while other windows (with unlimited lateness) keep more "
        "and "
        "more state. The index is one value with an entry per open window; the host also saves and loads it.",
        (
            "untouched",
            "number",
            "ms per batch",
            "times the first",
            "ms to save and load the index",
            "index bytes",
        ),
    )
    for name, prepare, numbers in (
        ("open windows", _many_windows, (0, 100, 1_000, 10_000)),
        ("keys in another window", _many_keys, (0, 10_000, 100_000, 1_000_000)),
    ):
        costs = [_cost(prepare(number)) for number in numbers]
        for number, cost in zip(numbers, costs, strict=True):
            times = f"{cost.step / costs[0].step:.2f}"
            section.row(
                name, number, f"{cost.step * 1_000:.1f}", times, f"{cost.index * 1_000:.1f}", cost.size
            )
        growth = costs[-1].step / costs[0].step
        section.verdict(f"{name}: {'flat' if growth <= FLAT else 'GROWS'}, {growth:.2f} times the first")
    report.show(section)


def _many_windows(number: int) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "auction": [0] * number,
            "price": [1] * number,
            "ts": [(2 + at) * 10 * SECOND for at in range(number)],
        }
    )


def _many_keys(number: int) -> pl.DataFrame:
    keys = list(range(number))
    return pl.DataFrame({"auction": keys, "price": [1] * number, "ts": [20 * SECOND] * number})


@dataclass(frozen=True)
class Cost:
    """Seconds per step, seconds to save and load the index, and the size of the index in bytes."""

    step: float
    index: float
    size: int


def _cost(untouched: pl.DataFrame) -> Cost:
    operator = WindowedOperator(
        window=Fixed(10 * SECOND),
        trigger=EARLY,
        accumulations=ACCUMULATIONS,
        key=("auction",),
        event_time="ts",
        allowed_lateness=None,
    )
    batch = bids(1_000, 100_000)[0].with_columns(pl.col("ts") % (10 * SECOND))
    state: WindowState = operator.initial_state()
    if untouched.height:
        state, _ = operator.step(state, untouched, {}, now=0)
    state, _ = operator.step(state, batch, {}, now=0)

    def work() -> None:
        nonlocal state
        state, _ = operator.step(state, batch, {}, now=0)

    def reload() -> None:
        operator.load(operator.save(state), state.blobs)

    return Cost(timed(work, runs=9).undisturbed, timed(reload, runs=3).undisturbed, len(operator.save(state)))
