"""Records of Kafka as a stream: parsed values, an origin for each partition, and invalid records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from slackwater._suggestions import available
from slackwater.errors import InvalidArgument
from slackwater.progress.discovery import Discover
from slackwater.progress.values import DEFAULT_KEY
from slackwater.progress.watermark_policies import WatermarkPolicy
from slackwater.spark.api.key_columns import parse_schema
from slackwater.spark.api.stream import Stream, stream
from slackwater.spark.api.stream_history import StreamHistory, with_history
from slackwater.spark.api.stream_inputs import RowSource, quoted
from slackwater.spark.api.stream_options import ColumnLike
from slackwater.spark.runtime.map_side import FURTHEST
from slackwater.spark.wire.clock_source import ClockSpec
from slackwater.spark.wire.wire_columns import INVALID_REASON, RECORD_POSITION
from slackwater.time import DurationLike

_TYPES: Final[Mapping[str, tuple[type[DataType], ...]]] = {
    "value": (BinaryType, StringType),
    "topic": (StringType,),
    "partition": (IntegerType,),
    "offset": (LongType,),
    "timestamp": (TimestampType,),
}
"""The columns of Spark's Kafka source that are needed, and their types."""
_PREFIX: Final = "kafka_"
ERROR: Final = "kafka_error"
"""Why the value of a record could not be parsed; null if it was."""
_PARSED: Final = "kafka:parsed"
_CORRUPT: Final = "kafka:corrupt"


def from_kafka(
    df: DataFrame,
    *,
    value: StructType | str | Column,
    watermark: WatermarkPolicy,
    event_time: ColumnLike = "kafka_timestamp",
    json_options: Mapping[str, str] | None = None,
    origins: Sequence[str] | Discover | None = None,
    idle_after: DurationLike | None = None,
    max_ahead: DurationLike | None = None,
    forget_after: DurationLike | None = None,
    clock: DurationLike | ClockSpec = "1 second",
    buckets: int | None = None,
    name: str | None = None,
    timezone: str | None = None,
    history: StreamHistory | None = None,
) -> Stream:
    """Create a stream from the records of Spark's Kafka source, streaming or batch.

    The rows have the fields of the parsed value, and the columns of the record: ``kafka_key``,
    ``kafka_value``, ``kafka_topic``, ``kafka_partition``, ``kafka_offset``, ``kafka_timestamp``, and
    ``kafka_error``. Each partition of a topic is an origin, named ``topic-partition`` as in ``bids-0``.

    A record is invalid if its value is null or cannot be parsed, or if it has no usable event time. Invalid
    records are counted, and with ``invalid="emit"`` in `Windowed.agg` or `Stream.join` they are emitted as
    rows of kind ``invalid``, with the columns ``invalid_topic``, ``invalid_partition``, ``invalid_offset``
    and ``invalid_reason``, so that they can be read again. They pass filters, and `Stream.map_async` does not
    call its function for them. `Stream.to_df` contains them, with ``kafka_error``.

    Args:
        df: A DataFrame with the columns ``value``, ``topic``, ``partition``, ``offset`` and ``timestamp``,
            as ``spark.readStream.format("kafka")`` returns it.
        value: The schema of the values, which are JSON, as a StructType or a DDL string. For another format,
            an expression of a struct type that is null if it fails, such as ``from_avro(col("value"), …)``.
        watermark: The watermark policy of the event time, such as ``lag("5 seconds")``.
        event_time: The event time: a column of the value, an expression, or the timestamp of the record.
        json_options: Options of ``from_json``, such as ``timestampFormat``.
        origins: The partitions to wait for before they have sent a record, as ``["bids-0", "bids-1"]``; see
            `stream`.
        idle_after: See `stream`.
        max_ahead: See `stream`.
        forget_after: See `stream`.
        clock: See `stream`.
        buckets: See `stream`.
        name: See `stream`.
        timezone: See `stream`.
        history: Stored records, with the columns of ``df``, that come before the live ones; see `history`. By
            default the timestamp of the record is compared with the seam.

    Returns:
        The stream.

    Raises:
        InvalidArgument: A column of the Kafka source is missing or has another type, or an argument is
            invalid.

    >>> import slackwater as sw
    >>> spark = sw.session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> records = spark.sql(\"\"\"
    ...     select cast(null as binary) as key, cast(value as binary) as value, 'bids' as topic,
    ...         0 as partition, offset, timestamp'2024-01-01 00:00:09Z' as timestamp, 0 as timestampType
    ...     from values (0L, '{"auction": 7, "price": 30}'), (1L, '{"auction": 7, "pri') as (offset, value)
    ... \"\"\")
    >>> bids = sw.from_kafka(records, value="auction long, price long", watermark=sw.lag("5 seconds"))
    >>> panes = bids.key_by("auction").window(sw.fixed("10 seconds"))
    >>> totals = panes.agg(total=sw.sum("price"), invalid="emit").to_df()
    >>> columns = ["auction", "total", "pane.kind", "invalid_partition", "invalid_offset", "invalid_reason"]
    >>> [tuple(row) for row in totals.select(columns).orderBy("kind").collect()]
    [(None, None, 'invalid', 0, 1, 'the value cannot be parsed'), (7, 30, 'pane', None, None, None)]
    """
    _check_columns(df)
    united = None if history is None else with_history(df, history, default="timestamp")
    if united is not None:
        df = united.df
    if not isinstance(json_options, Mapping | None):
        raise InvalidArgument(
            "json_options", json_options, "is not a dict", fix='write {"timestampFormat": "dd/MM/yyyy HH:mm"}'
        )
    parsed, fields = _parsed(df, value, json_options or {})
    _check_fields(fields)
    is_parsed = sql.col(_PARSED).isNotNull()
    if _CORRUPT in fields.names:
        is_parsed = is_parsed & sql.col(_PARSED)[_CORRUPT].isNull()
    error = (
        sql.when(sql.col("value").isNull(), "the value is null")
        .when(~is_parsed, "the value cannot be parsed")
        .alias(ERROR)
    )
    record = [name for name in ("key", *_TYPES) if name in df.columns]
    rows = df.select(*record, parsed.alias(_PARSED)).select(
        *(sql.col(_PARSED)[field.name].alias(field.name) for field in fields if field.name != _CORRUPT),
        *(sql.col(name).alias(f"{_PREFIX}{name}") for name in record),
        error,
    )
    made = stream(
        rows,
        event_time=event_time,
        watermark=watermark,
        origin=sql.concat_ws("-", f"{_PREFIX}topic", f"{_PREFIX}partition"),
        origins=origins,
        idle_after=idle_after,
        max_ahead=max_ahead,
        forget_after=forget_after,
        clock=clock,
        buckets=buckets,
        name=name,
        timezone=timezone,
    )
    (source,) = made.sources
    assert isinstance(source, RowSource)  # noqa: S101 - the source of every stream of a DataFrame
    seam = None if united is None else united.seam
    return replace(made, sources=(replace(_with_records(source), given_seam=seam),))


