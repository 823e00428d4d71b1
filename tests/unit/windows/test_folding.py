"""Folding before a step: which operators can fold, invalid arguments, counting of late partials."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from slackwater import windows
from slackwater.errors import InvalidArgument
from slackwater.windows import Fixed, Sessions, Sliding, WindowedOperator, after_watermark, count, every
from slackwater.windows import sum as total


def operator(**options: Any) -> WindowedOperator:
    given: dict[str, Any] = {
        "window": Fixed(10),
        "accumulations": {"n": count(), "total": total("price")},
        "key": ("auction",),
        "event_time": "ts",
    }
    return WindowedOperator(**given | options)


def bids(*rows: tuple[str, int, int]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema={"auction": pl.String, "ts": pl.Int64, "price": pl.Int64}, orient="row")


@pytest.mark.parametrize(
    "options",
    [
        {"window": Sessions(10)},
        {"drop_late": "by_element"},
        {"late": "emit"},
        {"timestamp": "earliest"},
        {"timestamp": "latest"},
    ],
    ids=str,
)
def test_an_operator_that_handles_elements_one_by_one_rejects_folded_batches(options: dict[str, Any]) -> None:
    made = operator(**options)
    assert not made.can_fold
    rows = bids(("a", 1, 1))
    (setting,) = options
    problem = f"{setting}=.* handles elements one by one.*; pass the batch itself to step"
    with pytest.raises(InvalidArgument, match=rf"^batch = .*{problem}"):
        made.fold(rows)
    state = made.initial_state()
    with pytest.raises(InvalidArgument, match=rf"^folded = 1: {problem}"):
        made.step(state, watermarks={"default": 30}, folded=[operator().fold(rows)])
    assert (state.step, state.watermark) == (0, None)  # nothing of the step was kept


def test_elements_of_late_partials_are_counted_per_window() -> None:
    made = operator(window=Sliding(20, 10))
    state, _ = made.step(made.initial_state(), watermarks={"default": 20})
    late = made.fold(bids(("a", 1, 1), ("a", 2, 1), ("b", 3, 1), ("a", 21, 1)))
    state, output = made.step(state, watermarks={"default": 21}, folded=[late])
    assert output.dropped_late == 3 * 2
    assert state.dropped_late == 3 * 2
    _, output = made.step(state, watermarks={"default": 40})
    assert output.panes.select("auction", "window_start", "n").rows() == [("a", 10, 1), ("a", 20, 1)]


def test_a_trigger_counts_several_folded_batches_as_one_batch() -> None:
    made = operator(trigger=after_watermark(early=every(count=3), late=every(count=1)))
    parts = [made.fold(bids(("a", 1, 5))), made.fold(bids(("a", 2, 6), ("a", 3, 7)))]
    _, output = made.step(made.initial_state(), folded=parts)
    assert output.panes.select("n", "total", "timing").rows() == [(3, 18, "EARLY")]


def test_a_batch_and_folded_batches_in_one_step_raise() -> None:
    made = operator()
    rows = bids(("a", 1, 5))
    with pytest.raises(InvalidArgument, match="cannot be combined with a batch; fold the batch too"):
        made.step(made.initial_state(), rows, folded=[made.fold(rows)])


def test_partials_with_another_kind_of_column_raise_and_change_nothing() -> None:
    made = operator()
    state, _ = made.step(made.initial_state(), folded=[made.fold(bids(("a", 1, 5)))])
    numbers = made.fold(pl.DataFrame({"auction": [7], "ts": [2], "price": [1]}))
    with pytest.raises(InvalidArgument, match="had text in earlier batches"):
        made.step(state, folded=[numbers])
    assert state.kinds["auction"] == "text"
    assert state.open_windows == 1


def test_an_empty_batch_folds_to_no_partials() -> None:
    made = operator()
    folded = made.fold(bids())
    assert folded.partials.is_empty()
    state, output = made.step(made.initial_state(), folded=[folded])
    assert (state.open_windows, output.panes.height) == (0, 0)


NULLS_FIRST: dict[str, Any] = {
    "all": windows.all("flag"),
    "any": windows.any("flag"),
    "collect": windows.collect("price"),
    "collect_set": windows.collect_set("price"),
    "count": windows.count("price"),
    "count_distinct": windows.count_distinct("price"),
    "first": windows.first("price"),
    "last": windows.last("price"),
    "max": windows.max("price"),
    "max_by": windows.max_by("price", "ts"),
    "mean": windows.mean("price"),
    "min": windows.min("price"),
    "stddev": windows.stddev("price"),
    "sum": windows.sum("price"),
    "top_n": windows.top_n("price", 2),
    "variance": windows.variance("price"),
}


@pytest.mark.parametrize("name", NULLS_FIRST)
@pytest.mark.parametrize("retractable", [False, True])
@pytest.mark.parametrize("merged", [2, 3])
def test_parts_without_values_that_are_merged_first_change_nothing(
    name: str, retractable: bool, merged: int
) -> None:
    options = {"retractions": "back"} if retractable else {}
    made = operator(accumulations={"value": NULLS_FIRST[name]}, **options)
    rows = pl.DataFrame(
        {
            "auction": ["a"] * 8,
            "ts": list(range(8)),
            "price": [None, None, None, None, 1, 5, 3, None],
            "flag": [None, None, None, None, True, False, True, None],
            "back": [False] * 8,
        }
    )
    parts = [made.fold(rows[start : start + 2]) for start in range(0, 8, 2)]
    several = [made.merge_folded(parts[:merged]), *parts[merged:]]
    (whole,), (found,) = (
        made.step(made.initial_state(), watermarks={"default": 10}, folded=folded)[1].panes["value"].to_list()
        for folded in ([made.fold(rows)], several)
    )
    assert found == whole


def test_a_variance_after_a_batch_of_several_parts_without_values_is_not_nan() -> None:
    made = operator(accumulations={"value": windows.variance("price")})
    schema = {"auction": pl.String, "ts": pl.Int64, "price": pl.Int64}
    nothing, values = (
        made.fold(pl.DataFrame(rows, schema, orient="row"))
        for rows in ([("a", 1, None)], [("a", 2, 1), ("a", 3, 3)])
    )
    state, _ = made.step(made.initial_state(), folded=[nothing, nothing])
    _, output = made.step(state, watermarks={"default": 10}, folded=[values])
    assert output.panes["value"].to_list() == [2.0]
