"""Accumulations: the aggregate functions that compute the values of a pane.

Write them with the lower-case functions, as in ``sum("price")``. On Spark a column may also be an expression,
as in ``sum(F.col("price") * 2)``. Some have the names of Python built-ins, so
import the module, or use ``slackwater.sum``.
"""

from __future__ import annotations

from typing import Any as AnyValue
from typing import Literal

import polars as pl

from slackwater.errors import InvalidArgument
from slackwater.windows.accumulations.base import ColumnarAccumulation, PartialColumns
from slackwater.windows.accumulations.numbers import All, Any, Count, Mean, Stddev, Sum, Variance
from slackwater.windows.accumulations.python import Accumulation, Fold, Function, Reduce
from slackwater.windows.accumulations.selections import (
    Collect,
    CollectOrdered,
    CollectSet,
    CountDistinct,
    First,
    Last,
    Max,
    MaxBy,
    Min,
    MinBy,
    Sort,
    SumDistinct,
    TopN,
    TopNByKey,
)
from slackwater.windows.accumulations.sketches import ApproxCountDistinct, ApproxQuantile
from slackwater.windows.computed_columns import ColumnExpression, column_name

Column = str | ColumnExpression
"""A column name, or on Spark an expression as a Column, which Spark computes before the operator."""

__all__ = [
    "Accumulation",
    "All",
    "Any",
    "ApproxCountDistinct",
    "ApproxQuantile",
    "Collect",
    "CollectOrdered",
    "CollectSet",
    "ColumnarAccumulation",
    "Count",
    "CountDistinct",
    "First",
    "Fold",
    "Last",
    "Max",
    "MaxBy",
    "Mean",
    "Min",
    "MinBy",
    "PartialColumns",
    "Reduce",
    "Sort",
    "Stddev",
    "Sum",
    "SumDistinct",
    "TopN",
    "TopNByKey",
    "Variance",
    "all",
    "any",
    "approx_count_distinct",
    "approx_quantile",
    "avg",
    "collect",
    "collect_set",
    "count",
    "count_distinct",
    "first",
    "fold",
    "last",
    "max",
    "max_by",
    "mean",
    "min",
    "min_by",
    "reduce",
    "sort",
    "stddev",
    "sum",
    "sum_distinct",
    "top_n",
    "top_n_by_key",
    "variance",
]


def count(column: Column | None = None) -> Count:
    """Count elements, or those in which a column is not null.

    Args:
        column: the column that must not be null; None or ``"*"`` counts all elements.

    >>> import slackwater as sw
    >>> sw.count(), sw.count("*")
    (Count(column=None), Count(column=None))
    """
    return Count(
        None if column is None or (isinstance(column, str) and column == "*") else column_name(column)
    )


def sum(column: Column) -> Sum:
    """Sum a column; null if there are no values.

    Args:
        column: the column of numbers.

    >>> import slackwater as sw
    >>> sw.sum("price")
    Sum(column='price')
    """
    return Sum(column_name(column))


def sum_distinct(column: Column) -> SumDistinct:
    """Sum the distinct values of a column; null if there are no values. Keeps every distinct value.

    Args:
        column: the column of numbers.

    >>> import slackwater as sw
    >>> sw.sum_distinct("price")
    SumDistinct(column='price')
    """
    return SumDistinct(column_name(column))


def count_distinct(column: Column, *columns: Column) -> CountDistinct:
    """Count the distinct values of a column exactly. Keeps every distinct value.

    `approx_count_distinct` needs constant space instead.

    Args:
        column: the column.
        *columns: not supported; a struct of several columns is one column.

    Raises:
        InvalidArgument: several columns are given.

    >>> import slackwater as sw
    >>> sw.count_distinct("bidder")
    CountDistinct(column='bidder')
    >>> sw.count_distinct("bidder", "auction")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: count_distinct = ('bidder', 'auction'): are several columns; write \
count_distinct(F.struct('bidder', 'auction')), or add such a column with with_columns
    """
    if columns:
        given = (str(column), *map(str, columns))
        raise InvalidArgument(
            "count_distinct",
            given,
            "are several columns",
            fix=f"write count_distinct(F.struct{given}), or add such a column with with_columns",
        )
    return CountDistinct(column_name(column))


def min(column: Column) -> Min:
    """The minimum of a column; null if there are no values.

    Args:
        column: the column.

    >>> import slackwater as sw
    >>> sw.min("price")
    Min(column='price')
    """
    return Min(column_name(column))


