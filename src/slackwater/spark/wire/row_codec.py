"""Codec for the output rows of the last operator: encoded in the worker, decoded in the JVM.

The last operator of a query does not pack its rows into a payload that a second Python process would have to
decode. Columns of numbers and strings go to the JVM as they are, and Spark expressions build structs from
them: ``window``, ``pane``, and values that are structs of such columns. PySpark would convert arrays and maps
row by row on that way, so rows that contain them are sent as payloads instead.

Every column is copied four times per row on its way out. Columns with few possible values therefore share
one integer (`PackedFlags`), and columns that follow from another one are computed in the JVM.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

import pandas as pd  # type: ignore[import-untyped]  # its stubs are a package of their own
import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
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

from slackwater.spark.versions import to_arrow_schema
from slackwater.spark.wire.packed_flags import Flag, FlagValues, PackedFlags
from slackwater.spark.wire.wire_columns import REPORT, column_alias

BUCKET_OR_FLAGS: Final = "bucket_or_flags"
"""In the row with the report of a bucket: the id of the bucket. In all other rows: the packed flags."""

_PLAIN: Final = (
    BinaryType, BooleanType, ByteType, DateType, DecimalType, DoubleType, FloatType, IntegerType, LongType,
    ShortType, StringType, TimestampType,
)  # fmt: skip
_MOST_COLUMNS: Final = 64
"""Spark generates code for a stage of at most 100 columns."""
_CONTROL: Final = (StructField(BUCKET_OR_FLAGS, IntegerType()), StructField("report", StringType()))

Structures = Mapping[str, Mapping[str, str]]
"""Struct columns of the output: for each, the operator's column by the name of the field."""


@dataclass(frozen=True)
class OutputOptions:
    """Ways to send fewer columns, by the names of the operator's columns."""

    null_values: Mapping[str, int] = field(default_factory=dict)
    """Values that stand for null."""
    flags: Mapping[str, FlagValues] = field(default_factory=dict)
    """Struct fields with few possible values: they are packed."""
    offsets: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """Struct fields at a constant offset from another column: that column, and the microseconds to add."""


@dataclass(frozen=True)
class OutputColumn:
    """A column or struct field of the output that is not a struct itself."""

    name: str
    """The operator's name of the column."""
    kind: DataType
    path: tuple[str, ...] = ()
    """The names of the fields that lead to it, in a column of the operator that is a struct."""
    is_presence: bool = False
    """Whether it says that the struct at ``path`` is not null."""
    is_flag: bool = False
    offset: tuple[str, int] | None = None

    @property
    def is_sent(self) -> bool:
        """Whether it is sent as a column of its own."""
        return not self.is_flag and self.offset is None

    @property
    def wire_type(self) -> DataType:
        """The type in which it is sent: times are integers, which no time zone can shift."""
        match self.kind:
            case TimestampType():
                return LongType()
            case DateType():
                return IntegerType()
            case _:
                return self.kind

    def values(self, rows: pl.DataFrame) -> pl.Series:
        """Its values in the rows of the operator."""
        values = rows[self.name]
        for inner in self.path:
            values = values.struct.field(inner)
        return values.is_not_null() if self.is_presence else values


def _leaves(name: str, kind: DataType, path: tuple[str, ...] = ()) -> list[OutputColumn] | None:
    """The columns from which a value can be built in the JVM; None if it has to be sent as a payload."""
    if isinstance(kind, _PLAIN) and (not isinstance(kind, StringType) or kind == StringType()):
        return [OutputColumn(name, kind, path)]
    # The expression that builds a struct makes each of its fields nullable.
    if not isinstance(kind, StructType) or not kind.fields or not all(field.nullable for field in kind):
        return None
    found = [OutputColumn(name, BooleanType(), path, is_presence=True)]
    for inner in kind:
        leaves = _leaves(name, inner.dataType, (*path, inner.name))
        if leaves is None:
            return None
        found += leaves
    return found


