"""The ttl of a global window: keys without elements are purged, with what they owe, and begin anew."""

from __future__ import annotations

import json
from base64 import b64decode
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from slackwater.errors import InvalidArgument
from slackwater.time import DAY, END_OF_TIME
from slackwater.windows import (
    AfterCount,
    AfterWatermark,
    Count,
    Global,
    MergeOperator,
    Repeatedly,
    Sum,
    WindowedOperator,
    WindowOutput,
    WindowState,
    global_window,
)
from slackwater.windows.engine.state_summary import summarize

Row = tuple[str, int, int]
EACH = Repeatedly(AfterCount(1))


def make(ttl: int | None = 10, **settings: Any) -> WindowedOperator:
    given: dict[str, Any] = {"accumulations": {"n": Count(), "total": Sum("value")}, "key": ("key",)}
    return WindowedOperator(**given | settings, window=Global(ttl), event_time="ts")


def rows(*several: Row) -> pl.DataFrame:
    return pl.DataFrame(several, schema=["key", "ts", "value"], orient="row")


def step(
    operator: WindowedOperator, state: WindowState, *several: Row, watermark: int | None = None
) -> tuple[WindowState, WindowOutput]:
    watermarks = {} if watermark is None else {"default": watermark}
    return operator.step(state, rows(*several) if several else None, watermarks)


def panes(output: WindowOutput) -> list[tuple[Any, ...]]:
    chosen = output.panes.sort("key").select("key", "n", "total", "timing", "index", "is_last", "retraction")
    return chosen.rows()


def stored_keys(operator: WindowedOperator, state: WindowState) -> int:
    return summarize(operator.save(state), state.blobs).keys


def test_a_key_is_purged_when_the_watermark_reaches_its_latest_event_time_plus_the_ttl() -> None:
    operator = make()
    state, _ = step(operator, operator.initial_state(), ("a", 0, 1), ("a", 3, 2), ("b", 8, 4))
    state, output = step(operator, state, watermark=12)
    assert (panes(output), output.expired_keys) == ([], 0)
    state, output = step(operator, state, watermark=13)
    assert (panes(output), output.expired_keys) == ([("a", 2, 3, "EARLY", 0, True, False)], 1)
    assert stored_keys(operator, state) == 1
    state, output = step(operator, state, watermark=18)
    assert (panes(output), output.expired_keys) == ([("b", 1, 4, "EARLY", 0, True, False)], 1)
    assert (state.open_windows, dict(state.blobs)) == (0, {})


def test_the_allowed_lateness_is_added_to_the_ttl() -> None:
    operator = make(allowed_lateness=5)
    state, _ = step(operator, operator.initial_state(), ("a", 0, 1))
    state, output = step(operator, state, watermark=14)
    assert output.expired_keys == 0
    state, output = step(operator, state, watermark=15)
    assert output.expired_keys == 1


def test_what_was_emitted_already_is_not_emitted_again() -> None:
    operator = make(trigger=EACH, mode="accumulating_and_retracting")
    state, output = step(operator, operator.initial_state(), ("a", 0, 1), ("b", 9, 1))
    assert len(panes(output)) == 2
    state, output = step(operator, state, watermark=10)
    assert (panes(output), output.expired_keys) == ([], 1)
    state, output = step(operator, state, ("a", 11, 5))
    assert panes(output) == [("a", 1, 5, "EARLY", 0, False, False)], "a retraction of the purged pane"


def test_a_later_element_begins_anew_and_an_expired_one_is_dropped() -> None:
    operator = make(trigger=EACH, late="emit")
    state, _ = step(operator, operator.initial_state(), ("a", 0, 1))
    state, output = step(operator, state, ("b", 1, 7), watermark=10)
    assert output.expired_keys == 1
    state, output = step(operator, state, ("a", 0, 1), ("a", 1, 2))
    assert panes(output) == [("a", 1, 2, "EARLY", 0, False, False)]
    assert output.late is not None
    assert output.dropped_late == 1
    assert output.late.select("key", "ts", "reason").rows() == [("a", 0, "late")]


def test_elements_of_a_closed_key_keep_it_closed() -> None:
    operator = make(trigger=AfterCount(1), allow_data_loss=True)
    state, _ = step(operator, operator.initial_state(), ("a", 0, 1))
    state, output = step(operator, state, ("a", 5, 1), watermark=10)
    assert (output.dropped_closed, output.expired_keys) == (1, 0)
    state, output = step(operator, state, watermark=15)
    assert (panes(output), output.expired_keys) == ([], 1)


def test_the_end_of_the_input_completes_the_window() -> None:
    operator = make()
    state, _ = step(operator, operator.initial_state(), ("a", 0, 1))
    state, output = step(operator, state, watermark=END_OF_TIME)
    assert (panes(output), output.expired_keys) == ([("a", 1, 1, "ON_TIME", 0, True, False)], 0)


def test_a_watermark_is_not_held_by_a_key_that_has_expired() -> None:
    operator = make(
        trigger=AfterWatermark(early=AfterCount(1)),
        allow_data_loss=True,
        timestamp="earliest",
        mode="accumulating_and_retracting",
    )
    state, _ = step(operator, operator.initial_state(), ("a", 3, 1), ("b", 9, 1))
    state, output = step(operator, state, watermark=12)
    assert output.watermarks == {"default": 3}, "the pane at 3 may be retracted"
    state, output = step(operator, state, watermark=13)
    assert output.watermarks == {"default": 9}


