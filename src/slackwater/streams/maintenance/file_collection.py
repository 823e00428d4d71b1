"""Deletes unused data files: those of crashed writers, uncommitted transactions, truncated events and deleted
streams.

A file that a slow writer is about to append looks the same as one that was left behind. A stream therefore
records a horizon before files are deleted. An append of a file that was created before the horizon fails, and
its writer writes the file again. After that, files older than the horizon that no record names are deleted.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from slackwater.metadata import store_schema as schema
from slackwater.streams.log.catalog import BUCKETS, Stream, Streams, stream_folder
from slackwater.streams.log.stream_records import lock_stream, update_record
from slackwater.time import DurationLike, duration

_AT_ONCE: Final = 500


def collect_orphans(stream: Stream, *, older_than: DurationLike = "1 day") -> list[str]:
    """Delete the files of a stream that no record names, and return their names.

    Args:
        stream: The stream.
        older_than: Age below which files are kept, because a writer may still append them.

    >>> from slackwater.streams.log.catalog import VALUE, Streams
    >>> import pyarrow as pa
    >>> with Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids")
    ...     created_at = bids.store.now() - 2_000_000
    ...     locations = bids.folder.write([pa.record_batch([[b"a"]], schema=VALUE)], at=created_at)
    ...     len(collect_orphans(bids)), len(collect_orphans(bids, older_than="1 second"))
    (0, 1)
    """
    horizon = stream.store.now() - duration(older_than, name="older_than")

    def raise_horizon(connection: Connection) -> None:
        row = lock_stream(connection, stream.record, exclusive=True)
        if row.collected_before < horizon:
            update_record(connection, stream.id, collected_before=horizon)

    old = stream.folder.files(before=horizon)
    if not old:
        return []
    stream.store.write(raise_horizon)
    named = named_files(stream, old)
    unused = [name for name in old if name not in named]
    stream.folder.remove_files(unused)
    return unused


def collect_deleted(
    streams: Streams, buckets: Collection[int] = range(BUCKETS), *, older_than: DurationLike = "1 day"
) -> list[str]:
    """Delete the files of deleted streams, and return the names of the streams that are done.

    A slow writer may still write a file after its stream was deleted, so the record of a deleted stream is
    kept for a while and its files are deleted again.

    Args:
        streams: The streams of the store.
        buckets: Buckets of the deleted streams to look at.
        older_than: How long the record of a deleted stream is kept.

    >>> with Streams.temporary() as streams:
    ...     stream = streams.create("shop/bids")
    ...     streams.delete("shop/bids")
    ...     collect_deleted(streams), collect_deleted(streams, older_than="0 seconds")
    ([], ['shop/bids'])
    """
    store, deleted = streams.store, schema.deleted_streams
    horizon = streams.store.now() - duration(older_than, name="older_than")
    query = sql.select(deleted).where(deleted.c.bucket.in_(list(buckets))).order_by(deleted.c.name)
    done = []
    for row in store.read(lambda connection: connection.execute(query).all()):
        stream_folder(store, row.data, row.name, row.id).remove()
        if row.deleted_at < horizon:
            removal = deleted.delete().where(deleted.c.id == row.id)
            store.write(lambda connection, removal=removal: connection.execute(removal), repeatable=True)  # type: ignore[misc]  # bound now
            done.append(row.name)
    return done


def named_files(stream: Stream, names: list[str]) -> set[str]:
    """Return those of the files that an append names.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     named_files(streams.create("shop/bids"), ["0/a.arrow"])
    set()
    """
    appends = schema.appends.c

    def work(connection: Connection) -> set[str]:
        found: set[str] = set()
        for start in range(0, len(names), _AT_ONCE):
            some = names[start : start + _AT_ONCE]
            query = sql.select(appends.file).where(appends.stream == stream.id, appends.file.in_(some))
            found.update(connection.execute(query.distinct()).scalars())
        return found

    return stream.store.read(work)
