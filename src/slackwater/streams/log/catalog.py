"""The catalog: create, list, delete, scale and truncate the streams of a metadata store."""

from __future__ import annotations

import logging
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec
import pyarrow as pa
import sqlalchemy as sql
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from slackwater.errors import InvalidArgument, StreamExists, UnknownStream
from slackwater.metadata import store_schema as schema
from slackwater.metadata.empty_store import copy_empty_store
from slackwater.metadata.store import MetadataStore, open_store
from slackwater.streams.arguments import event_time, scope_and_name
from slackwater.streams.log.segment_files import DataFolder, check_columns, open_folder
from slackwater.streams.log.stream_records import (
    SegmentState,
    StreamRecord,
    epochs_of,
    insert_segments,
    lock_stream,
    read_record,
    remove_marks_before,
    segment_states,
    truncate_segment,
    update_record,
)
from slackwater.streams.segments.cut_traversal import readable_cut
from slackwater.streams.segments.cuts import Standing, check_cut, check_not_before, check_reached, compare
from slackwater.streams.segments.epochs import Epochs, KeyRange, Segment, even_ranges
from slackwater.streams.segments.positions import Position
from slackwater.streams.settings import StreamSettings
from slackwater.streams.time.mark_store import read_marks
from slackwater.streams.time.marks import Mark
from slackwater.streams.time.time_windows import mark_at
from slackwater.time import BEGINNING_OF_TIME, InstantLike
from slackwater.time import now as wall_clock

BUCKETS: Final = 128
"""Number of buckets into which streams are hashed; controllers divide the buckets among themselves (M6)."""
VALUE: Final = pa.schema([pa.field("value", pa.binary(), nullable=False)])
"""Default columns of a stream: one binary value per event."""

_log = logging.getLogger(__name__)


