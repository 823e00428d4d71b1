"""The source behind `Stream.map_async`: the rows of another source, mapped by an async function."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import get_args

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import BooleanType, LongType, StructField, StructType

from slackwater._strict_rows import rows_to_table
from slackwater.errors import InvalidArgument
from slackwater.progress.async_stage import Retry
from slackwater.spark.api.key_columns import check_free, parse_schema
from slackwater.spark.api.row_output import FAILURE_ELEMENT
from slackwater.spark.api.stream_inputs import DerivedSource, RowRequest, quoted
from slackwater.spark.runtime.async_mapper import (
    AsyncCall,
    AsyncFunction,
    AsyncMapper,
    Fallback,
    OnError,
    Setup,
)
from slackwater.spark.versions import to_arrow_schema
from slackwater.spark.wire.wire_columns import FALLBACKS, WINDOW_BOUNDS, WITNESS, column_alias
from slackwater.time import SECOND, DurationLike, check_int64, duration
from slackwater.windows.spec.spec_checks import check_choice


def async_call(
    function: AsyncFunction,
    schema: str | StructType,
    *,
    ordered: bool = True,
    capacity: int = 100,
    timeout: DurationLike | None = "30 seconds",
    retry: Retry | None = None,
    fallback: Fallback | None = None,
    setup: Setup | None = None,
    on_error: OnError = "fail",
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
    if setup is not None and not callable(setup):
        raise InvalidArgument(
            "setup", setup, "is not a function", fix="write setup=make_client, without calling it"
        )
    check_choice("on_error", on_error, get_args(OnError))
    if retry is not None and not isinstance(retry, Retry):
        raise InvalidArgument("retry", retry, "is not a retry policy", fix="write retry=Retry(3)")
    parsed = parse_schema(schema)
    for index, name in enumerate(parsed.names):
        if name in WINDOW_BOUNDS or name in parsed.names[:index]:
            raise InvalidArgument(
                "schema", name, "is reserved or used twice in the schema", fix="rename the column"
            )
        check_free("schema", name)
    call = AsyncCall(
        function=function,
        # A row without a result has null in all of these columns, so they are nullable.
        schema=StructType([StructField(field.name, field.dataType) for field in parsed.fields]),
        ordered=ordered,
        capacity=check_int64(capacity, "capacity"),
        timeout_seconds=None if timeout is None else duration(timeout, name="timeout") / SECOND,
        retry=retry or Retry(),
        fallback=fallback,
        setup=setup,
        on_error=on_error,
    )
    if fallback is not None and not callable(fallback):
        # raises if a value does not match the schema
        rows_to_table(call.rows(fallback, "fallback"), to_arrow_schema(call.schema), what="fallback")
    call.stage()  # raises if an argument is invalid
    return call


@dataclass(frozen=True)
class AsyncSource(DerivedSource):
    """The rows of another source, mapped by an async function."""

    call: AsyncCall
    key: tuple[str, ...] = ()
    """The key of the input rows, which errors name."""

    @property
    def schema(self) -> StructType:
        """The columns that the function returns."""
        return self.call.schema

    @property
    def emits_failures(self) -> bool:
        """Whether rows for which this function, or one before it, failed go to the output."""
        return self.call.on_error == "emit" or self.inner.emits_failures

    @property
    def carries_failures(self) -> bool:
        """Whether rows for which this function, or one before it, failed go to the next operator."""
        return self.call.on_error != "fail" or self.inner.carries_failures

    @property
    def skips_failures(self) -> bool:
        """Whether rows for which this function, or one before it, failed are only counted."""
        return self.call.on_error == "skip" or self.inner.skips_failures

    def driven(self, request: RowRequest) -> tuple[DataFrame, list[Column]]:
        """The results, with the driving columns of the input rows."""
        names = self.inner.available.names
        rows, driving = self.inner.driven(replace(request, columns=tuple(names)))
        windows = [quoted(name) for name in self.inner.window_columns]
        arguments = [quoted(name).alias(column_alias(index)) for index, name in enumerate(names)]
        chosen = rows.select(*driving, *windows, *arguments)
        mapper, driven = self.mapper(chosen.schema.fields[: len(driving) + len(windows)])
        return chosen.mapInArrow(mapper, mapper.output), [quoted(name) for name in driven]

    def mapper(self, passed: Sequence[StructField]) -> tuple[AsyncMapper, list[str]]:
        """What calls the function, and the columns that drive the next operator.

        ``passed`` are the columns of the input rows that bypass the function: those that drive an operator,
        and the windows.
        """
        # The mapper writes these columns anew. Rows filtered by an earlier step stay witnesses, the fallbacks
        # of an earlier call add up, and rows for which an earlier call failed keep its reason.
        marks = [StructField(WITNESS, BooleanType())]
        if self.call.fallback is not None or FALLBACKS in {field.name for field in passed}:
            marks.append(StructField(FALLBACKS, LongType()))
        if self.carries_failures:
            marks += FAILURE_ELEMENT
        written = {mark.name for mark in marks}
        kept = [field for field in passed if field.name not in written]
        output = StructType([*kept, *marks, *self.call.schema.fields])
        driven = [field.name for field in kept if field.name not in self.inner.window_columns]
        mapper = AsyncMapper(self.call, tuple(self.inner.available.names), output, self.key)
        return mapper, [*driven, *(mark.name for mark in marks)]