def test_rows_of_both_sides_of_a_cogroup_expire_together() -> None:
    merge = MergeOperator(
        window=Global(10), how="cogroup", key=("key",), left=("value",), right=("value",),
        left_time="ts", right_time="ts",
    )  # fmt: skip
    state, _ = merge.step(merge.initial_state(), rows(("a", 0, 1)), rows(("a", 5, 2)))
    state, output = merge.step(state, watermarks={"left": 14, "right": 14})
    assert output.expired_keys == 0
    state, output = merge.step(state, watermarks={"left": 15, "right": 15})
    assert (output.panes.height, output.expired_keys) == (1, 1)


# ---- arguments


def test_a_ttl_is_a_duration() -> None:
    assert global_window(ttl="7 days") == global_window(ttl=timedelta(days=7)) == Global(7 * DAY)
    assert repr(Global()) == "Global()", "it is part of saved state"


@pytest.mark.parametrize(
    ("ttl", "message"),
    [
        ("0 seconds", "ttl = 0: must be greater than zero"),
        ("-1 day", "ttl = "),
        ("a week", "ttl = 'a week'"),
        (7, "ttl = 7"),
        (timedelta(days=74_000 * 365), "is longer than 73,000 years; use a shorter one"),
    ],
)
def test_a_ttl_that_is_not_a_positive_duration_is_rejected(ttl: Any, message: str) -> None:
    with pytest.raises(InvalidArgument) as found:
        global_window(ttl=ttl)
    assert message in str(found.value)


def test_a_ttl_needs_a_limit_of_lateness() -> None:
    with pytest.raises(InvalidArgument, match="cannot be combined with unlimited allowed lateness"):
        make(allowed_lateness=None)


def test_batches_of_keys_that_expire_are_not_folded() -> None:
    assert make(ttl=None).can_fold
    assert make().spec.prevents_folding == "window=Global(ttl=10)"


# ---- changes over a restart


def changed(before: WindowedOperator, after: WindowedOperator, state: WindowState) -> WindowState:
    return after.load(before.save(state), dict(state.blobs))


@pytest.mark.parametrize("trigger", [EACH, AfterWatermark(late=AfterCount(1))], ids=["early", "at the end"])
def test_keys_from_before_a_ttl_was_added_expire_after_the_watermark_of_the_change(trigger: Any) -> None:
    before, after = make(None, trigger=trigger), make(10, trigger=trigger)
    state, _ = step(before, before.initial_state(), ("a", 0, 1), ("b", 2, 1), watermark=100)
    state, output = step(after, changed(before, after, state), ("b", 105, 1), watermark=109)
    assert output.expired_keys == 0
    state, output = step(after, state, watermark=110)
    assert output.expired_keys == 1
    state, output = step(after, state, watermark=115)
    emitted = output.panes.select("key", "n", "is_last").rows()
    assert emitted == ([] if trigger == EACH else [("b", 2, True)])
    assert output.expired_keys == 1


def test_a_ttl_that_is_lowered_purges_keys_in_the_next_step() -> None:
    before, after = make(100), make(10)
    state, _ = step(before, before.initial_state(), ("a", 0, 1), ("b", 45, 1), watermark=50)
    state, output = step(after, changed(before, after, state), ("a", 51, 2))
    assert (panes(output), output.expired_keys) == ([("a", 1, 1, "EARLY", 0, True, False)], 1)
    state, output = step(after, state, watermark=61)
    assert panes(output)[0] == ("a", 1, 2, "EARLY", 0, True, False)


def test_a_ttl_that_is_raised_does_not_reopen_keys_that_have_expired() -> None:
    before, after = make(10, trigger=EACH), make(100, trigger=EACH)
    state, _ = step(before, before.initial_state(), ("a", 0, 1), ("b", 45, 1), watermark=50)
    state = changed(before, after, state)
    state, output = step(after, state, ("a", 40, 2), ("b", 41, 2))
    assert panes(output) == [("b", 2, 3, "EARLY", 1, False, False)]
    assert output.dropped_late == 1
    state, output = step(after, state, watermark=144)
    assert output.expired_keys == 0
    state, output = step(after, state, watermark=145)
    assert output.expired_keys == 1


def test_a_ttl_that_is_removed_keeps_all_keys() -> None:
    before, after = make(10), make(None)
    state, _ = step(before, before.initial_state(), ("a", 0, 1), watermark=5)
    state, output = step(after, changed(before, after, state), ("a", 1, 2), watermark=1_000)
    assert (panes(output), output.expired_keys) == ([], 0)
    folded = [after.fold(rows(("a", 2, 3)))]
    state, output = after.step(state, None, {"default": END_OF_TIME}, folded=folded)
    assert panes(output) == [("a", 3, 6, "ON_TIME", 0, True, False)]


def test_a_state_that_was_saved_before_keys_could_expire_loads() -> None:
    saved = json.loads((Path(__file__).parent / "saved" / "windows-2.json").read_text("utf-8"))
    blobs = {name: b64decode(blob) for name, blob in saved["blobs"].items()}
    for ttl, expired in ((None, 0), (10, 4)):
        operator = make(ttl, trigger=Repeatedly(AfterCount(2)), mode="accumulating_and_retracting")
        state = operator.load(b64decode(saved["index"]), dict(blobs))
        state, output = step(operator, state, ("a", 13, 1), ("a", 13, 2), ("c", 13, 4))
        assert panes(output) == [
            ("a", 2, 6, "EARLY", 0, False, True),
            ("a", 4, 9, "EARLY", 1, False, False),
            ("c", 2, 5, "EARLY", 0, False, False),
        ]
        _, output = step(operator, state, watermark=23)
        assert panes(output) == ([] if ttl is None else [(None, 1, 2, "EARLY", 0, True, False)])
        assert output.expired_keys == expired


def test_a_summary_of_the_state_shows_the_ttl() -> None:
    operator = make(ttl=7 * DAY)
    state, _ = step(operator, operator.initial_state(), ("a", 0, 1))
    assert "global_window(ttl=7 d)" in summarize(operator.save(state), state.blobs).description
