"""The stream API: from a DataFrame to a stream of rows with event times and watermarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from slackwater.errors import InvalidArgument
from slackwater.progress.discovery import Discover
from slackwater.progress.values import is_text
from slackwater.progress.watermark_policies import TableWatermark, WatermarkPolicy
from slackwater.spark.api.query_interrupts import restore_interrupts
from slackwater.spark.api.reprs import key_text, short_text
from slackwater.spark.api.stream_history import StreamHistory, United, with_history
from slackwater.spark.api.stream_inputs import StreamInputs
from slackwater.spark.api.stream_operations import StreamOperations
from slackwater.spark.api.stream_options import (
    ColumnLike,
    Headers,
    IngestionTime,
    RowInput,
    StreamOptions,
)
from slackwater.spark.api.stream_rows import stream_rows
from slackwater.spark.runtime.worker_start import start_processes
from slackwater.spark.session import PARTITIONS, check_session
from slackwater.spark.wire.bucket_ids import chosen_bucket_ids
from slackwater.spark.wire.clock_source import ClockSpec, clock_spec
from slackwater.time import DurationLike, duration


def stream(
    df: DataFrame,
    *,
    event_time: ColumnLike | IngestionTime | None = None,
    watermark: WatermarkPolicy | TableWatermark | None = None,
    event_times: Mapping[str, WatermarkPolicy] | None = None,
    headers: Headers | None = None,
    origin: ColumnLike | None = None,
    origins: Sequence[str] | Discover | None = None,
    idle_after: DurationLike | None = None,
    max_ahead: DurationLike | None = None,
    forget_after: DurationLike | None = None,
    clock: DurationLike | ClockSpec = "1 second",
    buckets: int | list[int] | tuple[int, ...] | None = None,
    name: str | None = None,
    timezone: str | None = None,
    retraction: ColumnLike | None = None,
    history: StreamHistory | None = None,
) -> Stream:
    """Create a stream from a DataFrame, streaming or batch, with its event time and its watermark.

    The watermark comes from exactly one of ``watermark``, ``event_times`` and ``headers``.

    Args:
        df: The rows.
        event_time: A timestamp column, an expression of that type, or `ingestion_time` for rows without one.
        watermark: The watermark policy of ``event_time``, such as ``lag("5 seconds")``; or `completeness` of
            the table that the rows come from.
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
        forget_after: A discovered origin that sends nothing for this long is removed from the state, so that
            the state does not grow with every origin that ever existed. One that sends again is new. It must
            not be shorter than ``idle_after``. Without it, no origin is forgotten. Numbered origins cannot be
            forgotten, because their sequence numbers continue; remove them from ``origins`` instead.
        clock: How often a micro-batch runs when no rows arrive.
        buckets: The number of parts that keys are divided into, a multiple of the shuffle partitions; one per
            partition if omitted. It is fixed by the first start of a query. The ids of the parts are only
            needed for a checkpoint that has other ones, which an error reports.
        name: What reports call the stream, as in ``held back by input 'orders'``. Without a name, the inputs
            of an operator are called by their position.
        timezone: The timezone of event times of type ``timestamp_ntz``, which have none themselves, such as
            ``"Europe/Berlin"``. A local time that occurs twice is the earlier one; one that is skipped is
            moved forward. Columns of type ``timestamp`` do not depend on it.
        retraction: A boolean column that is true in a row that takes an earlier row back, which was equal in
            all other columns; null counts as false. Panes that another query has written with `write_stream`
            or ``to_df(flat=True)`` have such a column if that query retracts. Operators take the row out of
            their results, as they do with the retractions of an operator before them.
        history: Stored rows that come before the live rows ``df``, divided at a seam; see `history`.

    Returns:
        The stream.

    Raises:
        InvalidArgument: An argument is missing, invalid, or cannot be combined with another one; or the
            Spark session lacks a required setting.

    >>> import slackwater as sw
    >>> spark = sw.session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> bids = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 7 as auction, 30 as price")
    >>> sw.stream(bids, event_time="at", watermark=sw.lag("5 seconds")).key_by("auction").key
    ('auction',)
    """
    given: object = df
    ticks = clock_spec(clock)
    if isinstance(given, RowInput):
        ids, make_options = given.buckets, given.options
    elif isinstance(given, DataFrame):
        check_session(df.sparkSession)
        restore_interrupts()
        partitions = int(df.sparkSession.conf.get(PARTITIONS, "200") or 200)
        ids, make_options = chosen_bucket_ids(buckets, partitions), StreamOptions
        start_processes(df.sparkSession, ticks if df.isStreaming else None, ids)
    else:
        raise InvalidArgument("df", df, "is not a DataFrame", fix="pass a Spark DataFrame")
    table = watermark if isinstance(watermark, TableWatermark) else None
    united = (
        None
        if history is None
        else _united(df, history, event_time, event_times, headers=headers, watermark=table)
    )
    options = make_options(
        df=df if united is None else united.df,
        event_time=event_time,
        event_times=event_times,
        watermark=watermark,
        headers=headers,
        origin=origin,
        origins=origins,
        idle_after=None if idle_after is None else duration(idle_after, name="idle_after"),
        max_ahead=None if max_ahead is None else duration(max_ahead, name="max_ahead"),
        forget_after=None if forget_after is None else duration(forget_after, name="forget_after"),
        timezone=timezone,
        retraction=retraction,
    )
    if name is not None and not is_text(name):
        raise InvalidArgument("name", name, "is not a name", fix='write name="orders"')
    source = replace(options.source(ticks), given_name=name)
    if united is not None:
        source = replace(source, given_seam=united.seam)
    return Stream((source,), ids)


def _united(
    df: DataFrame,
    history: StreamHistory,
    event_time: ColumnLike | IngestionTime | None,
    event_times: Mapping[str, WatermarkPolicy] | None,
    **others: object,
) -> United:
    """The rows with their history; raises if their watermark cannot be that of both."""
    if not isinstance(df, DataFrame):
        raise InvalidArgument(
            "history", str(history), "is not supported by TestStream", fix="add its rows to those of the test"
        )
    if isinstance(event_time, IngestionTime):
        others["event_time"] = event_time
    reasons = {
        "headers": "producers do not number the rows of an archive",
        "watermark": "a table states its own time",
        "event_time": "all rows of the history would arrive at the same time",
    }
    for name, value in others.items():
        if value is not None:
            raise InvalidArgument(
                "history", str(value), f"cannot be combined with {name}=: {reasons[name]}",
                fix="omit one of the two",
            )  # fmt: skip
    default = next(iter(event_times)) if event_times else event_time
    return with_history(df, history, default=None if isinstance(default, IngestionTime) else default)


@dataclass(frozen=True)
class Stream(StreamInputs, StreamOperations):
    """Rows with an event time and a watermark; created by `stream`, and from panes.

    >>> import slackwater as sw
    >>> spark = sw.session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> bids = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 7 as auction, 30 as price")
    >>> one = sw.stream(bids, event_time="at", watermark=sw.lag("5 seconds"))
    >>> two = sw.stream(bids, event_time="at", watermark=sw.lag("1 minute"))
    >>> len(one.union(two).sources)
    2
    >>> one.key_by("auction")
    Stream[at: timestamp, auction: int, price: int], key: auction, event time: default
    """

    def __repr__(self) -> str:
        details = [key_text(self.key), f"event time: {self.watermark_key}"]
        return short_text("Stream", self.sources[0].schema, *details)

    def elements(self) -> Stream:
        """The stream itself."""
        return self

    def to_df(self, *, flush: bool = False) -> DataFrame:
        """The rows as a DataFrame, after `filter`, `select`, `with_columns` and `map_async`.

        Rows are as they arrive: no row is late without an operator that has windows or buffers, and buffers
        that producers repeat are not removed. If an operator before retracts rows, a column ``retraction``
        marks the retractions.

        Args:
            flush: End the stream of the operators before with the run; see `Panes.to_df`.

        Returns:
            The rows, streaming if the input is. Of united streams they have the columns of the first one.

        Raises:
            InvalidArgument: ``flush`` is given, but there is no operator before or the input is a batch; or
                a united stream lacks a column of the first one.

        >>> import slackwater as sw
        >>> spark = sw.session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
        >>> bids = spark.sql("select timestamp_seconds(id) as at, id as price from range(5)")
        >>> rows = sw.stream(bids, event_time="at", watermark=sw.lag("5 seconds")).filter("price > 3")
        >>> rows.with_columns(twice="price * 2").select("twice").to_df().collect()
        [Row(twice=8)]
        """
        return stream_rows(self, flush=flush)
