"""The streams of a store: what they are called, which segments they have, where they begin and end.

Everything that changes the segments of a stream (scaling, truncation) takes the stream's record for itself,
while appends share it: so an append finds its segments as it read them, and a cut is never torn.
"""

from __future__ import annotations

import logging
import re
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec
import pyarrow as pa
import sqlalchemy as sql
from sqlalchemy.engine import Connection, Row
from sqlalchemy.exc import IntegrityError

from slackwater.errors import InvalidArgument, StreamExists, UnknownStream
from slackwater.metadata import store_schema as schema
from slackwater.metadata.store import MetadataStore, open_store
from slackwater.streams.log.cuts import Standing, check_cut, check_not_before, check_reached, compare
from slackwater.streams.log.positions import Position
from slackwater.streams.log.segment_files import DataFolder, check_columns, open_folder
from slackwater.streams.log.segments import Epochs, KeyRange, Segment, even_ranges
from slackwater.streams.log.walking import readable
from slackwater.streams.settings import StreamSettings
from slackwater.streams.time.marks import Mark
from slackwater.streams.time.notes import marks
from slackwater.streams.time.time_windows import mark_at
from slackwater.time import BEGINNING_OF_TIME, InstantLike, check_int64, instant
from slackwater.time import now as wall_clock

BUCKETS: Final = 128
"""Into how many buckets the streams fall, for the controllers to divide."""
VALUE: Final = pa.schema([pa.field("value", pa.binary(), nullable=False)])
"""What an event is if nothing else is said: some bytes."""

