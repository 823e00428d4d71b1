"""Reading the events of a segment: what the store says is there, checked as it is fetched.

Only what a transaction made part of the stream is found here, so nobody sees half an append. Offsets count
events; the end of an unsealed segment is where its last append ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import sqlalchemy as sql
from sqlalchemy.engine import Connection, Row

from slackwater.errors import CorruptSegment, EventsGone, InvalidArgument
from slackwater.metadata import store_schema as schema
from slackwater.streams.log.catalog import Stream
from slackwater.streams.log.segment_files import Damaged, Part
from slackwater.streams.log.segments import unknown_segment


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events of one segment, in their order.

    >>> EventBatch(0, 5, pa.record_batch({"value": ["a", "b"]})).end
    7
    """

    segment: int
    first_offset: int
    events: pa.RecordBatch

    @property
    def end(self) -> int:
        """The offset after the last one."""
        return self.first_offset + int(self.events.num_rows)


def read_events(
    stream: Stream, segment: int, start: int = 0, end: int | None = None, *, at_once: int = 256
) -> Iterator[EventBatch]:
    """The events of a segment from offset ``start`` up to ``end``, or to where it ends now.

    A batch is what one append brought, or the part of it that was asked for. The store is asked for
    ``at_once`` of them at a time.

    >>> from slackwater.streams.log.catalog import Streams
    >>> from slackwater.streams.log.writer import Writer
    >>> with Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids")
    ...     with Writer(bids) as writer:
    ...         last = writer.write_many([b"a", b"b", b"c"])
    ...     [batch.events.column("value").to_pylist() for batch in read_events(bids, 0, 1)]
    [[b'b', b'c']]
    """
    if start < 0 or (end is not None and end < start):
        fix = "give offsets with 0 ≤ start ≤ end"
        raise InvalidArgument("offsets", (start, end), "are no range of a segment", fix=fix)
    reached = start
    while end is None or reached < end:
        found = stream.store.read(
            lambda connection, reached=reached: _appends(connection, stream, segment, reached, at_once)  # type: ignore[misc]  # bound now
        )
        for row in found:
            if end is not None and row.first_offset >= end:
                return
            batch = _fetched(stream, segment, row, reached, end)
            yield batch
            reached = batch.end
        if len(found) < at_once:
            return


def _appends(connection: Connection, stream: Stream, segment: int, start: int, limit: int) -> list[Row[Any]]:
    segments, appends = schema.segments.c, schema.appends.c
    known = connection.execute(
        sql.select(segments.start, segments.length).where(
            segments.stream == stream.id, segments.id == segment
        )
    ).one_or_none()
    if known is None:
        raise unknown_segment(segment)
    if start < known.start:
        raise EventsGone(stream.name, segment, start, known.start)
    if start >= known.length:
        return []
    here = sql.and_(appends.stream == stream.id, appends.segment == segment)
    first = sql.select(sql.func.max(appends.first_offset)).where(here, appends.first_offset <= start)
    query = sql.select(schema.appends).where(here, appends.first_offset >= first.scalar_subquery())
    return list(connection.execute(query.order_by(appends.first_offset).limit(limit)).all())


def _fetched(stream: Stream, segment: int, row: Row[Any], start: int, end: int | None) -> EventBatch:
    part = Part(row.file, row.place, row.size, row.checksum, row.events)
    try:
        events = stream.folder.read(part, stream.columns)
    except Damaged as damaged:
        # retention may have removed it since the store was asked
        stream.store.read(lambda connection: _appends(connection, stream, segment, start, 1))
        raise CorruptSegment(stream.name, segment, row.first_offset, row.file, str(damaged)) from None
    if events.num_columns > len(stream.columns):
        events = pa.RecordBatch.from_arrays(events.columns[:-1], schema=stream.columns)
    skipped = max(0, start - row.first_offset)
    stop = row.events if end is None else min(row.events, end - row.first_offset)
    return EventBatch(segment, row.first_offset + skipped, events.slice(skipped, stop - skipped))
