"""Compaction: merges the small files of a stream while writers and readers go on.

Every flush of a writer is a file, so a stream that is flushed often consists of very many. Compaction
replaces consecutive appends of a segment by one append with the same events at the same offsets. Positions,
cuts and marks therefore stay valid. The new file is complete before one transaction replaces the appends; a
process that is killed earlier leaves a file that no record names, which is collected later. The files that
were merged are deleted after the transaction, and a reader that has looked one of them up looks again.

Appends are merged in levels of size, each of which is eight times the one below, so that an event is
rewritten a few times at most.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa
import sqlalchemy as sql
from sqlalchemy.engine import Connection

from slackwater.metadata import store_schema as schema
from slackwater.streams.log.catalog import Stream
from slackwater.streams.log.segment_files import BatchLocation, DamagedFile, any_created_before
from slackwater.streams.log.stream_records import lock_stream
from slackwater.streams.maintenance.file_collection import named_files
from slackwater.streams.settings import StreamSettings
from slackwater.time import MINUTE

_LEVELS: Final = (64 << 10, 512 << 10, 4 << 20)
"""Appends below one of these sizes in bytes are merged with neighbours below it."""
_FAN_IN: Final = 8
"""The number of neighbours that are worth merging."""
_MERGED_BYTES: Final = 16 << 20
_MERGED_EVENTS: Final = 1_000_000
_MEMORY: Final = 256 << 20
"""The size in memory of the events that are merged at a time."""
_MINIMUM_AGE: Final = 5 * MINUTE
"""Younger appends are left alone: readers are likely to need them now, and scaling counts them."""
_LOOKED_UP: Final = 20_000
"""How many appends are looked up at a time."""
_AGE_PRECISION: Final = 20
"""Events stay at most a twentieth of the retention age longer because they were merged with later ones."""

_log = logging.getLogger(__name__)
_appends = schema.appends.c


class Append(NamedTuple):
    """An append of a segment in the metadata store."""

    segment: int
    first_offset: int
    events: int
    at: int
    location: BatchLocation

    @property
    def end(self) -> int:
        """The offset after its last event."""
        return self.first_offset + self.events


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """How many appends were merged into how many, and how many files were deleted."""

    merged: int = 0
    into: int = 0
    removed_files: int = 0

    def __add__(self, other: CompactionResult) -> CompactionResult:
        return CompactionResult(
            self.merged + other.merged, self.into + other.into, self.removed_files + other.removed_files
        )


def compact(
    stream: Stream,
    settings: StreamSettings | None = None,
    *,
    minimum_age: int = _MINIMUM_AGE,
    seconds: float | None = None,
) -> CompactionResult:
    """Merge small neighbouring appends of a stream.

    Args:
        stream: The stream.
        settings: Its settings; retention limits how much time a merged append spans, and the window of the
            scaling policy how young appends may be.
        minimum_age: Time in microseconds after which an append may be merged.
        seconds: Stop after about this time; by default after everything was merged once.

    Returns:
        What was merged and deleted.

    >>> from slackwater.streams.log.catalog import Streams
    >>> from slackwater.streams.log.writer import Writer
    >>> with Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids")
    ...     with Writer(bids) as writer:
    ...         for number in range(8):
    ...             last = writer.write(b"a")
    ...             writer.flush()
    ...     compact(bids, minimum_age=-1)
    CompactionResult(merged=8, into=1, removed_files=8)
    """
    settings = settings or StreamSettings()
    age = minimum_age if settings.scaling is None else max(minimum_age, settings.scaling.window)
    span = None if settings.retention.age is None else settings.retention.age // _AGE_PRECISION
    deadline = None if seconds is None else time.monotonic() + seconds
    done = CompactionResult()
    for small in _small_appends(stream, before=stream.store.now() - age):
        for group in _by_size(mergeable(small, span=span)):
            if deadline is not None and time.monotonic() >= deadline:
                return done
            done += _merge(stream, group)
    return done


def mergeable(appends: Sequence[Append], *, span: int | None = None) -> list[list[Append]]:
    """Groups of neighbours that are worth merging, each into one append.

    Args:
        appends: Small appends in the order of segments and offsets.
        span: The longest time between the first and the last append of a group; None for no limit.

    >>> location = BatchLocation("f", byte_offset=0, size=100, checksum=0, events=2)
    >>> several = [Append(0, offset, 2, 0, location) for offset in (*range(0, 20, 2), 50, 52)]
    >>> [(group[0].first_offset, group[-1].end) for group in mergeable(several)]
    [(0, 20)]
    """
    groups: list[list[Append]] = []
    left = list(appends)
    for limit in _LEVELS:
        rest: list[Append] = []
        for run in _runs(left, limit, span):
            if len(run) >= _FAN_IN:
                groups.append(run)
            else:
                rest += run
        left = rest
    return groups


def _runs(appends: Sequence[Append], limit: int, span: int | None) -> Iterator[list[Append]]:
    """Divide appends into runs that may become one append; a larger append is a run of its own."""
    run: list[Append] = []
    size = events = 0
    for one in appends:
        extends = (
            run
            and one.segment == run[-1].segment
            and one.first_offset == run[-1].end
            and max(one.location.size, run[-1].location.size) < limit
            and size + one.location.size <= _MERGED_BYTES
            and events + one.events <= _MERGED_EVENTS
            and (span is None or one.at - run[0].at <= span)
        )
        if not extends and run:
            yield run
            run, size, events = [], 0, 0
        run.append(one)
        size += one.location.size
        events += one.events
    if run:
        yield run


def _by_size(groups: Iterable[list[Append]]) -> Iterator[list[list[Append]]]:
    """Collect groups that share a file, so that merging the segments of a stream does not make more files."""
    together: list[list[Append]] = []
    size = 0
    for group in groups:
        more = sum(one.location.size for one in group)
        if together and size + more > _MERGED_BYTES:
            yield together
            together, size = [], 0
        together.append(group)
        size += more
    if together:
        yield together


def _small_appends(stream: Stream, *, before: int) -> Iterator[list[Append]]:
    """The appends of a stream that may be merged, in the order of segments and offsets, some at a time."""
    after: tuple[int, int] | None = None
    while True:
        query = sql.select(schema.appends).where(
            _appends.stream == stream.id, _appends.at < before, _appends.size < _LEVELS[-1]
        )
        if after is not None:
            query = query.where(sql.tuple_(_appends.segment, _appends.first_offset) > after)
        query = query.order_by(_appends.segment, _appends.first_offset).limit(_LOOKED_UP)
        rows = stream.store.read(lambda connection, query=query: connection.execute(query).all())  # type: ignore[misc]  # bound now
        found = [
            Append(
                row.segment,
                row.first_offset,
                row.events,
                row.at,
                BatchLocation(row.file, row.byte_offset, row.size, row.checksum, row.events),
            )
            for row in rows
        ]
        yield found
        if len(found) < _LOOKED_UP:
            return
        after = found[-1].segment, found[-1].first_offset


def _merge(stream: Stream, groups: Sequence[list[Append]]) -> CompactionResult:
    """Merge groups of appends: write one file, replace the appends, delete the files without a record."""
    readable: list[list[Append]] = []
    batches: list[pa.RecordBatch] = []
    for group in groups:
        space = _MEMORY - sum(batch.nbytes for batch in batches)
        try:
            batch, count = _events(stream, group, space)
            if count > 1:
                batches.append(batch)
                readable.append(group[:count])
        except DamagedFile as damaged:
            # truncated or merged by another controller meanwhile, or damaged: readers report that
            _log.warning(
                "stream %s, segment %d: the appends from offset %d on were not merged: a file %s",
                stream.name, group[0].segment, group[0].first_offset, damaged,
            )  # fmt: skip
    if not batches:
        return CompactionResult()
    locations = stream.folder.write(batches, at=stream.store.now())
    replaced = stream.store.write(
        lambda connection: _replace(connection, stream, list(zip(readable, locations, strict=True))),
        repeatable=True,
    )
    files = {one.location.file for group in readable for one in group} | {locations[0].file}
    unused = sorted(files - named_files(stream, sorted(files)))
    stream.folder.remove_files(unused)
    removed = [name for name in unused if name != locations[0].file]
    return CompactionResult(sum(len(group) for group in replaced), len(replaced), len(removed))


def _events(stream: Stream, group: Sequence[Append], space: int) -> tuple[pa.RecordBatch, int]:
    """The events of the first appends of a group that fit into memory, and the number of these appends."""
    batches: list[pa.RecordBatch] = []
    for one in group:
        batch = stream.folder.read(one.location, stream.columns)
        # a transaction's file has a further column
        columns = batch.columns[: len(stream.columns)]
        batch = pa.RecordBatch.from_arrays(columns, schema=stream.columns)
        space -= batch.nbytes
        if batches and space < 0:
            break
        batches.append(batch)
    return pa.concat_batches(batches), len(batches)


def _replace(
    connection: Connection, stream: Stream, merged: Sequence[tuple[list[Append], BatchLocation]]
) -> list[list[Append]]:
    """Replace groups of appends in the metadata store, and return those that were replaced.

    A group is left alone if one of its appends was removed or replaced since it was looked up. Appends of
    writers share the lock on the stream; truncation excludes it.
    """
    row = lock_stream(connection, stream.record, exclusive=False)
    replaced: list[list[Append]] = []
    if any_created_before((location.file for _, location in merged), row.collected_before):
        return replaced
    for group, location in merged:
        here = sql.and_(
            _appends.stream == stream.id,
            _appends.segment == group[0].segment,
            _appends.first_offset >= group[0].first_offset,
            _appends.first_offset < group[-1].end,
        )
        query = sql.select(_appends.first_offset, _appends.file, _appends.byte_offset).where(here)
        query = query.order_by(_appends.first_offset).with_for_update()
        found = [tuple(one) for one in connection.execute(query)]
        if found == [(group[0].first_offset, location.file, location.byte_offset)]:
            replaced.append(group)  # by an attempt whose response was lost
        elif found == [(one.first_offset, one.location.file, one.location.byte_offset) for one in group]:
            connection.execute(schema.appends.delete().where(here))
            connection.execute(
                schema.appends.insert().values(
                    stream=stream.id, segment=group[0].segment, first_offset=group[0].first_offset,
                    at=group[-1].at, events=location.events, file=location.file,
                    byte_offset=location.byte_offset, size=location.size, checksum=location.checksum,
                )
            )  # fmt: skip
            saved = sum(one.location.size for one in group) - location.size
            connection.execute(
                schema.segments.update()
                .where(schema.segments.c.stream == stream.id, schema.segments.c.id == group[0].segment)
                .values(bytes=schema.segments.c.bytes - saved)
            )
            replaced.append(group)
    return replaced
