"""Folding before a step: which operators can fold, invalid arguments, counting of late partials."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

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
