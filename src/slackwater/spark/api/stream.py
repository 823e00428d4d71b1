"""The stream API: from a DataFrame to a DataFrame of panes.

Every method returns a new value and checks its arguments, so that a mistake raises on the line that makes it
and not in a worker. Nothing runs until the DataFrame that `Panes.to_df` returns is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from slackwater.errors import InvalidArgument
from slackwater.progress.async_stage import Retry
from slackwater.progress.discovery import Discover
from slackwater.progress.generator import WatermarkPolicy
from slackwater.spark.api.builders import aggregated, applied, cogrouped
from slackwater.spark.api.dataflow import Keep
from slackwater.spark.api.joins import Joined, joined
from slackwater.spark.api.key_columns import check_key
from slackwater.spark.api.map_async import AsyncSource, async_call
from slackwater.spark.api.pane_output import PaneDataflow, PaneSource
from slackwater.spark.api.stream_inputs import StreamInputs, united_sources
from slackwater.spark.api.stream_options import ColumnLike, Headers, IngestionTime, StreamOptions
from slackwater.spark.runtime.async_mapper import AsyncFunction, Fallback
from slackwater.spark.session import PARTITIONS, check_session
from slackwater.spark.wire.bucket_ids import bucket_ids
from slackwater.spark.wire.clock_source import ClockSpec, clock_spec
from slackwater.spark.wire.columns import TIME
from slackwater.time import DurationLike, Range, check_int64, duration
from slackwater.windows import ColumnarAccumulation, Global, Inherited, JoinSpec, Trigger, Window
from slackwater.windows.spec import (
    Closing,
    CogroupHow,
    DropLate,
    Idle,
    OnTime,
    Timestamp,
    WindowingStrategy,
    longest_lateness,
)

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from slackwater.spark.api.upsert import Folding


def stream(
    df: DataFrame,
    *,
    event_time: ColumnLike | IngestionTime | None = None,
    watermark: WatermarkPolicy | None = None,
    event_times: Mapping[str, WatermarkPolicy] | None = None,
    headers: Headers | None = None,
    origin: ColumnLike | None = None,
    origins: Sequence[str] | Discover | None = None,
    idle_after: DurationLike | None = None,
    max_ahead: DurationLike | None = None,
    clock: DurationLike | ClockSpec = "1 second",
    buckets: int | None = None,
) -> Stream:
    """Create a stream from a DataFrame, streaming or batch, with its event time and its watermark.

    The watermark comes from exactly one of ``watermark``, ``event_times`` and ``headers``.

    Args:
        df: The rows.
        event_time: A timestamp column, an expression of that type, or `ingestion_time` for rows without one.
        watermark: The watermark policy of ``event_time``, such as ``lag("5 seconds")``.
        event_times: Several event-time columns, each with its own watermark policy. The first one drives the
            windows, unless `Stream.window` is called with ``by=``.
        headers: The columns in which producers number their buffers and send watermarks; see `headers`.
        origin: The column with the origin of a row, for example a partition or a device. Each origin has its
            own watermark, and the watermark of the stream is the lowest of them.
        origins: The known origins. An origin in this list is waited for before it has sent a row. Without the
            list, origins are discovered as they appear, and rows of one that is first heard behind the
            watermark of the others are late; `discover` makes the first watermark wait for origins.
        idle_after: An origin that sends nothing for this long is excluded from the watermark until it sends
            again. Without it, no origin is ever excluded.
        max_ahead: A row further than this in the future of the clock does not advance the watermark.
        clock: How often a micro-batch runs when no rows arrive.
        buckets: The number of parts that keys are divided into, a multiple of the shuffle partitions; one per
            partition if omitted. It is fixed by the first start of a query.

    Returns:
        The stream.

    Raises:
        InvalidArgument: An argument is missing, invalid, or cannot be combined with another one; or the
            Spark session lacks a required setting.

    >>> from slackwater.progress.generator import lag
    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> bids = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 7 as auction, 30 as price")
    >>> stream(bids, event_time="at", watermark=lag("5 seconds")).key_by("auction").key
    ('auction',)
    """
    if not isinstance(df, DataFrame):
        raise InvalidArgument("df", df, "is not a DataFrame", fix="pass a Spark DataFrame")
    check_session(df.sparkSession)
    partitions = int(df.sparkSession.conf.get(PARTITIONS, "200") or 200)
    count = partitions if buckets is None else check_int64(buckets, "buckets")
    if count < 1 or count % partitions:
        raise InvalidArgument(
            "buckets",
            buckets,
            f"is not a multiple of {PARTITIONS} ({partitions})",
            fix=f"write buckets={partitions}",
        )
    options = StreamOptions(
        df=df,
        event_time=event_time,
        event_times=event_times,
        watermark=watermark,
        headers=headers,
        origin=origin,
        origins=origins,
        idle_after=None if idle_after is None else duration(idle_after, name="idle_after"),
        max_ahead=None if max_ahead is None else duration(max_ahead, name="max_ahead"),
    )
    return Stream((options.source(clock_spec(clock)),), bucket_ids(count, partitions))


@dataclass(frozen=True)
class Stream(StreamInputs):
    """Rows with an event time and a watermark; created by `stream`, and from panes.

    >>> from slackwater.progress.generator import lag
    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> bids = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 7 as auction, 30 as price")
    >>> one = stream(bids, event_time="at", watermark=lag("5 seconds"))
    >>> two = stream(bids, event_time="at", watermark=lag("1 minute"))
    >>> len(one.union(two).sources)
    2
    """

    def key_by(self, *columns: str) -> Stream:
        """Group the rows by key: every window is per value of these columns.

        Args:
            *columns: The names of the key columns, at least one.

        Raises:
            InvalidArgument: A column does not exist or has a type that cannot be a key.
        """
        if not columns:
            raise InvalidArgument(
                "columns", columns, "is empty", fix='write key_by("auction"), or omit the call'
            )
        for name in columns:
            check_key(self.field("key_by", name))
        return replace(self, key=tuple(columns))

    def by(self, key: str) -> Stream:
        """Choose the event time that drives the next operator.

        Args:
            key: A name in the ``event_times`` of `stream`.

        Raises:
            InvalidArgument: The stream has no such watermark key.
        """
        return replace(self, sources=tuple(source.by(key) for source in self.sources))

    def union(self, *others: Stream) -> Stream:
        """Unite streams; the slowest one that is not idle holds the watermark back.

        The next operator can use the columns that all streams have with the same type.

        Args:
            *others: Streams with the same number of buckets, watermark key and clock.

        Raises:
            InvalidArgument: The streams cannot be united.
        """
        return replace(self, sources=united_sources(self, *others))

    def map_async(
        self,
        fn: AsyncFunction,
        schema: str | StructType,
        *,
        ordered: bool = True,
        capacity: int = 100,
        timeout: DurationLike | None = "30 seconds",
        retry: Retry | None = None,
        fallback: Fallback | None = None,
    ) -> Stream:
        """Map each row with an async function, such as a call to a service, a database or a model.

        The event time and the origin of a result are those of its row, so every row counts for the watermark,
        even if the function returns None for it. ``fn`` may be called again for the same row when a batch is
        repeated.

        Args:
            fn: The function. It gets a row as a dict of all columns, with timestamps as datetimes in UTC, and
                returns a dict, a list of dicts, or None for no result.
            schema: The columns of the results, as a StructType or a DDL string. The stream then has these
                columns and no others; a column that is missing in a result is null.
            ordered: Whether results keep the order of the rows in a task. Otherwise they are emitted as they
                complete.
            capacity: The maximum number of concurrent calls in each task.
            timeout: The time limit for a row over all attempts; None for no limit.
            retry: Whether and how failed calls are retried; by default they are not.
            fallback: The result for a row whose call exceeds ``timeout`` or fails after all retries: a value
                like those that ``fn`` returns, or a function of the row that returns one. By default such a
                call fails the batch.

        Returns:
            The stream of results, with the same key if its columns are in ``schema``.

        Raises:
            InvalidArgument: An argument is invalid. Without a ``fallback``, a call that fails or exceeds
                ``timeout`` fails the batch; a result that does not match ``schema`` always does.

        >>> from slackwater.progress.generator import lag
        >>> from slackwater.spark.session import session
        >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
        >>> bids = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 7 as auction, 30 as price")
        >>> async def rated(row):
        ...     return {"auction": row["auction"], "euros": row["price"] * 0.9}
        >>> one = stream(bids, event_time="at", watermark=lag("5 seconds"))
        >>> one.map_async(rated, "auction int, euros double").sources[0].schema.names
        ['auction', 'euros']
        """
        for source in self.sources:
            for name in source.schema.names:
                source.field("map_async", name)
        call = async_call(
            fn,
            schema,
            ordered=ordered,
            capacity=capacity,
            timeout=timeout,
            retry=retry,
            fallback=fallback,
        )
        mapped = replace(self, sources=tuple(AsyncSource(source, call) for source in self.sources), key=())
        return mapped.key_by(*self.key) if self.key else mapped

    def join(
        self,
        other: Stream,
        *,
        on: Sequence[str],
        before: DurationLike,
        after: DurationLike,
        how: Literal["inner", "left", "right", "full"] = "inner",
    ) -> Joined:
        """Join rows with equal keys whose event times are close together.

        A row of the other stream matches if its time is at most ``before`` before and at most ``after`` after
        that of a row of this stream, both inclusive. With an outer join, rows without a match are emitted
        when no match is possible any more.

        Args:
            other: The right side.
            on: The key columns, which both streams have.
            before: How much earlier a row of the other stream may be.
            after: How much later a row of the other stream may be.
            how: ``inner``, ``left``, ``right`` or ``full``.

        Returns:
            The pairs. A column that both sides have and that is not in ``on`` gets the suffix ``_left`` or
            ``_right``.

        Raises:
            InvalidArgument: The streams cannot be joined, or an argument is invalid.
        """
        on = (on,) if isinstance(on, str) else tuple(on)
        return joined(
            self.key_by(*on),
            other.key_by(*on),
            JoinSpec(
                on=on,
                before=duration(before, name="before"),
                after=duration(after, name="after"),
                how=how,
                left_time=TIME,
                right_time=TIME,
            ),
        )

    def window(self, window: Window, *, by: str | None = None) -> Windowed:
        """Divide event time into windows.

        Args:
            window: The window, such as ``fixed("10 seconds")``.
            by: The event time that drives the windows, if the stream has several.

        Raises:
            InvalidArgument: ``window`` is not a window, or does not fit rows that are in windows already.
        """
        if by is not None:
            return self.by(by).window(window)
        if not isinstance(window, Window):
            raise InvalidArgument("window", window, "is not a window", fix='write fixed("10 seconds")')
        if isinstance(window, Inherited) and not all(source.windows for source in self.sources):
            raise InvalidArgument(
                "window",
                window,
                "cannot be inherited, because rows of a DataFrame are not in a window",
                fix='write fixed("10 seconds")',
            )
        known = [inherited for source in self.sources for inherited in source.windows]
        if not isinstance(window, Inherited) and any(isinstance(one, Global) for one in known):
            raise InvalidArgument(
                "window",
                window,
                "cannot contain panes of a global window, whose timestamp is the end of time",
                fix="omit it: agg(…) keeps the global window",
            )
        strategy = WindowingStrategy(
            window=window, key=self.key, watermark_key=self.watermark_key, allowed_lateness=self.lateness
        )
        return Windowed(self, strategy)

    def agg(self, *, late: Keep = "count", **accumulations: ColumnarAccumulation) -> Panes:
        """Aggregate panes in the windows that they are in already.

        Args:
            late: Whether late rows are only counted (``"count"``) or emitted as well (``"emit"``).
            **accumulations: The values of the panes by name, such as ``total=sum("price")``.

        Raises:
            InvalidArgument: The rows are not panes, or an accumulation is invalid.
        """
        return self.window(Inherited()).agg(late=late, invalid="count", **accumulations)


@dataclass(frozen=True)
class Windowed:
    """A stream in windows, with the settings that decide what is emitted and when; see `Stream.window`.

    Each setting is checked when it is made, so that an invalid combination raises on its line.

    >>> from slackwater.windows import fixed
    >>> windowed = Windowed(stream=None, strategy=WindowingStrategy(window=fixed("10 seconds"), key=()))
    >>> windowed.allowed_lateness("1 minute").discarding().strategy.allowed_lateness
    60000000
    >>> windowed.allowed_lateness("-1 minute")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: allowed_lateness = -60000000: must not be negative; use 0, or None \
