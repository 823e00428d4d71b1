"""Writers: store events exactly once, in batches, and note event times.

`Writer.write` passes an event to a background thread, which stores a batch with one file and one transaction.
An event is acknowledged when its batch is stored: when `flush` has returned, or when its number is not above
`acknowledged`. A writer that is opened again with the same id continues after `last_event_number`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from sqlalchemy.engine import Connection

from slackwater._strict_rows import to_array
from slackwater.errors import InvalidArgument, SlackwaterError, WriteFailed, WriterClosed
from slackwater.streams.arguments import check_positive, event_time, positive_duration
from slackwater.streams.log.append import FilesCollected, SegmentsChanged, append
from slackwater.streams.log.catalog import Stream
from slackwater.streams.log.event_columns import Event, EventParser, Events, Keys, as_batches, as_points
from slackwater.streams.log.segment_files import POINT, StagedBatch
from slackwater.streams.log.writer_session import SessionWriter, WriterSession
from slackwater.streams.segments.positions import Position
from slackwater.streams.segments.routing import Points, Routing, RoutingKey, check_key, points_of
from slackwater.streams.time.mark_store import note
from slackwater.streams.time.notes import NoteResult
from slackwater.time import BEGINNING_OF_TIME, SECOND, DurationLike, InstantLike, check_int64

_log = logging.getLogger(__name__)

_ROWS_AT_ONCE: Final = 4_096


@dataclass(frozen=True, slots=True, init=False)
class Batching:
    """When a writer stores a batch.

    Args:
        bytes: Size at which a batch is stored at once.
        interval: Longest time that an event waits, such as ``"100 milliseconds"``.
        buffered: Most bytes that wait to be stored; `Writer.write` blocks while there are more.

    Raises:
        InvalidArgument: A value is not above zero, or the interval has no unit.

    >>> Batching(interval="20 milliseconds").interval  # microseconds
    20000
    """

    bytes: int
    interval: int
    buffered: int

    def __init__(
        self,
        bytes: int = 4 << 20,  # noqa: A002 - the name of the setting
        interval: DurationLike = "100 milliseconds",
        buffered: int = 32 << 20,
    ) -> None:
        fix = "give a number above zero"
        object.__setattr__(self, "bytes", check_positive(bytes, "bytes", fix=fix))
        object.__setattr__(self, "interval", positive_duration(interval, "interval"))
        object.__setattr__(self, "buffered", check_positive(buffered, "buffered", fix=fix))


class PendingEvents:
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
        """Add one event."""
        self._rows.append(values)
        self._keys.append(key)
        self.bytes += size
        if len(self._rows) == _ROWS_AT_ONCE:
            self._gather()

    def add_batch(self, batch: pa.RecordBatch, points: Points) -> None:
        """Add many events."""
        self._gather()
        self._chunks.append((batch, points))
        self.bytes += batch.nbytes

    def _gather(self) -> None:
        if self._rows:
            values = zip(*self._rows, strict=True)
            arrays = [
                to_array(column, field, what="events")
                for column, field in zip(values, self._columns, strict=True)
            ]
            batch = pa.RecordBatch.from_arrays(arrays, schema=self._columns)
            self._chunks.append((batch, points_of(pa.array(self._keys, pa.large_binary()))))
            self._rows, self._keys = [], []

    def content(self) -> tuple[pa.RecordBatch, Points]:
        """All events as one batch, with their points in the key space."""
        self._gather()
        if len(self._chunks) > 1:
            batches = pa.concat_batches([batch for batch, _ in self._chunks])
            self._chunks = [(batches, np.concatenate([points for _, points in self._chunks]))]
        return self._chunks[0]


def stage_batch(
    stream: Stream,
    routing: Routing,
    batch: pa.RecordBatch,
    points: Points,
    *,
    transaction: bool = False,
    not_before: int = BEGINNING_OF_TIME,
) -> list[StagedBatch]:
    """Write events to a file, with one record batch for each segment that they are routed to.

    The file of a transaction also stores the points, because its events may have to be routed again. The
    name of the file has the time of the store, but at least ``not_before``.

    >>> from slackwater.streams.log.catalog import VALUE, Streams
    >>> with Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids", segments=2)
    ...     batch = pa.record_batch([[b"a", b"b"]], schema=VALUE)
    ...     staged = stage_batch(bids, Routing(bids.epochs()), batch, np.array([2**61, 0]))
    ...     [(segment, location.events) for segment, location in staged]
    [(0, 1), (1, 1)]
    """
    if transaction:
        batch = batch.append_column(POINT, pa.array(points))
    split = routing.split(points)
    whole = len(split) == 1
    batches = [batch if whole else batch.take(pa.array(rows)) for _, rows in split]
    at = max(stream.store.now(), not_before)
    locations = stream.folder.write(batches, at=at, transaction=transaction)
    return [(segment, location) for (segment, _), location in zip(split, locations, strict=True)]


class Writer(SessionWriter):
    """Writes events to a stream exactly once, in order for each routing key.

    Args:
        stream: The stream.
        writer: Id of the writer: 1–250 letters, digits, ``.`` and ``-`` (N4). A writer without an id gets a
            random one and cannot be resumed. If a writer with the same id is open elsewhere, that one fails
            with `WriterReplaced`.
        batching: When batches are stored.
        automatically_note_time: Interval at which the wall clock is noted as event time (N3). `note_time`
            raises then.
        timeout: How long the writer waits for a database that cannot be reached, before it fails. Meanwhile
            events are buffered as ``batching`` allows.

    Raises:
        InvalidArgument: The id, the interval or the timeout is not valid.
        UnknownStream: The stream was deleted.

    >>> import slackwater as sw
    >>> with sw.Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids")
    ...     with sw.Writer(bids, "bidder-7") as writer:
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
        timeout: DurationLike = "1 minute",
    ) -> None:
        self._batching = batching or Batching()
        self._note_every = None
        if automatically_note_time is not None:
            self._note_every = positive_duration(automatically_note_time, "automatically_note_time")
        super().__init__(stream, writer, timeout=timeout)
        self.last_event_number = self._session.last_event_number
        """Number of the last event that was stored when this writer was opened."""
        self._written = self.last_event_number
        self._epochs = stream.epochs()
        self._routing = Routing(self._epochs)
        self._parser = EventParser(stream.columns)
        self._pending = PendingEvents(stream.columns)
        self._in_flight = 0
        self._horizon = BEGINNING_OF_TIME  # files created before this may have been collected
        self._oldest: float | None = None
        self._flush_up_to = 0
        self._failure: BaseException | None = None
        self._closing = self._closed = False
        self._has_ended = False  # failed or closed; one check per event
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._thread = threading.Thread(target=self._run, name=f"slackwater writer {self.id}", daemon=True)
        self._thread.start()

    @property
    def acknowledged(self) -> int:
        """Number of the last event that is stored."""
        return self._session.last_event_number

    @property
    def position(self) -> Position:
        """The end of the writer's stored events, in each segment that it has written to."""
        return self._session.position

    # ---- writing

    def write(self, event: Event, key: RoutingKey = None, *, number: int | None = None) -> int:
        """Queue one event to be stored; blocks while too many bytes wait.

        Args:
            event: A mapping from columns to values; for a stream with one column also the bare value.
            key: Routing key. Events with the same key stay in order.
            number: Number of the event, ascending; by default events are numbered from 1. An event whose
                number is not above the last one is skipped, because it was written before.

        Returns:
            The number of the event.

        Raises:
            InvalidArgument: The event does not match the columns, or the key is not text or bytes.
            WriteFailed: An earlier event could not be stored.
            WriterClosed: The writer is closed.
        """
        values, size = self._parser.parse(event)
        if key is not None and not (type(key) is str and key.isascii()):
            check_key(key)
        with self._lock:
            if self._has_ended or self._pending.bytes + self._in_flight >= self._batching.buffered:
                self._wait_for_space()
            numbered = self._written + 1 if number is None else check_int64(number, "number")
            if numbered > self._written:
                self._pending.add_row(values, key, size)
                self._queued(numbered)
        return numbered

    def write_many(self, events: Events, keys: Keys = None, *, number: int | None = None) -> int:
        """Queue many events at once; blocks while too many bytes wait.

        Args:
            events: An Arrow table or record batch, or a sequence of events as `write` takes them.
            keys: Name of the column with the routing keys, or one key per event.
            number: Number of the first event; see `write`.

        Returns:
            The number of the last event.

        Raises:
            InvalidArgument: The events do not match the columns, or the keys are not text or bytes.
            WriteFailed: An earlier event could not be stored.
            WriterClosed: The writer is closed.
        """
        batches = as_batches(events, self.stream.columns)
        points = as_points(keys, *batches)
        last = self._written if number is None else check_int64(number, "number") - 1
        done = 0
        for batch in batches:
            rows = max(1, batch.num_rows * self._batching.bytes // max(1, batch.nbytes))
            for start in range(0, batch.num_rows, rows):
                piece = batch.slice(start, rows)
                with self._changed:
                    self._wait_for_space()
                    first = self._written + 1 if number is None else number + done
                    last = first + piece.num_rows - 1
                    known = max(0, self._written + 1 - first)
                    if last > self._written:
                        routed = points[done + known : done + piece.num_rows]
                        self._pending.add_batch(piece.slice(known), routed)
                        self._queued(last)
                done += piece.num_rows
        return last

    def flush(self) -> None:
        """Wait until all queued events are stored.

        Raises:
            WriteFailed: An event could not be stored.
            WriterClosed: The writer is closed.
        """
        with self._changed:
            self._check()
            wanted = self._written
            self._flush_up_to = max(self._flush_up_to, wanted)
            self._changed.notify_all()
            while self.acknowledged < wanted:
                self._check()
                self._changed.wait()

    # ---- time

    def note_time(self, at: int | InstantLike) -> NoteResult:
        """Flush, then record that all later events of this writer have this event time or a later one (N1).

        Args:
            at: A string or ``datetime`` with a timezone, or an integer of *microseconds* since
                1970-01-01T00:00:00Z. It may equal the last noted time, but not be earlier.

        Returns:
            `NoteResult.OK`, or the reason why nothing was stored (N2).

        Raises:
            InvalidArgument: The writer notes time automatically (N3).
            WriteFailed: An earlier event could not be stored.
        """
        if self._note_every is not None:
            fix = "open the writer without automatically_note_time"
            raise InvalidArgument("note_time", at, "this writer notes time automatically", fix=fix)
        noted = event_time(at)
        self.flush()
        return self._note(noted)

    def mark_idle(self) -> None:
        """Flush, then exclude the writer from marks until it notes a time again (N5)."""
        self.flush()
        self._exclude_from_marks()

    def _note(self, noted: int) -> NoteResult:
        stream = self.stream

        def work(connection: Connection, session: WriterSession) -> NoteResult:
            # repeatable: noting the same time twice has no further effect
            at = stream.store.now(connection)
            return note(connection, stream.id, self.id, noted, session.position, at)

        return self._in_session(work)

    # ---- closing

    def close(self) -> None:
        """Store the queued events, then exclude the writer from marks (N5)."""
        if self._closed:
            return
        try:
            self.flush()
            self._stop()
            self._leave()
        finally:
            self._stop()

    def _stop(self) -> None:
        with self._changed:
            self._closing = self._closed = self._has_ended = True
            self._changed.notify_all()
        self._thread.join()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- called by the caller's thread, under the lock

    def _check(self) -> None:
        if isinstance(self._failure, SlackwaterError):
            raise WriteFailed(self.id, self.acknowledged, str(self._failure)) from self._failure
        if self._failure is not None:
            reason = f"{type(self._failure).__name__}: {self._failure}"
            raise WriteFailed(self.id, self.acknowledged, reason) from self._failure
        if self._closed:
            raise WriterClosed(self.id)

    def _wait_for_space(self) -> None:
        self._check()
        while self._pending.bytes + self._in_flight >= self._batching.buffered:
            self._changed.wait()
            self._check()

    def _queued(self, number: int) -> None:
        self._written = self._pending.last_number = number
        if self._oldest is None:
            self._oldest = time.monotonic()
            self._changed.notify_all()
        elif self._pending.bytes >= self._batching.bytes:
            self._changed.notify_all()

    # ---- run by the background thread

    def _run(self) -> None:
        every = None if self._note_every is None else self._note_every / SECOND
        next_note = None if every is None else time.monotonic() + every
        try:
            while (found := self._next(next_note)) is not None:
                events, noted = found
                if events:
                    self._store(events)
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

    def _next(self, next_note: float | None) -> tuple[PendingEvents, int] | None:
        """Wait for events to store; empty if only the time must be noted, None when the writer closes.

        Returns them with the wall clock, which is read before they are taken: an event that is written after
        that is not among them, and its time is not before the clock that is noted.
        """
        interval = self._batching.interval / SECOND
        with self._changed:
            while True:
                now = time.monotonic()
                due = [
                    moment
                    for moment in (None if self._oldest is None else self._oldest + interval, next_note)
                    if moment is not None
                ]
                full = self._pending.bytes >= self._batching.bytes
                flushed = bool(self._pending) and self._flush_up_to >= self._pending.last_number
                if full or flushed or (due and min(due) <= now):
                    noted = self.stream.clock()
                    events, self._pending = self._pending, PendingEvents(self.stream.columns)
                    self._in_flight, self._oldest = events.bytes, None
                    return events, noted
                if self._closing:
                    return None
                self._changed.wait(min(due) - now if due else None)

    def _store(self, events: PendingEvents) -> None:
        batch, points = events.content()
        while True:
            staged = self._while_unreachable(
                lambda: stage_batch(self.stream, self._routing, batch, points, not_before=self._horizon)
            )
            try:
                self._session = self._while_unreachable(partial(self._append, staged, events.last_number))
            except SegmentsChanged:
                self._epochs = self._while_unreachable(self.stream.epochs)
                self._routing = Routing(self._epochs)
            except FilesCollected as collected:
                # the file is stamped with the horizon, so the next one is old only if the horizon rises again
                self._horizon = collected.horizon
                _log.warning(
                    "writer %s of stream %s rewrites a staged file that may have been deleted as an orphan",
                    self.id,
                    self.stream.name,
                )
            else:
                return
            # nothing names the file, and a writer that must repeat itself must not fill the disk
            with suppress(OSError):
                self.stream.folder.remove_files({location.file for _, location in staged})

    def _append(self, staged: Sequence[StagedBatch], last: int) -> WriterSession:
        def work(connection: Connection) -> WriterSession:
            return append(
                connection, self.stream, self._session, staged, last_event_number=last, epochs=self._epochs
            )

        return self.stream.store.write(work, repeatable=True)

    def _note_clock(self, noted: int) -> None:
        result = self._note(noted)
        if result is not NoteResult.OK:
            _log.warning("writer %s could not note its clock, which went back: %s", self.id, result)
