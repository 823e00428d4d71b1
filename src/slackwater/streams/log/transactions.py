"""Transactions: events that appear together at the commit, in all segments, or never.

Until then they lie in files that no record names; a transaction that is aborted, expires, or whose process
dies leaves only files behind, which are collected. A commit is an append with the files of the whole
transaction, so it is atomic for the same reason, and exactly-once by the same numbers: those of a
transactional writer count its commits.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from sqlalchemy.engine import Connection

from slackwater.errors import (
    CommitUnknown,
    CorruptSegment,
    InvalidArgument,
    StoreUnavailable,
    StreamError,
    TransactionEnded,
)
from slackwater.streams.log.append import (
    FilesCollected,
    SegmentsChanged,
    Session,
    append,
    check_session,
    forget_session,
    open_session,
)
from slackwater.streams.log.catalog import Stream, lock_stream
from slackwater.streams.log.event_columns import Event, Events, Keys, Rows, as_batch, as_points
from slackwater.streams.log.routing import Routing, RoutingKey, check_key
from slackwater.streams.log.segment_files import POINT, Damaged, Part
from slackwater.streams.log.segments import Epochs
from slackwater.streams.log.writer import Batching, Buffer, write_parts
from slackwater.streams.time.marks import NoteResult, check_writer_id
from slackwater.streams.time.notes import close_writer, note
from slackwater.time import DurationLike, InstantLike, check_int64, duration, instant

_REFUSED: Final = (NoteResult.INVALID_TIME, NoteResult.INVALID_POSITION)


class _Refused(Exception):
    """Undoes a commit whose time was refused."""

    def __init__(self, result: NoteResult) -> None:
        self.result = result


class TransactionalWriter:
    """Writes transactions to a stream.

    A writer that comes back under its id finds in `last_event_number` how many of its transactions were
    committed, the last one among them if its answer was lost. A transaction expires so long after its begin.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids", segments=4)
    ...     with TransactionalWriter(bids, "loader") as writer:
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
        self.id = check_writer_id(writer) if writer is not None else uuid.uuid4().hex
        self._is_unnamed = writer is None
        self.stream = stream
        self.batching = batching or Batching()
        self.expires_after = duration(expires_after, name="expires_after")
        if self.expires_after <= 0:
            raise InvalidArgument(
                "expires_after", expires_after, "must be greater than zero", fix='write it like "1 hour"'
            )
        self._session = stream.store.write(
            lambda connection: open_session(connection, stream, self.id, at=stream.clock())
        )
        self._uncertain: Sequence[tuple[int, Part]] | None = None

    @property
    def last_event_number(self) -> int:
        """The number of the last transaction that was committed."""
        return self._session.last_event_number

    def begin(self) -> Transaction:
        """A new transaction; several may be open at a time."""
        return Transaction(self)

    def commit_parts(
        self,
        parts: Sequence[tuple[int, Part]],
        *,
        time: int | InstantLike | None = None,
        number: int | None = None,
    ) -> NoteResult:
        """Commits files that were written elsewhere, as by the tasks of a Spark job (`write_parts`).

        The commit has the next number, or the one given; a number that was committed before is there already,
        and nothing changes. A refused time leaves everything uncommitted. After `StoreUnavailable` it is open
        whether they were committed: the same ``parts`` can be committed again, others not before that.
        """
        if number is None and self._uncertain is not None and self._uncertain is not parts:
            # the number of that commit must not be given again
            raise CommitUnknown(self.id)
        at = None
        if time is not None:
            at = check_int64(time, "time") if isinstance(time, int) else instant(time, name="time")
        wanted = self.last_event_number + 1 if number is None else check_int64(number, "number")
        if not parts and at is None and number is None:
            return NoteResult.OK
        placed = list(parts)
        epochs = self.stream.epochs()
        while True:
            try:
                self._session = self.stream.store.write(
                    lambda connection, placed=placed, epochs=epochs: self._commit(  # type: ignore[misc]  # bound now
                        connection, placed, epochs, wanted, at
                    ),
                    repeatable=True,
                )
            except SegmentsChanged:
                epochs = self.stream.epochs()
                placed = self._placed_again(placed, epochs)
            except FilesCollected:
                reason = "its files are so old that they may have been collected"
                raise StreamError(f"writer {self.id!r} cannot commit: {reason}; write them again") from None
            except StoreUnavailable:
                self._uncertain = parts
                raise
            except _Refused as refused:
                self._uncertain = None
                return refused.result
            else:
                self._uncertain = None
                return NoteResult.OK

    def is_uncertain(self, parts: Sequence[tuple[int, Part]]) -> bool:
        """Whether it is open if these parts were committed."""
        return self._uncertain is parts

    def mark_idle(self) -> None:
        """Takes the writer out of the aggregation, until it commits with a time again (N5)."""

        def work(connection: Connection) -> None:
            check_session(connection, self.stream, self._session)
            close_writer(connection, self.stream.id, self.id)

        self.stream.store.write(work, repeatable=True)

    def close(self) -> None:
        """Takes the writer out of the aggregation; transactions that are open will never be committed."""
        self.mark_idle()
        if self._is_unnamed:
            self.stream.store.write(
                lambda connection: forget_session(connection, self.stream, self._session), repeatable=True
            )

    def __enter__(self) -> TransactionalWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _commit(
        self,
        connection: Connection,
        parts: Sequence[tuple[int, Part]],
        epochs: Epochs,
        number: int,
        time: int | None,
    ) -> Session:
        lock_stream(connection, self.stream, alone=False)
        before = check_session(connection, self.stream, self._session)
        if before.last_event_number >= number:
            return before
        at = self.stream.clock()
        after = append(
            connection, self.stream, self._session, parts, last_event_number=number, epochs=epochs, at=at
        )
        if time is not None:
            result = note(connection, self.stream.id, self.id, time, after.position, at)
            if result in _REFUSED:
                raise _Refused(result)
        return after

    def _placed_again(self, parts: Sequence[tuple[int, Part]], epochs: Epochs) -> list[tuple[int, Part]]:
        """The parts with those of sealed segments written again, for the segments that took their place."""
        routing = Routing(epochs)
        placed: list[tuple[int, Part]] = []
        for segment, part in parts:
            if not epochs.is_sealed(segment):
                placed.append((segment, part))
                continue
            try:
                batch = self.stream.folder.read(part, self.stream.columns)
            except Damaged as damaged:
                raise CorruptSegment(self.stream.name, segment, 0, part.file, str(damaged)) from None
            points = batch.column(POINT).to_numpy()
            events = pa.RecordBatch.from_arrays(batch.columns[:-1], schema=self.stream.columns)
            placed += write_parts(self.stream, routing, events, points, transaction=True)
        return placed


