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
from slackwater.spark.api.pane_split import PaneSplit
from slackwater.spark.api.reprs import key_text, short_text
from slackwater.spark.api.stream import Stream
from slackwater.spark.api.stream_operations import StreamOperations

if TYPE_CHECKING:
    from collections.abc import Callable

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
        return upsert_to(
            self.dataflow.to_df(flush=flush, reports=self.dataflow.is_streaming),
            url,
            table,
            fold=fold,
            create=create,
            identity=identity,
            takeover_from=takeover_from,
            on_error=on_error,
            claim=self.dataflow.claim,
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

    def merge_into(
        self,
        table: str,
        *,
        fold: Folding | None = None,
        create: bool = False,
        identity: str | None = None,
        takeover_from: str | None = None,
        flush: bool = False,
    ) -> DataStreamWriter:
        """A stream writer that keeps a Delta Lake or Iceberg table up to date with the panes, exactly once.

        The table has one row for each key and window, or for each key if the window is global: the last
        result that was not retracted. Each batch is one commit of the table, which also records the batch,
        so that it is applied once, and up to which time the table is complete; see `complete_until`.

        Args:
            table: ``delta:LOCATION``, a path or a URL, written by the package deltalake; or
                ``iceberg:CATALOG/NAMESPACE.TABLE``, written by pyiceberg, with a catalog of its
                configuration.
            fold: How discarding panes are folded into the table; see `slackwater.upsert_to`.
            create: Create the table if it does not exist.
            identity: The identity under which batches are recorded; the id of the query if omitted. It
                belongs to one query.
            takeover_from: The id of the query whose identity this one takes over.
            flush: End the stream; see `to_df`.

        Returns:
            The writer: set ``checkpointLocation`` and call ``start()``.

        Raises:
            InvalidArgument: The panes have several rows per key and window, or an argument is invalid.
            TableDoesNotFit: The table does not exist, or has missing or wrong columns, which are all named.
            MissingExtra: deltalake or pyiceberg is not installed.
        """
        from slackwater.spark.api.lake_merge import merge_into  # imports SQL libraries

        options = self.dataflow.upsert_options()
        return merge_into(
            self.dataflow.to_df(flush=flush, reports=self.dataflow.is_streaming),
            table,
            fold=fold,
            create=create,
            identity=identity,
            takeover_from=takeover_from,
            claim=self.dataflow.claim,
            **options,
        )

    def append_to(
        self,
        table: str,
        *,
        create: bool = False,
        flat: bool = False,
        identity: str | None = None,
        takeover_from: str | None = None,
        flush: bool = False,
    ) -> DataStreamWriter:
        """A stream writer that appends every pane to a Delta Lake table or a folder of Parquet files.

        The rows are those of `to_df`. The tasks that compute them write the files themselves, so they do not
        pass through the JVM: with many panes, batches take half to two thirds of the time that they take with
        ``to_df().writeStream.format("parquet")``. Each batch is one commit of the table, which also records
        the batch, so that it is applied once, and up to which time the table is complete; see
        `complete_until`.

        Args:
            table: ``delta:LOCATION``, written with the package deltalake, or ``parquet:LOCATION``, each with
                a path or the URL of an object store. The folder of a Parquet table is read with
                ``spark.read.parquet``, which reads only committed files.
            create: Create the table if it does not exist.
            flat: Write plain columns, without the structs ``window`` and ``pane``; see `to_df`.
            identity: The identity under which batches are recorded; the id of the query if omitted. It
                belongs to one query. With an identity, a query whose checkpoint was deleted is refused;
                otherwise it appends every row again.
            takeover_from: The id of the query whose identity this one takes over.
            flush: End the stream; see `to_df`.

        Returns:
            The writer: set ``checkpointLocation`` and call ``start()``.

        Raises:
            InvalidArgument: The input is not streaming, or an argument is invalid.
            TableDoesNotFit: The table does not exist, or has missing or wrong columns, which are all named.
            MissingExtra: The package that writes the table is not installed.

        >>> import slackwater as sw
        >>> from tempfile import TemporaryDirectory
        >>> spark = sw.session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
        >>> ticks = spark.readStream.format("rate").load().selectExpr("timestamp as at", "value % 3 as shop")
        >>> sales = sw.stream(ticks, event_time="at", watermark=sw.lag("5 seconds")).key_by("shop")
        >>> panes = sales.window(sw.fixed("10 seconds")).agg(sales=sw.count())
        >>> with TemporaryDirectory() as folder:
        ...     writer = panes.append_to(f"parquet:{folder}/panes", create=True)
        ...     query = writer.option("checkpointLocation", f"{folder}/checkpoint").start()
        ...     query.stop()
        """
        from slackwater.spark.api.file_append import append_rows  # imports SQL libraries
        from slackwater.spark.api.pane_sink import SinkIdentity

        reader = self.dataflow.flat_reader if flat else self.dataflow.reader
        commits = SinkIdentity(identity, takeover_from, self.dataflow.claim)
        return append_rows(self.dataflow, reader, table, create=create, commits=commits, flush=flush)

    def foreach_batch(
        self,
        function: Callable[[DataFrame, int], None],
        *,
        fold: Folding | None = None,
        flush: bool = False,
    ) -> DataStreamWriter:
        """A stream writer that calls a function with the changes of each batch, for any other table.

        The changes are what `upsert_to` and `merge_into` apply: one row for each key and window that a batch
        changed, with the columns of the key, ``window_start`` and ``window_end`` (unless the window is
        global), the values, and ``deleted``. If ``deleted`` is true, the row of the key and window is to be
        deleted, otherwise it is to be inserted or replaced. With ``fold`` the values are deltas.

        Spark may call the function again with the same number and the same changes, after a failure: record
        the number in the transaction that applies the changes.

        Args:
            function: Called with the changes, a DataFrame that is kept in memory during the call, and the
                number of the batch.
            fold: How the deltas of discarding panes are combined within a batch; see `slackwater.upsert_to`.
            flush: End the stream; see `to_df`.

        Returns:
            The writer: set ``checkpointLocation`` and call ``start()``.

        Raises:
            InvalidArgument: The panes have several rows per key and window, or ``fold`` is invalid.
        """
        from slackwater.spark.api.foreach_changes import foreach_changes  # imports SQL libraries

        options = self.dataflow.upsert_options()
        return foreach_changes(self.to_df(flush=flush), function, fold=fold, **options)

    def split(self, *, flush: bool = False) -> PaneSplit:
        """The panes, the late rows and the invalid rows as three DataFrames.

        The operator then emits late and invalid rows, whatever ``agg`` was called with. Each DataFrame that
        is started as a query of its own runs the whole pipeline. To write all three from one query, start
        one and divide it with ``foreachBatch``: ``split().all_rows`` has all of them.

        Args:
            flush: End the stream; see `to_df`.

        Returns:
            The DataFrames. Late rows have the key, the window and their own values; invalid rows have the
            key and their values and, if they are records of Kafka, their topic, partition and offset.

        Raises:
            InvalidArgument: The panes are the result of `Windowed.apply`.

        >>> import slackwater as sw
        >>> spark = sw.session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
        >>> bids = spark.sql(
        ...     "select timestamp_seconds(at) as at, price from values (5, 30), (null, 7) t(at, price)"
        ... )
        >>> timed = sw.stream(bids, event_time="at", watermark=sw.lag("5 seconds"))
        >>> windowed = timed.window(sw.fixed("10 seconds"))
        >>> panes, late, invalid = windowed.agg(total=sw.sum("price")).split()[:3]
        >>> panes.count(), late.count(), [row.total for row in invalid.collect()]
        (1, 0, [7])
        """
        dataflow = self.dataflow.emitting_dropped()
        return PaneSplit.of(dataflow.to_df(flush=flush), dataflow.key)

    def elements(self) -> Stream:
        """The panes as a stream, each an element at its timestamp.

        Raises:
            InvalidArgument: Late or invalid rows are emitted, which another operator cannot process.
        """
        check_counted("late", self.dataflow.spec.late)
        check_counted("invalid", self.dataflow.invalid)
        dataflow = self.dataflow.retracting if self.retracts_as_input else self.dataflow
        return Stream((PaneSource(dataflow),), dataflow.buckets)
