"""Rows straight out of a stateful operator, as plain columns, where their types allow it.

The last operator of a query need not pack its rows into a payload that another Python process unpacks:
columns of numbers and texts go to the JVM as they are, and it makes the structures of them. Nested values
would be taken apart row by row on that way, so rows that have some travel as payloads. Every column costs in
every row, four times on its way: those that can hold only a few words travel as one number, and those that
another one tells are made of it where they arrive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

import pandas as pd  # type: ignore[import-untyped]  # its stubs are a package of their own
import polars as pl
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from slackwater.spark.wire.map_side import numbered

_PLAIN: Final = tuple(
    kind()
    for kind in (
        BinaryType, BooleanType, ByteType, DoubleType, FloatType, IntegerType, LongType, ShortType,
        StringType, TimestampType,
    )
)  # fmt: skip
_CONTROL: Final = StructType([StructField("bucket", IntegerType()), StructField("report", StringType())])


_NOTHING: Final[Mapping[str, int]] = {}
_PACKED: Final = "bucket"
"""A row has no need for the number of its bucket, which a report has: there it is the words, packed."""

Words = tuple[str, ...] | tuple[bool, ...] | tuple[int, ...]
"""All that a column can hold besides null; integers count from 0."""

_NO_WORDS: Final[Mapping[str, Words]] = {}
_NO_LENGTHS: Final[Mapping[str, tuple[str, int]]] = {}


@dataclass(frozen=True)
class FlatColumn:
    """A column on its way out: what the operator calls it, and its type."""

    name: str
    kind: DataType
    words: Words = ()
    """What it can hold, if it is one of those that travel together."""
    after: tuple[str, int] | None = None
    """The column that it follows, and by how much, if it need not travel."""

    @property
    def travels(self) -> bool:
        """Whether it is a column by itself on the way."""
        return not self.words and self.after is None

    @property
    def sent(self) -> DataType:
        """The type on the way: times are whole microseconds, which nothing can shift."""
        return LongType() if isinstance(self.kind, TimestampType) else self.kind


@dataclass(frozen=True)
class FlatRows:
    """How the rows of an operator become plain columns and, in the JVM, the rows that a user sees.

    >>> schema = StructType([StructField("n", LongType()), StructField("at", TimestampType())])
    >>> FlatRows.of(schema, {}).sent.names
    ['bucket', 'report', 'column:0', 'column:1']
    >>> FlatRows.of(StructType([StructField("all", StructType())]), {}) is None
    True
    """

    schema: StructType
    columns: tuple[FlatColumn, ...]
    nothing: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(
        cls,
        schema: StructType,
        structures: Mapping[str, Mapping[str, str]],
        nothing: Mapping[str, int] = _NOTHING,
        words: Mapping[str, Words] = _NO_WORDS,
        lengths: Mapping[str, tuple[str, int]] = _NO_LENGTHS,
    ) -> FlatRows | None:
        """For rows of this schema; None if a column is nested.

        ``structures`` are the columns that are made of several, by the name of each field in the schema
        and in the operator; ``nothing`` are values that stand for none, by column; ``words`` are the fields
        of structures that hold only a few different values, ``lengths`` those that follow another one,
        and by how much.
        """
        columns: list[FlatColumn] = []
        for field in schema:
            made = structures.get(field.name)
            if made is None:
                columns.append(FlatColumn(field.name, field.dataType))
            elif isinstance(field.dataType, StructType):
                for inner in field.dataType:
                    name = made[inner.name]
                    columns.append(FlatColumn(name, inner.dataType, words.get(name, ()), lengths.get(name)))
        if any(column.kind not in _PLAIN for column in columns):
            return None
        return cls(schema, tuple(columns), tuple(nothing.items()))

    @property
    def sent(self) -> StructType:
        """The schema on the way: a row for the report of each bucket, and the rows of panes."""
        fields = [
            StructField(numbered(place), column.sent)
            for place, column in enumerate(self.columns)
            if column.travels
        ]
        return StructType([*_CONTROL.fields, *fields])

    def frame(self, bucket: int, report: str, rows: pl.DataFrame | None) -> pd.DataFrame:
        """The rows that a bucket emits, and its report, as Spark's stateful operators take them."""
        count = 0 if rows is None else rows.height
        made = {} if rows is None else self._made(rows)
        # Last, because Spark copies what it has observed so far with every row that follows.
        last = {"bucket": pa.array([bucket], pa.int32()), "report": pa.array([report])}
        columns: dict[str, pd.api.extensions.ExtensionArray] = {}
        for field in to_arrow_schema(self.sent):
            name, kind = field.name, field.type
            parts = [
                made[name] if name in made else pa.nulls(count, kind),
                last[name] if name in last else pa.nulls(1, kind),
            ]
            columns[name] = pd.arrays.ArrowExtensionArray(pa.concat_arrays(parts))
        return pd.DataFrame(columns)

    def _made(self, rows: pl.DataFrame) -> dict[str, pa.Array]:
        rows = rows.with_columns(without(name, value) for name, value in self.nothing)
        made = {
            numbered(place): _sent(rows[column.name], column)
            for place, column in enumerate(self.columns)
            if column.name in rows.columns and column.travels
        }
        if any(column.words for column in self.columns):
            made[_PACKED] = rows.select(self._packed(rows.columns)).to_series().to_arrow()
        return made

    def rows(self, emitted: DataFrame) -> DataFrame:
        """The rows that a user sees, from what `frame` gave."""
        places = iter(range(len(self.columns)))
        made: list[Column] = []
        is_row = sql.col("report").isNull()
        for field in self.schema:
            kind = field.dataType
            if isinstance(kind, StructType):
                inner = [self._column(next(places)).alias(one.name) for one in kind]
                # Under a condition, because a bare structure can never be null, and the schema says it may.
                made.append(sql.when(is_row, sql.struct(*inner)).alias(field.name))
            else:
                made.append(self._column(next(places)).alias(field.name))
        return emitted.where(is_row).select(*made)

    def _column(self, place: int) -> Column:
        made = self.columns[place]
        if made.words:
            digit = sql.expr(f"{_PACKED} div {self._base(place)} % {len(made.words) + 1}")
            words = sql.array(sql.lit(None).cast(made.kind), *map(sql.lit, made.words))
            return sql.element_at(words, (digit + 1).cast("int"))
        if made.after is not None:
            name, length = made.after
            place = next(place for place, column in enumerate(self.columns) if column.name == name)
            return sql.timestamp_micros(sql.col(f"`{numbered(place)}`") + length)
        column = sql.col(f"`{numbered(place)}`")
        return sql.timestamp_micros(column) if isinstance(made.kind, TimestampType) else column

    def _packed(self, given: Sequence[str]) -> pl.Expr:
        """The columns of few words as the digits of one number, in which 0 is null."""
        digits = (
            _digit(column) * self._base(place)
            for place, column in enumerate(self.columns)
            if column.words and column.name in given
        )
        return sum(digits, start=pl.lit(0, pl.Int32))

    def _base(self, place: int) -> int:
        return prod(len(column.words) + 1 for column in self.columns[:place])


def _digit(column: FlatColumn) -> pl.Expr:
    word = pl.col(column.name)
    if isinstance(column.kind, StringType):
        word = word.cast(pl.Enum([str(word) for word in column.words])).to_physical()
    elif isinstance(column.kind, LongType):
        word = word.replace_strict([None, *column.words], [None, *column.words])
    return (word.cast(pl.Int32) + 1).fill_null(0)


def _sent(values: pl.Series, column: FlatColumn) -> pa.Array:
    if values.dtype == pl.Datetime:
        values = values.dt.epoch("us")
    array = values.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
    return array.cast(to_arrow_schema(StructType([StructField("sent", column.sent)])).field(0).type)


def without(name: str, value: int) -> pl.Expr:
    """A column in which a value that stands for none is null.

    >>> pl.DataFrame({"end": [5, 9]}).with_columns(without("end", 9))["end"].to_list()
    [5, None]
    """
    return pl.when(pl.col(name) != value).then(pl.col(name)).alias(name)
