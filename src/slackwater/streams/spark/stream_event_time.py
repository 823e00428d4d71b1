"""Streams on Spark with event time: the times that writers noted become the watermark."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from slackwater.spark.api.stream import Stream, stream
from slackwater.spark.api.stream_options import ColumnLike, Headers, headers
from slackwater.spark.versions import needs
from slackwater.spark.wire.clock_source import ClockSpec
from slackwater.streams.spark.data_source import FORMAT, store_option
from slackwater.streams.spark.stream_columns import EMPTY, SEQUENCE, WATERMARK
from slackwater.time import DurationLike


def stream_headers(name: str = "stream") -> Headers:
    """The ``headers`` argument of `sw.stream` for rows that were read with the option ``headers``.

    Each batch is a numbered buffer that carries the watermark of the newest mark that it has passed. Do not
    filter the rows before `sw.stream`: if the header rows of a batch are missing, the watermark waits for
    them.

    Args:
        name: Name of the stream, as the origin of its buffers.

    Returns:
        The headers to pass to `sw.stream`.

    >>> from tempfile import TemporaryDirectory
    >>> import pyarrow as pa
    >>> import slackwater as sw
    >>> from slackwater.streams.spark.data_source import register
    >>> spark = sw.session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> register(spark)
    >>> with TemporaryDirectory() as folder:
    ...     store = f"sqlite:///{folder}/store.db"
    ...     with sw.Streams.open(store, create=True) as streams:
    ...         columns = pa.schema([("user", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])
    ...         made = streams.create("shop/clicks", columns=columns)
    ...     source = spark.readStream.format("slackwater").options(store=store, headers="true")
    ...     rows = source.option("stream", "shop/clicks").load()
    ...     clicks = sw.stream(rows, event_time="at", headers=sw.stream_headers("shop/clicks"))
    ...     clicks.key_by("user").key
    ('user',)
    """
    return headers(origin=sql.lit(name), sequence=SEQUENCE, watermark=WATERMARK, empty=EMPTY)


def read_stream(
    spark: SparkSession,
    name: str,
    *,
    store: str,
    event_time: ColumnLike,
    start: str = "head",
    max_events: int | None = None,
    clock: DurationLike | ClockSpec = "1 second",
    buckets: int | None = None,
    retraction: ColumnLike | None = None,
) -> Stream:
    """Read a stream in Spark, with the times that its writers noted as the watermark.

    Args:
        spark: The session.
        name: Scope and name of the stream, as in ``shop/bids``.
        store: Database URL of the metadata store, or ``env:NAME`` or ``file:PATH`` for where it is. A
            password in it is not passed to Spark as an option, so no query plan shows it.
        event_time: Column, or column expression, with the event time of a row.
        start: Where a new query starts: ``head``, ``tail``, a time, or a cut as JSON.
        max_events: Most events of a micro-batch; unlimited by default.
        clock: Interval at which batches run when nothing arrives; see `sw.stream`.
        buckets: Number of buckets of the stateful operators; see `sw.stream`.
        retraction: Column that marks retractions, ``"retraction"`` if a query that retracts has written the
            stream with `write_stream`; see `sw.stream`.

    Returns:
        A stream as `sw.stream` returns it; continue with ``key_by``, ``window``, and so on.

    Raises:
        InvalidArgument: An argument is not valid.
        NeedsNewerSpark: ``max_events`` is given, and PySpark is older than 4.2.

    >>> from tempfile import TemporaryDirectory
    >>> import pyarrow as pa
    >>> import slackwater as sw
    >>> spark = sw.session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> with TemporaryDirectory() as folder:
    ...     store = f"sqlite:///{folder}/store.db"
    ...     with sw.Streams.open(store, create=True) as streams:
    ...         columns = pa.schema([("user", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])
    ...         made = streams.create("shop/clicks", columns=columns)
    ...     clicks = sw.read_stream(spark, "shop/clicks", store=store, event_time="at").key_by("user")
    ...     clicks.window(sw.fixed("10 seconds")).agg(clicks=sw.count()).to_df().columns
    ['user', 'window', 'clicks', 'pane']
    """
    located = store_option(spark, store)
    reader = spark.readStream.format(FORMAT).options(store=located, stream=name, headers="true")
    reader = reader.option("from", start)
    if max_events is not None:
        needs("max_events", "4.2", fix="omit it")
        reader = reader.option("max_events", str(max_events))
    named = stream_headers(name)
    return stream(
        reader.load(),
        event_time=event_time,
        headers=named,
        clock=clock,
        buckets=buckets,
        retraction=retraction,
    )
