"""Writers: events in, batched by size and time, stored exactly once, and how far they are in time.

`Writer.write` hands an event to a thread of its own, which stores a batch with one file and one transaction.
An event is acknowledged when its batch is stored: when `flush` returns, or when its number is not above
`acknowledged`. A writer that comes back under its id goes on after `last_event_number`.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
from sqlalchemy.engine import Connection

from slackwater.errors import InvalidArgument, SlackwaterError, WriteFailed, WriterClosed
from slackwater.streams.log.append import (
    FilesCollected,
    SegmentsChanged,
    Session,
    append,
    check_session,
    forget_session,
    open_session,
)
from slackwater.streams.log.catalog import Stream
from slackwater.streams.log.event_columns import Event, Events, Keys, Rows, as_batch, as_points
from slackwater.streams.log.positions import Position
from slackwater.streams.log.routing import Points, Routing, RoutingKey, check_key, points_of
from slackwater.streams.log.segment_files import POINT, Part
from slackwater.streams.time.marks import NoteResult, check_writer_id
from slackwater.streams.time.notes import close_writer, note
from slackwater.time import MILLISECOND, SECOND, DurationLike, InstantLike, check_int64, duration, instant

_log = logging.getLogger(__name__)

Result = TypeVar("Result")

_ROWS_AT_ONCE: Final = 4_096


@dataclass(frozen=True, slots=True)
class Batching:
    """When a batch is stored: at so many bytes, or so long after its first event.

    ``buffered`` bounds the bytes that wait; a writer that has more waits itself.

    >>> Batching(interval=20 * MILLISECOND).bytes
    4194304
    """

    bytes: int = 4 << 20
    interval: int = 100 * MILLISECOND
    buffered: int = 32 << 20

    def __post_init__(self) -> None:
        for name in ("bytes", "interval", "buffered"):
            if check_int64(getattr(self, name), name) <= 0:
                fix = "give a number above zero"
                raise InvalidArgument(name, getattr(self, name), "must be greater than zero", fix=fix)


class Buffer:
    """Events that wait to be stored, in their order."""

    def __init__(self, columns: pa.Schema) -> None:
        self._columns = columns
        self._chunks: list[tuple[pa.RecordBatch, Points]] = []
        self._rows: list[list[Any]] = []
        self._keys: list[RoutingKey] = []
        self.bytes = 0
        self.last_number = 0

    def __bool__(self) -> bool:
        return bool(self._chunks or self._rows)

    def add_row(self, values: list[Any], key: RoutingKey, size: int) -> None:
        """One event."""
        self._rows.append(values)
        self._keys.append(key)
        self.bytes += size
        if len(self._rows) == _ROWS_AT_ONCE:
            self._gather()

    def add_batch(self, batch: pa.RecordBatch, points: Points) -> None:
        """Many events."""
        self._gather()
        self._chunks.append((batch, points))
        self.bytes += batch.nbytes

    def _gather(self) -> None:
        if self._rows:
            values = zip(*self._rows, strict=True)
            arrays = [
                pa.array(column, field.type) for column, field in zip(values, self._columns, strict=True)
            ]
            batch = pa.RecordBatch.from_arrays(arrays, schema=self._columns)
            self._chunks.append((batch, points_of(pa.array(self._keys, pa.large_binary()))))
            self._rows, self._keys = [], []

    def content(self) -> tuple[pa.RecordBatch, Points]:
        """All events as one batch, and their points."""
        self._gather()
        if len(self._chunks) > 1:
            batches = pa.concat_batches([batch for batch, _ in self._chunks])
            self._chunks = [(batches, np.concatenate([points for _, points in self._chunks]))]
        return self._chunks[0]


def write_parts(
    stream: Stream, routing: Routing, batch: pa.RecordBatch, points: Points, *, transaction: bool = False
) -> list[tuple[int, Part]]:
    """Writes a file with a part for each segment that gets events of the batch.

    The file of a transaction keeps the points, because it may have to be routed again.

    >>> from slackwater.streams.log.catalog import VALUE, Streams
    >>> with Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids", segments=2)
    ...     batch = pa.record_batch([[b"a", b"b"]], schema=VALUE)
    ...     parts = write_parts(bids, Routing(bids.epochs()), batch, np.array([2**61, 0]))
    ...     [(segment, part.events) for segment, part in parts]
    [(0, 1), (1, 1)]
    """
    if transaction:
        batch = batch.append_column(POINT, pa.array(points))
    split = routing.split(points)
    whole = len(split) == 1
    batches = [batch if whole else batch.take(pa.array(rows)) for _, rows in split]
    parts = stream.folder.write(batches, at=stream.clock(), transaction=transaction)
    return [(segment, part) for (segment, _), part in zip(split, parts, strict=True)]


class Writer:
    """Writes events to a stream, each once, in order for each routing key.

    ``writer`` is its id; with none it draws one, and cannot be resumed. While a writer with an id is open, no
    second one with the same id may be: the older one fails with `WriterReplaced`.
    ``automatically_note_time`` notes the wall clock at this interval; it cannot be noted otherwise then.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids")
    ...     with Writer(bids, "bidder-7") as writer:
    ...         number = writer.write(b"100", key="auction 5")
    ...         writer.note_time("2024-01-01T00:00:00Z"), writer.acknowledged, writer.position
    (<NoteResult.OK: 'ok'>, 1, Position({0: 1}))
    """

    def __init__(
        self,
        stream: Stream,
        writer: str | None = None,
        *,
        batching: Batching | None = None,
        automatically_note_time: DurationLike | None = None,
    ) -> None:
        self.id = check_writer_id(writer) if writer is not None else uuid.uuid4().hex
        self._is_unnamed = writer is None
        self._stream = stream
        self._batching = batching or Batching()
        self._note_every = None
        if automatically_note_time is not None:
            self._note_every = duration(automatically_note_time, name="automatically_note_time")
            if self._note_every <= 0:
                fix = 'write it like "1 second"'
                reason = "must be greater than zero"
                raise InvalidArgument("automatically_note_time", automatically_note_time, reason, fix=fix)
        self._session = stream.store.write(
            lambda connection: open_session(connection, stream, self.id, at=stream.clock())
        )
        self.last_event_number = self._session.last_event_number
        """The number of the last event that was stored when this writer was opened."""
        self._written = self.last_event_number
        self._epochs = stream.epochs()
        self._routing = Routing(self._epochs)
        self._rows = Rows(stream.columns)
        self._buffer = Buffer(stream.columns)
        self._in_flight = 0
        self._oldest: float | None = None
        self._wanted = 0
        self._failure: BaseException | None = None
        self._closing = self._closed = False
        self._has_ended = False  # by either of them: one look for each event
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._thread = threading.Thread(target=self._run, name=f"slackwater writer {self.id}", daemon=True)
        self._thread.start()

    @property
    def acknowledged(self) -> int:
        """The number of the last event that is stored."""
        return self._session.last_event_number

    @property
    def position(self) -> Position:
        """Where the writer's stored events end, in each segment it has written to."""
        return self._session.position

    # ---- writing

    def write(self, event: Event, key: RoutingKey = None, *, number: int | None = None) -> int:
        """Takes one event, to be stored soon; its number.

        Events are numbered from 1 on, unless the caller numbers them, ascending. One whose number is not
        above that of an earlier one is there already and is left out.
        """
        values, size = self._rows.row(event)
        if key is not None and not (type(key) is str and key.isascii()):
            check_key(key)
        with self._lock:
            if self._has_ended or self._buffer.bytes + self._in_flight >= self._batching.buffered:
                self._wait_for_room()
            numbered = self._written + 1 if number is None else check_int64(number, "number")
            if numbered > self._written:
                self._buffer.add_row(values, key, size)
                self._taken(numbered)
        return numbered

    def write_many(self, events: Events, keys: Keys = None, *, number: int | None = None) -> int:
        """Takes many events at once; the number of the last of them.

        ``keys`` names the column that holds the routing keys, or gives one for each event. ``number`` is that
        of the first event.
        """
        batch = as_batch(events, self._stream.columns)
        points = as_points(keys, batch)
        rows = max(1, batch.num_rows * self._batching.bytes // max(1, batch.nbytes))
        last = self._written if number is None else check_int64(number, "number") - 1
        for start in range(0, batch.num_rows, rows):
            with self._changed:
                self._wait_for_room()
                first = self._written + 1 if number is None else number + start
                last = first + min(rows, batch.num_rows - start) - 1
                known = start + max(0, self._written + 1 - first)
                if last > self._written:
                    end = start + rows
                    self._buffer.add_batch(batch.slice(known, end - known), points[known:end])
                    self._taken(last)
        return last

    def flush(self) -> None:
        """Returns once every event that was taken is stored."""
        with self._changed:
            self._check()
            wanted = self._written
            self._wanted = max(self._wanted, wanted)
            self._changed.notify_all()
            while self.acknowledged < wanted:
                self._check()
                self._changed.wait()

    # ---- time

    def note_time(self, at: int | InstantLike) -> NoteResult:
        """Says that events from here on have times at or after this one; flushes first (N1).

        Anything but `NoteResult.OK` is a refusal, and stored nothing (N2).
        """
        if self._note_every is not None:
            fix = "open the writer without automatically_note_time"
            raise InvalidArgument("note_time", at, "is noted automatically by this writer", fix=fix)
        noted = check_int64(at, "time") if isinstance(at, int) else instant(at, name="time")
        self.flush()
        return self._note(noted)

    def mark_idle(self) -> None:
        """Takes the writer out of the aggregation, until it notes a time again (N5)."""
        self.flush()
        self._in_session(lambda connection, _: close_writer(connection, self._stream.id, self.id))

    def _note(self, noted: int) -> NoteResult:
        stream = self._stream

        def work(connection: Connection, session: Session) -> NoteResult:
            return note(connection, stream.id, self.id, noted, session.position, stream.clock())

        return self._in_session(work)

    def _in_session(self, work: Callable[[Connection, Session], Result]) -> Result:
        def checked(connection: Connection) -> Result:
            return work(connection, check_session(connection, self._stream, self._session))

        # a note that is repeated replaces itself
        return self._stream.store.write(checked, repeatable=True)

    # ---- the end

    def close(self) -> None:
        """Stores what is left, and takes the writer out of the aggregation (N5)."""
        if self._closed:
            return
        try:
            self.flush()
            self._stop()
            self._in_session(self._leave)
        finally:
            self._stop()

    def _leave(self, connection: Connection, _: Session) -> None:
        close_writer(connection, self._stream.id, self.id)
        if self._is_unnamed:
            forget_session(connection, self._stream, self._session)

    def _stop(self) -> None:
        with self._changed:
            self._closing = self._closed = self._has_ended = True
            self._changed.notify_all()
        self._thread.join()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- between the caller and the thread

    def _check(self) -> None:
        if isinstance(self._failure, SlackwaterError):
            raise WriteFailed(self.id, self.acknowledged, str(self._failure)) from self._failure
        if self._failure is not None:
            reason = f"{type(self._failure).__name__}: {self._failure}"
            raise WriteFailed(self.id, self.acknowledged, reason) from self._failure
        if self._closed:
            raise WriterClosed(self.id)

    def _wait_for_room(self) -> None:
        self._check()
        while self._buffer.bytes + self._in_flight >= self._batching.buffered:
            self._changed.wait()
            self._check()

    def _taken(self, number: int) -> None:
        self._written = self._buffer.last_number = number
        if self._oldest is None:
            self._oldest = time.monotonic()
            self._changed.notify_all()
        elif self._buffer.bytes >= self._batching.bytes:
            self._changed.notify_all()

    # ---- the thread

    def _run(self) -> None:
        every = None if self._note_every is None else self._note_every / SECOND
        next_note = None if every is None else time.monotonic() + every
        try:
            while (buffer := self._next(next_note)) is not None:
                noted = self._stream.clock()
                if buffer:
                    self._send(buffer)
                with self._changed:
                    self._in_flight = 0
                    self._changed.notify_all()
                if every is not None and next_note is not None and time.monotonic() >= next_note:
                    self._note_clock(noted)
                    next_note = time.monotonic() + every
        except BaseException as error:
            with self._changed:
                self._failure, self._has_ended = error, True
                self._changed.notify_all()

    def _next(self, next_note: float | None) -> Buffer | None:
        """What is to be stored now, empty if only the time is to be noted; None at the end."""
        interval = self._batching.interval / SECOND
        with self._changed:
            while True:
                now = time.monotonic()
                due = [
                    moment
                    for moment in (None if self._oldest is None else self._oldest + interval, next_note)
                    if moment is not None
                ]
                full = self._buffer.bytes >= self._batching.bytes
                flushed = bool(self._buffer) and self._wanted >= self._buffer.last_number
                if full or flushed or (due and min(due) <= now):
                    buffer, self._buffer = self._buffer, Buffer(self._stream.columns)
                    self._in_flight, self._oldest = buffer.bytes, None
                    return buffer
                if self._closing:
                    return None
                self._changed.wait(min(due) - now if due else None)

    def _send(self, buffer: Buffer) -> None:
        batch, points = buffer.content()
        stream = self._stream
        while True:
            parts = write_parts(stream, self._routing, batch, points)
            try:
                session = stream.store.write(
                    lambda connection, parts=parts: append(  # type: ignore[misc]  # bound now
                        connection, stream, self._session, parts,
                        last_event_number=buffer.last_number, epochs=self._epochs, at=stream.clock(),
                    ),
                    repeatable=True,
                )  # fmt: skip
            except SegmentsChanged:
                self._epochs = stream.epochs()
                self._routing = Routing(self._epochs)
            except FilesCollected:
                _log.warning("writer %s took long, and writes a file of %s again", self.id, stream.name)
            else:
                self._session = session
                return

    def _note_clock(self, noted: int) -> None:
        result = self._note(noted)
        if result is not NoteResult.OK:
            _log.warning("the clock of writer %s went back: %s", self.id, result)
