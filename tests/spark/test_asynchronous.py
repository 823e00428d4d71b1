"""`map_async` with a real server: concurrent calls, and results with the event time of their rows."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    FloatType,
    LongType,
    StructField,
    StructType,
    TimestampType,
)

from slackwater import windows
from slackwater.errors import AsyncItemFailed, InvalidArgument, InvalidDuration
from slackwater.progress.async_stage import Retry
from slackwater.progress.watermark_policies import Lag, lag
from slackwater.spark.api.map_async import async_call
from slackwater.spark.api.stream import Stream, stream
from slackwater.spark.monitor.reports import why
from slackwater.spark.runtime.async_mapper import AsyncFunction, AsyncMapper
from slackwater.spark.wire.numbered_chunks import EMPTY, FIRST_RESULT, ROW
from slackwater.spark.wire.wire_columns import TIME, WITNESS, column_alias
from slackwater.sql.database import database_url, temporary_engine
from slackwater.sql.dead_letters import dead_letters
from slackwater.time import SECOND
from tests.spark.running import Batch, Scenario, as_batch, as_stream, expected
from tests.spark.scenarios import LAG, check, following
from tests.support.sampling import sampled
from tests.support.windowed import Options

pytestmark = pytest.mark.spark


class Service:
    """A server on loopback that doubles numbers, and answers when enough of them are waiting."""

    def __init__(self) -> None:
        self.enough = 1
        self.patience = 20.0
        self.waiting = 0
        self.peak = 0
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        self._started.wait()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._answering())
        self._loop.close()

    async def _answering(self) -> None:
        self._over = asyncio.Event()
        self._crowd = asyncio.Condition()
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._over.wait()
        server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = int(await reader.readline())
        async with self._crowd:
            self.waiting += 1
            self.peak = max(self.peak, self.waiting)
            self._crowd.notify_all()
            async with asyncio.timeout(self.patience):
                await self._crowd.wait_for(lambda: self.peak >= self.enough)
        await asyncio.sleep(0.05)
        self.waiting -= 1
        writer.write(f"{2 * asked}\n".encode())
        writer.close()


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    yield service
    service.stop()


def doubling(port: int) -> AsyncFunction:
    async def doubled(row: dict[str, Any]) -> Any:
        """Nothing for multiples of three, two rows for multiples of five."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"{row['value']}\n".encode())
        answer = int(await reader.readline())
        writer.close()
        if row["value"] % 3 == 0:
            return None
        rows = [{"key": row["key"], "value": answer}]
        return 2 * rows if row["value"] % 5 == 0 else rows

    return doubled


def answered(batch: Batch) -> Batch:
    """The results for the rows of a batch; the watermark is that of all rows."""
    rows = []
    for key, second, value in batch.rows:
        if value % 3:
            rows += [(key, second, 2 * value)] * (2 if value % 5 == 0 else 1)
    return replace(batch, rows=rows)


BATCHES = following(
    [
        [("a", 1, 1), ("a", 2, 2), ("b", 3, 3)],
        [("a", 4, 5), ("b", 9, 6), ("b", 14, 9)],
        [("a", 48, 12)],  # nothing comes of it, but it moves the watermark
        [("a", 41, 10), ("b", 7, 10), ("b", 24, 11)],
    ]
)


@pytest.mark.parametrize("restart_after", sampled([None, 2], keep=[2]))
def test_results_have_the_event_time_of_their_rows(
    spark: SparkSession, tmp_path: Path, service: Service, restart_after: int | None
) -> None:
    scenario = _scenario(service)
    portions = [[batch] for batch in BATCHES]
    rows = as_stream(spark, scenario, tmp_path, portions, restart_after)
    check(rows, expected(scenario, [[answered(batch)] for batch in BATCHES]), scenario)


def test_map_async_over_a_batch(spark: SparkSession, tmp_path: Path, service: Service) -> None:
    scenario = _scenario(service, ordered=False)
    rows = as_batch(spark, scenario, tmp_path)
    check(rows, expected(scenario, [[answered(batch) for batch in BATCHES]], bounded=True), scenario)


