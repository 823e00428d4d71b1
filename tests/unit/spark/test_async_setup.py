"""`map_async(setup=…)`: the calls of a task share a client, which is closed when the task ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import pyarrow as pa
import pytest
from pyspark.sql.types import BooleanType, LongType, StructField, StructType

from slackwater.errors import InvalidArgument
from slackwater.spark.api.map_async import async_call
from slackwater.spark.runtime.async_mapper import AsyncMapper
from slackwater.spark.wire.wire_columns import TIME, WITNESS, column_alias

RESULT = StructType([StructField("value", LongType())])
OUTPUT = StructType([StructField(TIME, LongType()), StructField(WITNESS, BooleanType()), *RESULT.fields])


class Client:
    """A client that records what happens to it."""

    def __init__(self, events: list[str]) -> None:
        self.events = events
        events.append("created")

    async def __aenter__(self) -> Self:
        self.events.append("opened")
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.events.append("closed")

    async def double(self, value: int) -> int:
        self.events.append(f"called with {value}")
        return 2 * value


async def doubled(row: dict[str, Any], client: Client) -> dict[str, Any]:
    return {"value": await client.double(row["value"])}


def results(setup: Callable[[], Any], *batches: list[int]) -> list[int]:
    mapper = AsyncMapper(async_call(doubled, RESULT, setup=setup), ("value",), OUTPUT)
    tables = [pa.record_batch({TIME: values, column_alias(0): values}) for values in batches]
    return [value for batch in mapper(tables) for value in batch.column("value").to_pylist()]


def test_the_calls_of_a_task_share_a_client_that_is_closed_at_its_end() -> None:
    events: list[str] = []
    assert results(lambda: Client(events), [1, 2], [3]) == [2, 4, 6]
    calls = ["called with 1", "called with 2", "called with 3"]
    assert events == ["created", "opened", *calls, "closed"]


def test_the_client_may_be_created_by_an_async_function() -> None:
    events: list[str] = []

    async def create() -> Client:
        return Client(events)

    assert results(create, [5]) == [10]
    assert events == ["created", "opened", "called with 5", "closed"]


def test_a_client_without_a_context_is_passed_as_it_is() -> None:
    class Plain:
        async def double(self, value: int) -> int:
            return 2 * value

    assert results(Plain, [4]) == [8]


def test_a_task_without_rows_creates_no_client() -> None:
    events: list[str] = []
    assert results(lambda: Client(events), []) == []
    assert events == []


def test_a_client_is_closed_after_a_failure() -> None:
    events: list[str] = []
    with pytest.raises(Exception, match="unsupported operand"):
        results(lambda: Client(events), [1], [None])  # type: ignore[list-item]
    assert events[-1] == "closed"


def test_a_setup_that_is_not_a_function_is_rejected() -> None:
    with pytest.raises(InvalidArgument, match="setup = 5: is not a function; write setup=make_client"):
        async_call(doubled, RESULT, setup=5)  # type: ignore[arg-type]