def _with_records(source: RowSource) -> RowSource:
    """The source with the positions of its records; a record that was not parsed has no event time."""
    at = source.event_times[DEFAULT_KEY]
    error = quoted(ERROR)
    reason = (
        sql.when(error.isNotNull(), error)
        .when(at.isNull(), "the event time is null")
        .when(~sql.unix_micros(at).between(-FURTHEST, FURTHEST), "the event time is out of range")
    )
    position = dict(zip(RECORD_POSITION, map(quoted, _POSITION), strict=True))
    return replace(
        source,
        event_times={DEFAULT_KEY: sql.when(error.isNull(), at)},
        record={INVALID_REASON: reason, **position},
    )


_POSITION: Final = tuple(f"{_PREFIX}{name}" for name in ("topic", "partition", "offset"))


def _check_columns(df: DataFrame) -> None:
    if not isinstance(df, DataFrame):
        raise InvalidArgument("df", df, "is not a DataFrame", fix="pass a Spark DataFrame")
    found = {field.name: field.dataType for field in df.schema.fields}
    for name, kinds in _TYPES.items():
        if name not in found:
            fix = f"{available(name, found)}; pass what format('kafka') returns, without a select"
            raise InvalidArgument("df", name, "column not found", fix=fix)
        if not isinstance(found[name], kinds):
            wanted = " or ".join(kind().simpleString() for kind in kinds)
            raise InvalidArgument(
                "df",
                name,
                f"is of type {found[name].simpleString()}, not {wanted}",
                fix="pass what format('kafka') returns",
            )


def _parsed(
    df: DataFrame, value: StructType | str | Column, json_options: Mapping[str, str]
) -> tuple[Column, StructType]:
    """The parsed value as a struct, and its fields."""
    if isinstance(value, Column):
        if json_options:
            raise InvalidArgument(
                "json_options",
                dict(json_options),
                "has no effect: value is an expression",
                fix="pass a schema as value, or omit it",
            )
        kind = df.select(value).schema[0].dataType
        if not isinstance(kind, StructType):
            raise InvalidArgument(
                "value",
                str(value),
                f"is of type {kind.simpleString()}, not a struct",
                fix="write an expression such as from_avro(col('value'), …), or pass a schema",
            )
        return value, kind
    schema = parse_schema(value, "value")
    fields = StructType([*schema.fields, StructField(_CORRUPT, StringType())])
    options = {**json_options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    return sql.from_json(sql.col("value").cast("string"), fields, options), fields


def _check_fields(fields: StructType) -> None:
    for name in fields.names:
        if name.lower().startswith(_PREFIX):
            raise InvalidArgument(
                "value",
                name,
                f"begins with {_PREFIX}, as the columns of the record do",
                fix="pass an expression that renames the field",
            )
