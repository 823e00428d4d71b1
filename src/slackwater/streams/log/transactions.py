"""Transactions: events that become visible together at the commit, in all segments, or never.

Until the commit the events are in staged files that no record names. A transaction that is aborted, expires,
or whose process dies leaves only such files, which are collected. A commit is an append with all files of the
transaction, so it is atomic and exactly-once in the same way; the event numbers of a transactional writer
count its commits.
"""

from __future__ import annotations

import logging
import threading
import uuid
import warnings
from collections.abc import Sequence
from functools import partial
from weakref import WeakSet

import pyarrow as pa
from sqlalchemy.engine import Connection

from slackwater.errors import (
    CommitUnknown,
    CorruptSegment,
    InvalidArgument,
    SlackwaterError,
    StoreUnavailable,
    StreamError,
    TransactionEnded,
    WriterClosed,
)
from slackwater.sql.commit_owner import Committer
from slackwater.streams.arguments import event_time, positive_duration
from slackwater.streams.log.append import FilesCollected, SegmentsChanged, append
from slackwater.streams.log.catalog import Stream
from slackwater.streams.log.event_columns import Event, EventParser, Events, Keys, as_batches, as_points
from slackwater.streams.log.segment_files import POINT, DamagedFile, StagedBatch
from slackwater.streams.log.stream_records import lock_stream
from slackwater.streams.log.writer import Batching, PendingEvents, stage_batch
from slackwater.streams.log.writer_owners import claim_number
from slackwater.streams.log.writer_session import SessionWriter, WriterSession, check_session
from slackwater.streams.segments.epochs import Epochs
from slackwater.streams.segments.routing import Routing, RoutingKey, check_key
from slackwater.streams.time.mark_store import note
from slackwater.streams.time.notes import NoteResult
from slackwater.time import SECOND, DurationLike, InstantLike, check_int64

