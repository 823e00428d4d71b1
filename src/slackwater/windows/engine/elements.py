"""From a batch as it comes to the elements that an operator works on: checked, and under its own names.

Everything that can be wrong with a batch is found here, before a step changes anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from slackwater.errors import InvalidArgument
from slackwater.windows.accumulations.base import TIME, WEIGHT, value_name
from slackwater.windows.engine.rules import ROW

_FURTHEST = 2**62
"""How far from 1970 an element may lie; beyond it the ends of windows would not fit into 64 bits."""


def kind(dtype: pl.DataType) -> str | None:
    """What a column holds, as far as batches must agree on it; None where all is null.

    >>> kind(pl.Int8()), kind(pl.Float64()), kind(pl.String()), kind(pl.Null())
    ('numbers', 'numbers', 'text', None)
    """
    if dtype == pl.Null:
        return None
    if dtype.is_integer() or dtype.is_float():
        return "numbers"
    if dtype.is_nested():
        return "nested"
    if isinstance(dtype, (pl.String, pl.Categorical, pl.Enum)):
        return "text"
    return str(dtype).lower()


def agreed(found: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    """What columns hold after another batch; refused if an earlier one held something else.

    >>> agreed({"auction": "text"}, {"auction": "numbers"})
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: auction = 'text': was numbers in earlier batches; cast the column
    """
    for name, held in found.items():
        if known.get(name, held) != held:
            raise InvalidArgument(name, held, f"was {known[name]} in earlier batches", fix="cast the column")
    return {**known, **found}


@dataclass(frozen=True, slots=True)
class BatchColumns:
    """Which columns of a batch play which part.

    >>> columns = BatchColumns("ts", key=("auction",), inputs=("price",))
    >>> batch = pl.DataFrame({"ts": [5], "auction": ["a"], "price": [7], "bidder": [1]})
    >>> columns.elements(batch).columns
    ['time', 'key:0', 'in:price']
    """

    event_time: str
    key: tuple[str, ...]
    inputs: tuple[str, ...]
    retractions: str | None = None
    reserved: tuple[str, ...] = ()
    """Names that the rows of a batch must not have, because dropped rows get columns of these names."""
    numbered: bool = False
    """Whether rows get their number, so that dropped ones can be found again."""

    def kinds(self, batch: pl.DataFrame) -> dict[str, str]:
        """What keys and inputs hold, as far as this batch tells.

        >>> columns = BatchColumns("ts", key=("auction",), inputs=("price",))
        >>> columns.kinds(pl.DataFrame({"ts": [5], "auction": ["a"], "price": [None]}))
        {'auction': 'text'}
        """
        kinds: dict[str, str] = {}
        for name in (*self.key, *self.inputs):
            found = kind(batch.schema[name])
            if found == "object":
                raise InvalidArgument(
                    name, found, "is a column of Python objects", fix="give it a type of Polars"
                )
            if found is not None:
                kinds[name] = found
        return kinds

    def check(self, batch: object) -> pl.DataFrame:
        """The batch, if it is one and has the columns that are needed.

        >>> BatchColumns("ts", key=(), inputs=()).check([1, 2])
        Traceback (most recent call last):
        slackwater.errors.InvalidArgument: batch = 'list': is not a DataFrame of Polars; collect it first
        """
        if not isinstance(batch, pl.DataFrame):
            raise InvalidArgument(
                "batch", type(batch).__name__, "is not a DataFrame of Polars", fix="collect it first"
            )
        needed = [self.event_time, *self.key, *self.inputs, *([self.retractions] if self.retractions else [])]
        self._check_names(batch.columns, needed)
        if self.retractions is not None and batch.schema[self.retractions] != pl.Boolean:
            found = batch.schema[self.retractions]
            raise InvalidArgument(
                "retractions", self.retractions, f"is a column of {found}", fix="give booleans"
            )
        return batch

    def elements(self, batch: pl.DataFrame) -> pl.DataFrame:
        """The columns that the operator works on, under its own names."""
        time = self._times(batch[self.event_time])
        keys = [batch[name].alias(f"key:{number}") for number, name in enumerate(self.key)]
        inputs = [batch[name].alias(value_name(name)) for name in self.inputs]
        elements = pl.DataFrame([time.alias(TIME), *keys, *inputs])
        extra: list[pl.Expr] = []
        if not self.key:
            extra.append(pl.lit(0, pl.UInt8).alias("key:0"))
        if self.retractions is not None:
            taken_back = pl.lit(batch[self.retractions].fill_null(value=False))
            extra.append(pl.when(taken_back).then(-1).otherwise(1).cast(pl.Int64).alias(WEIGHT))
        if self.numbered:
            extra.append(pl.int_range(pl.len(), dtype=pl.Int64).alias(ROW))
        return elements.with_columns(extra) if extra else elements

    def _check_names(self, columns: Sequence[str], needed: Sequence[str]) -> None:
        missing = [name for name in needed if name not in columns]
        if missing:
            raise InvalidArgument(
                "batch", list(columns), f"has no column {missing[0]!r}", fix="name the columns of the batch"
            )
        taken = [name for name in self.reserved if name in columns]
        if taken:
            raise InvalidArgument(
                "batch",
                taken[0],
                "is a column that dropped rows get",
                fix='rename the column, or use late="count"',
            )

    def _times(self, time: pl.Series) -> pl.Series:
        if not time.dtype.is_integer():
            raise InvalidArgument(
                "event_time",
                self.event_time,
                f"is a column of {time.dtype}",
                fix="give integers of microseconds",
            )
        if time.null_count():
            raise InvalidArgument(
                "event_time",
                self.event_time,
                f"is null in {time.null_count()} rows",
                fix="filter these rows out first",
            )
        for extreme in (time.min(), time.max()) if time.len() else ():
            if not -_FURTHEST <= extreme <= _FURTHEST:  # type: ignore[operator]  # integers, not null
                raise InvalidArgument(
                    "event_time", extreme, "lies too far from 1970", fix="give microseconds since 1970"
                )
        return time.cast(pl.Int64)
