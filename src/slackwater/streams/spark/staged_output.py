"""Panes that leave a task as staged files of a stream: only the locations of the files go to the JVM.

Rows that go to the JVM are copied several times, and then sent to a second Python process, which writes them.
The task of the operator can write them as they are. The driver commits the files of a batch.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec
import pandas as pd  # type: ignore[import-untyped]  # its stubs are a package of their own
import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from slackwater.spark.runtime.query_identity import running_query
from slackwater.spark.runtime.sink_progress import BucketProgress, CompletenessClaim
from slackwater.spark.runtime.task_output import report_text
from slackwater.spark.wire.payload_reader import PayloadReader
from slackwater.sql.commit_owner import Committer
from slackwater.streams.log.segment_files import StagedBatch
from slackwater.streams.spark.format_options import FormatOptions
from slackwater.streams.spark.stream_sink import StagedEvents, commit_batch

if TYPE_CHECKING:
    from slackwater.spark.runtime.bucket import BucketOutput

STAGED_ROWS: Final = StructType(
    [
        StructField("bucket", IntegerType()),
        StructField("report", StringType()),
        StructField("staged", StringType()),
        StructField("query", StringType()),
        StructField("run", StringType()),
    ]
)
"""What the driver gets from each bucket: its report, the staged batches as JSON, and the query and run of the
task."""
_staged: Final = msgspec.json.Decoder(list[StagedBatch])


@dataclass
class StagedOutput:
    """Staged files of a stream for the rows of the buckets of a task."""

    options: FormatOptions
    reader: PayloadReader
    """Makes rows of the output from those of the operator."""
    columns: pa.Schema
    """The columns of these rows."""
    _events: StagedEvents | None = field(default=None, init=False)

    @property
    def schema(self) -> StructType:
        """The locations of staged batches."""
        return STAGED_ROWS

    def encode(
        self, bucket: int, rows: pl.DataFrame | None, output: BucketOutput | None
    ) -> pd.DataFrame | None:
        """Stage a piece of the rows; with the last piece, return the report of the bucket."""
        if rows is not None and rows.height:
            if self._events is None:
                self._events = StagedEvents(self.options)
            for batch in self.reader.rows(rows, self.columns):
                self._events.add(batch)
        if output is None:
            return None
        query = running_query()
        staged = [] if self._events is None else self._events.take()
        located = [(segment, asdict(location)) for segment, location in staged]
        return pd.DataFrame(
            {
                "bucket": pd.Series([bucket], dtype="int32"),
                "report": [report_text(output)],
                "staged": [msgspec.json.encode(located).decode()],
                "query": [query.query],
                "run": [query.run],
            }
        )

    def close(self) -> None:
        """Forget the stream: the files of a bucket are complete when it ends."""
        self._events = None

    def abort(self) -> None:
        """Forget the stream: files that are not committed are collected later."""
        self._events = None


@dataclass(frozen=True)
class StreamCommits:
    """Commits the staged files of each batch."""

    options: FormatOptions
    claim: CompletenessClaim

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Commit the files that the tasks of a batch have written; for ``foreachBatch``."""
        buckets = batch.collect()
        if not buckets:
            return
        commit_batch(
            self.options,
            self.claim,
            number,
            Committer(buckets[0]["query"], buckets[0]["run"]),
            [one for bucket in buckets for one in _staged.decode(bucket["staged"])],
            [msgspec.json.decode(bucket["report"], type=BucketProgress) for bucket in buckets],
        )