for no limit
    """

    stream: Stream
    strategy: WindowingStrategy
    inherits_lateness: bool = True
    """Whether the allowed lateness is that of the inputs, because none was chosen."""

    def trigger(self, trigger: Trigger, *, allow_data_loss: bool = False) -> Windowed:
        """Choose when panes are emitted; by default once, when the watermark passes the end of the window.

        Args:
            trigger: The trigger, such as ``after_watermark(early=every(count=100))``.
            allow_data_loss: Allow a trigger that can finish, after which further rows are dropped.
        """
        return self._with(replace(self.strategy, trigger=trigger, allow_data_loss=allow_data_loss))

    def allowed_lateness(self, lateness: DurationLike | None) -> Windowed:
        """Choose how long after its end a window still accepts rows.

        The default is 0 for rows of a DataFrame. Panes of another operator may be late themselves: there the
        default is the allowed lateness of that operator, the longest one if there are several, so that no
        late pane and no retraction is dropped.

        Args:
            lateness: A duration, or None for no limit.
        """
        limit = None if lateness is None else duration(lateness, name="allowed_lateness")
        return replace(self, strategy=replace(self.strategy, allowed_lateness=limit), inherits_lateness=False)

    def discarding(self) -> Windowed:
        """Emit panes that contain only what is new since the previous pane."""
        return self._with(replace(self.strategy, mode="discarding"))

    def accumulating(self) -> Windowed:
        """Emit panes that contain everything so far. This is the default."""
        return self._with(replace(self.strategy, mode="accumulating"))

    def accumulating_and_retracting(self) -> Windowed:
        """Emit panes that contain everything so far, and retract the previous pane."""
        return self._with(replace(self.strategy, mode="accumulating_and_retracting"))

    def on_time(self, when: OnTime) -> Windowed:
        """Choose whether the on-time pane is emitted even if it contains nothing new.

        Args:
            when: ``"always"`` (the default) or ``"if_non_empty"``.
        """
        return self._with(replace(self.strategy, on_time=when))

    def closing(self, when: Closing) -> Windowed:
        """Choose whether a last pane is emitted when the window closes, even if it contains nothing new.

        Args:
            when: ``"always"`` or ``"if_non_empty"`` (the default).
        """
        return self._with(replace(self.strategy, closing=when))

    def drop_late(self, how: DropLate) -> Windowed:
        """Choose how late rows are recognized.

        Args:
            how: ``"by_window"`` (the default) drops a row from each window that has closed; ``"by_element"``
                also drops it from all windows if its event time is more than the allowed lateness behind
                the watermark.
        """
        return self._with(replace(self.strategy, drop_late=how))

    def idle(self, choice: Idle) -> Windowed:
        """Choose what happens to open windows when all inputs have become idle.

        Args:
            choice: With ``"hold"`` (the default) they stay open, and the operator does not forward IDLE
                before they have fired. With ``"close"`` they fire and close at once, as if the watermark
                had passed them; rows that arrive later for them are late.
        """
        return self._with(replace(self.strategy, idle=choice))

    def timestamp(self, which: Timestamp) -> Windowed:
        """Choose the output timestamp of a pane, which is its event time in the next operator.

        Args:
            which: ``"end_of_window"`` (the default) is the end of the window minus one microsecond.
                ``"earliest"`` and ``"latest"`` are the earliest and latest event time of the rows that are
                new in the pane and were not behind the watermark when they arrived.
        """
        return self._with(replace(self.strategy, timestamp=which))

    def only_updated(self) -> Windowed:
        """Skip panes whose values equal those of the previous pane."""
        return self._with(replace(self.strategy, only_updated=True))

    def agg(
        self, *, late: Keep = "count", invalid: Keep = "count", **accumulations: ColumnarAccumulation
    ) -> Panes:
        """Aggregate the rows of each window.

        Args:
            late: Whether rows that arrived too late are only counted (``"count"``) or also emitted
                (``"emit"``), as rows of kind ``late`` with their own values.
            invalid: The same for rows without a usable event time, as rows of kind ``invalid``.
            **accumulations: The values of the panes by name, such as ``total=sum("price")``.

        Raises:
            InvalidArgument: A setting, a name or an accumulation is invalid.
        """
        dataflow = aggregated(self.stream, self.strategy, accumulations, late=late, invalid=invalid)
        return Panes(dataflow)

    def apply(
        self,
        function: Callable[[dict[str, Any], Range, Any], Any],
        schema: StructType | str,
        *,
        columns: Sequence[str] | None = None,
        frame: Literal["polars", "pandas"] = "polars",
    ) -> Panes:
        """Compute the rows of each pane with a function over all rows of the pane. **The slow path.**

        Every row is kept until its window closes, and every pane is a call in Python: use `agg` where an
        accumulation can do the work. A retraction repeats what the function returned before; the function is
        not called again. Late rows are counted.

        Args:
            function: Called as ``function(key, window, rows)`` with the key as a dict, the window as a
                `Range` of microseconds, and the rows as a DataFrame in the order of their event times. It
                returns a Polars or pandas DataFrame or a list of dicts, possibly empty.
            schema: The columns that the function returns, as a StructType or a DDL string such as
                ``"best bigint, bidder string"``.
            columns: The columns of the rows that are passed to the function; all but the key if omitted.
            frame: Whether the rows are passed as a Polars or a pandas DataFrame.

        Raises:
            InvalidArgument: A setting, a column or the schema is invalid.

        >>> from slackwater.progress.generator import lag
        >>> from slackwater.spark.session import session
        >>> from slackwater.windows import fixed
        >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
        >>> bids = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 7 as auction, 30 as price")
        >>> windowed = stream(bids, event_time="at", watermark=lag("5 seconds")).window(fixed("10 seconds"))
        >>> def spread(key, window, rows):
        ...     return [{"spread": rows["price"].max() - rows["price"].min()}]
        >>> windowed.apply(spread, "spread int").schema.names
        ['window', 'spread', 'pane']
        """
        return Panes(applied(self.stream, self.strategy, function, schema, columns=columns, frame=frame))

    def cogroup(
        self, other: Stream, *, left: Sequence[str], right: Sequence[str], how: CogroupHow = "cogroup"
    ) -> Panes:
        """Combine the rows of two streams with equal keys in the same windows.

        The lower of the two watermarks counts, and no window fires by the watermark until both are known.

        Args:
            other: The right side. Both streams need the same key.
            left: The columns of this stream in the panes.
            right: The columns of the other stream in the panes.
            how: With ``"cogroup"`` a pane has two lists of rows, ``left`` and ``right``. With ``"inner"``,
                ``"left"``, ``"right"`` or ``"full"`` it has one row per pair; a column of the right side
                whose name is already used gets the suffix ``_right``.

        Raises:
            InvalidArgument: The streams cannot be combined, or a setting or a column is invalid.
        """
        strategy = self.strategy
        if self.inherits_lateness and isinstance(other, Stream):
            longest = longest_lateness((strategy.allowed_lateness, other.lateness))
            strategy = replace(strategy, allowed_lateness=longest)
        return Panes(cogrouped(self.stream, other, strategy, left=left, right=right, how=how))

    def _with(self, strategy: WindowingStrategy) -> Windowed:
        return replace(self, strategy=strategy)


@dataclass(frozen=True)
class Panes:
    """The panes of a windowed stream, for output or as the input of another operator; see `Windowed.agg`.

    >>> from slackwater.progress.generator import lag
    >>> from slackwater.spark.session import session
    >>> from slackwater.windows import count, fixed
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> bids = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 7 as auction, 30 as price")
    >>> keyed = stream(bids, event_time="at", watermark=lag("5 seconds")).key_by("auction")
    >>> panes = keyed.window(fixed("10 seconds")).agg(bids=count())
    >>> panes.schema.names
    ['auction', 'window', 'bids', 'pane']
    >>> panes.to_df().select("auction", "bids").collect()
    [Row(auction=7, bids=1)]
    """

    dataflow: PaneDataflow

    @property
    def schema(self) -> StructType:
        """Key columns, ``window{start, end}``, values, ``pane{timing, index, …, kind}``."""
        return self.dataflow.schema

    def to_df(self, *, flush: bool = False) -> DataFrame:
        """The panes as a DataFrame: streaming if the input is, otherwise every window fires at once.

        Args:
            flush: End the stream with the run. With ``trigger(availableNow=True)`` every window fires after
                the last rows that were there when the run started, whatever the limits of the sources per
                batch. With another trigger, and on Spark Connect, the stream ends with the first micro-batch
                of the run, so sources must not be limited. With a clock of given times (`Ticks`) it ends with
                the last time. Rows in a later batch stop the query with `AfterEnd`.

        Raises:
            InvalidArgument: ``flush`` is given for batch input; or, on Spark Connect, for a source that is
                limited per micro-batch. With another trigger than ``availableNow`` the query stops with it.
        """
        return self.dataflow.to_df(flush=flush)

    def upsert_to(
        self,
        url: str,
        table: str,
        *,
        fold: Folding | None = None,
        create: bool = False,
        identity: str | None = None,
        flush: bool = False,
    ) -> DataStreamWriter:
        """A stream writer that keeps a PostgreSQL or SQLite table up to date with the panes, exactly once.

        The table has one row for each key and window, or for each key if the window is global.

        Args:
            url: The URL of the database.
            table: The name of the table.
            fold: How discarding panes are folded into the table; see `slackwater.upsert_to`.
            create: Create the table if it does not exist.
            identity: The identity under which batches are recorded; the id of the query if omitted.
            flush: End the stream; see `to_df`.

        Returns:
            The writer: set ``checkpointLocation`` and call ``start()``.

        Raises:
            InvalidArgument: The panes have several rows per key and window, or the table does not fit.
        """
        from slackwater.spark.api.upsert import upsert_to  # imports the database drivers

        options = self.dataflow.upsert_options()
        frame = self.to_df(flush=flush)
        return upsert_to(frame, url, table, fold=fold, create=create, identity=identity, **options)

    def upsert_once(
        self,
        url: str,
        table: str,
        *,
        fold: Folding | None = None,
        create: bool = False,
        identity: str | None = None,
    ) -> None:
        """Write the panes of batch input to a table in one transaction; arguments as in `upsert_to`."""
        from slackwater.spark.api.upsert import upsert_once

        options = self.dataflow.upsert_options()
        upsert_once(self.to_df(), url, table, fold=fold, create=create, identity=identity, **options)

    def key_by(self, *columns: str) -> Stream:
        """Use the panes as the elements of another operator, grouped by these columns.

        Each pane is an element at its timestamp. Without a `Stream.window` the next operator keeps the
        windows of the panes. If a window fires several times its panes are several elements, unless the mode
        retracts the earlier ones.

        Args:
            *columns: Key columns or values of the panes.
        """
        return self.elements().key_by(*columns)

    def window(self, window: Window) -> Windowed:
        """Use the panes as the elements of another operator, without a key.

        Args:
            window: The windows of the next operator.
        """
        return self.elements().window(window)

    def agg(self, *, late: Keep = "count", **accumulations: ColumnarAccumulation) -> Panes:
        """Aggregate the panes over all keys, in the windows that they are in.

        Args:
            late: Whether late rows are only counted (``"count"``) or emitted as well (``"emit"``).
            **accumulations: The values of the new panes by name.
        """
        return self.elements().agg(late=late, **accumulations)

    def union(self, *others: Stream | Panes) -> Stream:
        """Unite the panes with other streams or panes.

        Args:
            *others: Streams with the same number of buckets and the same watermark key.
        """
        return self.elements().union(*(one.elements() if isinstance(one, Panes) else one for one in others))

    def map_async(self, fn: AsyncFunction, schema: str | StructType, **options: Any) -> Stream:
        """Map the panes with an async function; arguments as in `Stream.map_async`.

        A retraction calls the function again with the retracted pane, so it has to return the same result for
        equal panes.
        """
        return self.elements().map_async(fn, schema, **options)

    def elements(self) -> Stream:
        """The panes as a stream, each an element at its timestamp.

        Raises:
            InvalidArgument: Late or invalid rows are emitted, which another operator cannot process.
        """
        emitted = (("late", self.dataflow.spec.late), ("invalid", self.dataflow.invalid))
        for name, kept in emitted:
            if kept == "emit":
                raise InvalidArgument(
                    name,
                    kept,
                    "is not supported if another operator follows, which cannot process dropped rows",
                    fix=f'write {name}="count"',
                )
        return Stream((PaneSource(self.dataflow),), self.dataflow.buckets)