class Streams:
    """The streams of one metadata store.

    Args:
        store: The metadata store. Most callers use `Streams.open` instead.
        clock: Returns the time of this host in microseconds, which writers note automatically. Everything
            that processes compare with each other is by the clock of the store.

    >>> import slackwater as sw
    >>> from tempfile import TemporaryDirectory
    >>> with (
    ...     TemporaryDirectory() as folder,
    ...     sw.Streams.open(f"sqlite:///{folder}/store.db", create=True) as streams,
    ... ):
    ...     bids = streams.create("shop/bids", segments=2)
    ...     [record.name for record in streams.list()], bids.tail()
    (['shop/bids'], Position({0: 0, 1: 0}))
    """

    def __init__(self, store: MetadataStore, *, clock: Callable[[], int] = wall_clock) -> None:
        self.store = store
        self.clock = clock

    @classmethod
    def open(cls, url: str, *, create: bool = False, clock: Callable[[], int] | None = None) -> Streams:
        """Open the streams of a store; an older store is upgraded.

        Args:
            url: Database URL, such as ``sqlite:///shop.db`` or ``postgresql://user@host/database``.
            create: Whether to create the store if there is none.
            clock: Returns the current time in microseconds, in place of the clocks of this host and of the
                store; tests pass their own.

        Returns:
            The streams. Close them, or use them in a ``with`` block.

        Raises:
            UnknownStore: There is no store at this address, and ``create`` is false.
            StoreUnavailable: The database cannot be reached.
            UnknownSchemaVersion: The store was made by a newer release.
        """
        return cls(open_store(url, create=create, clock=clock), clock=clock or wall_clock)

    @classmethod
    @contextmanager
    def temporary(cls, *, clock: Callable[[], int] | None = None) -> Iterator[Streams]:
        """Open streams in a temporary folder that is removed at the end, for tests and examples.

        Args:
            clock: Returns the current time in microseconds since 1970; by default the system clock.
        """
        with (
            TemporaryDirectory() as folder,
            cls.open(copy_empty_store(folder), clock=clock) as streams,
        ):
            yield streams

    def close(self) -> None:
        """Close the connections to the store."""
        self.store.close()

    def __enter__(self) -> Streams:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def create(
        self,
        name: str,
        *,
        segments: int = 1,
        columns: pa.Schema | None = None,
        data: str | None = None,
        settings: StreamSettings | Mapping[str, Any] | None = None,
    ) -> Stream:
        """Create a stream.

        Args:
            name: Scope and name, as in ``shop/bids``.
            segments: Number of segments; they divide the key space evenly.
            columns: Arrow schema of the events; by default one binary column ``value``.
            data: Folder of the data files: a local path, or a URI that pyarrow can open. A SQLite store
                defaults to a folder next to the database file.
            settings: Marks, retention and scaling.

        Returns:
            The new stream.

        Raises:
            StreamExists: A stream with this name exists.
            InvalidArgument: An argument is not valid, or the folder cannot be created.
        """
        scope, stream = scope_and_name(name)
        saved = _saved(settings)
        check_columns(columns := VALUE if columns is None else columns)
        if data is None and not self.store.is_embedded:
            fix = 'give a folder that all hosts can reach, as in data="s3://bucket/streams"'
            raise InvalidArgument("data", None, "is required unless the store is SQLite", fix=fix)
        if data is not None and "://" not in data:
            data = str(Path(data).absolute())  # other processes may have another working directory
        made = [Segment(number, 0, *bounds) for number, bounds in enumerate(even_ranges(segments))]
        # random, so that ids are never reused: a process that has a deleted stream open must not reach a new
        # one
        identity = uuid.uuid4().int >> 76
        folder = stream_folder(self.store, data, name, identity)
        try:
            folder.make()
        except OSError as error:
            fix = "give a folder that can be written to"
            shown = data if data is None or "://" not in data else f"{data.partition('://')[0]}://…"
            raise InvalidArgument("data", shown, f"cannot be created: {error}", fix=fix) from None

        def work(connection: Connection) -> None:
            at = self.store.now(connection)
            values: dict[str, Any] = {
                "id": identity, "scope": scope, "name": stream, "data": data,
                "columns": columns.serialize().to_pybytes(),
                "settings": saved,
                "bucket": zlib.crc32(name.encode()) % BUCKETS, "epoch": 0, "created_at": at,
                "head": Position.of({segment.id: 0 for segment in made}).save(),
                "first_mark": 0, "collected_before": BEGINNING_OF_TIME, "version": 1,
            }  # fmt: skip
            connection.execute(schema.streams.insert().values(values))
            insert_segments(connection, identity, made, at)

        try:
            self.store.write(work)
        except IntegrityError:
            folder.remove()
            raise StreamExists(name) from None
        return self.get(name)

    def get(self, name: str) -> Stream:
        """Open a stream by name.

        Args:
            name: Scope and name, as in ``shop/bids``.

        Raises:
            UnknownStream: The stream does not exist.
        """
        scope, stream = scope_and_name(name)
        query = sql.select(schema.streams).where(
            schema.streams.c.scope == scope, schema.streams.c.name == stream
        )
        row = self.store.read(lambda connection: connection.execute(query).one_or_none())
        if row is None:
            raise UnknownStream(name)
        return Stream(self.store, StreamRecord.of(row), clock=self.clock)

    def list(self, scope: str | None = None) -> list[StreamRecord]:
        """List the records of all streams, or of one scope, ordered by name.

        Args:
            scope: The scope; by default all scopes.
        """
        query = sql.select(schema.streams).order_by(schema.streams.c.scope, schema.streams.c.name)
        if scope is not None:
            query = query.where(schema.streams.c.scope == scope)
        rows = self.store.read(lambda connection: connection.execute(query).all())
        return [StreamRecord.of(row) for row in rows]

    def delete(self, name: str) -> None:
        """Delete a stream with its events; a controller deletes files that cannot be deleted now.

        Args:
            name: Scope and name, as in ``shop/bids``.

        Raises:
            UnknownStream: The stream does not exist.
        """
        stream = self.get(name)
        record = stream.record

        def work(connection: Connection) -> None:
            removal = schema.streams.delete().where(schema.streams.c.id == stream.id)
            deleted_at = self.store.now(connection)
            if connection.execute(removal).rowcount:
                values = {"id": record.id, "name": name, "data": record.data, "bucket": record.bucket}
                connection.execute(schema.deleted_streams.insert().values(deleted_at=deleted_at, **values))

        self.store.write(work, repeatable=True)
        try:
            stream.folder.remove()
        except OSError as error:
            _log.warning("could not delete the files of stream %s, a controller retries: %s", name, error)


