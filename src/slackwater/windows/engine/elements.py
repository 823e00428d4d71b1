"""Validation of a batch, and its conversion to elements under internal column names.

All errors in a batch are found here, before a step changes any state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from slackwater.errors import InvalidArgument
from slackwater.windows.assigners import LONGEST
from slackwater.windows.operator_columns import GAP, ROW, TIME, WEIGHT, input_column, key_column

_FURTHEST = 2**62
"""The greatest distance of an event time from 1970; beyond it the ends of windows would overflow."""


def kind(dtype: pl.DataType) -> str | None:
    """The kind of values in a column, which must be the same in all batches; None for a column of nulls.

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
    """The kinds of columns after another batch; raises if an earlier batch had another kind.

    >>> agreed({"auction": "text"}, {"auction": "numbers"})
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: auction = 'text': had numbers in earlier batches; cast the column
    """
    for name, kind_found in found.items():
        if known.get(name, kind_found) != kind_found:
            raise InvalidArgument(
                name, kind_found, f"had {known[name]} in earlier batches", fix="cast the column"
            )
    return {**known, **found}


@dataclass(frozen=True, slots=True)
class BatchColumns:
    """The columns of a batch that an operator reads.

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
    """Names that a batch must not contain, because late rows get columns with these names."""
    numbered: bool = False
    """Whether elements get their row number, so that dropped rows can be found again."""
    gap: str | None = None
    """The column with the session gap of each element, if there is one."""
    inherits: bool = False
    """Whether elements are panes in their windows; that of a global window has the end of time."""

    def kinds(self, batch: pl.DataFrame) -> dict[str, str]:
        """The kinds of the key and input columns; columns of nulls are left out.

        >>> columns = BatchColumns("ts", key=("auction",), inputs=("price",))
        >>> columns.kinds(pl.DataFrame({"ts": [5], "auction": ["a"], "price": [None]}))
        {'auction': 'text'}
        """
        kinds: dict[str, str] = {}
        for name in (*self.key, *self.inputs):
            found = kind(batch.schema[name])
            if found == "object":
                raise InvalidArgument(
                    name, found, "is a column of Python objects", fix="convert it to a Polars type"
                )
            if found is not None:
                kinds[name] = found
        return kinds

    def check(self, batch: object) -> pl.DataFrame:
        """Raise unless the batch is a DataFrame with all required columns; returns the batch.

        >>> BatchColumns("ts", key=(), inputs=()).check([1, 2])
        Traceback (most recent call last):
        slackwater.errors.InvalidArgument: batch = 'list': is not a Polars DataFrame; convert or collect it
        """
        if not isinstance(batch, pl.DataFrame):
            raise InvalidArgument(
                "batch",
                type(batch).__name__,
                "is not a Polars DataFrame",
                fix="convert or collect it",
            )
        further = [name for name in (self.retractions, self.gap) if name is not None]
        needed = [self.event_time, *self.key, *self.inputs, *further]
        self._check_names(batch.columns, needed)
        if self.retractions is not None and batch.schema[self.retractions] != pl.Boolean:
            found = batch.schema[self.retractions]
            raise InvalidArgument(
                "retractions", self.retractions, f"has type {found}", fix="use a boolean column"
            )
        return batch

    def elements(self, batch: pl.DataFrame) -> pl.DataFrame:
        """The columns that the operator reads, under their internal names."""
        time = self._times(batch[self.event_time])
        keys = [batch[name].alias(key_column(number)) for number, name in enumerate(self.key)]
        inputs = [batch[name].alias(input_column(name)) for name in self.inputs]
        weights: list[pl.Series] = []
        if self.retractions is not None:
            is_retraction = batch[self.retractions].fill_null(value=False)
            weights.append((1 - 2 * is_retraction.cast(pl.Int64)).alias(WEIGHT))
        elements = pl.DataFrame([time.alias(TIME), *keys, *inputs, *weights])
        extra: list[pl.Expr] = []
        if not self.key:
            extra.append(pl.lit(0, pl.UInt8).alias(key_column(0)))
        if self.gap is not None:
            extra.append(pl.lit(self._gaps(batch[self.gap])).alias(GAP))
        if self.numbered:
            extra.append(pl.int_range(pl.len(), dtype=pl.Int64).alias(ROW))
        return elements.with_columns(extra) if extra else elements

    def _check_names(self, columns: Sequence[str], needed: Sequence[str]) -> None:
        missing = [name for name in needed if name not in columns]
        if missing:
            raise InvalidArgument(
                "batch", list(columns), f"has no column {missing[0]!r}", fix="add or rename the column"
            )
        conflicts = [name for name in self.reserved if name in columns]
        if conflicts:
            raise InvalidArgument(
                "batch",
                conflicts[0],
                "is the name of a column that is added to late rows",
                fix='rename the column, or use late="count"',
            )

    def _gaps(self, gap: pl.Series) -> pl.Series:
        """The gaps in microseconds; raises unless all are positive."""
        if isinstance(gap.dtype, pl.Duration):
            gap = gap.dt.total_microseconds()
        if not gap.dtype.is_integer():
            raise InvalidArgument(
                "gap", self.gap, f"has type {gap.dtype}", fix="use durations, or integer microseconds"
            )
        invalid = gap.filter(~gap.is_between(1, LONGEST).fill_null(value=False))
        if invalid.len():
            raise InvalidArgument("gap", invalid[0], "is not a positive duration", fix="filter out such rows")
        return gap.cast(pl.Int64)

    def _times(self, time: pl.Series) -> pl.Series:
        if not time.dtype.is_integer():
            raise InvalidArgument(
                "event_time",
                self.event_time,
                f"has type {time.dtype}",
                fix="use integer microseconds since 1970",
            )
        if time.null_count():
            raise InvalidArgument(
                "event_time",
                self.event_time,
                f"is null in {time.null_count()} rows",
                fix="filter out these rows",
            )
        if self.inherits:
            # The window of the element is known, so its time is only compared, and no window can overflow.
            return time.cast(pl.Int128).clip(-_FURTHEST, _FURTHEST).cast(pl.Int64)
        for extreme in (time.min(), time.max()) if time.len() else ():
            if not -_FURTHEST <= extreme <= _FURTHEST:  # type: ignore[operator]  # integers, not null
                raise InvalidArgument(
                    "event_time", extreme, "is too far from 1970", fix="use microseconds since 1970"
                )
        return time.cast(pl.Int64)
