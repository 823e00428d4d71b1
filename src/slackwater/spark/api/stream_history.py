"""The history of a stream: rows that were stored before a seam, read before and together with the live rows.

History and live rows are united before they become a stream, so they share one watermark, their origins and
their late rows: the result is that of a query that had been running all along. The first micro-batch reads
all of the history, and no row is late in it, so the history may be in any order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import DataType, IntegralType, StructType, TimestampType

from slackwater._suggestions import available
from slackwater.errors import InvalidArgument
from slackwater.spark.api.key_columns import check_named
from slackwater.spark.api.source_limits import source_limit
from slackwater.spark.api.stream_inputs import quoted
from slackwater.spark.internals import is_remote
from slackwater.time import InstantLike, check_int64, instant


@dataclass(frozen=True)
class StreamHistory:
    """Stored rows that come before the live rows of a stream; created by `history`."""

    df: DataFrame
    until: InstantLike | int
    seam: str | Column | None = None


def history(df: DataFrame, *, until: InstantLike | int, seam: str | Column | None = None) -> StreamHistory:
    """Read stored rows at batch speed before the live rows of a stream, without a gap or a doubled row.

    Rows *before* the seam come from the history, all others from the live rows. Both may contain more: what
    is on the other side of the seam is ignored. If the history has every row before ``until``, and the live
    source every row from then on, then no row is missing and none comes twice.

    The first micro-batch of the query reads all of the history, together with the live rows that are there.
    No row is late in it, so the history may be in any order. From then on the watermark goes on from the
    latest event time of both. Rows that are added to the history later are late rows.

    ``until`` is recorded in the checkpoint. A query that is started again with another one fails, because
    rows in between would be lost or counted twice. So do not pass the current time.

    Args:
        df: The history, with the columns of the live rows. It is streaming if these are, such as
            ``spark.readStream.parquet(archive)``, and not limited per micro-batch.
        until: The seam: a time, or an integer if the column ``seam`` is one.
        seam: The column that is compared with ``until``: a timestamp or an integer that never changes for a
            row, such as the time at which it was stored, or an expression. By default the event time, or the
            timestamp of a Kafka record. With the event time, a late row that reaches the live source after
            the history was stored is before the seam and therefore ignored. Null is before the seam.

    Returns:
        A value for the argument ``history`` of `stream` and `from_kafka`.

    Raises:
        InvalidArgument: An argument is invalid.

    >>> import slackwater as sw
    >>> spark = sw.session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> stored = spark.sql("select timestamp_seconds(id) as at, id as price from range(0, 70)")
    >>> live = spark.sql("select timestamp_seconds(id) as at, id as price from range(50, 90)")
    >>> bids = sw.stream(
    ...     live,
    ...     history=sw.history(stored, until="1970-01-01T00:01:00Z"),
    ...     event_time="at",
    ...     watermark=sw.lag("5 seconds"),
    ... )
    >>> panes = bids.window(sw.fixed("30 seconds")).agg(bids=sw.count())
    >>> [row.bids for row in panes.to_df().orderBy("window").collect()]
    [30, 30, 30]
    """
    if not isinstance(df, DataFrame):
        raise InvalidArgument("df", df, "is not a DataFrame", fix="pass a Spark DataFrame")
    if not isinstance(until, int):
        instant(until, name="until")
    return StreamHistory(df, until, seam)


@dataclass(frozen=True)
class United:
    """History and live rows as one DataFrame, and the seam as text."""

    df: DataFrame
    seam: str


def with_history(live: DataFrame, given: StreamHistory, *, default: str | Column | None) -> United:
    """The rows before the seam from the history, and the others from the live rows.

    ``default`` is the column that divides the rows if the user names none.

    Raises:
        InvalidArgument: The DataFrames differ in their columns, only one of them is streaming, or the history
            is limited per micro-batch.
    """
    if not isinstance(given, StreamHistory):
        raise InvalidArgument(
            "history", given, "is not the result of sw.history()", fix='write history=history(df, until="…")'
        )
    _check_columns(given.df.schema, live.schema)
    if given.df.isStreaming != live.isStreaming:
        which = "streaming" if live.isStreaming else "batch"
        raise InvalidArgument(
            "history", "a batch DataFrame" if live.isStreaming else "a streaming DataFrame",
            f"cannot be combined with live rows that are a {which} DataFrame",
            fix="read it with spark.readStream; without a limit, the first micro-batch reads all of it"
            if live.isStreaming
            else "read both with spark.read, or both with spark.readStream",
        )  # fmt: skip
    if live.isStreaming and not is_remote(live.sparkSession) and (limit := source_limit(given.df)):
        raise InvalidArgument(
            "history", limit, "limits what a micro-batch reads, and the rows of later ones would be late",
            fix="remove the limit: the first micro-batch has to read all of the history",
        )  # fmt: skip
    column = default if given.seam is None else given.seam
    if column is None:
        raise InvalidArgument("seam", None, "is missing", fix='name the column: history(…, seam="at")')
    key, until = _seam(live, given.until, column)
    is_live = key >= sql.lit(until)
    # a null event time is invalid and counted, wherever it comes from; any other null has one side
    unknown = key.isNull()
    lives = live.where(is_live | unknown) if given.seam is None else live.where(is_live)
    return United(given.df.where(~is_live | unknown).unionByName(lives), str(until))


def _check_columns(history: StructType, live: StructType) -> None:
    sides = {"history": _kinds(history), "live rows": _kinds(live)}
    for side, others in (("history", "live rows"), ("live rows", "history")):
        for name, kind in sides[others].items():
            found = sides[side].get(name)
            if found is None:
                raise InvalidArgument(
                    "history", name, f"column not found in the {side}, but in the {others}",
                    fix=available(name, sides[side], tail="; use the same columns in both"),
                )  # fmt: skip
            if found != kind:
                raise InvalidArgument(
                    "history", name,
                    f"is of type {found.simpleString()} in the {side}, "
                    f"and {kind.simpleString()} in the {others}",
                    fix="cast one of them",
                )  # fmt: skip


def _kinds(schema: StructType) -> Mapping[str, DataType]:
    return {field.name: field.dataType for field in schema.fields}


def _seam(live: DataFrame, until: Any, column: str | Column) -> tuple[Column, int]:
    """The number that divides the rows, and the one at which it does."""
    if isinstance(column, str):
        check_named(live.sparkSession, live.columns, "seam", column)
        key = quoted(column)
    elif isinstance(column, Column):
        key = column
    else:
        raise InvalidArgument(
            "seam", column, "is neither a column nor a column name", fix='write seam="stored_at"'
        )
    kind = live.select(key).schema[0].dataType
    if isinstance(kind, TimestampType):
        return sql.unix_micros(key), instant(until, name="until")
    if not isinstance(kind, IntegralType):
        raise InvalidArgument(
            "seam", str(column), f"is of type {kind.simpleString()}, neither a timestamp nor an integer",
            fix="pass a column of one of these types",
        )  # fmt: skip
    if isinstance(until, bool) or not isinstance(until, int):
        raise InvalidArgument(
            "until", until, f"is not an integer, as the column {column} is", fix="pass an integer"
        )
    return key, check_int64(until, "until")
