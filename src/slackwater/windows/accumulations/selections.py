"""Accumulations that select or collect values: min, max, first, last, collect, sort, top n, distinct values.

None of them can subtract an element, because the values that it displaced are gone. If the input contains
retractions, the elements are stored with a count, and the value is computed from those that remain.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl
import polars.selectors as cs

from slackwater.windows.accumulations.base import (
    ColumnarAccumulation,
    OfColumn,
    PartialColumns,
    check_column,
    check_positive,
    is_number,
    widened,
)
from slackwater.windows.operator_columns import TIME, input_column

EXTREME: Final = "value"
"""The field of the partial of a minimum or maximum."""
EXTREME_BY: Final = "by"
"""The field of the partial with the extreme value by which an element was selected."""


class _Recomputable(ColumnarAccumulation):
    @property
    def can_recompute(self) -> bool:
        """Whether its value may be computed from the elements that remain after retractions."""
        return True


class _RecomputableOfColumn(OfColumn, _Recomputable):
    __slots__ = ()


class Extreme(_RecomputableOfColumn):
    """The minimum or maximum of a column."""

    __slots__ = ()

    def takes(self, column: str, dtype: pl.DataType) -> bool:
        """Accept all types that can be ordered."""
        return not dtype.is_nested()

    def add(self, partials: PartialColumns) -> Sequence[pl.Expr]:
        """Aggregate elements to a partial."""
        return [self.select(self._value()).alias(partials.name(EXTREME))]

    def merge(self, partials: PartialColumns) -> Sequence[pl.Expr]:
        """Merge partials to one."""
        return [self.select(partials.column(EXTREME))]

    def output(self, partials: PartialColumns) -> pl.Expr:
        """The value; null without values."""
        return partials.column(EXTREME)

    @abstractmethod
    def select(self, values: pl.Expr) -> pl.Expr:
        """The extreme of some values; null without values.

        Args:
            values: the values of a group.
        """

    @abstractmethod
    def select_in_lists(self, lists: pl.Expr) -> pl.Expr:
        """The extreme of each of some lists, which do not contain floats: NaN may count differently.

        Args:
            lists: a column of lists.
        """

    @property
    @abstractmethod
    def is_greatest(self) -> bool:
        """Whether the extreme is the maximum."""

    @abstractmethod
    def is_beyond(self, value: pl.Expr, other: pl.Expr) -> pl.Expr:
        """Whether a value is the extreme of two, and not equal to the other.

        Args:
            value: a value.
            other: the value that it is compared with.
        """


@dataclass(frozen=True, slots=True)
class Min(Extreme):
    """The minimum of a column; NaN only if there is no other number.

    >>> Min("price").can_subtract
    False
    """

    def select(self, values: pl.Expr) -> pl.Expr:
        """The minimum of some values."""
        return values.min()

    def select_in_lists(self, lists: pl.Expr) -> pl.Expr:
        """The minimum of each of some lists."""
        return lists.list.min()

    @property
    def is_greatest(self) -> bool:
        """Whether the extreme is the maximum."""
        return False

    def is_beyond(self, value: pl.Expr, other: pl.Expr) -> pl.Expr:
        """Whether a value is less than another."""
        return value < other


@dataclass(frozen=True, slots=True)
class Max(Extreme):
    """The maximum of a column. NaN is greater than every other number, as in Spark.

    >>> Max("price").inputs
    ('price',)
    """

    def select(self, values: pl.Expr) -> pl.Expr:
        """The maximum of some values."""
        return values.nan_max()

    def select_in_lists(self, lists: pl.Expr) -> pl.Expr:
        """The maximum of each of some lists."""
        return lists.list.max()

    @property
    def is_greatest(self) -> bool:
        """Whether the extreme is the maximum."""
        return True

    def is_beyond(self, value: pl.Expr, other: pl.Expr) -> pl.Expr:
        """Whether a value is greater than another."""
        return value > other


@dataclass(frozen=True, slots=True)
class First(_RecomputableOfColumn):
    """The value with the earliest event time; among equal times, the one that arrived first.

    >>> First("price").name
    'first'
    """

    @property
    def reads_time(self) -> bool:
        """Whether its value depends on the event times of the elements."""
        return True

    def add(self, partials: PartialColumns) -> Sequence[pl.Expr]:
        """Aggregate elements to a partial."""
        return self._pick(partials, pl.col(TIME), self._value())

    def merge(self, partials: PartialColumns) -> Sequence[pl.Expr]:
        """Merge partials to one."""
        return self._pick(partials, partials.column("time"), partials.column("value"))

    def output(self, partials: PartialColumns) -> pl.Expr:
        """The value; null without values."""
        return partials.column("value")

    def _pick(self, partials: PartialColumns, time: pl.Expr, value: pl.Expr) -> list[pl.Expr]:
        known = value.is_not_null()
        return [
            value.filter(known)
            .sort_by(time.filter(known), maintain_order=True)
            .first()
            .alias(partials.name("value")),
            time.filter(known).min().alias(partials.name("time")),
        ]


@dataclass(frozen=True, slots=True)
class Last(First):
    """The value with the latest event time; among equal times, the one that arrived last.

    >>> Last("price").name
    'last'
    """

    def _pick(self, partials: PartialColumns, time: pl.Expr, value: pl.Expr) -> list[pl.Expr]:
        known = value.is_not_null()
        return [
            value.filter(known)
            .sort_by(time.filter(known), maintain_order=True)
            .last()
            .alias(partials.name("value")),
            time.filter(known).max().alias(partials.name("time")),
        ]


@dataclass(frozen=True, slots=True)
class ExtremeBy(_Recomputable):
    """The value of a column in the element with the extreme value of another one."""

    column: str
    by: str

    def __post_init__(self) -> None:
        check_column(self.column)
        check_column(self.by, "by")

    @property
    def inputs(self) -> tuple[str, ...]:
        """The input columns that it reads."""
        return tuple(dict.fromkeys((self.column, self.by)))

    @property
    def reads_time(self) -> bool:
        """Whether its value depends on the event times of the elements: among equal extremes."""
        return True

    def takes(self, column: str, dtype: pl.DataType) -> bool:
        """Accept all types for the value, and those that can be ordered for the other column."""
        return column != self.by or not dtype.is_nested()

    def add(self, partials: PartialColumns) -> Sequence[pl.Expr]:
        """Aggregate elements to a partial."""
        value, by = (pl.col(input_column(name)) for name in (self.column, self.by))
        return self._pick(partials, value, by, pl.col(TIME))

    def merge(self, partials: PartialColumns) -> Sequence[pl.Expr]:
        """Merge partials to one."""
        value, by, time = (partials.column(name) for name in ("value", EXTREME_BY, "time"))
        return self._pick(partials, value, by, time)

    def output(self, partials: PartialColumns) -> pl.Expr:
        """The value; null without values."""
        return partials.column("value")

    def _pick(self, partials: PartialColumns, value: pl.Expr, by: pl.Expr, time: pl.Expr) -> list[pl.Expr]:
        known = by.is_not_null()
        # Sorting puts NaN above all numbers, as Spark does.
        ranks = [by.filter(known), time.filter(known)]
        return [
            column.filter(known)
            .sort_by(ranks, descending=[self._descending, False], maintain_order=True)
            .first()
            .alias(partials.name(field))
            for field, column in (("value", value), (EXTREME_BY, by), ("time", time))
        ]

    @property
    @abstractmethod
    def _descending(self) -> bool:
        """Whether the extreme is the maximum."""


@dataclass(frozen=True, slots=True)
class MaxBy(ExtremeBy):
    """The value of a column in the element with the maximum of another one.

    >>> MaxBy("bidder", "price").inputs
    ('bidder', 'price')
    """

    @property
    def _descending(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class MinBy(ExtremeBy):
    """The value of a column in the element with the minimum of another one.

    >>> MinBy("bidder", "price").name
    'min_by'
    """

    @property
    def _descending(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Collect(_RecomputableOfColumn):
    """All values of a column as a list, in no particular order.

    >>> Collect("price").name
    'collect'
    """

    @property
    def reads_order(self) -> bool:
        """Whether its value depends on the order of elements, or only on which there are."""
        return True

    def add(self, partials: PartialColumns) -> Sequence[pl.Expr]:
        """Aggregate elements to a partial."""
        return [self._keep(self._value().drop_nulls()).alias(partials.name("values"))]

    def merge(self, partials: PartialColumns) -> Sequence[pl.Expr]:
        """Merge partials to one."""
        return [self._keep(partials.column("values").explode().drop_nulls())]

    def output(self, partials: PartialColumns) -> pl.Expr:
        """The list; empty without values."""
        return partials.column("values").fill_null([])

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
class CountDistinct(CollectSet):
    """The number of distinct values of a column; exact, so that it keeps every distinct value.

    >>> CountDistinct("bidder").name
    'count_distinct'
    """

    def output(self, partials: PartialColumns) -> pl.Expr:
        """The number of values; 0 without values."""
        return partials.column("values").list.len().cast(pl.Int64).fill_null(0)


@dataclass(frozen=True, slots=True)
class SumDistinct(CollectSet):
    """The sum of the distinct values of a column; null without values. Keeps every distinct value.

    >>> SumDistinct("price").name
    'sum_distinct'
    """

    def takes(self, column: str, dtype: pl.DataType) -> bool:
        """Accept numbers and durations."""
        return is_number(dtype) or dtype == pl.Duration

    def add(self, partials: PartialColumns) -> Sequence[pl.Expr]:
        """Aggregate elements to a partial."""
        name = partials.name("values")
        return [self._keep(each.drop_nulls()).alias(name) for each in widened(self.column)]

    def output(self, partials: PartialColumns) -> pl.Expr:
        """The sum; null without values."""
        values = cs.by_name(partials.name("values"))
        integers = values & cs.by_dtype(pl.List(pl.Int64))
        exact = pl.element().cast(pl.Int128).sum().cast(pl.Int64, strict=False)
        total = pl.coalesce(
            integers.as_expr().list.eval(exact).list.first(), (values - integers).as_expr().list.sum()
        )
        return pl.when(partials.column("values").list.len() > 0).then(total)

    def overflowed(self, partials: PartialColumns) -> pl.Expr:
        """Whether the sum does not fit into its type."""
        return (partials.column("values").list.len() > 0) & self.output(partials).is_null()


@dataclass(frozen=True, slots=True)
class CollectOrdered(_RecomputableOfColumn):
    """All values of a column as a list in event-time order; among equal times, in order of arrival.

    >>> CollectOrdered("price").name
    'collect_ordered'
    """

    @property
    def reads_time(self) -> bool:
        """Whether its value depends on the event times of the elements."""
        return True

    def add(self, partials: PartialColumns) -> Sequence[pl.Expr]:
        """Aggregate elements to a partial."""
        value = self._value()
        timed = pl.struct(pl.col(TIME).alias("time"), value.alias("value"))
        return [timed.filter(value.is_not_null()).alias(partials.name("timed"))]

    def merge(self, partials: PartialColumns) -> Sequence[pl.Expr]:
        """Merge partials to one."""
        return [partials.column("timed").explode().drop_nulls()]

    def output(self, partials: PartialColumns) -> pl.Expr:
        """The list; empty without values."""
        time, value = (pl.element().struct.field(name) for name in ("time", "value"))
        in_order = partials.column("timed").list.eval(value.sort_by(time, maintain_order=True))
        return in_order.fill_null([])


@dataclass(frozen=True, slots=True)
class Sort(Collect):
    """All values of a column as a sorted list.

    >>> Sort("price", descending=True).descending
    True
    """

    descending: bool = False

    def output(self, partials: PartialColumns) -> pl.Expr:
        """The sorted list; empty without values."""
        return partials.column("values").fill_null([]).list.sort(descending=self.descending)


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
class TopNByKey(_Recomputable):
    """The ``n`` distinct values of ``key`` with the greatest values of ``column``.

    The output is a list of ``{value, key}``, greatest first, each key with its greatest value.

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
        """The input columns that it reads."""
        return (self.column, self.key)

    def add(self, partials: PartialColumns) -> Sequence[pl.Expr]:
        """Aggregate elements to a partial."""
        value, key = pl.col(input_column(self.column)), pl.col(input_column(self.key))
        pairs = pl.struct(value.alias("value"), key.alias("key")).filter(value.is_not_null())
        return [self._keep(pairs).alias(partials.name("pairs"))]

    def merge(self, partials: PartialColumns) -> Sequence[pl.Expr]:
        """Merge partials to one."""
        return [self._keep(partials.column("pairs").explode().drop_nulls())]

    def output(self, partials: PartialColumns) -> pl.Expr:
        """The pairs; an empty list without values."""
        return partials.column("pairs").fill_null([])

    def _keep(self, pairs: pl.Expr) -> pl.Expr:
        ranked = pairs.sort(descending=True)
        return ranked.filter(ranked.struct.field("key").is_first_distinct()).head(self.n)
