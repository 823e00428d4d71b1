"""What a pane shows: accumulations as plain values, with their kernels on columns.

The lower-case functions are the way to write them, ``sum("price")``; some carry the names of Python
built-ins, so import the module, or use ``slackwater.sum``.
"""

from __future__ import annotations

from typing import Any as AnyValue
from typing import Literal

import polars as pl

from slackwater.windows.accumulations.base import ColumnarAccumulation, Parts
from slackwater.windows.accumulations.numbers import All, Any, Count, Mean, Stddev, Sum, Variance
from slackwater.windows.accumulations.python import Accumulation, Fold, Function, Reduce
from slackwater.windows.accumulations.selections import (
    Collect,
    CollectSet,
    First,
    Last,
    Max,
    Min,
    Sort,
    TopN,
    TopNByKey,
)
from slackwater.windows.accumulations.sketches import ApproxCountDistinct, ApproxQuantile

__all__ = [
    "Accumulation",
    "All",
    "Any",
    "ApproxCountDistinct",
    "ApproxQuantile",
    "Collect",
    "CollectSet",
    "ColumnarAccumulation",
    "Count",
    "First",
    "Fold",
    "Last",
    "Max",
    "Mean",
    "Min",
    "Parts",
    "Reduce",
    "Sort",
    "Stddev",
    "Sum",
    "TopN",
    "TopNByKey",
    "Variance",
    "all",
    "any",
    "approx_count_distinct",
    "approx_quantile",
    "collect",
    "collect_set",
    "count",
    "first",
    "fold",
    "last",
    "max",
    "mean",
    "min",
    "reduce",
    "sort",
    "stddev",
    "sum",
    "top_n",
    "top_n_by_key",
    "variance",
]


def count(column: str | None = None) -> Count:
    """How many elements; with a column, how many where it is not null.

    >>> count()
    Count(column=None)
    """
    return Count(column)


def sum(column: str) -> Sum:
    """The sum of a column.

    >>> sum("price")
    Sum(column='price')
    """
    return Sum(column)


def min(column: str) -> Min:
    """The least value of a column.

    >>> min("price")
    Min(column='price')
    """
    return Min(column)


def max(column: str) -> Max:
    """The greatest value of a column.

    >>> max("price")
    Max(column='price')
    """
    return Max(column)


def mean(column: str) -> Mean:
    """The mean of a column.

    >>> mean("price")
    Mean(column='price')
    """
    return Mean(column)


def variance(column: str, *, ddof: Literal[0, 1] = 1) -> Variance:
    """The variance of a column.

    >>> variance("price")
    Variance(column='price', ddof=1)
    """
    return Variance(column, ddof)


def stddev(column: str, *, ddof: Literal[0, 1] = 1) -> Stddev:
    """The standard deviation of a column.

    >>> stddev("price")
    Stddev(column='price', ddof=1)
    """
    return Stddev(column, ddof)


def first(column: str) -> First:
    """The value with the earliest event time.

    >>> first("price")
    First(column='price')
    """
    return First(column)


def last(column: str) -> Last:
    """The value with the latest event time.

    >>> last("price")
    Last(column='price')
    """
    return Last(column)


def any(column: str) -> Any:
    """Whether a boolean column was true at least once.

    >>> any("clicked")
    Any(column='clicked')
    """
    return Any(column)


def all(column: str) -> All:
    """Whether a boolean column was true every time.

    >>> all("clicked")
    All(column='clicked')
    """
    return All(column)


def collect(column: str) -> Collect:
    """All values of a column as a list.

    >>> collect("price")
    Collect(column='price')
    """
    return Collect(column)


def collect_set(column: str) -> CollectSet:
    """The distinct values of a column as a list.

    >>> collect_set("bidder")
    CollectSet(column='bidder')
    """
    return CollectSet(column)


def sort(column: str, *, descending: bool = False) -> Sort:
    """All values of a column as a sorted list.

    >>> sort("price")
    Sort(column='price', descending=False)
    """
    return Sort(column, descending)


def top_n(column: str, n: int) -> TopN:
    """The ``n`` greatest values of a column.

    >>> top_n("price", 3)
    TopN(column='price', n=3)
    """
    return TopN(column, n)


def top_n_by_key(column: str, *, key: str, n: int) -> TopNByKey:
    """The ``n`` names of ``key`` with the greatest values of ``column``.

    >>> top_n_by_key("price", key="bidder", n=3)
    TopNByKey(column='price', key='bidder', n=3)
    """
    return TopNByKey(column, key, n)


def approx_count_distinct(column: str, *, precision: int = 12) -> ApproxCountDistinct:
    """About how many distinct values a column had.

    >>> approx_count_distinct("bidder")
    ApproxCountDistinct(column='bidder', precision=12)
    """
    return ApproxCountDistinct(column, precision)


def approx_quantile(column: str, rank: float, *, size: int = 200) -> ApproxQuantile:
    """About which value lies at a rank between 0 and 1.

    >>> approx_quantile("price", 0.5)
    ApproxQuantile(column='price', rank=0.5, size=200)
    """
    return ApproxQuantile(column, rank, size)


def reduce(column: str, function: Function, *, dtype: pl.DataType) -> Reduce:
    """Values joined pairwise by an associative Python function. Slow.

    >>> reduce("price", lambda left, right: left * right, dtype=pl.Int64()).column
    'price'
    """
    return Reduce(column, function, dtype)


def fold(
    column: str,
    initial: AnyValue,
    function: Function,
    *,
    combine: Function,
    dtype: pl.DataType,
    inverse: Function | None = None,
) -> Fold:
    """Values folded into an initial one by a Python function. Slow.

    >>> fold("price", 0, lambda total, price: total + price, combine=int.__add__, dtype=pl.Int64()).initial
    0
    """
    return Fold(column, initial, function, combine, dtype, inverse)
