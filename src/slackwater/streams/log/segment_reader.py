"""Reads the events of a segment.

Only committed appends are read, so a reader never sees a part of an append. Offsets count events; an unsealed
segment ends where its last append ended.
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
from slackwater.streams.log.segment_files import BatchLocation, DamagedFile
from slackwater.streams.segments.epochs import unknown_segment


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Consecutive events of one segment.

    >>> EventBatch(0, 5, pa.record_batch({"value": ["a", "b"]})).end
    7
    """

    segment: int
    first_offset: int
    events: pa.RecordBatch

    @property
    def end(self) -> int:
        """The offset after the last event."""
        return self.first_offset + int(self.events.num_rows)


def read_events(
    stream: Stream, segment: int, start: int = 0, end: int | None = None, *, at_once: int = 256
) -> Iterator[EventBatch]:
    """Read the events of a segment from offset ``start`` up to ``end``, or to its current end.

    Args:
        stream: The stream.
        segment: Id of the segment.
        start: First offset.
        end: Offset after the last event; by default the current end of the segment.
        at_once: Number of appends that are looked up in the metadata store at a time.

    Yields:
        One batch for each append, or for the part of it within the offsets.

    Raises:
        EventsGone: The stream was truncated after ``start``.
        CorruptSegment: A data file is missing or was changed.
        InvalidArgument: The segment does not exist, or the offsets are not a range.

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
        raise InvalidArgument("offsets", (start, end), "is not a valid range of offsets", fix=fix)
    reached = start
    while end is None or reached < end:
        found = stream.store.read(
            lambda connection, reached=reached: _appends(connection, stream, segment, reached, at_once)  # type: ignore[misc]  # bound now
        )
        for row in found:
            if end is not None and row.first_offset >= end:
                return
            batch = _fetched(stream, segment, row, reached, end)
            if batch is None:
                break
            yield batch
            reached = batch.end
        else:
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


def _fetched(stream: Stream, segment: int, row: Row[Any], start: int, end: int | None) -> EventBatch | None:
    """The events of an append; None if it was merged with others since it was looked up."""
    location = BatchLocation(row.file, row.byte_offset, row.size, row.checksum, row.events)
    try:
        events = stream.folder.read(location, stream.columns)
    except DamagedFile as damaged:
        # raises EventsGone if retention removed the events after they were looked up
        again = stream.store.read(lambda connection: _appends(connection, stream, segment, start, 1))
        if again and (again[0].file, again[0].byte_offset) != (row.file, row.byte_offset):
            return None
        raise CorruptSegment(stream.name, segment, row.first_offset, row.file, str(damaged)) from None
    if events.num_columns > len(stream.columns):
        events = pa.RecordBatch.from_arrays(events.columns[:-1], schema=stream.columns)
    skipped = max(0, start - row.first_offset)
    stop = row.events if end is None else min(row.events, end - row.first_offset)
    return EventBatch(segment, row.first_offset + skipped, events.slice(skipped, stop - skipped))
