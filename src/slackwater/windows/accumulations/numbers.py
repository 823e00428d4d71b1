"""Counts, sums and what follows from them: exact for integers, mergeable in any order.

Nulls are ignored as in SQL, and the value over nothing is null (a count: 0). All of these can take
an element back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl
import polars.selectors as cs

from slackwater.errors import InvalidArgument
from slackwater.windows.accumulations.base import (
    WEIGHT,
    ColumnarAccumulation,
    OfColumn,
    Parts,
    check_column,
    is_number,
    value_name,
)


class _Subtractable(ColumnarAccumulation):
    @property
    def can_subtract(self) -> bool:
        """Whether an element can be taken back."""
        return True


class _SubtractableOfColumn(OfColumn, _Subtractable):
    __slots__ = ()


def _quotient(numerator: pl.Expr, denominator: pl.Expr) -> pl.Expr:
    """A division that rounds once, whatever the rows around it.

    Polars multiplies by the reciprocal where the denominator is the same in all rows, and 12 / 5 is then
    not 2.4. Adding a range of zeros tells it that the rows are their own.
    """
    return numerator / (denominator + pl.int_range(pl.len(), dtype=pl.Int64) * 0)


_NARROW = cs.by_dtype(pl.Boolean, pl.Int8, pl.Int16, pl.Int32, pl.UInt8, pl.UInt16, pl.UInt32)


def _widened(column: str) -> list[pl.Expr]:
    """The column in the widest type of its kind, so that sums of narrow numbers do not overflow.

    One expression for each kind; selectors leave the one that fits when the type is known.
    """
    values, single = cs.by_name(value_name(column)), cs.by_dtype(pl.Float32)
    return [
        (values & _NARROW).cast(pl.Int64),
        (values & single).cast(pl.Float64),
        (values - _NARROW - single).as_expr(),
    ]


def _weighted_count(value: pl.Expr, parts: Parts) -> pl.Expr:
    if parts.signed:
        return pl.col(WEIGHT).filter(value.is_not_null()).sum()
    return value.count().cast(pl.Int64)


@dataclass(frozen=True, slots=True)
class Count(_Subtractable):
    """How many elements; with a column, how many where it is not null.

    >>> Count().inputs, Count("bidder").inputs
    ((), ('bidder',))
    """

    column: str | None = None

    def __post_init__(self) -> None:
        if self.column is not None:
            check_column(self.column)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns of the batch that it reads."""
        return () if self.column is None else (self.column,)

    def add(self, parts: Parts) -> Sequence[pl.Expr]:
        """Elements to partial columns."""
        if self.column is not None:
            counted = _weighted_count(pl.col(value_name(self.column)), parts)
        else:
            counted = pl.col(WEIGHT).sum() if parts.signed else pl.len().cast(pl.Int64)
        return [counted.alias(parts.name("n"))]

    def merge(self, parts: Parts) -> Sequence[pl.Expr]:
        """Partials to one partial."""
        return [parts.column("n").sum()]

    def output(self, parts: Parts) -> pl.Expr:
        """The number."""
        return parts.column("n").fill_null(0)


@dataclass(frozen=True, slots=True)
class Sum(_SubtractableOfColumn):
    """The sum of a column; null over nothing. Integers are added exactly, in 64 bits.

    >>> Sum("price").name
    'sum'
    """

    def takes(self, column: str, dtype: pl.DataType) -> bool:
        """Numbers and durations; a sum of dates means nothing."""
        return is_number(dtype) or dtype == pl.Duration

    def add(self, parts: Parts) -> Sequence[pl.Expr]:
        """Elements to partial columns."""
        totals = [each * pl.col(WEIGHT) if parts.signed else each for each in _widened(self.column)]
        count = _weighted_count(self._value(), parts)
        return [*(each.sum().alias(parts.name("sum")) for each in totals), count.alias(parts.name("n"))]

    def merge(self, parts: Parts) -> Sequence[pl.Expr]:
        """Partials to one partial."""
        return [parts.column("sum").sum(), parts.column("n").sum()]

    def output(self, parts: Parts) -> pl.Expr:
        """The sum."""
        return pl.when(parts.column("n") != 0).then(parts.column("sum"))


@dataclass(frozen=True, slots=True)
class Mean(Sum):
    """The mean of a column; merging weighs by the number of elements.

    >>> Mean("price").inputs
    ('price',)
    """

    def output(self, parts: Parts) -> pl.Expr:
        """The mean."""
        return pl.when(parts.column("n") != 0).then(_quotient(parts.column("sum"), parts.column("n")))


