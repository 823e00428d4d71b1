"""Numeric and boolean accumulations: count, sum, mean, variance, standard deviation, any, all.

Sums of integers and decimals are exact, and partials can be merged in any order. A sum that does not fit into
its type is null in a partial, and raises when a pane needs it. Nulls are ignored as in SQL, and the value
without elements is null (a count is 0). All of these can subtract elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import polars as pl
import polars.selectors as cs

from slackwater.errors import InvalidArgument
from slackwater.windows.accumulations.base import (
    ColumnarAccumulation,
    OfColumn,
    PartialColumns,
    check_column,
    exact_sums,
    is_number,
)
from slackwater.windows.operator_columns import WEIGHT, input_column


class _Subtractable(ColumnarAccumulation):
    @property
    def can_subtract(self) -> bool:
        """Whether it can subtract an element that is retracted."""
        return True


class _SubtractableOfColumn(OfColumn, _Subtractable):
    __slots__ = ()


def _quotient(numerator: pl.Expr, denominator: pl.Expr) -> pl.Expr:
    """A division that is rounded only once, independent of the other rows.

    Polars multiplies by the reciprocal if the denominator is the same in all rows, and 12 / 5 is then not
    2.4. Adding a range of zeros prevents that optimization.
    """
    return numerator / (denominator + pl.int_range(pl.len(), dtype=pl.Int64) * 0)


def _weighted_count(value: pl.Expr, partials: PartialColumns) -> pl.Expr:
    if partials.retractable:
        return pl.col(WEIGHT).filter(value.is_not_null()).sum()
    return value.count().cast(pl.Int64)


@dataclass(frozen=True, slots=True)
class Count(_Subtractable):
    """The number of elements; with a column, of those in which it is not null.

    >>> Count().inputs, Count("bidder").inputs
    ((), ('bidder',))
    """

    column: str | None = None

    def __post_init__(self) -> None:
        if self.column is not None:
            check_column(self.column)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The input columns that it reads."""
        return () if self.column is None else (self.column,)

    def add(self, partials: PartialColumns) -> Sequence[pl.Expr]:
        """Aggregate elements to a partial."""
        if self.column is not None:
            counted = _weighted_count(pl.col(input_column(self.column)), partials)
        else:
            counted = pl.col(WEIGHT).sum() if partials.retractable else pl.len().cast(pl.Int64)
        return [counted.alias(partials.name("n"))]

    def merge(self, partials: PartialColumns) -> Sequence[pl.Expr]:
        """Merge partials to one."""
        return [partials.column("n").sum()]

    def output(self, partials: PartialColumns) -> pl.Expr:
        """The number of elements; 0 without elements."""
        return partials.column("n").fill_null(0)


def _is_known(sums: pl.Expr, count: pl.Expr) -> pl.Expr:
    """Whether no sum is null because it did not fit; a partial without a count has no sum."""
    return ~(sums.is_null() & count.is_not_null()).any()


def _narrowed(partials: PartialColumns) -> pl.Expr:
    """The sum of a partial; null if it is an integer of more than 64 bits."""
    sums = cs.by_name(partials.name("sum"))
    wide = sums & cs.by_dtype(pl.Int128)
    # One of the two is left.
    return pl.coalesce(wide.as_expr().cast(pl.Int64, strict=False), (sums - wide).as_expr())


@dataclass(frozen=True, slots=True)
class Sum(_SubtractableOfColumn):
    """The sum of a column; null without values.

    Integers are added exactly in 64 bits, and decimals with 38 digits. A sum that does not fit raises
    `SumOverflow`, as in Spark's ANSI mode.

    >>> Sum("price").name
    'sum'
    """

    def takes(self, column: str, dtype: pl.DataType) -> bool:
        """Accept numbers and durations."""
        return is_number(dtype) or dtype == pl.Duration

    def add(self, partials: PartialColumns) -> Sequence[pl.Expr]:
        """Aggregate elements to a partial."""
        weight = pl.col(WEIGHT) if partials.retractable else None
        column = input_column(self.column)
        sums = exact_sums(
            column, partials.name("sum"), weight, bounded=partials.bounded, wide=partials.retractable
        )
        count = _weighted_count(self._value(), partials)
        return [*sums, count.alias(partials.name("n"))]

    def merge(self, partials: PartialColumns) -> Sequence[pl.Expr]:
        """Merge partials to one."""
        name, count = partials.name("sum"), partials.column("n")
        if partials.retractable:
            # The count is 0 if as many elements were retracted as added, although a sum did not fit.
            known = partial(_is_known, count=count)
            return [*exact_sums(name, name, wide=True, known=known), count.sum()]
        is_known = ~(partials.column("sum").is_null() & (count != 0)).any()
        sums = [pl.when(is_known).then(each).alias(name) for each in exact_sums(name, name)]
        return [*sums, count.sum()]

    def overflowed(self, partials: PartialColumns) -> pl.Expr:
        """Whether the sum does not fit into its type."""
        return _narrowed(partials).is_null() & (partials.column("n") != 0)

    def output(self, partials: PartialColumns) -> pl.Expr:
        """The sum; null without values."""
        return pl.when(partials.column("n") != 0).then(_narrowed(partials))


