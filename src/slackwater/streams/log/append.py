"""The transactions in which events become part of a stream.

Locks are taken in one order: the stream (shared with other appends), the writer, the segments by id. A
writer's record holds the number of its last stored event, so an append whose outcome was lost is found to
be stored already; and the number of its session, so a process that was replaced cannot go on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from slackwater.errors import WriterReplaced
from slackwater.metadata import store_schema as schema
from slackwater.metadata.store import insert_of
from slackwater.streams.log.catalog import Stream, lock_stream
from slackwater.streams.log.positions import Position
from slackwater.streams.log.segment_files import Part, made_before
from slackwater.streams.log.segments import Epochs, Segment

_writers = schema.writers


class SegmentsChanged(Exception):
    """A segment was sealed after the events were routed to it: route them again."""


class FilesCollected(Exception):
    """The file took so long that it may have been collected: write it again."""


@dataclass(frozen=True, slots=True)
class Session:
    """One opening of a writer: what was stored of it before, and the number that fences off older ones.

    >>> Session("w", 1, 0, Position.of({})).last_event_number
    0
    """

    writer: str
    number: int
    last_event_number: int
    position: Position


def open_session(connection: Connection, stream: Stream, writer: str, *, at: int) -> Session:
    """A new session of a writer; those before it can no longer append.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids")
    ...     for _ in range(2):
    ...         print(bids.store.write(lambda connection: open_session(connection, bids, "w", at=0)).number)
    1
    2
    """
    lock_stream(connection, stream, alone=False)
    insert = insert_of(connection)
    opened = insert(_writers).values(
        stream=stream.id, writer=writer, session=1, last_event_number=0, position=b"", at=at
    )
    opened = opened.on_conflict_do_update(
        index_elements=["stream", "writer"], set_={"session": _writers.c.session + 1, "at": at}
    )
    columns = (_writers.c.session, _writers.c.last_event_number, _writers.c.position)
    row = connection.execute(opened.returning(*columns)).one()
    return Session(writer, row.session, row.last_event_number, Position.load(row.position))


def check_session(connection: Connection, stream: Stream, session: Session) -> Session:
    """The session as the store has it, if it is still the newest of its writer.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids")
    ...     first, second = (bids.store.write(lambda c: open_session(c, bids, "w", at=0)) for _ in range(2))
    ...     bids.store.write(lambda connection: check_session(connection, bids, first))
    Traceback (most recent call last):
    slackwater.errors.WriterReplaced: writer 'w' of stream 'shop/bids' was opened again by another \