_log = logging.getLogger(__name__)


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
        automatically_note_time: Interval at which the wall clock is noted as event time (N3), but no time
            after the begin of a transaction that is still open. Commits cannot note a time then.
        timeout: How long the writer waits for a database that cannot be reached, before it fails.

    Raises:
        InvalidArgument: The id or a duration is not valid.
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
        automatically_note_time: DurationLike | None = None,
        timeout: DurationLike = "1 minute",
    ) -> None:
        self.batching = batching or Batching()
        self.expires_after = positive_duration(expires_after, "expires_after")
        every = automatically_note_time
        self._note_every = None if every is None else positive_duration(every, "automatically_note_time")
        super().__init__(stream, writer, timeout=timeout)
        self._uncertain: Sequence[StagedBatch] | None = None
        self._begun: WeakSet[Transaction] = WeakSet()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._noting: threading.Thread | None = None
        if self._note_every is not None:
            name = f"slackwater writer {self.id}"
            self._noting = threading.Thread(target=self._note_clock, name=name, daemon=True)
            self._noting.start()

    @property
    def is_closed(self) -> bool:
        """Whether the writer is closed; its transactions can no longer be committed."""
        return self._closing.is_set()

    @property
    def last_event_number(self) -> int:
        """Number of the last transaction that was committed."""
        return self._session.last_event_number

    def begin(self) -> Transaction:
        """Begin a transaction; several may be open at the same time.

        Raises:
            WriterClosed: The writer is closed.
        """
        with self._lock:
            self._check_open()
            transaction = Transaction(self)
            self._begun.add(transaction)
        return transaction

    def commit_staged(
        self,
        staged: Sequence[StagedBatch],
        *,
        time: int | InstantLike | None = None,
        number: int | None = None,
        committer: Committer | None = None,
    ) -> NoteResult:
        """Commit files that other processes wrote with `stage_batch`, such as the tasks of a Spark job.

        Args:
            staged: Segments and locations of the batches.
            time: Event time to note with the commit.
            number: Number of the commit; by default the next one. If it was committed before, nothing
                changes.
            committer: The Spark query that commits. ``number`` then counts the commits of that query, and
                the writer id belongs to it.

        Returns:
            `NoteResult.OK`, or the reason why the time is invalid; nothing was committed then.

        Raises:
            StoreUnavailable: The connection was lost, so it is unknown whether the commit was stored. Commit
                the same batches again.
            CommitUnknown: An earlier commit is in that state, and must be repeated first.
            StreamError: The files are so old that they may have been collected.
            WriterClosed: The writer is closed.
            InvalidArgument: The writer notes time automatically, so it cannot know the times of files that
                others wrote.
            IdentityInUse: The writer id belongs to another query than ``committer``.
        """
        if self._note_every is not None:
            fix = "open the writer without automatically_note_time, and give the time of the commit"
            raise InvalidArgument("staged", len(staged), "this writer notes time automatically", fix=fix)
        return self.commit_transaction(staged, time=time, number=number, committer=committer)

    def commit_transaction(
        self,
        staged: Sequence[StagedBatch],
        *,
        time: int | InstantLike | None = None,
        number: int | None = None,
        committer: Committer | None = None,
    ) -> NoteResult:
        """Commit the files of a transaction of this writer; see `Transaction.commit`.

        Args:
            staged: The batches to commit.
            time: The time to note; None to note none.
            number: The number of the transaction; a number that was committed before is skipped.
            committer: The query that commits; None outside of Spark.
        """
        self._check_open()
        if time is not None and self._note_every is not None:
            fix = "commit without a time, or open the writer without automatically_note_time"
            raise InvalidArgument("time", time, "this writer notes time automatically", fix=fix)
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
                store = partial(self._stored, routed, epochs, wanted, at, committer)
                self._session = self._while_unreachable(store)
            except SegmentsChanged:
                epochs = self.stream.epochs()
                routed = self._rerouted(routed, epochs)
            except FilesCollected:
                reason = "its staged files are so old that a controller may have deleted them"
                fix = "write the events again"
                raise StreamError(f"writer {self.id!r} cannot commit: {reason}; {fix}") from None
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
        """Deprecated alias of `commit_staged`.

        Args:
            parts: The batches to commit.
            time: The time to note, as in `commit_staged`.
            number: The number of the transaction, as in `commit_staged`.
        """
        warnings.warn("commit_parts() is now commit_staged()", DeprecationWarning, stacklevel=2)
        return self.commit_staged(parts, time=time, number=number)

    def is_uncertain(self, staged: Sequence[StagedBatch]) -> bool:
        """Whether it is unknown if these batches were committed.

        Args:
            staged: The batches.
        """
        return self._uncertain is staged

    def mark_idle(self) -> None:
        """Exclude the writer from marks until it commits with a time again (N5)."""
        self._exclude_from_marks()

    def close(self) -> None:
        """Exclude the writer from marks (N5); open transactions can no longer be committed."""
        with self._lock:
            if self.is_closed:
                return
            self._closing.set()
        if self._noting is not None:
            self._noting.join()
        self._leave()

    def _check_open(self) -> None:
        if self.is_closed:
            raise WriterClosed(self.id)

    def _note_clock(self) -> None:
        """Note the wall clock at the interval, until the writer is closed."""
        assert self._note_every is not None  # noqa: S101 - the thread is started only then
        while not self._closing.wait(self._note_every / SECOND):
            try:
                self._note_open_time()
            except StoreUnavailable as error:
                _log.warning("writer %s could not note its clock: %s", self.id, error)
            except SlackwaterError:
                _log.exception("writer %s stopped noting times because of an error", self.id)
                return

    def _note_open_time(self) -> None:
        # the clock first: a transaction that begins after that has no earlier event
        noted = self.stream.clock()
        with self._lock:
            begun = [transaction.begun_at for transaction in self._begun if transaction.state == "open"]
        noted = min([noted, *begun])

        def work(connection: Connection, session: WriterSession) -> NoteResult:
            at = self.stream.store.now(connection)
            return note(connection, self.stream.id, self.id, noted, session.position, at)

        result = self._in_session(work)
        if result is not NoteResult.OK:
            _log.warning("writer %s could not note its clock: %s", self.id, result)

    def _stored(
        self,
        staged: Sequence[StagedBatch],
        epochs: Epochs,
        number: int,
        time: int | None,
        committer: Committer | None,
    ) -> WriterSession:
        return self.stream.store.write(
            lambda connection: self._commit(connection, staged, epochs, number, time, committer),
            repeatable=True,
        )

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
        committer: Committer | None,
    ) -> WriterSession:
        lock_stream(connection, self.stream.record, exclusive=False)
        before = check_session(connection, self.stream, self._session)
        if committer is not None:
            number = claim_number(connection, self.stream, before, committer, number)
        if before.last_event_number >= number:
            return before
        after = append(
            connection, self.stream, self._session, staged, last_event_number=number, epochs=epochs
        )
        if time is not None:
            at = self.stream.store.now(connection)
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
        self.begun_at = writer.stream.clock()
        self._routing = Routing(self._stream.epochs())
        self._parser = EventParser(self._stream.columns)
        self._pending = PendingEvents(self._stream.columns)
        self._staged: list[StagedBatch] = []
        self._state = "open"
        self.id = uuid.uuid4().hex

    @property
    def state(self) -> str:
        """``open``, ``committed``, ``aborted``, ``expired``, or ``closed`` with its writer."""
        if self._state == "open" and self._writer.is_closed:
            self._state = "closed"
        if self._state == "open" and self._stream.clock() >= self.begun_at + self._writer.expires_after:
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
        batches = as_batches(events, self._stream.columns)
        points = as_points(keys, *batches)
        done = 0
        for batch in batches:
            if batch.num_rows:
                self._pending.add_batch(batch, points[done : done + batch.num_rows])
                done += batch.num_rows
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
            time: A string or ``datetime`` with a timezone, or an integer of *microseconds* since
                1970-01-01T00:00:00Z; see `Writer.note_time`.

        Returns:
            `NoteResult.OK`, or the reason why the time is invalid (N2). Nothing was committed then, and the
            transaction is still open: commit it with another time, or abort it.

        Raises:
            TransactionEnded: The transaction is no longer open.
            StoreUnavailable: The connection was lost; call `commit` again.
        """
        self.flush()
        result = self._writer.commit_transaction(self._staged, time=time)
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
