"""Noted times and marks in the metadata store (N4–N6, M5).

All functions take a connection, so that noting a time can be part of a larger transaction (a commit with a
time). The rules are in `notes` and `marks`; this module keeps concurrent processes from overwriting each
other. A writer's record is read under its lock and has a version (N6). A mark is inserted with the number
after the mark that it was computed from, which only one controller can insert (M5).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import sqlalchemy as sql
from sqlalchemy.engine import Connection

from slackwater.metadata import store_schema as schema
from slackwater.metadata.store import insert_of
from slackwater.streams.arguments import check_id
from slackwater.streams.segments.epochs import unknown_segment
from slackwater.streams.segments.positions import Position
from slackwater.streams.settings import StreamSettings
from slackwater.streams.time.marks import CycleDecision, Mark
from slackwater.streams.time.notes import NoteResult, WriterMark, validate_note
from slackwater.time import check_int64

_notes = schema.writer_marks
_marks = schema.marks


def note(
    connection: Connection, stream: int, writer: str, time: int, position: Position, at: int
) -> NoteResult:
    """Record that ``writer`` noted ``time`` at ``position``, unless it is invalid (N1, N2, N4).

    Args:
        connection: Connection with an open transaction.
        stream: Id of the stream.
        writer: Id of the writer.
        time: The noted event time.
        position: Position of the writer's acknowledged events.
        at: Time of the store's clock.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     store, stream = streams.store, streams.create("shop/bids").id
    ...     for time in (5, 4):
    ...         work = lambda connection: note(connection, stream, "w", time, Position.of({0: 3}), at=0)
    ...         print(store.write(work))
    ok
    invalid_time
    """
    check_id(writer)
    check_int64(time, "time")
    latest = _latest(connection, stream, at)
    while True:
        last = _record(connection, stream, writer)
        result = validate_note(last, time, position, latest)
        if result is not NoteResult.OK:
            return result
        _check_segments(connection, stream, position, last)
        values = {"time": time, "position": position.save(), "closed": False}
        if last is not None:
            change = _notes.update().where(*_is(stream, last), _notes.c.version == last.version)
            connection.execute(change.values(**values, version=last.version + 1))
            return result
        if _inserted(connection, _notes, {"stream": stream, "writer": writer, "version": 1, **values}):
            # only a writer's first noted time can be the first of the stream
            streams = schema.streams
            unset = streams.update().where(streams.c.id == stream, streams.c.first_noted_at.is_(None))
            connection.execute(unset.values(first_noted_at=at))
            return result


def close_writer(connection: Connection, stream: int, writer: str) -> bool:
    """Mark a writer as closed, so that later marks do not wait for it (N5); False if it has no record.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     store, stream = streams.store, streams.create("shop/bids").id
    ...     print(store.write(lambda connection: close_writer(connection, stream, "w")))
    False
    """
    change = _notes.update().where(_notes.c.stream == stream, _notes.c.writer == writer)
    closed = connection.execute(change.values(closed=True, version=_notes.c.version + 1))
    return closed.rowcount == 1


def writer_marks(connection: Connection, stream: int) -> list[WriterMark]:
    """The records of a stream's writers, by id.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     store, stream = streams.store, streams.create("shop/bids").id
    ...     print(store.read(lambda connection: writer_marks(connection, stream)))
    []
    """
    query = sql.select(_notes).where(_notes.c.stream == stream).order_by(_notes.c.writer)
    return [_writer_mark(row) for row in connection.execute(query)]


def noted_streams(connection: Connection, buckets: Iterable[int]) -> dict[int, StreamSettings]:
    """Settings of the streams in these buckets that have a writer record; the others need no cycle (M2).

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     store, stream = streams.store, streams.create("shop/bids").id
    ...     print(store.read(lambda connection: noted_streams(connection, range(128))))
    {}
    """
    streams = schema.streams
    noted = sql.exists().where(_notes.c.stream == streams.c.id)
    query = sql.select(streams.c.id, streams.c.settings).where(streams.c.bucket.in_(list(buckets)), noted)
    rows = connection.execute(query.order_by(streams.c.id))
    return {row.id: StreamSettings.load(msgspec.json.decode(row.settings)) for row in rows}


def read_marks(connection: Connection, stream: int, *, after: int = 0, first: int = 1) -> dict[int, Mark]:
    """The marks of a stream by number, ascending: those above ``after``, from number ``first`` on.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     store, stream = streams.store, streams.create("shop/bids").id
    ...     print(store.read(lambda connection: read_marks(connection, stream)))
    {}
    """
    wanted = [_marks.c.stream == stream, _marks.c.number > after, _marks.c.number >= first]
    query = sql.select(_marks).where(*wanted).order_by(_marks.c.number)
    return {row.number: _mark(row) for row in connection.execute(query)}


def newest_mark(connection: Connection, stream: int) -> tuple[int, Mark] | None:
    """The newest mark with its number; None if there is no mark yet.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     store, stream = streams.store, streams.create("shop/bids").id
    ...     print(store.read(lambda connection: newest_mark(connection, stream)))
    None
    """
    query = sql.select(_marks).where(_marks.c.stream == stream).order_by(_marks.c.number.desc()).limit(1)
    row = connection.execute(query).one_or_none()
    return None if row is None else (row.number, _mark(row))


def apply_cycle(
    connection: Connection, stream: int, newest: tuple[int, Mark] | None, cycle: CycleDecision, at: int
) -> bool:
    """Write what a cycle decided, if ``newest`` is still the newest mark (M5); otherwise return False.

    A record that changed since the cycle read it is not deleted (M1). If its writer participates again, the
    mark was decided without it, and nothing is written.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     store, stream = streams.store, streams.create("shop/bids").id
    ...     cycle = CycleDecision(mark=Mark(5, 9, Position.of({0: 3})))
    ...     for _ in range(2):
    ...         print(store.write(lambda connection: apply_cycle(connection, stream, None, cycle, at=0)))
    True
    False
    """
    number = 0 if newest is None else newest[0]
    if cycle.mark is not None:
        if any(_has_returned(connection, stream, newest, record) for record in cycle.delete):
            return False
        made = {"lower": cycle.mark.lower, "upper": cycle.mark.upper, "cut": cycle.mark.cut.save()}
        if not _inserted(connection, _marks, {"stream": stream, "number": number + 1, "at": at, **made}):
            return False
    elif (found := newest_mark(connection, stream)) is not None and found[0] != number:
        return False
    for record in cycle.delete:
        gone = _notes.delete().where(*_is(stream, record), _notes.c.version == record.version)
        connection.execute(gone)
    if newest is not None:
        # checked again in the database, because the writer may have noted a time since
        is_behind = _notes.c.time <= newest[1].lower
        for record in cycle.behind:
            first = _notes.update().where(*_is(stream, record), is_behind, _notes.c.behind_since.is_(None))
            connection.execute(first.values(behind_since=at, version=_notes.c.version + 1))
        for record in cycle.caught_up:
            cleared = _notes.update().where(*_is(stream, record), sql.not_(is_behind))
            connection.execute(cleared.values(behind_since=None, version=_notes.c.version + 1))
    return True


def _latest(connection: Connection, stream: int, at: int) -> int | None:
    """The latest time that may be noted now; None if there is no limit."""
    query = sql.select(schema.streams.c.settings).where(schema.streams.c.id == stream)
    saved = connection.execute(query).scalar()
    ahead = None if saved is None else StreamSettings.load(msgspec.json.decode(saved)).marks.max_ahead
    return None if ahead is None else at + ahead


def _record(connection: Connection, stream: int, writer: str) -> WriterMark | None:
    query = sql.select(_notes).where(_notes.c.stream == stream, _notes.c.writer == writer)
    row = connection.execute(query.with_for_update()).one_or_none()
    return None if row is None else _writer_mark(row)


def _has_returned(
    connection: Connection, stream: int, newest: tuple[int, Mark] | None, record: WriterMark
) -> bool:
    """Whether a writer participates by a time that it noted after a cycle had read its record."""
    found = _record(connection, stream, record.writer)
    if found is None or found.version == record.version or found.closed:
        return False
    return newest is None or found.time > newest[1].lower


def _writer_mark(row: Any) -> WriterMark:
    position = Position.load(row.position)
    return WriterMark(row.writer, row.time, position, bool(row.closed), row.behind_since, row.version)


def _mark(row: Any) -> Mark:
    return Mark(row.lower, row.upper, Position.load(row.cut))


def _is(stream: int, record: WriterMark) -> Sequence[sql.ColumnElement[bool]]:
    return (_notes.c.stream == stream, _notes.c.writer == record.writer)


def _inserted(connection: Connection, table: sql.Table, values: dict[str, Any]) -> bool:
    """Insert a row unless its key exists; return whether it was inserted."""
    insert = insert_of(connection)
    added = insert(table).values(**values).on_conflict_do_nothing().returning(table.c.stream)
    return connection.execute(added).one_or_none() is not None


def _check_segments(connection: Connection, stream: int, position: Position, last: WriterMark | None) -> None:
    """Raise if the position has an unknown segment; those of the last position were checked before."""
    known = set() if last is None else set(last.position.ids.tolist())
    new = [identity for identity in position.ids.tolist() if identity not in known]
    segments = schema.segments
    query = sql.select(segments.c.id).where(segments.c.stream == stream, segments.c.id.in_(new))
    if new and (missing := set(new) - set(connection.execute(query).scalars())):
        raise unknown_segment(min(missing))
