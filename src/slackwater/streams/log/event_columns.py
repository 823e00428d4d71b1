"""Conversion of events to Arrow: single events, lists of events, and Arrow tables.

Events that do not match the stream's columns are rejected in the call that passes them, so the traceback
points to the caller's line and no event between two valid ones is lost. Values are stored exactly or
rejected: none is rounded, and no time is guessed from a number or a datetime without a timezone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from slackwater._strict_rows import check_value, table_to_schema, to_array
from slackwater._suggestions import available
from slackwater.errors import InvalidArgument
from slackwater.streams.segments.routing import Points, RoutingKey, any_point, points_of

Event: TypeAlias = Any
"""A mapping from column names to values; for a stream with one column also the bare value."""
Events: TypeAlias = pa.Table | pa.RecordBatch | Sequence[Event]
Keys: TypeAlias = str | pa.Array | pa.ChunkedArray | Sequence[RoutingKey] | None
"""The name of a column of the events, or one key per event; None routes all events to one random point."""

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
        events = pa.Table.from_batches([events])
    if isinstance(events, pa.Table):
        return _batches(_fitted(events, columns))
    rows = list(events)
    if not rows or isinstance(rows[0], Mapping):
        for row in rows:
            _check_names(row, columns)
        values = [[row[name] for row in rows] for name in columns.names]
    else:
        if len(columns) != 1:
            _check_names({}, columns)
        values = [rows]
    # chunked if there are more than 2 GiB of text
    arrays = [to_array(each, column, what="events") for each, column in zip(values, columns, strict=True)]
    return _batches(pa.Table.from_arrays(arrays, schema=columns))


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
                check_value(value, self._columns.field(index), what="event")
            size += 8 + len(value) if isinstance(value, (bytes, str)) else 8
        return values, size


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
            fix = available(keys, batches[0].schema.names, tail="; or give one key per event")
            raise InvalidArgument("keys", keys, "column not found", fix=fix)
        keys = pa.chunked_array([batch.column(keys) for batch in batches])
    if len(keys) != count:
        reason = f"is the number of keys, but there are {count} events"
        raise InvalidArgument("keys", len(keys), reason, fix="give one key per event")
    return points_of(keys)


def _fitted(table: pa.Table, columns: pa.Schema) -> pa.Table:
    _check_names(dict.fromkeys(table.schema.names), columns)
    return table_to_schema(table, columns, what="events")


def _batches(table: pa.Table) -> list[pa.RecordBatch]:
    return table.to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]


def _check_names(event: Mapping[str, Any], columns: pa.Schema) -> None:
    if event.keys() != set(columns.names):
        reason = "column names do not match the stream"
        raise InvalidArgument("events", sorted(event), reason, fix=_wanted(columns))


def _wanted(columns: pa.Schema) -> str:
    return f"give {', '.join(columns.names)}"
