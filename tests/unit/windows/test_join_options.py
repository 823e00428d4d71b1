"""Options of the time-bounded join: semi and anti joins, conditions, idleness, lateness, retractions."""

from __future__ import annotations

import json
import pickle
from base64 import b64decode
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from slackwater.errors import IncompatibleState, InvalidArgument, WatermarkRegression
from slackwater.time import END_OF_TIME
from slackwater.windows.engine.join_operator import JoinOperator
from slackwater.windows.spec.join_spec import JoinSpec
from slackwater.windows.spec.operator_spec import SIDES
from tests.support.recording_store import RecordingStore

SCHEMA: dict[str, pl.DataType] = {"k": pl.String(), "ts": pl.Int64(), "name": pl.String()}
SIGNED = {**SCHEMA, "back": pl.Boolean()}
ENDED = {"left": END_OF_TIME, "right": END_OF_TIME}


def rows(*triples: tuple[str | None, int, str]) -> pl.DataFrame:
    return pl.DataFrame(triples, schema=SCHEMA, orient="row")


def signed(*changes: tuple[str, int, str, bool]) -> pl.DataFrame:
    return pl.DataFrame(changes, schema=SIGNED, orient="row")


def operator(**settings: Any) -> JoinOperator:
    given: dict[str, Any] = {"on": ("k",), "before": 1, "after": 1} | settings
    spec = JoinSpec(**given)
    left, right = (SCHEMA if spec.retractions(side) is None else SIGNED for side in SIDES)
    return JoinOperator(spec, left=left, right=right)


# ---- semi and anti joins


def test_a_semi_join_emits_a_left_row_once_at_its_first_match() -> None:
    joined = operator(how="semi")
    assert joined.output_schema.names() == ["k", "ts", "name"]
    state, output = joined.step(joined.initial_state(), rows(("x", 5, "l5"), ("x", 9, "l9")))
    assert output.rows.is_empty()
    state, output = joined.step(state, right=rows(("x", 4, "r4"), ("x", 5, "r5")))
    assert output.rows.rows() == [("x", 5, "l5")]
    state, output = joined.step(state, right=rows(("x", 6, "r6")))
    assert output.rows.is_empty()
    _, output = joined.step(state, watermarks=ENDED)
    assert output.rows.is_empty()


@pytest.mark.parametrize(("how", "expected"), [("semi", [("x", 5, "l5")]), ("anti", [("x", 9, "l9")])])
def test_the_sides_of_a_semi_or_anti_join_need_not_have_the_same_columns(
    how: str, expected: list[tuple[str, int, str]]
) -> None:
    spec = JoinSpec(on=("k",), before=1, after=1, how=how)  # type: ignore[arg-type]
    joined = JoinOperator(spec, left=SCHEMA, right={"k": pl.String(), "ts": pl.Int64()})
    right = pl.DataFrame({"k": ["x"], "ts": [5]})
    _, output = joined.step(joined.initial_state(), rows(("x", 5, "l5"), ("x", 9, "l9")), right, ENDED)
    assert output.rows.rows() == expected


def test_an_anti_join_emits_a_left_row_when_no_match_is_possible_any_more() -> None:
    joined = operator(how="anti")
    left = rows(("x", 5, "l5"), ("x", 9, "l9"), (None, 5, "null"))
    state, _ = joined.step(joined.initial_state(), left, rows(("x", 5, "r5")))
    state, output = joined.step(state, watermarks={"right": 6})
    assert output.rows.is_empty()  # a right row at 6 would match
    state, output = joined.step(state, watermarks={"right": 7})
    assert output.rows.rows() == [(None, 5, "null")]
    _, output = joined.step(state, watermarks=ENDED)
    assert output.rows.rows() == [("x", 9, "l9")]


def test_a_semi_join_forwards_only_the_watermark_of_the_left_side() -> None:
    joined = operator(how="semi")
    _, output = joined.step(joined.initial_state(), watermarks={"left": 5, "right": 9})
    assert output.watermarks == {"left": 5}