def _scenario(service: Service, **options: Any) -> Scenario:
    def through(rows: Stream) -> Stream:
        return rows.map_async(doubling(service.port), "key string, value long", **options)

    return Scenario(
        Options(windows.Fixed(10 * SECOND), allowed_lateness=20 * SECOND),
        BATCHES,
        Lag(LAG * SECOND),
        through=through,
    )


def numbers(spark: SparkSession, count: int) -> DataFrame:
    return (
        spark.range(count, numPartitions=1)
        .selectExpr("'a' as key", "id as value", "timestamp_seconds(id) as at")
        .coalesce(1)
    )


def collected(df: DataFrame, fn: AsyncFunction, schema: str | StructType, **options: Any) -> list[Any]:
    rows = stream(df, event_time="at", watermark=lag("1 second")).map_async(fn, schema, **options)
    panes = rows.window(windows.global_window()).agg(value=windows.collect("value")).to_df().collect()
    return panes[0]["value"] if panes else []


def test_calls_are_concurrent_up_to_the_capacity(spark: SparkSession, service: Service) -> None:
    service.enough = 20
    asked = collected(numbers(spark, 60), doubling(service.port), "key string, value long", capacity=20)
    assert service.peak == 20
    assert sorted(asked) == sorted(value for batch in [_all(60)] for value in batch)


def _all(count: int) -> list[int]:
    rows = answered(Batch([("a", number, number) for number in range(count)], 0, None)).rows
    return [value for _, _, value in rows]


def in_one_task(fn: AsyncFunction, schema: StructType, rows: pa.Table, **options: Any) -> list[Any]:
    """The results for the rows of a map task, without Spark."""
    output = StructType([TIME_FIELD, StructField(WITNESS, BooleanType()), *schema.fields])
    mapper = AsyncMapper(async_call(fn, schema, **options), tuple(rows.column_names), output)
    numbers = rows.rename_columns([column_alias(place) for place in range(rows.num_columns)])
    times = pa.array([SECOND * number for number in range(rows.num_rows)], pa.int64())
    batches = numbers.add_column(0, TIME, times).to_batches(max_chunksize=4)
    return [row for batch in mapper(batches) for row in batch.to_pylist()]


TIME_FIELD = StructField(TIME, LongType())
VALUE = StructType([StructField("value", LongType())])
NUMBERS = pa.table({"value": [0, 1, 2, 3, 4, 5]})


@pytest.mark.parametrize(("ordered", "wanted"), [(True, [0, 1, 2, 3, 4, 5]), (False, [1, 2, 3, 0, 4, 5])])
def test_results_are_ordered_or_not(ordered: bool, wanted: list[int]) -> None:
    async def slow_first(row: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0.5 if row["value"] == 0 else 0)
        return {"value": row["value"]}

    assert [row["value"] for row in in_one_task(slow_first, VALUE, NUMBERS, ordered=ordered)] == wanted


def test_a_row_is_a_dict_of_all_its_columns() -> None:
    at = pa.array([0], pa.timestamp("us", "Europe/Berlin"))
    more = pa.array([[("x", 5)]], pa.map_(pa.string(), pa.int64()))
    rows: list[dict[str, Any]] = []

    async def seen(row: dict[str, Any]) -> None:
        rows.append(row)

    (answer,) = in_one_task(seen, VALUE, pa.table({"at": at, "more": more, "none": pa.nulls(1)}))
    assert rows == [{"at": datetime(1970, 1, 1, tzinfo=UTC), "more": {"x": 5}, "none": None}]
    assert answer == {TIME: 0, WITNESS: True, "value": None}


def test_headers_bypass_the_function_and_results_are_numbered() -> None:
    """If producers number their rows, two results of one row must not look like copies of each other."""

    async def twice(row: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"value": row["value"]}, {"value": -row["value"]}]

    driving = {EMPTY: BooleanType(), ROW: LongType()}
    fields = [StructField(name, kind) for name, kind in driving.items()]
    output = StructType([TIME_FIELD, *fields, StructField(WITNESS, BooleanType()), *VALUE.fields])
    batch = pa.record_batch(
        {TIME: [1, 2, 3], EMPTY: [True, False, False], ROW: [1, 2, 3], column_alias(0): [None, 5, 6]}
    )
    (answers,) = AsyncMapper(async_call(twice, VALUE), ("value",), output)([batch])
    result_rows = [(row[TIME], row[WITNESS], row["value"]) for row in answers.to_pylist()]
    assert result_rows == [(1, True, None), (2, False, 5), (2, False, -5), (3, False, 6), (3, False, -6)]
    assert len({row[ROW] for row in answers.to_pylist()}) == 5


