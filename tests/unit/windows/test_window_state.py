"""Window state: a step reads and writes only the blobs it touches, and damaged state raises."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from slackwater.errors import CorruptState, IncompatibleState, UnsupportedStateVersion
from slackwater.time import END_OF_TIME
from slackwater.windows import (
    AfterCount,
    AfterWatermark,
    Collect,
    Count,
    Fixed,
    Repeatedly,
    Sessions,
    Sliding,
    Sum,
    Window,
    WindowedOperator,
)
from slackwater.windows.engine.window_state import Agenda
from slackwater.windows.spec.windowing_strategy import Mode
from slackwater.windows.triggers import DEFAULT_TRIGGER, Trigger
from tests.support.recording_store import RecordingStore

EARLY = AfterWatermark(early=AfterCount(3), late=AfterCount(1))
SAVED = Path(__file__).parent / "saved"


def operator(
    window: Window, trigger: Trigger = DEFAULT_TRIGGER, mode: Mode = "accumulating"
) -> WindowedOperator:
    return WindowedOperator(
        window=window,
        trigger=trigger,
        accumulations={"n": Count(), "total": Sum("value")},
        key=("key",),
        event_time="ts",
        mode=mode,
        allowed_lateness=100,
    )


def batch(*rows: tuple[str, int]) -> pl.DataFrame:
    return pl.DataFrame([(key, at, at) for key, at in rows], schema=["key", "ts", "value"], orient="row")


def test_a_batch_that_waits_for_the_end_reads_nothing() -> None:
    store = RecordingStore()
    fixed = operator(Fixed(10))
    state = fixed.initial_state(store)
    for number in range(3):
        state, _ = fixed.step(state, batch(("a", 1), ("b", 12)), {}, now=number)
    assert store.reads == []
    assert len(store.writes) == 6


@pytest.mark.parametrize("mode", ["discarding", "accumulating", "accumulating_and_retracting"])
def test_a_batch_touches_only_its_own_windows(mode: Mode) -> None:
    store = RecordingStore()
    fixed = operator(Fixed(10), EARLY, mode)
    state = fixed.initial_state(store)
    state, _ = fixed.step(
        state, batch(*((key, at) for key in "abc" for at in range(0, 500, 10) for _ in range(3))), {}
    )
    others = dict(store.blobs)
    mine = {state.windows[0, 10].rows, state.windows[0, 10].last_panes}
    mine |= {blob.name for blob in state.slices[0, 10].blobs} if (0, 10) in state.slices else set()
    store.take_calls()
    state, output = fixed.step(state, batch(("a", 1), ("a", 2), ("a", 3)), {})
    assert output.panes.filter(~pl.col("retraction")).height == 1
    assert set(store.reads) <= mine
    untouched = {name: data for name, data in others.items() if name not in mine}
    assert untouched.items() <= store.blobs.items()
    assert not untouched.keys() & set(store.writes)


def test_sessions_that_cannot_overlap_are_not_read() -> None:
    store = RecordingStore()
    sessions = operator(Sessions(1_000_000))
    state = sessions.initial_state(store)
    state, _ = sessions.step(state, batch(("a", 0), ("a", 50_000_000), ("a", 100_000_000)), {})
    store.take_calls()
    state, _ = sessions.step(state, batch(("a", 50_500_000)), {})
    assert len(store.reads) == 1
    assert len(store.writes) == 1


def test_appended_blobs_are_compacted() -> None:
    store = RecordingStore()
    fixed = operator(Fixed(10))
    state = fixed.initial_state(store)
    for number in range(200):
        state, _ = fixed.step(state, batch(("a", number % 10)), {}, now=number)
    assert len(store) < 25
    state, output = fixed.step(state, None, {"default": 10})
    assert output.panes.select("n", "total").rows() == [(200, 900)]


def test_an_element_of_sliding_windows_is_stored_once() -> None:
    sliding = operator(Sliding(60, 10))
    state, _ = sliding.step(sliding.initial_state(), batch(("a", 5)), {})
    assert state.open_windows == 6
    assert len(state.blobs) == 1


@pytest.mark.parametrize("window", [Fixed(10), Sliding(10, 5), Sliding(7, 3), Sessions(4)])
def test_the_state_is_empty_after_the_end_of_the_input(window: Window) -> None:
    one = operator(window, EARLY, "accumulating_and_retracting")
    state, _ = one.step(one.initial_state(), batch(*(("a", at) for at in range(30))), {"default": 12})
    state, _ = one.step(state, None, {"default": END_OF_TIME})
    assert (state.open_windows, dict(state.blobs), state.slices) == (0, {}, {})


def test_an_agenda_does_not_grow_with_changed_due_times() -> None:
    agenda: Agenda[str] = Agenda()
    agenda.set("b", 10**6)
    for due in range(10_000, 0, -1):
        agenda.set("a", due)
    assert len(agenda._heap) < 200
    assert agenda.take(10**6) == ["a", "b"]
    assert agenda.earliest() is None


def saved() -> tuple[WindowedOperator, bytes, dict[str, bytes]]:
    fixed = operator(Fixed(10), EARLY)
    state, _ = fixed.step(fixed.initial_state(), batch(("a", 1), ("b", 2), ("b", 3)), {"default": 4}, now=9)
    return fixed, fixed.save(state), dict(state.blobs)


def test_truncated_or_changed_bytes_raise() -> None:
    fixed, index, blobs = saved()
    for place in range(len(index)):
        with pytest.raises(CorruptState):
            fixed.load(index[:place], blobs)
        changed = bytearray(index)
        changed[place] ^= 0x41
        with pytest.raises((CorruptState, UnsupportedStateVersion)):
            fixed.load(bytes(changed), blobs)


def test_a_damaged_or_missing_blob_raises_when_it_is_read() -> None:
    fixed, index, blobs = saved()
    for name, data in blobs.items():
        for broken in (data[:-1], b"", data[:20] + bytes([data[20] ^ 1]) + data[21:]):
            state = fixed.load(index, blobs | {name: broken})
            with pytest.raises(CorruptState):
                fixed.step(state, batch(("a", 1), ("a", 1), ("a", 1)), {"default": 10})
        state = fixed.load(index, {other: kept for other, kept in blobs.items() if other != name})
        with pytest.raises(CorruptState, match="is in its index but not in the store"):
            fixed.step(state, batch(("a", 1), ("a", 1), ("a", 1)), {"default": 10})


def test_state_of_another_configuration_raises() -> None:
    _, index, blobs = saved()
    with pytest.raises(IncompatibleState, match=r"window was fixed\(size=10 µs\) and is now fixed\(size=20"):
        operator(Fixed(20), EARLY).load(index, blobs)


def test_state_written_by_version_1_loads() -> None:
    fixed = operator(Fixed(10), EARLY, "accumulating_and_retracting")
    blobs = {path.stem: path.read_bytes() for path in (SAVED / "windows-1").glob("*.blob")}
    state = fixed.load((SAVED / "windows-1" / "index").read_bytes(), blobs)
    assert (state.watermark, state.dropped_late) == (4, 0)
    assert state.waiting == 10, "an open window with new elements owes a pane"
    state, output = fixed.step(state, batch(("b", 5)), {"default": 200}, now=10)
    rows = output.panes.select("key", "n", "total", "index", "retraction").rows()
    assert [row for row in rows if row[0] == "a"] == [("a", 1, 1, 0, False)]
    assert [row for row in rows if row[0] == "b"] == [("b", 3, 7, 0, True), ("b", 4, 12, 1, False)]


def test_sessions_written_by_version_1_load() -> None:
    early = AfterWatermark(early=AfterCount(2), late=AfterCount(1))
    sessions = operator(Sessions(5), early, "accumulating_and_retracting")
    blobs = {path.stem: path.read_bytes() for path in (SAVED / "sessions-1").glob("*.blob")}
    state = sessions.load((SAVED / "sessions-1" / "index").read_bytes(), blobs)
    assert (state.watermark, state.dropped_late) == (4, 0)
    state = sessions.load(sessions.save(state), blobs)
    state, output = sessions.step(state, batch(("b", 7)), {"default": 5}, now=11)
    assert output.panes.is_empty(), "one new element in the session from 2 to 12 of b, which has fired before"
    _, output = sessions.step(state, None, {"default": 200}, now=12)
    columns = "key", "window_start", "window_end", "n", "total", "index", "retraction"
    assert sorted(output.panes.select(columns).rows()) == [
        ("a", 1, 6, 1, 10, 0, False),
        ("b", 2, 8, 2, 50, 0, True),
        ("b", 2, 12, 3, 57, 0, False),
        ("b", 12, 17, 1, 40, 0, False),
        ("c", 4, 9, 1, 1, 0, False),
    ]


def test_collected_lists_survive_a_reload() -> None:
    lists = WindowedOperator(
        window=Fixed(10),
        trigger=Repeatedly(AfterCount(2)),
        accumulations={"all": Collect("value")},
        key=("key",),
        event_time="ts",
    )
    state, _ = lists.step(lists.initial_state(), batch(("a", 1)), {})
    state = lists.load(lists.save(state), dict(state.blobs))
    state, output = lists.step(state, batch(("a", 2)), {})
    assert output.panes["all"].to_list() == [[1, 2]]