@dataclass(frozen=True, slots=True)
class Mean(Sum):
    """The mean of a column; merging weights partials by their number of elements.

    The mean of decimals is a decimal with at least 6 digits after the point.

    >>> Mean("price").inputs
    ('price',)
    """

    def output(self, partials: PartialColumns) -> pl.Expr:
        """The mean; null without values."""
        total, count = cs.by_name(partials.name("sum")), partials.column("n")
        decimals = total & cs.decimal()
        # One of the two is left: the quotient of decimals has the scale of the one with more digits.
        mean = pl.coalesce(
            decimals.as_expr() / count.cast(pl.Decimal(38, 6)), _quotient((total - decimals).as_expr(), count)
        )
        return pl.when(count != 0).then(mean)


@dataclass(frozen=True, slots=True)
class Variance(_SubtractableOfColumn):
    """The variance of a column; ``ddof=1`` for that of a sample, 0 for that of a population.

    Partials hold the count, the mean and the sum of squared distances, which avoids cancellation if the
    values are large and close together. Retracted elements have partials of their own until the output.

    >>> Variance("price", ddof=0).inputs
    ('price',)
    """

    ddof: Literal[0, 1] = 1

    def __post_init__(self) -> None:
        OfColumn.__post_init__(self)
        if self.ddof not in (0, 1):
            raise InvalidArgument(
                "ddof", self.ddof, "must be 0 or 1", fix="use 1 for a sample, 0 for a population"
            )

    def takes(self, column: str, dtype: pl.DataType) -> bool:
        """Accept numbers."""
        return is_number(dtype)

    def add(self, partials: PartialColumns) -> Sequence[pl.Expr]:
        """Aggregate elements to a partial."""
        value = self._value().cast(pl.Float64)
        if not partials.retractable:
            return self._moments(value, partials, "")
        added, taken = value.filter(pl.col(WEIGHT) > 0), value.filter(pl.col(WEIGHT) < 0)
        return [*self._moments(added, partials, ""), *self._moments(taken, partials, "taken_")]

    def merge(self, partials: PartialColumns) -> Sequence[pl.Expr]:
        """Merge partials to one."""
        merged: list[pl.Expr] = []
        for side in self._sides(partials):
            count, mean, squares = (partials.column(side + part) for part in ("n", "mean", "squares"))
            # Partials without values have no mean; one that an earlier release stored may be NaN.
            has_values = count > 0
            center = (count * mean).filter(has_values).sum() / count.sum()
            distances = squares + count * (mean - center) ** 2
            merged += [
                count.sum(),
                pl.when(count.sum() > 0).then(center).alias(partials.name(side + "mean")),
                distances.filter(has_values).sum().alias(partials.name(side + "squares")),
            ]
        return merged

    def output(self, partials: PartialColumns) -> pl.Expr:
        """The variance; null unless there are more than ``ddof`` elements."""
        count, mean, squares = (partials.column(part) for part in ("n", "mean", "squares"))
        if partials.retractable:
            taken_count, taken_mean, taken_squares = (
                partials.column("taken_" + part) for part in ("n", "mean", "squares")
            )
            left = count - taken_count
            distance = mean - taken_mean
            correction = _quotient(count * taken_count, left) * distance**2
            squares = pl.when(taken_count > 0).then(squares - taken_squares - correction).otherwise(squares)
            count = left
        spread = _quotient(squares.clip(lower_bound=0.0), count - self.ddof)
        return pl.when(count > self.ddof).then(spread)

    @staticmethod
    def _sides(partials: PartialColumns) -> tuple[str, ...]:
        return ("", "taken_") if partials.retractable else ("",)

    @staticmethod
    def _moments(value: pl.Expr, partials: PartialColumns, side: str) -> list[pl.Expr]:
        return [
            value.count().cast(pl.Int64).alias(partials.name(side + "n")),
            value.mean().alias(partials.name(side + "mean")),
            ((value - value.mean()) ** 2).sum().alias(partials.name(side + "squares")),
        ]


@dataclass(frozen=True, slots=True)
class Stddev(Variance):
    """The standard deviation of a column: the square root of its variance.

    >>> Stddev("price").ddof
    1
    """

    def output(self, partials: PartialColumns) -> pl.Expr:
        """The standard deviation."""
        return Variance.output(self, partials).sqrt()


@dataclass(frozen=True, slots=True)
class Any(_SubtractableOfColumn):
    """Whether a boolean column is true in at least one element.

    >>> Any("clicked").name
    'any'
    """

    def takes(self, column: str, dtype: pl.DataType) -> bool:
        """Accept booleans."""
        return dtype in (pl.Boolean, pl.Null)

    def add(self, partials: PartialColumns) -> Sequence[pl.Expr]:
        """Aggregate elements to a partial."""
        value = self._value()
        weight = pl.col(WEIGHT) if partials.retractable else pl.lit(1, pl.Int64)
        return [
            pl.when(value).then(weight).otherwise(0).sum().alias(partials.name("true")),
            pl.when(~value).then(weight).otherwise(0).sum().alias(partials.name("false")),
        ]

    def merge(self, partials: PartialColumns) -> Sequence[pl.Expr]:
        """Merge partials to one."""
        return [partials.column("true").sum(), partials.column("false").sum()]

    def output(self, partials: PartialColumns) -> pl.Expr:
        """The result; null without values."""
        some = (partials.column("true") + partials.column("false")) != 0
        return pl.when(some).then(partials.column("true") != 0)


@dataclass(frozen=True, slots=True)
class All(Any):
    """Whether a boolean column is true in every element.

    >>> All("clicked").name
    'all'
    """

    def output(self, partials: PartialColumns) -> pl.Expr:
        """The result; null without values."""
        some = (partials.column("true") + partials.column("false")) != 0
        return pl.when(some).then(partials.column("false") == 0)