def test_a_left_row_with_a_match_is_not_buffered_by_a_semi_join() -> None:
    joined = operator(how="semi")
    left, right = rows(("x", 5, "l5"), ("y", 5, "other")), rows(("x", 5, "r5"))
    state, _ = joined.step(joined.initial_state(), left, right)
    assert joined.buffered(state) == {"left": 1, "right": 1}


# ---- a further condition


def test_a_condition_decides_whether_an_outer_row_has_a_match() -> None:
    joined = operator(how="left", condition=pl.col("name_right") > pl.col("name_left"))
    left = rows(("x", 5, "b"), ("x", 6, "d"))
    state, output = joined.step(joined.initial_state(), left, rows(("x", 5, "a"), ("x", 5, "c")))
    assert output.rows.select("name_left", "name_right").rows() == [("b", "c")]
    _, output = joined.step(state, watermarks=ENDED)
    assert output.rows.select("name_left", "name_right").rows() == [("d", None)]


def test_a_condition_as_sql_text_and_null_is_no_match() -> None:
    joined = operator(how="anti", condition="name_right > name_left")
    left = rows(("x", 5, "b"), ("y", 5, None))  # type: ignore[arg-type]
    state, _ = joined.step(joined.initial_state(), left, rows(("x", 5, "c"), ("y", 5, "c")))
    _, output = joined.step(state, watermarks=ENDED)
    assert output.rows["k"].to_list() == ["y"]


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("name_right >", "is not a valid SQL expression"),
        (pl.col("amount") > 1, "cannot be evaluated .*amount.*use the columns k, ts_left, name_left"),
        (pl.col("ts_left") + 1, "has type Int64, not Boolean; give a comparison"),
        (7, "has type int; give a Polars expression or SQL text"),
    ],
)
def test_an_invalid_condition_raises(condition: object, message: str) -> None:
    with pytest.raises(InvalidArgument, match=f"(?s)condition = .*{message}"):
        operator(condition=condition)


def test_specs_with_conditions_are_compared_hashed_and_pickled_by_their_text() -> None:
    one, same, other = (
        JoinSpec(on=("k",), before=0, after=0, condition=pl.col("a") > limit) for limit in (1, 1, 2)
    )
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert pickle.loads(pickle.dumps(one)) == one  # noqa: S301 - pickled by this test


def test_state_of_a_join_with_another_condition_raises() -> None:
    joined = operator(condition="name_right > name_left")
    saved = joined.save(joined.initial_state())
    with pytest.raises(IncompatibleState, match=r"the join was inner join on .* and is now inner join on"):
        operator(condition="name_right < name_left").load(saved, {})


# ---- idleness


def test_an_idle_side_waits_by_default() -> None:
    joined = operator(how="left")
    state, _ = joined.step(joined.initial_state(), rows(("x", 5, "l5")))
    _, output = joined.step(state, watermarks={"left": 90}, idle={"right"})
    assert output.rows.is_empty()
    assert output.watermarks == {}


def test_an_idle_side_that_proceeds_is_as_far_as_the_other_and_its_later_rows_are_late() -> None:
    joined, blobs = operator(how="left", idle="proceed"), {}  # type: tuple[JoinOperator, dict[str, bytes]]
    state, _ = joined.step(joined.initial_state(blobs), rows(("x", 5, "l5")))
    state, output = joined.step(state, watermarks={"left": 90}, idle={"right"})
    assert output.rows.select("name_left", "name_right").rows() == [("l5", None)]
    assert output.watermarks == {"left": 89, "right": 89}

    state = joined.load(joined.save(state), blobs)  # the restart keeps how far it proceeded
    state, output = joined.step(state, right=rows(("x", 5, "r5"), ("x", 90, "r90")), watermarks={"right": 7})
    assert output.dropped == {"left": 0, "right": 1}
    assert output.watermarks == {}
    with pytest.raises(WatermarkRegression, match=r"on the right side of the join is lower than .* 7"):
        joined.step(state, watermarks={"right": 6})


def test_two_idle_sides_are_as_far_as_the_further_one() -> None:
    joined = operator(before=0, after=0, idle="proceed")
    _, output = joined.step(
        joined.initial_state(), watermarks={"left": 5, "right": 9}, idle={"left", "right"}
    )
    assert output.watermarks == {"left": 9, "right": 9}


