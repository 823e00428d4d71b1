"""The stream API: from a DataFrame to a DataFrame of panes.

Every method returns a new value and checks what it was given, so that a mistake is found on the line that
makes it, not in a worker. Nothing runs until the DataFrame that `Panes.to_df` returns is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from slackwater.errors import InvalidArgument
from slackwater.progress.async_stage import Retry
from slackwater.progress.generator import WatermarkPolicy
from slackwater.spark.api.builders import aggregated, applied, cogrouped
from slackwater.spark.api.dataflow import Keep
from slackwater.spark.api.joins import Joined, joined
from slackwater.spark.api.key_columns import check_key
from slackwater.spark.api.map_async import AsyncFunction, AsyncSource, async_call
from slackwater.spark.api.pane_output import EmittedPanes
from slackwater.spark.api.stream_inputs import PaneSource, Source
from slackwater.spark.api.stream_options import ColumnLike, Headers, IngestionTime, Reading
from slackwater.spark.session import PARTITIONS, check_session
from slackwater.spark.wire.buffers import bucket_ids
from slackwater.spark.wire.clock_source import Clocking, clocking, quickest
from slackwater.spark.wire.map_side import TIME
from slackwater.time import DurationLike, Range, check_int64, duration
from slackwater.windows import ColumnarAccumulation, Global, Inherited, JoinSpec, Trigger, Window
from slackwater.windows.spec import CogroupHow


def stream(
    df: DataFrame,
    *,
    event_time: ColumnLike | IngestionTime | None = None,
    watermark: WatermarkPolicy | None = None,
    event_times: Mapping[str, WatermarkPolicy] | None = None,
    headers: Headers | None = None,
    origin: ColumnLike | None = None,
    origins: Sequence[str] | None = None,
    idle_after: DurationLike | None = None,
    max_ahead: DurationLike | None = None,
    clock: DurationLike | Clocking = "1 second",
    buckets: int | None = None,
) -> Stream:
    """A DataFrame, streaming or batch, with its event time and its watermark.

    ``event_time`` is a timestamp column, an expression that gives one, or `ingestion_time` for rows that
    carry none. How far the rows are is told in one of three ways: by a ``watermark`` policy; by a policy
    for each of several columns in ``event_times``, of which the first drives the windows unless they say
    ``by=``; or by `headers`, in which the producers say it themselves.

    ``origin`` says who sent a row (a partition, a device); each has its own watermark, and the stream's is
    the lowest of them. Name them in ``origins`` where they are known, so that one that has not spoken yet
    is waited for. An origin that was silent for ``idle_after`` is left out until it speaks again; without,
    nobody ever is. A row further than ``max_ahead`` in the future of the clock does not move the
    watermark. ``clock`` is how often time passes when nothing arrives, ``buckets`` into how many parts the
    keys are divided: fixed at the first start of a query, one a shuffle partition unless told otherwise.

    >>> from slackwater.progress.generator import lag
    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> bids = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 7 as auction, 30 as price")
    >>> stream(bids, event_time="at", watermark=lag("5 seconds")).key_by("auction").key
    ('auction',)
    """
    if not isinstance(df, DataFrame):
        raise InvalidArgument("df", df, "is not a DataFrame", fix="give one of Spark, streaming or batch")
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
    reading = Reading(
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
    return Stream((reading.source(clocking(clock)),), bucket_ids(count, partitions))


@dataclass(frozen=True)
class Stream:
    """Rows with an event time and a watermark; made by `stream`, and by what panes are used for.

    >>> from slackwater.progress.generator import lag
    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> bids = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 7 as auction, 30 as price")
    >>> one = stream(bids, event_time="at", watermark=lag("5 seconds"))
    >>> two = stream(bids, event_time="at", watermark=lag("1 minute"))
    >>> len(one.union(two).sources)
    2
    """

    sources: tuple[Source, ...]
    buckets: tuple[int, ...]
    key: tuple[str, ...] = ()

    def key_by(self, *columns: str) -> Stream:
        """The same rows, with windows per value of these columns."""
        if not columns:
            raise InvalidArgument(
                "columns", columns, "is empty", fix='write key_by("auction"), or leave it out'
            )
        for name in columns:
            check_key(self.field("key_by", name))
        return replace(self, key=tuple(columns))

    def by(self, key: str) -> Stream:
        """The same rows, driven by this one of their event times: a name of ``event_times``."""
        return replace(self, sources=tuple(source.by(key) for source in self.sources))

    @property
    def watermark_key(self) -> str:
        """The key of the watermark that drives what follows."""
        return self.sources[0].rules.key

    def union(self, *others: Stream) -> Stream:
        """The rows of all these streams; the slowest that is not idle holds the watermark.

        An operator over them may name the columns that all of them have, with the same types.
        """
        for other in others:
            if not isinstance(other, Stream):
                raise InvalidArgument("others", other, "is not a stream", fix="make one with stream(df, …)")
            if other.sources[0].is_streaming != self.sources[0].is_streaming:
                raise InvalidArgument(
                    "others", other, "one is streaming, the other is a batch", fix="unite streams, or batches"
                )
            if other.buckets != self.buckets:
                raise InvalidArgument(
                    "others", len(other.buckets), "has another number of buckets", fix="give all the same"
                )
            if other.watermark_key != self.watermark_key:
                raise InvalidArgument(
                    "others",
                    other.watermark_key,
                    f"drives it, but {self.watermark_key!r} drives this stream, and keys do not mix",
                    fix="unite streams that are driven by one key: rename the column, or call by(…)",
                )
        sources = tuple(source for each in (self, *others) for source in each.sources)
        if clocks := [source.clock for source in sources if source.clock is not None]:
            quickest(clocks)  # whatever it refuses is refused here
        return replace(self, sources=sources)

    def map_async(
        self,
        fn: AsyncFunction,
        schema: str | StructType,
        *,
        ordered: bool = True,
        capacity: int = 100,
        timeout: DurationLike | None = "30 seconds",
        retry: Retry | None = None,
    ) -> Stream:
        """What an async function answers for each row: a dict, a list of dicts, or None for nothing.

        ``fn`` is called with a row as a dict of all its columns (timestamps are datetimes in UTC), up to
        ``capacity`` rows at a time in each task, and may be called again for the same row when a batch is
        repeated. The stream then has the columns of ``schema`` and no others: return what is needed later.
        A column that an answer leaves out is null.

        Event time and origin are those of the row that was asked for, so every row counts for the
        watermark, also one that is answered by None. ``ordered`` keeps the order of the rows of a task;
        without, answers are taken as they come. A row that has no answer after ``timeout``, over all the
        attempts that ``retry`` allows, fails the batch, as does an exception.

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
        call = async_call(fn, schema, ordered=ordered, capacity=capacity, timeout=timeout, retry=retry)
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
        """Pairs of rows with equal ``on`` columns whose times lie close together.

        A row of the other stream matches if its time is at most ``before`` before and at most ``after``
        after that of a row here, both inclusive. Outer rows that found no match come out when none can
        come any more. A column that both sides have, and that is no key, gets the suffix ``_left`` or
        ``_right``.
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
        """Divide event time into windows; ``by`` says which, if the stream has several event times."""
        if by is not None:
            return self.by(by).window(window)
        if not isinstance(window, Window):
            raise InvalidArgument("window", window, "is not a window", fix='write fixed("10 seconds")')
        if isinstance(window, Inherited) and not all(source.windows for source in self.sources):
            raise InvalidArgument(
                "window",
                window,
                "rows of a DataFrame have no window to inherit",
                fix='write fixed("10 seconds")',
            )
        known = [inherited for source in self.sources for inherited in source.windows]
        if not isinstance(window, Inherited) and any(isinstance(one, Global) for one in known):
            raise InvalidArgument(
                "window",
                window,
                "panes of a global window lie at the end of time, outside of any other",
                fix="leave it out: agg(…) keeps the window they are in",
            )
        options = {"window": window, "key": self.key, "watermark_key": self.watermark_key}
        return Windowed(self, options)

    def agg(self, *, late: Keep = "count", **accumulations: ColumnarAccumulation) -> Panes:
        """Accumulate panes in the windows that they have."""
        return self.window(Inherited()).agg(late=late, invalid="count", **accumulations)

    def field(self, argument: str, name: str) -> StructField:
        """A column that all sources have with the same type, or an error that says what there is."""
        first, *rest = [source.field(argument, name) for source in self.sources]
        for other in rest:
            if other.dataType != first.dataType:
                raise InvalidArgument(
                    argument,
                    name,
                    f"is {first.dataType.simpleString()} here and {other.dataType.simpleString()} there",
                    fix="cast one of the two before they are united",
                )
        return first


@dataclass(frozen=True)
class Windowed:
    """A stream in windows, with what to emit and when; made by `Stream.window`.

    >>> from slackwater.windows import fixed
    >>> windowed = Windowed(stream=None, options={"window": fixed("10 seconds")})
    >>> windowed.allowed_lateness("1 minute").discarding().options["allowed_lateness"]
    60000000
    """

    stream: Stream
    options: Mapping[str, Any] = field(default_factory=dict)

    def trigger(self, trigger: Trigger, *, allow_data_loss: bool = False) -> Windowed:
        """When a pane is emitted. One that can finish loses data, and has to be allowed to."""
        return self._with(trigger=trigger, allow_data_loss=allow_data_loss)

    def allowed_lateness(self, lateness: DurationLike | None) -> Windowed:
        """How long after its end a window still takes rows; None: for ever."""
        return self._with(
            allowed_lateness=None if lateness is None else duration(lateness, name="allowed_lateness")
        )

    def discarding(self) -> Windowed:
        """A pane holds what is new since the last one."""
        return self._with(mode="discarding")

    def accumulating(self) -> Windowed:
        """A pane holds everything so far. The default."""
        return self._with(mode="accumulating")

    def accumulating_and_retracting(self) -> Windowed:
        """A pane holds everything so far, and takes the last one back."""
        return self._with(mode="accumulating_and_retracting")

    def on_time(self, when: Literal["always", "if_non_empty"]) -> Windowed:
        """Whether the pane at the end of the window is emitted even if nothing is new."""
        return self._with(on_time=when)

    def closing(self, when: Literal["always", "if_non_empty"]) -> Windowed:
        """Whether a last pane is emitted even if nothing is new."""
        return self._with(closing=when)

    def drop_late(self, how: Literal["by_window", "by_element"]) -> Windowed:
        """Whether a row is late for one window, or altogether."""
        return self._with(drop_late=how)

    def only_updated(self) -> Windowed:
        """Leave out panes whose values equal those of the last one."""
        return self._with(only_updated=True)

    def agg(
        self, *, late: Keep = "count", invalid: Keep = "count", **accumulations: ColumnarAccumulation
    ) -> Panes:
        """What the panes show, by name.

        Rows that came too late, and rows without a usable event time, are counted. With ``"emit"`` they
        come out as well, as rows of kind ``late`` and ``invalid`` that show their own values alone.
        """
        return Panes.of(aggregated(self.stream, self.options, accumulations, late=late, invalid=invalid))

    def apply(
        self,
        function: Callable[[dict[str, Any], Range, Any], Any],
        schema: StructType | str,
        *,
        columns: Sequence[str] | None = None,
        frame: Literal["polars", "pandas"] = "polars",
    ) -> Panes:
        """Panes whose rows a function makes of all rows that the pane holds. **The slow path.**

        ``function(key, window, rows)`` gets the key as a dictionary, the window as a `Range` of
        microseconds, and the rows as a DataFrame of Polars (or pandas, with ``frame="pandas"``) in the
        order of their event times, with the ``columns`` named here, or all but the key. It returns a
        DataFrame of either kind, or a list of dictionaries, with the columns of ``schema`` (a StructType,
        or as in ``"best bigint, bidder string"``); no rows are allowed.

        Every row is kept until its window closes, and every pane is a call in Python: use `agg` for what
        an accumulation can do. A retraction takes back what the function returned, not what it would
        return now. Rows that come too late are counted.

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
        return Panes.of(applied(self.stream, self.options, function, schema, columns=columns, frame=frame))

    def cogroup(
        self, other: Stream, *, left: Sequence[str], right: Sequence[str], how: CogroupHow = "cogroup"
    ) -> Panes:
        """The rows of two streams with equal keys, in the same windows.

        With ``how="cogroup"`` a pane has two lists of rows, ``left`` and ``right``, with the columns named
        here. With ``inner``, ``left``, ``right`` or ``full`` it is a row per pair; a column of the right
        side whose name is taken gets the suffix ``_right``. The lower of the two watermarks counts, and
        nothing fires by it until both are known. Both streams need a key.
        """
        return Panes.of(cogrouped(self.stream, other, self.options, left=left, right=right, how=how))

    def _with(self, **options: Any) -> Windowed:
        return replace(self, options={**self.options, **options})