process; give every process its own writer id, or close this writer
    """
    row = connection.execute(
        sql.select(_writers).where(*_is(stream, session)).with_for_update()
    ).one_or_none()
    if row is None or row.session != session.number:
        raise WriterReplaced(stream.name, session.writer)
    return Session(session.writer, session.number, row.last_event_number, Position.load(row.position))


def append(
    connection: Connection,
    stream: Stream,
    session: Session,
    parts: Sequence[tuple[int, Part]],
    *,
    last_event_number: int,
    epochs: Epochs,
    at: int,
) -> Session:
    """Makes written parts the next events of their segments, all of them or none; the session after it.

    If the store has that event number already, they are there, and nothing changes.

    >>> from slackwater.streams.log.catalog import VALUE, Streams
    >>> import pyarrow as pa
    >>> with Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids")
    ...     (part,) = bids.folder.write([pa.record_batch([[b"a", b"b"]], schema=VALUE)], at=0)
    ...     session = bids.store.write(lambda connection: open_session(connection, bids, "w", at=0))
    ...     arguments = {"last_event_number": 2, "epochs": bids.epochs(), "at": 0}
    ...     for _ in range(2):
    ...         work = lambda connection: append(connection, bids, session, [(0, part)], **arguments)
    ...         print(bids.store.write(work, repeatable=True).position)
    Position({0: 2})
    Position({0: 2})
    """
    row = lock_stream(connection, stream, alone=False)
    known = check_session(connection, stream, session)
    if known.last_event_number >= last_event_number:
        return known
    if made_before((part.file for _, part in parts), row.collected_before):
        raise FilesCollected
    ends = add_parts(connection, stream, parts, at=at) if parts else {}
    position = extended(known.position, ends, epochs)
    save_session(connection, stream, session, last_event_number, position, at=at)
    return Session(session.writer, session.number, last_event_number, position)


def add_parts(
    connection: Connection, stream: Stream, parts: Sequence[tuple[int, Part]], *, at: int
) -> dict[int, int]:
    """Puts parts at the ends of their segments, in their order; the new ends of those segments.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids")
    ...     bids.store.write(lambda c: add_parts(c, bids, [(0, Part("f", 0, 9, 0, 3))], at=0))
    {0: 3}
    """
    segments = schema.segments.c
    ids = sorted({segment for segment, _ in parts})
    query = sql.select(segments.id, segments.length, segments.sealed_epoch)
    query = query.where(segments.stream == stream.id, segments.id.in_(ids)).order_by(segments.id)
    ends: dict[int, int] = {}
    for row in connection.execute(query.with_for_update()):
        if row.sealed_epoch is not None:
            raise SegmentsChanged
        ends[row.id] = row.length
    rows = []
    added = dict.fromkeys(ids, 0)
    for segment, part in parts:
        rows.append(
            {
                "stream": stream.id, "segment": segment, "first_offset": ends[segment], "at": at,
                "events": part.events, "file": part.file, "place": part.place, "size": part.size,
                "checksum": part.checksum,
            }
        )  # fmt: skip
        ends[segment] += part.events
        added[segment] += part.size
    connection.execute(schema.appends.insert(), rows)
    change = schema.segments.update().where(
        segments.stream == stream.id, segments.id == sql.bindparam("segment_id")
    )
    change = change.values(length=sql.bindparam("end"), bytes=segments.bytes + sql.bindparam("more"))
    connection.execute(
        change,
        [{"segment_id": segment, "end": ends[segment], "more": added[segment]} for segment in ids],
    )
    return ends


def extended(position: Position, ends: Mapping[int, int], epochs: Epochs) -> Position:
    """A writer's position after an append, without segments that later ones of it replace wholly.

    >>> from slackwater.streams.log.segments import KEY_SPACE, Segment, even_ranges
    >>> epochs = Epochs([[Segment(0, 0, 0, KEY_SPACE)]]).scale([0], even_ranges(2))
    >>> left, right = (segment.id for segment in epochs.active)
    >>> once = extended(Position.of({0: 9}), {left: 1}, epochs)
    >>> (
    ...     once == Position.of({0: 9, left: 1}),
    ...     extended(once, {right: 1}, epochs) == Position.of({left: 1, right: 1}),
    ... )
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


def save_session(
    connection: Connection,
    stream: Stream,
    session: Session,
    last_event_number: int,
    position: Position,
    *,
    at: int,
) -> None:
    """Records how far a writer is.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids")
    ...     session = bids.store.write(lambda connection: open_session(connection, bids, "w", at=0))
    ...     bids.store.write(lambda c: save_session(c, bids, session, 7, Position.of({0: 7}), at=0))
    ...     bids.store.write(lambda connection: check_session(connection, bids, session)).last_event_number
    7
    """
    values = {"last_event_number": last_event_number, "position": position.save(), "at": at}
    connection.execute(_writers.update().where(*_is(stream, session)).values(values))


def forget_session(connection: Connection, stream: Stream, session: Session) -> None:
    """Removes the record of a writer that nobody can open again, because its id was drawn by chance.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids")
    ...     session = bids.store.write(lambda connection: open_session(connection, bids, "w", at=0))
    ...     bids.store.write(lambda connection: forget_session(connection, bids, session))
    """
    connection.execute(_writers.delete().where(*_is(stream, session)))


def _is(stream: Stream, session: Session) -> tuple[sql.ColumnElement[bool], ...]:
    return _writers.c.stream == stream.id, _writers.c.writer == session.writer
