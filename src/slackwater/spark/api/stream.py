"""The stream API: from a DataFrame to a DataFrame of panes.

Every method returns a new value and checks its arguments, so that a mistake raises on the line that makes it
and not in a worker. Nothing runs until the DataFrame that `Panes.to_df` returns is written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from slackwater.errors import InvalidArgument
from slackwater.progress.async_stage import Retry
from slackwater.progress.discovery import Discover
from slackwater.progress.generator import WatermarkPolicy
from slackwater.progress.pipeline_plan import PipelinePlan
from slackwater.progress.values import is_text
from slackwater.spark.api.asof import asof_joined
from slackwater.spark.api.builders import aggregated, applied, cogrouped
from slackwater.spark.api.dataflow import Keep
from slackwater.spark.api.deduplicate import deduplicated
from slackwater.spark.api.explain import explain_dataflow, explain_inputs
from slackwater.spark.api.expressions import Expression, FilteredSource, ProjectedSource
from slackwater.spark.api.joins import joined
from slackwater.spark.api.key_columns import check_key
from slackwater.spark.api.map_async import AsyncSource, async_call
from slackwater.spark.api.pane_output import PaneDataflow, PaneSource
from slackwater.spark.api.row_output import OutputSource, RowDataflow
from slackwater.spark.api.session_gaps import with_gaps
from slackwater.spark.api.stream_inputs import Source, StreamInputs, united_sources
from slackwater.spark.api.stream_options import ColumnLike, Headers, IngestionTime, StreamOptions
from slackwater.spark.runtime.async_mapper import AsyncFunction, Fallback
from slackwater.spark.session import PARTITIONS, check_session
from slackwater.spark.wire.bucket_ids import chosen_bucket_ids
from slackwater.spark.wire.clock_source import ClockSpec, clock_spec
from slackwater.spark.wire.columns import SESSION_GAP, TIME
from slackwater.time import DurationLike, Range, duration
from slackwater.windows import (
    AsofSpec,
    ColumnarAccumulation,
    DeduplicateSpec,
    Global,
    Inherited,
    JoinSpec,
    Sessions,
    Trigger,
    Window,
)
from slackwater.windows.asof_spec import AsofDirection, AsofHow
from slackwater.windows.assigners import SessionsBy
from slackwater.windows.spec import (
    Closing,
    CogroupHow,
    DropLate,
    Idle,
    JoinHow,
    JoinIdle,
    OnChange,
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
    buckets: int | list[int] | tuple[int, ...] | None = None,
    name: str | None = None,
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
            partition if omitted. It is fixed by the first start of a query. The ids of the parts are only
            needed for a checkpoint that has other ones, which an error reports.
        name: What reports call the stream, as in ``held back by input 'orders'``. Without a name, the inputs
            of an operator are called by their position.

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
    ids = chosen_bucket_ids(buckets, partitions)
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
    if name is not None and not is_text(name):
        raise InvalidArgument("name", name, "is not a name", fix='write name="orders"')
    source = replace(options.source(clock_spec(clock)), given_name=name)
    return Stream((source,), ids)


class StreamOperations(ABC):
    """The operations of streams, panes and joins: the output of every operator is a stream again."""

    @abstractmethod
    def elements(self) -> Stream:
        """The rows as a stream."""

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
        stream = self.elements()
        for name in columns:
            check_key(stream.field("key_by", name))
        return replace(stream, key=tuple(columns))

    def by(self, key: str, *, name: str | None = None) -> Stream:
        """Choose the event time that drives the next operator.

        Args:
            key: A name in the ``event_times`` of `stream`. A join has the keys of both sides, as
                ``left.<key>`` and ``right.<key>`` if they have the same name, and a full join also
                ``either``: the left time of a row, or the right one if it has no left side.
            name: Another name for this watermark key from here on. Streams can be united if their watermark
                keys have the same name.

        Raises:
            InvalidArgument: The stream has no such watermark key.
        """
        stream = self.elements()
        if name is not None and not is_text(name):
            raise InvalidArgument("name", name, "is not a name", fix='write by("shipped", name="default")')
        chosen = tuple(source.by(key) for source in stream.sources)
        return replace(stream, sources=chosen, watermark_name=name)

    def union(self, *others: StreamOperations) -> Stream:
        """Unite streams; the slowest one that is not idle holds the watermark back.

        The next operator can use the columns that all streams have with the same type.

        Args:
            *others: Streams, panes or joins with the same number of buckets, watermark key and clock.

        Raises:
            InvalidArgument: The streams cannot be united.
        """
        stream = self.elements()
        united = united_sources(stream, *(_elements("others", other) for other in others))
        return replace(stream, sources=united)

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
        stream = self.elements()
        for source in stream.sources:
            for name in source.available.names:
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
        return _derived(stream, (AsyncSource(source, call) for source in stream.sources))

    def filter(self, condition: Expression) -> Stream:
        """Keep the rows for which a condition is true.

        Rows that are filtered out still advance the watermark. A retraction is filtered like the row that it
        takes back.

        Args:
            condition: A boolean expression over the columns by name, as a Spark Column or SQL text.

        Raises:
            InvalidArgument: The condition is not a boolean expression over the columns.

        >>> from slackwater.progress.generator import lag
        >>> from slackwater.spark.session import session
        >>> from slackwater.windows import fixed, sum
        >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
        >>> bids = spark.sql("select timestamp_seconds(id) as at, id as price from range(5)")
        >>> high = stream(bids, event_time="at", watermark=lag("5 seconds")).filter("price > 2")
        >>> high.window(fixed("10 seconds")).agg(total=sum("price")).to_df().select("total").collect()
        [Row(total=7)]
        """
        stream = self.elements()
        return _derived(stream, (FilteredSource.checked(source, condition) for source in stream.sources))

    def select(self, *columns: Expression) -> Stream:
        """Replace the columns of the rows; event times and windows stay.

        Args:
            *columns: Column names, or expressions over the columns by name, as Spark Columns with an alias or
                SQL text such as ``"price * 2 as twice"``.

        Returns:
            The stream with these columns only, and the same key if its columns are among them.

        Raises:
            InvalidArgument: An expression is invalid, or the columns of the key are missing.
        """
        stream = self.elements()
        return _derived(stream, (ProjectedSource.selecting(source, columns) for source in stream.sources))

    def with_columns(self, columns: Mapping[str, Expression] | None = None, /, **named: Expression) -> Stream:
        """Add columns to the rows, or replace some; event times and windows stay.

        Args:
            columns: Expressions by column name, as Spark Columns or SQL text. All of them are computed from
                the columns before the call.
            **named: More of them.

        Raises:
            InvalidArgument: An expression is invalid.

        >>> from slackwater.progress.generator import lag
        >>> from slackwater.spark.session import session
        >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
        >>> bids = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 7 as auction, 30 as price")
        >>> one = stream(bids, event_time="at", watermark=lag("5 seconds"))
        >>> one.with_columns(twice="price * 2").sources[0].schema.names
        ['at', 'auction', 'price', 'twice']
        """
        stream = self.elements()
        new = {**(columns or {}), **named}
        return _derived(stream, (ProjectedSource.adding(source, new) for source in stream.sources))

    def join(
        self,
        other: StreamOperations,
        *,
        on: Sequence[str],
        before: DurationLike,
        after: DurationLike,
        how: JoinHow = "inner",
        condition: str | None = None,
        idle: JoinIdle = "hold",
        late: Keep = "count",
        suffixes: tuple[str, str] = ("_left", "_right"),
    ) -> Joined:
        """Join rows with equal keys whose event times are close together.

        A row of the other stream matches if its time is at most ``before`` before and at most ``after`` after
        that of a row of this stream, both inclusive. With an outer join, rows without a match are emitted
        when no match is possible any more.

        The sides may have different watermark keys, and each keeps its own watermark. The result is a stream
        again, with the event times of both sides: choose one for the next operator with `by`.

        Args:
            other: The right side: a stream, panes or another join.
            on: The key columns, which both streams have.
            before: How much earlier a row of the other stream may be.
            after: How much later a row of the other stream may be.
            how: ``"inner"``, ``"left"``, ``"right"`` or ``"full"`` for pairs; ``"semi"`` or ``"anti"`` for
                the rows of this stream with or without a match.
            condition: A further condition for a match, as SQL text over the columns of a pair.
            idle: Whether a side whose inputs are all idle holds back the rows of the other one (``"hold"``),
                or counts as being as far as the other side (``"proceed"``), so that rows that it sends later
                are late.
            late: Whether rows that arrived behind the watermark of their side are only counted (``"count"``)
                or also emitted (``"emit"``). Rows then have two more columns: ``kind``, which is ``row`` or
                ``late``, and ``side``, the side of a late row.
            suffixes: Appended to the columns that both sides have and that are not in ``on``.

        Returns:
            The pairs: the key, then the other columns of this stream, then those of the other one. If a side
            retracts rows, so does the join, and a column ``retraction`` marks its retractions.

        Raises:
            InvalidArgument: The streams cannot be joined, or an argument is invalid.
        """
        on = (on,) if isinstance(on, str) else tuple(on)
        spec = JoinSpec(
            on=on,
            before=duration(before, name="before"),
            after=duration(after, name="after"),
            how=how,
            left_time=TIME,
            right_time=TIME,
            suffixes=suffixes,
            late=late,
            idle=idle,
            condition=condition,
        )
        return Joined(joined(self.key_by(*on), _elements("other", other).key_by(*on), spec))

    def join_asof(
        self,
        other: StreamOperations,
        *,
        on: Sequence[str] = (),
        tolerance: DurationLike | None = None,
        direction: AsofDirection = "backward",
        how: AsofHow = "left",
        idle: JoinIdle = "hold",
        late: Keep = "count",
        suffixes: tuple[str, str] = ("_left", "_right"),
    ) -> Joined:
        """Join each row with the row of another stream that is closest in time.

        A row of this stream is emitted when no future row of the other one can be a better match, so the
        result does not depend on the order of arrival: it equals Polars' ``join_asof`` over all rows that are
        not late. Of several rows of the other stream with the same key and time, ``"backward"`` and
        ``"nearest"`` select the one that arrived last, ``"forward"`` the one that arrived first.

        The result is a stream again, with the event times and watermarks of this stream; those of the other
        stream end here.

        Args:
            other: The right side: a stream, panes or a join.
            on: The key columns, which both streams have. Without keys, all rows are in one bucket.
            tolerance: The largest distance of a match. Without one, the latest row of every key is kept, and
                with ``"forward"`` or ``"nearest"`` a row without a match waits until the other stream ends.
            direction: ``"backward"`` selects the last row that is not later, ``"forward"`` the first that is
                not earlier, ``"nearest"`` the closest; of two at the same distance, the later one.
            how: Whether rows without a match are emitted with nulls (``"left"``) or not (``"inner"``).
            idle: As in `join`.
            late: As in `join`.
            suffixes: Appended to the columns that both sides have and that are not in ``on``.

        Returns:
            The rows: the key, then the other columns of this stream, then those of the other one.

        Raises:
            InvalidArgument: The streams cannot be joined, or an argument is invalid.

        >>> from slackwater.progress.generator import lag
        >>> from slackwater.spark.session import session
        >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
        >>> trades = spark.sql("select timestamp'2024-01-01 00:00:09Z' as at, 'a' as symbol, 3 as size")
        >>> quotes = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 'a' as symbol, 70 as price")
        >>> left, right = (stream(df, event_time="at", watermark=lag("5 seconds")) for df in (trades, quotes))
        >>> left.join_asof(right, on=["symbol"]).to_df().select("symbol", "size", "price").collect()
        [Row(symbol='a', size=3, price=70)]
        """
        on = (on,) if isinstance(on, str) else tuple(on)
        spec = AsofSpec(
            on=on,
            direction=direction,
            how=how,
            tolerance=None if tolerance is None else duration(tolerance, name="tolerance"),
            left_time=TIME,
            right_time=TIME,
            suffixes=suffixes,
            late=late,
            idle=idle,
        )
        left, right = replace(self.elements(), key=()), replace(_elements("other", other), key=())
        if on:
            left, right = left.key_by(*on), right.key_by(*on)
        return Joined(asof_joined(left, right, spec))

    def deduplicate(self, *, on: Sequence[str], within: DurationLike, late: Keep = "count") -> Deduplicated:
        """Drop rows that repeat a row with the same key within a time bound.

        A row is a duplicate if a row with the same key was passed on whose event time is at most ``within``
        earlier or later. Rows count in order of arrival, and those of one micro-batch in order of their event
        time. A row is remembered until the watermark is more than ``within`` after it. A row behind the
        watermark is late and dropped, because rows before it may have been forgotten. Null is a key.

        Rows pass at once, and all watermarks are forwarded unchanged.

        Args:
            on: The key columns.
            within: How close in time rows with the same key are duplicates.
            late: Whether late rows are only counted (``"count"``) or also emitted (``"emit"``). Rows then
                have another column ``kind``, which is ``row`` or ``late``.

        Returns:
            The rows that are not duplicates, with the same columns.

        Raises:
            InvalidArgument: An argument is invalid, or the stream contains retractions.

        >>> from slackwater.progress.generator import lag
        >>> from slackwater.spark.session import session
        >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
        >>> clicks = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 7 as id from range(2)")
        >>> one = stream(clicks, event_time="at", watermark=lag("5 seconds"))
        >>> one.deduplicate(on=["id"], within="1 hour").to_df().count()
        1
        """
        on = (on,) if isinstance(on, str) else tuple(on)
        spec = DeduplicateSpec(on=on, within=duration(within, name="within"), event_time=TIME, late=late)
        return Deduplicated(deduplicated(self.key_by(*on), spec))

    def window(self, window: Window | SessionsBy, *, by: str | None = None) -> Windowed:
        """Divide event time into windows.

        Args:
            window: The window, such as ``fixed("10 seconds")``.
            by: The event time that drives the windows, if the stream has several.

        Raises:
            InvalidArgument: ``window`` is not a window, or does not fit rows that are in windows already.
        """
        if by is not None:
            return self.by(by).window(window)
        stream = self.elements()
        if isinstance(window, SessionsBy) or (isinstance(window, Sessions) and window.column is not None):
            stream = replace(stream, sources=with_gaps(stream.sources, window.gap))
            window = Sessions(SESSION_GAP)
        if not isinstance(window, Window):
            raise InvalidArgument("window", window, "is not a window", fix='write fixed("10 seconds")')
        if isinstance(window, Inherited) and not all(source.windows for source in stream.sources):
            raise InvalidArgument(
                "window",
                window,
                "cannot be inherited, because rows of a DataFrame or a join are not in a window",
                fix='write fixed("10 seconds")',
            )
        known = [inherited for source in stream.sources for inherited in source.windows]
        if not isinstance(window, Inherited) and any(isinstance(one, Global) for one in known):
            raise InvalidArgument(
                "window",
                window,
                "cannot contain panes of a global window, whose timestamp is the end of time",
                fix="omit it: agg(…) keeps the global window",
            )
        strategy = WindowingStrategy(
            window=window,
            key=stream.key,
            watermark_key=stream.watermark_key,
            allowed_lateness=stream.lateness,
        )
        return Windowed(stream, strategy)

    def explain(self) -> PipelinePlan:
        """The plan up to here: steps, origins with their numbers, and event times.

        Sources and stateful operators are origins, numbered from 1 bottom-up. A partition or device inside a
        source is a name under its number, as in ``1/north``.

        Returns:
            The plan: ``print`` it, or let a notebook show it.

        >>> from slackwater.progress.generator import lag
        >>> from slackwater.spark.session import session
        >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
        >>> bids = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 7 as auction, 30 as price")
        >>> stream(bids, event_time="at", watermark=lag("5 seconds")).key_by("auction").explain()
        -         stream (stateless)
                  key: auction
                  event times that reach the next operator: default
          origin 1  DataFrame[at, auction, price] (source)
                    event time default: lag 5 s
                    origins: one
        """
        return explain_inputs(self.elements())

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
class Stream(StreamInputs, StreamOperations):
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

    def elements(self) -> Stream:
        """The stream itself."""
        return self


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

    def on_change(self, value: OnChange) -> Windowed:
        """Choose the value of an accumulation that is added to a running query, in windows that are open.

        Args:
            value: ``"null"`` (the default) in every pane with rows from before the change, or
                ``"since_change"`` for the value of the rows since the change.
        """
        return self._with(replace(self.strategy, on_change=value))

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
        self,
        other: StreamOperations,
        *,
        left: Sequence[str],
        right: Sequence[str],
        how: CogroupHow = "cogroup",
        late: Keep = "count",
    ) -> Panes:
        """Combine the rows of two streams with equal keys in the same windows.

        The lower of the two watermarks counts, and no window fires by the watermark until both are known.

        Args:
            other: The right side. Both streams need the same key, or no key. They may have different
                watermark keys; the panes have that of this stream.
            left: The columns of this stream in the panes.
            right: The columns of the other stream in the panes.
            how: With ``"cogroup"`` a pane has two lists of rows, ``left`` and ``right``. With ``"inner"``,
                ``"left"``, ``"right"`` or ``"full"`` it has one row per pair; a column of the right side
                whose name is already used gets the suffix ``_right``.
            late: Whether rows that arrived too late are only counted (``"count"``) or also emitted
                (``"emit"``), as rows of kind ``late`` in which the other side is empty or null.

        Raises:
            InvalidArgument: The streams cannot be combined, or a setting or a column is invalid.
        """
        elements, strategy = _elements("other", other), self.strategy
        if self.inherits_lateness:
            longest = longest_lateness((strategy.allowed_lateness, elements.lateness))
            strategy = replace(strategy, allowed_lateness=longest)
        carried = {"left": left, "right": right}
        return Panes(cogrouped(self.stream, elements, strategy, **carried, how=how, late=late))

    def _with(self, strategy: WindowingStrategy) -> Windowed:
        return replace(self, strategy=strategy)


@dataclass(frozen=True)
class Panes(StreamOperations):
    """The panes of a windowed stream, for output or as the input of another operator; see `Windowed.agg`.

    As the input of another operator, each pane is an element at its timestamp, with its key and values. The
    columns ``window`` and ``pane`` can be used as well; ``pane.retraction`` is then always false, because
    operators process retractions themselves. Without a `window` the next operator keeps the windows of the
    panes. If a window fires several times its panes are several elements, unless the mode retracts the
    earlier ones. A retraction calls the function of `map_async` again, which has to return the same result
    for equal panes.

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

    def elements(self) -> Stream:
        """The panes as a stream, each an element at its timestamp.

        Raises:
            InvalidArgument: Late or invalid rows are emitted, which another operator cannot process.
        """
        _check_counted("late", self.dataflow.spec.late)
        _check_counted("invalid", self.dataflow.invalid)
        return Stream((PaneSource(self.dataflow),), self.dataflow.buckets)


