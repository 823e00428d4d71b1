"""The base classes of accumulations.

An accumulation aggregates elements to a *partial* (a few columns, one row per key and window), merges
partials, and computes the value of a pane from a partial. All three are Polars expressions, so that a batch
is aggregated for all keys at once. A partial whose columns are null is the empty one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl
import polars.selectors as cs

from slackwater.errors import InvalidArgument
from slackwater.windows.operator_columns import input_column

_ROWS_WORTH_BOUNDING: Final = 10_000
"""With fewer rows, the extremes of columns are not worth finding."""


@dataclass(frozen=True, slots=True)
class PartialColumns:
    """The columns of the partials of one accumulation.

    Args:
        accumulation: the name of the accumulation in the panes.
        retractable: whether the input contains retractions, so that each element has a weight.
        bounded: whether its inputs are integers so small that no sum of them can exceed 64 bits.

    >>> PartialColumns("total", retractable=False).name("sum")
    'part:total:sum'
    """

    accumulation: str
    retractable: bool
    bounded: bool = False

    def name(self, field: str) -> str:
        """The name of the column that holds a field of the partial."""
        return f"part:{self.accumulation}:{field}"

    def column(self, field: str) -> pl.Expr:
        """The expression that reads a field of the partial."""
        return pl.col(self.name(field))


class ColumnarAccumulation(ABC):
    """Base class of all accumulations, which process whole columns by expressions.

    ``inputs`` are the columns it reads. If the input contains retractions, an accumulation either subtracts
    them (``can_subtract``), or is computed from the elements that remain, which are then stored
    (``can_recompute``). One that can do neither is rejected.

    >>> from slackwater.windows import Sum
    >>> total, partials = Sum("price"), PartialColumns("total", retractable=False)
    >>> partial = pl.DataFrame({"in:price": [2, 3, None]}).select(total.add(partials))
    >>> partial.select(total.merge(partials)).select(total.output(partials)).item()
    5
    """

    @property
    def can_subtract(self) -> bool:
        """Whether it can subtract an element that is retracted."""
        return False

    @property
    def can_recompute(self) -> bool:
        """Whether its value may be computed from the elements that remain after retractions."""
        return False

    @property
    def reads_time(self) -> bool:
        """Whether its value depends on the event times of the elements."""
        return False

    @property
    def reads_order(self) -> bool:
        """Whether its value depends on the order of elements, or only on which there are."""
        return self.reads_time

    @property
    def retractable_alternative(self) -> str:
        """What to use instead if the input contains retractions; only if it cannot process them."""
        return "one that can: count, sum, mean, max, first, collect, count_distinct, …"

    @property
    @abstractmethod
    def inputs(self) -> tuple[str, ...]:
        """The input columns that it reads."""

    def takes(self, column: str, dtype: pl.DataType) -> bool:
        """Whether an input column may have this type.

        Args:
            column: the name of the input column.
            dtype: its type.

        >>> from slackwater.windows import Sum
        >>> Sum("price").takes("price", pl.Int32()), Sum("price").takes("price", pl.String())
        (True, False)
        """
        return True

    @abstractmethod
    def add(self, partials: PartialColumns) -> Sequence[pl.Expr]:
        """Aggregations over the elements of a group that give its partial.

        Args:
            partials: the columns of the partial.
        """

    @abstractmethod
    def merge(self, partials: PartialColumns) -> Sequence[pl.Expr]:
        """Aggregations over the partials of a group that give one partial.

        Args:
            partials: the columns of the partial.
        """

    @abstractmethod
    def output(self, partials: PartialColumns) -> pl.Expr:
        """The value of a pane, computed from a partial that may be null (empty).

        Args:
            partials: the columns of the partial.
        """

    def overflowed(self, partials: PartialColumns) -> pl.Expr | None:
        """Whether a value is null because it does not fit into its type; None if that cannot happen.

        Args:
            partials: the columns of the partial.
        """
        return None

    @property
    def signature(self) -> str:
        """The configuration that its partials depend on; only those of one signature can be merged."""
        sizes = (getattr(self, name) for name in getattr(self, "__match_args__", ()))
        return (
            f"{self.name}({', '.join([*self.inputs, *(str(size) for size in sizes if type(size) is int)])})"
        )

    @property
    def name(self) -> str:
        """Its name in messages, such as ``top_n``."""
        words = "".join(
            f"_{letter.lower()}" if letter.isupper() else letter for letter in type(self).__name__
        )
        return words.lstrip("_")


@dataclass(frozen=True, slots=True)
class OfColumn(ColumnarAccumulation):
    """An accumulation over one column.

    >>> from slackwater.windows import Max
    >>> isinstance(Max("price"), OfColumn), Max("price").inputs
    (True, ('price',))
    """

    column: str

    def __post_init__(self) -> None:
        check_column(self.column)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The input columns that it reads."""
        return (self.column,)

    def _value(self) -> pl.Expr:
        return pl.col(input_column(self.column))


def is_number(dtype: pl.DataType) -> bool:
    """Whether values of this type can be added; a column that is always null counts as numbers.

    >>> is_number(pl.Float64()), is_number(pl.Boolean()), is_number(pl.Date())
    (True, True, False)
    """
    return dtype.is_numeric() or dtype in (pl.Boolean, pl.Null)


_HALF: Final = 2**64
_NARROW = cs.by_dtype(pl.Boolean, pl.Int8, pl.Int16, pl.Int32, pl.UInt8, pl.UInt16, pl.UInt32)


