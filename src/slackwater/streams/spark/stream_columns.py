"""Spark schema of a stream, and the header columns that carry the number and watermark of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.types import BooleanType, LongType, StructField, StructType, TimestampType

from slackwater.spark.versions import from_arrow_schema, to_arrow_schema

SEQUENCE: Final = "slackwater_sequence"
"""Number of the batch: 1, 2, 3, …"""
WATERMARK: Final = "slackwater_watermark"
"""Lower bound of the newest mark that the end of the batch has passed; null if there is none."""
EMPTY: Final = "slackwater_empty"
"""True in the one row of each batch that has a header but no event."""

_HEADER: Final = StructType(
    [
        StructField(SEQUENCE, LongType()),
        StructField(WATERMARK, TimestampType()),
        StructField(EMPTY, BooleanType()),
    ]
)
_ROWS: Final = 65_536
_BYTES: Final = 256 << 20


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """Number and watermark of a batch, the same in all its rows.

    >>> BatchHeader(1, None).sequence
    1
    """

    sequence: int
    watermark: int | None


def spark_schema(columns: pa.Schema, *, headers: bool) -> StructType:
    """The Spark schema of a stream; all columns are nullable, because header rows have no event.

    >>> spark_schema(pa.schema([("price", pa.float64())]), headers=True).names
    ['price', 'slackwater_sequence', 'slackwater_watermark', 'slackwater_empty']
    """
    events = [StructField(f.name, f.dataType) for f in from_arrow_schema(columns).fields]
    return StructType([*events, *(_HEADER.fields if headers else [])])


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema in which Spark accepts rows of this schema.

    >>> arrow_schema(spark_schema(pa.schema([("at", pa.timestamp("ms", tz="UTC"))]), headers=False)).types
    [TimestampType(timestamp[us, tz=UTC])]
    """
    return to_arrow_schema(schema)


def rows(
    batches: Iterable[pa.RecordBatch], target: pa.Schema, header: BatchHeader | None
) -> Iterator[pa.RecordBatch]:
    """Combine events into larger batches of the Spark schema, and add the header columns.

    >>> events = [pa.record_batch({"price": [1.0]}), pa.record_batch({"price": [2.0]})]
    >>> [batch.num_rows for batch in rows(events, events[0].schema, None)]
    [2]
    """
    gathered: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        # one batch cannot hold more than 2 GiB of text
        if count and (count >= _ROWS or size + batch.nbytes > _BYTES):
            yield _combined(gathered, target, header)
            gathered, count, size = [], 0, 0
        gathered.append(batch)
        count += batch.num_rows
        size += batch.nbytes
    if count:
        yield _combined(gathered, target, header)


def header_row(target: pa.Schema, header: BatchHeader) -> pa.RecordBatch:
    """A single row with a header but no event.

    >>> target = arrow_schema(spark_schema(pa.schema([("price", pa.float64())]), headers=True))
    >>> header_row(target, BatchHeader(3, None)).to_pylist()
    [{'price': None, 'slackwater_sequence': 3, 'slackwater_watermark': None, 'slackwater_empty': True}]
    """
    events = [pa.nulls(1, field.type) for field in target if field.name not in _HEADER.names]
    return pa.RecordBatch.from_arrays([*events, *_header_columns(header, 1, empty=True)], schema=target)


def _combined(batches: list[pa.RecordBatch], target: pa.Schema, header: BatchHeader | None) -> pa.RecordBatch:
    whole = pa.concat_batches(batches)
    fields = list(target)[: whole.num_columns]
    fitting = [
        column if column.type.equals(field.type) else column.cast(field.type)
        for column, field in zip(whole.columns, fields, strict=True)
    ]
    added = [] if header is None else _header_columns(header, whole.num_rows, empty=False)
    return pa.RecordBatch.from_arrays([*fitting, *added], schema=target)


def _header_columns(header: BatchHeader, count: int, *, empty: bool) -> list[pa.Array]:
    moment = pa.timestamp("us", tz="UTC")
    known = header.watermark is not None
    watermark = pa.repeat(pa.scalar(header.watermark, moment), count) if known else pa.nulls(count, moment)
    return [pa.repeat(pa.scalar(header.sequence, pa.int64()), count), watermark, pa.repeat(empty, count)]
