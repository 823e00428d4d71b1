"""The as-of join: when a left row is certain, which right rows stay, ties, invalid arguments, state."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from slackwater.errors import CorruptState, IncompatibleState, InvalidArgument, WatermarkRegression
from slackwater.time import END_OF_TIME
from slackwater.windows.engine.asof_operator import AsofOperator
from slackwater.windows.spec.asof_spec import AsofSpec
from tests.support.recording_store import RecordingStore

SCHEMA = {"k": pl.String, "ts": pl.Int64, "name": pl.String}


def rows(*triples: tuple[str | None, int, str]) -> pl.DataFrame:
    return pl.DataFrame(triples, schema=SCHEMA, orient="row")


def operator(*, chunk_rows: int = 65_536, **settings: Any) -> AsofOperator:
    return AsofOperator(
        AsofSpec(**({"on": ("k",)} | settings)), left=SCHEMA, right=SCHEMA, chunk_rows=chunk_rows
    )


def names(output: Any) -> list[tuple[str, str | None]]:
    return list(output.rows.select("name_left", "name_right").rows())


# ---- when a row is certain


@pytest.mark.parametrize(
    ("direction", "tolerance", "right", "waits_at", "certain_at", "match"),
    [
        ("backward", None, 8, 10, 11, "r8"),  # a right row at 10 would be better
        ("backward", None, 10, 10, 11, "r10"),  # another one at 10 would be the last to arrive
        ("forward", None, 13, 12, 13, "r13"),  # a right row at 12 would be better
        ("forward", 2, 13, 12, 13, None),  # one at 12 would be within the tolerance
        ("nearest", None, 7, 13, 14, "r7"),  # one at 13 is as close, and later
        ("nearest", None, 13, 13, 14, "r13"),  # another one at 13 would be the last to arrive
        ("nearest", 2, 7, 12, 13, None),
    ],
)
def test_a_left_row_is_emitted_when_no_right_row_can_be_a_better_match(
    direction: str, tolerance: int | None, right: int, waits_at: int, certain_at: int, match: str | None
) -> None:
    joined = operator(direction=direction, tolerance=tolerance)
    state, _ = joined.step(joined.initial_state(), rows(("x", 10, "l")), rows(("x", right, f"r{right}")))
    state, output = joined.step(state, watermarks={"right": waits_at})
    assert names(output) == []
    _, output = joined.step(state, watermarks={"right": certain_at})
    assert names(output) == [("l", match)]


@pytest.mark.parametrize("direction", ["forward", "nearest"])
def test_without_a_tolerance_a_row_without_a_match_waits_for_the_end(direction: str) -> None:
    joined = operator(direction=direction)
    state, _ = joined.step(joined.initial_state(), rows(("x", 10, "l")), rows(("y", 11, "r")))
    state, output = joined.step(state, watermarks={"left": 500, "right": 500})
    assert names(output) == []
    assert output.watermarks == {"left": 10}
    _, output = joined.step(state, watermarks={"right": END_OF_TIME})
    assert names(output) == [("l", None)]
    assert output.watermarks == {"left": 500}


def test_a_null_key_matches_nothing_and_is_emitted_at_once() -> None:
    joined = operator()
    _, output = joined.step(joined.initial_state(), rows((None, 10, "l")), rows((None, 9, "r")))
    assert names(output) == [("l", None)]


def test_an_inner_join_omits_rows_without_a_match() -> None:
    joined = operator(how="inner")
    left = rows(("x", 10, "l"), ("y", 10, "alone"), (None, 10, "null"))
    _, output = joined.step(joined.initial_state(), left, rows(("x", 9, "r")), {"right": 11})
    assert names(output) == [("l", "r")]


def test_without_key_columns_only_times_are_compared() -> None:
    joined = operator(on=())
    _, output = joined.step(
        joined.initial_state(), rows(("x", 10, "l"), (None, 11, "m")), rows(("y", 9, "r")), {"right": 12}
    )
    assert sorted(names(output)) == [("l", "r"), ("m", "r")]
    assert output.rows.columns == ["k_left", "ts_left", "name_left", "k_right", "ts_right", "name_right"]


@pytest.mark.parametrize(("direction", "winner"), [("backward", "c"), ("forward", "a"), ("nearest", "c")])
def test_of_right_rows_with_equal_times_the_order_of_arrival_decides(direction: str, winner: str) -> None:
    joined = operator(direction=direction, chunk_rows=1)
    state = joined.initial_state()
    for name in "abc":
        state, _ = joined.step(state, right=rows(("x", 10, name)))
    _, output = joined.step(state, rows(("x", 10, "l")), watermarks={"right": 11})
    assert names(output) == [("l", winner)]


# ---- lateness and idleness


def test_late_rows_of_both_sides_are_counted_and_returned_on_request() -> None:
    for late, delivered in (("count", None), ("emit", [("x", 4, "l4")])):
        joined = operator(late=late)
        state, _ = joined.step(joined.initial_state(), watermarks={"left": 5, "right": 5})
        state, output = joined.step(state, rows(("x", 4, "l4"), ("x", 5, "l5")), rows(("x", 3, "r3")))
        assert output.dropped == {"left": 1, "right": 1}
        assert (output.late and output.late["left"].rows()) == delivered
        assert (state.left.late, state.right.late) == (1, 1)


def test_a_side_may_be_late_by_its_lateness() -> None:
    joined = operator(right_lateness=10)
    state, _ = joined.step(joined.initial_state(), rows(("x", 10, "l")), watermarks={"right": 20})
    state, output = joined.step(state, right=rows(("x", 10, "r")))
    assert output.dropped == {"left": 0, "right": 0}
    _, output = joined.step(state, watermarks={"right": 21})
    assert names(output) == [("l", "r")]


def test_an_idle_right_side_that_proceeds_does_not_hold_left_rows() -> None:
    joined = operator(idle="proceed")
    left, right = rows(("x", 10, "l")), rows(("x", 9, "r"))
    state, _ = joined.step(joined.initial_state(), left, right, {"right": 9})
    _, output = joined.step(state, watermarks={"left": 30}, idle={"right"})
    assert names(output) == [("l", "r")]
    assert output.watermarks == {"left": 30}


def test_a_decreasing_watermark_raises() -> None:
    joined = operator()
    state, _ = joined.step(joined.initial_state(), watermarks={"left": 5})
    with pytest.raises(WatermarkRegression, match="the left side of the as-of join"):
        joined.step(state, watermarks={"left": 4})


# ---- state


def test_the_latest_right_row_of_each_key_stays_however_old_it_is() -> None:
    joined = operator(chunk_rows=4)
    state = joined.initial_state()
    for number in range(40):
        right = rows(("x", number, f"x{number}"), *([("y", 0, "y0")] if number == 0 else []))
        state, _ = joined.step(state, right=right, watermarks={"left": number, "right": number})
    assert joined.buffer_sizes(state)["right"].rows < 15
    _, output = joined.step(state, rows(("x", 39, "a"), ("y", 39, "b")), watermarks={"right": 40})
    assert sorted(names(output)) == [("a", "x39"), ("b", "y0")]


@pytest.mark.parametrize(("direction", "remaining"), [("backward", 6), ("forward", 1), ("nearest", 6)])
def test_right_rows_that_no_left_row_can_select_are_removed(direction: str, remaining: int) -> None:
    joined = operator(direction=direction, tolerance=5, chunk_rows=1)
    right = rows(*[("x", number, f"r{number}") for number in range(20)])
    state, _ = joined.step(joined.initial_state(), right=right, watermarks={"left": 19})
    assert joined.buffer_sizes(state)["right"].rows == remaining


def test_buffered_left_rows_keep_the_right_rows_that_they_may_select() -> None:
    joined = operator(chunk_rows=1)
    left = rows(("x", 3, "l"))
    state, _ = joined.step(joined.initial_state(), left, rows(*[("x", n, f"r{n}") for n in range(9)]))
    state, _ = joined.step(state, watermarks={"left": 8, "right": 3})
    _, output = joined.step(state, watermarks={"right": 9})
    assert names(output) == [("l", "r3")]


def test_a_batch_reads_older_right_chunks_only_until_every_row_has_its_match() -> None:
    joined, store = operator(chunk_rows=2), RecordingStore()
    state = joined.initial_state(store)
    for start in range(0, 10, 2):
        state, _ = joined.step(
            state, right=rows(("x", start, f"r{start}"), ("x", start + 1, f"r{start + 1}"))
        )
    store.take_calls()
    _, output = joined.step(state, rows(("x", 20, "l")), watermarks={"right": 21})
    assert names(output) == [("l", "r9")]
    assert [call for call in store.take_calls() if call[0] == "read"] == [("read", "right-4")]


def test_state_of_another_join_raises() -> None:
    saved = operator().save(operator().initial_state())
    with pytest.raises(IncompatibleState, match="the join was"):
        operator(direction="nearest").load(saved, {})


def test_a_missing_blob_raises() -> None:
    joined = operator()
    blobs: dict[str, bytes] = {}
    state, _ = joined.step(joined.initial_state(blobs), right=rows(("x", 1, "r")))
    blobs.clear()
    with pytest.raises(CorruptState, match="blob right-0 of an as-of join"):
        joined.step(joined.load(joined.save(state), blobs), rows(("x", 1, "l")), watermarks={"right": 2})


# ---- what is refused


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"how": "full"}, "how = 'full'.*left, inner"),
        ({"direction": "back"}, "direction = 'back'.*backward, forward, nearest"),
        ({"tolerance": -1}, "tolerance = -1: is negative"),
        ({"on": "k"}, "on = 'k': has type str; give a tuple of column names"),
        ({"on": ("ts",)}, "contains an event-time column"),
        ({"idle": "close"}, "idle = 'close'.*hold, proceed"),
        ({"chunk_rows": 0}, "chunk_rows = 0"),
    ],
)
def test_an_invalid_setting_raises(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        operator(**change)