async def _fails(row: dict[str, Any]) -> dict[str, Any]:
    raise ValueError(f"no rate for {row['value']}")


async def _hangs(row: dict[str, Any]) -> dict[str, Any]:
    await asyncio.sleep(3600)
    return row


async def _returns_more(row: dict[str, Any]) -> dict[str, Any]:
    return {"value": 1, "extra": 2}


async def _returns_text(row: dict[str, Any]) -> dict[str, Any]:
    return {"value": "many"}


async def _returns_a_fraction(row: dict[str, Any]) -> dict[str, Any]:
    return {"value": 1.9}


async def _returns_a_number(row: dict[str, Any]) -> Any:
    return 5


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (_fails, r"_fails\(row at 1970-01-01T00:00:00Z\)' failed after 1 attempt: ValueError: no rate for 0"),
        (_hangs, r"_hangs\(row at 1970-01-01T00:00:00Z\)' failed .*: no result within its timeout of 0.2 s"),
        (
            _returns_more,
            r"_returns_more = \['extra'\]: was returned, but is not in the schema; add it to schema=",
        ),
        (
            _returns_text,
            r"_returns_text\(\) = 'many': the answer to the row at 1970-01-01T00:00:00Z, column 'value'",
        ),
        (
            _returns_a_fraction,
            r"_returns_a_fraction\(\) = 1.9: the answer to the row .*, column 'value'.*has a fractional part",
        ),
        (_returns_a_number, "_returns_a_number = 'int': is not a valid return type; return a dict"),
    ],
)
def test_a_failed_call_fails_the_batch_with_the_reason(fn: AsyncFunction, message: str) -> None:
    with pytest.raises((AsyncItemFailed, InvalidArgument), match=message):
        in_one_task(fn, VALUE, NUMBERS, timeout="200 milliseconds")


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (1e300, FloatType(), "is too large"),
        (datetime(2024, 1, 31), TimestampType(), "has no timezone"),  # noqa: DTZ001
        (5_000_000, TimestampType(), "is a number, whose unit and origin are unknown"),
        (5, DateType(), "is not a date"),
        ([1, 1.9], ArrayType(LongType()), "has a fractional part"),
    ],
)
def test_an_answer_is_never_cut(answer: object, kind: DataType, message: str) -> None:
    async def returns(row: dict[str, Any]) -> dict[str, Any]:
        return {"value": answer}

    schema = StructType([StructField("value", kind)])
    with pytest.raises(InvalidArgument, match=message):
        in_one_task(returns, schema, NUMBERS)
    with pytest.raises(InvalidArgument, match=message) as raised:
        async_call(_fails, schema, fallback={"value": answer})
    assert raised.value.name == "fallback"


def test_a_failure_reaches_the_driver(spark: SparkSession) -> None:
    with pytest.raises(PythonException) as caught:
        collected(numbers(spark, 1), _fails, "value long")
    assert "_fails(row at 1970-01-01T00:00:00Z)' failed after 1 attempt" in str(caught.value)
    assert "ValueError: no rate for 0" in str(caught.value)


def test_a_failed_call_is_retried(tmp_path: Path) -> None:
    async def second_time_lucky(row: dict[str, Any]) -> dict[str, Any]:
        mark = tmp_path / str(row["value"])
        if not mark.exists():
            mark.touch()
            raise ConnectionError("not yet")
        return {"value": row["value"]}

    retry = Retry(retries=1, first_delay=0.01)
    answers = in_one_task(second_time_lucky, VALUE, NUMBERS, retry=retry)
    assert [row["value"] for row in answers] == [0, 1, 2, 3, 4, 5]


def test_a_call_is_retried_by_its_result(tmp_path: Path) -> None:
    async def ready_the_second_time(row: dict[str, Any]) -> dict[str, Any]:
        mark = tmp_path / str(row["value"])
        known = mark.exists()
        mark.touch()
        return {"value": row["value"] if known else -1}

    retry = Retry(1, first_delay=0.01, when_result=lambda result: result["value"] == -1)
    answers = in_one_task(ready_the_second_time, VALUE, NUMBERS, retry=retry)
    assert [row["value"] for row in answers] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("fn", [_fails, _hangs])
