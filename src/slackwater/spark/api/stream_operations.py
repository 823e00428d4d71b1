"""The operations of streams: each returns a new value and checks its arguments.

So a mistake raises on the line that makes it and not in a worker. Nothing runs until the DataFrame that
``to_df`` returns is written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn, get_args

from pyspark.sql import Column
from pyspark.sql.types import StructType

from slackwater.errors import InvalidArgument
from slackwater.progress.async_stage import Retry
from slackwater.progress.pipeline_plan import PipelinePlan
from slackwater.progress.values import is_text
from slackwater.spark.api.asof import asof_joined
from slackwater.spark.api.computed_columns import with_key_columns
from slackwater.spark.api.dataflow import Keep
from slackwater.spark.api.deduplicate import deduplicated
from slackwater.spark.api.explain import explain_inputs
from slackwater.spark.api.expression_sources import Expression, FilteredSource, ProjectedSource
from slackwater.spark.api.joins import joined
from slackwater.spark.api.key_columns import check_key, column_names
from slackwater.spark.api.map_async import AsyncSource, async_call
from slackwater.spark.api.reprs import unknown_attribute
from slackwater.spark.api.session_gaps import with_gaps
from slackwater.spark.api.stream_inputs import Source, united_sources
from slackwater.spark.runtime.async_mapper import AsyncFunction, Fallback, OnError, Setup
from slackwater.spark.wire.wire_columns import SESSION_GAP, TIME
from slackwater.time import DurationLike, duration
from slackwater.windows import (
    AsofSpec,
    ColumnarAccumulation,
    DeduplicateSpec,
    Global,
    Inherited,
    JoinSpec,
    Sessions,
    Window,
)
from slackwater.windows.assigners import SessionsBy
from slackwater.windows.spec.asof_spec import AsofDirection, AsofHow
from slackwater.windows.spec.join_spec import JoinHow
from slackwater.windows.spec.spec_checks import join_kind
from slackwater.windows.spec.two_sided_spec import JoinIdle
from slackwater.windows.spec.windowing_strategy import WindowingStrategy
from slackwater.windows.triggers import inherited_trigger

if TYPE_CHECKING:
    # Operations return the classes of these modules, which inherit the operations: their methods import them.
    from slackwater.spark.api.output_rows import Deduplicated, Joined
    from slackwater.spark.api.panes import Panes
    from slackwater.spark.api.stream import Stream
    from slackwater.spark.api.windowed import Windowed


class StreamOperations(ABC):
    """The operations of streams, panes and joins: the output of every operator is a stream again."""

    @abstractmethod
    def elements(self) -> Stream:
        """The rows as a stream."""

    def __getattr__(self, name: str) -> NoReturn:
        """Raise an AttributeError that names the operation with which this is done here."""
        raise AttributeError(unknown_attribute(type(self).__name__, name), name=name, obj=self)

    def key_by(self, *columns: str | Column | Sequence[str | Column]) -> Stream:
        """Group the rows by key: every window is per value of these columns.

        Args:
            *columns: The key columns, at least one, or a list of them: names, or Spark Columns. An expression
                such as ``F.upper("city").alias("city_code")`` becomes a column of the rows.

        Raises:
            InvalidArgument: A column does not exist or has a type that cannot be a key, or an expression is
                invalid or has the name of another column.

        >>> import slackwater as sw
        >>> from pyspark.sql import functions as F
        >>> spark = sw.session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
        >>> bids = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 7 as auction, 'x' as site")
        >>> one = sw.stream(bids, event_time="at", watermark=sw.lag("5 seconds"))
        >>> one.key_by(["auction", "site"]).key, one.key_by(F.upper("site").alias("code")).key
        (('auction', 'site'), ('code',))
        """
        given = [
            one
            for each in columns
            for one in ((each,) if isinstance(each, str) or not isinstance(each, Sequence) else each)
        ]
        if not given:
            raise InvalidArgument(
                "columns", columns, "is empty", fix='write key_by("auction"), or omit the call'
            )
        stream, names = with_key_columns(self.elements(), given)
        for name in names:
            check_key(stream.field("key_by", name))
        return replace(stream, key=names)

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
        united = united_sources(stream, *(elements_of("others", other) for other in others))
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
        setup: Setup | None = None,
        on_error: OnError = "fail",
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
            setup: Called once in each task, before its first row, and its result is the second argument of
                ``fn``: a client that the calls of a task share. It may be an async function. A result that is
                an async context manager, such as ``aiohttp.ClientSession()``, is entered, and closed when
                the task ends. Without it, ``fn`` gets the row only.
            fallback: The result for a row whose call exceeds ``timeout`` or fails after all retries: a value
                like those that ``fn`` returns, or a function of the row that returns one. By default such a
                call fails. The next operator counts these rows in its reports (``fallbacks``).
            on_error: ``"fail"`` to fail the batch if a call fails and there is no fallback, or if a result
                does not match ``schema``. ``"emit"`` to emit such a row and go on: every output after this
                has two more columns, ``failure`` with the reason and ``failed_row`` with the row as JSON,
                and a row of kind ``failed`` for each of them. ``"skip"`` to leave such a row out and go on.
                In both cases the next operator counts them (``failed``). Errors name the key of the row, if
                `key_by` comes before, and none of its other values.

        Returns:
            The stream of results, with the same key if its columns are in ``schema``.

        Raises:
            InvalidArgument: An argument is invalid. With ``on_error="fail"``, a call that fails or exceeds
                ``timeout`` and has no ``fallback``, or a result that does not match ``schema``, fails the
                batch.

        >>> import slackwater as sw
        >>> spark = sw.session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
        >>> bids = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 7 as auction, 30 as price")
        >>> async def rated(row):
        ...     return {"auction": row["auction"], "euros": row["price"] * 0.9}
        >>> one = sw.stream(bids, event_time="at", watermark=sw.lag("5 seconds"))
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
            setup=setup,
            on_error=on_error,
        )
        return _derived(stream, (AsyncSource(source, call, stream.key) for source in stream.sources))

    def filter(self, condition: Expression) -> Stream:
        """Keep the rows for which a condition is true.

        Rows that are filtered out still advance the watermark. A retraction is filtered like the row that it
        takes back.

        Args:
            condition: A boolean expression over the columns by name, as a Spark Column or SQL text.

        Raises:
            InvalidArgument: The condition is not a boolean expression over the columns.

        >>> import slackwater as sw
        >>> spark = sw.session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
        >>> bids = spark.sql("select timestamp_seconds(id) as at, id as price from range(5)")
        >>> high = sw.stream(bids, event_time="at", watermark=sw.lag("5 seconds")).filter("price > 2")
        >>> high.window(sw.fixed("10 seconds")).agg(total=sw.sum("price")).to_df().select("total").collect()
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

        >>> import slackwater as sw
        >>> spark = sw.session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
        >>> bids = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 7 as auction, 30 as price")
        >>> one = sw.stream(bids, event_time="at", watermark=sw.lag("5 seconds"))
        >>> one.with_columns(twice="price * 2").sources[0].schema.names
        ['at', 'auction', 'price', 'twice']
        """
        stream = self.elements()
        if columns is not None and not isinstance(columns, Mapping):
            raise InvalidArgument(
                "with_columns", columns, "is not a mapping", fix='write with_columns({"twice": "price * 2"})'
            )
        new = {**(columns or {}), **named}
        return _derived(stream, (ProjectedSource.adding(source, new) for source in stream.sources))

    def join(
        self,
        other: StreamOperations,
        *,
        on: Sequence[str],
        before: DurationLike,
        after: DurationLike,
        how: JoinHow | str = "inner",
        condition: str | None = None,
        idle: JoinIdle = "hold",
        late: Keep = "count",
        invalid: Keep = "count",
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
                the rows of this stream with or without a match. Spark's other spellings are accepted, such as
                ``"leftOuter"`` or ``"left_anti"``.
            condition: A further condition for a match, as SQL text over the columns of a pair.
            idle: Whether a side whose inputs are all idle holds back the rows of the other one (``"hold"``),
                or counts as being as far as the other side (``"proceed"``), so that rows that it sends later
                are late.
            late: Whether rows that arrived behind the watermark of their side are only counted (``"count"``)
                or also emitted (``"emit"``). Rows then have two more columns: ``kind``, which is ``row`` or
                ``late``, and ``side``, the side of a late row.
            invalid: The same for rows without a usable event time, as rows of kind ``invalid``.
            suffixes: Appended to the columns that both sides have and that are not in ``on``.

        Returns:
            The pairs: the key, then the other columns of this stream, then those of the other one. If a side
            retracts rows, so does the join, and a column ``retraction`` marks its retractions.

        Raises:
            InvalidArgument: The streams cannot be joined, or an argument is invalid.
        """
        from slackwater.spark.api.output_rows import Joined

        on = column_names("on", on)
        spec = JoinSpec(
            on=on,
            before=duration(before, name="before"),
            after=duration(after, name="after"),
            how=join_kind(how, get_args(JoinHow)),
            left_time=TIME,
            right_time=TIME,
            suffixes=suffixes,
            late=late,
            idle=idle,
            condition=condition,
        )
        right = elements_of("other", other).key_by(*on)
        return Joined(joined(self.key_by(*on), right, spec, invalid=invalid))

    def join_asof(
        self,
        other: StreamOperations,
        *,
        on: Sequence[str] = (),
        tolerance: DurationLike | None = None,
        direction: AsofDirection = "backward",
        how: AsofHow | str = "left",
        idle: JoinIdle = "hold",
        late: Keep = "count",
        invalid: Keep = "count",
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
            invalid: As in `join`.
            suffixes: Appended to the columns that both sides have and that are not in ``on``.

        Returns:
            The rows: the key, then the other columns of this stream, then those of the other one. If this
            stream retracts rows, a column ``retraction`` marks the retractions of their results. A row waits
            until its match cannot be retracted any more, so retractions of the other stream change nothing
            that was emitted.

        Raises:
            InvalidArgument: The streams cannot be joined, or an argument is invalid.

        >>> import slackwater as sw
        >>> spark = sw.session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
        >>> trades = spark.sql("select timestamp'2024-01-01 00:00:09Z' as at, 'a' as symbol, 3 as size")
        >>> quotes = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 'a' as symbol, 70 as price")
        >>> left, right = (
        ...     sw.stream(df, event_time="at", watermark=sw.lag("5 seconds")) for df in (trades, quotes)
        ... )
        >>> left.join_asof(right, on=["symbol"]).to_df().select("symbol", "size", "price").collect()
        [Row(symbol='a', size=3, price=70)]
        """
        from slackwater.spark.api.output_rows import Joined

        on = column_names("on", on)
        spec = AsofSpec(
            on=on,
            direction=direction,
            how=join_kind(how, get_args(AsofHow)),
            tolerance=None if tolerance is None else duration(tolerance, name="tolerance"),
            left_time=TIME,
            right_time=TIME,
            suffixes=suffixes,
            late=late,
            idle=idle,
        )
        left, right = replace(self.elements(), key=()), replace(elements_of("other", other), key=())
        if on:
            left, right = left.key_by(*on), right.key_by(*on)
        return Joined(asof_joined(left, right, spec, invalid=invalid))

    def deduplicate(self, *, on: Sequence[str], within: DurationLike, late: Keep = "count") -> Deduplicated:
        """Drop rows that repeat a row with the same key within a time bound.

        A row is a duplicate if a row with the same key was passed on whose event time is at most ``within``
        earlier or later. Rows count in order of arrival, and those of one micro-batch in order of their event
        time. A row is remembered until the watermark is more than ``within`` after it. A row behind the
        watermark is late and dropped, because rows before it may have been forgotten. Null is a key.

        Rows pass at once, and all watermarks are forwarded unchanged.

        If the stream retracts rows, so does the result, and a column ``retraction`` marks its retractions.
        Rows then count in order of their event time, so that the result is that of all rows in one batch: the
        next row takes the place of one that is retracted, and an earlier row that of a later one. All rows
        are kept until they cannot be retracted any more.

        Args:
            on: The key columns.
            within: How close in time rows with the same key are duplicates.
            late: Whether late rows are only counted (``"count"``) or also emitted (``"emit"``). Rows then
                have another column ``kind``, which is ``row`` or ``late``.

        Returns:
            The rows that are not duplicates, with the same columns.

        Raises:
            InvalidArgument: An argument is invalid.

        >>> import slackwater as sw
        >>> spark = sw.session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
        >>> clicks = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 7 as id from range(2)")
        >>> one = sw.stream(clicks, event_time="at", watermark=sw.lag("5 seconds"))
        >>> one.deduplicate(on=["id"], within="1 hour").to_df().count()
        1
        """
        from slackwater.spark.api.output_rows import Deduplicated

        on = column_names("on", on)
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
        from slackwater.spark.api.windowed import Windowed

        if by is not None:
            return self.by(by).window(window)
        stream = self.elements()
        if isinstance(window, SessionsBy) or (isinstance(window, Sessions) and window.column is not None):
            stream = replace(stream, sources=with_gaps(stream.sources, window.gap))
            window = Sessions(SESSION_GAP)
        given: object = window
        if not isinstance(given, Window):
            size = given if isinstance(given, str) else "10 seconds"
            raise InvalidArgument("window", given, "is not a window", fix=f'write window(fixed("{size}"))')
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
            trigger=inherited_trigger(early=stream.fires_early),
        )
        return Windowed(stream, strategy)

    def explain(self) -> PipelinePlan:
        """The plan up to here: steps, origins with their numbers, and event times.

        Sources and stateful operators are origins, numbered from 1 bottom-up. A partition or device inside a
        source is a name under its number, as in ``1/north``.

        Returns:
            The plan: ``print`` it, or let a notebook show it.

        >>> import slackwater as sw
        >>> spark = sw.session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
        >>> bids = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 7 as auction, 30 as price")
        >>> sw.stream(bids, event_time="at", watermark=sw.lag("5 seconds")).key_by("auction").explain()
        -         stream (stateless)
                  key: auction
                  event times that reach the next operator: default
          origin 1  DataFrame[at, auction, price] (source)
                    event time default: lag 5 s
                    origins: one
        """
        return explain_inputs(self.elements())

    def agg(self, *unnamed: object, late: Keep = "count", **accumulations: ColumnarAccumulation) -> Panes:
        """Aggregate panes in the windows that they are in already.

        Args:
            *unnamed: Not supported: values have names, as in ``agg(bids=count())``.
            late: Whether late rows are only counted (``"count"``) or emitted as well (``"emit"``).
            **accumulations: The values of the panes by name, such as ``total=sum("price")``; a column may be
                an expression, as in ``sum(F.col("price") * 2)``.

        Raises:
            InvalidArgument: The rows are not panes, or an accumulation is invalid.
        """
        return self.window(Inherited()).agg(*unnamed, late=late, invalid="count", **accumulations)


def elements_of(argument: str, other: StreamOperations) -> Stream:
    """The rows of another stream that is an argument of an operation; raises if it is not a stream."""
    if not isinstance(other, StreamOperations):
        raise InvalidArgument(
            argument, other, "is not a stream", fix="create one with slackwater.stream(df, …)"
        )
    return other.elements()


def _derived(stream: Stream, sources: Iterable[Source]) -> Stream:
    """The stream of other sources, with the same key; raises if they do not have its columns."""
    derived = replace(stream, sources=tuple(sources), key=())
    return derived.key_by(*stream.key) if stream.key else derived
