"""What every accumulation can do, on columns.

An accumulation turns elements into a *partial* (a few columns, one row per key and window), merges
partials, and turns a partial into the value of a pane. All three are Polars expressions, so that
a batch is folded for all keys at once. A partial whose columns are null is the empty one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from slackwater.errors import InvalidArgument

TIME: str = "time"
"""The event time of an element, in the frames that ``add`` works on."""
WEIGHT: str = "weight"
"""+1 for an element, -1 for one that is taken back; only where retractions arrive."""


def value_name(column: str) -> str:
    """The name of a user's column inside the operator, where it cannot collide with others.

    >>> value_name("price")
    'in:price'
    """
    return f"in:{column}"


@dataclass(frozen=True, slots=True)
class Parts:
    """The partial columns of one accumulation: their names, and whether elements may be taken back.

    >>> Parts("total", signed=False).name("sum")
    'part:total:sum'
    """

    accumulation: str
    signed: bool

    def name(self, part: str) -> str:
        """The column that holds this part."""
        return f"part:{self.accumulation}:{part}"

    def column(self, part: str) -> pl.Expr:
        """The expression that reads this part."""
        return pl.col(self.name(part))


class ColumnarAccumulation(ABC):
    """Base of all accumulations: partials by expressions over whole columns.

    ``inputs`` are the columns it reads. ``can_subtract`` says whether an element can be taken back;
    one that cannot is refused where retractions arrive.

    >>> from slackwater.windows import Sum
    >>> total, parts = Sum("price"), Parts("total", signed=False)
    >>> elements = pl.DataFrame({"in:price": [2, 3, None]})
    >>> elements.select(total.add(parts)).select(total.merge(parts)).select(total.output(parts)).item()
    5
    """

    @property
    def can_subtract(self) -> bool:
        """Whether an element can be taken back."""
        return False

    @property
    @abstractmethod
    def inputs(self) -> tuple[str, ...]:
        """The columns of the batch that it reads."""

    def takes(self, column: str, dtype: pl.DataType) -> bool:
        """Whether it works on one of its columns if that is of this type.

        >>> from slackwater.windows import Sum
        >>> Sum("price").takes("price", pl.Int32()), Sum("price").takes("price", pl.String())
        (True, False)
        """
        return True

    @abstractmethod
    def add(self, parts: Parts) -> Sequence[pl.Expr]:
        """Elements to partial columns, as aggregations over the elements of a group."""

    @abstractmethod
    def merge(self, parts: Parts) -> Sequence[pl.Expr]:
        """Partials to one partial, as aggregations over the partials of a group."""

    @abstractmethod
    def output(self, parts: Parts) -> pl.Expr:
        """The value of a pane, from a partial that may be null (empty)."""

    @property
    def signature(self) -> str:
        """What its partials depend on: partials of another signature cannot be merged with its own."""
        sizes = (getattr(self, name) for name in getattr(self, "__match_args__", ()))
        return (
            f"{self.name}({', '.join([*self.inputs, *(str(size) for size in sizes if type(size) is int)])})"
        )

    @property
    def name(self) -> str:
        """How it is called in messages."""
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
        """The columns of the batch that it reads."""
        return (self.column,)

    def _value(self) -> pl.Expr:
        return pl.col(value_name(self.column))


def is_number(dtype: pl.DataType) -> bool:
    """Whether values of this type can be added up; what is always null can.

    >>> is_number(pl.Float64()), is_number(pl.Boolean()), is_number(pl.Date())
    (True, True, False)
    """
    return dtype.is_numeric() or dtype in (pl.Boolean, pl.Null)


def check_column(value: object, name: str = "column") -> None:
    """Refuse anything but the name of a column.

    >>> check_column(3)
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: column = 3: is not the name of a column; write it like "price"
    """
    if not isinstance(value, str) or not value:
        raise InvalidArgument(name, value, "is not the name of a column", fix='write it like "price"')


def check_positive(value: object, name: str) -> None:
    """Refuse anything but an integer above zero.

    >>> check_positive(0, "n")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: n = 0: must be an integer of at least 1; write n=10
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidArgument(name, value, "must be an integer of at least 1", fix=f"write {name}=10")
