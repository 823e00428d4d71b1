"""Records of streams and segments in the metadata store.

Work that changes the segments of a stream (scaling, truncation) locks the stream's record exclusively, while
appends share that lock. An append therefore finds its segments as it read them, and a cut is never torn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
import sqlalchemy as sql
from sqlalchemy.engine import Connection, Row

from slackwater.errors import UnknownStream
from slackwater.metadata import store_schema as schema
from slackwater.streams.segments.cuts import Standing, compare
from slackwater.streams.segments.epochs import Epochs, Segment
from slackwater.streams.segments.positions import Position


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """The record of a stream, as it was when it was read.

    >>> import slackwater as sw
    >>> with sw.Streams.temporary() as streams:
    ...     streams.create("shop/bids").record.columns.names
    ['value']
    """

    id: int
    name: str
    """Scope and name, as in ``shop/bids``."""
    columns: pa.Schema
    settings: Mapping[str, Any]
    bucket: int
    epoch: int
    created_at: int
    head: Position
    first_noted_at: int | None
    first_mark: int
    data: str | None = field(repr=False)

    @classmethod
    def of(cls, row: Row[Any]) -> StreamRecord:
        """The record from a row of the table of streams."""
        return cls(
            id=row.id,
            name=f"{row.scope}/{row.name}",
            columns=pa.ipc.read_schema(pa.py_buffer(row.columns)),
            settings=msgspec.json.decode(row.settings),
            bucket=row.bucket,
            epoch=row.epoch,
            created_at=row.created_at,
            head=Position.load(row.head),
            first_noted_at=row.first_noted_at,
            first_mark=row.first_mark,
            data=row.data,
        )


@dataclass(frozen=True, slots=True)
class SegmentState:
    """A segment, the offsets ``[start, length)`` that it holds, and their size in bytes.

    Offsets count events from 0. ``start`` is above 0 if the stream was truncated.

    >>> import slackwater as sw
    >>> with sw.Streams.temporary() as streams:
    ...     [state.length for state in streams.create("shop/bids", segments=2).segments()]
    [0, 0]
    """

    segment: Segment
    start: int
    length: int
    bytes: int
    created_at: int
    sealed_epoch: int | None
    sealed_at: int | None

    @property
    def is_sealed(self) -> bool:
        """Whether the segment takes no more events."""
        return self.sealed_epoch is not None


def lock_stream(connection: Connection, stream: StreamRecord, *, exclusive: bool) -> Row[Any]:
    """Read and lock the row of a stream until the end of the transaction.

    Appends take a shared lock; changes of the segments take an exclusive one.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids")
    ...     bids.store.write(lambda connection: lock_stream(connection, bids.record, exclusive=True)).name
    'bids'
    """
    return _row(connection, stream, _query(stream).with_for_update(read=not exclusive))


def read_record(connection: Connection, stream: StreamRecord) -> StreamRecord:
    """Read the record of a stream without locking it.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids")
    ...     bids.store.read(lambda connection: read_record(connection, bids.record)).epoch
    0
    """
    return StreamRecord.of(_row(connection, stream, _query(stream)))


def segment_states(connection: Connection, stream: int) -> list[SegmentState]:
    """The segments of a stream, by id.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids", segments=3)
    ...     len(bids.store.read(lambda connection: segment_states(connection, bids.id)))
    3
    """
    query = sql.select(schema.segments).where(schema.segments.c.stream == stream)
    return [
        SegmentState(
            Segment(row.number, row.epoch, row.low, row.high),
            row.start, row.length, row.bytes, row.created_at, row.sealed_epoch, row.sealed_at,
        )
        for row in connection.execute(query.order_by(schema.segments.c.id))
    ]  # fmt: skip


def epochs_of(states: Iterable[SegmentState]) -> Epochs:
    """The history of a stream's segments, from their records.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     len(epochs_of(streams.create("shop/bids", segments=3).segments()))
    1
    """
    known = list(states)
    newest = max((state.segment.epoch for state in known), default=0)
    return Epochs(
        [
            state.segment
            for state in known
            if state.segment.epoch <= epoch and (state.sealed_epoch is None or epoch < state.sealed_epoch)
        ]
        for epoch in range(newest + 1)
    )


def insert_segments(connection: Connection, stream: int, segments: Iterable[Segment], at: int) -> None:
    """Insert new, empty segments."""
    rows = [
        {
            "stream": stream, "id": segment.id, "number": segment.number, "epoch": segment.epoch,
            "low": segment.low, "high": segment.high, "start": 0, "length": 0, "bytes": 0, "created_at": at,
        }
        for segment in segments
    ]  # fmt: skip
    connection.execute(schema.segments.insert(), rows)


def update_record(connection: Connection, stream: int, **values: object) -> None:
    """Set columns of a stream's row, and raise its version."""
    change = schema.streams.update().where(schema.streams.c.id == stream)
    connection.execute(change.values(version=schema.streams.c.version + 1, **values))


def truncate_segment(connection: Connection, stream: int, segment: int, start: int) -> None:
    """Remove the events below ``start``; an append that reaches beyond it is kept whole and read partly."""
    appends = schema.appends.c
    removed = sql.and_(
        appends.stream == stream, appends.segment == segment, appends.first_offset + appends.events <= start
    )
    freed = connection.execute(
        sql.select(sql.func.coalesce(sql.func.sum(appends.size), 0)).where(removed)
    ).scalar_one()
    connection.execute(schema.appends.delete().where(removed))
    connection.execute(
        schema.segments.update()
        .where(schema.segments.c.stream == stream, schema.segments.c.id == segment)
        .values(start=start, bytes=schema.segments.c.bytes - int(freed))
    )


def remove_marks_before(connection: Connection, stream: int, head: Position, epochs: Epochs) -> None:
    """Remove the marks that are not entirely at or after the head.

    The newest mark stays in the store, because the next one is numbered after it, but is no longer returned.
    """
    columns = schema.marks.c
    rows = connection.execute(
        sql.select(columns.number, columns.cut).where(columns.stream == stream).order_by(columns.number)
    ).all()
    kept = next(
        (
            row.number
            for row in rows
            if compare(Position.load(row.cut), head, epochs.segments) is Standing.PASSED
        ),
        rows[-1].number + 1 if rows else 0,
    )
    if rows:
        bound = min(kept, rows[-1].number)
        connection.execute(schema.marks.delete().where(columns.stream == stream, columns.number < bound))
        update_record(connection, stream, first_mark=kept)


def _query(stream: StreamRecord) -> sql.Select[Any]:
    return sql.select(schema.streams).where(schema.streams.c.id == stream.id)


def _row(connection: Connection, stream: StreamRecord, query: sql.Select[Any]) -> Row[Any]:
    row = connection.execute(query).one_or_none()
    if row is None:
        raise UnknownStream(stream.name)
    return row
