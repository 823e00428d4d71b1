"""Retracted rows of as-of joins and deduplications: what is emitted, what is kept, and for how long."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from slackwater.errors import IncompatibleState, InvalidArgument
from slackwater.time import END_OF_TIME
from slackwater.windows.engine.asof_operator import AsofOperator, AsofOutput
from slackwater.windows.engine.deduplicate_operator import DeduplicateOperator, DeduplicateOutput
from slackwater.windows.spec.asof_spec import AsofSpec
from slackwater.windows.spec.deduplicate_spec import DeduplicateSpec

PLAIN = {"k": pl.String, "ts": pl.Int64, "name": pl.String}
SCHEMA = {**PLAIN, "back": pl.Boolean}
SAVED = Path(__file__).parent / "saved"


def rows(*triples: tuple[str | None, int, str]) -> pl.DataFrame:
    return pl.DataFrame([(*row, False) for row in triples], schema=SCHEMA, orient="row")


def back(*triples: tuple[str | None, int, str]) -> pl.DataFrame:
    return pl.DataFrame([(*row, True) for row in triples], schema=SCHEMA, orient="row")


def asof(**settings: Any) -> AsofOperator:
    marks = {"left_retractions": "back", "right_retractions": "back"}
    return AsofOperator(AsofSpec(**({"on": ("k",)} | marks | settings)), left=SCHEMA, right=SCHEMA)


def pairs(output: AsofOutput) -> list[tuple[str, str | None, bool]]:
    return list(output.rows.select("name_left", "name_right", "back").rows())


def deduplicate(**settings: Any) -> DeduplicateOperator:
    given: dict[str, Any] = {"on": ("k",), "within": 5, "retractions": "back"} | settings
    return DeduplicateOperator(DeduplicateSpec(**given), schema=SCHEMA)


def changes(output: DeduplicateOutput) -> list[tuple[str, bool]]:
    return list(output.rows.select("name", "back").rows())


# ---- as-of joins


def test_a_left_row_gets_the_next_match_if_the_best_one_is_retracted_before_it_is_certain() -> None:
    joined = asof()
    right = rows(("x", 7, "r7"), ("x", 9, "r9"))
    state, _ = joined.step(joined.initial_state(), rows(("x", 10, "l")), right, {"right": 9})
    state, output = joined.step(state, right=back(("x", 9, "r9")))
    assert pairs(output) == []
    _, output = joined.step(state, watermarks={"right": 11})
    assert pairs(output) == [("l", "r7", False)]


@pytest.mark.parametrize(("retracts", "certain_at"), [(True, 14), (False, 13)])
def test_a_later_match_is_certain_when_it_cannot_be_retracted(retracts: bool, certain_at: int) -> None:
    right = rows(("x", 13, "r13")) if retracts else rows(("x", 13, "r13")).drop("back")
    mark = "back" if retracts else None
    joined = AsofOperator(
        AsofSpec(on=("k",), direction="forward", left_retractions="back", right_retractions=mark),
        left=SCHEMA,
        right=right.schema,
    )
    state, _ = joined.step(joined.initial_state(), rows(("x", 10, "l")), right)
    state, output = joined.step(state, watermarks={"right": certain_at - 1})
    assert pairs(output) == []
    _, output = joined.step(state, watermarks={"right": certain_at})
    assert [row[:2] for row in pairs(output)] == [("l", "r13")]


def test_a_left_row_that_is_retracted_before_it_was_emitted_leaves_no_trace() -> None:
    joined = asof()
    state, _ = joined.step(joined.initial_state(), rows(("x", 10, "l")), rows(("x", 9, "r9")))
    state, output = joined.step(state, back(("x", 10, "l")), watermarks={"left": 10, "right": 20})
    assert pairs(output) == []
    assert (output.watermarks, output.dropped) == ({"left": 10}, {"left": 0, "right": 0})
    assert joined.held(state) is None


@pytest.mark.parametrize(("key", "match"), [("x", "r9"), ("y", None), (None, None)])
def test_a_left_row_that_is_retracted_after_it_was_emitted_is_retracted(
    key: str | None, match: str | None
) -> None:
    joined = asof()
    state, output = joined.step(
        joined.initial_state(), rows((key, 10, "l")), rows(("x", 9, "r9")), {"right": 30, "left": 10}
    )
    assert pairs(output) == [("l", match, False)]
    state = joined.load(joined.save(state), state.blobs)
    state, output = joined.step(state, back((key, 10, "l")), rows(("x", 30, "r30")), {"right": 40})
    assert pairs(output) == [("l", match, True)]
    assert output.dropped == {"left": 0, "right": 0}


def test_an_inner_join_retracts_only_rows_that_had_a_match() -> None:
    joined = asof(how="inner")
    left, right = rows(("x", 10, "l"), ("y", 10, "alone")), rows(("x", 9, "r9"))
    state, _ = joined.step(joined.initial_state(), left, right, {"right": 30})
    _, output = joined.step(state, back(("x", 10, "l"), ("y", 10, "alone")))
    assert pairs(output) == [("l", "r9", True)]


def test_an_emitted_left_row_is_kept_until_the_left_watermark_has_passed_it() -> None:
    joined = asof()
    state, _ = joined.step(joined.initial_state(), rows(("x", 10, "l")), watermarks={"right": 30})
    state, output = joined.step(state, watermarks={"left": 10})
    assert output.watermarks == {"left": 10}
    assert joined.buffer_sizes(state)["left"].rows == 1
    state, _ = joined.step(state, watermarks={"left": 11})
    assert joined.buffer_sizes(state)["left"].rows == 0
    state, output = joined.step(state, back(("x", 10, "l")))
    assert output.dropped == {"left": 1, "right": 0}


def test_retractions_of_unknown_rows_are_counted_and_returned_on_request() -> None:
    joined = asof(late="emit")
    state = joined.initial_state()
    state, output = joined.step(state, back(("x", 10, "l")), back(("x", 10, "r"), (None, 10, "null")))
    assert output.dropped == {"left": 1, "right": 1}
    assert output.late is not None
    assert output.late["left"].rows() == [("x", 10, "l", True)]
    assert output.late["right"].rows() == [("x", 10, "r", True)]
    assert joined.late_rows("right", output.late["right"]).rows() == [("x", 10, "r", True)]


def test_the_retraction_of_a_right_row_that_no_left_row_can_select_changes_nothing() -> None:
    joined = asof(tolerance=5)
    state, _ = joined.step(joined.initial_state(), right=rows(("x", 3, "r3")), watermarks={"left": 20})
    assert joined.buffer_sizes(state)["right"].rows == 0
    _, output = joined.step(state, right=back(("x", 3, "r3")))
    assert output.dropped == {"left": 0, "right": 0}


def test_older_right_rows_stay_while_the_latest_one_can_be_retracted() -> None:
    joined = AsofOperator(
        AsofSpec(on=("k",), right_retractions="back"), left=PLAIN, right=SCHEMA, chunk_rows=1
    )
    state = joined.initial_state()
    for number in range(20):
        right = rows(("x", number, f"r{number}"))
        state, _ = joined.step(state, right=right, watermarks={"left": 50, "right": 2})
    retracted = back(*[("x", number, f"r{number}") for number in range(19, 2, -1)])
    left = pl.DataFrame([("x", 50, "l")], schema=PLAIN, orient="row")
    _, output = joined.step(state, left, retracted, {"right": 51})
    assert output.rows.select("name_left", "name_right").rows() == [("l", "r2")]


def test_only_retractions_of_left_rows_are_in_the_output() -> None:
    assert AsofSpec(left_retractions="back").retracts
    assert not AsofSpec(right_retractions="back").retracts
    assert AsofSpec(right_retractions="back", late="emit").output_retractions == "back"


def test_an_asof_join_with_retractions_does_not_load_the_state_of_one_without() -> None:
    plain = AsofOperator(AsofSpec(on=("k",)), left=SCHEMA, right=SCHEMA)
    with pytest.raises(IncompatibleState, match="left retractions back"):
        asof().load(plain.save(plain.initial_state()), {})


# ---- deduplications


def test_the_next_row_takes_the_place_of_a_retracted_one() -> None:
    unique = deduplicate()
    state, output = unique.step(unique.initial_state(), rows(("x", 10, "a"), ("x", 12, "b"), ("x", 15, "c")))
    assert changes(output) == [("a", False)]
    assert output.duplicates == 2
    state = unique.load(unique.save(state), state.blobs)
    state, output = unique.step(state, back(("x", 10, "a")))
    assert changes(output) == [("a", True), ("b", False)]
    assert (output.duplicates, output.restored, state.duplicates) == (0, 1, 1)


def test_a_retracted_duplicate_changes_nothing() -> None:
    unique = deduplicate()
    state, _ = unique.step(unique.initial_state(), rows(("x", 10, "a"), ("x", 12, "b")))
    _, output = unique.step(state, back(("x", 12, "b")))
    assert changes(output) == []
    assert (output.duplicates, output.restored, output.dropped) == (0, 1, 0)


def test_an_earlier_row_that_arrives_later_takes_the_place_of_a_kept_one() -> None:
    unique = deduplicate()
    state, _ = unique.step(unique.initial_state(), rows(("x", 10, "a"), ("x", 16, "c")))
    _, output = unique.step(state, rows(("x", 7, "earlier"), ("y", 7, "other")))
    assert changes(output) == [("a", True), ("earlier", False), ("other", False)]
    assert (output.duplicates, output.restored) == (1, 0), "the kept row becomes a duplicate"


def test_of_rows_at_the_same_time_the_first_to_arrive_is_kept() -> None:
    unique = deduplicate()
    state, _ = unique.step(unique.initial_state(), rows(("x", 10, "b")))
    state, output = unique.step(state, rows(("x", 10, "a")))
    assert changes(output) == []
    _, output = unique.step(state, back(("x", 10, "b")))
    assert changes(output) == [("b", True), ("a", False)]


def test_rows_are_kept_until_the_watermark_minus_the_lateness_has_passed_them() -> None:
    unique = deduplicate(lateness=3)
    blobs: dict[str, bytes] = {}
    state, _ = unique.step(unique.initial_state(blobs), rows(("x", 10, "a"), ("x", 12, "b")), {"default": 13})
    state, output = unique.step(state, back(("x", 10, "a")))
    assert changes(output) == [("a", True), ("b", False)]
    state, output = unique.step(state, rows(("x", 17, "duplicate")), {"default": 16})
    assert output.rows.is_empty()
    state, output = unique.step(state, back(("x", 12, "b")))
    assert output.dropped == 1, "a row behind the watermark cannot be retracted any more"
    state, _ = unique.step(state, watermarks={"default": END_OF_TIME})
    assert unique.buffer_size(state) == (0, 0)
    assert blobs == {}


def test_a_final_row_makes_later_ones_duplicates() -> None:
    unique = deduplicate()
    state, _ = unique.step(
        unique.initial_state(), rows(("x", 10, "a"), ("x", 14, "b"), ("x", 17, "c")), {"default": 15}
    )
    _, output = unique.step(state, back(("x", 17, "c")))
    assert changes(output) == [("c", True)]


def test_a_retraction_of_an_unknown_row_is_counted_and_returned_on_request() -> None:
    unique = deduplicate(late="emit")
    _, output = unique.step(unique.initial_state(), back(("x", 10, "a")))
    assert output.rows.is_empty()
    assert output.late is not None
    assert (output.dropped, output.late.rows()) == (1, [("x", 10, "a", True)])


def test_further_watermarks_stay_behind_rows_that_may_still_be_emitted() -> None:
    unique = deduplicate(further_keys=("paid",), further_times=("ts",))
    state, output = unique.step(
        unique.initial_state(), rows(("x", 10, "a"), ("x", 12, "b")), {"default": 5, "paid": 30}
    )
    assert output.watermarks == {"default": 5, "paid": 10}
    _, output = unique.step(state, watermarks={"default": 11, "paid": 30})
    assert output.watermarks == {"default": 11, "paid": 12}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"retractions": "name"}, "retractions = 'name': has type String; use a boolean column"),
        ({"retractions": "missing"}, "has no column 'missing'"),
        ({"further_keys": ("paid",)}, "does not have one column for each further watermark key"),
        ({"further_keys": ("paid",), "further_times": ("name",)}, "further_times = 'name': has type String"),
    ],
)
def test_invalid_settings_of_retractions_raise(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        deduplicate(**change)


def test_another_bound_does_not_load_rows_that_can_be_retracted() -> None:
    unique = deduplicate()
    with pytest.raises(IncompatibleState, match="within 5"):
        deduplicate(within=9).load(unique.save(unique.initial_state()), {})


# ---- state of earlier versions


def saved(name: str) -> tuple[bytes, dict[str, bytes]]:
    """The index and the blobs that version 1 wrote."""
    found = json.loads((SAVED / name).read_text("utf-8"))
    return b64decode(found["index"]), {blob: b64decode(data) for blob, data in found["blobs"].items()}


def test_state_of_an_asof_join_written_by_version_1_loads() -> None:
    joined = AsofOperator(AsofSpec(on=("k",)), left=PLAIN, right=PLAIN)
    index, blobs = saved("asof-1.json")
    state = joined.load(index, blobs)
    _, output = joined.step(state, watermarks={"right": 11})
    assert output.rows.rows() == [("x", 10, "l", 9, "r9")]


def test_state_of_a_deduplication_written_by_version_1_loads() -> None:
    unique = DeduplicateOperator(DeduplicateSpec(on=("k",), within=5, further_keys=("paid",)), schema=PLAIN)
    index, blobs = saved("deduplicate-1.json")
    state = unique.load(index, blobs)
    assert (state.duplicates, state.kept.watermark) == (1, 8)
    batch = pl.DataFrame([("x", 13, "again"), ("x", 16, "new")], schema=PLAIN, orient="row")
    _, output = unique.step(state, batch)
    assert output.rows["name"].to_list() == ["new"]
