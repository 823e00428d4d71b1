"""Rows appended to Parquet files by the tasks that compute them, exactly once; see `Panes.append_to`.

The tasks of the last operator write the files, and send the names of the files to the driver. There one
commit of the table makes the files of a batch visible and records the batch.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.streaming.readwriter import DataStreamWriter

from slackwater.errors import InvalidArgument
from slackwater.progress.completeness import Completeness
from slackwater.spark.api.dataflow import Dataflow
from slackwater.spark.api.key_columns import check_distinct
from slackwater.spark.api.pane_sink import SinkIdentity, register_sink
from slackwater.spark.internals import pins_threads
from slackwater.spark.runtime.file_output import FileOutput
from slackwater.spark.runtime.sink_progress import BucketProgress, batch_clock
from slackwater.spark.versions import DataSourceStreamArrowWriter, output_arrow_schema
from slackwater.spark.wire.payload_reader import PayloadReader
from slackwater.sql.commit_owner import Committer
from slackwater.tables.append_table import AppendedFile, AppendTable
from slackwater.tables.lake_ledger import BatchCommit
from slackwater.tables.table_address import append_table

_log = logging.getLogger(__name__)
BucketRow = Mapping[str, Any]
"""What a bucket has sent, with the columns of `FILE_ROWS`."""
_SPARK_SCHEMA: Final = "org.apache.spark.sql.parquet.row.metadata"
"""The key under which Spark stores its types in a Parquet file, for those that Parquet does not have."""
_SPARK_VERSION: Final = "org.apache.spark.version"
"""The key by which Spark knows that days and times are those of today's calendar, however old they are."""


def append_rows(
    dataflow: Dataflow, reader: PayloadReader, table: str, *, create: bool, commits: SinkIdentity, flush: bool
) -> DataStreamWriter:
    """Build a stream writer that appends the output of an operator to a table of files.

    Args:
        dataflow: The operator.
        reader: Makes rows of the output from those of the operator.
        table: ``delta:LOCATION`` or ``parquet:LOCATION``.
        create: Create the table if it does not exist.
        commits: Under which identity batches are recorded.
        flush: End the stream; see `Panes.to_df`.

    Raises:
        InvalidArgument: The input is not streaming, or an argument is invalid.
        TableDoesNotFit: The table does not exist, or has missing or wrong columns, which are all named.
        MissingExtra: ``deltalake`` or ``obstore`` is not installed.
    """
    if not dataflow.is_streaming:
        raise InvalidArgument(
            "append_to", "batch input", "is not streaming",
            fix="write to_df() with its own writer, as in to_df().write.parquet(folder)",
        )  # fmt: skip
    check_distinct(dataflow.spark, reader.schema.names)
    target = append_table(table)
    own = output_arrow_schema(reader.schema)
    columns = target.prepare(own, create=create)
    types = {_SPARK_SCHEMA: reader.schema.json()} if columns == own else {}
    columns = columns.with_metadata({_SPARK_VERSION: pyspark.__version__, **types})
    emitted = dataflow.last(FileOutput(target, reader, columns), flush=flush)
    files = FileCommits(target, columns, commits)
    if pins_threads(emitted.sparkSession):
        return emitted.writeStream.foreachBatch(files).outputMode("append")
    # A job of such a function does not know its query: on Spark Connect, or if threads are not pinned.
    name = register_sink(
        emitted.sparkSession, "append", (target.name, commits), stream_writer=lambda: FileSink(files)
    )
    return emitted.writeStream.format(name).outputMode("append")


@dataclass(frozen=True)
class FileCommits:
    """Commits the files of each batch."""

    target: AppendTable
    columns: pa.Schema
    """The columns of the files."""
    commits: SinkIdentity

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Commit the files that the tasks of a batch have written; for ``foreachBatch``."""
        self.commit([row.asDict() for row in batch.collect()], number)

    def commit(self, buckets: Sequence[BucketRow], number: int) -> None:
        """Commit the files of a batch, given what its buckets have sent."""
        if not buckets:
            return
        committer = Committer(buckets[0]["query"], buckets[0]["run"], self.commits.takeover_from)
        identity, claim = self.commits.of(committer), self.commits.claim
        progress = [msgspec.json.decode(bucket["report"], type=BucketProgress) for bucket in buckets]
        stated = Completeness() if claim is None else claim.stated(progress)
        batch = BatchCommit(identity, number, committer, stated, batch_clock(progress))
        if not self.target.append(self.columns, _files(buckets), batch):
            # Objects and files of a Delta table stay: they are committed if the answer to a request was lost.
            _log.warning("batch %s of %s is already in %s; skipped", number, identity, self.target.name)


@dataclass
class _TaskFiles(WriterCommitMessage):
    """What the buckets of a task have sent."""

    buckets: list[BucketRow]


class FileSink(DataSourceStreamArrowWriter):
    """Commit the same files as a Python data sink.

    For sessions in which jobs of a function for ``foreachBatch`` do not know their query.
    """

    def __init__(self, commits: FileCommits) -> None:
        self._commits = commits

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Pass on what the buckets of a task have sent."""
        return _TaskFiles([row for batch in iterator for row in batch.to_pylist()])

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit the files of all tasks."""
        sent = [message for message in messages if isinstance(message, _TaskFiles)]
        self._commits.commit([bucket for message in sent for bucket in message.buckets], batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Do nothing: the files are in no commit."""


def _files(buckets: Iterable[BucketRow]) -> list[AppendedFile]:
    """The files of a batch, from what its buckets have added to them."""
    rows: dict[str, int] = {}
    for bucket in buckets:
        if bucket["file"] is not None:
            rows[bucket["file"]] = rows.get(bucket["file"], 0) + bucket["rows"]
    return [AppendedFile(key, count) for key, count in sorted(rows.items())]
