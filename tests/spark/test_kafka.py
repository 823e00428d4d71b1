"""Streams of Kafka records, from files with the columns of Spark's Kafka source."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Row as SparkRow
from pyspark.sql import functions as sql

from slackwater import windows
from slackwater.errors import InvalidArgument
from slackwater.progress.watermark_policies import lag
from slackwater.spark.api.kafka import from_kafka
from slackwater.spark.api.stream import Stream
from slackwater.spark.monitor.reports import why
from slackwater.spark.wire.clock_source import Ticks
from slackwater.sql.database import database_url, temporary_engine
from slackwater.time import SECOND
from tests.spark.running import collector, put_in_order, run_available

pytestmark = pytest.mark.spark

RECORD = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
    ]
)
BID = "auction string, price long, at timestamp"


def bid(auction: str, price: int, second: int | None) -> str:
    at = None if second is None else f"2024-01-01T00:{second // 60:02}:{second % 60:02}Z"
    return json.dumps({"auction": auction, "price": price, "at": at})


def write(folder: Path, number: int, records: Sequence[tuple[int, int, str | None]]) -> None:
    """Write a file of records (partition, offset, value) of the topic ``bids``."""
    rows = [
        {
            "value": None if value is None else value.encode(),
            "topic": "bids",
            "partition": partition,
            "offset": offset,
            "timestamp": 1_704_067_200 * SECOND,
            "timestampType": 0,
        }
        for partition, offset, value in records
    ]
    folder.mkdir(exist_ok=True)
    path = folder / f"{number}.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=RECORD), path)
    put_in_order(path, number)


def read(spark: SparkSession, folder: Path) -> DataFrame:
    schema = spark.read.parquet(str(folder)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def bids_of(df: DataFrame, **options: Any) -> Stream:
    return from_kafka(df, value=BID, event_time="at", watermark=lag("0 seconds"), **options)


def located(rows: Sequence[SparkRow]) -> set[tuple[Any, ...]]:
    return {
        (row.invalid_topic, row.invalid_partition, row.invalid_offset, row.invalid_reason)
        for row in rows
        if (row.pane.kind if "pane" in row else row.kind) == "invalid"
    }


BAD = {
    ("bids", 0, 1, "the value cannot be parsed"),
    ("bids", 0, 2, "the value is null"),
    ("bids", 1, 8, "the event time is null"),
    ("bids", 1, 9, "the value cannot be parsed"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two partitions, one far behind the other, and four bad records."""
    folder = tmp_path_factory.mktemp("kafka") / "in"
    write(folder, 0, [(0, 0, bid("a", 1, 50)), (0, 1, '{"auction": "a", "pri'), (1, 7, bid("a", 2, 3))])
    write(folder, 1, [(0, 2, None), (1, 8, bid("b", 3, None)), (1, 9, '{"auction": "b", "price": "x"}')])
    write(folder, 2, [(0, 3, bid("a", 4, 70)), (1, 10, bid("a", 5, 12)), (1, 11, bid("b", 6, 40))])
    return folder