@pytest.mark.parametrize(
    ("fallback", "wanted"),
    [
        ({"value": -1}, [-1] * 6),
        (lambda row: {"value": -row["value"]}, [0, -1, -2, -3, -4, -5]),
        (lambda row: None if row["value"] else {"value": 7}, [7, None, None, None, None, None]),
    ],
    ids=["a value", "a function", "a filter"],
)
def test_a_fallback_replaces_the_result_of_a_failed_call(
    fn: AsyncFunction, fallback: Any, wanted: list[int | None]
) -> None:
    answers = in_one_task(fn, VALUE, NUMBERS, timeout="50 milliseconds", fallback=fallback)
    assert [row["value"] for row in answers] == wanted
    assert [row[WITNESS] for row in answers] == [value is None for value in wanted]


def test_a_fallback_does_not_hide_a_result_that_does_not_match_the_schema() -> None:
    with pytest.raises(InvalidArgument, match=r"_returns_more = \['extra'\]: was returned, but is not in"):
        in_one_task(_returns_more, VALUE, NUMBERS, fallback={"value": 0})


def test_results_after_the_first_do_not_count_as_rows_of_a_buffer() -> None:
    async def twice(row: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"value": row["value"]}, {"value": -row["value"]}]

    first = StructField(FIRST_RESULT, BooleanType())
    output = StructType([TIME_FIELD, first, StructField(WITNESS, BooleanType()), *VALUE.fields])
    batch = pa.record_batch({TIME: [1, 2], FIRST_RESULT: [True, True], column_alias(0): [5, 6]})
    (answers,) = AsyncMapper(async_call(twice, VALUE), ("value",), output)([batch])
    assert answers.column(FIRST_RESULT).to_pylist() == [True, False, True, False]


def test_chained_calls_and_calls_for_panes(spark: SparkSession) -> None:
    """Rows that the first call filters stay filtered; results of panes are in the windows of the panes."""

    async def even(row: dict[str, Any]) -> dict[str, Any] | None:
        return None if row["value"] % 2 else {"value": row["value"]}

    async def larger(row: dict[str, Any]) -> dict[str, Any]:
        return {"value": row["value"] + 100}

    rows = stream(numbers(spark, 10), event_time="at", watermark=lag("1 second"))
    twice = rows.map_async(even, "value long").map_async(larger, "value long")
    sums = twice.window(windows.fixed("5 seconds")).agg(value=windows.sum("value"))
    again = sums.map_async(larger, "value long").agg(value=windows.max("value")).to_df().collect()
    assert sorted((row["window"]["start"].second, row["value"]) for row in again) == [(0, 406), (5, 314)]


def test_invalid_calls_raise(spark: SparkSession) -> None:
    rows = stream(numbers(spark, 1), event_time="at", watermark=lag("1 second"))
    refused: list[tuple[Any, Any, dict[str, Any], str]] = [
        (len, "value long", {}, "is not an async function; write async def"),
        (_fails, "long", {}, "schema = 'long': is neither a StructType nor a DDL string"),
        (_fails, "value long, value string", {}, "schema = 'value': is reserved or used twice"),
        (_fails, "window_end timestamp", {}, "schema = 'window_end': is reserved or used twice"),
        (_fails, "value long", {"capacity": 0}, "capacity = 0: must be at least 1"),
        (_fails, "value long", {"timeout": "0 seconds"}, "timeout = 0.0: must be greater than zero"),
        (_fails, "value long", {"fallback": _fails}, "fallback = .* is an async function; write def"),
        (_fails, "value long", {"fallback": {"x": 1}}, r"fallback = \['x'\]: was returned, but is not in"),
        (_fails, "value long", {"retry": 5}, r"retry = 5: is not a retry policy; write retry=Retry\(3\)"),
    ]
    for fn, schema, options, message in refused:
        with pytest.raises(InvalidArgument, match=message):
            rows.map_async(fn, schema, **options)
    with pytest.raises(InvalidDuration, match="has no unit"):
        rows.map_async(_fails, "value long", timeout="30")
    with pytest.raises(InvalidArgument, match="key_by = 'key': column not found; available: value"):
        rows.key_by("key").map_async(_fails, "value long")
    with pytest.raises(InvalidArgument, match="cannot be inherited, because rows of a DataFrame"):
        rows.map_async(_fails, "value long").agg(n=windows.count())


