"""A stream as a target: what a unit has read is appended in one transaction, with a time that is true.

A stream keeps what it was given, so a range is not replaced: one that is read again is appended again, and
the columns `LOW`, `HIGH` and `READ_AT` tell the readings apart. The commits of a job have numbers, which
are put on record before them, so that one whose process died is neither lost nor repeated.

The time of a commit is that before which all units are complete, not the end of the unit: what reads the
stream may then close its windows.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final

import pyarrow as pa

from slackwater.errors import StreamExists, UnknownStream, WriterReplaced
from slackwater.ingest.plan.completeness import Completeness
from slackwater.ingest.sources.extracted_rows import Rows
from slackwater.ingest.targets.replacement import Approve, Slice, Told, Written, ship
from slackwater.ingest.targets.schema_drift import Columns, Fit, SchemaDrift, fit
from slackwater.streams.log.catalog import Stream, Streams
from slackwater.streams.log.segment_files import BatchLocation, StagedBatch
from slackwater.streams.log.transactions import TransactionalWriter
from slackwater.streams.spark.format_options import FormatOptions
from slackwater.streams.spark.stream_sink import write_task
from slackwater.streams.time.marks import NoteResult
from slackwater.time import now as wall_clock

LOW: Final = "slackwater_low"
"""The column with the start of the range with which a row was read, if the stream has it."""
HIGH: Final = "slackwater_high"
"""The same with the end of the range."""
READ_AT: Final = "slackwater_read_at"
"""When the range was read: of several readings of a range, the newest is the one that holds."""


class StreamTarget:
    """Which stream is written, by the one writer of a job.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     target = StreamTarget(f"sqlite:///{folder}/store.db", "shop/orders", "orders")
    ...     target.last_number()
    0
    """

    def __init__(
        self,
        store: str,
        stream: str,
        job: str,
        *,
        key: str | None = None,
        data: str | None = None,
        drift: str = "fail",
        clock: Callable[[], int] = wall_clock,
    ) -> None:
        self._options = FormatOptions(store, stream, key=key)
        self._data = data
        self._drift = drift
        self._clock = clock
        self._name = f"ingest-{hashlib.sha256(job.encode()).hexdigest()[:32]}"
        self._writer: TransactionalWriter | None = None
        self._complete: Completeness | None = None
        self._turn = threading.Lock()

    def expect(self, complete: Completeness) -> None:
        """Hear which units there are, before the first of them."""
        self._complete = complete

    def last_number(self) -> int:
        """The number of the last commit; a run that opened the writer before can commit no more."""
        with self._turn:
            self._writer = None
            writer = self._opened()
            return 0 if writer is None else writer.last_event_number

    def replace(self, rows: Rows | None, where: Slice, approve: Approve) -> Written:
        """Append rows, or none."""
        told: list[Told] = []
        drift = None
        if rows is not None:
            times = {LOW: where.low, HIGH: where.high, READ_AT: self._clock()}
            whole = rows.marked({**where.unit.as_dict(), **times})
            stream = self._stream_for(whole)
            if stream is not None:
                fitting = self._fit(whole.columns, stream)
                drift = fitting.told
                told = ship(whole.fitted(fitting.whole), _putting_aside(self._options), None, "UTC")
        written = Written.of(told, drift)
        parts = [part for one in told for part in _parts(one.payload)]
        with self._turn:
            writer = self._opened()
            if writer is None:
                approve(written, None)
                return written
            number = writer.last_event_number + 1
            approve(written, number)
            self._commit(writer, parts, number, self._time(where))
            if self._complete is not None:
                self._complete.succeed(where.start, where.unit)
        return written

    def _fit(self, found: Columns, stream: Stream) -> Fit:
        known = {one.name: one.type for one in stream.columns}
        optional = [name for name in (LOW, HIGH, READ_AT) if name not in known]
        given = {name: kind for name, kind in found.items() if name not in optional}
        fitting = fit(given, known, self._drift)
        if fitting.new:
            fix = "write to another stream, or set ms.schema.drift to ignore: a stream keeps its columns"
            raise SchemaDrift(list(fitting.new), [], [], fix)
        return fitting

    def _stream_for(self, rows: Rows) -> Stream | None:
        """The stream, which is made of the columns if there is none; None while there are no rows either."""
        try:
            return self._options.open()
        except UnknownStream:
            if rows.frame.isEmpty():  # the types of its columns may be unknown
                return None
            columns = pa.schema(list(fit(rows.columns, None, self._drift).whole.items()))
            with Streams.open(self._options.store) as streams, suppress(StreamExists):
                streams.create(self._options.stream, columns=columns, data=self._data)
            return self._options.open()

    def _opened(self) -> TransactionalWriter | None:
        """The writer of the job; None while there is no stream."""
        if self._writer is None:
            try:
                self._writer = TransactionalWriter(self._options.open(), self._name)
            except UnknownStream:
                return None
        return self._writer

    def _time(self, where: Slice) -> int | None:
        return None if self._complete is None else self._complete.time_without(where.start, where.unit)

    def _commit(
        self, writer: TransactionalWriter, parts: list[StagedBatch], number: int, time: int | None
    ) -> None:
        """Commit under a number; an answer that was lost is looked up, so that it is known what happened."""
        try:
            result = writer.commit_staged(parts, time=time, number=number)
            if result is not NoteResult.OK:  # a time that goes back, as where a unit is new, is not said
                writer.commit_staged(parts, number=number)
        except WriterReplaced:
            raise  # another run has taken over
        except Exception:
            self._writer = None
            again = self._opened()
            if again is None or again.last_event_number < number:
                raise


def _putting_aside(options: FormatOptions) -> Any:
    def put_aside(batches: Iterator[pa.RecordBatch], place: str) -> tuple[int, bytes | None]:
        parts = write_task(options, batches).staged
        told = [[segment, asdict(part)] for segment, part in parts]
        return sum(part.size for _, part in parts), json.dumps(told).encode()

    return put_aside


def _parts(payload: bytes | None) -> list[StagedBatch]:
    return (
        [] if payload is None else [(segment, BatchLocation(**told)) for segment, told in json.loads(payload)]
    )
