"""Windows with many keys are divided by key: a step moves only the keys that it touches or that are due."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from slackwater.windows import (
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    Count,
    Fixed,
    Global,
    Max,
    Repeatedly,
    Sliding,
    Sum,
    Trigger,
    WindowedOperator,
    WindowOutput,
    WindowState,
)
from slackwater.windows.engine import divided_frames, window_state
from slackwater.windows.engine.key_hash import hash_check
from slackwater.windows.engine.state_summary import summarize
from tests.support.recording_store import RecordingStore

KEYS = 10_000
EACH = AfterWatermark(early=AfterCount(1), late=AfterCount(1))
DELAYED = AfterWatermark(early=AfterProcessingTime(10), late=AfterCount(1))


def make(trigger: Trigger, **settings: Any) -> WindowedOperator:
    given: dict[str, Any] = {"window": Fixed(1000), "accumulations": {"n": Count(), "total": Sum("value")}}
    return WindowedOperator(**given | settings, trigger=trigger, key="key", event_time="ts")


def batch(keys: Any, at: int = 5) -> pl.DataFrame:
    return pl.DataFrame({"key": keys}).with_columns(ts=pl.lit(at), value=pl.lit(2))


def loaded(operator: WindowedOperator, state: WindowState) -> WindowState:
    return operator.load(operator.save(state), state.blobs)


def sorted_panes(output: WindowOutput) -> list[Any]:
    chosen = output.panes.drop("timestamp").drop("window_start", "window_end")
    return sorted(chosen.rows(), key=repr)


def moved(store: RecordingStore) -> int:
    names = {*store.reads, *store.writes}
    return sum(len(store.blobs[name]) for name in names if name in store.blobs)


@pytest.mark.search
@pytest.mark.parametrize("mode", ["discarding", "accumulating", "accumulating_and_retracting"])
@pytest.mark.parametrize("trigger", [EACH, DELAYED], ids=["count", "delay"])
def test_a_row_of_one_key_moves_a_small_share_of_the_state(trigger: Trigger, mode: str) -> None:
    store = RecordingStore()
    operator = make(trigger, mode=mode)
    state, _ = operator.step(operator.initial_state(store), batch(range(KEYS)), now=0)
    state, _ = operator.step(loaded(operator, state), None, now=11)
    for number in range(4):  # the first ones divide what they need
        state = loaded(operator, state)
        store.take_calls()
        state, output = operator.step(state, batch([8]), now=30 + 20 * number)
        assert number % 2 == 0 or output.panes["key"].unique().to_list() == [8], "delayed to the next step"
    assert moved(store) * 3 < sum(map(len, store.blobs.values()))
    _, output = operator.step(state, None, {"default": 1000}, now=150)
    last = output.panes.filter(~pl.col("retraction"))
    everything = [(1, KEYS - 1), (5, 1)] if mode != "discarding" else [(0, KEYS)]
    assert sorted(last["n"].value_counts().rows()) == everything


def test_the_clock_reads_only_keys_that_are_due() -> None:
    store = RecordingStore()
    operator = make(DELAYED)
    state, _ = operator.step(operator.initial_state(store), batch(range(KEYS)), now=0)
    state, _ = operator.step(state, None, now=11)
    for number in range(2):
        state, _ = operator.step(loaded(operator, state), batch([7 + number]), now=12 + number)
    state, output = operator.step(loaded(operator, state), None, now=23)
    assert output.panes.select("key", "n", "index").rows() == [(7, 2, 1)]
    state = loaded(operator, state)
    store.take_calls()
    _, output = operator.step(state, None, now=24)
    assert output.panes.select("key", "n", "index").rows() == [(8, 2, 1)]
    assert moved(store) * 3 < sum(map(len, store.blobs.values()))


def test_many_rows_are_not_divided() -> None:
    operator = make(EACH)
    state, _ = operator.step(operator.initial_state(), batch(range(KEYS)))
    assert not state.divisions
    state, _ = operator.step(state, batch([7]))
    assert len(state.divisions) == 2, "the rows and the partials"
    state, _ = operator.step(state, batch(range(KEYS)))
    assert not state.divisions


@pytest.mark.search
def test_a_divided_window_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_state, "ROWS_WORTH_DIVIDING", 100)
    monkeypatch.setattr(window_state, "ROWS_OF_A_PART", 50)
    monkeypatch.setattr(divided_frames, "FEW_OF", 8)
    monkeypatch.setattr(divided_frames, "MANY_OF", 4)
    operator = make(EACH)
    known = 500
    state, _ = operator.step(operator.initial_state(), batch(range(known)))
    parts: list[int] = []
    while known < 2_000:
        state, _ = operator.step(state, batch(range(known, known + known // 9)))
        known += known // 9
        parts.append(len(state.divisions[str(state.windows[0, 1000].rows)].parts))
    assert (parts[0], parts[-1]) == (16, 64)
    (rows,) = (state.divisions[str(entry.rows)] for entry in state.windows.values())
    assert rows.rows == known
    assert summarize(operator.save(state), state.blobs).keys == known


def test_keys_of_any_type_find_their_part() -> None:
    operator = make(EACH)
    state, _ = operator.step(operator.initial_state(), batch(pl.Series(range(KEYS), dtype=pl.Int32)))
    state, _ = operator.step(state, batch([None, 7]))
    assert state.divisions
    wider = batch(pl.Series([7, None, KEYS], dtype=pl.Int64))
    state, output = operator.step(state, wider)
    assert sorted(output.panes.select("key", "n").rows(), key=repr) == [(KEYS, 1), (7, 3), (None, 2)]
    state, output = operator.step(state, batch(pl.Series([None], dtype=pl.Null)))
    assert output.panes.select("key", "n").rows() == [(None, 3)]


def test_nested_keys_are_not_divided() -> None:
    operator = make(EACH)
    keys = [[number] for number in range(9_000)]
    state, _ = operator.step(operator.initial_state(), batch(keys))
    state, output = operator.step(state, batch([[7]]))
    assert not state.divisions
    assert output.panes.select("key", "n").rows() == [([7], 2)]


def test_state_that_another_hash_divided_is_divided_again(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = make(DELAYED, mode="accumulating_and_retracting")
    state, _ = operator.step(operator.initial_state(), batch(range(KEYS)), now=0)
    state, _ = operator.step(state, None, now=11)
    state, _ = operator.step(state, batch([7]), now=12)
    state, _ = operator.step(state, batch([8]), now=23)
    assert len(state.divisions) == 3
    for division in state.divisions.values():  # as if keys had other hashes
        division.parts.reverse()
    with monkeypatch.context() as patch:
        patch.setattr(window_state, "hash_check", lambda: hash_check() + 1)
        saved = operator.save(state)
    state = operator.load(saved, state.blobs)
    state, output = operator.step(state, None, now=34)
    assert output.panes.select("key", "n", "retraction").rows() == [(8, 1, True), (8, 2, False)]
    state, output = operator.step(loaded(operator, state), batch([7]), now=45)
    state, output = operator.step(state, None, now=56)
    assert output.panes.select("key", "n", "retraction").rows() == [(7, 2, True), (7, 3, False)]


CHANGES: list[dict[str, Any]] = [
    {"trigger": Repeatedly(AfterCount(2))},
    {"trigger": AfterCount(2), "allow_data_loss": True},
    {"allowed_lateness": 500},
    {"accumulations": {"n": Count(), "most": Max("value")}},
    {"window": Global(ttl=50)},
]


@pytest.mark.search
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_a_changed_query_continues_with_divided_state(
    change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def outputs(rows_worth_dividing: int) -> list[Any]:
        monkeypatch.setattr(window_state, "ROWS_WORTH_DIVIDING", rows_worth_dividing)
        monkeypatch.setattr(window_state, "ROWS_OF_A_PART", 50)
        window = Global(ttl=20) if "window" in change else Fixed(1000)
        settings: dict[str, Any] = {"mode": "accumulating_and_retracting", "window": window, "trigger": EACH}
        before, after = make(**settings), make(**settings | change)
        state, _ = before.step(before.initial_state(), batch(range(200)), {"default": 1})
        state, _ = before.step(state, batch([3, 201]), {"default": 2})
        assert bool(state.divisions) == (rows_worth_dividing < 200)
        state = after.load(before.save(state), dict(state.blobs))
        found: list[Any] = []
        for number, keys in enumerate(([3, 4], [4], [5], [])):
            watermarks = {"default": 20 + 10 * number if keys else 1500}
            given = batch(keys, at=20 + 10 * number) if keys else None
            state, output = after.step(state, given, watermarks, now=number)
            found.append((sorted_panes(output), output.watermarks, output.waiting, output.expired_keys))
            state = after.load(after.save(state), state.blobs)
        return found

    monkeypatch.setattr(divided_frames, "FEW_OF", 2)
    monkeypatch.setattr(divided_frames, "MANY_OF", 2)
    assert outputs(10) == outputs(1000)


def test_sliding_windows_read_few_keys_of_shared_partials() -> None:
    store = RecordingStore()
    operator = make(EACH, window=Sliding(1000, 500))
    state, _ = operator.step(operator.initial_state(store), batch(range(KEYS)))
    state, _ = operator.step(state, batch([7]))
    state = loaded(operator, state)
    store.take_calls()
    _, output = operator.step(state, batch([7]))
    assert output.panes.select("key", "n").rows() == [(7, 3), (7, 3)]
    assert moved(store) * 3 < sum(map(len, store.blobs.values()))