class Stream:
    """One stream; made by `Streams.create` and `Streams.get`.

    >>> import slackwater as sw
    >>> with sw.Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids")
    ...     (whole,) = bids.epochs().active
    ...     middle = (whole.low + whole.high) // 2
    ...     after = bids.scale([whole.id], [(whole.low, middle), (middle, whole.high)])
    ...     [(segment.number, segment.epoch) for segment in after.active]
    [(1, 1), (2, 1)]
    """

    def __init__(
        self, store: MetadataStore, record: StreamRecord, *, clock: Callable[[], int] = wall_clock
    ) -> None:
        self.store = store
        self.record = record
        self.clock = clock
        self.id = record.id
        self.name = record.name
        self.columns = record.columns
        self.folder = stream_folder(store, record.data, record.name, record.id)

    def refreshed(self) -> StreamRecord:
        """Read the current record of the stream."""
        return self.store.read(lambda connection: read_record(connection, self.record))

    def segments(self) -> list[SegmentState]:
        """All segments of all epochs, by id."""
        return self.store.read(lambda connection: segment_states(connection, self.id))

    def epochs(self) -> Epochs:
        """The history of the segments."""
        return epochs_of(self.segments())

    def head(self) -> Position:
        """The cut at which the kept events begin."""
        return self.refreshed().head

    def tail(self) -> Position:
        """The cut at which the stream ends now."""
        query = sql.select(schema.segments.c.id, schema.segments.c.length).where(
            schema.segments.c.stream == self.id, schema.segments.c.sealed_epoch.is_(None)
        )
        rows = self.store.read(lambda connection: connection.execute(query).all())
        return Position.of({row.id: row.length for row in rows})

    def marks(self) -> list[Mark]:
        """The marks at or after the head, ascending."""

        def work(connection: Connection) -> list[Mark]:
            first = read_record(connection, self.record).first_mark
            return list(read_marks(connection, self.id, first=first).values())

        return self.store.read(work)

    def cut_at(self, time: int | InstantLike) -> Position:
        """The latest cut from which a reader misses no event noted at or after a time.

        Args:
            time: A string or ``datetime`` with a timezone, or an integer of *microseconds* since
                1970-01-01T00:00:00Z.

        Returns:
            The cut of the newest mark whose upper bound is at or before the time, or the head.
        """
        mark = mark_at(self.marks(), event_time(time))
        return self.head() if mark is None else mark.cut

    def configure(self, settings: StreamSettings | Mapping[str, Any]) -> None:
        """Replace the settings of the stream; settings that are not given take their default."""
        saved = _saved(settings)
        self.store.write(lambda connection: update_record(connection, self.id, settings=saved))

    def scale(self, seal: Iterable[int], ranges: Iterable[KeyRange]) -> Epochs:
        """Replace segments by new ones that cover the same keys, in a new epoch.

        Args:
            seal: Ids of the active segments to seal.
            ranges: Key ranges of the new segments, in points of the key space.

        Returns:
            The history of the segments with the new epoch.

        Raises:
            InvalidArgument: A segment is not active, or the ranges do not cover the same keys.
        """
        sealed, wanted = list(seal), list(ranges)

        def work(connection: Connection) -> Epochs:
            lock_stream(connection, self.record, exclusive=True)
            at = self.store.now(connection)
            before = epochs_of(segment_states(connection, self.id))
            after = before.scale(sealed, wanted)
            epoch = len(after) - 1
            connection.execute(
                schema.segments.update()
                .where(schema.segments.c.stream == self.id, schema.segments.c.id.in_(sealed))
                .values(sealed_epoch=epoch, sealed_at=at)
            )
            insert_segments(connection, self.id, [s for s in after.active if s.epoch == epoch], at)
            update_record(connection, self.id, epoch=epoch)
            return after

        return self.store.write(work)

    def truncate(self, at: Position) -> Position:
        """Remove the events before a cut, and the marks that are not after it.

        Args:
            at: The cut. One before the head changes nothing.

        Returns:
            The new head. It is before the cut where the cut is on both sides of a segment, so that no event
            after the cut is lost.

        Raises:
            InvalidArgument: The cut does not cover the key space, or is beyond the end of the stream.
        """

        def work(connection: Connection) -> Position:
            head = Position.load(lock_stream(connection, self.record, exclusive=True).head)
            states = {state.segment.id: state for state in segment_states(connection, self.id)}
            epochs = epochs_of(states.values())
            lengths = {identity: state.length for identity, state in states.items()}
            check_reached(check_cut(epochs, at), lengths)
            cut = readable_cut(epochs, at, lengths)
            if compare(head, cut, epochs.segments) is Standing.PASSED:
                return head
            check_not_before(epochs, cut, head, "cut")
            offsets = dict(cut.items())
            inside = [epochs.segment(identity) for identity in offsets]
            for identity, state in states.items():
                passed = any(later.succeeds(state.segment) for later in inside)
                start = offsets.get(identity, state.length if passed else state.start)
                if start > state.start:
                    truncate_segment(connection, self.id, identity, start)
            remove_marks_before(connection, self.id, cut, epochs)
            update_record(connection, self.id, head=cut.save())
            return cut

        return self.store.write(work)


def stream_folder(store: MetadataStore, data: str | None, name: str, identity: int) -> DataFolder:
    """The folder with the data files of a stream."""
    return open_folder(data if data is not None else f"{store.url.database}.data", f"{name}-{identity}")


def _saved(settings: StreamSettings | Mapping[str, Any] | None) -> str:
    return msgspec.json.encode(StreamSettings.of(settings).save()).decode()