def widened(column: str) -> list[pl.Expr]:
    """Cast the column to the widest type of its kind, so that sums of narrow numbers do not overflow.

    There is one expression per kind; selectors leave the one that applies to the actual type.

    >>> pl.DataFrame({"in:price": pl.Series([200, 100], dtype=pl.UInt8)}).select(
    ...     widened("price")
    ... ).sum().item()
    300
    """
    values, single = cs.by_name(input_column(column)), cs.by_dtype(pl.Float32)
    return [
        (values & _NARROW).cast(pl.Int64),
        (values & single).cast(pl.Float64),
        (values - _NARROW - single).as_expr(),
    ]


def bounded_columns(elements: pl.DataFrame, columns: Iterable[str]) -> frozenset[str]:
    """The columns of integers so small that no sum of them can exceed 64 bits.

    Finding the extremes takes a twentieth of the time that adding in 128 bits does.

    >>> elements = pl.select(price=pl.int_range(20_000)).with_columns(id=pl.col("price") * 2**40)
    >>> bounded_columns(elements, ["price", "id"])
    frozenset({'price'})
    """
    if elements.height < _ROWS_WORTH_BOUNDING:
        return frozenset()
    wide = [name for name in columns if elements.schema[name] in (pl.Int64, pl.UInt64)]
    if not wide:
        return frozenset()
    extremes = (elements.select(pl.col(wide).min()).row(0), elements.select(pl.col(wide).max()).row(0))
    greatest = (max(abs(low or 0), abs(high or 0)) for low, high in zip(*extremes, strict=True))
    found = zip(wide, greatest, strict=True)
    return frozenset(name for name, bound in found if bound * elements.height < 2**63)


def exact_sums(
    column: str,
    name: str,
    weight: pl.Expr | None = None,
    *,
    bounded: bool = False,
    wide: bool = False,
    known: Callable[[pl.Expr], pl.Expr] | None = None,
) -> list[pl.Expr]:
    """Sum a column, exactly for integers, durations and decimals; null if the sum does not fit into its type.

    As in `widened`, there is one expression per kind, of which the one that applies is left.

    Args:
        column: the column to sum.
        name: the name of the sum.
        weight: what each value is multiplied by: 1 or -1.
        bounded: whether the column is known to have only integers whose sum fits; see `bounded_columns`.
        wide: whether sums of integers stay in 128 bits: the sum of a few retractions may need 65.
        known: whether no duration or decimal among some sums is null because it did not fit.

    >>> sums = exact_sums("price", "total")
    >>> pl.DataFrame({"price": [2**63 - 1, 5]}).select(sums).item() is None
    True
    >>> pl.DataFrame({"price": [2**63 - 1, 5, -6]}).select(sums).item() == 2**63 - 2
    True
    """
    values = cs.by_name(column)
    narrow, single, long, unsigned = (
        values & kind for kind in (_NARROW, *(cs.by_dtype(one) for one in (pl.Float32, pl.Int64, pl.UInt64)))
    )
    durations, decimals = values & cs.duration(), values & cs.decimal()
    others = values - narrow - single - long - unsigned - durations - decimals

    def weighted(each: pl.Expr) -> pl.Expr:
        return each if weight is None else each * weight

    def total(each: pl.Expr, kind: pl.DataType) -> pl.Expr:
        if bounded:
            return weighted(each.cast(pl.Int64)).sum().cast(kind, strict=False)
        exact = weighted(each.cast(pl.Int128)).sum()
        return exact if wide else exact.cast(kind, strict=False)

    def if_it_fits(each: pl.Expr, fits: pl.Expr) -> pl.Expr:
        return pl.when(fits if known is None else fits & known(each)).then(weighted(each).sum())

    physical = weighted(durations.to_physical().cast(pl.Int128)).sum()
    sums = [
        weighted(narrow.cast(pl.Int64)).sum(),
        weighted(single.cast(pl.Float64)).sum(),
        total(long.as_expr(), pl.Int64()),
        total(unsigned.as_expr(), pl.UInt64() if weight is None else pl.Int64()),
        if_it_fits(durations.as_expr(), physical.is_between(-(2**63), 2**63 - 1)),
        if_it_fits(decimals.as_expr(), _fits_decimal(weighted(decimals.as_expr()))),
        weighted(others.as_expr()).sum(),
    ]
    return [each.alias(name) for each in sums]


def _fits_decimal(values: pl.Expr) -> pl.Expr:
    """Whether the sum of decimals has at most 38 digits; Polars itself does not check that in groups.

    The sum of the unscaled values may exceed 128 bits, so their high and low halves are summed separately.
    """
    unscaled = values.to_physical()
    low = (unscaled % _HALF).sum()
    high, rest = (unscaled // _HALF).sum() + low // _HALF, low % _HALF
    (above, above_rest), (below, below_rest) = (divmod(limit, _HALF) for limit in (10**38, -(10**38)))
    is_below = (high < above) | ((high == above) & (rest < pl.lit(above_rest, pl.Int128())))
    is_above = (high > below) | ((high == below) & (rest > pl.lit(below_rest, pl.Int128())))
    return is_below & is_above


def check_column(value: object, name: str = "column") -> None:
    """Raise unless the value is the name of a column.

    >>> check_column(3)
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: column = 3: is not a column name; use a name such as "price"
    """
    if not isinstance(value, str) or not value:
        raise InvalidArgument(name, value, "is not a column name", fix='use a name such as "price"')


def check_positive(value: object, name: str) -> None:
    """Raise unless the value is an integer above zero.

    >>> check_positive(0, "n")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: n = 0: must be an integer of at least 1; use a value such as n=10
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidArgument(
            name, value, "must be an integer of at least 1", fix=f"use a value such as {name}=10"
        )
