"""Transactions: events that become visible together at the commit, in all segments, or never.

Until the commit the events are in staged files that no record names. A transaction that is aborted, expires,
or whose process dies leaves only such files, which are collected. A commit is an append with all files of the
transaction, so it is atomic and exactly-once in the same way; the event numbers of a transactional writer
count its commits.
"""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Sequence

import pyarrow as pa
from sqlalchemy.engine import Connection

from slackwater.errors import (
    CommitUnknown,
    CorruptSegment,
    StoreUnavailable,
    StreamError,
    TransactionEnded,
)
from slackwater.streams.arguments import event_time, positive_duration
from slackwater.streams.log.append import FilesCollected, SegmentsChanged, append
from slackwater.streams.log.catalog import Stream
from slackwater.streams.log.event_columns import Event, EventParser, Events, Keys, as_batch, as_points
from slackwater.streams.log.segment_files import POINT, DamagedFile, StagedBatch
from slackwater.streams.log.stream_records import lock_stream
from slackwater.streams.log.writer import Batching, PendingEvents, stage_batch
from slackwater.streams.log.writer_session import SessionWriter, WriterSession, check_session
from slackwater.streams.segments.epochs import Epochs
from slackwater.streams.segments.routing import Routing, RoutingKey, check_key
from slackwater.streams.time.marks import NoteResult
from slackwater.streams.time.notes import note
from slackwater.time import DurationLike, InstantLike, check_int64


class _InvalidNote(Exception):
    """Rolls back a commit whose time is invalid."""

    def __init__(self, result: NoteResult) -> None:
        self.result = result


class TransactionalWriter(SessionWriter):
    """Writes transactions to a stream.

    A writer that is opened again with the same id finds in `last_event_number` how many of its transactions
    were committed, including a last one whose response was lost.

    Args:
        stream: The stream.
        writer: Id of the writer: 1–250 letters, digits, ``.`` and ``-`` (N4). A writer without an id gets a
            random one and cannot be resumed.
        expires_after: Time after its begin at which an open transaction expires.
        batching: Size at which events of an open transaction are written to a file.

    Raises:
        InvalidArgument: The id or the duration is not valid.
        UnknownStream: The stream was deleted.

    >>> import slackwater as sw
    >>> with sw.Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids", segments=4)
    ...     with sw.TransactionalWriter(bids, "loader") as writer:
    ...         transaction = writer.begin()
    ...         transaction.write_many([b"1", b"2"], keys=["a", "b"])
    ...         before = sum(dict(bids.tail().items()).values())
    ...         print(transaction.commit("2024-01-01T00:00:00Z"), writer.last_event_number)
    ...     before, sum(dict(bids.tail().items()).values())
    ok 1
    (0, 2)
    """

    def __init__(
        self,
        stream: Stream,
        writer: str | None = None,
        *,
        expires_after: DurationLike = "1 hour",
        batching: Batching | None = None,
    ) -> None:
        self.batching = batching or Batching()
        self.expires_after = positive_duration(expires_after, "expires_after")
        super().__init__(stream, writer)
        self._uncertain: Sequence[StagedBatch] | None = None

    @property
    def last_event_number(self) -> int:
        """Number of the last transaction that was committed."""
        return self._session.last_event_number

    def begin(self) -> Transaction:
        """Begin a transaction; several may be open at the same time."""
        return Transaction(self)

    def commit_staged(
        self,
        staged: Sequence[StagedBatch],
        *,
        time: int | InstantLike | None = None,
        number: int | None = None,
    ) -> NoteResult:
        """Commit files that other processes wrote with `stage_batch`, such as the tasks of a Spark job.

        Args:
            staged: Segments and locations of the batches.
            time: Event time to note with the commit.
            number: Number of the commit; by default the next one. If it was committed before, nothing
                changes.

        Returns:
            `NoteResult.OK`, or the reason why the time is invalid; nothing was committed then.

        Raises:
            StoreUnavailable: The connection was lost, so it is unknown whether the commit was stored. Commit
                the same batches again.
            CommitUnknown: An earlier commit is in that state, and must be repeated first.
            StreamError: The files are so old that they may have been collected.
        """
        if number is None and self._uncertain is not None and self._uncertain is not staged:
            # the number of that commit must not be used again
            raise CommitUnknown(self.id)
        at = None if time is None else event_time(time)
        wanted = self.last_event_number + 1 if number is None else check_int64(number, "number")
        if not staged and at is None and number is None:
            return NoteResult.OK
        routed = list(staged)
        epochs = self.stream.epochs()
        while True:
            try:
                self._session = self.stream.store.write(
                    lambda connection, routed=routed, epochs=epochs: self._commit(  # type: ignore[misc]  # bound now
                        connection, routed, epochs, wanted, at
                    ),
                    repeatable=True,
                )
            except SegmentsChanged:
                epochs = self.stream.epochs()
                routed = self._rerouted(routed, epochs)
            except FilesCollected:
                reason = "its files are so old that they may have been collected"
                raise StreamError(f"writer {self.id!r} cannot commit: {reason}; write them again") from None
            except StoreUnavailable:
                self._uncertain = staged
                raise
            except _InvalidNote as invalid:
                self._uncertain = None
                return invalid.result
            else:
                self._uncertain = None
                return NoteResult.OK

    def commit_parts(
        self,
        parts: Sequence[StagedBatch],
        *,
        time: int | InstantLike | None = None,
        number: int | None = None,
    ) -> NoteResult:
        """Deprecated alias of `commit_staged`."""
        warnings.warn("commit_parts() is now commit_staged()", DeprecationWarning, stacklevel=2)
        return self.commit_staged(parts, time=time, number=number)

    def is_uncertain(self, staged: Sequence[StagedBatch]) -> bool:
        """Whether it is unknown if these batches were committed."""
        return self._uncertain is staged

    def mark_idle(self) -> None:
        """Exclude the writer from marks until it commits with a time again (N5)."""
        self._exclude_from_marks()

    def close(self) -> None:
        """Exclude the writer from marks (N5); open transactions are never committed."""
        self._leave()

    def __enter__(self) -> TransactionalWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _commit(
        self,
        connection: Connection,
        staged: Sequence[StagedBatch],
        epochs: Epochs,
        number: int,
        time: int | None,
    ) -> WriterSession:
        lock_stream(connection, self.stream.record, exclusive=False)
        before = check_session(connection, self.stream, self._session)
        if before.last_event_number >= number:
            return before
        at = self.stream.clock()
        after = append(
            connection, self.stream, self._session, staged, last_event_number=number, epochs=epochs, at=at
        )
        if time is not None:
            result = note(connection, self.stream.id, self.id, time, after.position, at)
            if result is not NoteResult.OK:
                raise _InvalidNote(result)
        return after

    def _rerouted(self, staged: Sequence[StagedBatch], epochs: Epochs) -> list[StagedBatch]:
        """Write the batches of sealed segments again, for the segments that succeeded them."""
        routing = Routing(epochs)
        routed: list[StagedBatch] = []
        for segment, location in staged:
            if not epochs.is_sealed(segment):
                routed.append((segment, location))
                continue
            try:
                batch = self.stream.folder.read(location, self.stream.columns)
            except DamagedFile as damaged:
                raise CorruptSegment(self.stream.name, segment, 0, location.file, str(damaged)) from None
            points = batch.column(POINT).to_numpy()
            events = pa.RecordBatch.from_arrays(batch.columns[:-1], schema=self.stream.columns)
            routed += stage_batch(self.stream, routing, events, points, transaction=True)
        return routed


