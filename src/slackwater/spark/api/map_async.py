"""Rows that wait for answers: an async function called for many rows at a time, inside a map task.

The time and the origin of a row are read *before* the function sees it, and travel past it. So whatever
the function answers, and even if it answers nothing, the watermark is the one of the rows that came in;
and because a micro-batch ends when all its calls have, no watermark overtakes a row before it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BooleanType, StructField, StructType

from slackwater.errors import InvalidArgument
from slackwater.progress.async_stage import AsyncStage, Retry
from slackwater.progress.values import Origin, Watermark
from slackwater.spark.api.key_columns import schema_of
from slackwater.spark.api.stream_inputs import Source, quoted
from slackwater.spark.runtime.operator_inputs import InputRules
from slackwater.spark.wire.clock_source import Clocking
from slackwater.spark.wire.map_side import CONTROL, ORIGIN, TIME, WITNESS, numbered
from slackwater.spark.wire.numbered_chunks import EMPTY, ROW
from slackwater.time import SECOND, DurationLike, check_int64, duration, format_instant
from slackwater.windows import Window

_MOST_ANSWERS: Final = 2**20
"""What a row may be answered, where answers are numbered."""

Row = dict[str, Any]
Item = tuple[int, Row, str]
Answer = Row | list[Row] | None
AsyncFunction = Callable[[Row], Awaitable[Answer]]


@dataclass(frozen=True)
class AsyncCall:
    """An async function, and how it is called.

    >>> async def rated(row):
    ...     return {"rate": 2 * row["price"]}
    >>> async_call(rated, StructType(), timeout="2 seconds").seconds
    2.0
    """

    function: AsyncFunction
    schema: StructType
    ordered: bool
    capacity: int
    seconds: float | None
    retry: Retry

    @property
    def name(self) -> str:
        """What the function is called in messages."""
        return getattr(self.function, "__qualname__", type(self.function).__qualname__)

    def stage(self) -> AsyncStage[Item, tuple[int, list[Row]]]:
        """The calls for the rows of a batch: (place, row, where it comes from) to (place, answers)."""

        async def answered(item: Item) -> tuple[int, list[Row]]:
            place, row, _ = item
            return place, self._rows(await self.function(row))

        return AsyncStage(
            answered,
            ordered=self.ordered,
            capacity=self.capacity,
            timeout=self.seconds,
            retry=self.retry,
            key=lambda item: f"{self.name}(row {item[2]})",
        )

    def _rows(self, answer: Answer) -> list[Row]:
        rows = [] if answer is None else answer if isinstance(answer, list) else [answer]
        for row in rows:
            if not isinstance(row, Mapping):
                raise InvalidArgument(
                    self.name,
                    type(row).__name__,
                    "is not what it may return",
                    fix="return a dict, a list of dicts or None",
                )
            if unknown := row.keys() - set(self.schema.names):
                raise InvalidArgument(
                    self.name,
                    sorted(unknown),
                    "are returned, but not in the schema",
                    fix=f"add them to schema=, which has {', '.join(self.schema.names)}",
                )
        return rows


def async_call(
    function: AsyncFunction,
    schema: str | StructType,
    *,
    ordered: bool = True,
    capacity: int = 100,
    timeout: DurationLike | None = "30 seconds",
    retry: Retry | None = None,
) -> AsyncCall:
    """Check the arguments of `Stream.map_async`.

    >>> async_call(len, "rate double")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: fn = <built-in function len>: is not an async function; write async def
    """
    if not (inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)):
        raise InvalidArgument("fn", function, "is not an async function", fix="write async def")
    parsed = schema_of(schema)
    for place, name in enumerate(parsed.names):
        if (
            name.startswith("event:")
            or name in ("window_start", "window_end")
            or name in parsed.names[:place]
        ):
            raise InvalidArgument(
                "schema", name, "is taken: rows carry a column of this name already", fix="rename it"
            )
    call = AsyncCall(
        function=function,
        # A row without an answer has none of these columns, whatever the schema says.
        schema=StructType([StructField(field.name, field.dataType) for field in parsed.fields]),
        ordered=ordered,
        capacity=check_int64(capacity, "capacity"),
        seconds=None if timeout is None else duration(timeout, name="timeout") / SECOND,
        retry=retry or Retry(),
    )
    call.stage()  # whatever it refuses is refused here
    return call


@dataclass(frozen=True)
class AsyncSource(Source):
    """The rows of another source, as an async function answers them."""

    inner: Source
    call: AsyncCall

    @property
    def schema(self) -> StructType:
        """The columns that the function returns."""
        return self.call.schema

    @property
    def spark(self) -> SparkSession:
        """The session of the rows before."""
        return self.inner.spark

    @property
    def is_streaming(self) -> bool:
        """Whether rows keep coming."""
        return self.inner.is_streaming

    @property
    def rules(self) -> InputRules:
        """Those of the rows before."""
        return self.inner.rules

    @property
    def clock(self) -> Clocking | None:
        """That of the rows before."""
        return self.inner.clock

    @property
    def retracts(self) -> bool:
        """Whether the rows before are taken back; what they were answered is taken back, then."""
        return self.inner.retracts

    @property
    def windows(self) -> tuple[Window, ...]:
        """An answer is in the window of its row."""
        return self.inner.windows

    def driven(self, *, signed: bool, flush: bool, path: str) -> tuple[DataFrame, list[Column]]:
        """The answers, with what drives an operator taken from the rows before."""
        rows, driving = self.inner.driven(signed=signed, flush=flush, path=path)
        names = self.inner.schema.names
        windows = [quoted(name) for name in self.inner.window_columns]
        asked = [quoted(name).alias(numbered(place)) for place, name in enumerate(names)]
        chosen = rows.select(*driving, *windows, *asked)
        passed = chosen.schema.fields[: len(driving) + len(windows)]
        # A row that was filtered in an earlier call is filtered still.
        kept = [field for field in passed if field.name != WITNESS]
        output = StructType([*kept, StructField(WITNESS, BooleanType()), *self.call.schema.fields])
        mapped = chosen.mapInArrow(AsyncMapper(self.call, tuple(names), output), output)
        driven = [field.name for field in kept if field.name not in self.inner.window_columns]
        return mapped, [quoted(name) for name in (*driven, WITNESS)]

    @property
    def settled(self) -> bool:
        """Whether the rows before are."""
        return self.inner.settled

    def by(self, key: str) -> Source:
        """The answers, driven by another event time of the rows before."""
        return replace(self, inner=self.inner.by(key))

    def times(self) -> tuple[tuple[str, str], ...]:
        """Those of the rows before."""
        return self.inner.times()

    def only_origin(self) -> Origin | None:
        """That of the rows before."""
        return self.inner.only_origin()


@dataclass(frozen=True)
class AsyncMapper:
    """Calls the function for the rows of a map task; for `mapInArrow`.

    One event loop serves the whole task, so that what a function opens in it can be used again. Each Arrow
    batch is finished before the next is asked for: waiting for Spark must not count against a timeout.
    """

    call: AsyncCall
    columns: tuple[str, ...]
    output: StructType

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The answers for the rows of the batches, a batch for each."""
        target = to_arrow_schema(self.output, timezone="UTC")
        with asyncio.Runner() as runner:
            for batch in batches:
                if batch.num_rows:
                    yield runner.run(self._answered(batch, target))

    async def _answered(self, batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
        passing = _passing(batch)
        rows = self._rows(batch)

        async def items() -> AsyncIterator[Item]:
            for place, passes in enumerate(passing):
                if not passes:
                    yield place, rows[place], _where(batch, place)

        # What the function does not see only tells how far others are: it has no place in their order.
        answers: list[tuple[int, list[Row]]] = [(place, []) for place, passes in enumerate(passing) if passes]
        answers += [one async for one in self.call.stage().run(items()) if not isinstance(one, Watermark)]
        nothing: list[Row | None] = [None]
        told = [(place, row) for place, several in answers for row in several or nothing]
        places = [place for place, _ in told]
        kept = _row_numbers(batch.take(pa.array(places, pa.int64())), places)
        values = [row for _, row in told]
        passed = list(target)[: len(target) - 1 - len(self.call.schema)]
        columns = [kept.column(field.name).cast(field.type) for field in passed]
        columns.append(pa.array([row is None for row in values], pa.bool_()))
        columns += [self._column(target.field(name), values) for name in self.call.schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=target)

    def _rows(self, batch: pa.RecordBatch) -> list[Row]:
        """The rows as the function sees them; times of the session's zone become UTC."""
        arrays = [batch.column(numbered(place)) for place in range(len(self.columns))]
        utc = pa.timestamp("us", "UTC")
        zoned = [pa.types.is_timestamp(array.type) and array.type.tz is not None for array in arrays]
        arrays = [array.cast(utc) if has else array for array, has in zip(arrays, zoned, strict=True)]
        rows: list[Row] = pa.RecordBatch.from_arrays(arrays, names=list(self.columns)).to_pylist(
            maps_as_pydicts="strict"
        )
        return rows

    def _column(self, field: pa.Field, values: Sequence[Row | None]) -> pa.Array:
        try:
            return pa.array([None if row is None else row.get(field.name) for row in values], field.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise InvalidArgument(
                self.call.name,
                field.name,
                f"is not returned as schema= says, {field.type}: {error}",
                fix="return such a value, or change the schema",
            ) from error


def _passing(batch: pa.RecordBatch) -> list[bool]:
    """Which rows only tell how far somebody is: headers without rows, and rows filtered before."""
    told = [batch.column(name).to_pylist() for name in (WITNESS, EMPTY) if name in batch.schema.names]
    if CONTROL in batch.schema.names:
        told.append(batch.column(CONTROL).is_valid().to_pylist())
    return [any(each) for each in zip(*told, strict=True)] if told else [False] * batch.num_rows


def _row_numbers(kept: pa.RecordBatch, places: Sequence[int]) -> pa.RecordBatch:
    """Answers of one row get numbers of their own, where rows are told apart by their number in a buffer."""
    if ROW not in kept.schema.names:
        return kept
    seen: dict[int, int] = {}
    numbers: list[int | None] = []
    for place, row in zip(places, kept.column(ROW).to_pylist(), strict=True):
        seen[place] = seen.get(place, -1) + 1
        numbers.append(None if row is None else row * _MOST_ANSWERS + seen[place])
    where = kept.schema.get_field_index(ROW)
    return kept.set_column(where, ROW, pa.array(numbers, kept.schema.field(where).type))


def _where(batch: pa.RecordBatch, place: int) -> str:
    """Which row it is, in words that show none of its values."""
    time = batch.column(TIME)[place].as_py()
    origin = f" of {batch.column(ORIGIN)[place].as_py()}" if ORIGIN in batch.schema.names else ""
    return ("without a time" if time is None else f"at {format_instant(time)}") + origin