def max(column: Column) -> Max:
    """The maximum of a column; null if there are no values.

    Args:
        column: the column.

    >>> import slackwater as sw
    >>> sw.max("price")
    Max(column='price')
    """
    return Max(column_name(column))


def mean(column: Column) -> Mean:
    """The arithmetic mean of a column; null if there are no values.

    Args:
        column: the column of numbers.

    >>> import slackwater as sw
    >>> sw.mean("price")
    Mean(column='price')
    """
    return Mean(column_name(column))


def avg(column: Column) -> Mean:
    """The arithmetic mean of a column: another name of `mean`.

    Args:
        column: the column of numbers.

    >>> import slackwater as sw
    >>> sw.avg("price") == sw.mean("price")
    True
    """
    return mean(column)


def max_by(column: Column, by: Column) -> MaxBy:
    """The value of a column in the element with the maximum of another column; null if there is none.

    Args:
        column: the column to return.
        by: the column whose maximum decides. Elements in which it is null do not count. Among equal values,
            the earliest element decides; among equal times, the one that arrived first.

    >>> import slackwater as sw
    >>> sw.max_by("bidder", "price")
    MaxBy(column='bidder', by='price')
    """
    return MaxBy(column_name(column), column_name(by))


def min_by(column: Column, by: Column) -> MinBy:
    """The value of a column in the element with the minimum of another column; null if there is none.

    Args:
        column: the column to return.
        by: the column whose minimum decides; see `max_by`.

    >>> import slackwater as sw
    >>> sw.min_by("bidder", "price")
    MinBy(column='bidder', by='price')
    """
    return MinBy(column_name(column), column_name(by))


def variance(column: Column, *, ddof: Literal[0, 1] = 1) -> Variance:
    """The variance of a column.

    Args:
        column: a numeric column.
        ddof: 1 for the variance of a sample, 0 for that of a population.

    >>> import slackwater as sw
    >>> sw.variance("price")
    Variance(column='price', ddof=1)
    """
    return Variance(column_name(column), ddof)


def stddev(column: Column, *, ddof: Literal[0, 1] = 1) -> Stddev:
    """The standard deviation of a column.

    Args:
        column: a numeric column.
        ddof: 1 for the standard deviation of a sample, 0 for that of a population.

    >>> import slackwater as sw
    >>> sw.stddev("price")
    Stddev(column='price', ddof=1)
    """
    return Stddev(column_name(column), ddof)


def first(column: Column) -> First:
    """The value with the earliest event time; among equal times, the one that arrived first.

    Args:
        column: the column.

    >>> import slackwater as sw
    >>> sw.first("price")
    First(column='price')
    """
    return First(column_name(column))


def last(column: Column) -> Last:
    """The value with the latest event time; among equal times, the one that arrived last.

    Args:
        column: the column.

    >>> import slackwater as sw
    >>> sw.last("price")
    Last(column='price')
    """
    return Last(column_name(column))


def any(column: Column) -> Any:
    """Whether a boolean column is true in at least one element; null if there are no values.

    Args:
        column: the boolean column.

    >>> import slackwater as sw
    >>> sw.any("clicked")
    Any(column='clicked')
    """
    return Any(column_name(column))


def all(column: Column) -> All:
    """Whether a boolean column is true in every element; null if there are no values.

    Args:
        column: the boolean column.

    >>> import slackwater as sw
    >>> sw.all("clicked")
    All(column='clicked')
    """
    return All(column_name(column))


def collect(column: Column, *, ordered: bool = False) -> Collect | CollectOrdered:
    """All values of a column as a list. Keeps every value.

    Args:
        column: the column to collect; nulls are left out.
        ordered: whether the list is in event-time order; among equal times, in order of arrival. Otherwise it
            is in no particular order.

    >>> import slackwater as sw
    >>> sw.collect("price")
    Collect(column='price')
    >>> sw.collect("price", ordered=True)
    CollectOrdered(column='price')
    """
    name = column_name(column)
    return CollectOrdered(name) if ordered else Collect(name)


def collect_set(column: Column) -> CollectSet:
    """The distinct values of a column as a list, in ascending order.

    Args:
        column: the column.

    >>> import slackwater as sw
    >>> sw.collect_set("bidder")
    CollectSet(column='bidder')
    """
    return CollectSet(column_name(column))