class Transaction:
    """Events that are committed together; made by `TransactionalWriter.begin`."""

    def __init__(self, writer: TransactionalWriter) -> None:
        self._writer = writer
        self._stream = writer.stream
        self._expires_at = writer.stream.clock() + writer.expires_after
        self._routing = Routing(self._stream.epochs())
        self._parser = EventParser(self._stream.columns)
        self._pending = PendingEvents(self._stream.columns)
        self._staged: list[StagedBatch] = []
        self._state = "open"
        self.id = uuid.uuid4().hex

    @property
    def state(self) -> str:
        """``open``, ``committed``, ``aborted`` or ``expired``."""
        if self._state == "open" and self._stream.clock() >= self._expires_at:
            self._state = "expired"
        return self._state

    def write(self, event: Event, key: RoutingKey = None) -> None:
        """Add one event.

        Args:
            event: A mapping from columns to values; for a stream with one column also the bare value.
            key: Routing key.

        Raises:
            TransactionEnded: The transaction is no longer open.
        """
        self._check_open()
        values, size = self._parser.parse(event)
        check_key(key)
        self._pending.add_row(values, key, size)
        if self._pending.bytes >= self._writer.batching.bytes:
            self.flush()

    def write_many(self, events: Events, keys: Keys = None) -> None:
        """Add many events.

        Args:
            events: An Arrow table or record batch, or a sequence of events.
            keys: Name of the column with the routing keys, or one key per event.

        Raises:
            TransactionEnded: The transaction is no longer open.
        """
        self._check_open()
        batch = as_batch(events, self._stream.columns)
        if batch.num_rows:
            self._pending.add_batch(batch, as_points(keys, batch))
        if self._pending.bytes >= self._writer.batching.bytes:
            self.flush()

    def flush(self) -> None:
        """Write the pending events to a file; readers do not see them before the commit."""
        self._check_open()
        if self._pending:
            batch, points = self._pending.content()
            self._staged += stage_batch(self._stream, self._routing, batch, points, transaction=True)
            self._pending = PendingEvents(self._stream.columns)

    def commit(self, time: int | InstantLike | None = None) -> NoteResult:
        """Make the events part of the stream, and note a time if one is given (N1).

        Args:
            time: An instant, or microseconds; see `Writer.note_time`.

        Returns:
            `NoteResult.OK`, or the reason why the time is invalid (N2). Nothing was committed then, and the
            transaction is still open: commit it with another time, or abort it.

        Raises:
            TransactionEnded: The transaction is no longer open.
            StoreUnavailable: The connection was lost; call `commit` again.
        """
        self.flush()
        result = self._writer.commit_staged(self._staged, time=time)
        if result is NoteResult.OK:
            self._state = "committed"
        return result

    def abort(self) -> None:
        """Discard the events.

        Raises:
            CommitUnknown: It is unknown whether the transaction was committed.
        """
        self._check_open()
        if self._writer.is_uncertain(self._staged):
            raise CommitUnknown(self._writer.id)
        self._state = "aborted"
        self._staged.clear()

    def _check_open(self) -> None:
        if self.state != "open":
            raise TransactionEnded(self.id, self.state)
