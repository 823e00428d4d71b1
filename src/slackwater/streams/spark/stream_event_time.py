"""A stream on Spark with the event time of its writers: the watermarks that they noted drive the windows."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from slackwater.spark.api.stream import Stream, stream
from slackwater.spark.api.stream_options import ColumnLike, Headers, headers
from slackwater.spark.wire.clock_source import Clocking
from slackwater.streams.spark.data_source import FORMAT, register
from slackwater.streams.spark.stream_columns import EMPTY, SEQUENCE, WATERMARK
from slackwater.time import DurationLike


def stream_headers(name: str = "stream") -> Headers:
    """The ``headers`` argument of `stream` for rows read with the option ``headers`` of ``slackwater``.

    Every batch is a numbered buffer with the watermark of the newest mark that it has passed. Do not filter
    the rows before: a batch whose header is gone is waited for.

    >>> stream_headers().sequence
    'slackwater_sequence'
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
    clock: DurationLike | Clocking = "1 second",
    buckets: int | None = None,
) -> Stream:
    """A stream as `stream` makes it of a DataFrame, with the watermarks that its writers noted.

    ``start`` is ``head``, ``tail``, a time, or a cut as JSON; ``max_events`` bounds a batch.

    >>> from tempfile import TemporaryDirectory
    >>> import pyarrow as pa
    >>> from slackwater.spark.session import session
    >>> from slackwater.streams.log.catalog import Streams
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> with TemporaryDirectory() as folder:
    ...     store = f"sqlite:///{folder}/store.db"
    ...     with Streams.open(store) as streams:
    ...         columns = pa.schema([("user", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])
    ...         made = streams.create("shop/clicks", columns=columns)
    ...     read_stream(spark, "shop/clicks", store=store, event_time="at").key_by("user").key
    ('user',)
    """
    register(spark)
    reader = spark.readStream.format(FORMAT).options(store=store, stream=name, headers="true")
    reader = reader.option("from", start)
    if max_events is not None:
        reader = reader.option("max_events", str(max_events))
    named = stream_headers(name)
    return stream(reader.load(), event_time=event_time, headers=named, clock=clock, buckets=buckets)
