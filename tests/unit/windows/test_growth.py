"""However much is remembered, a batch asks the store for what it touches, and for no more."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl
import pytest

from slackwater.windows import AfterCount, AfterWatermark, Count, Fixed, Sum, Trigger, WindowedOperator
from slackwater.windows.triggers import DEFAULT_TRIGGER
from tests.unit.windows.test_state import CountingStore

EARLY = AfterWatermark(early=AfterCount(3), late=AfterCount(1))
WIDTH = 10


@dataclass(frozen=True)
class Cost:
    """What a batch into one window asks of the store, beside the index that is read and written anyway."""

    reads: int
    writes: int
    bytes: int
    index: int
    remembered: int
    """All bytes that the store holds."""


def cost(trigger: Trigger, *, windows: int, keys: int) -> Cost:
    """Of the fourth batch of ten rows into one window, after each of many others got some keys."""
    operator = WindowedOperator(
        window=Fixed(WIDTH),
        trigger=trigger,
        accumulations={"n": Count(), "total": Sum("value")},
        key=("key",),
        event_time="ts",
        mode="accumulating_and_retracting",
        allowed_lateness=None,
    )
    store = CountingStore()
    others = pl.select(pl.int_range(windows * keys).alias("row")).select(
        (pl.col("row") % keys).alias("key"),
        ((1 + pl.col("row") // keys) * WIDTH).alias("ts"),
        pl.lit(1).alias("value"),
    )
    touch = pl.DataFrame({"key": range(10), "ts": [5] * 10, "value": range(10)}, schema=others.schema)
    state, _ = operator.step(operator.initial_state(store), others, {}, now=0)
    for number in range(4):
        state = operator.load(operator.save(state), store)  # as a host does between two batches
        store.forget_calls()
        state, _ = operator.step(state, touch, {}, now=1 + number)
    assert state.open_windows == windows + 1
    moved = [store.kept[name] for name in {*store.reads, *store.writes} if name in store.kept]
    return Cost(
        reads=len(store.reads),
        writes=len(store.writes),
        bytes=sum(map(len, moved)),
        index=len(operator.save(state)),
        remembered=sum(map(len, store.kept.values())),
    )


@pytest.mark.parametrize("trigger", [DEFAULT_TRIGGER, EARLY], ids=["at the end", "early"])
def test_a_hundred_times_the_keys_cost_nothing(trigger: Trigger) -> None:
    little, much = cost(trigger, windows=5, keys=100), cost(trigger, windows=5, keys=10_000)
    assert much.remembered > 10 * little.remembered  # equal columns pack well
    assert (much.reads, much.writes, much.bytes) == (little.reads, little.writes, little.bytes)
    assert much.index <= little.index + 5 * 8, "larger numbers are some bytes longer"


@pytest.mark.parametrize("trigger", [DEFAULT_TRIGGER, EARLY], ids=["at the end", "early"])
def test_a_hundred_times_the_windows_cost_their_lines_in_the_index(trigger: Trigger) -> None:
    little, much = cost(trigger, windows=5, keys=20), cost(trigger, windows=500, keys=20)
    assert much.remembered > 30 * little.remembered
    assert (much.reads, much.writes, much.bytes) == (little.reads, little.writes, little.bytes)
    assert much.index <= little.index + 495 * 100, "the one thing that grows, by some bytes a window"