def test_an_idle_side_that_is_no_side_raises() -> None:
    with pytest.raises(InvalidArgument, match="idle = 'middle': is not a side of a join"):
        operator().step(operator().initial_state(), idle={"middle"})


# ---- lateness


def test_rows_within_the_lateness_of_their_side_are_joined() -> None:
    joined = operator(how="left", left_lateness=10)
    state, _ = joined.step(joined.initial_state(), right=rows(("x", 5, "r5")), watermarks={"left": 15})
    state, output = joined.step(state, rows(("x", 5, "l5"), ("x", 4, "late")))
    assert output.rows["name_left"].to_list() == ["l5"]
    assert output.dropped == {"left": 1, "right": 0}
    _, output = joined.step(state, watermarks={"left": 20, "right": 40})
    assert output.watermarks == {"left": 10, "right": 9}


def test_with_unlimited_lateness_a_side_is_known_only_at_its_end() -> None:
    joined = operator(right_lateness=None)
    state, output = joined.step(joined.initial_state(), watermarks={"left": 50, "right": 50})
    assert output.watermarks == {}
    _, output = joined.step(state, watermarks=ENDED)
    assert output.watermarks == ENDED


def test_a_negative_lateness_raises() -> None:
    with pytest.raises(InvalidArgument, match="right_lateness = -1: must not be negative"):
        operator(right_lateness=-1)


# ---- retractions


def test_a_retraction_removes_one_equal_row_and_retracts_its_pairs() -> None:
    joined = operator(left_retractions="back")
    left = signed(("x", 5, "twice", False), ("x", 5, "twice", False))
    state, output = joined.step(joined.initial_state(), left, rows(("x", 5, "r")))
    assert output.rows["back"].to_list() == [False, False]
    state, output = joined.step(state, signed(("x", 5, "twice", True)))
    assert output.rows.rows() == [("x", 5, "twice", 5, "r", True)]
    _, output = joined.step(state, right=rows(("x", 6, "r6")))
    assert output.rows["name_right"].to_list() == ["r6"]


def test_an_outer_row_that_loses_its_last_match_is_padded_when_it_is_settled() -> None:
    joined = operator(how="left", right_retractions="back")
    state, _ = joined.step(joined.initial_state(), rows(("x", 5, "l")), signed(("x", 5, "r", False)))
    state, output = joined.step(state, right=signed(("x", 5, "r", True)))
    assert output.rows.select("name_right", "back").rows() == [("r", True)]
    _, output = joined.step(state, watermarks={"right": 7})
    assert output.rows.select("name_left", "name_right", "back").rows() == [("l", None, False)]


def test_a_settled_row_can_be_retracted_until_the_watermark_of_its_own_side() -> None:
    joined = operator(how="left", left_retractions="back")
    state, _ = joined.step(joined.initial_state(), signed(("x", 5, "l", False)), watermarks={"left": 5})
    state, output = joined.step(state, watermarks={"right": 40})
    assert output.rows.select("name_left", "back").rows() == [("l", False)]
    state, output = joined.step(state, signed(("x", 5, "l", True)))
    assert output.rows.select("name_left", "name_right", "back").rows() == [("l", None, True)]
    assert joined.buffered(state) == {"left": 0, "right": 0}


def test_a_semi_join_retracts_a_row_that_loses_its_last_match() -> None:
    joined = operator(how="semi", right_retractions="back")
    right = signed(("x", 5, "r1", False), ("x", 5, "r2", False))
    state, output = joined.step(joined.initial_state(), rows(("x", 5, "l")), right)
    assert output.rows["back"].to_list() == [False]
    state, output = joined.step(state, right=signed(("x", 5, "r1", True)))
    assert output.rows.is_empty()
    state, output = joined.step(state, right=signed(("x", 5, "r2", True)))
    assert output.rows.rows() == [("x", 5, "l", True)]
    _, output = joined.step(state, right=signed(("x", 6, "r3", False)))
    assert output.rows.rows() == [("x", 5, "l", False)]