@dataclass(frozen=True, slots=True)
class Variance(_SubtractableOfColumn):
    """The variance of a column; ``ddof=1`` for that of a sample, 0 for that of a population.

    Partials hold count, mean and the sum of squared distances, so nothing cancels out when the
    values are large and close together. Elements taken back are kept apart until the output.

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
        """Numbers."""
        return is_number(dtype)

    def add(self, parts: Parts) -> Sequence[pl.Expr]:
        """Elements to partial columns."""
        value = self._value().cast(pl.Float64)
        if not parts.signed:
            return self._moments(value, parts, "")
        added, taken = value.filter(pl.col(WEIGHT) > 0), value.filter(pl.col(WEIGHT) < 0)
        return [*self._moments(added, parts, ""), *self._moments(taken, parts, "taken_")]

    def merge(self, parts: Parts) -> Sequence[pl.Expr]:
        """Partials to one partial."""
        merged: list[pl.Expr] = []
        for side in self._sides(parts):
            count, mean, squares = (parts.column(side + part) for part in ("n", "mean", "squares"))
            center = (count * mean).sum() / count.sum()
            merged += [
                count.sum(),
                center.alias(parts.name(side + "mean")),
                (squares + count * (mean - center) ** 2).sum().alias(parts.name(side + "squares")),
            ]
        return merged

    def output(self, parts: Parts) -> pl.Expr:
        """The variance; null with no more than ``ddof`` elements."""
        count, mean, squares = (parts.column(part) for part in ("n", "mean", "squares"))
        if parts.signed:
            taken_count, taken_mean, taken_squares = (
                parts.column("taken_" + part) for part in ("n", "mean", "squares")
            )
            left = count - taken_count
            distance = mean - taken_mean
            correction = _quotient(count * taken_count, left) * distance**2
            squares = pl.when(taken_count > 0).then(squares - taken_squares - correction).otherwise(squares)
            count = left
        spread = _quotient(squares.clip(lower_bound=0.0), count - self.ddof)
        return pl.when(count > self.ddof).then(spread)

    @staticmethod
    def _sides(parts: Parts) -> tuple[str, ...]:
        return ("", "taken_") if parts.signed else ("",)

    @staticmethod
    def _moments(value: pl.Expr, parts: Parts, side: str) -> list[pl.Expr]:
        return [
            value.count().cast(pl.Int64).alias(parts.name(side + "n")),
            value.mean().alias(parts.name(side + "mean")),
            ((value - value.mean()) ** 2).sum().alias(parts.name(side + "squares")),
        ]


@dataclass(frozen=True, slots=True)
class Stddev(Variance):
    """The standard deviation of a column: the root of its variance.

    >>> Stddev("price").ddof
    1
    """

    def output(self, parts: Parts) -> pl.Expr:
        """The standard deviation."""
        return Variance.output(self, parts).sqrt()


@dataclass(frozen=True, slots=True)
class Any(_SubtractableOfColumn):
    """Whether a boolean column was true at least once.

    >>> Any("clicked").name
    'any'
    """

    def takes(self, column: str, dtype: pl.DataType) -> bool:
        """Booleans."""
        return dtype in (pl.Boolean, pl.Null)

    def add(self, parts: Parts) -> Sequence[pl.Expr]:
        """Elements to partial columns."""
        value = self._value()
        weight = pl.col(WEIGHT) if parts.signed else pl.lit(1, pl.Int64)
        return [
            pl.when(value).then(weight).otherwise(0).sum().alias(parts.name("true")),
            pl.when(~value).then(weight).otherwise(0).sum().alias(parts.name("false")),
        ]

    def merge(self, parts: Parts) -> Sequence[pl.Expr]:
        """Partials to one partial."""
        return [parts.column("true").sum(), parts.column("false").sum()]

    def output(self, parts: Parts) -> pl.Expr:
        """Whether; null over nothing."""
        some = (parts.column("true") + parts.column("false")) != 0
        return pl.when(some).then(parts.column("true") != 0)


@dataclass(frozen=True, slots=True)
class All(Any):
    """Whether a boolean column was true every time.

    >>> All("clicked").name
    'all'
    """

    def output(self, parts: Parts) -> pl.Expr:
        """Whether; null over nothing."""
        some = (parts.column("true") + parts.column("false")) != 0
        return pl.when(some).then(parts.column("false") == 0)
