"""Sums, means and extremes at the limits of their types: exact, or an error; never another number."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from math import isnan
from typing import Any

import polars as pl
import pytest

from slackwater import windows
from slackwater.errors import SumOverflow
from slackwater.windows import ColumnarAccumulation, Fixed, Sessions, Sliding, Window, WindowedOperator
from slackwater.windows.accumulations import base

GREATEST, LEAST = 2**63 - 1, -(2**63)
NINES, ALMOST = Decimal("9" * 38), Decimal("9" * 37 + "8")
WINDOWS = pytest.mark.parametrize("window", [Fixed(10), Sliding(10, 5), Sessions(4)], ids=str)
RUNS = pytest.mark.parametrize("run", ["one batch", "a batch per row", "restarts", "folded"])

Rows = Sequence[tuple[Any, bool]]


def emitted(
    accumulation: ColumnarAccumulation,
    rows: Rows,
    kind: pl.DataType,
    *,
    run: str = "one batch",
    window: Window | None = None,
    retracts: bool = False,
) -> list[Any]:
    """The values of the panes of one key, whose rows all are at one time."""
    operator = WindowedOperator(
        window=window or Fixed(10),
        key=("key",),
        accumulations={"made": accumulation},
        event_time="ts",
        retractions="gone" if retracts else None,
    )
    frame = pl.DataFrame(
        {"key": ["a"] * len(rows), "ts": [7] * len(rows), "v": [value for value, _ in rows],
         "gone": [gone for _, gone in rows]},
        schema_overrides={"v": kind},
    )  # fmt: skip
    state = operator.initial_state()
    batches = [frame] if run in ("one batch", "folded") else list(frame.iter_slices(1))
    for batch in batches:
        if run == "folded" and operator.can_fold:
            state, _ = operator.step(state, folded=[operator.fold(row) for row in batch.iter_slices(1)])
        else:
            state, _ = operator.step(state, batch)
        if run == "restarts":
            state = operator.load(operator.save(state), dict(state.blobs))
    _, output = operator.step(state, watermarks={"default": 100})
    return output.panes["made"].to_list()


def added(*values: Any) -> Rows:
    return [(value, False) for value in values]


@WINDOWS
@RUNS
@pytest.mark.parametrize("accumulation", [windows.sum("v"), windows.mean("v")], ids=["sum", "mean"])
def test_an_integer_sum_that_does_not_fit_raises(
    window: Window, run: str, accumulation: ColumnarAccumulation
) -> None:
    with pytest.raises(SumOverflow, match=r"the sum made of column 'v' does not fit.* for (1 key|2 keys)"):
        emitted(accumulation, added(GREATEST, GREATEST, 5), pl.Int64(), run=run, window=window)


@WINDOWS
@RUNS
def test_an_integer_sum_at_the_limit_is_exact(window: Window, run: str) -> None:
    for limit, step in ((GREATEST, 1), (LEAST, -1)):
        values = emitted(
            windows.sum("v"), added(limit - step, step, None), pl.Int64(), run=run, window=window
        )
        assert set(values) == {limit}


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pl.Int64(), [GREATEST // 2, GREATEST // 2 + 1]),
        (pl.Int64(), [GREATEST, 1]),
        (pl.Int64(), [LEAST, 0]),
        (pl.Int64(), [LEAST, -1]),
        (pl.Int64(), [-(2**62), -(2**62)]),
        (pl.Int64(), [2**60, None, -7]),
        (pl.Int64(), [None, None]),
        (pl.UInt64(), [2**62, 2**62 - 1]),
        (pl.UInt64(), [2**63, 2**63 - 1]),
        (pl.UInt64(), [2**63, 2**63]),
    ],
)
def test_sums_of_integers_with_known_bounds_are_exact(
    kind: pl.DataType, values: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "_ROWS_WORTH_BOUNDING", 0)
    known = [value for value in values if value is not None]
    limit = 2**64 if kind == pl.UInt64 else 2**63
    if -limit <= sum(known) < limit:
        assert emitted(windows.sum("v"), added(*values), kind) == [sum(known) if known else None]
    else:
        with pytest.raises(SumOverflow):
            emitted(windows.sum("v"), added(*values), kind)


def test_retracted_integers_with_known_bounds_are_subtracted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_ROWS_WORTH_BOUNDING", 0)
    rows = [(2**60, False), (7, False), (2**60, True)]
    for kind in (pl.Int64(), pl.UInt64()):
        assert emitted(windows.sum("v"), rows, kind, retracts=True) == [7]


def test_a_sum_may_pass_the_limit_within_a_batch() -> None:
    rows = added(GREATEST, 5, -10)
    assert emitted(windows.sum("v"), rows, pl.Int64()) == [GREATEST - 5]
    assert emitted(windows.mean("v"), rows, pl.Int64()) == [(GREATEST - 5) / 3]


@pytest.mark.parametrize("kind", [pl.Int8(), pl.Int32(), pl.UInt32(), pl.Boolean()])
def test_narrow_integers_are_summed_in_64_bits(kind: pl.DataType) -> None:
    high = True if kind == pl.Boolean else 2 ** (8 * {"Int8": 1}.get(str(kind), 4) - 1) - 1
    assert emitted(windows.sum("v"), added(high, high), kind) == [2 * high]


def test_unsigned_integers_and_durations_raise_too() -> None:
    with pytest.raises(SumOverflow):
        emitted(windows.sum("v"), added(2**64 - 1, 1), pl.UInt64())
    assert emitted(windows.sum("v"), added(2**63, 2**62), pl.UInt64()) == [2**63 + 2**62]
    longest = timedelta(days=100_000_000)
    with pytest.raises(SumOverflow):
        emitted(windows.sum("v"), added(longest, longest), pl.Duration("us"))
    assert emitted(windows.sum("v"), added(longest, -longest), pl.Duration("us")) == [timedelta()]


@RUNS
@pytest.mark.parametrize("last", [NINES, Decimal(1)])
def test_a_decimal_sum_that_does_not_fit_raises(run: str, last: Decimal) -> None:
    for accumulation in (windows.sum("v"), windows.mean("v")):
        with pytest.raises(SumOverflow, match="cast the column before the aggregation"):
            emitted(accumulation, added(NINES, last), pl.Decimal(38, 0), run=run)


@RUNS
def test_a_decimal_sum_at_the_limit_is_exact(run: str) -> None:
    least = NINES.copy_negate()
    for almost, one, limit in ((ALMOST, 1, NINES), (ALMOST.copy_negate(), -1, least)):
        rows = added(almost, Decimal(one), None)
        assert emitted(windows.sum("v"), rows, pl.Decimal(38, 0), run=run) == [limit]
    assert emitted(windows.sum("v"), added(NINES, least, Decimal(7)), pl.Decimal(38, 0)) == [Decimal(7)]


def test_the_mean_of_decimals_has_more_digits_than_the_column() -> None:
    one, two = Decimal(1), Decimal(2)
    assert emitted(windows.mean("v"), added(one, two), pl.Decimal(10, 0)) == [Decimal("1.5")]
    assert emitted(windows.mean("v"), added(one, two, two), pl.Decimal(10, 2)) == [Decimal("1.666667")]
    assert emitted(windows.mean("v"), added(None), pl.Decimal(10, 2)) == [None]


def test_a_mean_of_decimals_that_leaves_no_room_for_its_digits_raises() -> None:
    with pytest.raises(SumOverflow):
        emitted(windows.mean("v"), added(NINES), pl.Decimal(38, 0))


def test_distinct_values_that_do_not_fit_raise() -> None:
    with pytest.raises(SumOverflow, match="made of column 'v'"):
        emitted(windows.sum_distinct("v"), added(GREATEST, GREATEST, 5), pl.Int64())
    assert emitted(windows.sum_distinct("v"), added(GREATEST, GREATEST), pl.Int64()) == [GREATEST]
    assert emitted(windows.sum_distinct("v"), added(0.5, 0.5, 1.0), pl.Float64()) == [1.5]
    assert emitted(windows.sum_distinct("v"), added(None), pl.Int64()) == [None]
    with pytest.raises(SumOverflow):
        emitted(windows.sum_distinct("v"), added(NINES, ALMOST), pl.Decimal(38, 0))


@RUNS
@pytest.mark.parametrize("value", [LEAST, LEAST + 1, GREATEST])
def test_retracted_integers_are_subtracted_exactly(run: str, value: int) -> None:
    """A retraction of the least integer alone needs 65 bits."""
    rows = [(value, False), (value, True), (7, False)]
    assert emitted(windows.sum("v"), rows, pl.Int64(), run=run, retracts=True) == [7]
    assert emitted(windows.mean("v"), rows, pl.Int64(), run=run, retracts=True) == [7.0]
    assert emitted(windows.sum("v"), rows[1:2] + rows[:1] + rows[2:], pl.Int64(), retracts=True) == [7]
    too_much = [(GREATEST, False), (GREATEST, False), (7, False)]
    with pytest.raises(SumOverflow):
        emitted(windows.sum("v"), too_much, pl.Int64(), run=run, retracts=True)
    whole = [*too_much, (GREATEST, True), (GREATEST, True)]
    assert emitted(windows.sum("v"), whole, pl.Int64(), run=run, retracts=True) == [7]
    distinct = [(GREATEST, False), (7, False)]
    with pytest.raises(SumOverflow):
        emitted(windows.sum_distinct("v"), distinct, pl.Int64(), run=run, retracts=True)


@pytest.mark.parametrize(
    ("value", "kind"),
    [(NINES, pl.Decimal(38, 0)), (GREATEST, pl.Duration("us"))],
    ids=["decimals", "durations"],
)
def test_a_sum_that_did_not_fit_is_not_forgotten_if_its_count_is_0(value: Any, kind: pl.DataType) -> None:
    """Two large values and two retractions of small ones in a batch: its sum does not fit, its count is 0."""
    operator = WindowedOperator(
        window=Fixed(10),
        key=(),
        accumulations={"total": windows.sum("v")},
        event_time="ts",
        retractions="gone",
    )
    large, small = (pl.Series("v", [number], kind, strict=False) for number in (value, type(value)(1)))
    state = operator.initial_state()
    for values, gone in (([large, large, small, small], [False, False, True, True]), ([small], [False])):
        batch = pl.DataFrame({"v": pl.concat(values), "ts": 7, "gone": gone})
        state, _ = operator.step(state, batch)
    with pytest.raises(SumOverflow):
        operator.step(state, watermarks={"default": 100})


@RUNS
def test_nan_is_the_greatest_number(run: str) -> None:
    rows = added(1.0, float("nan"), None, 3.0, float("inf"))
    (greatest,) = emitted(windows.max("v"), rows, pl.Float64(), run=run)
    assert isnan(greatest)
    assert emitted(windows.min("v"), rows, pl.Float64(), run=run) == [1.0]
    (only,) = emitted(windows.min("v"), added(float("nan"), None), pl.Float64(), run=run)
    assert isnan(only)
    (top,) = emitted(windows.top_n("v", 2), rows, pl.Float64(), run=run)
    assert isnan(top[0])
    assert top[1:] == [float("inf")]
    (ordered,) = emitted(windows.sort("v"), rows, pl.Float64(), run=run)
    assert ordered[:3] == [1.0, 3.0, float("inf")]
    assert isnan(ordered[3])


def test_a_retracted_nan_is_no_longer_the_greatest() -> None:
    rows = [(1.0, False), (float("nan"), False), (float("nan"), True)]
    assert emitted(windows.max("v"), rows, pl.Float64(), retracts=True) == [1.0]


@pytest.mark.parametrize(
    ("kind", "values"),
    [(pl.Int32(), [1, 3]), (pl.String(), ["a", "b"]), (pl.Boolean(), [False, True]),
     (pl.Decimal(10, 2), [Decimal(1), Decimal(3)]), (pl.Duration("us"), [timedelta(1), timedelta(3)])],
    ids=str,
)  # fmt: skip
def test_the_maximum_of_other_types_is_as_before(kind: pl.DataType, values: list[Any]) -> None:
    assert emitted(windows.max("v"), added(*values, None), kind) == [values[-1]]
