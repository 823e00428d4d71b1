"""Deduplication: exact bounds, forgetting by the watermark, invalid arguments, state."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from slackwater.errors import IncompatibleState, InvalidArgument, WatermarkRegression
from slackwater.time import END_OF_TIME
from slackwater.windows.engine.deduplicate_operator import DeduplicateOperator
from slackwater.windows.spec.deduplicate_spec import DeduplicateSpec

SCHEMA = {"k": pl.String, "ts": pl.Int64, "name": pl.String}


def rows(*triples: tuple[str | None, int, str]) -> pl.DataFrame:
    return pl.DataFrame(triples, schema=SCHEMA, orient="row")


def operator(**settings: Any) -> DeduplicateOperator:
    given: dict[str, Any] = {"on": ("k",), "within": 5} | settings
    return DeduplicateOperator(DeduplicateSpec(**given), schema=SCHEMA)


def test_a_row_at_the_bound_before_or_after_a_kept_one_is_a_duplicate() -> None:
    unique = operator()
    state, output = unique.step(unique.initial_state(), rows(("x", 10, "first")))
    assert output.rows["name"].to_list() == ["first"]
    batch = rows(("x", 5, "before"), ("x", 15, "after"), ("x", 4, "earlier"), ("x", 16, "later"))
    _, output = unique.step(state, batch)
    assert output.rows["name"].to_list() == ["earlier", "later"]
    assert output.duplicates == 2


def test_rows_of_one_batch_count_in_order_of_time_and_keep_the_order_of_arrival() -> None:
    unique = operator()
    _, output = unique.step(
        unique.initial_state(), rows(("x", 12, "c"), ("x", 20, "d"), ("x", 8, "a"), ("x", 8, "b"))
    )
    assert output.rows["name"].to_list() == ["d", "a"]


def test_null_is_a_key() -> None:
    unique = operator()
    state, output = unique.step(unique.initial_state(), rows((None, 1, "a"), (None, 2, "b")))
    assert output.rows["name"].to_list() == ["a"]
    _, output = unique.step(state, rows((None, 3, "c")))
    assert output.rows.is_empty()


def test_a_kept_row_is_forgotten_when_no_row_can_be_its_duplicate_any_more() -> None:
    unique = operator()
    blobs: dict[str, bytes] = {}
    state, output = unique.step(unique.initial_state(blobs), rows(("x", 10, "a")), {"default": 15})
    assert output.watermarks == {"default": 15}
    assert unique.buffer_size(state).rows == 1
    state, output = unique.step(state, rows(("x", 15, "duplicate")), {"default": 16})
    assert output.duplicates == 1
    assert unique.buffer_size(state) == (0, 0)
    assert blobs == {}


def test_late_rows_are_dropped_and_counted_and_returned_on_request() -> None:
    for late, delivered in (("count", None), ("emit", [("y", 9, "late")])):
        unique = operator(late=late)
        state, _ = unique.step(unique.initial_state(), watermarks={"default": 10})
        state, output = unique.step(state, rows(("y", 9, "late"), ("y", 10, "equal")))
        assert output.rows["name"].to_list() == ["equal"]
        assert output.dropped == 1
        assert (output.late.rows() if output.late is not None else None) == delivered
        assert state.kept.late == 1


def test_with_a_lateness_rows_behind_the_watermark_are_compared_and_the_watermark_is_unchanged() -> None:
    unique = operator(lateness=4)
    state, output = unique.step(unique.initial_state(), rows(("x", 9, "a")), {"default": 14})
    assert output.watermarks == {"default": 14}
    _, output = unique.step(state, rows(("x", 10, "duplicate"), ("y", 10, "b"), ("y", 9, "late")))
    assert output.rows["name"].to_list() == ["b"]
    assert (output.duplicates, output.dropped) == (1, 1)


def test_further_watermark_keys_are_forwarded_when_they_advance() -> None:
    unique = operator(further_keys=("paid",))
    state, output = unique.step(unique.initial_state(), watermarks={"default": 5, "paid": 9})
    assert output.watermarks == {"default": 5, "paid": 9}
    state = unique.load(unique.save(state), state.blobs)
    state, output = unique.step(state, watermarks={"default": 5, "paid": 9})
    assert output.watermarks == {}
    with pytest.raises(WatermarkRegression, match="key 'paid'"):
        unique.step(state, watermarks={"paid": 8})


def test_the_end_of_the_stream_frees_everything() -> None:
    unique = operator()
    state, _ = unique.step(unique.initial_state(), rows(("x", 10, "a")))
    state, output = unique.step(state, watermarks={"default": END_OF_TIME})
    assert unique.buffer_size(state).rows == 0
    assert output.watermarks == {"default": END_OF_TIME}


def test_a_long_batch_of_one_key_is_fast() -> None:
    unique = operator(within=1)
    times = pl.int_range(0, 200_000, eager=True)
    batch = pl.DataFrame({"k": "x", "ts": times, "name": "n"}, schema=SCHEMA)
    _, output = unique.step(unique.initial_state(), batch)
    assert output.rows.height == 100_000


def test_a_larger_bound_can_be_chosen_for_saved_state() -> None:
    unique = operator()
    state, _ = unique.step(unique.initial_state(), rows(("x", 10, "a")))
    wider = operator(within=50)
    _, output = wider.step(wider.load(unique.save(state), state.blobs), rows(("x", 40, "b")))
    assert output.duplicates == 1


def test_state_of_another_key_raises() -> None:
    unique = operator()
    with pytest.raises(IncompatibleState, match="the deduplication was"):
        operator(on=("name",)).load(unique.save(unique.initial_state()), {})


def test_a_decreasing_watermark_and_an_unknown_key_raise() -> None:
    unique = operator()
    state, _ = unique.step(unique.initial_state(), watermarks={"default": 5})
    with pytest.raises(WatermarkRegression, match="the deduplication"):
        unique.step(state, watermarks={"default": 4})
    with pytest.raises(InvalidArgument, match="is not a watermark key of the deduplication; use 'default'"):
        unique.step(state, watermarks={"other": 9})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"on": ()}, r"on = \(\): is empty"),
        ({"on": ("ts",)}, "contains the event-time column"),
        ({"on": ("missing",)}, "has no column 'missing'"),
        ({"within": -1}, "within = -1: is negative"),
        ({"event_time": "name"}, "event_time = 'name': has type String"),
        ({"late": "drop"}, "late = 'drop'.*count, emit"),
        ({"lateness": -2}, "lateness = -2: must not be negative"),
    ],
)
def test_an_invalid_setting_raises(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        operator(**change)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (rows(("x", 1, "l")).drop("name"), "does not have the declared schema"),
        (rows(("x", None, "l")), "event time is null"),  # type: ignore[arg-type]
        (rows(("x", 2**62, "l")), "more than 146,000 years from 1970"),
    ],
)
def test_an_invalid_batch_raises(batch: pl.DataFrame, message: str) -> None:
    unique = operator()
    with pytest.raises(InvalidArgument, match=message):
        unique.step(unique.initial_state(), batch)
