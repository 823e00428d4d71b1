"""A stream as a target: the rows of a unit are appended in one transaction, together with an event time.

A stream is append-only, so a range is not replaced: a range that is read again is appended again, and the
columns `LOW`, `HIGH` and `READ_AT` distinguish the readings. The commits of a job are numbered, and each
number is recorded before its commit, so that the commit of a killed process is neither lost nor repeated.

The event time of a commit is the time before which all units are complete, not the end of the unit. A query
that reads the stream can close its windows up to that time.
"""

from __future__ import annotations

import hashlib
import json
import threading
from contextlib import suppress
from dataclasses import asdict
from typing import Final

import pyarrow as pa

from slackwater.errors import StreamExists, UnknownStore, UnknownStream, WriterReplaced
from slackwater.ingest.plan.plan_completeness import PlanCompleteness
from slackwater.ingest.sources.extracted_rows import Batches, Rows
from slackwater.ingest.sources.spark_columns import Columns
from slackwater.ingest.targets.replacement import (
    ApproveWrite,
    Slice,
    StagedRows,
    StageTask,
    Written,
    stage_rows,
)
from slackwater.ingest.targets.schema_drift import Fit, SchemaDrift, fit
from slackwater.streams.log.catalog import Stream, Streams
from slackwater.streams.log.segment_files import BatchLocation, StagedBatch
from slackwater.streams.log.transactions import TransactionalWriter
from slackwater.streams.spark.format_options import FormatOptions
from slackwater.streams.spark.stream_sink import write_task
from slackwater.streams.time.notes import NoteResult

LOW: Final = "slackwater_low"
"""The column with the start of the range in which a row was read, if the stream has it."""
HIGH: Final = "slackwater_high"
"""The column with the end of that range, if the stream has it."""
READ_AT: Final = "slackwater_read_at"
"""The column with the time of reading: of several readings of a range, the newest is valid."""


class StreamTarget:
    """A stream, and the writer of the job.

    Args:
        store: the address of the store of streams.
        stream: the stream, as ``scope/name``; it is created with the columns of the first rows
            if needed, and so is the store.
        job: the name of the job, which identifies its writer.
        key: the column whose values keep their events in order.
        data: the folder for the events of a new stream.
        drift: the policy for columns that differ, as ``ms.schema.drift``.

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
    ) -> None:
        self._options = FormatOptions(store, stream, key=key)
        self._data = data
        self._drift = drift
        self._name = f"ingest-{hashlib.sha256(job.encode()).hexdigest()[:32]}"
        self._writer: TransactionalWriter | None = None
        self._complete: PlanCompleteness | None = None
        self._commit_lock = threading.Lock()

    def expect(self, complete: PlanCompleteness) -> None:
        """Set the units of the run, before the first of them is written."""
        self._complete = complete

    def last_number(self) -> int:
        """Return the number of the last commit, and fence off earlier runs, which can no longer commit."""
        with self._commit_lock:
            self._writer = None
            writer = self._open_writer()
            return 0 if writer is None else writer.last_event_number

    def replace(self, rows: Rows | None, slice_: Slice, approve: ApproveWrite) -> Written:
        """Append rows, or only the event time."""
        staged: list[StagedRows] = []
        drift = None
        if rows is not None:
            marks = {**slice_.unit.as_dict(), LOW: slice_.low, HIGH: slice_.high}
            stream = self._stream_for(rows.marked({**marks, READ_AT: 0}))
            if stream is not None:
                # the clock of the store: hosts with different clocks must agree which reading is newer
                shaped = rows.marked({**marks, READ_AT: stream.store.now()})
                fitting = self._fit(shaped.columns, stream)
                drift = fitting.difference
                staged = stage_rows(
                    shaped.fitted(fitting.all_columns), _stage_task(self._options), None, "UTC"
                )
        written = Written.of(staged, drift)
        batches = [batch for task in staged for batch in _decode_batches(task.payload)]
        with self._commit_lock:
            writer = self._open_writer()
            if writer is None:
                approve(written, None)
                return written
            number = writer.last_event_number + 1
            approve(written, number)
            self._commit(writer, batches, number, self._time(slice_))
            if self._complete is not None:
                self._complete.succeed(slice_.start, slice_.unit)
        return written

    def _fit(self, found: Columns, stream: Stream) -> Fit:
        known = {field.name: field.type for field in stream.columns}
        optional = [name for name in (LOW, HIGH, READ_AT) if name not in known]
        given = {name: kind for name, kind in found.items() if name not in optional}
        fitting = fit(given, known, self._drift)
        if fitting.new:
            fix = "write to another stream, or set ms.schema.drift to ignore: a stream keeps its columns"
            raise SchemaDrift(list(fitting.new), [], [], fix)
        return fitting

    def _stream_for(self, rows: Rows) -> Stream | None:
        """Open the stream, or create it with the columns of the rows; None if there are no rows either."""
        try:
            return self._options.open()
        except (UnknownStream, UnknownStore):
            if rows.frame.isEmpty():  # without rows, the source may not know the types of its columns
                return None
            columns = pa.schema(list(fit(rows.columns, None, self._drift).all_columns.items()))
            with Streams.open(self._options.store, create=True) as streams, suppress(StreamExists):
                streams.create(self._options.stream, columns=columns, data=self._data)
            return self._options.open()

    def _open_writer(self) -> TransactionalWriter | None:
        """Return the writer of the job; None if the stream does not exist yet."""
        if self._writer is None:
            try:
                self._writer = TransactionalWriter(self._options.open(), self._name)
            except (UnknownStream, UnknownStore):
                return None
        return self._writer

    def _time(self, slice_: Slice) -> int | None:
        return None if self._complete is None else self._complete.time_without(slice_.start, slice_.unit)

    def _commit(
        self, writer: TransactionalWriter, batches: list[StagedBatch], number: int, time: int | None
    ) -> None:
        """Commit under a number; if the outcome is unknown, look up whether the commit happened."""
        try:
            result = writer.commit_staged(batches, time=time, number=number)
            if result is not NoteResult.OK:  # time does not go back: a new unit commits without one
                writer.commit_staged(batches, number=number)
        except WriterReplaced:
            raise  # another run owns the writer now
        except Exception:
            self._writer = None
            again = self._open_writer()
            if again is None or again.last_event_number < number:
                raise


def _stage_task(options: FormatOptions) -> StageTask:
    def stage(batches: Batches, name: str) -> tuple[int, bytes | None]:
        staged = write_task(options, batches).staged
        encoded = [[segment, asdict(location)] for segment, location in staged]
        return sum(location.size for _, location in staged), json.dumps(encoded).encode()

    return stage


def _decode_batches(payload: bytes | None) -> list[StagedBatch]:
    if payload is None:
        return []
    return [(segment, BatchLocation(**location)) for segment, location in json.loads(payload)]
