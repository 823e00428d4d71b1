"""Conversion of events to Arrow: single events, lists of events, and Arrow tables.

Events that do not match the stream's columns are rejected in the call that passes them, so the traceback
points to the caller's line and no event between two valid ones is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from slackwater.errors import InvalidArgument
from slackwater.streams.segments.routing import Points, RoutingKey, any_point, points_of

Event: TypeAlias = Any
"""A mapping from column names to values; for a stream with one column also the bare value."""
Events: TypeAlias = pa.Table | pa.RecordBatch | Sequence[Event]
Keys: TypeAlias = str | pa.Array | pa.ChunkedArray | Sequence[RoutingKey] | None
"""The name of a column of the events, or one key per event; None routes all events to one random point."""

_UNFIT: Final = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError)
_PLAIN: Final[dict[pa.DataType, type]] = {
    pa.binary(): bytes,
    pa.large_binary(): bytes,
    pa.string(): str,
    pa.large_string(): str,
}


def as_batches(events: Events, columns: pa.Schema) -> list[pa.RecordBatch]:
    """Convert events to record batches with the stream's columns; at least one, which may be empty.

    More than 2 GiB of text do not fit into one batch, so a table keeps its chunks.

    >>> columns = pa.schema([("price", pa.int64())])
    >>> table = pa.table({"price": pa.chunked_array([[1, 2], [3]])})
    >>> [batch.num_rows for batch in as_batches(table, columns)]
    [2, 1]
    """
    if isinstance(events, pa.RecordBatch):
        return [_fitted(events, columns)]
    if isinstance(events, pa.Table):
        # Arrow omits a batch without rows, but its names and types are checked as well
        return [
            _fitted(batch, columns)
            for batch in events.to_batches() or [pa.RecordBatch.from_pylist([], events.schema)]
        ]
    rows = list(events)
    if not rows or isinstance(rows[0], Mapping):
        for row in rows:
            _check_names(row, columns)
        values = [[row[name] for row in rows] for name in columns.names]
    else:
        if len(columns) != 1:
            _check_names({}, columns)
        values = [rows]
    try:
        # chunked if there are more than 2 GiB of text
        arrays = [pa.array(each, column.type) for each, column in zip(values, columns, strict=True)]
    except _UNFIT as error:
        raise _mismatch(error, columns) from None
    made = pa.Table.from_arrays(arrays, schema=columns).to_batches()
    return [_checked(batch) for batch in made] or [pa.RecordBatch.from_pylist([], columns)]


def as_batch(events: pa.RecordBatch | Sequence[Event], columns: pa.Schema) -> pa.RecordBatch:
    """Convert a few events to one record batch with the stream's columns.

    >>> columns = pa.schema([("price", pa.int64())])
    >>> as_batch([3, 4], columns).num_rows, as_batch([{"price": 3}], columns).num_rows
    (2, 1)
    >>> as_batch([{"cost": 3}], columns)
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: events = ['cost']: column names do not match the stream; give price
    """
    batches = as_batches(events, columns)
    if len(batches) > 1:
        raise InvalidArgument("events", "…", "have more than 2 GiB of text", fix="give fewer at once")
    return batches[0]


class EventParser:
    """Converts single events to one value per column, with an estimate of their size in bytes.

    >>> parser = EventParser(pa.schema([("name", pa.string())]))
    >>> parser.parse("a"), parser.parse({"name": "ab"})
    ((['a'], 9), (['ab'], 10))
    """

    def __init__(self, columns: pa.Schema) -> None:
        self._columns = columns
        self._names = columns.names
        self._single = len(columns) == 1
        # values of exactly these Python types need no check, which would cost more than everything else
        self._plain = [_PLAIN.get(column.type) for column in columns]
        self._only = self._plain[0] if self._single else None

    def parse(self, event: Event) -> tuple[list[Any], int]:
        """Return the values of one event and their approximate size, or raise."""
        given: type = type(event)
        if given is self._only and (given is bytes or event.isascii()):
            return [event], 8 + len(event)
        if isinstance(event, Mapping):
            _check_names(event, self._columns)
            values = [event[name] for name in self._names]
        elif self._single:
            values = [event]
        else:
            _check_names({}, self._columns)
            values = []
        size = 0
        for index, value in enumerate(values):
            plain, given = self._plain[index], type(value)
            # text may contain a lone surrogate, which cannot be encoded
            if given is not plain or (given is str and not value.isascii()):
                self._check(value, self._columns.field(index))
            size += 8 + len(value) if isinstance(value, (bytes, str)) else 8
        return values, size

    def _check(self, value: Any, column: pa.Field) -> None:
        fix = _wanted(self._columns)
        try:
            pa.scalar(value, column.type)
        except _UNFIT as error:
            reason = f"does not match column {column.name!r} of type {column.type}: {error}"
            raise InvalidArgument("event", value, reason, fix=fix) from None
        if value is None and not column.nullable:
            raise InvalidArgument("event", value, f"column {column.name!r} is not nullable", fix=fix)


def as_points(keys: Keys, *batches: pa.RecordBatch) -> Points:
    """The point in the key space of each event of the batches.

    >>> batch = pa.record_batch({"user": ["a", "b"]})
    >>> as_points("user", batch).tolist() == as_points(["a", "b"], batch).tolist()
    True
    """
    count = sum(batch.num_rows for batch in batches)
    if keys is None:
        return np.full(count, any_point(), dtype=np.int64)
    if isinstance(keys, str):
        if keys not in batches[0].schema.names:
            fix = f"available: {', '.join(batches[0].schema.names)}; or give one key per event"
            raise InvalidArgument("keys", keys, "column not found", fix=fix)
        keys = pa.chunked_array([batch.column(keys) for batch in batches])
    if len(keys) != count:
        reason = f"is the number of keys, but there are {count} events"
        raise InvalidArgument("keys", len(keys), reason, fix="give one key per event")
    return points_of(keys)


def _fitted(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    if batch.schema.equals(columns, check_metadata=False):
        return _checked(batch)
    _check_names(dict.fromkeys(batch.schema.names), columns)
    try:
        arrays = [batch.column(column.name).cast(column.type) for column in columns]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise _mismatch(error, columns) from None
    return _checked(pa.RecordBatch.from_arrays(arrays, schema=columns))


def _checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    for column, values in zip(batch.schema, batch.columns, strict=True):
        if values.null_count and not column.nullable:
            reason = f"column {column.name!r} is not nullable, but has {values.null_count} nulls"
            raise InvalidArgument("events", "…", reason, fix="drop these events, or fill in a value")
    return batch


def _check_names(event: Mapping[str, Any], columns: pa.Schema) -> None:
    if event.keys() != set(columns.names):
        reason = "column names do not match the stream"
        raise InvalidArgument("events", sorted(event), reason, fix=_wanted(columns))


def _mismatch(error: Exception, columns: pa.Schema) -> InvalidArgument:
    reason = f"values do not match the types of the columns: {error}"
    return InvalidArgument("events", "…", reason, fix=_wanted(columns))


def _wanted(columns: pa.Schema) -> str:
    return f"give {', '.join(columns.names)}"
