"""Appends: the database transactions that make staged batches part of a stream, exactly once.

Locks are taken in one order: the stream (shared with other appends), the writer, the segments by id. A
writer's record contains the number of its last stored event, so an append whose response was lost is
recognized when it is retried. It also contains the number of the writer's session, so a process that was
replaced cannot append.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from slackwater.metadata import store_schema as schema
from slackwater.streams.log.catalog import Stream
from slackwater.streams.log.segment_files import StagedBatch, any_created_before
from slackwater.streams.log.stream_records import lock_stream
from slackwater.streams.log.writer_session import WriterSession, check_session, save_session
from slackwater.streams.segments.epochs import Epochs, Segment
from slackwater.streams.segments.positions import Position


class SegmentsChanged(Exception):
    """A segment was sealed after the events were routed to it; route them again."""


class FilesCollected(Exception):
    """A staged file is so old that it may have been collected; write it again, as created at ``horizon``."""

    def __init__(self, horizon: int) -> None:
        self.horizon = horizon


def append(
    connection: Connection,
    stream: Stream,
    session: WriterSession,
    staged: Sequence[StagedBatch],
    *,
    last_event_number: int,
    epochs: Epochs,
) -> WriterSession:
    """Append staged batches to their segments, all of them or none, and return the session afterwards.

    If the store already has that event number, the batches were stored before and nothing changes.

    >>> import pyarrow as pa
    >>> from slackwater.streams.log.catalog import VALUE, Streams
    >>> from slackwater.streams.log.writer_session import open_session
    >>> with Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids")
    ...     (location,) = bids.folder.write([pa.record_batch([[b"a", b"b"]], schema=VALUE)], at=0)
    ...     session = bids.store.write(lambda connection: open_session(connection, bids, "w", at=0))
    ...     arguments = {"last_event_number": 2, "epochs": bids.epochs()}
    ...     for _ in range(2):
    ...         work = lambda connection: append(connection, bids, session, [(0, location)], **arguments)
    ...         print(bids.store.write(work, repeatable=True).position)
    Position({0: 2})
    Position({0: 2})
    """
    row = lock_stream(connection, stream.record, exclusive=False)
    stored = check_session(connection, stream, session)
    if stored.last_event_number >= last_event_number:
        return stored
    if any_created_before((location.file for _, location in staged), row.collected_before):
        raise FilesCollected(row.collected_before)
    at = stream.store.now(connection)
    ends = extend_segments(connection, stream, staged, at=at) if staged else {}
    position = extend_position(stored.position, ends, epochs)
    save_session(connection, stream, session, last_event_number, position, at=at)
    return replace(session, last_event_number=last_event_number, position=position)


def extend_segments(
    connection: Connection, stream: Stream, staged: Sequence[StagedBatch], *, at: int
) -> dict[int, int]:
    """Record batches at the ends of their segments, in their order; return the new ends.

    >>> from slackwater.streams.log.catalog import Streams
    >>> from slackwater.streams.log.segment_files import BatchLocation
    >>> with Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids")
    ...     staged = [(0, BatchLocation("f", byte_offset=0, size=9, checksum=0, events=3))]
    ...     bids.store.write(lambda connection: extend_segments(connection, bids, staged, at=0))
    {0: 3}
    """
    segments = schema.segments.c
    ids = sorted({segment for segment, _ in staged})
    query = sql.select(segments.id, segments.length, segments.sealed_epoch)
    query = query.where(segments.stream == stream.id, segments.id.in_(ids)).order_by(segments.id)
    ends: dict[int, int] = {}
    for row in connection.execute(query.with_for_update()):
        if row.sealed_epoch is not None:
            raise SegmentsChanged
        ends[row.id] = row.length
    rows = []
    added = dict.fromkeys(ids, 0)
    for segment, batch in staged:
        rows.append(
            {
                "stream": stream.id, "segment": segment, "first_offset": ends[segment], "at": at,
                "events": batch.events, "file": batch.file, "byte_offset": batch.byte_offset,
                "size": batch.size, "checksum": batch.checksum,
            }
        )  # fmt: skip
        ends[segment] += batch.events
        added[segment] += batch.size
    connection.execute(schema.appends.insert(), rows)
    change = schema.segments.update().where(
        segments.stream == stream.id, segments.id == sql.bindparam("segment_id")
    )
    change = change.values(length=sql.bindparam("end"), bytes=segments.bytes + sql.bindparam("added"))
    connection.execute(
        change,
        [{"segment_id": segment, "end": ends[segment], "added": added[segment]} for segment in ids],
    )
    return ends


def extend_position(position: Position, ends: Mapping[int, int], epochs: Epochs) -> Position:
    """A writer's position after an append, without segments whose key range later segments cover entirely.

    >>> from slackwater.streams.segments.epochs import KEY_SPACE, Segment, even_ranges
    >>> epochs = Epochs([[Segment(0, 0, 0, KEY_SPACE)]]).scale([0], even_ranges(2))
    >>> left, right = (segment.id for segment in epochs.active)
    >>> once = extend_position(Position.of({0: 9}), {left: 1}, epochs)
    >>> twice = extend_position(once, {right: 1}, epochs)
    >>> once == Position.of({0: 9, left: 1}), twice == Position.of({left: 1, right: 1})
    (True, True)
    """
    offsets = {**dict(position.items()), **ends}
    if len(offsets) <= len(epochs.active) and not any(map(epochs.is_sealed, offsets)):
        return Position.of(offsets)
    kept: dict[int, int] = {}
    later: list[Segment] = []
    for identity in sorted(offsets, reverse=True):
        segment = epochs.segment(identity)
        if not _is_covered(segment, later):
            kept[identity] = offsets[identity]
            later.append(segment)
    return Position.of(kept)


def _is_covered(segment: Segment, others: Sequence[Segment]) -> bool:
    reached = segment.low
    for other in sorted(others, key=lambda other: other.low):
        if other.low > reached:
            break
        reached = max(reached, other.high)
    return reached >= segment.high
