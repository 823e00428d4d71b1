"""The query that owns a writer id: Spark numbers the batches of every query from 0.

A writer id that is given to a query with a new checkpoint, or to a second query, would make its first batches
look like repeated ones. The owner is recorded with the number of commits that the writer had before.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from slackwater.errors import StreamError
from slackwater.metadata import store_schema as schema
from slackwater.metadata.store import insert_of
from slackwater.sql.commit_owner import CommitOwner, Committer, IdentityInUse, claim
from slackwater.streams.log.catalog import Stream
from slackwater.streams.log.writer_session import WriterSession

_owners = schema.writer_queries


_ANOTHER: Final = 'use another writer id: writer="…" in sw.write_stream, or option("writer", "…")'


class StaleCommit(StreamError):
    """A commit older than the last one of its writer: the checkpoint does not match the stream."""

    def __init__(self, stream: str, writer: str, number: int, last: int) -> None:
        self.stream = stream
        self.writer = writer
        self.number = number
        self.last = last
        super().__init__(
            f"commit {number} of writer {writer!r} is older than commit {last}, which is already in stream "
            f"{stream!r}: another run of this query is ahead, its checkpoint was restored from a backup, or "
            f"the writer id was used before; stop the other run, or {_ANOTHER}"
        )


def claim_number(
    connection: Connection, stream: Stream, session: WriterSession, committer: Committer, number: int
) -> int:
    """Record the query that commits as the owner of its writer id.

    Args:
        connection: A connection with an open transaction that holds the lock of the session.
        stream: The stream.
        session: The stored state of the writer.
        committer: The query and the run that commit.
        number: The number of the commit among those of the query, from 1.

    Returns:
        The number of the commit among those of the writer.

    Raises:
        IdentityInUse: The writer id belongs to another query or to a newer run of this one, or another
            writer used it.
        StaleCommit: A later commit was stored before.

    >>> from slackwater.streams.log.catalog import Streams
    >>> from slackwater.streams.log.writer_session import open_session
    >>> with Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids")
    ...     session = bids.store.write(lambda connection: open_session(connection, bids, "w", at=0))
    ...     bids.store.write(lambda c: claim_number(c, bids, session, Committer("5f1c"), 1))
    1
    """
    mine = (_owners.c.stream == stream.id, _owners.c.writer == session.writer)
    row = connection.execute(sql.select(_owners).where(*mine)).one_or_none()
    last = session.last_event_number
    # commits of an earlier release, or of a writer that is not a query, have no recorded owner
    unowned = CommitOwner(None) if last else None
    known = unowned if row is None else CommitOwner.of(row.query, row.runs)
    admitted = claim(
        known,
        committer,
        subject=f"writer {session.writer!r} of stream {stream.name!r}",
        another=_ANOTHER,
    )
    if row is not None and row.last != last:
        raise IdentityInUse(
            f"writer {session.writer!r} of stream {stream.name!r}",
            f"was used outside of query {row.query}: its last number is {last}, and that of the query is "
            f"{row.last}",
            f"{_ANOTHER}, with a new checkpoint",
        )
    before = last if admitted.numbered_anew else 0 if row is None else row.before
    if before + number < last:
        raise StaleCommit(stream.name, session.writer, before + number, last)
    values = {
        "query": admitted.owner.query,
        "runs": admitted.owner.runs_text,
        "before": before,
        "last": before + number,
    }
    recorded = insert_of(connection)(_owners).values(stream=stream.id, writer=session.writer, **values)
    connection.execute(recorded.on_conflict_do_update(index_elements=["stream", "writer"], set_=values))
    return int(before + number)