def test_a_row_and_its_retraction_in_one_batch_cancel_each_other() -> None:
    joined = operator(left_retractions="back")
    changes = signed(("x", 5, "l", True), ("x", 5, "l", False), ("x", 5, "other", False))
    _, output = joined.step(joined.initial_state(), changes, rows(("x", 5, "r")))
    assert output.rows.select("name_left", "back").rows() == [("other", False)]


def test_a_retraction_of_a_row_that_is_not_buffered_is_dropped_and_counted() -> None:
    joined = operator(left_retractions="back", late="emit")
    _, output = joined.step(joined.initial_state(), signed(("x", 5, "never", True)))
    assert output.rows.is_empty()
    assert output.dropped == {"left": 1, "right": 0}
    assert output.late is not None
    assert output.late["left"].rows() == [("x", 5, "never", True)]


def test_a_retraction_column_that_is_not_boolean_raises() -> None:
    spec = JoinSpec(on=("k",), before=0, after=0, left_retractions="name")
    with pytest.raises(InvalidArgument, match="left_retractions = 'name': has type String"):
        JoinOperator(spec, left=SCHEMA, right=SCHEMA)


# ---- further watermark keys


TWO_TIMES = {**SCHEMA, "paid": pl.Int64()}


def two_times(*values: tuple[str, int, str, int | None]) -> pl.DataFrame:
    return pl.DataFrame(values, schema=TWO_TIMES, orient="row")


def test_a_further_key_is_held_at_the_earliest_buffered_row() -> None:
    spec = JoinSpec(on=("k",), before=0, after=0, left_keys=(("paid", "paid"),))
    joined = JoinOperator(spec, left=TWO_TIMES, right=SCHEMA)
    left = two_times(("x", 5, "a", 70), ("x", 9, "b", 60), ("x", 9, "c", None))
    state, output = joined.step(
        joined.initial_state(), left, watermarks={"left": 5}, key_watermarks={"left": {"paid": 100}}
    )
    assert output.key_watermarks == {"left": {"paid": 60}}
    state, output = joined.step(state, watermarks={"right": 9})
    assert output.key_watermarks == {}
    _, output = joined.step(state, watermarks={"right": 10})
    assert output.key_watermarks == {"left": {"paid": 100}}


def test_a_key_that_is_not_declared_or_goes_back_raises() -> None:
    spec = JoinSpec(on=("k",), before=0, after=0, left_keys=(("paid", "paid"),))
    joined = JoinOperator(spec, left=TWO_TIMES, right=SCHEMA)
    with pytest.raises(InvalidArgument, match="is not a further watermark key of the left side; use one of"):
        joined.step(joined.initial_state(), key_watermarks={"left": {"shipped": 1}})
    state, _ = joined.step(joined.initial_state(), key_watermarks={"left": {"paid": 5}})
    with pytest.raises(WatermarkRegression, match="key 'paid'"):
        joined.step(state, key_watermarks={"left": {"paid": 4}})


# ---- state


def test_the_size_of_the_buffers_is_known_without_reading_them() -> None:
    joined, store = operator(how="full"), RecordingStore()
    state, _ = joined.step(joined.initial_state(store), rows(("x", 5, "a"), ("x", 90, "b")))
    state = joined.load(joined.save(state), store)
    store.take_calls()
    sizes = joined.buffer_sizes(state)
    assert sizes["left"] == (2, sum(map(len, store.blobs.values())))
    assert sizes["right"] == (0, 0)
    assert store.take_calls() == []


def test_state_written_by_version_2_loads() -> None:
    # A left join that takes retractions: left 5 matched right 5 twice; left 9 has no match.
    saved = json.loads((Path(__file__).parent / "saved" / "join-2.json").read_text("utf-8"))
    blobs = {name: b64decode(blob) for name, blob in saved["blobs"].items()}
    joined = operator(how="left", right_retractions="back")
    state = joined.load(b64decode(saved["index"]), blobs)
    state, _ = joined.step(state, right=signed(("x", 5, "r", True)))
    _, output = joined.step(state, watermarks=ENDED)
    assert output.rows.select("name_left", "name_right").rows() == [("l9", None)]
