"""The source behind `Stream.map_async`: the rows of another source, mapped by an async function."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import BooleanType, StructField, StructType

from slackwater.errors import InvalidArgument
from slackwater.progress.async_stage import Retry
from slackwater.progress.values import Origin
from slackwater.spark.api.key_columns import parse_schema
from slackwater.spark.api.stream_inputs import Source, quoted
from slackwater.spark.runtime.async_mapper import AsyncCall, AsyncFunction, AsyncMapper, Fallback
from slackwater.spark.runtime.operator_inputs import InputRules
from slackwater.spark.wire.clock_source import ClockSpec
from slackwater.spark.wire.columns import WINDOW_BOUNDS, WITNESS, column_alias
from slackwater.time import SECOND, DurationLike, check_int64, duration
from slackwater.windows import Window


def async_call(
    function: AsyncFunction,
    schema: str | StructType,
    *,
    ordered: bool = True,
    capacity: int = 100,
    timeout: DurationLike | None = "30 seconds",
    retry: Retry | None = None,
    fallback: Fallback | None = None,
) -> AsyncCall:
    """Check the arguments of `Stream.map_async`.

    >>> async_call(len, "rate double")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: fn = <built-in function len>: is not an async function; write async def
    """
    if not (inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)):
        raise InvalidArgument("fn", function, "is not an async function", fix="write async def")
    if inspect.iscoroutinefunction(fallback):
        raise InvalidArgument(
            "fallback", fallback, "is an async function", fix="write def: it must return at once"
        )
    parsed = parse_schema(schema)
    for index, name in enumerate(parsed.names):
        if name.startswith("event:") or name in WINDOW_BOUNDS or name in parsed.names[:index]:
            raise InvalidArgument(
                "schema", name, "is reserved or used twice in the schema", fix="rename the column"
            )
    call = AsyncCall(
        function=function,
        # A row without a result has null in all of these columns, so they are nullable.
        schema=StructType([StructField(field.name, field.dataType) for field in parsed.fields]),
        ordered=ordered,
        capacity=check_int64(capacity, "capacity"),
        timeout_seconds=None if timeout is None else duration(timeout, name="timeout") / SECOND,
        retry=retry or Retry(),
        fallback=fallback,
    )
    if fallback is not None and not callable(fallback):
        call.rows(fallback, "fallback")  # raises if the value does not match the schema
    call.stage()  # raises if an argument is invalid
    return call


@dataclass(frozen=True)
class AsyncSource(Source):
    """The rows of another source, mapped by an async function."""

    inner: Source
    call: AsyncCall

    @property
    def schema(self) -> StructType:
        """The columns that the function returns."""
        return self.call.schema

    @property
    def spark(self) -> SparkSession:
        """The Spark session."""
        return self.inner.spark

    @property
    def is_streaming(self) -> bool:
        """Whether the input rows are streaming."""
        return self.inner.is_streaming

    @property
    def rules(self) -> InputRules:
        """How the watermark of the input rows is made."""
        return self.inner.rules

    @property
    def clock(self) -> ClockSpec | None:
        """The clock of the input rows."""
        return self.inner.clock

    @property
    def retracts(self) -> bool:
        """Whether input rows may be retracted; then their results are retracted as well."""
        return self.inner.retracts

    @property
    def lateness(self) -> int | None:
        """How far the input rows, and so their results, may be behind the watermark."""
        return self.inner.lateness

    @property
    def windows(self) -> tuple[Window, ...]:
        """The windows of the input rows; a result is in the window of its row."""
        return self.inner.windows

    def driven(self, *, signed: bool, flush: bool, path: str) -> tuple[DataFrame, list[Column]]:
        """The results, with the driving columns of the input rows."""
        rows, driving = self.inner.driven(signed=signed, flush=flush, path=path)
        names = self.inner.schema.names
        windows = [quoted(name) for name in self.inner.window_columns]
        arguments = [quoted(name).alias(column_alias(index)) for index, name in enumerate(names)]
        chosen = rows.select(*driving, *windows, *arguments)
        passed = chosen.schema.fields[: len(driving) + len(windows)]
        # The mapper writes the witness column anew; rows filtered by an earlier function stay witnesses.
        kept = [field for field in passed if field.name != WITNESS]
        output = StructType([*kept, StructField(WITNESS, BooleanType()), *self.call.schema.fields])
        mapped = chosen.mapInArrow(AsyncMapper(self.call, tuple(names), output), output)
        driven = [field.name for field in kept if field.name not in self.inner.window_columns]
        return mapped, [quoted(name) for name in (*driven, WITNESS)]

    @property
    def can_fold(self) -> bool:
        """Whether the input rows are final before the shuffle."""
        return self.inner.can_fold

    def by(self, key: str) -> Source:
        """The results, driven by another event time of the input rows."""
        return replace(self, inner=self.inner.by(key))

    def times(self) -> tuple[tuple[str, str], ...]:
        """The watermark keys of the input rows and their event-time columns."""
        return self.inner.times()

    def only_origin(self) -> Origin | None:
        """The single origin of the input rows; None if a column contains it."""
        return self.inner.only_origin()
