"""Sliding windows of many slices, and calendar windows: the cost of a batch by what it touches.

An element of a sliding window is stored once, in its slice; a window that fires merges its slices. A batch
of 50 seconds completes five windows, however long they are. The windows are full before the first batch
that is timed, and the last pane of every key is compared with a plain Polars ``group_by``.
"""

from __future__ import annotations

import os
from statistics import median
from time import process_time
from typing import Final

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import numpy as np  # after the number of threads is set, which Polars reads once
import polars as pl

from benchmarks.report import Report, record
from slackwater.time import SECOND
from slackwater.windows import Calendar, ColumnarAccumulation, Count, Fixed, Max, Sliding, Sum, Window
from slackwater.windows import WindowedOperator as Operator

EVERY: Final = 10 * SECOND
SPAN: Final = 50 * SECOND
"""The event time of a batch."""
ROWS: Final = 50_000
KEYS: Final = 100
SLICES: Final = (6, 60, 360, 3_600)
BATCHES: Final = 7
DAY: Final = 86_400 * SECOND
DAYS: Final = (1, 10, 100, 1_000)
ACCUMULATIONS: Final[dict[str, ColumnarAccumulation]] = {
    "bids": Count(),
    "total": Sum("price"),
    "best": Max("price"),
}


def rows(start: int, span: int, number: int, rng: np.random.Generator) -> pl.DataFrame:
    """Seeded bids, evenly over a span of time."""
    return pl.DataFrame(
        {
            "auction": rng.integers(0, KEYS, number),
            "price": rng.integers(1, 10_000, number),
            "ts": start + np.sort(rng.integers(0, span, number)),
        }
    )


def operator(window: Window) -> Operator:
    """Count, sum and maximum per auction."""
    return Operator(window=window, accumulations=ACCUMULATIONS, key=("auction",), event_time="ts")


def sliding(slices: int) -> tuple[float, int]:
    """CPU seconds of a batch that completes five windows of so many slices, and the panes that it emits."""
    rng = np.random.default_rng(7)
    windowed, size = operator(Sliding(slices * EVERY, EVERY)), slices * EVERY
    first = rows(0, size, slices * KEYS, rng)
    state, _ = windowed.step(windowed.initial_state(), first, {"default": 0}, now=0)
    state, _ = windowed.step(state, None, {"default": size}, now=size)
    took: list[float] = []
    everything, panes, at = [first], pl.DataFrame(), size
    for _ in range(BATCHES):
        batch = rows(at, SPAN, ROWS, rng)
        everything.append(batch)
        at += SPAN
        began = process_time()
        state, output = windowed.step(state, batch, {"default": at}, now=at)
        took.append(process_time() - began)
        panes = output.panes
    inside = pl.concat(everything).filter(pl.col("ts") >= at - size).group_by("auction")
    expected = inside.agg(pl.col("price").sum().alias("total")).sort("auction")
    found = panes.filter(pl.col("window_end") == at).select("auction", "total").sort("auction")
    assert found.equals(expected.cast(found.schema)), f"{slices} slices: wrong result"
    record(took[1:])
    return median(took[1:]), panes.height


def by_day(window: Window, days: int) -> float:
    """Seconds of CPU of a batch whose rows are in so many days."""
    rng = np.random.default_rng(7)
    windowed = operator(window)
    batch = rows(0, days * DAY, ROWS, rng)
    took: list[float] = []
    panes = pl.DataFrame()
    for _ in range(BATCHES):
        began = process_time()
        state, _ = windowed.step(windowed.initial_state(), batch, {"default": 0}, now=0)
        state, output = windowed.step(state, None, {"default": (days + 1) * DAY}, now=1)
        took.append(process_time() - began)
        panes = output.panes
    assert panes["bids"].sum() == ROWS, f"{window}: wrong result"
    record(took)
    return median(took)


def run(report: Report) -> None:
    """Both sections."""
    section = report.section(
        "Windowed operator: windows of many slices",
        f"Sliding windows every {EVERY // SECOND} s, batches of {ROWS:,} bids in {SPAN // SECOND} s, {KEYS} "
        "keys. A batch completes five windows. CPU milliseconds per batch.",
        ("slices per window", "window", "ms per batch", "panes", "µs per slice"),
    )
    costs: dict[int, float] = {}
    for slices in SLICES:
        costs[slices], panes = sliding(slices)
        length = f"{slices * EVERY // SECOND:,} s"
        each = f"{costs[slices] / slices * 1e6:.0f}"
        section.row(slices, length, f"{costs[slices] * 1000:.1f}", panes, each)
    few, many = SLICES[-2:]
    growth = costs[many] / costs[few] / (many / few)
    section.verdict(
        f"{many / few:g} times the slices of a window cost {costs[many] / costs[few]:.1f} times as much per "
        f"batch: {'linear' if growth <= 1.2 else 'MORE THAN LINEAR'} in the slices that are read"
    )
    report.show(section)
    calendar = report.section(
        "Windowed operator: calendar windows",
        f"{ROWS:,} bids of {KEYS} keys that are spread over several days, added and fired; CPU milliseconds.",
        ("days in the batch", "fixed, 1 day", "calendar days, UTC", "calendar days, Berlin"),
    )
    kinds: tuple[Window, ...] = (
        Fixed(DAY),
        Calendar("days"),
        Calendar("days", timezone="Europe/Berlin"),
    )
    for days in DAYS:
        calendar.row(days, *(f"{by_day(window, days) * 1000:.1f}" for window in kinds))
    report.show(calendar)