@dataclass(frozen=True)
class RowCodec:
    """Encodes the rows of an operator as plain columns, and decodes them in the JVM.

    >>> schema = StructType([StructField("n", LongType()), StructField("at", TimestampType())])
    >>> RowCodec.for_schema(schema).wire_schema.names
    ['bucket_or_flags', 'report', 'column:0', 'column:1']
    >>> RowCodec.for_schema(StructType([StructField("all", StructType())])) is None
    True
    """

    schema: StructType
    columns: tuple[OutputColumn, ...]
    flags: PackedFlags
    null_values: tuple[tuple[str, int], ...]

    @classmethod
    def for_schema(
        cls,
        schema: StructType,
        structures: Structures | None = None,
        options: OutputOptions | None = None,
    ) -> RowCodec | None:
        """The codec for rows of this schema; None if rows have to be sent as payloads.

        ``structures`` are the structs that the operator does not have, but columns for their fields.
        """
        structures = structures or {}
        options = options or OutputOptions()
        columns: list[OutputColumn] = []
        for column in schema:
            names = structures.get(column.name)
            if names is not None and isinstance(column.dataType, StructType):
                for inner in column.dataType:
                    name = names[inner.name]
                    offset = options.offsets.get(name)
                    is_flag = name in options.flags
                    columns.append(OutputColumn(name, inner.dataType, is_flag=is_flag, offset=offset))
                continue
            leaves = _leaves(column.name, column.dataType)
            if leaves is None:
                return None
            columns += leaves
        if len(columns) > _MOST_COLUMNS:
            return None
        flags = [Flag(one.name, one.kind, options.flags[one.name]) for one in columns if one.is_flag]
        return cls(schema, tuple(columns), PackedFlags(tuple(flags)), tuple(options.null_values.items()))

    @property
    def wire_schema(self) -> StructType:
        """The schema in which rows are sent; each bucket adds one row with its report."""
        sent = [
            StructField(column_alias(index), column.wire_type)
            for index, column in enumerate(self.columns)
            if column.is_sent
        ]
        return StructType([*_CONTROL, *sent])

    def encode(self, bucket: int, report: str | None, rows: pl.DataFrame | None) -> pd.DataFrame:
        """A piece of the rows that a bucket emits, as a frame for Spark's stateful operator.

        Args:
            bucket: the id of the bucket.
            report: its report; None unless this is the last piece.
            rows: the rows; None if there are none.
        """
        count = 0 if rows is None else rows.height
        encoded = {} if rows is None else self._encoded(rows)
        last: dict[str, pa.Array] = {}
        if report is not None:
            last = {BUCKET_OR_FLAGS: pa.array([bucket], pa.int32()), "report": pa.array([report])}
        columns: dict[str, pd.api.extensions.ExtensionArray] = {}
        for sent in to_arrow_schema(self.wire_schema):
            name, kind = sent.name, sent.type
            parts = [encoded[name] if name in encoded else pa.nulls(count, kind)]
            if report is not None:
                parts.append(last[name] if name in last else pa.nulls(1, kind))
            columns[name] = pd.arrays.ArrowExtensionArray(pa.concat_arrays(parts))
        return pd.DataFrame(columns)

    def _encoded(self, rows: pl.DataFrame) -> dict[str, pa.Array]:
        rows = rows.with_columns(null_if(name, value) for name, value in self.null_values)
        encoded = {
            column_alias(index): _wire_array(column.values(rows), column)
            for index, column in enumerate(self.columns)
            if column.name in rows.columns and column.is_sent
        }
        if self.flags:
            encoded[BUCKET_OR_FLAGS] = rows.select(self.flags.pack(rows.columns)).to_series().to_arrow()
        return encoded

    def decode(self, emitted: DataFrame, *, reports: bool = False) -> DataFrame:
        """The rows in the user's schema, from the frames that `encode` returned.

        With ``reports`` there is also a row for each bucket, with its report in the column `REPORT`.
        """
        # Expressions as text: a call to the JVM for each part of them would take longer than parsing them.
        indices = iter(range(len(self.columns)))
        decoded = [sql.expr(self._value(column, indices)).alias(column.name) for column in self.schema]
        if reports:
            return emitted.select(*decoded, sql.col("report").alias(REPORT))
        return emitted.where("report IS NULL").select(*decoded)

    def _value(self, field: StructField, indices: Iterator[int]) -> str:
        """A column or struct field of the output as a Spark expression; ``indices`` yields its columns."""
        first = next(indices)
        if not isinstance(field.dataType, StructType):
            return self._decoded(first)
        if self.columns[first].is_presence:
            present = self._decoded(first)
        else:  # a struct of columns of the operator, which is null in the row with the report
            present, indices = "report IS NULL", chain((first,), indices)
        inner = ", ".join(f"{self._value(one, indices)} AS {_quoted(one.name)}" for one in field.dataType)
        # The condition also makes the struct nullable, as it is in the schema.
        return f"CASE WHEN {present} THEN struct({inner}) END"

    def _decoded(self, index: int) -> str:
        """A column that is sent, or follows from one that is, as a Spark expression."""
        column = self.columns[index]
        if column.is_flag:
            return self.flags.unpack(column.name, BUCKET_OR_FLAGS)
        if column.offset is not None:
            base, offset = column.offset
            names = [other.name for other in self.columns]
            return f"timestamp_micros({_quoted(column_alias(names.index(base)))} + {offset}L)"
        sent = _quoted(column_alias(index))
        match column.kind:
            case TimestampType():
                return f"timestamp_micros({sent})"
            case DateType():
                return f"date_from_unix_date({sent})"
            case _:
                return sent


def _quoted(name: str) -> str:
    """A name in an expression.

    >>> _quoted("a.b"), _quoted("`")
    ('`a.b`', '````')
    """
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def _wire_array(values: pl.Series, column: OutputColumn) -> pa.Array:
    if values.dtype == pl.Datetime:
        values = values.dt.epoch("us")
    elif values.dtype == pl.Date:
        values = values.to_physical()
    array = values.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
    return array.cast(to_arrow_schema(StructType([StructField("sent", column.wire_type)])).field(0).type)


def null_if(name: str, value: int) -> pl.Expr:
    """The column ``name`` with null instead of ``value``.

    >>> pl.DataFrame({"end": [5, 9]}).with_columns(null_if("end", 9))["end"].to_list()
    [5, None]
    """
    return pl.when(pl.col(name) != value).then(pl.col(name)).alias(name)
