"""The state in a checkpoint, read with Spark's state data source while the query is stopped or runs.

Spark keeps one map for each bucket of an operator. It is decoded in the workers, bucket by bucket, so that
the state itself never leaves them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from os import PathLike
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from slackwater.errors import InvalidArgument
from slackwater.spark.checkpoint.bucket_summary import BucketSummary, summarize_bucket
from slackwater.spark.internals import JavaError, java_causes
from slackwater.spark.runtime.processor import STATE_VARIABLE
from slackwater.spark.versions import to_arrow_schema

_OPERATOR_NAMES: Final = ("transformWithStateInPandasExec", "transformWithStateInPySparkExec")
_READABLE_DAYS: Final = 366 * 8_000
"""Times further from 1970 are shown as null: bounds of the time axis, which Python cannot represent."""


def _fields(**types: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


_WINDOW: Final = _fields(
    start=TimestampType(), end=TimestampType(), windows=LongType(), keys=LongType(), bytes=LongType()
)
_ORIGIN: Final = _fields(
    input=IntegerType(),
    origin=StringType(),
    status=StringType(),
    key=StringType(),
    watermark=TimestampType(),
)
STATE: Final = _fields(
    operator=IntegerType(),
    kind=StringType(),
    description=StringType(),
    bucket=IntegerType(),
    watermarks=MapType(StringType(), TimestampType()),
    clock=TimestampType(),
    ended=BooleanType(),
    open_windows=LongType(),
    keys=LongType(),
    buffered=LongType(),
    bytes=LongType(),
    dropped_late=LongType(),
    dropped_closed=LongType(),
    windows=ArrayType(_WINDOW),
    origins=ArrayType(_ORIGIN),
)
"""The columns of `state`, one row for each bucket of each operator."""


@dataclass(frozen=True)
class StatefulOperator:
    """An operator in a checkpoint, as Spark recorded it."""

    number: int
    name: str
    partitions: int


@dataclass(frozen=True)
class OperatorState:
    """The state of an operator over all of its buckets."""

    operator: int
    kind: str
    description: str
    partitions: int
    buckets: list[int]
    """The ids of the buckets."""
    watermarks: dict[str, datetime | None]
    """The lowest of all buckets; None at the end of the stream."""
    clock: datetime | None
    ended: bool
    open_windows: int
    keys: int
    buffered: int
    """The number of rows that a join has buffered."""
    bytes: int
    dropped_late: int
    dropped_closed: int
    windows: list[dict[str, Any]] = field(default_factory=list)
    """``start``, ``end``, ``windows``, ``keys`` and ``bytes`` of each open window or group of sessions."""
    origins: list[dict[str, Any]] = field(default_factory=list)
    """``input``, ``origin``, ``status``, ``key`` and ``watermark`` of each origin."""


def state(spark: SparkSession, checkpoint: str | PathLike[str]) -> DataFrame:
    """The state in the checkpoint of a query, without running the query.

    The last committed micro-batch is read. There is a row for each bucket of each windowed operator, cogroup
    or join, with its watermarks, open windows, keys, bytes and origins. All buckets of an operator together
    have each key once.

    Args:
        spark: A session with the RocksDB state store, such as that of `slackwater.session`.
        checkpoint: The ``checkpointLocation`` of the query.

    Returns:
        A batch DataFrame with the columns operator, kind, description, bucket, watermarks, clock, ended,
        open_windows, keys, buffered, bytes, dropped_late, dropped_closed, windows and origins.

    Raises:
        InvalidArgument: There is no checkpoint, it is damaged, it has no committed micro-batch, or none of
            its operators is one of Slackwater.

    >>> import slackwater as sw
    >>> import tempfile
    >>> spark = sw.session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    >>> windowed = sw.stream(rates, event_time="timestamp", watermark=sw.lag("1 second")).window(
    ...     sw.fixed("1 hour")
    ... )
    >>> with tempfile.TemporaryDirectory() as checkpoint:
    ...     panes = windowed.agg(n=sw.count()).to_df().writeStream.format("noop")
    ...     query = panes.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    ...     _ = query.awaitTermination()
    ...     sw.state(spark, checkpoint).selectExpr("sum(open_windows)", "sum(keys)").collect()
    [Row(sum(open_windows)=1, sum(keys)=1)]
    """
    path = _path(checkpoint)
    # Read at once, because a damaged checkpoint would otherwise fail in whatever the caller does with it.
    return spark.createDataFrame(_collected(spark, path, stateful_operators(spark, path)), STATE)


def stateful_operators(spark: SparkSession, checkpoint: str) -> list[StatefulOperator]:
    """The operators of Slackwater in a checkpoint; raises if there are none."""
    with _reading(checkpoint, "cannot be read"):
        found = spark.read.format("state-metadata").load(checkpoint).collect()
    if not found:
        raise InvalidArgument(
            "checkpoint", checkpoint, "has no committed micro-batch of a stateful query", fix=_FIX
        )
    operators = {
        row["operatorId"]: StatefulOperator(row["operatorId"], row["operatorName"], row["numPartitions"])
        for row in found
    }
    ours = [each for each in operators.values() if each.name in _OPERATOR_NAMES]
    if not ours:
        names = ", ".join(sorted({each.name for each in operators.values()}))
        raise InvalidArgument(
            "checkpoint", checkpoint, f"has no operators of Slackwater, only {names}", fix=_FIX
        )
    return sorted(ours, key=lambda each: each.number)


_FIX: Final = "give the checkpointLocation of a query that has run with Slackwater, or an intact copy of it"


@contextmanager
def _reading(checkpoint: str, problem: str) -> Iterator[None]:
    """Report errors of Spark as a problem of the checkpoint."""
    try:
        yield
    except (PySparkException, JavaError) as error:
        causes = list(java_causes(error)) if isinstance(error, JavaError) else []
        reason = (causes[-1] if causes else str(error)).strip().splitlines()[0]
        raise InvalidArgument("checkpoint", checkpoint, f"{problem} ({reason})", fix=_FIX) from error


def _collected(spark: SparkSession, checkpoint: str, operators: Sequence[StatefulOperator]) -> pa.Table:
    """The rows of all buckets of the operators, in order."""
    with _reading(checkpoint, "has state that cannot be read"):
        several = [_operator_state(spark, checkpoint, each) for each in operators]
        united = reduce(lambda one, other: one.unionByName(other), several)
        # Arrow, because collect() gives times in the timezone of this process without saying so.
        return united.orderBy("operator", "bucket").toArrow()


def _operator_state(spark: SparkSession, checkpoint: str, operator: StatefulOperator) -> DataFrame:
    entries = (
        spark.read.format("statestore")
        .option("operatorId", operator.number)
        .option("stateVarName", STATE_VARIABLE)
        .option("flattenCollectionTypes", "true")
        .load(checkpoint)
    )
    values = entries.select(
        sql.lit(operator.number).alias("operator"),
        sql.col("key.bucket").alias("bucket"),
        sql.col("user_map_key.name").alias("name"),
        sql.col("user_map_value.bytes").alias("value"),
    )
    return values.groupBy("operator", "bucket").applyInArrow(_summaries, STATE)


def _summaries(entries: pa.Table) -> pa.Table:
    """The row of one bucket, from all values that the state store has for it."""
    values = dict(zip(entries["name"].to_pylist(), entries["value"].to_pylist(), strict=True))
    summary = summarize_bucket(values.pop(""), values)
    row = _row(entries["operator"][0].as_py(), entries["bucket"][0].as_py(), summary)
    return pa.Table.from_pylist([row], schema=to_arrow_schema(STATE))


def _row(operator: int, bucket: int, summary: BucketSummary) -> dict[str, Any]:
    found = summary.operator
    return {
        "operator": operator,
        "kind": found.kind,
        "description": found.description,
        "bucket": bucket,
        "watermarks": {key: _displayed_time(at) for key, at in found.watermarks.items()},
        "clock": _displayed_time(summary.clock),
        "ended": summary.ended,
        "open_windows": sum(one.windows for one in found.windows),
        "keys": found.keys,
        "buffered": found.buffered,
        "bytes": found.bytes,
        "dropped_late": summary.totals.dropped_late,
        "dropped_closed": summary.totals.dropped_closed,
        "windows": [
            {
                "start": _displayed_time(one.start),
                "end": _displayed_time(one.end),
                "windows": one.windows,
                "keys": one.keys,
                "bytes": one.bytes,
            }
            for one in found.windows
        ],
        "origins": [
            {
                "input": number,
                "origin": each.name,
                "status": each.status,
                "key": key,
                "watermark": _displayed_time(at),
            }
            for number, origins in enumerate(summary.inputs)
            for each in origins
            for key, at in (each.watermarks or {"default": None}).items()
        ],
    }


def _displayed_time(time: int | None) -> int | None:
    """A time in microseconds; None for bounds of the time axis."""
    return None if time is None or abs(time) > _READABLE_DAYS * 86_400_000_000 else time


def operator_states(spark: SparkSession, checkpoint: str) -> list[OperatorState]:
    """The state of each operator in a checkpoint, over all buckets; see `state`."""
    path = _path(checkpoint)
    operators = stateful_operators(spark, path)
    partitions = {each.number: each.partitions for each in operators}
    rows: dict[int, list[dict[str, Any]]] = {}
    for row in _collected(spark, path, operators).to_pylist(maps_as_pydicts="strict"):
        rows.setdefault(row["operator"], []).append(row)
    return [_combined(buckets, partitions[number]) for number, buckets in sorted(rows.items())]


def _combined(rows: list[dict[str, Any]], partitions: int) -> OperatorState:
    first = rows[0]
    watermarks: dict[str, datetime | None] = {}
    for key in first["watermarks"]:
        known = [row["watermarks"].get(key) for row in rows]
        watermarks[key] = None if None in known else min(known)
    windows = _windows(rows)
    return OperatorState(
        operator=first["operator"],
        kind=first["kind"],
        description=first["description"],
        partitions=partitions,
        buckets=[row["bucket"] for row in rows],
        watermarks=watermarks,
        clock=max((row["clock"] for row in rows if row["clock"] is not None), default=None),
        ended=all(row["ended"] for row in rows),
        open_windows=sum(one["windows"] for one in windows),
        keys=sum(row["keys"] for row in rows),
        buffered=sum(row["buffered"] for row in rows),
        bytes=sum(row["bytes"] for row in rows),
        dropped_late=sum(row["dropped_late"] for row in rows),
        dropped_closed=sum(row["dropped_closed"] for row in rows),
        windows=windows,
        origins=_origins(rows),
    )


def _windows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The windows of all buckets, each once; the sessions of a group add up."""
    sessions = "sessions(" in rows[0]["description"]
    merged: dict[Any, dict[str, Any]] = {}
    for row in rows:
        for window in row["windows"]:
            identity = window["end"] if sessions else (window["start"], window["end"])
            found = merged.get(identity)
            if found is None:
                merged[identity] = window
                continue
            found["keys"] += window["keys"]
            found["bytes"] += window["bytes"]
            if sessions:
                found["windows"] += window["windows"]
                found["start"] = min(found["start"], window["start"])
    # The bounds of a global window are null.
    return sorted(merged.values(), key=lambda one: (one["start"] is not None, one["start"], one["end"]))


def _origins(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The origins of all buckets, each with its lowest watermark."""
    merged: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        for origin in row["origins"]:
            identity = origin["input"], origin["origin"], origin["key"]
            known = merged.setdefault(identity, origin)
            marks = (known["watermark"], origin["watermark"])
            known["watermark"] = None if None in marks else min(marks)
    return [merged[identity] for identity in sorted(merged)]


def _path(checkpoint: object) -> str:
    if not isinstance(checkpoint, str | PathLike):
        raise InvalidArgument("checkpoint", checkpoint, "is not a path", fix=_FIX)
    return str(checkpoint)
