"""Conversion between events and newline-delimited JSON, one object per line.

Timestamps are ISO 8601 with a timezone; binary values are base64. An invalid line is rejected with its line
number before any of its values is used.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date
from typing import Any, Final

import msgspec
import pyarrow as pa

from slackwater._strict_rows import check_value
from slackwater._suggestions import available
from slackwater.errors import InvalidArgument
from slackwater.streams.log.event_columns import as_batch
from slackwater.time import format_instant, instant, to_datetime

_TYPES: Final = {
    "bigint": pa.int64(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "double": pa.float64(),
    "float": pa.float32(),
    "int": pa.int32(),
    "long": pa.int64(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


def parse_columns(text: str) -> pa.Schema:
    """Parse the columns of a stream from a comma-separated list of names and types.

    >>> parse_columns("auction bigint, at timestamp").types
    [DataType(int64), TimestampType(timestamp[us, tz=UTC])]
    >>> parse_columns("auction number")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: columns = 'auction number': unknown type 'number'; use bigint, \
binary, boolean, date, double, float, int, long, string, timestamp
    """
    fields = []
    for item in text.split(","):
        name, _, kind = item.strip().partition(" ")
        if kind.strip().lower() not in _TYPES:
            fix = f"use {', '.join(_TYPES)}"
            raise InvalidArgument("columns", text, f"unknown type {kind.strip()!r}", fix=fix)
        fields.append(pa.field(name, _TYPES[kind.strip().lower()]))
    return pa.schema(fields)


def from_lines(lines: Iterable[str | bytes], columns: pa.Schema, *, first: int = 1) -> pa.RecordBatch:
    """Parse lines of JSON to events; ``first`` is the number of the first line, for error messages.

    A column that a line does not contain is null.

    >>> columns = parse_columns("name string, at timestamp")
    >>> from_lines(['{"name": "a", "at": "1970-01-01T00:00:01Z"}'], columns).column("at").cast("int64")[0]
    <pyarrow.Int64Scalar: 1000000>
    """
    readers = {field.name: _reader(field.type) for field in columns}
    given = list(lines)
    rows = [_row(line, number, readers) for number, line in enumerate(given, first)]
    try:
        return as_batch(rows, columns)
    except InvalidArgument:
        for number, (line, row) in enumerate(zip(given, rows, strict=True), first):
            _check_row(line, number, row, columns)
        raise


def to_lines(events: pa.RecordBatch) -> Iterator[str]:
    """Serialize events to lines of JSON.

    >>> list(to_lines(pa.record_batch({"name": ["a"], "raw": [b"x"]})))
    ['{"name":"a","raw":"eA=="}']
    """
    columns = [_written(column) for column in events.columns]
    for values in zip(*columns, strict=True):
        yield msgspec.json.encode(dict(zip(events.schema.names, values, strict=True))).decode()


def routing_keys(events: pa.RecordBatch, column: str) -> pa.Array:
    """The routing keys in a column; a column that is not binary is cast to text.

    >>> routing_keys(pa.record_batch({"auction": [7]}), "auction").to_pylist()
    ['7']
    """
    if column not in events.schema.names:
        fix = available(column, events.schema.names)
        raise InvalidArgument("key", column, "column not found", fix=fix)
    found = events.column(column)
    is_bytes = pa.types.is_binary(found.type) or pa.types.is_large_binary(found.type)
    return found if is_bytes else found.cast(pa.string())


def _check_row(line: str | bytes, number: int, row: dict[str, Any], columns: pa.Schema) -> None:
    try:
        for column in columns:
            check_value(row[column.name], column, what=column.name)
    except InvalidArgument as error:
        fix = f"columns of the stream: {', '.join(f'{column.name} {column.type}' for column in columns)}"
        raise InvalidArgument(f"line {number}", _shown(line), error.reason, fix=fix) from None


def _shown(line: str | bytes) -> str:
    text = line if isinstance(line, str) else line.decode(errors="replace")
    return text.rstrip("\n")[:80]


def _row(line: str | bytes, number: int, readers: dict[str, Callable[[Any], Any]]) -> dict[str, Any]:
    where = f"line {number}"
    try:
        found = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        fix = "write one JSON object per line"
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidArgument(where, _shown(line), f"is not a JSON object: {reason}", fix=fix) from None
    if unknown := sorted(found.keys() - readers.keys()):
        fix = available(unknown[0], readers)
        raise InvalidArgument(where, unknown, "column not found", fix=fix)
    try:
        return {
            name: None if found.get(name) is None else read(found[name]) for name, read in readers.items()
        }
    except (TypeError, ValueError) as error:
        fix = "write a value of the column's type"
        raise InvalidArgument(where, _shown(line), str(error), fix=fix) from None


def _reader(kind: pa.DataType) -> Callable[[Any], Any]:
    if pa.types.is_timestamp(kind):
        zone = None if kind.tz is None else UTC
        return lambda value: to_datetime(instant(value, name="timestamp")).replace(tzinfo=zone)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _bytes
    if pa.types.is_date(kind):
        return date.fromisoformat
    return lambda value: value


def _bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, TypeError) as error:
        raise ValueError(f"binary values must be base64: {error}") from None


def _written(column: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        # truncated to microseconds
        micros = column.cast(pa.timestamp("us", tz=column.type.tz), safe=False).cast(pa.int64()).to_pylist()
        return [None if value is None else format_instant(value) for value in micros]
    return list(column.to_pylist())