_log = logging.getLogger(__name__)

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}/[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """What is on record about a stream, as it was when it was read.

    >>> with Streams.temporary() as streams:
    ...     streams.create("shop/bids").record.columns.names
    ['value']
    """

    id: int
    name: str
    """Scope and name, as ``shop/bids``."""
    columns: pa.Schema
    settings: Mapping[str, Any]
    bucket: int
    epoch: int
    created_at: int
    head: Position
    first_noted_at: int | None
    first_mark: int
    data: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class SegmentState:
    """A segment, the offsets it holds, ``[start, length)``, and how many bytes they take.

    Offsets count events, from 0 on; ``start`` is above 0 where retention removed the first ones.

    >>> with Streams.temporary() as streams:
    ...     [state.length for state in streams.create("shop/bids", segments=2).segments()]
    [0, 0]
    """

    segment: Segment
    start: int
    length: int
    bytes: int
    created_at: int
    sealed_epoch: int | None
    sealed_at: int | None

    @property
    def is_sealed(self) -> bool:
        """Whether it takes no more events."""
        return self.sealed_epoch is not None


class Streams:
    """The streams of one metadata store.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, Streams.open(f"sqlite:///{folder}/store.db") as streams:
    ...     bids = streams.create("shop/bids", segments=2)
    ...     [record.name for record in streams.list()], bids.tail()
    (['shop/bids'], Position({0: 0, 1: 0}))
    """

    def __init__(self, store: MetadataStore, *, clock: Callable[[], int] = wall_clock) -> None:
        self.store = store
        self.clock = clock

    @classmethod
    def open(cls, url: str, *, clock: Callable[[], int] = wall_clock) -> Streams:
        """The streams of the store at an address, which is created if there is none."""
        return cls(open_store(url), clock=clock)

    @classmethod
    @contextmanager
    def temporary(cls, *, clock: Callable[[], int] = wall_clock) -> Iterator[Streams]:
        """Streams in a folder that is removed at the end, for tests and examples."""
        with TemporaryDirectory() as folder, cls.open(f"sqlite:///{folder}/store.db", clock=clock) as streams:
            yield streams

    def close(self) -> None:
        """Closes the connections to the store."""
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
        """A new stream with so many segments, of equal shares of the key space.

        ``columns`` is the schema of its events. ``data`` is where its files are: a folder, or the address of
        one that pyarrow can open; a folder beside the database if the store is embedded.
        """
        scope, stream = scope_and_name(name)
        saved = _saved(settings)
        check_columns(columns := VALUE if columns is None else columns)
        if data is None and not self.store.is_embedded:
            fix = 'give a folder that all hosts share, as data="s3://bucket/streams"'
            raise InvalidArgument(
                "data", None, "is missing, and the store is no file to put it beside", fix=fix
            )
        if data is not None and "://" not in data:
            data = str(Path(data).absolute())  # others may be in another folder when they open it
        made = [Segment(number, 0, *bounds) for number, bounds in enumerate(even_ranges(segments))]
        at = self.clock()
        # by chance, so that none is used twice: who still has a deleted stream open must not find another
        identity = uuid.uuid4().int >> 76
        folder = stream_folder(self.store, data, name, identity)
        try:
            folder.make()
        except OSError as error:
            fix = "give a folder that can be written to"
            shown = data if data is None or "://" not in data else f"{data.partition('://')[0]}://…"
            raise InvalidArgument("data", shown, f"cannot be made: {error}", fix=fix) from None

        def work(connection: Connection) -> None:
            values: dict[str, Any] = {
                "id": identity, "scope": scope, "name": stream, "data": data,
                "columns": columns.serialize().to_pybytes(),
                "settings": saved,
                "bucket": zlib.crc32(name.encode()) % BUCKETS, "epoch": 0, "created_at": at,
                "head": Position.of({segment.id: 0 for segment in made}).save(),
                "first_mark": 0, "collected_before": BEGINNING_OF_TIME, "version": 1,
            }  # fmt: skip
            connection.execute(schema.streams.insert().values(values))
            _insert_segments(connection, identity, made, at)

        try:
            self.store.write(work)
        except IntegrityError:
            folder.remove()
            raise StreamExists(name) from None
        return self.get(name)

    def get(self, name: str) -> Stream:
        """The stream of that name."""
        scope, stream = scope_and_name(name)
        query = sql.select(schema.streams).where(
            schema.streams.c.scope == scope, schema.streams.c.name == stream
        )
        row = self.store.read(lambda connection: connection.execute(query).one_or_none())
        if row is None:
            raise UnknownStream(name)
        return Stream(self.store, _record(row), clock=self.clock)

    def list(self, scope: str | None = None) -> list[StreamRecord]:
        """All streams, or those of one scope, by name."""
        query = sql.select(schema.streams).order_by(schema.streams.c.scope, schema.streams.c.name)
        if scope is not None:
            query = query.where(schema.streams.c.scope == scope)
        return [_record(row) for row in self.store.read(lambda connection: connection.execute(query).all())]

    def delete(self, name: str) -> None:
        """Removes a stream and its events for good; a controller removes files that cannot be removed now."""
        stream = self.get(name)
        record = stream.record

        def work(connection: Connection) -> None:
            gone = schema.streams.delete().where(schema.streams.c.id == stream.id)
            if connection.execute(gone).rowcount:
                values = {"id": record.id, "name": name, "data": record.data, "bucket": record.bucket}
                connection.execute(schema.deleted_streams.insert().values(deleted_at=self.clock(), **values))

        self.store.write(work, repeatable=True)
        try:
            stream.folder.remove()
        except OSError as error:
            _log.warning("the files of stream %s are left to a controller: %s", name, error)


class Stream:
    """One stream: its segments, where it begins and ends, and how it is scaled.

    >>> from slackwater.streams.log.segments import split_range
    >>> with Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids")
    ...     (whole,) = bids.epochs().active
    ...     after = bids.scale([whole.id], split_range((whole.low, whole.high), 2))
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
        """What is on record now."""
        return self.store.read(lambda connection: read_stream(connection, self))

    def segments(self) -> list[SegmentState]:
        """Every segment it ever had, by id."""
        return self.store.read(lambda connection: segment_states(connection, self.id))

    def epochs(self) -> Epochs:
        """The history of its segments."""
        return epochs_of(self.segments())

    def head(self) -> Position:
        """The cut at which what is kept begins."""
        return self.refreshed().head

    def tail(self) -> Position:
        """The cut at which it ends now."""
        query = sql.select(schema.segments.c.id, schema.segments.c.length).where(
            schema.segments.c.stream == self.id, schema.segments.c.sealed_epoch.is_(None)
        )
        rows = self.store.read(lambda connection: connection.execute(query).all())
        return Position.of({row.id: row.length for row in rows})

    def marks(self) -> list[Mark]:
        """Its watermarks that lie at or behind the head, ascending."""

        def work(connection: Connection) -> list[Mark]:
            first = read_stream(connection, self).first_mark
            return list(marks(connection, self.id, first=first).values())

        return self.store.read(work)

    def cut_at(self, time: int | InstantLike) -> Position:
        """Where to start reading to miss nothing that was noted at or after a time."""
        at = check_int64(time, "time") if isinstance(time, int) else instant(time, name="time")
        mark = mark_at(self.marks(), at)
        return self.head() if mark is None else mark.cut

    def configure(self, settings: StreamSettings | Mapping[str, Any]) -> None:
        """Replaces the settings of the stream."""
        change = (
            schema.streams.update()
            .where(schema.streams.c.id == self.id)
            .values(settings=_saved(settings), version=schema.streams.c.version + 1)
        )
        self.store.write(lambda connection: connection.execute(change))

    def scale(self, seal: Iterable[int], ranges: Iterable[KeyRange]) -> Epochs:
        """Replaces segments by new ones that cover the same keys, in a new epoch; the history after it."""
        sealed, wanted, at = list(seal), list(ranges), self.clock()

        def work(connection: Connection) -> Epochs:
            lock_stream(connection, self, alone=True)
            before = epochs_of(segment_states(connection, self.id))
            after = before.scale(sealed, wanted)
            epoch = len(after) - 1
            connection.execute(
                schema.segments.update()
                .where(schema.segments.c.stream == self.id, schema.segments.c.id.in_(sealed))
                .values(sealed_epoch=epoch, sealed_at=at)
            )
            _insert_segments(connection, self.id, [s for s in after.active if s.epoch == epoch], at)
            _change(connection, self.id, epoch=epoch)
            return after

        return self.store.write(work)

    def truncate(self, at: Position) -> Position:
        """Removes what lies before a cut, and the marks that point there; the new head.

        A cut before the head changes nothing. Where the cut of a mark stands on both sides of a segment, the
        head is a little before it, so that nothing after it is lost.
        """

        def work(connection: Connection) -> Position:
            head = Position.load(lock_stream(connection, self, alone=True).head)
            states = {state.segment.id: state for state in segment_states(connection, self.id)}
            epochs = epochs_of(states.values())
            lengths = {identity: state.length for identity, state in states.items()}
            check_reached(check_cut(epochs, at), lengths)
            cut = readable(epochs, at, lengths)
            if compare(head, cut, epochs.segments) is Standing.PASSED:
                return head
            check_not_before(epochs, cut, head, "cut")
            offsets = dict(cut.items())
            inside = [epochs.segment(identity) for identity in offsets]
            for identity, state in states.items():
                passed = any(later.succeeds(state.segment) for later in inside)
                start = offsets.get(identity, state.length if passed else state.start)
                if start > state.start:
                    _drop_events(connection, self.id, identity, start)
            _drop_marks(connection, self.id, cut, epochs)
            _change(connection, self.id, head=cut.save())
            return cut

        return self.store.write(work)


# ---- records


def stream_folder(store: MetadataStore, data: str | None, name: str, identity: int) -> DataFolder:
    """Where the files of a stream are.

    >>> with Streams.temporary() as streams:
    ...     stream_folder(streams.store, None, "shop/bids", 7).files(before=0)
    []
    """
    return open_folder(data if data is not None else f"{store.url.database}.data", f"{name}-{identity}")


def scope_and_name(name: str) -> tuple[str, str]:
    """The two parts of a stream's name.

    >>> scope_and_name("shop/bids")
    ('shop', 'bids')
    >>> scope_and_name("bids")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: stream = 'bids': is no name of a stream; write scope and name, as \
"shop/bids", with letters, digits, ".", "_" and "-"
    """
    if not _NAME.fullmatch(name):
        fix = 'write scope and name, as "shop/bids", with letters, digits, ".", "_" and "-"'
        raise InvalidArgument("stream", name, "is no name of a stream", fix=fix)
    scope, _, stream = name.partition("/")
    return scope, stream


def _saved(settings: StreamSettings | Mapping[str, Any] | None) -> str:
    return msgspec.json.encode(StreamSettings.of(settings).save()).decode()


def _record(row: Row[Any]) -> StreamRecord:
    return StreamRecord(
        id=row.id,
        name=f"{row.scope}/{row.name}",
        columns=pa.ipc.read_schema(pa.py_buffer(row.columns)),
        settings=msgspec.json.decode(row.settings),
        bucket=row.bucket,
        epoch=row.epoch,
        created_at=row.created_at,
        head=Position.load(row.head),
        first_noted_at=row.first_noted_at,
        first_mark=row.first_mark,
        data=row.data,
    )


def lock_stream(connection: Connection, stream: Stream, *, alone: bool) -> Row[Any]:
    """The record of a stream, which nobody changes (``alone``: nobody appends to either) until the end.

    >>> with Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids")
    ...     bids.store.write(lambda connection: lock_stream(connection, bids, alone=True)).name
    'bids'
    """
    query = sql.select(schema.streams).where(schema.streams.c.id == stream.id)
    row = connection.execute(query.with_for_update(read=not alone)).one_or_none()
    if row is None:
        raise UnknownStream(stream.name)
    return row


def read_stream(connection: Connection, stream: Stream) -> StreamRecord:
    """The record of a stream as it is now; it may change at any moment.

    >>> with Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids")
    ...     bids.store.read(lambda connection: read_stream(connection, bids)).epoch
    0
    """
    query = sql.select(schema.streams).where(schema.streams.c.id == stream.id)
    row = connection.execute(query).one_or_none()
    if row is None:
        raise UnknownStream(stream.name)
    return _record(row)


def segment_states(connection: Connection, stream: int) -> list[SegmentState]:
    """The segments of a stream, by id.

    >>> with Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids", segments=3)
    ...     len(bids.store.read(lambda connection: segment_states(connection, bids.id)))
    3
    """
    query = sql.select(schema.segments).where(schema.segments.c.stream == stream)
    return [
        SegmentState(
            Segment(row.number, row.epoch, row.low, row.high),
            row.start, row.length, row.bytes, row.created_at, row.sealed_epoch, row.sealed_at,
        )
        for row in connection.execute(query.order_by(schema.segments.c.id))
    ]  # fmt: skip


def epochs_of(states: Iterable[SegmentState]) -> Epochs:
    """The history of segments from their records.

    >>> with Streams.temporary() as streams:
    ...     len(epochs_of(streams.create("shop/bids", segments=3).segments()))
    1
    """
    known = list(states)
    newest = max((state.segment.epoch for state in known), default=0)
    return Epochs(
        [
            state.segment
            for state in known
            if state.segment.epoch <= epoch and (state.sealed_epoch is None or epoch < state.sealed_epoch)
        ]
        for epoch in range(newest + 1)
    )


def _insert_segments(connection: Connection, stream: int, made: Iterable[Segment], at: int) -> None:
    rows = [
        {
            "stream": stream, "id": segment.id, "number": segment.number, "epoch": segment.epoch,
            "low": segment.low, "high": segment.high, "start": 0, "length": 0, "bytes": 0, "created_at": at,
        }
        for segment in made
    ]  # fmt: skip
    connection.execute(schema.segments.insert(), rows)


def _change(connection: Connection, stream: int, **values: object) -> None:
    change = schema.streams.update().where(schema.streams.c.id == stream)
    connection.execute(change.values(version=schema.streams.c.version + 1, **values))


def _drop_events(connection: Connection, stream: int, segment: int, start: int) -> None:
    """Events below ``start`` are gone; an append that reaches beyond it stays whole, and is read in part."""
    appends = schema.appends.c
    gone = sql.and_(
        appends.stream == stream, appends.segment == segment, appends.first_offset + appends.events <= start
    )
    freed = connection.execute(
        sql.select(sql.func.coalesce(sql.func.sum(appends.size), 0)).where(gone)
    ).scalar_one()
    connection.execute(schema.appends.delete().where(gone))
    connection.execute(
        schema.segments.update()
        .where(schema.segments.c.stream == stream, schema.segments.c.id == segment)
        .values(start=start, bytes=schema.segments.c.bytes - int(freed))
    )


def _drop_marks(connection: Connection, stream: int, head: Position, epochs: Epochs) -> None:
    """Marks that do not lie wholly at or behind the head; the newest stays on record, but is not shown."""
    columns = schema.marks.c
    rows = connection.execute(
        sql.select(columns.number, columns.cut).where(columns.stream == stream).order_by(columns.number)
    ).all()
    kept = next(
        (
            row.number
            for row in rows
            if compare(Position.load(row.cut), head, epochs.segments) is Standing.PASSED
        ),
        rows[-1].number + 1 if rows else 0,
    )
    if rows:
        bound = min(kept, rows[-1].number)
        connection.execute(schema.marks.delete().where(columns.stream == stream, columns.number < bound))
        _change(connection, stream, first_mark=kept)
