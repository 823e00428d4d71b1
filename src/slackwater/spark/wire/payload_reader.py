"""The decoder of payloads: from buffers that an operator emitted to rows of a Spark schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pyarrow as pa
from pyspark.sql.types import StructType

from slackwater.spark.versions import output_arrow_schema
from slackwater.spark.wire.buffers import NO_HEADER, unpack
from slackwater.spark.wire.row_codec import Structures

Prepare = Callable[[pl.DataFrame], pl.DataFrame]


@dataclass(frozen=True)
class PayloadReader:
    """Decodes the payloads of emitted buffers into rows with the columns of ``schema``; for `mapInArrow`.

    A column that a payload does not have is null: only failed rows have the columns that describe them.

    ``prepare`` is applied to each payload, for example to rename columns. ``structures`` are the struct
    columns of the schema that are built from several columns of the payload. If ``header_column`` is given,
    each buffer with a header also becomes a row that has the header in this column and null in all others;
    with ``report_column`` the same is done with the reports.
    """

    schema: StructType
    prepare: Prepare | None = None
    structures: Structures = field(default_factory=dict)
    header_column: str | None = None
    report_column: str | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the batches, in order."""
        target = output_arrow_schema(self.schema)
        for batch in batches:
            if self.header_column is not None:
                headers = [one for one in batch.column("header").to_pylist() if one != NO_HEADER]
                yield _controls(self.header_column, headers, target)
            if self.report_column is not None:
                reports = [one for one in batch.column("report").to_pylist() if one is not None]
                yield _controls(self.report_column, reports, target)
            for payload in batch.column("payload"):
                if payload.is_valid:
                    yield from self.rows(unpack(payload.as_py()), target)

    def rows(self, frame: pl.DataFrame, target: pa.Schema) -> list[pa.RecordBatch]:
        """The rows of one payload, in the types of ``target``."""
        frame = frame if self.prepare is None else self.prepare(frame)
        table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
        columns: list[Any] = []
        for one in target:
            if one.name in (self.header_column, self.report_column):
                columns.append(pa.nulls(table.num_rows, one.type))
            elif one.name in self.structures:
                columns.append(_struct(table, one.type, self.structures[one.name]))
            else:
                columns.append(_column(table, one.name, one.type))
        batches: list[pa.RecordBatch] = pa.Table.from_arrays(columns, schema=target).to_batches()
        return batches


def _controls(name: str, values: list[Any], target: pa.Schema) -> pa.RecordBatch:
    """Rows that have these values in one column, and null in all others."""
    columns = [
        pa.array(values, one.type) if one.name == name else pa.nulls(len(values), one.type) for one in target
    ]
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _column(columns: pa.Table, name: str, kind: pa.DataType) -> pa.ChunkedArray:
    if name not in columns.column_names:
        return pa.chunked_array([pa.nulls(columns.num_rows, kind)])
    return columns.column(name).cast(kind)


def _struct(columns: pa.Table, kind: pa.StructType, names: Mapping[str, str]) -> pa.Array:
    fields = [kind.field(index) for index in range(kind.num_fields)]
    arrays = [_column(columns, names[field.name], field.type).combine_chunks() for field in fields]
    return pa.StructArray.from_arrays(arrays, fields=fields)