@dataclass(frozen=True)
class OutputRows(StreamOperations):
    """The output rows of an operator, to be written or as the input of another operator."""

    dataflow: RowDataflow

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

    def explain(self) -> PipelinePlan:
        """The plan of the operator with everything before it; see `Stream.explain`."""
        return explain_dataflow(self.dataflow)

    def elements(self) -> Stream:
        """The rows as a stream.

        Raises:
            InvalidArgument: Late rows are emitted, which another operator cannot process.
        """
        _check_counted("late", self.dataflow.late)
        return Stream((OutputSource(self.dataflow, self.dataflow.default_key),), self.dataflow.buckets)


@dataclass(frozen=True)
class Joined(OutputRows):
    """Pairs of rows of two streams, for output or as the input of another operator; see `Stream.join`.

    As the input of another operator, a row has the event times of both sides, and the next operator uses the
    left one, or the right one after a right join; choose another with `by`. A row of a left or right join
    that is padded with nulls has no time for the other side's key, so an operator driven by that key counts
    it as invalid. A full join is driven by ``either``, which every row has.

    >>> from slackwater.progress.generator import lag
    >>> from slackwater.spark.session import session
    >>> from slackwater.windows import count, fixed
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> bids = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 7 as auction, 30 as price")
    >>> ends = spark.sql("select timestamp'2024-01-01 00:00:09Z' as at, 7 as auction")
    >>> left, right = (stream(df, event_time="at", watermark=lag("5 seconds")) for df in (bids, ends))
    >>> pairs = left.join(right, on=("auction",), before="0 seconds", after="10 seconds")
    >>> pairs.schema.names
    ['auction', 'at_left', 'price', 'at_right']
    >>> pairs.window(fixed("10 seconds"), by="right.default").agg(pairs=count()).to_df().first().pairs
    1
    """


