"""Sessions of writers: fence off older writers with the same id, and record what a writer has stored."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from slackwater.errors import StoreUnreachable, WriterReplaced
from slackwater.metadata import store_schema as schema
from slackwater.metadata.store import insert_of
from slackwater.streams.arguments import check_id, positive_duration
from slackwater.streams.log.catalog import Stream
from slackwater.streams.log.stream_records import lock_stream
from slackwater.streams.segments.positions import Position
from slackwater.streams.time.mark_store import close_writer
from slackwater.time import SECOND, DurationLike

Result = TypeVar("Result")

_log = logging.getLogger(__name__)

_RECONNECT_SECONDS: Final = 0.2

_writers = schema.writers


@dataclass(frozen=True, slots=True)
class WriterSession:
    """An open writer: the number of its session, which fences off older ones, and what it has stored.

    >>> WriterSession("w", 1, 0, Position.of({})).last_event_number
    0
    """

    writer: str
    number: int
    last_event_number: int
    position: Position


def open_session(connection: Connection, stream: Stream, writer: str, *, at: int) -> WriterSession:
    """Open a new session of a writer; earlier sessions can no longer append.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids")
    ...     for _ in range(2):
    ...         print(bids.store.write(lambda connection: open_session(connection, bids, "w", at=0)).number)
    1
    2
    """
    lock_stream(connection, stream.record, exclusive=False)
    insert = insert_of(connection)
    opened = insert(_writers).values(
        stream=stream.id, writer=writer, session=1, last_event_number=0, position=b"", at=at
    )
    opened = opened.on_conflict_do_update(
        index_elements=["stream", "writer"], set_={"session": _writers.c.session + 1, "at": at}
    )
    columns = (_writers.c.session, _writers.c.last_event_number, _writers.c.position)
    row = connection.execute(opened.returning(*columns)).one()
    return WriterSession(writer, row.session, row.last_event_number, Position.load(row.position))


def check_session(connection: Connection, stream: Stream, session: WriterSession) -> WriterSession:
    """Lock and return the stored state of a session, if it is still the newest of its writer.

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
    return replace(session, last_event_number=row.last_event_number, position=Position.load(row.position))


def save_session(
    connection: Connection,
    stream: Stream,
    session: WriterSession,
    last_event_number: int,
    position: Position,
    *,
    at: int,
) -> None:
    """Record the last event number and the position of a writer.

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


def delete_session(connection: Connection, stream: Stream, session: WriterSession) -> None:
    """Delete the record of a writer with a generated id, which cannot be opened again.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids")
    ...     session = bids.store.write(lambda connection: open_session(connection, bids, "w", at=0))
    ...     bids.store.write(lambda connection: delete_session(connection, bids, session))
    """
    connection.execute(_writers.delete().where(*_is(stream, session)))


def _is(stream: Stream, session: WriterSession) -> tuple[sql.ColumnElement[bool], ...]:
    return _writers.c.stream == stream.id, _writers.c.writer == session.writer


class SessionWriter:
    """Base of the writers: an id and its newest session.

    Args:
        stream: The stream.
        writer: Id of the writer; random by default, and then the writer cannot be resumed.
        timeout: How long the writer waits for a store that cannot be reached.
    """

    def __init__(self, stream: Stream, writer: str | None, *, timeout: DurationLike) -> None:
        self._timeout = positive_duration(timeout, "timeout") / SECOND
        self.id = check_id(writer) if writer is not None else uuid.uuid4().hex
        self.stream = stream
        self._has_random_id = writer is None
        self._session = stream.store.write(
            lambda connection: open_session(connection, stream, self.id, at=stream.store.now(connection))
        )

    def _in_session(self, work: Callable[[Connection, WriterSession], Result]) -> Result:
        """Run repeatable work in a transaction, if the session is still the newest."""

        def checked(connection: Connection) -> Result:
            return work(connection, check_session(connection, self.stream, self._session))

        return self._while_unreachable(lambda: self.stream.store.write(checked, repeatable=True))

    def _while_unreachable(self, work: Callable[[], Result]) -> Result:
        """Run work that may be repeated; repeat it while the store cannot be reached, up to the timeout."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return work()
            except StoreUnreachable as error:
                if time.monotonic() >= deadline:
                    raise
                _log.warning("writer %s cannot reach the metadata store, retrying: %s", self.id, error.reason)
                time.sleep(_RECONNECT_SECONDS)

    def _exclude_from_marks(self) -> None:
        self._in_session(lambda connection, _: close_writer(connection, self.stream.id, self.id))

    def _leave(self) -> None:
        self._exclude_from_marks()
        if self._has_random_id:
            # in its own transaction: a session that is deleted cannot be checked again
            self._while_unreachable(
                lambda: self.stream.store.write(
                    lambda connection: delete_session(connection, self.stream, self._session), repeatable=True
                )
            )