def sort(column: Column, *, descending: bool = False) -> Sort:
    """All values of a column as a sorted list. Keeps every value.

    Args:
        column: a column whose values can be ordered.
        descending: whether the greatest value comes first.

    >>> import slackwater as sw
    >>> sw.sort("price")
    Sort(column='price', descending=False)
    """
    return Sort(column_name(column), descending)


def top_n(column: Column, n: int) -> TopN:
    """The ``n`` greatest values of a column, greatest first.

    Args:
        column: the column.
        n: how many values.

    >>> import slackwater as sw
    >>> sw.top_n("price", 3)
    TopN(column='price', n=3)
    """
    return TopN(column_name(column), n)


def top_n_by_key(column: Column, *, key: Column, n: int) -> TopNByKey:
    """The ``n`` distinct values of ``key`` with the greatest values of ``column``.

    Args:
        column: the column to rank by.
        key: the column whose distinct values are ranked, each by its greatest value.
        n: how many to return, as a list of ``{value, key}``.

    >>> import slackwater as sw
    >>> sw.top_n_by_key("price", key="bidder", n=3)
    TopNByKey(column='price', key='bidder', n=3)
    """
    return TopNByKey(column_name(column), column_name(key), n)


def approx_count_distinct(column: Column, *, precision: int = 12) -> ApproxCountDistinct:
    """The approximate number of distinct values of a column, by a HyperLogLog sketch.

    Args:
        column: the column to count.
        precision: the sketch has ``2**precision`` registers; between 4 and 21.

    >>> import slackwater as sw
    >>> sw.approx_count_distinct("bidder")
    ApproxCountDistinct(column='bidder', precision=12)
    """
    return ApproxCountDistinct(column_name(column), precision)


def approx_quantile(column: Column, rank: float, *, size: int = 200) -> ApproxQuantile:
    """The approximate quantile of a numeric column, by a KLL sketch.

    Args:
        column: a numeric column.
        rank: the rank of the quantile between 0 and 1; 0.5 is the median.
        size: the size of the sketch between 8 and 65535; larger is more accurate.

    >>> import slackwater as sw
    >>> sw.approx_quantile("price", 0.5)
    ApproxQuantile(column='price', rank=0.5, size=200)
    """
    return ApproxQuantile(column_name(column), rank, size)


def reduce(column: Column, function: Function, *, dtype: pl.DataType, ordered: bool = True) -> Reduce:
    """Reduce values by an associative Python function. Slow: one call per element.

    Args:
        column: the column to reduce.
        function: combines two values to one.
        dtype: the type of the result.
        ordered: whether values are reduced in the order of their event times, then of arrival. For this all
            values are stored until the window is purged. Use False if the order does not matter.

    >>> import slackwater as sw
    >>> sw.reduce("price", lambda left, right: left * right, dtype=pl.Int64()).column
    'price'
    """
    return Reduce(column_name(column), function, dtype, ordered)


def fold(
    column: Column,
    initial: AnyValue,
    function: Function,
    *,
    combine: Function,
    dtype: pl.DataType,
    inverse: Function | None = None,
    ordered: bool = True,
    accumulator_type: AnyValue = None,
) -> Fold:
    """Fold values into an initial one by a Python function. Slow: one call per element.

    Args:
        column: the column to fold.
        initial: the accumulator without any values. It consists of numbers, text, bytes, lists, tuples, sets,
            dicts, decimals, dates and times, unless ``accumulator_type`` is given.
        function: ``function(accumulator, value)`` returns the accumulator with one more value.
        combine: ``combine(left, right)`` merges two accumulators.
        dtype: the type of the result.
        inverse: ``inverse(accumulator, value)`` subtracts a value. Without it, the values of a window are
            stored if the input has retractions, and those that remain are folded again for each pane.
        ordered: whether values are folded in the order of their event times, then of arrival. For this all
            values are stored until the window is purged. Use False if the order does not matter.
        accumulator_type: the type of the accumulators, if it is another one, such as a dataclass or a
            msgspec.Struct.

    Raises:
        InvalidArgument: an argument is invalid, or the state cannot store the initial value.

    >>> import slackwater as sw
    >>> sw.fold("price", 0, lambda total, price: total + price, combine=int.__add__, dtype=pl.Int64()).initial
    0
    """
    return Fold(column_name(column), initial, function, combine, dtype, inverse, ordered, accumulator_type)
