"""The columns of a stream as Spark has them, and the header that tells a batch's watermark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import BooleanType, LongType, StructField, StructType, TimestampType

SEQUENCE: Final = "slackwater_sequence"
"""The number of the batch: 1, 2, 3, …"""
WATERMARK: Final = "slackwater_watermark"
"""The lower bound of the newest mark that the batch's end has passed; null if there is none."""
EMPTY: Final = "slackwater_empty"
"""True in the one row of each batch that is a header alone."""

_HEADER: Final = StructType(
    [
        StructField(SEQUENCE, LongType()),
        StructField(WATERMARK, TimestampType()),
        StructField(EMPTY, BooleanType()),
    ]
)
_ROWS: Final = 65_536


@dataclass(frozen=True, slots=True)
class Header:
    """What all rows of a batch say about it.

    >>> Header(1, None).sequence
    1
    """

    sequence: int
    watermark: int | None


def spark_schema(columns: pa.Schema, *, headers: bool) -> StructType:
    """The schema of a stream on Spark; every column may be null, as it is in a header alone.

    >>> spark_schema(pa.schema([("price", pa.float64())]), headers=True).names
    ['price', 'slackwater_sequence', 'slackwater_watermark', 'slackwater_empty']
    """
    events = [StructField(f.name, f.dataType) for f in from_arrow_schema(columns).fields]
    return StructType([*events, *(_HEADER.fields if headers else [])])


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema in which Spark takes rows of this schema.

    >>> arrow_schema(spark_schema(pa.schema([("at", pa.timestamp("ms", tz="UTC"))]), headers=False)).types
    [TimestampType(timestamp[us, tz=UTC])]
    """
    return to_arrow_schema(schema, timezone="UTC")


def rows(
    batches: Iterable[pa.RecordBatch], target: pa.Schema, header: Header | None
) -> Iterator[pa.RecordBatch]:
    """Events as Spark takes them, in batches that are worth their transport, with the header if there is one.

    >>> events = [pa.record_batch({"price": [1.0]}), pa.record_batch({"price": [2.0]})]
    >>> [batch.num_rows for batch in rows(events, events[0].schema, None)]
    [2]
    """
    gathered: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        gathered.append(batch)
        count += batch.num_rows
        if count >= _ROWS:
            yield _together(gathered, target, header)
            gathered, count = [], 0
    if count:
        yield _together(gathered, target, header)


def header_alone(target: pa.Schema, header: Header) -> pa.RecordBatch:
    """One row without an event.

    >>> target = arrow_schema(spark_schema(pa.schema([("price", pa.float64())]), headers=True))
    >>> header_alone(target, Header(3, None)).to_pylist()
    [{'price': None, 'slackwater_sequence': 3, 'slackwater_watermark': None, 'slackwater_empty': True}]
    """
    events = [pa.nulls(1, field.type) for field in target if field.name not in _HEADER.names]
    return pa.RecordBatch.from_arrays([*events, *_headed(header, 1, empty=True)], schema=target)


def _together(batches: list[pa.RecordBatch], target: pa.Schema, header: Header | None) -> pa.RecordBatch:
    whole = pa.Table.from_batches(batches).combine_chunks()
    columns = [column.chunk(0) if column.num_chunks else pa.nulls(0, column.type) for column in whole.columns]
    fields = list(target)[: len(columns)]
    fitting = [
        column if column.type.equals(field.type) else column.cast(field.type)
        for column, field in zip(columns, fields, strict=True)
    ]
    added = [] if header is None else _headed(header, whole.num_rows, empty=False)
    return pa.RecordBatch.from_arrays([*fitting, *added], schema=target)


def _headed(header: Header, count: int, *, empty: bool) -> list[pa.Array]:
    moment = pa.timestamp("us", tz="UTC")
    known = header.watermark is not None
    watermark = pa.repeat(pa.scalar(header.watermark, moment), count) if known else pa.nulls(count, moment)
    return [pa.repeat(pa.scalar(header.sequence, pa.int64()), count), watermark, pa.repeat(empty, count)]
