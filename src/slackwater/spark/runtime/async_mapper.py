"""Calls of an async function for the rows of a map task.

The event time and the origin of a row bypass the function. So the watermark is that of the input rows,
whatever the function returns, even if it returns nothing. A micro-batch ends only when all of its calls have
ended, so no watermark overtakes a row before it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import polars as pl
import pyarrow as pa
from pyspark.sql.types import StructType

from slackwater._strict_rows import rows_to_table
from slackwater._utf8 import replace_invalid_bytes, unreadable_reason, unreadable_rows
from slackwater.errors import AsyncItemFailed, InvalidArgument
from slackwater.progress.async_stage import AsyncStage, BoundedRunner, Retry
from slackwater.progress.values import Watermark
from slackwater.spark.versions import to_arrow_schema
from slackwater.spark.wire.numbered_chunks import EMPTY, FIRST_RESULT, ROW
from slackwater.spark.wire.wire_columns import (
    CONTROL,
    FAILED_ROW,
    FAILURE,
    FALLBACKS,
    INVALID_REASON,
    ORIGIN,
    TIME,
    WITNESS,
    column_alias,
)
from slackwater.sql.letters import as_letters
from slackwater.time import format_instant

_MAX_RESULTS: Final = 2**20
"""The maximum number of result rows per input row, if rows are numbered."""

_LONGEST_KEY: Final = 100
"""Longer values of a key are cut in messages."""

_CLOSE_SECONDS: Final = 5.0
"""The time limit for closing a client."""

Row = dict[str, Any]
Item = tuple[int, Row, str]
Result = Row | list[Row] | None


@dataclass(frozen=True)
class Failure:
    """The outcome of a call that failed."""

    reason: str


Answer = tuple[int, Result | Failure, bool]
"""The index of a row, the result for it, and whether it is that of the fallback."""
OnError = Literal["fail", "emit", "skip"]
"""What happens to a row whose call fails: it fails the query, is emitted with the reason, or is counted."""
AsyncFunction = Callable[..., Awaitable[Result]]
"""Called with a row, and with the client that `Setup` returned if there is one."""
Setup = Callable[[], Any]
"""Returns a client for the calls of a task, or an async context manager or an awaitable of one."""
Fallback = Row | list[Row] | Callable[[Row], Result]
"""The result for a row whose call failed, or a function of the row that returns it."""


@dataclass(frozen=True)
class AsyncCall:
    """An async function, the schema of its results, and how it is called."""

    function: AsyncFunction
    schema: StructType
    ordered: bool
    capacity: int
    timeout_seconds: float | None
    retry: Retry
    fallback: Fallback | None = None
    on_error: OnError = "fail"
    setup: Setup | None = None
    client: tuple[Any, ...] = ()
    """The client that ``setup`` returned, in a task; otherwise empty."""

    @property
    def name(self) -> str:
        """The name of the function in messages."""
        return getattr(self.function, "__qualname__", type(self.function).__qualname__)

    def stage(self) -> AsyncStage[Item, Answer]:
        """The stage that maps items (index, row, description) to answers."""

        async def call(item: Item) -> Answer:
            index, row, _ = item
            return index, await self.function(row, *self.client), False

        def fallback(item: Item) -> Answer:
            index, row, _ = item
            return index, self.fallback(row) if callable(self.fallback) else self.fallback, True

        def failure(item: Item, error: AsyncItemFailed) -> Answer:
            from slackwater.sql.stored_text import storable  # imports a database library

            return item[0], Failure(storable(str(error))), False

        retry = self.retry
        if (rejects := retry.when_result) is not None:
            retry = replace(retry, when_result=lambda answer: rejects(answer[1]))
        return AsyncStage(
            call,
            ordered=self.ordered,
            capacity=self.capacity,
            timeout=self.timeout_seconds,
            retry=retry,
            fallback=None if self.fallback is None else fallback,
            on_failure=None if self.on_error == "fail" else failure,
            key=lambda item: f"{self.name}(row {item[2]})",
        )

    async def with_client(self, stack: AsyncExitStack) -> AsyncCall:
        """The call with the client that ``setup`` returns, which ``stack`` closes at its end."""
        if self.setup is None:
            return self
        client = self.setup()
        if inspect.isawaitable(client):
            client = await client
        if isinstance(client, AbstractAsyncContextManager):
            client = await stack.enter_async_context(client)
        return replace(self, client=(client,))

    def rows(self, result: Result, source: str | None = None) -> list[Row]:
        """The rows of a result; raises an error that names ``source`` if they do not match the schema."""
        rows = [] if result is None else result if isinstance(result, list) else [result]
        for row in rows:
            if not isinstance(row, Mapping):
                raise InvalidArgument(
                    source or self.name,
                    type(row).__name__,
                    "is not a valid return type",
                    fix="return a dict, a list of dicts or None",
                )
            if unknown := row.keys() - set(self.schema.names):
                raise InvalidArgument(
                    source or self.name,
                    sorted(unknown),
                    "was returned, but is not in the schema",
                    fix=f"add it to schema=, which has {', '.join(self.schema.names)}",
                )
        return rows


@dataclass(frozen=True)
class AsyncMapper:
    """Calls the function for the rows of a map task; for `mapInArrow`.

    One event loop serves the whole task, so that the function can reuse its connections. Each Arrow batch is
    finished before the next one is requested, so that waiting for Spark does not count towards a timeout.
    """

    call: AsyncCall
    columns: tuple[str, ...]
    output: StructType
    key: tuple[str, ...] = ()
    """The key columns of the stream, whose values errors name."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The results for the rows of the batches, one batch for each."""
        target = to_arrow_schema(self.output)
        ready: AsyncMapper | None = None
        clients = AsyncExitStack()
        with BoundedRunner() as runner:
            try:
                for batch in batches:
                    if batch.num_rows:
                        # A task without rows needs no client.
                        ready = ready or replace(self, call=runner.run(self.call.with_client(clients)))
                        yield runner.run(ready.mapped(batch, target))
            finally:
                with suppress(TimeoutError):  # a client that cannot be closed does not fail its results
                    runner.run(asyncio.wait_for(clients.aclose(), _CLOSE_SECONDS))

    async def mapped(self, batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
        """The results for the rows of a batch, in a schema."""
        bypassing = _bypassing(batch)
        failures = self._unreadable(batch, bypassing)
        batch = replace_invalid_bytes(batch)
        bypassing = [bypasses or index in failures for index, bypasses in enumerate(bypassing)]
        rows = self._rows(batch)

        async def items() -> AsyncIterator[Item]:
            for index, bypasses in enumerate(bypassing):
                if not bypasses:
                    yield index, rows[index], self._description(batch, index)

        # Rows that bypass the function only carry progress, so their order among the others is irrelevant.
        results: list[tuple[int, list[Row]]] = [
            (index, []) for index, bypasses in enumerate(bypassing) if bypasses
        ]
        answers = [one async for one in self.call.stage().run(items()) if not isinstance(one, Watermark)]
        results += [(index, self._answered(index, result, failures)) for index, result, _ in answers]
        fallen = [index for index, _, is_fallback in answers if is_fallback]
        try:
            return self._results(batch, results, failures, fallen, target)
        except InvalidArgument:
            if self.call.on_error == "fail":
                raise
        fitting = [(index, self._fitting(batch, index, rows, failures, target)) for index, rows in results]
        return self._results(batch, fitting, failures, fallen, target)

    def _unreadable(self, batch: pa.RecordBatch, bypassing: Sequence[bool]) -> dict[int, str]:
        """The rows with text that is not UTF-8, which no function can get, each with the reason."""
        arguments = self._arguments(batch)
        rows = [row for row in unreadable_rows(arguments) if not bypassing[row]]
        found = {row: unreadable_reason(arguments, row) for row in rows}
        if found and self.call.on_error == "fail":
            row, reason = next(iter(found.items()))
            raise InvalidArgument(
                self.call.name,
                f"row {self._description(replace_invalid_bytes(batch), row)}",
                reason,
                fix='apply Spark\'s make_valid_utf8 to it, or emit such rows with on_error="emit"',
            )
        return found

    def _answered(self, index: int, result: Result | Failure, failures: dict[int, str]) -> list[Row]:
        """The rows of an answer; none, and an entry in ``failures``, if the row at ``index`` failed."""
        if isinstance(result, Failure):
            failures[index] = result.reason
            return []
        try:
            return self.call.rows(result)
        except InvalidArgument as error:
            if self.call.on_error == "fail":
                raise
            failures[index] = str(error)
            return []

    def _fitting(
        self, batch: pa.RecordBatch, index: int, rows: list[Row], failures: dict[int, str], target: pa.Schema
    ) -> list[Row]:
        """The rows of an answer; none, and an entry in ``failures``, if a value does not fit the schema."""
        try:
            self._table(batch, [index] * len(rows), rows, target)
        except InvalidArgument as error:
            failures[index] = str(error)
            return []
        return rows

    def _table(
        self, batch: pa.RecordBatch, indices: Sequence[int], rows: list[Row], target: pa.Schema
    ) -> pa.Table:
        """The columns of results; ``indices`` are those of the rows that they answer."""
        return rows_to_table(
            rows,
            pa.schema([target.field(name) for name in self.call.schema.names]),
            what=f"{self.call.name}()",
            row_name=lambda answer: f"the answer to the row {self._description(batch, indices[answer])}",
        )

    def _results(
        self,
        batch: pa.RecordBatch,
        results: Sequence[tuple[int, list[Row]]],
        failures: Mapping[int, str],
        fallen: Iterable[int],
        target: pa.Schema,
    ) -> pa.RecordBatch:
        """The results of the rows of a batch, and the rows that failed; ``fallen`` are from a fallback."""
        no_result: list[Row | None] = [None]
        pairs = [(index, row) for index, several in results for row in several or no_result]
        indices = [index for index, _ in pairs]
        ordinals = _ordinals(indices)
        kept = _numbered_results(batch.take(pa.array(indices, pa.int64())), ordinals)
        values = [row for _, row in pairs]
        passed = list(target)[: target.get_field_index(WITNESS)]
        columns = [kept.column(field.name).cast(field.type) for field in passed]
        invalid = _invalid(kept)
        columns.append(
            pa.array([row is None and not bad for row, bad in zip(values, invalid, strict=True)], pa.bool_())
        )
        if FALLBACKS in target.names:
            counts = _fallbacks(batch, fallen)
            first = [
                0 if ordinal else counts[index] for index, ordinal in zip(indices, ordinals, strict=True)
            ]
            columns.append(pa.array(first, pa.int64()))
        if FAILURE in target.names:
            described = self._described(batch, failures)
            columns += [column.take(pa.array(indices, pa.int64())) for column in described]
        answered = self._table(batch, indices, [row or {} for row in values], target)
        columns += [column.combine_chunks() for column in answered.columns]
        return pa.RecordBatch.from_arrays(columns, schema=target)

    def _described(self, batch: pa.RecordBatch, failures: Mapping[int, str]) -> list[pa.Array]:
        """Why each row failed, now or in an earlier call, and the row as JSON; both null if it did not.

        A row that is skipped has no JSON, so that operators count it and do not emit it.
        """
        count = batch.num_rows
        known: list[list[str | None]] = [
            batch.column(name).to_pylist() if name in batch.schema.names else [None] * count
            for name in (FAILURE, FAILED_ROW)
        ]
        if self.call.on_error == "skip":
            for index, reason in failures.items():
                known[0][index] = reason
        elif failures:
            rows = pl.DataFrame(self._arguments(batch).take(pa.array(list(failures), pa.int64())))
            letters = as_letters(rows, pl.Series(failures.values(), dtype=pl.String))
            for index, reason, content in zip(failures, letters["reason"], letters["content"], strict=True):
                known[0][index], known[1][index] = reason, content
        return [pa.array(values, pa.string()) for values in known]

    def _description(self, batch: pa.RecordBatch, index: int) -> str:
        """A description of a row for messages; of its values it contains only those of the key."""
        time = batch.column(TIME)[index].as_py()
        origin = f" of {batch.column(ORIGIN)[index].as_py()}" if ORIGIN in batch.schema.names else ""
        values = [
            f"{name}={_short(batch.column(column_alias(self.columns.index(name)))[index].as_py())}"
            for name in self.key
        ]
        key = f" with {', '.join(values)}" if values else ""
        return ("without a time" if time is None else f"at {format_instant(time)}") + origin + key

    def _rows(self, batch: pa.RecordBatch) -> list[Row]:
        """The rows for the function."""
        rows: list[Row] = self._arguments(batch).to_pylist(maps_as_pydicts="strict")
        return rows

    def _arguments(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns for the function; timestamps in the session's time zone are converted to UTC."""
        arrays = [batch.column(column_alias(index)) for index in range(len(self.columns))]
        utc = pa.timestamp("us", "UTC")
        zoned = [pa.types.is_timestamp(array.type) and array.type.tz is not None for array in arrays]
        arrays = [array.cast(utc) if has else array for array, has in zip(arrays, zoned, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, names=list(self.columns))


def _short(value: object) -> str:
    """A value of a key for messages."""
    text = repr(value)
    return text if len(text) <= _LONGEST_KEY else f"{text[: _LONGEST_KEY - 1]}…"


def _bypassing(batch: pa.RecordBatch) -> list[bool]:
    """Which rows the function is not called for: those that only carry progress, and invalid records.

    Control rows, headers without data and witness rows only carry progress.
    """
    flags = [batch.column(name).to_pylist() for name in (WITNESS, EMPTY) if name in batch.schema.names]
    flags.append(_invalid(batch))
    if CONTROL in batch.schema.names:
        flags.append(batch.column(CONTROL).is_valid().to_pylist())
    return [any(each) for each in zip(*flags, strict=True)] if flags else [False] * batch.num_rows


def _invalid(batch: pa.RecordBatch) -> list[bool]:
    """Which rows are invalid records that were not filtered out."""
    if INVALID_REASON not in batch.schema.names:
        return [False] * batch.num_rows
    invalid: list[bool] = batch.column(INVALID_REASON).is_valid().to_pylist()
    return invalid


def _fallbacks(batch: pa.RecordBatch, fallen: Iterable[int]) -> list[int]:
    """How often each row got the result of a fallback, in this call and those before it."""
    known = FALLBACKS in batch.schema.names
    counts: list[int] = batch.column(FALLBACKS).to_pylist() if known else [0] * batch.num_rows
    for index in fallen:
        counts[index] += 1
    return counts


def _ordinals(indices: Iterable[int]) -> list[int]:
    """Number the results of each input row."""
    seen: dict[int, int] = {}
    ordinals: list[int] = []
    for index in indices:
        seen[index] = seen.get(index, -1) + 1
        ordinals.append(seen[index])
    return ordinals


def _numbered_results(kept: pa.RecordBatch, ordinals: Sequence[int]) -> pa.RecordBatch:
    """Adapt the numbers of rows to results, if rows are identified or counted by the header of a buffer."""
    for name in (ROW, FIRST_RESULT):
        if name not in kept.schema.names:
            continue
        column = kept.schema.get_field_index(name)
        pairs = zip(kept.column(name).to_pylist(), ordinals, strict=True)
        values: list[int | bool | None]
        if name == ROW:
            values = [None if row is None else row * _MAX_RESULTS + ordinal for row, ordinal in pairs]
        else:
            values = [first and ordinal == 0 for first, ordinal in pairs]
        kept = kept.set_column(column, name, pa.array(values, kept.schema.field(column).type))
    return kept