# ---- rows that fail

FAILING = "key string, value bigint"


async def even_only(row: dict[str, Any]) -> Any:
    if row["value"] % 2:
        raise ConnectionError("odd")
    return row


def failing(df: DataFrame) -> Stream:
    """Numbers of which the odd ones fail."""
    elements = stream(df, event_time="at", watermark=lag("1 second"))
    return elements.select("key", "value").map_async(even_only, FAILING, on_error="emit")


FAILED = ['{"key":"k","value":1}', '{"key":"k","value":3}']


def failed_rows(rows: list[Any]) -> list[str]:
    """The failed rows in the output, and a check of their reasons."""
    failed = [row for row in rows if row["failure"] is not None]
    for row in failed:
        assert "even_only(row at 1970-01-01T00:00:0" in row["failure"]
        assert row["failure"].endswith("failed after 1 attempt: ConnectionError: odd")
    return sorted(row["failed_row"] for row in failed)


@pytest.mark.proof
def test_failed_rows_go_to_the_output_of_every_operator(spark: SparkSession) -> None:
    one = failing(spark.sql("select timestamp_seconds(id) as at, 'k' as key, id as value from range(1, 5)"))
    panes = one.key_by("key").window(windows.fixed("10 seconds")).agg(total=windows.sum("value"))
    assert panes.schema.names == ["key", "window", "total", "pane", "failure", "failed_row"]
    joined = one.join(panes.select("key", "total"), on="key", before="0 seconds", after="1 minute")
    outputs = {
        "rows": one.filter("value > 0").to_df(),
        "panes": panes.to_df(),
        "chain": panes.window(windows.fixed("1 minute")).agg(all=windows.sum("total")).to_df(),
        "unique": one.deduplicate(on=["value"], within="1 minute").to_df(),
        "pairs": joined.to_df(),
    }
    collected = {name: df.collect() for name, df in outputs.items()}
    both = sorted(2 * FAILED)  # of the left side, and those of the panes
    assert {name: failed_rows(rows) for name, rows in collected.items()} == {
        name: both if name == "pairs" else FAILED for name in outputs
    }
    results = {
        "rows": [2, 4], "panes": [6], "chain": [6], "unique": [2, 4], "pairs": [6, 6]
    }  # fmt: skip
    column = {"rows": "value", "panes": "total", "chain": "all", "unique": "value", "pairs": "total"}
    for name, rows in collected.items():
        assert sorted(row[column[name]] for row in rows if row["failure"] is None) == results[name]
    kinds = [row["pane"]["kind"] for row in collected["chain"]]
    assert sorted(kinds) == ["failed", "failed", "pane"]


@pytest.mark.proof
def test_failed_rows_become_dead_letters_of_a_table_and_are_counted(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.sql("select timestamp_seconds(id) as at, 'k' as key, id as value from range(1, 5)")
    rows.coalesce(1).write.parquet(str(tmp_path / "in"))
    elements = failing(spark.readStream.schema(rows.schema).parquet(str(tmp_path / "in")))
    panes = elements.key_by("key").window(windows.fixed("10 seconds")).agg(total=windows.sum("value"))
    url = f"sqlite:///{tmp_path}/shop.db"
    with pytest.raises(InvalidArgument, match="would lose the rows for which map_async failed"):
        panes.upsert_to(url, "totals", create=True)
    writer = panes.upsert_to(url, "totals", create=True, on_error="emit", flush=True)
    located = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = located.trigger(availableNow=True).start()
    query.awaitTermination()
    letters = dead_letters(url, "totals")
    assert sorted(letters["content"]) == FAILED
    assert all("ConnectionError: odd" in reason for reason in letters["reason"])
    with temporary_engine(database_url(url)) as engine, engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT total FROM totals").all() == [(6,)]
    report = why(query)
    assert (report.operators[0].totals["failed"], report.dead_letters) == (2, 2)
    assert str(report).endswith(", dead letters 2")
