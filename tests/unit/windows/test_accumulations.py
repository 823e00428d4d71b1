"""Accumulations: no dependence on batching, nulls ignored as in SQL, elements can be subtracted."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import polars as pl
import pytest

from slackwater import windows
from slackwater.errors import InvalidArgument
from slackwater.windows import Accumulation, ColumnarAccumulation
from slackwater.windows.accumulations import PartialColumns
from slackwater.windows.operator_columns import TIME, WEIGHT, input_column

Row = tuple[int, Any]


def folded(
    accumulation: ColumnarAccumulation, *batches: Sequence[Row], dtype: Any = None, weight: int = 1
) -> pl.DataFrame:
    """The partials of some batches, one row each."""
    columns = PartialColumns("x", retractable=weight < 0)
    frames = []
    for batch in batches:
        frame = pl.DataFrame(
            {TIME: [at for at, _ in batch], WEIGHT: [weight] * len(batch)},
            schema={TIME: pl.Int64, WEIGHT: pl.Int64},
        )
        values = pl.Series([value for _, value in batch], dtype=dtype)
        frame = frame.with_columns(values.alias(input_column(name)) for name in accumulation.inputs)
        frames.append(frame.group_by(pl.lit(0).alias("g")).agg(accumulation.add(columns)))
    return pl.concat(frames, how="vertical_relaxed")


def value(accumulation: ColumnarAccumulation, partials: pl.DataFrame, *, retractable: bool = False) -> Any:
    """What a pane shows of some partials, merged."""
    columns = PartialColumns("x", retractable=retractable)
    merged = partials.group_by("g").agg(accumulation.merge(columns))
    [answer] = merged.select(accumulation.output(columns).alias("answer"))["answer"].to_list()
    return answer


NUMBERS = [4, None, 1, 7, 7, -3, None, 12, 0, 5]
KNOWN = [number for number in NUMBERS if number is not None]
ROWS = list(enumerate(NUMBERS))

CASES: list[tuple[ColumnarAccumulation, Any]] = [
    (windows.count(), len(NUMBERS)),
    (windows.count("v"), len(KNOWN)),
    (windows.sum("v"), sum(KNOWN)),
    (windows.min("v"), -3),
    (windows.max("v"), 12),
    (windows.mean("v"), statistics.fmean(KNOWN)),
    (windows.max_by("v", "v"), 12),
    (windows.min_by("v", "v"), -3),
    (windows.variance("v"), pytest.approx(statistics.variance(KNOWN), rel=1e-12)),
    (windows.variance("v", ddof=0), pytest.approx(statistics.pvariance(KNOWN), rel=1e-12)),
    (windows.stddev("v"), pytest.approx(statistics.stdev(KNOWN), rel=1e-12)),
    (windows.first("v"), 4),
    (windows.last("v"), 5),
    (windows.collect("v"), KNOWN),
    (windows.collect_set("v"), [-3, 0, 1, 4, 5, 7, 12]),
    (windows.sort("v"), sorted(KNOWN)),
    (windows.sort("v", descending=True), sorted(KNOWN, reverse=True)),
    (windows.top_n("v", 3), [12, 7, 7]),
    (windows.count_distinct("v"), len(set(KNOWN))),
    (windows.sum_distinct("v"), sum(set(KNOWN))),
    (windows.collect("v", ordered=True), KNOWN),
    (windows.approx_count_distinct("v"), len(set(KNOWN))),
    (windows.approx_quantile("v", 0.5), 4.0),
    (windows.reduce("v", lambda left, right: left + right, dtype=pl.Int64()), sum(KNOWN)),
    (
        windows.fold("v", 0, lambda total, each: total + each, combine=lambda a, b: a + b, dtype=pl.Int64()),
        sum(KNOWN),
    ),
]


@pytest.mark.parametrize(("accumulation", "expected"), CASES, ids=lambda case: getattr(case, "name", ""))
@pytest.mark.parametrize("cuts", [(), (5,), (1, 2, 3), (3, 3, 9)])
def test_the_value_does_not_depend_on_how_elements_are_batched(
    accumulation: ColumnarAccumulation, expected: Any, cuts: tuple[int, ...]
) -> None:
    edges = [0, *cuts, len(ROWS)]
    batches = [ROWS[low:high] for low, high in pairwise(edges) if low < high]
    assert value(accumulation, folded(accumulation, *batches, dtype=pl.Int64)) == expected


EMPTY = {
    "count": 0,
    "collect": [],
    "collect_set": [],
    "sort": [],
    "top_n": [],
    "count_distinct": 0,
    "collect_ordered": [],
    "approx_count_distinct": 0,
    "fold": 0,
}


@pytest.mark.parametrize("accumulation", [case for case, _ in CASES], ids=lambda case: case.name)
def test_the_value_without_elements_is_that_of_sql(accumulation: ColumnarAccumulation) -> None:
    columns = PartialColumns("x", retractable=False)
    partial = folded(accumulation, [(0, None)], dtype=pl.Int64)
    nothing = partial.select(pl.when(pl.lit(value=False)).then(pl.all()))
    [answer] = nothing.select(accumulation.output(columns).alias("answer"))["answer"].to_list()
    assert answer == EMPTY.get(accumulation.name)
    only_nulls = value(accumulation, partial)
    rows_counted = 1 if accumulation == windows.count() else EMPTY.get(accumulation.name)
    assert only_nulls == rows_counted


@pytest.mark.parametrize(
    ("make", "values", "expected"),
    [
        (windows.any, [False, None, True], True),
        (windows.any, [False], False),
        (windows.all, [True, None], True),
        (windows.all, [True, False], False),
        (windows.all, [None], None),
    ],
)
def test_any_and_all(
    make: Callable[[str], ColumnarAccumulation], values: list[bool | None], expected: bool | None
) -> None:
    accumulation = make("v")
    batches = [[(0, each)] for each in values]
    assert value(accumulation, folded(accumulation, *batches, dtype=pl.Boolean)) == expected


def test_merging_means_weights_by_the_number_of_elements() -> None:
    mean = windows.mean("v")
    assert value(mean, folded(mean, [(0, 1.0), (1, 3.0)], [(2, 5.0)])) == 3.0


def test_variance_of_large_close_values_does_not_cancel_out() -> None:
    accumulation = windows.variance("v", ddof=0)
    base = 1e9
    batches = [[(0, base + 4), (1, base + 7)], [(2, base + 13)], [(3, base + 16)]]
    assert value(accumulation, folded(accumulation, *batches)) == 22.5


def test_first_and_last_order_by_event_time_then_by_arrival() -> None:
    batches: list[list[Row]] = [[(5, "b"), (3, "x"), (3, "y")], [(3, "z"), (5, "c"), (4, None)]]
    assert value(windows.first("v"), folded(windows.first("v"), *batches)) == "x"
    assert value(windows.last("v"), folded(windows.last("v"), *batches)) == "c"


def test_values_are_collected_in_event_time_order_whatever_the_order_of_arrival() -> None:
    accumulation = windows.collect("v", ordered=True)
    assert value(accumulation, folded(accumulation, [(5, "e"), (1, "a")], [(1, "b"), (0, "z")])) == [
        "z", "a", "b", "e",
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", [pl.Int8, pl.UInt8, pl.Float32, pl.Decimal(10, 2)])
def test_distinct_values_are_added_without_overflow(dtype: Any) -> None:
    accumulation = windows.sum_distinct("v")
    assert value(accumulation, folded(accumulation, [(0, 100), (1, 90)], [(2, 100)], dtype=dtype)) == 190


def test_top_n_by_key_lists_each_key_once() -> None:
    accumulation = windows.top_n_by_key("price", key="bidder", n=2)
    columns = PartialColumns("x", retractable=False)
    frame = pl.DataFrame(
        {"g": [0, 0, 1, 1, 1], "in:price": [5, 9, 7, 8, 1], "in:bidder": ["a", "a", "b", "c", "a"]}
    )
    partials = frame.group_by("g").agg(accumulation.add(columns)).with_columns(g=0)
    answer = value(accumulation, partials)
    assert answer == [{"value": 9, "key": "a"}, {"value": 8, "key": "c"}]


@pytest.mark.parametrize(
    "accumulation",
    [windows.count(), windows.sum("v"), windows.mean("v"), windows.variance("v"), windows.stddev("v")],
    ids=lambda case: case.name,
)
def test_subtracted_elements_have_no_effect(accumulation: ColumnarAccumulation) -> None:
    rng = random.Random(3)
    kept = [(at, rng.uniform(-5, 5)) for at in range(20)]
    gone = [(at, rng.uniform(-5, 5)) for at in range(7)]
    columns = PartialColumns("x", retractable=True)

    def partials(rows: list[tuple[int, float]], weight: int) -> pl.DataFrame:
        frame = pl.DataFrame(
            {TIME: [at for at, _ in rows], "in:v": [each for _, each in rows], WEIGHT: [weight] * len(rows)}
        )
        return frame.group_by(pl.lit(0).alias("g")).agg(accumulation.add(columns))

    mixed = pl.concat([partials(gone, -1), partials(kept, 1), partials(gone, 1)])
    expected = value(accumulation, folded(accumulation, kept))
    assert value(accumulation, mixed, retractable=True) == pytest.approx(expected, rel=1e-9)


def test_sums_of_integers_are_exact() -> None:
    big = 2**60 + 1
    assert value(windows.sum("v"), folded(windows.sum("v"), [(0, big)], [(1, big), (2, -big)])) == big


@pytest.mark.parametrize(("dtype", "number"), [(pl.Int32, 2**31 - 1), (pl.UInt8, 255), (pl.Float32, 2.0**24)])
def test_sums_of_narrow_numbers_do_not_overflow(dtype: Any, number: float) -> None:
    rows: list[Row] = [(at, number) for at in range(3)]
    assert value(windows.sum("v"), folded(windows.sum("v"), rows, [(4, 1)], dtype=dtype)) == 3 * number + 1


def test_sketches_are_close_on_many_values() -> None:
    rows = [[(at, at % 5_000) for at in range(low, low + 10_000)] for low in (0, 10_000)]
    distinct = windows.approx_count_distinct("v")
    assert value(distinct, folded(distinct, *rows)) == pytest.approx(5_000, rel=0.05)
    median = windows.approx_quantile("v", 0.5)
    assert value(median, folded(median, *rows)) == pytest.approx(2_500, rel=0.05)


class Longest(Accumulation):
    """The longest text: an accumulation of one's own."""

    column = "v"
    dtype = pl.String()

    def empty(self) -> str:
        return ""

    def add_value(self, accumulator: str, value: str) -> str:
        return max(accumulator, value, key=len)

    def merge_accumulators(self, left: str, right: str) -> str:
        return max(left, right, key=len)

    def value(self, accumulator: str) -> str | None:
        return accumulator or None


