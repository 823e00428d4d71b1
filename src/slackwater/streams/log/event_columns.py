"""What a user hands to a writer, as columns: single events, lists of them, or Arrow tables.

Whatever does not fit the stream's columns is refused where it is handed over, so that an error names the
caller's line and no event is lost between two that fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from slackwater.errors import InvalidArgument
from slackwater.streams.log.routing import Points, RoutingKey, any_point, points_of

Event: TypeAlias = Any
"""A value of a stream with one column, or a mapping from its columns to values."""
Events: TypeAlias = pa.Table | pa.RecordBatch | Sequence[Event]
Keys: TypeAlias = str | pa.Array | pa.ChunkedArray | Sequence[RoutingKey] | None
"""The name of a column of the events, or a key for each of them; None: any segment will do."""

_UNFIT: Final = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError)
_PLAIN: Final[dict[pa.DataType, type]] = {
    pa.binary(): bytes,
    pa.large_binary(): bytes,
    pa.string(): str,
    pa.large_string(): str,
}


def as_batch(events: Events, columns: pa.Schema) -> pa.RecordBatch:
    """Events as one record batch of the stream's columns.

    >>> columns = pa.schema([("price", pa.int64())])
    >>> as_batch([3, 4], columns).num_rows, as_batch([{"price": 3}], columns).num_rows
    (2, 1)
    >>> as_batch([{"cost": 3}], columns)
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: events = ['cost']: have other columns than the stream; give price
    """
    if isinstance(events, pa.Table):
        batches = events.combine_chunks().to_batches()
        events = batches[0] if batches else pa.RecordBatch.from_pylist([], events.schema)
    if isinstance(events, pa.RecordBatch):
        return _fitted(events, columns)
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
        arrays = [pa.array(each, column.type) for each, column in zip(values, columns, strict=True)]
    except _UNFIT as error:
        raise InvalidArgument(
            "events", "…", f"do not fit the columns: {error}", fix=_wanted(columns)
        ) from None
    return _checked(pa.RecordBatch.from_arrays(arrays, schema=columns))


class Rows:
    """Single events as a value for each column, and about how many bytes they take.

    >>> rows = Rows(pa.schema([("name", pa.string())]))
    >>> rows.row("a"), rows.row({"name": "ab"})
    ((['a'], 9), (['ab'], 10))
    """

    def __init__(self, columns: pa.Schema) -> None:
        self._columns = columns
        self._names = columns.names
        self._single = len(columns) == 1
        # values of these types need no further look: it would cost more than all the rest
        self._plain = [_PLAIN.get(column.type) for column in columns]
        self._only = self._plain[0] if self._single else None

    def row(self, event: Event) -> tuple[list[Any], int]:
        """The values of one event, if they fit."""
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
        for place, value in enumerate(values):
            plain, given = self._plain[place], type(value)
            # text may hold half a character, which has no bytes
            if given is not plain or (given is str and not value.isascii()):
                self._check(value, self._columns.field(place))
            size += 8 + len(value) if isinstance(value, (bytes, str)) else 8
        return values, size

    def _check(self, value: Any, column: pa.Field) -> None:
        fix = _wanted(self._columns)
        try:
            pa.scalar(value, column.type)
        except _UNFIT as error:
            reason = f"does not fit column {column.name!r}: {error}"
            raise InvalidArgument("event", value, reason, fix=fix) from None
        if value is None and not column.nullable:
            raise InvalidArgument("event", value, f"column {column.name!r} may not be null", fix=fix)


def as_points(keys: Keys, batch: pa.RecordBatch) -> Points:
    """The point of each event of a batch.

    >>> batch = pa.record_batch({"user": ["a", "b"]})
    >>> as_points("user", batch).tolist() == as_points(["a", "b"], batch).tolist()
    True
    """
    if keys is None:
        return np.full(batch.num_rows, any_point(), dtype=np.int64)
    if isinstance(keys, str):
        if keys not in batch.schema.names:
            fix = f"name one of {', '.join(batch.schema.names)}, or give a key for each event"
            raise InvalidArgument("keys", keys, "is no column of the stream", fix=fix)
        keys = batch.column(keys)
    if len(keys) != batch.num_rows:
        reason = f"are not as many as the {batch.num_rows} events"
        raise InvalidArgument("keys", len(keys), reason, fix="give a key for each event")
    return points_of(keys)


def _fitted(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    if batch.schema.equals(columns, check_metadata=False):
        return _checked(batch)
    _check_names(dict.fromkeys(batch.schema.names), columns)
    try:
        arrays = [batch.column(column.name).cast(column.type) for column in columns]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidArgument(
            "events", "…", f"do not fit the columns: {error}", fix=_wanted(columns)
        ) from None
    return _checked(pa.RecordBatch.from_arrays(arrays, schema=columns))


def _checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    for column, values in zip(batch.schema, batch.columns, strict=True):
        if values.null_count and not column.nullable:
            reason = f"have nulls in column {column.name!r}, which may not be null"
            raise InvalidArgument("events", "…", reason, fix="leave them out, or give them a value")
    return batch


def _check_names(event: Mapping[str, Any], columns: pa.Schema) -> None:
    if event.keys() != set(columns.names):
        raise InvalidArgument(
            "events", sorted(event), "have other columns than the stream", fix=_wanted(columns)
        )


def _wanted(columns: pa.Schema) -> str:
    return f"give {', '.join(columns.names)}"