@dataclass(frozen=True)
class Deduplicated(OutputRows):
    """Rows without duplicates, to be written or as the input of another operator; see `Stream.deduplicate`.

    >>> from slackwater.progress.generator import lag
    >>> from slackwater.spark.session import session
    >>> from slackwater.windows import count, fixed
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> clicks = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 7 as id, 'a' as page from range(2)")
    >>> unique = stream(clicks, event_time="at", watermark=lag("5 seconds")).deduplicate(
    ...     on=["id"], within="1 hour"
    ... )
    >>> unique.key_by("page").window(fixed("10 seconds")).agg(clicks=count()).to_df().first().clicks
    1
    """


def _check_counted(name: str, kept: Keep) -> None:
    if kept == "emit":
        raise InvalidArgument(
            name,
            kept,
            "is not supported if another operator follows, which cannot process dropped rows",
            fix=f'write {name}="count"',
        )


def _elements(argument: str, other: StreamOperations) -> Stream:
    if not isinstance(other, StreamOperations):
        raise InvalidArgument(
            argument, other, "is not a stream", fix="create one with slackwater.stream(df, …)"
        )
    return other.elements()


def _derived(stream: Stream, sources: Iterable[Source]) -> Stream:
    """The stream of other sources, with the same key; raises if they do not have its columns."""
    derived = replace(stream, sources=tuple(sources), key=())
    return derived.key_by(*stream.key) if stream.key else derived
