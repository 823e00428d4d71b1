"""Writing to a stream from Spark: tasks write files, and one commit makes them part of the stream.

A streaming query commits under its own id and the number of the batch, so a batch that Spark repeats is
stored once. A batch job commits once, at its end. Files of attempts that failed are collected later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from slackwater.errors import InvalidArgument
from slackwater.streams.log.event_columns import as_batch, as_points
from slackwater.streams.log.ndjson import routing_keys
from slackwater.streams.log.routing import Routing
from slackwater.streams.log.segment_files import Part
from slackwater.streams.log.transactions import TransactionalWriter
from slackwater.streams.log.writer import Batching, write_parts
from slackwater.streams.spark.stream_location import Options


@dataclass
class Written(WriterCommitMessage):
    """What one task has written, and for which query."""

    parts: list[tuple[int, Part]]
    query: str | None


class StreamAppend(DataSourceArrowWriter):
    """A batch job that appends to a stream."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Writes the rows of a task to files."""
        return write_task(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Makes what the tasks have written part of the stream."""
        with TransactionalWriter(self._options.open(), self._options.writer) as writer:
            writer.commit_parts(_parts(messages))


class StreamSink(DataSourceStreamArrowWriter):
    """A query that appends to a stream, batch by batch."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Writes the rows of a task to files."""
        return write_task(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Makes the batch part of the stream, unless it is already."""
        queries = {message.query for message in messages if isinstance(message, Written)} - {None}
        name = self._options.writer or next(iter(queries), None)
        if not any(isinstance(message, Written) for message in messages):
            return
        if name is None:
            fix = 'write .option("writer", "some-id-of-this-query")'
            raise InvalidArgument("writer", None, "is missing, and Spark does not tell the query", fix=fix)
        with TransactionalWriter(self._options.open(), name) as writer:
            writer.commit_parts(_parts(messages), number=batchId + 1)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Files that nobody commits are collected."""


def write_task(options: Options, batches: Iterator[pa.RecordBatch]) -> Written:
    """Writes record batches to files of a stream, which are not part of it yet.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.streams.log.catalog import Streams
    >>> with TemporaryDirectory() as folder:
    ...     options = Options(f"sqlite:///{folder}/store.db", "shop/bids")
    ...     with Streams.open(options.store) as streams:
    ...         stream = streams.create("shop/bids")
    ...     [part.events for _, part in write_task(options, iter([pa.record_batch({"value": [b"a"]})])).parts]
    [1]
    """
    stream = options.open()
    routing = Routing(stream.epochs())
    parts: list[tuple[int, Part]] = []
    for whole in _gathered(batches, Batching().bytes):
        events = as_batch(whole, stream.columns)
        keys = None if options.key is None else routing_keys(events, options.key)
        parts += write_parts(stream, routing, events, as_points(keys, events), transaction=True)
    context = TaskContext.get()
    return Written(parts, None if context is None else context.getLocalProperty("sql.streaming.queryId"))


def _gathered(batches: Iterator[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """The same rows in larger batches, so that files are not many and small."""
    gathered: list[pa.RecordBatch] = []
    for batch in batches:
        gathered += [batch] if batch.num_rows else []
        if sum(part.nbytes for part in gathered) >= size:
            yield pa.concat_batches(gathered)
            gathered = []
    if gathered:
        yield pa.concat_batches(gathered)


def _parts(messages: Sequence[WriterCommitMessage | None]) -> list[tuple[int, Part]]:
    return [part for message in messages if isinstance(message, Written) for part in message.parts]
