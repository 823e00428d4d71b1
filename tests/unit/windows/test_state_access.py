"""A batch reads and writes only the blobs that it touches, independent of the size of the state."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import polars as pl
import pytest

from slackwater.windows import (
    AfterCount,
    AfterWatermark,
    Always,
    Count,
    Fixed,
    Global,
    Last,
    Sessions,
    Sliding,
    Sum,
    Trigger,
    WindowedOperator,
)
from slackwater.windows.engine.slices import Slicing
from slackwater.windows.triggers import DEFAULT_TRIGGER
from tests.support.recording_store import RecordingStore

EARLY = AfterWatermark(early=AfterCount(3), late=AfterCount(1))
WIDTH = 10


@dataclass(frozen=True)
class Cost:
    """The store accesses of a batch for one window, without the index, which is always read and written."""

    reads: int
    writes: int
    bytes: int
    index: int
    stored: int
    """The number of bytes in the store."""


def cost(trigger: Trigger, *, windows: int, keys: int) -> Cost:
    """The cost of the fourth batch of ten rows for one window, after many others got some keys each."""
    operator = WindowedOperator(
        window=Fixed(WIDTH),
        trigger=trigger,
        accumulations={"n": Count(), "total": Sum("value")},
        key=("key",),
        event_time="ts",
        mode="accumulating_and_retracting",
        allowed_lateness=None,
    )
    store = RecordingStore()
    others = pl.select(pl.int_range(windows * keys).alias("row")).select(
        (pl.col("row") % keys).alias("key"),
        ((1 + pl.col("row") // keys) * WIDTH).alias("ts"),
        pl.lit(1).alias("value"),
    )
    touch = pl.DataFrame({"key": range(10), "ts": [5] * 10, "value": range(10)}, schema=others.schema)
    state, _ = operator.step(operator.initial_state(store), others, {}, now=0)
    for number in range(4):
        state = operator.load(operator.save(state), store)  # as a host does between two batches
        store.take_calls()
        state, _ = operator.step(state, touch, {}, now=1 + number)
    assert state.open_windows == windows + 1
    moved = [store.blobs[name] for name in {*store.reads, *store.writes} if name in store.blobs]
    return Cost(
        reads=len(store.reads),
        writes=len(store.writes),
        bytes=sum(map(len, moved)),
        index=len(operator.save(state)),
        stored=sum(map(len, store.blobs.values())),
    )


@pytest.mark.parametrize("trigger", [DEFAULT_TRIGGER, EARLY], ids=["at the end", "early"])
def test_the_number_of_keys_does_not_change_the_number_of_store_accesses(trigger: Trigger) -> None:
    little, much = cost(trigger, windows=5, keys=100), cost(trigger, windows=5, keys=20_000)
    assert much.stored > 10 * little.stored  # equal columns pack well
    assert (much.reads, much.writes, much.bytes) == (little.reads, little.writes, little.bytes)
    assert much.index <= little.index + 5 * 8, "larger numbers are some bytes longer"


@pytest.mark.parametrize("trigger", [DEFAULT_TRIGGER, EARLY], ids=["at the end", "early"])
def test_the_number_of_windows_only_changes_the_size_of_the_index(trigger: Trigger) -> None:
    little, much = cost(trigger, windows=5, keys=20), cost(trigger, windows=500, keys=20)
    assert much.stored > 30 * little.stored
    assert (much.reads, much.writes, much.bytes) == (little.reads, little.writes, little.bytes)
    assert much.index <= little.index + 495 * 100, "the one thing that grows, by some bytes a window"


def test_purging_a_sliding_window_looks_only_at_the_slices_that_it_deletes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operator = WindowedOperator(
        window=Sliding(3600, 1), accumulations={"n": Count()}, event_time="ts", key=()
    )
    batch = pl.DataFrame({"ts": range(0, 3600, 10)})
    state, _ = operator.step(operator.initial_state(), batch, {"default": 100})
    looked_at: list[tuple[int, int]] = []

    known = Slicing.last_end

    def last_end(self: Slicing, bounds: tuple[int, int]) -> int:
        looked_at.append(bounds)
        return known(self, bounds)

    monkeypatch.setattr(Slicing, "last_end", last_end)
    state, output = operator.step(state, None, {"default": 105})
    assert sorted(output.panes["window_end"]) == [101, 102, 103, 104, 105]
    assert len(looked_at) <= 2 * output.panes.height


# ---- sessions


def session_costs(sessions: int, rows: int, batches: int, **settings: Any) -> list[int]:
    """The bytes that each batch writes: some rows of random keys, after every key got a session."""
    given: dict[str, Any] = {"accumulations": {"n": Count(), "total": Sum("value")}, "allowed_lateness": None}
    operator = WindowedOperator(**given | settings, window=Sessions(1_000_000), key="key", event_time="ts")
    store = RecordingStore()
    keys = pl.Series("key", [Random(number).getrandbits(60) for number in range(sessions)])
    first = pl.DataFrame({"key": keys, "ts": keys % 900_000, "value": keys % 97})
    state, _ = operator.step(operator.initial_state(store), first, {}, now=0)
    random, costs = Random(1), list[int]()
    for number in range(batches):
        chosen = keys.gather(random.sample(range(sessions), rows))
        batch = pl.DataFrame({"key": chosen, "ts": chosen % 900_000 + 50_000, "value": chosen % 97})
        state = operator.load(operator.save(state), store)
        store.take_calls()
        state, _ = operator.step(state, batch, {}, now=1 + number)
        costs.append(sum(len(store.blobs[name]) for name in store.writes) + len(operator.save(state)))
    return costs


@pytest.mark.search
def test_a_few_rows_do_not_rewrite_all_open_sessions() -> None:
    costs = session_costs(sessions=20_000, rows=20, batches=20)
    assert max(costs) < 20_000, "all sessions take more than 200,000 bytes"
    assert sum(costs) / len(costs) < 8_000


@pytest.mark.search
def test_a_few_rows_do_not_rewrite_all_last_panes() -> None:
    costs = session_costs(20_000, 20, 20, trigger=EARLY, mode="accumulating_and_retracting")
    assert max(costs) < 40_000
    assert sum(costs) / len(costs) < 16_000


def test_results_of_some_keys_are_written_and_not_those_of_all() -> None:
    """Of 6,000 keys with long values, every batch updates another tenth, and each firing emits those."""
    operator = WindowedOperator(
        window=Global(),
        trigger=Always(),
        accumulations={"n": Count(), "text": Last("text")},
        key=("key",),
        event_time="ts",
        mode="accumulating",
    )
    random, keys, some = Random(7), 6_000, 600
    texts = [random.randbytes(100).hex() for _ in range(keys)]
    store = RecordingStore()
    state = operator.initial_state(store)

    def batch(chosen: range, at: int) -> pl.DataFrame:
        return pl.DataFrame({"key": chosen, "ts": [at] * len(chosen), "text": [texts[key] for key in chosen]})

    state, _ = operator.step(state, batch(range(keys), 0), {}, now=0)
    whole = sum(map(len, store.blobs.values()))
    written = []
    for number in range(10):
        store.take_calls()
        chosen = range(number * some, (number + 1) * some)
        state, output = operator.step(state, batch(chosen, 1 + number), {}, now=1 + number)
        assert output.panes.sort("key").select("key", "n", "text").rows() == [
            (key, 2, texts[key]) for key in chosen
        ]
        written.append(sum(len(store.blobs[name]) for name in {*store.writes} if name in store.blobs))
    assert sum(one > whole / 2 for one in written) <= 1, "all are stored again once for as many new ones"
