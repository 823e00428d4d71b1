"""The pipelines in examples/, and those for Spark itself, give the rows that their jobs ask for."""

from __future__ import annotations

import importlib.util
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import slackwater as sw
from slackwater.ingest import load_job
from slackwater.ingest.extraction import Extraction
from slackwater.ingest.runner import run_job
from slackwater.metadata.store import open_store
from slackwater.streams.maintenance.mark_cycle import CycleRunner
from slackwater.time import HOUR, instant
from slackwater.time import now as wall_clock
from tests.spark.postgres import Server
from tests.spark.running import put_in_order

EXAMPLES = Path(__file__).parents[2] / "examples"
Rows = Sequence[tuple[Any, ...]]

both = pytest.mark.parametrize(
    "folder", ["", pytest.param("peers/spark", marks=pytest.mark.proof)], ids=["slackwater", "spark"]
)


def example(name: str, folder: str = "") -> ModuleType:
    path = EXAMPLES / folder / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"example_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def source(spark: SparkSession, folder: Path, schema: str, *batches: Rows) -> DataFrame:
    """A streaming DataFrame with a micro-batch for each list of rows; times are hours of 1 May 2024."""
    folder.mkdir()
    columns = [field.split()[0] for field in schema.split(", ")]
    for number, rows in enumerate(batches):
        path = folder / f"{number}.json"
        lines = [json.dumps(dict(zip(columns, row, strict=True))) for row in rows]
        path.write_text("\n".join(lines), encoding="utf-8")
        put_in_order(path, number)
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(folder))


def at(time: str, day: int = 1) -> str:
    return f"2024-05-{day:02}T{time}Z"


def moment(time: str) -> datetime:
    return datetime.fromisoformat(at(time))


def run(writer: DataStreamWriter) -> None:
    writer.trigger(availableNow=True).start().awaitTermination()


def rows_of(spark: SparkSession, folder: Path, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in spark.read.parquet(str(folder)).selectExpr(*columns).collect())


@both
def test_counts_per_partition(spark: SparkSession, tmp_path: Path, folder: str) -> None:
    schema = "partition int, offset long, timestamp timestamp, value string"
    slow = (1, 21, at("12:00:55"), "slow") if not folder else (1, 21, at("12:01:25"), "not slow")
    kafka = source(
        spark, tmp_path / "in", schema,
        [(0, 10, at("12:00:01"), "a"), (1, 20, at("12:00:02"), "b")],
        [(0, 11, at("12:01:30"), "c")],
        [(0, 12, at("12:01:40"), "d")],
        [slow],  # Spark itself drops a row of a slow partition
        [(1, 22, at("12:02:30"), "e"), (0, 13, at("12:02:35"), "f")],
    )  # fmt: skip
    run(example("partition_counts", folder).pipeline(kafka, str(tmp_path)))
    start = "date_format(start, 'HH:mm')" if folder else "date_format(window_start, 'HH:mm')"
    found = rows_of(spark, tmp_path / "counts", "partition", start, "count" if folder else "records")
    first = [(0, "12:00", 1), (0, "12:01", 2)]
    assert found == [*first, *([(1, "12:00", 1), (1, "12:01", 1)] if folder else [(1, "12:00", 2)])]


@pytest.mark.proof
@pytest.mark.postgres
@both
def test_sessions_with_corrections(spark: SparkSession, tmp_path: Path, server: Server, folder: str) -> None:
    clicks = source(
        spark, tmp_path / "in", "person string, at timestamp, page string",
        [("ann", at("12:00:00"), "start"), ("bob", at("12:05:00"), "start")],
        [("ann", at("12:50:00"), "cart"), ("bob", at("13:10:00"), "start")],
        [("ann", at("12:25:00"), "shoes")],  # late: it joins two visits
        [("bob", at("15:00:00"), "start")],
    )  # fmt: skip
    database = server.create_database(f"visits_{folder.replace('/', '_')}")
    run(example("sessions_to_postgres", folder).pipeline(clicks, database, str(tmp_path / "checkpoint")))
    columns = "first, until" if folder else "window_start, window_end"
    query = f"SELECT person, {columns}, clicks, entry FROM visits"  # noqa: S608 - two names of columns
    with psycopg.connect(database) as connection:
        found = connection.execute(query.encode()).fetchall()
    closed = [
        ("ann", moment("12:00:00"), moment("13:20:00"), 3, "start"),
        ("bob", moment("12:05:00"), moment("12:35:00"), 1, "start"),
        ("bob", moment("13:10:00"), moment("13:40:00"), 1, "start"),
    ]
    # The visit that is still open is in the table only where the table is the state.
    still_open = [("bob", moment("15:00:00"), moment("15:30:00"), 1, "start")] if folder else []
    assert sorted(found) == closed + still_open


@pytest.mark.proof
@both
def test_left_interval_join(spark: SparkSession, tmp_path: Path, folder: str) -> None:
    shown = source(
        spark, tmp_path / "impressions", "ad string, shown timestamp, site string",
        [("a", at("12:00:00"), "news"), ("b", at("12:00:10"), "blog")],
        [("z", at("12:10:00"), "blog")],
        [("z", at("12:20:00"), "blog")],
    )  # fmt: skip
    clicked = source(
        spark, tmp_path / "clicks", "ad string, clicked timestamp",
        [("b", at("12:00:40"))],
        [("a", at("12:03:00")), ("y", at("12:10:00"))],
        [("y", at("12:20:00"))],
    )  # fmt: skip
    run(example("interval_join", folder).pipeline(shown, clicked, str(tmp_path)))
    found = rows_of(
        spark, tmp_path / "pairs", "ad", "site", "coalesce(date_format(clicked, 'HH:mm:ss'), '-')"
    )
    assert found[:2] == [("a", "news", "-"), ("b", "blog", "12:00:40")]