@dataclass(frozen=True)
class Panes(EmittedPanes):
    """The panes of a windowed stream; made by `Windowed.agg`. They are a stream again.

    >>> from slackwater.progress.generator import lag
    >>> from slackwater.spark.session import session
    >>> from slackwater.windows import count, fixed
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> bids = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 7 as auction, 30 as price")
    >>> keyed = stream(bids, event_time="at", watermark=lag("5 seconds")).key_by("auction")
    >>> keyed.window(fixed("10 seconds")).agg(bids=count()).schema.names
    ['auction', 'window', 'bids', 'pane']
    """

    @classmethod
    def of(cls, made: EmittedPanes) -> Panes:
        """What was built, with the methods of a stream."""
        return cls(**{each.name: getattr(made, each.name) for each in fields(made)})

    def key_by(self, *columns: str) -> Stream:
        """The panes as elements of the next operator, each at its timestamp, by these columns.

        Without a `window` of its own the next operator keeps the windows that the panes have. Panes of a
        window that fires several times are several elements, unless the mode takes the earlier ones back.
        """
        return self.elements().key_by(*columns)

    def window(self, window: Window) -> Windowed:
        """The panes as elements of the next operator, without a key."""
        return self.elements().window(window)

    def agg(self, *, late: Keep = "count", **accumulations: ColumnarAccumulation) -> Panes:
        """Accumulate over all keys, in the windows that the panes have."""
        return self.elements().agg(late=late, **accumulations)

    def union(self, *others: Stream | Panes) -> Stream:
        """The panes with the elements of other streams."""
        return self.elements().union(*(one.elements() if isinstance(one, Panes) else one for one in others))

    def map_async(self, fn: AsyncFunction, schema: str | StructType, **options: Any) -> Stream:
        """The panes as elements, as an async function answers them; options as in `Stream.map_async`.

        Where panes are taken back, the function is asked for the pane that goes as it was when it came: it
        has to give the same answer again.
        """
        return self.elements().map_async(fn, schema, **options)

    def elements(self) -> Stream:
        """The panes as elements of another operator, each at its timestamp."""
        for name, kept in (("late", self.host.options.get("late")), ("invalid", self.invalid)):
            if kept == "emit":
                raise InvalidArgument(
                    name, kept, "dropped rows cannot go on to another operator", fix=f'write {name}="count"'
                )
        return Stream((PaneSource(self),), self.buckets)
