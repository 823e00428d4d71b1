"""The panes of windows: for output, or as the input of another operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from slackwater._extras import naming_extras
from slackwater._notebook_html import Html, fragment
from slackwater.progress.pipeline_plan import PipelinePlan
from slackwater.spark.api.dataflow import check_counted
from slackwater.spark.api.explain import explain_dataflow
from slackwater.spark.api.pane_html import panes_html
from slackwater.spark.api.pane_output import PaneDataflow, PaneSource
from slackwater.spark.api.reprs import key_text, short_text
from slackwater.spark.api.stream import Stream
from slackwater.spark.api.stream_operations import StreamOperations

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from slackwater.spark.api.upsert import Folding
    from slackwater.sql.dead_letters import OnError


@dataclass(frozen=True)
class Panes(StreamOperations):
    """The panes of a windowed stream, for output or as the input of another operator; see `Windowed.agg`.

    As the input of another operator, each pane is an element at its timestamp, with its key and values. The
    columns ``window`` and ``pane`` can be used as well; ``pane.retraction`` is then always false, because
    operators process retractions themselves. Without a `window` the next operator keeps the windows of the
    panes. If a window fires several times its panes are several elements, unless the mode retracts the
    earlier ones. A retraction calls the function of `map_async` again, which has to return the same result
    for equal panes.

    >>> import slackwater as sw
    >>> spark = sw.session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> bids = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 7 as auction, 30 as price")
    >>> keyed = sw.stream(bids, event_time="at", watermark=sw.lag("5 seconds")).key_by("auction")
    >>> panes = keyed.window(sw.fixed("10 seconds")).agg(bids=sw.count())
    >>> panes.schema.names
    ['auction', 'window', 'bids', 'pane']
    >>> panes
    Panes[auction: int, window: struct, bids: bigint, pane: struct], key: auction, accumulating
    >>> panes.to_df().select("auction", "bids").collect()
    [Row(auction=7, bids=1)]
    """

    dataflow: PaneDataflow
    retracts_as_input: bool = False
    """Whether another operator gets the panes with retractions, because the early ones are inherited."""

    def __repr__(self) -> str:
        return short_text("Panes", self.schema, key_text(self.dataflow.key), self.dataflow.spec.mode)

    def _repr_html_(self) -> str:
        """What notebooks show: the plan; of batch input also the first panes, if Spark shows rows eagerly."""
        plan = Html(self.explain()._repr_html_())
        return (
            plan
            if self.dataflow.is_streaming
            else fragment(plan, panes_html(self.to_df(), self.dataflow.key))
        )

    @property
    def schema(self) -> StructType:
        """Key columns, ``window{start, end}``, values, ``pane{timing, index, …, kind}``."""
        return self.dataflow.schema

    def to_df(self, *, flush: bool = False, flat: bool = False) -> DataFrame:
        """The panes as a DataFrame: streaming if the input is, otherwise every window fires at once.

        Args:
            flush: End the stream with the run. With ``trigger(availableNow=True)`` every window fires after
                the last rows that were there when the run started, whatever the limits of the sources per
                batch. With another trigger, and on Spark Connect, the stream ends with the first micro-batch
                of the run, so sources must not be limited. With a clock of given times (`Ticks`) it ends with
                the last time. Rows in a later batch stop the query with `AfterEnd`.
            flat: Return plain columns: the key, ``window_start``, ``window_end`` and the values, without the
                structs ``window`` and ``pane``. There is a column ``retraction`` if the panes are retracted,
                and a column ``kind`` (``pane``, ``late`` or ``invalid``) if dropped rows are emitted.

        Raises:
            InvalidArgument: ``flush`` is given for batch input; or, on Spark Connect, for a source that is
                limited per micro-batch. With another trigger than ``availableNow`` the query stops with it.
        """
        panes = self.dataflow.to_df(flush=flush)
        return panes.select(*self.dataflow.flat_columns) if flat else panes

    def explain(self) -> PipelinePlan:
        """The plan of the operator with everything before it; see `Stream.explain`."""
        return explain_dataflow(self.dataflow)

    def upsert_to(
        self,
        url: str,
        table: str,
        *,
        fold: Folding | None = None,
        create: bool = False,
        identity: str | None = None,
        takeover_from: str | None = None,
        on_error: OnError = "fail",
        flush: bool = False,
    ) -> DataStreamWriter:
        """A stream writer that keeps a PostgreSQL or SQLite table up to date with the panes, exactly once.

        The table has one row for each key and window, or for each key if the window is global.

        Args:
            url: The URL of the database, or ``env:NAME`` or ``file:PATH`` for where it is.
            table: The name of the table.
            fold: How discarding panes are folded into the table; see `slackwater.upsert_to`.
            create: Create the table if it does not exist.
            identity: The identity under which batches are recorded; the id of the query if omitted. It
                belongs to one query.
            takeover_from: The id of the query whose identity this one takes over.
            on_error: ``"fail"`` to fail the batch if the table cannot store a pane, ``"emit"`` to put such
                panes into the table ``slackwater_dead_letters``; see `slackwater.upsert_to`.
            flush: End the stream; see `to_df`.

        Returns:
            The writer: set ``checkpointLocation`` and call ``start()``.

        Raises:
            InvalidArgument: The panes have several rows per key and window, or the table does not fit.
        """
        with naming_extras():
            from slackwater.spark.api.upsert import upsert_to  # imports the database drivers

        options = self.dataflow.upsert_options()
        frame = self.to_df(flush=flush)
        return upsert_to(
            frame,
            url,
            table,
            fold=fold,
            create=create,
            identity=identity,
            takeover_from=takeover_from,
            on_error=on_error,
            **options,
        )

    def upsert_once(
        self,
        url: str,
        table: str,
        *,
        fold: Folding | None = None,
        create: bool = False,
        identity: str | None = None,
        on_error: OnError = "fail",
    ) -> None:
        """Write the panes of batch input to a table in one transaction; arguments as in `upsert_to`."""
        with naming_extras():
            from slackwater.spark.api.upsert import upsert_once

        options = self.dataflow.upsert_options()
        upsert_once(
            self.to_df(),
            url,
            table,
            fold=fold,
            create=create,
            identity=identity,
            on_error=on_error,
            **options,
        )

    def elements(self) -> Stream:
        """The panes as a stream, each an element at its timestamp.

        Raises:
            InvalidArgument: Late or invalid rows are emitted, which another operator cannot process.
        """
        check_counted("late", self.dataflow.spec.late)
        check_counted("invalid", self.dataflow.invalid)
        dataflow = self.dataflow.retracting if self.retracts_as_input else self.dataflow
        return Stream((PaneSource(dataflow),), dataflow.buckets)
