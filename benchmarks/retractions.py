"""Retractable `max` against plain `max`, in a chain and alone, in one process on one core.

The chain counts bids per auction, with early panes, and finds the highest count of each site. Counts only
grow, so the plain `max` over accumulating panes has the same result as the retractable one over retracting
panes. Alone, the retractable operator also gets elements that are taken back again, one in ten. The results
of both are compared before anything is timed.
"""

from __future__ import annotations

import os
from functools import partial

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import numpy as np  # after the number of threads is set, which Polars reads once
import polars as pl

from benchmarks.report import Report, timed
from slackwater.time import END_OF_TIME, SECOND
from slackwater.windows import Count, Fixed, Inherited, Max, WindowedOperator, after_watermark, every
from slackwater.windows.spec.windowing_strategy import Mode

ROWS = 2_000_000
BATCH = 200_000
ROWS_A_SECOND = 10_000
SITES = 100
RETRACTED = 0.1
AIM = 2.0
"""How many times as long as the plain operators the retractable ones may take."""
WINDOW = Fixed(50 * SECOND)
EARLY = after_watermark(early=every(count=5), late=every(count=1))
RETRACTING: Mode = "accumulating_and_retracting"


def bids(auctions: int, seed: int = 7) -> list[pl.DataFrame]:
    """Seeded bids in batches, with a mark on those that the single operator takes back."""
    rng = np.random.default_rng(seed)
    auction = rng.integers(0, auctions, ROWS)
    frame = pl.DataFrame(
        {
            "site": auction % SITES,
            "auction": auction,
            "price": rng.integers(1, 10_000, ROWS),
            "ts": np.arange(ROWS, dtype=np.int64) * (SECOND // ROWS_A_SECOND),
            "gone": rng.random(ROWS) < RETRACTED,
        }
    )
    return list(frame.iter_slices(BATCH))


def chain(batches: list[pl.DataFrame], *, retracts: bool) -> pl.DataFrame:
    """The highest count of each site and window: the last panes of the second operator."""
    counts = WindowedOperator(
        window=WINDOW,
        key=("site", "auction"),
        accumulations={"bids": Count()},
        trigger=EARLY,
        mode=RETRACTING if retracts else "accumulating",
        event_time="ts",
    )
    highest = WindowedOperator(
        window=Inherited(),
        key=("site",),
        accumulations={"best": Max("bids")},
        event_time="timestamp",
        retractions="retraction" if retracts else None,
    )
    first, second = counts.initial_state(), highest.initial_state()
    panes: list[pl.DataFrame] = []
    for number in range(1, len(batches) + 2):
        last = number > len(batches)
        watermark = END_OF_TIME if last else (number - 1) * BATCH * (SECOND // ROWS_A_SECOND)
        first, output = counts.step(
            first, None if last else batches[number - 1], {"default": watermark}, number
        )
        second, output = highest.step(second, output.panes, dict(output.watermarks), number)
        panes.append(output.panes)
    return pl.concat(panes, how="vertical_relaxed")


def alone(batches: list[pl.DataFrame], *, retracts: bool) -> pl.DataFrame:
    """The highest price of each auction and window; a bid that is taken back is so in the next batch."""
    operator = WindowedOperator(
        window=WINDOW,
        key=("auction",),
        accumulations={"best": Max("price")},
        event_time="ts",
        retractions="gone" if retracts else None,
    )
    state = operator.initial_state()
    panes: list[pl.DataFrame] = []
    before = batches[0].clear()
    for number, batch in enumerate((*batches, batches[0].clear()), 1):
        rows = batch.filter(~pl.col("gone"))
        if retracts:
            rows = pl.concat([batch.with_columns(pl.lit(value=False).alias("gone")), before])
        before = batch.filter("gone")
        watermark = (number - 2) * BATCH * (SECOND // ROWS_A_SECOND)
        state, output = operator.step(state, rows, {"default": watermark}, number)
        panes.append(output.panes)
    state, output = operator.step(state, None, {"default": END_OF_TIME}, len(batches) + 2)
    return pl.concat([*panes, output.panes], how="vertical_relaxed")


def values(panes: pl.DataFrame) -> pl.DataFrame:
    """The values of panes in a fixed order."""
    key = "site" if "site" in panes.columns else "auction"
    return panes.select(key, "window_start", "best").sort(key, "window_start")


def run(report: Report) -> None:
    """Compare the results, time both, and add a section to the report."""
    section = report.section(
        "Retractable max",
        f"{ROWS:,} bids in batches of {BATCH:,}. Chain: bids per auction with early panes, then the highest "
        "count of each of 100 sites; the retractable one takes every early count back. Alone: the highest "
        "price per auction; one bid in ten is taken back in the next batch.",
        ("workload", "keys", "plain (s)", "retractable (s)", "ratio"),
    )
    ratios: dict[str, list[float]] = {"chain": [], "alone": []}
    for name, work in (("chain", chain), ("alone", alone)):
        for keys in (20_000, 200_000):
            batches = bids(keys)
            if not values(work(batches, retracts=False)).equals(values(work(batches, retracts=True))):
                raise AssertionError(f"{name} with {keys} keys has another result with retractions")
            plain, retractable = (
                timed(partial(work, batches, retracts=retracts)).undisturbed for retracts in (False, True)
            )
            section.row(name, keys, f"{plain:.2f}", f"{retractable:.2f}", f"{retractable / plain:.2f}")
            ratios[name].append(retractable / plain)
    most = {name: max(found) for name, found in ratios.items()}
    verdict = "meets" if max(most.values()) <= AIM else "misses"
    section.verdict(
        f"Retractions take at most {most['chain']:.2f} times as long in a chain and "
        f"{most['alone']:.2f} times as long alone: {verdict} the aim of {AIM:g}."
    )
    report.show(section)