class Transaction:
    """Events that are committed together; made by `TransactionalWriter.begin`."""

    def __init__(self, writer: TransactionalWriter) -> None:
        self._writer = writer
        self._stream = writer.stream
        self._expires_at = writer.stream.clock() + writer.expires_after
        self._routing = Routing(self._stream.epochs())
        self._rows = Rows(self._stream.columns)
        self._buffer = Buffer(self._stream.columns)
        self._parts: list[tuple[int, Part]] = []
        self._state = "open"
        self.id = uuid.uuid4().hex

    @property
    def state(self) -> str:
        """``open``, ``committed``, ``aborted`` or ``expired``."""
        if self._state == "open" and self._stream.clock() >= self._expires_at:
            self._state = "expired"
        return self._state

    def write(self, event: Event, key: RoutingKey = None) -> None:
        """Adds one event."""
        self._check_open()
        values, size = self._rows.row(event)
        check_key(key)
        self._buffer.add_row(values, key, size)
        if self._buffer.bytes >= self._writer.batching.bytes:
            self.flush()

    def write_many(self, events: Events, keys: Keys = None) -> None:
        """Adds many events; ``keys`` names the column of their routing keys, or gives one for each."""
        self._check_open()
        batch = as_batch(events, self._stream.columns)
        if batch.num_rows:
            self._buffer.add_batch(batch, as_points(keys, batch))
        if self._buffer.bytes >= self._writer.batching.bytes:
            self.flush()

    def flush(self) -> None:
        """Writes what waits to a file, still unseen by readers."""
        self._check_open()
        if self._buffer:
            batch, points = self._buffer.content()
            self._parts += write_parts(self._stream, self._routing, batch, points, transaction=True)
            self._buffer = Buffer(self._stream.columns)

    def commit(self, time: int | InstantLike | None = None) -> NoteResult:
        """Makes the events part of the stream, and notes a time if one is given (N1).

        A time that is refused (N2) is returned, and then nothing was committed: the transaction is still
        open, to be committed with another time, or aborted.
        """
        self.flush()
        result = self._writer.commit_parts(self._parts, time=time)
        if result is NoteResult.OK:
            self._state = "committed"
        return result

    def abort(self) -> None:
        """Gives the events up; they never appear."""
        self._check_open()
        if self._writer.is_uncertain(self._parts):
            raise CommitUnknown(self._writer.id)
        self._state = "aborted"
        self._parts.clear()

    def _check_open(self) -> None:
        if self.state != "open":
            raise TransactionEnded(self.id, self.state)
