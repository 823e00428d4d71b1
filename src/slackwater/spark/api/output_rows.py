"""The output rows of joins and deduplications: for output, or as the input of another operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from slackwater.progress.pipeline_plan import PipelinePlan
from slackwater.spark.api.dataflow import check_counted
from slackwater.spark.api.explain import explain_dataflow
from slackwater.spark.api.reprs import key_text, short_text
from slackwater.spark.api.row_output import OutputSource, RowDataflow
from slackwater.spark.api.stream import Stream
from slackwater.spark.api.stream_operations import StreamOperations

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@dataclass(frozen=True)
class OutputRows(StreamOperations):
    """The output rows of an operator, to be written or as the input of another operator."""

    dataflow: RowDataflow

    def __repr__(self) -> str:
        return short_text(type(self).__name__, self.schema, key_text(self.dataflow.key))

    @property
    def schema(self) -> StructType:
        """The columns of the rows."""
        return self.dataflow.schema

    def to_df(self, *, flush: bool = False) -> DataFrame:
        """The rows as a DataFrame, streaming if the input is.

        Args:
            flush: End the stream with the run; see `Panes.to_df`.

        Raises:
            InvalidArgument: ``flush`` is given for batch input.
        """
        return self.dataflow.to_df(flush=flush)

    def append_to(
        self,
        table: str,
        *,
        create: bool = False,
        identity: str | None = None,
        takeover_from: str | None = None,
        flush: bool = False,
    ) -> DataStreamWriter:
        """A stream writer that appends the rows to a Delta Lake table or a folder of Parquet files.

        Arguments and errors are those of `Panes.append_to`. The commits do not state up to which time the
        table is complete.
        """
        from slackwater.spark.api.file_append import append_rows  # imports SQL libraries
        from slackwater.spark.api.pane_sink import SinkIdentity

        commits, dataflow = SinkIdentity(identity, takeover_from, None), self.dataflow
        return append_rows(dataflow, dataflow.reader, table, create=create, commits=commits, flush=flush)

    def explain(self) -> PipelinePlan:
        """The plan of the operator with everything before it; see `Stream.explain`."""
        return explain_dataflow(self.dataflow)

    def elements(self) -> Stream:
        """The rows as a stream.

        Raises:
            InvalidArgument: Late or invalid rows are emitted, which another operator cannot process.
        """
        check_counted("late", self.dataflow.late)
        check_counted("invalid", self.dataflow.invalid)
        return Stream((OutputSource(self.dataflow, self.dataflow.default_key),), self.dataflow.buckets)


@dataclass(frozen=True, repr=False)
class Joined(OutputRows):
    """Pairs of rows of two streams, for output or as the input of another operator; see `Stream.join`.

    As the input of another operator, a row has the event times of both sides, and the next operator uses the
    left one, or the right one after a right join; choose another with `by`. A row of a left or right join
    that is padded with nulls has no time for the other side's key, so an operator driven by that key counts
    it as invalid. A full join is driven by ``either``, which every row has.

    >>> import slackwater as sw
    >>> spark = sw.session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> bids = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 7 as auction, 30 as price")
    >>> ends = spark.sql("select timestamp'2024-01-01 00:00:09Z' as at, 7 as auction")
    >>> left, right = (sw.stream(df, event_time="at", watermark=sw.lag("5 seconds")) for df in (bids, ends))
    >>> pairs = left.join(right, on=("auction",), before="0 seconds", after="10 seconds")
    >>> pairs.schema.names
    ['auction', 'at_left', 'price', 'at_right']
    >>> pairs
    Joined[auction: int, at_left: timestamp, price: int, at_right: timestamp], key: auction
    >>> pairs.window(sw.fixed("10 seconds"), by="right.default").agg(pairs=sw.count()).to_df().first().pairs
    1
    """


@dataclass(frozen=True, repr=False)
class Deduplicated(OutputRows):
    """Rows without duplicates, to be written or as the input of another operator; see `Stream.deduplicate`.

    >>> import slackwater as sw
    >>> spark = sw.session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> clicks = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 7 as id, 'a' as page from range(2)")
    >>> unique = sw.stream(clicks, event_time="at", watermark=sw.lag("5 seconds")).deduplicate(
    ...     on=["id"], within="1 hour"
    ... )
    >>> unique.key_by("page").window(sw.fixed("10 seconds")).agg(clicks=sw.count()).to_df().first().clicks
    1
    """
