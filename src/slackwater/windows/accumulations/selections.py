"""Accumulations that keep values as they are: extremes, ends and lists.

None of them can take an element back, because what it displaced is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from slackwater.windows.accumulations.base import (
    TIME,
    ColumnarAccumulation,
    OfColumn,
    Parts,
    check_column,
    check_positive,
    value_name,
)


@dataclass(frozen=True, slots=True)
class Min(OfColumn):
    """The least value of a column.

    >>> Min("price").can_subtract
    False
    """

    def takes(self, column: str, dtype: pl.DataType) -> bool:
        """What has an order of its own."""
        return not dtype.is_nested()

    def add(self, parts: Parts) -> Sequence[pl.Expr]:
        """Elements to partial columns."""
        return [self._value().min().alias(parts.name("value"))]

    def merge(self, parts: Parts) -> Sequence[pl.Expr]:
        """Partials to one partial."""
        return [parts.column("value").min()]

    def output(self, parts: Parts) -> pl.Expr:
        """The least value."""
        return parts.column("value")


@dataclass(frozen=True, slots=True)
class Max(OfColumn):
    """The greatest value of a column.

    >>> Max("price").inputs
    ('price',)
    """

    def takes(self, column: str, dtype: pl.DataType) -> bool:
        """What has an order of its own."""
        return not dtype.is_nested()

    def add(self, parts: Parts) -> Sequence[pl.Expr]:
        """Elements to partial columns."""
        return [self._value().max().alias(parts.name("value"))]

    def merge(self, parts: Parts) -> Sequence[pl.Expr]:
        """Partials to one partial."""
        return [parts.column("value").max()]

    def output(self, parts: Parts) -> pl.Expr:
        """The greatest value."""
        return parts.column("value")


@dataclass(frozen=True, slots=True)
class First(OfColumn):
    """The value with the earliest event time; of several, the one that arrived first.

    >>> First("price").name
    'first'
    """

    def add(self, parts: Parts) -> Sequence[pl.Expr]:
        """Elements to partial columns."""
        return self._pick(parts, pl.col(TIME), self._value())

    def merge(self, parts: Parts) -> Sequence[pl.Expr]:
        """Partials to one partial."""
        return self._pick(parts, parts.column("time"), parts.column("value"))

    def output(self, parts: Parts) -> pl.Expr:
        """The value."""
        return parts.column("value")

    def _pick(self, parts: Parts, time: pl.Expr, value: pl.Expr) -> list[pl.Expr]:
        known = value.is_not_null()
        return [
            value.filter(known)
            .sort_by(time.filter(known), maintain_order=True)
            .first()
            .alias(parts.name("value")),
            time.filter(known).min().alias(parts.name("time")),
        ]


@dataclass(frozen=True, slots=True)
class Last(First):
    """The value with the latest event time; of several, the one that arrived last.

    >>> Last("price").name
    'last'
    """

    def _pick(self, parts: Parts, time: pl.Expr, value: pl.Expr) -> list[pl.Expr]:
        known = value.is_not_null()
        return [
            value.filter(known)
            .sort_by(time.filter(known), maintain_order=True)
            .last()
            .alias(parts.name("value")),
            time.filter(known).max().alias(parts.name("time")),
        ]


@dataclass(frozen=True, slots=True)
class Collect(OfColumn):
    """All values of a column as a list, in no particular order.

    >>> Collect("price").name
    'collect'
    """

    def add(self, parts: Parts) -> Sequence[pl.Expr]:
        """Elements to partial columns."""
        return [self._keep(self._value().drop_nulls()).alias(parts.name("values"))]

    def merge(self, parts: Parts) -> Sequence[pl.Expr]:
        """Partials to one partial."""
        return [self._keep(parts.column("values").explode().drop_nulls())]

    def output(self, parts: Parts) -> pl.Expr:
        """The list; empty over nothing."""
        return parts.column("values").fill_null([])

    def _keep(self, values: pl.Expr) -> pl.Expr:
        return values


@dataclass(frozen=True, slots=True)
class CollectSet(Collect):
    """The distinct values of a column as a list, in ascending order, so that equal sets are equal lists.

    >>> CollectSet("bidder").name
    'collect_set'
    """

    def _keep(self, values: pl.Expr) -> pl.Expr:
        return values.unique().sort()


@dataclass(frozen=True, slots=True)
class Sort(Collect):
    """All values of a column as a sorted list.

    >>> Sort("price", descending=True).descending
    True
    """

    descending: bool = False

    def output(self, parts: Parts) -> pl.Expr:
        """The sorted list; empty over nothing."""
        return parts.column("values").fill_null([]).list.sort(descending=self.descending)


@dataclass(frozen=True, slots=True)
class TopN(Collect):
    """The ``n`` greatest values of a column, greatest first.

    >>> TopN("price", 3).n
    3
    """

    n: int = 10

    def __post_init__(self) -> None:
        check_column(self.column)
        check_positive(self.n, "n")

    def _keep(self, values: pl.Expr) -> pl.Expr:
        return values.sort(descending=True).head(self.n)


@dataclass(frozen=True, slots=True)
class TopNByKey(ColumnarAccumulation):
    """The ``n`` names with the greatest values, each name once with its greatest value.

    The output is a list of ``{value, key}``, greatest first.

    >>> TopNByKey("price", key="bidder", n=3).inputs
    ('price', 'bidder')
    """

    column: str
    key: str
    n: int = 10

    def __post_init__(self) -> None:
        check_column(self.column)
        check_column(self.key, "key")
        check_positive(self.n, "n")

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns of the batch that it reads."""
        return (self.column, self.key)

    def add(self, parts: Parts) -> Sequence[pl.Expr]:
        """Elements to partial columns."""
        value, key = pl.col(value_name(self.column)), pl.col(value_name(self.key))
        pairs = pl.struct(value.alias("value"), key.alias("key")).filter(value.is_not_null())
        return [self._keep(pairs).alias(parts.name("pairs"))]

    def merge(self, parts: Parts) -> Sequence[pl.Expr]:
        """Partials to one partial."""
        return [self._keep(parts.column("pairs").explode().drop_nulls())]

    def output(self, parts: Parts) -> pl.Expr:
        """The pairs; none over nothing."""
        return parts.column("pairs").fill_null([])

    def _keep(self, pairs: pl.Expr) -> pl.Expr:
        ranked = pairs.sort(descending=True)
        return ranked.filter(ranked.struct.field("key").is_first_distinct()).head(self.n)
