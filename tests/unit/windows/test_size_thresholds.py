"""Code paths for large batches, exercised with small ones by setting every size threshold to a minimum.

Grouping slice by slice, compacting blobs, portions of due windows, several groups of sessions and deltas of
sessions need more data than a random scenario has; the results must equal those of the model.
"""

from __future__ import annotations

from random import Random
from typing import Any

import polars as pl
import pytest

from slackwater.windows import (
    AfterProcessingTime,
    Count,
    First,
    Last,
    Repeatedly,
    Sliding,
    Sum,
    WindowedOperator,
)
from slackwater.windows.engine import divided_frames, row_log, session_windows, slice_partials, window_state
from tests.property.comparing import compare
from tests.strategies.windows import RandomSource, scenario
from tests.support.sampling import sampled


@pytest.mark.parametrize("seed", sampled(range(40), keep=range(12), check=range(6)))
def test_thresholds_change_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slice_partials, "_ROWS_WORTH_SPLITTING", 2)
    monkeypatch.setattr(slice_partials, "_ROWS_AT_ONCE", (3, 1_000)[seed % 2])
    monkeypatch.setattr(slice_partials, "_SLICES_WORTH_SHARING", 1)
    monkeypatch.setattr(slice_partials, "FAN_IN", 2)
    monkeypatch.setattr(session_windows, "_GAPS_IN_A_GROUP", 1)
    monkeypatch.setattr(session_windows.SessionWindows, "minimum_width", 1)
    monkeypatch.setattr(session_windows, "_WORTH_SPLITTING", seed % 2)
    monkeypatch.setattr(session_windows, "_MANY", seed % 5 % 3)
    monkeypatch.setattr(window_state, "ROWS_WORTH_DIVIDING", 1 + seed % 3)
    monkeypatch.setattr(window_state, "ROWS_OF_A_PART", 1)
    monkeypatch.setattr(divided_frames, "FEW_OF", (0.01, 2)[seed % 2])
    monkeypatch.setattr(divided_frames, "MANY_OF", (0.01, 1.5)[seed % 2])
    monkeypatch.setattr(slice_partials, "_ROWS_WORTH_SELECTING", (0, 4)[seed % 2])
    monkeypatch.setattr(slice_partials, "_MAX_FIRING_SHARE", (9.0, 1.0, 0.5)[seed % 3])
    monkeypatch.setattr(row_log, "_MAX_CHANGED", (1e9, 3.0, 0.0)[seed % 3])
    monkeypatch.setattr(row_log, "FAN_IN", 2)
    compare(scenario(RandomSource(Random(f"thresholds/{seed}"))))


@pytest.mark.parametrize("due_at_once", sampled([1, 2, 3, 7, 40], keep=[1, 2, 3, 7, 40], check=[7]))
def test_slices_that_due_windows_share_are_merged_once_with_the_same_result(
    due_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(due_at_once)
    span = 50 + 4 * due_at_once
    rows = [
        (random.randrange(4), at, random.randrange(99))
        for at in sorted(random.choices(range(span), k=span * 3 // 4))
    ]
    batch = pl.DataFrame(rows, ["key", "ts", "value"], orient="row")
    operator = WindowedOperator(
        window=Sliding(30, 1),
        accumulations={"n": Count(), "sum": Sum("value"), "first": First("value"), "last": Last("value")},
        key="key",
        event_time="ts",
    )

    def panes() -> pl.DataFrame:
        state, output = operator.step(operator.initial_state(), batch, {"default": 0}, now=0)
        found = [output.panes]
        for watermark in range(due_at_once, span + 30 + due_at_once, due_at_once):
            state, output = operator.step(state, None, {"default": watermark}, now=0)
            found.append(output.panes)
        return pl.concat(frame for frame in found if frame.height).sort("window_start", "key")

    shared = panes()
    merged = merges(monkeypatch)
    assert panes().equals(shared)
    assert (len(merged) > 0) == (due_at_once > 1)
    monkeypatch.setattr(slice_partials, "_SLICES_WORTH_SHARING", 10**9)
    assert panes().equals(shared)
    in_window = pl.col("ts").is_between(20, 49)
    assert shared.filter(pl.col("window_start") == 20)["sum"].sum() == batch.filter(in_window)["value"].sum()


def merges(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Records how many slices are merged for several windows, from now on."""
    found: list[int] = []
    shared = slice_partials.SlicePartials._shared

    def recorded(self: slice_partials.SlicePartials, *arguments: Any) -> Any:
        result = shared(self, *arguments)
        found.extend(len(one.slices) for one in result.values())
        return result

    monkeypatch.setattr(slice_partials.SlicePartials, "_shared", recorded)
    return found


def test_compacted_steps_stay_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slice_partials, "FAN_IN", 3)
    operator = WindowedOperator(
        window=Sliding(10, 5),
        trigger=Repeatedly(AfterProcessingTime(5)),
        accumulations={"first": First("value")},
        key="key",
        event_time="ts",
        mode="discarding",
    )
    state = operator.initial_state()
    # Window [0, 10) fires at 6, so that steps before and after that are distinguished; then [5, 15) at 7.
    for value, (at, now) in enumerate([(2, 0), (7, 1), (7, 2), (7, 6)]):
        if now == 6:
            state, _ = operator.step(state, None, now=now)
        batch = pl.DataFrame({"key": range(500)}).with_columns(ts=at, value=value)
        state, _ = operator.step(state, batch, now=now)
    _, output = operator.step(state, None, now=7)
    assert output.panes.group_by("window_start", "first").len().rows() == [(5, 1, 500)]
