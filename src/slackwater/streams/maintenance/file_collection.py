"""Removing files that no stream needs: of writers that crashed, of transactions that were never committed,
of events that retention removed, and of streams that were deleted.

A file that is still being written looks the same as one that was left behind. So a stream remembers a
horizon, and an append of a file that was made before it is refused: its writer, however slow, writes the
file again. Only then are files older than the horizon removed, unless some record names them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from slackwater.metadata import store_schema as schema
from slackwater.streams.log.catalog import BUCKETS, Stream, Streams, lock_stream, stream_folder
from slackwater.time import DurationLike, duration

_AT_ONCE: Final = 500


def collect_orphans(stream: Stream, *, older_than: DurationLike = "1 day") -> list[str]:
    """Removes files of a stream that are older than this and hold nothing of it; their names.

    >>> from slackwater.streams.log.catalog import VALUE, Streams
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


def collect_deleted(
    streams: Streams, buckets: Collection[int] = range(BUCKETS), *, older_than: DurationLike = "1 day"
) -> list[str]:
    """Removes what is left of deleted streams; the names of those that are forgotten then.

    A writer that was slow may still bring a file, so a stream is remembered for a while after it was deleted.

    >>> with Streams.temporary() as streams:
    ...     stream = streams.create("shop/bids")
    ...     streams.delete("shop/bids")
    ...     collect_deleted(streams), collect_deleted(streams, older_than="0 seconds")
    ([], ['shop/bids'])
    """
    store, deleted = streams.store, schema.deleted_streams
    horizon = streams.clock() - duration(older_than, name="older_than")
    query = sql.select(deleted).where(deleted.c.bucket.in_(list(buckets))).order_by(deleted.c.name)
    forgotten = []
    for row in store.read(lambda connection: connection.execute(query).all()):
        stream_folder(store, row.data, row.name, row.id).remove()
        if row.deleted_at < horizon:
            gone = deleted.delete().where(deleted.c.id == row.id)
            store.write(lambda connection, gone=gone: connection.execute(gone), repeatable=True)  # type: ignore[misc]  # bound now
            forgotten.append(row.name)
    return forgotten


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