def test_partitions_are_origins_and_bad_records_are_located(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    bids = bids_of(read(spark, folder), clock=Ticks(tuple(n * SECOND for n in (1, 2, 3, 4))))
    panes = (
        bids.key_by("auction")
        .window(windows.fixed("10 seconds"))
        .agg(total=windows.sum("price"), invalid="emit")
    )
    collected: dict[int, list[SparkRow]] = {}
    query = run_available(panes.to_df(flush=True), tmp_path / "checkpoint", collector(collected))
    rows = [row for number in sorted(collected) for row in collected[number]]
    assert located(rows) == BAD
    panes_found = {
        (row.auction, row.window.start.minute * 60 + row.window.start.second, row.total)
        for row in rows
        if row.pane.kind == "pane"
    }
    # the lagging partition loses no row
    assert panes_found == {("a", 0, 2), ("a", 10, 5), ("b", 40, 6), ("a", 50, 1), ("a", 70, 4)}
    report = why(query).operators[-1]
    assert report.totals["invalid"] == 4
    assert {origin.name for origin in report.origins.listed} == {"bids-0", "bids-1"}


def test_bad_records_pass_filters_and_async_functions(spark: SparkSession, folder: Path) -> None:
    async def doubled(row: dict[str, Any]) -> dict[str, Any]:
        assert row["auction"] is not None, "called for a record that cannot be parsed"
        return {"auction": row["auction"], "price": row["price"] * 2}

    bids = bids_of(spark.read.parquet(str(folder))).filter("price > 1")
    mapped = bids.map_async(doubled, "auction string, price long")
    panes = mapped.key_by("auction").window(windows.fixed("1 minute"))
    rows = panes.agg(total=windows.sum("price"), invalid="emit").to_df().collect()
    assert located(rows) == BAD
    assert sorted((row.auction, row.total) for row in rows if row.pane.kind == "pane") == [
        ("a", 8),
        ("a", 14),
        ("b", 12),
    ]


@pytest.mark.proof
def test_joins_and_cogroups_locate_bad_records(spark: SparkSession, folder: Path) -> None:
    left = bids_of(spark.read.parquet(str(folder))).select("auction", "price").key_by("auction")
    right = bids_of(spark.read.parquet(str(folder))).select("auction", "kafka_offset").key_by("auction")
    joined = (
        left.join(right, on=["auction"], before="0 seconds", after="0 seconds", invalid="emit")
        .to_df()
        .collect()
    )
    assert located(joined) == BAD
    assert sorted(row.price for row in joined if row.kind == "row") == [1, 2, 4, 5, 6]
    grouped = left.window(windows.fixed("1 minute")).cogroup(
        right, left=["price"], right=["kafka_offset"], invalid="emit"
    )
    assert located(grouped.to_df().collect()) == BAD


def test_counted_bad_records_add_no_columns(spark: SparkSession, folder: Path) -> None:
    bids = bids_of(spark.read.parquet(str(folder)))
    panes = bids.window(windows.fixed("1 day")).agg(total=windows.sum("price"))
    assert panes.schema.names == ["window", "total", "pane"]
    assert [row.total for row in panes.to_df().collect()] == [18]


def test_an_upsert_leaves_out_the_columns_of_bad_records(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    bids = bids_of(spark.read.parquet(str(folder)))
    panes = bids.key_by("auction").window(windows.fixed("1 day"))
    url = f"sqlite:///{tmp_path}/bids.db"
    panes.agg(total=windows.sum("price"), invalid="emit").upsert_once(url, "totals", create=True)
    with temporary_engine(database_url(url)) as engine, engine.connect() as connection:
        found = connection.exec_driver_sql("SELECT * FROM totals ORDER BY auction").mappings().all()
    assert [(row["auction"], row["total"]) for row in found] == [("a", 12), ("b", 6)]
    assert not [name for name in found[0] if name.startswith("invalid")]


def test_the_timestamp_of_the_record_is_the_default_event_time(spark: SparkSession, folder: Path) -> None:
    bids = from_kafka(spark.read.parquet(str(folder)), value=BID, watermark=lag("0 seconds"))
    panes = bids.window(windows.fixed("10 seconds")).agg(total=windows.sum("price"), invalid="emit")
    rows = panes.to_df().collect()
    # a record without a value of its own time is valid; those that cannot be parsed are not
    assert located(rows) == {one for one in BAD if one[3] != "the event time is null"}
    assert [row.total for row in rows if row.pane.kind == "pane"] == [21]


def test_values_of_another_format_are_parsed_by_an_expression(spark: SparkSession, folder: Path) -> None:
    parsed = sql.from_csv(
        sql.regexp_replace(sql.col("value").cast("string"), '[{}":a-z ]', ""), "x string, price long"
    )
    value = sql.when(sql.col("value").cast("string").endswith("}"), parsed)
    rows = from_kafka(spark.read.parquet(str(folder)), value=value, watermark=lag("0 seconds")).to_df()
    errors = {(row.kafka_partition, row.kafka_offset): row.kafka_error for row in rows.collect()}
    assert {at for at, error in errors.items() if error is not None} == {(0, 1), (0, 2)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"df": lambda df: df.drop("offset")},
            "timestampType; pass what format('kafka') returns, without a select",
        ),
        (
            {"df": lambda df: df.withColumn("offset", sql.col("offset").cast("string"))},
            "df = 'offset': is of type string, not bigint; pass what format('kafka') returns",
        ),
        (
            {"value": "kafka_key string"},
            "value = 'kafka_key': begins with kafka_, as the columns of the record do; pass an expression",
        ),
        (
            {"value": 5},
            'value = 5: is neither a StructType nor a DDL string; write value="rate double, currency string"',
        ),
        (
            {"event_time": "when"},
            "event_time = 'when': column not found; available: auction, price, at, kafka_key, ",
        ),
        (
            {"value": sql.col, "json_options": {}},
            "is of type binary, not a struct; write an expression such as ",
        ),
        (
            {"value": sql.col, "json_options": {"mode": "x"}},
            "json_options = {'mode': 'x'}: has no effect: value is an expression; pass a schema",
        ),
        ({"json_options": "mode"}, "json_options = 'mode': is not a dict; write "),
    ],
)
def test_invalid_arguments(spark: SparkSession, folder: Path, change: dict[str, Any], message: str) -> None:
    df = spark.read.parquet(str(folder))
    df = change.pop("df", lambda df: df)(df)
    if change.get("value") is sql.col:
        change["value"] = sql.col("value")
    arguments = {"value": BID, "event_time": "at", **change}
    with pytest.raises(InvalidArgument) as raised:
        from_kafka(df, watermark=lag("0 seconds"), **arguments)
    assert message in str(raised.value)


def test_the_columns_of_bad_records_must_be_free(spark: SparkSession, folder: Path) -> None:
    windowed = bids_of(spark.read.parquet(str(folder))).window(windows.fixed("1 day"))
    with pytest.raises(InvalidArgument, match="from_kafka = 'invalid_offset': is the name of a column that"):
        windowed.agg(invalid_offset=windows.count(), invalid="emit")