@pytest.mark.proof
@pytest.mark.postgres
@both
def test_top_five(spark: SparkSession, tmp_path: Path, server: Server, folder: str) -> None:
    products = [(name, at(f"12:{number:02}:00"), 10 - number) for number, name in enumerate("abcdefg")]
    sales = source(
        spark, tmp_path / "in", "product string, at timestamp, pieces int",
        products,
        [("g", at("12:30:00"), 20)],  # the last becomes the first
    )  # fmt: skip
    database = server.create_database(f"best_{folder.replace('/', '_')}")
    run(example("top_five", folder).pipeline(sales, database, str(tmp_path / "checkpoint")))
    expected = [("g", 24), ("a", 10), ("b", 9), ("c", 8), ("d", 7)]
    with psycopg.connect(database) as connection:
        if folder:
            found = connection.execute(
                "SELECT product, pieces FROM best_sellers ORDER BY pieces DESC"
            ).fetchall()
        else:
            (ranks,) = connection.execute("SELECT best FROM best_sellers").fetchone() or ([],)
            found = [(rank["key"], rank["value"]) for rank in ranks]
    assert found == expected, "the hour is not over"


async def rate(currency: str) -> float:
    return {"USD": 0.5, "GBP": 1.5}[currency]


@pytest.mark.proof
@both
def test_async_calls_then_windows(spark: SparkSession, tmp_path: Path, folder: str) -> None:
    payments = source(
        spark, tmp_path / "in", "shop string, at timestamp, amount double, currency string",
        [("x", at("12:00:05"), 10.0, "USD"), ("y", at("12:00:20"), 20.0, "GBP")],
        [("x", at("12:00:30"), 4.0, "GBP")],
        [("y", at("12:02:00"), 1.0, "USD")],
    )  # fmt: skip
    run(example("async_windows", folder).pipeline(payments, rate, str(tmp_path)))
    assert rows_of(spark, tmp_path / "totals", "shop", "euros") == [("x", 11.0), ("y", 30.0)]


PRICES = [
    ("tea", "2024-05-01 00:00:00", 3.0),
    ("tea", "2024-05-02 00:00:00", 4.0),
    ("oil", "2024-05-02 00:00:00", 9.0),
]
ORDERS = [("tea", at("10:00:00"), 1), ("oil", at("11:00:00"), 2), ("tea", at("10:00:00", 2), 5)]


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    path = tmp_path / "prices.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE prices (product TEXT, valid_from TIMESTAMP, price DOUBLE)")
        connection.executemany("INSERT INTO prices VALUES (?, ?, ?)", PRICES)
    return path


@pytest.mark.proof
def test_the_nightly_load_feeds_the_join(
    spark: SparkSession, tmp_path: Path, prices: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = f"sqlite:///{tmp_path}/streams.db"
    monkeypatch.setenv("PRICES_DATABASE", f"sqlite:///{prices}")
    monkeypatch.setenv("SLACKWATER_STORE", store)
    job = load_job(EXAMPLES / "nightly_prices.yaml")
    with sw.Streams.open(store, create=True) as streams:
        with open_store(store) as ledger:
            report = run_job(job, ledger, Extraction(job, spark), now=instant("2024-05-03T01:00:00Z"))
        assert report.succeeded
        # a controller makes a mark of the stream
        CycleRunner(streams.store, clock=lambda: wall_clock() + HOUR).run(streams.get("shop/prices").id)
    last = ("tea", at("10:00:00", 3), 7)  # waits: the prices of this day are not loaded yet
    orders = source(spark, tmp_path / "in", "product string, at timestamp, pieces int", [*ORDERS, last])
    run(example("nightly_join").pipeline(orders, store, str(tmp_path)))
    assert priced(spark, tmp_path) == [("oil", 2, None), ("tea", 1, 3.0), ("tea", 5, 4.0)]


@pytest.mark.proof
def test_the_nightly_load_feeds_the_join_of_spark(spark: SparkSession, tmp_path: Path, prices: Path) -> None:
    module = example("nightly_join", "peers/spark")
    module.load(spark, str(prices), str(tmp_path), "2024-05-02")
    module.load(spark, str(prices), str(tmp_path), "2024-05-03")
    run(
        module.pipeline(
            source(spark, tmp_path / "in", "product string, at timestamp, pieces int", ORDERS), str(tmp_path)
        )
    )
    assert priced(spark, tmp_path) == [("oil", 2, None), ("tea", 1, 3.0), ("tea", 5, 4.0)]


def priced(spark: SparkSession, folder: Path) -> list[tuple[Any, ...]]:
    return rows_of(spark, folder / "priced", "product", "pieces", "price")


def test_times_of_the_expected_rows_are_in_utc() -> None:
    assert moment("12:00:00") == datetime(2024, 5, 1, 12, tzinfo=UTC)
