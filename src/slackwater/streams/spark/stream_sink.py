"""Writes a DataFrame to a stream: tasks write staged files, and one commit makes them part of the stream.

A streaming query commits with its query id as writer and its batch number, so a batch that Spark repeats is
stored once. A writer id of the user belongs to the first query that commits under it. A batch job commits
once, at its end. Files of failed attempts are collected later.

If the rows come with the reports of buckets, as those of `write_stream` do on Spark Connect, each commit
notes the watermark of the query, so the stream drives windows. A writer that notes time stays in the stream
between batches: marks wait for it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from slackwater.errors import InvalidArgument
from slackwater.progress.completeness import Completeness
from slackwater.spark.runtime.query_identity import running_query
from slackwater.spark.runtime.sink_progress import (
    BucketProgress,
    CompletenessClaim,
    without_reports,
)
from slackwater.spark.versions import DataSourceStreamArrowWriter
from slackwater.sql.commit_owner import BATCH_JOB, Committer
from slackwater.streams.log.event_columns import as_batch, as_points
from slackwater.streams.log.ndjson import routing_keys
from slackwater.streams.log.segment_files import StagedBatch
from slackwater.streams.log.transactions import TransactionalWriter
from slackwater.streams.log.writer import Batching, stage_batch
from slackwater.streams.segments.routing import Routing
from slackwater.streams.spark.format_options import FormatOptions
from slackwater.streams.time.notes import NoteResult
from slackwater.time import instant

_log = logging.getLogger(__name__)


@dataclass
class TaskOutput(WriterCommitMessage):
    """The staged batches of one task, and the query that it belongs to; None for a batch job."""

    staged: list[StagedBatch]
    committer: Committer | None
    progress: list[BucketProgress] = field(default_factory=list)
    """The progress of the buckets whose rows the task wrote."""


class StreamAppend(DataSourceArrowWriter):
    """Writer of ``df.write``: one commit per job."""

    def __init__(self, options: FormatOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task to staged files."""
        return write_task(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the staged batches of all tasks."""
        with TransactionalWriter(self._options.open(), self._options.writer) as writer:
            owner = None if self._options.writer is None else Committer(BATCH_JOB)
            writer.commit_staged(_staged(messages), committer=owner)


class StreamSink(DataSourceStreamArrowWriter):
    """Writer of ``df.writeStream``: one commit per micro-batch."""

    def __init__(self, options: FormatOptions, claim: CompletenessClaim | None = None) -> None:
        self._options = options
        self._claim = claim

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task to staged files."""
        progress: list[BucketProgress] = []
        output = write_task(self._options, without_reports(iterator, progress), running_query())
        return replace(output, progress=progress)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit the batch, unless it was committed before."""
        written = [message for message in messages if isinstance(message, TaskOutput)]
        if not written:
            return
        progress = [one for message in written for one in message.progress]
        commit_batch(self._options, self._claim, batchId, written[0].committer, _staged(messages), progress)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Do nothing: files that are not committed are collected later."""


def commit_batch(
    options: FormatOptions,
    claim: CompletenessClaim | None,
    batch: int,
    committer: Committer | None,
    staged: Sequence[StagedBatch],
    progress: Sequence[BucketProgress],
) -> None:
    """Commit the staged batches of a micro-batch, unless it was committed before.

    Args:
        options: The stream, and the writer id.
        claim: How the time that the commit notes follows from the progress; None to note none.
        batch: The number of the micro-batch.
        committer: The query; None if Spark did not report it.
        staged: What the tasks of the batch have written.
        progress: The progress of the buckets.

    Raises:
        InvalidArgument: Neither the options nor Spark name a writer id.
    """
    name = options.writer or (committer.query if committer else None)
    if name is None:
        fix = 'write .option("writer", "some-id-of-this-query")'
        raise InvalidArgument(
            "writer", None, "is required: Spark did not report the id of the query", fix=fix
        )
    if committer is not None:
        committer = replace(committer, takeover_from=options.takeover_from)
    time = noted_time(Completeness() if claim is None else claim.stated(progress))
    writer = TransactionalWriter(options.open(), name)
    commit = partial(writer.commit_staged, staged, number=batch + 1, committer=committer)
    if time is None:
        with writer:
            commit()
        return
    # not closed: marks wait for the next batch of the query
    if (rejected := commit(time=time)) is not NoteResult.OK:
        _log.warning("batch %s of writer %s could not note its time: %s", batch, name, rejected)
        commit()


def noted_time(stated: Completeness) -> int | None:
    """The time that a commit notes; None if the watermark is not known. The end of time is the year 9999.

    >>> noted_time(Completeness()), noted_time(Completeness(5, 5))
    (None, 5)
    """
    at = stated.complete_until
    return None if at is None else min(at, _LATEST)


_LATEST: Final = instant("9999-12-31T23:59:59.999999Z")
"""The latest time that Spark and Python can convert."""


def write_task(
    options: FormatOptions, batches: Iterator[pa.RecordBatch], committer: Committer | None = None
) -> TaskOutput:
    """Write the record batches of a task to staged files of a stream.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.streams.log.catalog import Streams
    >>> with TemporaryDirectory() as folder:
    ...     options = FormatOptions(f"sqlite:///{folder}/store.db", "shop/bids")
    ...     with Streams.open(options.store, create=True) as streams:
    ...         stream = streams.create("shop/bids")
    ...     output = write_task(options, iter([pa.record_batch({"value": [b"a"]})]))
    ...     [(segment, location.events) for segment, location in output.staged]
    [(0, 1)]
    """
    events = StagedEvents(options)
    for batch in batches:
        events.add(batch)
    return TaskOutput(events.take(), committer)


class StagedEvents:
    """Events of a task, in staged files of a stream; small batches are combined to fewer files."""

    def __init__(self, options: FormatOptions) -> None:
        self._stream = options.open()
        self._key = options.key
        self._routing = Routing(self._stream.epochs())
        self._limit = Batching().bytes
        self._waiting: list[pa.RecordBatch] = []
        self._size = 0
        """The bytes of the batches that are waiting."""
        self._staged: list[StagedBatch] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Add events; they are written when there are enough of them."""
        # A reader reads a stored batch as a whole, so a large one is divided.
        rows = max(1, batch.num_rows * self._limit // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, rows):
            part = batch.slice(start, rows)
            self._waiting.append(part)
            self._size += part.nbytes
            if self._size >= self._limit:
                self._write()

    def take(self) -> list[StagedBatch]:
        """Write the events that are waiting, and return all batches that were staged since the last call."""
        self._write()
        staged, self._staged = self._staged, []
        return staged

    def _write(self) -> None:
        if not self._waiting:
            return
        events = as_batch(pa.concat_batches(self._waiting), self._stream.columns)
        self._waiting, self._size = [], 0
        points = as_points(None if self._key is None else routing_keys(events, self._key), events)
        self._staged += stage_batch(self._stream, self._routing, events, points, transaction=True)


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[StagedBatch]:
    return [batch for message in messages if isinstance(message, TaskOutput) for batch in message.staged]
