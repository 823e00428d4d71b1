"""Removing files that no stream needs: of writers that crashed, of transactions that were never committed,
and of events that retention removed.

A file that is still being written looks the same as one that was left behind. So a stream remembers a
horizon, and an append of a file that was made before it is refused: its writer, however slow, writes the
file again. Only then are files older than the horizon removed, unless some record names them.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from slackwater.metadata import schema
from slackwater.streams.catalog import Stream, lock_stream
from slackwater.time import DurationLike, duration

_AT_ONCE: Final = 500


def collect_orphans(stream: Stream, *, older_than: DurationLike = "1 day") -> list[str]:
    """Removes files of a stream that are older than this and hold nothing of it; their names.

    >>> from slackwater.streams.catalog import VALUE, Streams
    >>> import pyarrow as pa
    >>> with Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids")
    ...     parts = bids.folder.write([pa.record_batch([[b"a"]], schema=VALUE)], at=bids.clock() - 2_000_000)
    ...     len(collect_orphans(bids)), len(collect_orphans(bids, older_than="1 second"))
    (0, 1)
    """
    horizon = stream.clock() - duration(older_than, name="older_than")

    def raise_horizon(connection: Connection) -> None:
        row = lock_stream(connection, stream, alone=True)
        if row.collected_before < horizon:
            connection.execute(
                schema.streams.update()
                .where(schema.streams.c.id == stream.id)
                .values(collected_before=horizon, version=row.version + 1)
            )

    old = stream.folder.files(before=horizon)
    if not old:
        return []
    stream.store.write(raise_horizon)
    live = _live(stream, old)
    gone = [name for name in old if name not in live]
    stream.folder.remove_files(gone)
    return gone


def _live(stream: Stream, names: list[str]) -> set[str]:
    """Those of the files that some append names."""
    appends = schema.appends.c

    def work(connection: Connection) -> set[str]:
        found: set[str] = set()
        for start in range(0, len(names), _AT_ONCE):
            asked = names[start : start + _AT_ONCE]
            query = sql.select(appends.file).where(appends.stream == stream.id, appends.file.in_(asked))
            found.update(connection.execute(query.distinct()).scalars())
        return found

    return stream.store.read(work)
