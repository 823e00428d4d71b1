"""Session gaps that each row has by itself, as an expression over its columns."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as sql
from pyspark.sql.types import DayTimeIntervalType, IntegralType

from slackwater.errors import InvalidArgument
from slackwater.spark.api.expression_sources import ProjectedSource
from slackwater.spark.api.stream_inputs import Source, quoted
from slackwater.spark.wire.wire_columns import SESSION_GAP
from slackwater.time import SECOND


def with_gaps(sources: Sequence[Source], gap: object) -> tuple[Source, ...]:
    """The rows of some sources with their gap in microseconds, in the column `SESSION_GAP`.

    Args:
        sources: The inputs of a windowed operator.
        gap: A column name, or a Column: an interval, or a number of seconds.

    Raises:
        InvalidArgument: The gap is neither, or has another type.

    >>> from slackwater.progress.watermark_policies import lag
    >>> from slackwater.spark.api.stream import stream
    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> clicks = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 7 as user, 30 as timeout")
    >>> (source,) = with_gaps(stream(clicks, event_time="at", watermark=lag("5 seconds")).sources, "timeout")
    >>> source.schema.names
    ['at', 'user', 'timeout', 'session:gap']
    """
    return tuple(_with_gap(source, gap) for source in sources)


def _with_gap(source: Source, gap: object) -> Source:
    column = gap
    source.spark  # noqa: B018 - raises for rows in process: Spark computes gaps
    if SESSION_GAP in source.schema.names:
        raise InvalidArgument(
            "gap", SESSION_GAP, "is a column of the input, but also a reserved name", fix="rename the column"
        )
    if isinstance(gap, str):
        source.field("gap", gap)
        column = quoted(gap)
    if not isinstance(column, Column):
        raise InvalidArgument(
            "gap", gap, "is neither a duration nor a Spark Column", fix='write sessions(F.col("timeout"))'
        )
    given = ProjectedSource.adding(source, {SESSION_GAP: column})
    kind = given.schema[SESSION_GAP].dataType
    if isinstance(kind, DayTimeIntervalType):
        epoch = sql.timestamp_micros(sql.lit(0))
        micros = sql.unix_micros(epoch + quoted(SESSION_GAP))
    elif isinstance(kind, IntegralType):
        micros = sql.try_multiply(quoted(SESSION_GAP).cast("bigint"), sql.lit(SECOND).cast("bigint"))
    else:
        raise InvalidArgument(
            "gap",
            str(gap),
            f"is of type {kind.simpleString()}",
            fix="use an interval of days to seconds, or a whole number of seconds",
        )
    return ProjectedSource.adding(given, {SESSION_GAP: micros})