def test_a_user_defined_accumulation() -> None:
    assert value(Longest(), folded(Longest(), [(0, "aa"), (1, None)], [(2, "bbb")])) == "bbb"
    assert not Longest().can_subtract


def test_a_fold_with_an_inverse_can_subtract() -> None:
    total = windows.fold(
        "v", 0, lambda a, b: a + b, combine=lambda a, b: a + b, dtype=pl.Int64(), inverse=lambda a, b: a - b
    )
    assert total.can_subtract
    assert value(total, folded(total, [(0, 5), (1, 2)], weight=-1), retractable=True) == -7


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: windows.sum(""), "is not a column name"),
        (lambda: windows.top_n("v", 0), "n = 0"),
        (lambda: windows.variance("v", ddof=2), "ddof = 2"),  # type: ignore[arg-type]
        (lambda: windows.approx_quantile("v", 1.5), "must be between 0 and 1"),
        (lambda: windows.approx_count_distinct("v", precision=3), "must be between 4 and 21"),
        (lambda: windows.reduce("v", 5, dtype=pl.Int64()), "is not a function"),  # type: ignore[arg-type]
    ],
)
def test_invalid_accumulations_raise(make: Callable[[], object], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        make()


def test_nan_is_a_value() -> None:
    answer = value(windows.mean("v"), folded(windows.mean("v"), [(0, 1.0), (1, math.nan)]))
    assert math.isnan(answer)


def test_max_by_returns_the_value_of_the_element_with_the_greatest_other_value() -> None:
    elements = pl.DataFrame(
        {
            TIME: [5, 3, 4, 1, 2],
            input_column("name"): ["late", "early", None, "nan", "unranked"],
            input_column("rank"): [7.0, 7.0, 1.0, math.nan, None],
        }
    )
    columns = PartialColumns("x", retractable=False)

    def picked(accumulation: ColumnarAccumulation, rows: pl.DataFrame) -> Any:
        halves = [rows.head(2), rows.tail(-2)]
        partials = pl.concat(
            [half.group_by(pl.lit(0).alias("g")).agg(accumulation.add(columns)) for half in halves]
        )
        assert value(accumulation, partials) == value(accumulation, partials.reverse())
        return value(accumulation, partials)

    numbers = elements.filter(~pl.col(input_column("rank")).is_nan().fill_null(value=False))
    assert picked(windows.max_by("name", "rank"), numbers) == "early"  # the first of equal ranks
    assert (
        picked(windows.max_by("name", "rank"), elements) == "nan"
    )  # NaN is the greatest number, as in Spark
    assert picked(windows.min_by("name", "rank"), elements) is None  # a null can be the value


def test_names_that_pyspark_users_know_are_the_same_accumulations() -> None:
    assert windows.avg("v") == windows.mean("v")
    assert windows.count("*") == windows.count()
    assert windows.tumbling("1 minute", offset="5 seconds") == windows.fixed("1 minute", offset="5 seconds")
