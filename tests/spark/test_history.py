"""`sw.history`: stored rows before live rows, and a day that is read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

import slackwater as sw
from slackwater.errors import InvalidArgument, InvalidInstant
from slackwater.spark.api.panes import Panes
from slackwater.spark.wire.clock_source import Ticks
from slackwater.time import SECOND
from tests.spark.running import Batch, collector, run_available, write

pytestmark = pytest.mark.spark

SCHEMA = "key string, at timestamp, value long, origin string"
LAG = sw.lag("5 seconds")


def stored(spark: SparkSession, folder: Path, **options: Any) -> DataFrame:
    return spark.readStream.schema(SCHEMA).options(**options).parquet(str(folder))


def counts(live: DataFrame, history: Any, *, ticks: int = 3, **options: Any) -> Panes:
    clock = Ticks(tuple(SECOND * number for number in range(1, ticks + 1)))
    rows = sw.stream(live, event_time="at", watermark=LAG, history=history, clock=clock, **options)
    return rows.key_by("key").window(sw.fixed("10 seconds")).agg(count=sw.count(), sum=sw.sum("value"))


@pytest.mark.proof
def test_every_row_comes_from_one_side_of_the_seam(spark: SparkSession, tmp_path: Path) -> None:
    # later rows first: no row of the first batch is late
    write(tmp_path / "archive", 0, Batch([("a", 35, 1), ("a", 41, 900)], 0, None))
    write(tmp_path / "archive", 1, Batch([("a", 2, 4), ("b", None, 5)], 0, None))
    write(tmp_path / "live", 0, Batch([("a", 39, 800), ("a", 40, 8)], 0, None))
    write(tmp_path / "live", 1, Batch([("a", 47, 16), ("a", 62, 32)], 0, None))
    history = sw.history(stored(spark, tmp_path / "archive"), until="1970-01-01T00:00:40Z")
    live = stored(spark, tmp_path / "live", maxFilesPerTrigger=1)
    collected: dict[int, list[Any]] = {}
    query = run_available(
        counts(live, history).to_df(flush=True), tmp_path / "checkpoint", collector(collected)
    )
    found = [(batch, row.window.start.second, row["sum"]) for batch in collected for row in collected[batch]]
    assert sorted(found) == [(0, 0, 4), (1, 30, 1), (1, 40, 24), (2, 0, 32)]
    assert sw.why(query).operators[-1].totals["invalid"] == 1

    other = sw.history(stored(spark, tmp_path / "archive"), until="1970-01-01T00:00:41Z")
    with pytest.raises(Exception, match="is not 40000000, the end of the history in the checkpoint"):
        run_available(counts(live, other, ticks=4).to_df(), tmp_path / "checkpoint", collector(collected))


@pytest.mark.proof
def test_the_seam_can_be_another_column(spark: SparkSession, tmp_path: Path) -> None:
    # a late row that was stored after the archive was made comes from the live source
    archive = spark.sql(
        "select 'a' as key, timestamp_seconds(at) as at, value, stored from values "
        "(1, 1L, 100L), (12, 2L, 101L), (13, 900L, 103L), (3, 4L, null) t(at, value, stored)"
    )
    live = spark.sql(
        "select 'a' as key, timestamp_seconds(at) as at, value, stored from values "
        "(12, 800L, 101L), (5, 8L, 102L), (13, 16L, 103L), (4, 700L, null) t(at, value, stored)"
    )
    rows = sw.stream(
        live, event_time="at", watermark=LAG, history=sw.history(archive, until=102, seam="stored")
    )
    panes = rows.window(sw.fixed("10 seconds")).agg(sum=sw.sum("value")).to_df().orderBy("window")
    assert [row["sum"] for row in panes.collect()] == [1 + 4 + 8, 2 + 16]


@pytest.mark.proof
def test_records_of_kafka_have_a_history(spark: SparkSession) -> None:
    def records(*rows: tuple[int, int, int]) -> DataFrame:
        values = ", ".join(f"({offset}L, {second}, {price})" for offset, second, price in rows)
        return spark.sql(f"""
            select cast(null as binary) as key, cast(concat('{{"price": ', price, '}}') as binary) as value,
                'bids' as topic, 0 as partition, offset, timestamp_seconds(second) as timestamp
            from values {values} as (offset, second, price)
        """)  # noqa: S608 - the values of this test

    bids = sw.from_kafka(
        records((2, 15, 2), (3, 21, 4)),
        value="price long",
        watermark=LAG,
        history=sw.history(records((1, 3, 1), (2, 15, 2), (3, 21, 4)), until="1970-01-01T00:00:20Z"),
    )
    panes = bids.window(sw.fixed("10 seconds")).agg(sum=sw.sum("price")).to_df().orderBy("window")
    assert [row["sum"] for row in panes.collect()] == [1, 2, 4]


def test_invalid_arguments(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("archive", "live"):
        write(tmp_path / name, 0, Batch([("a", 5, 1)], 0, None))
    live, archive = stored(spark, tmp_path / "live"), stored(spark, tmp_path / "archive")
    until = "1970-01-01T00:00:40Z"
    batch = spark.read.parquet(str(tmp_path / "archive"))
    limited = stored(spark, tmp_path / "archive", maxFilesPerTrigger=1)
    cases: list[tuple[Any, str]] = [
        (archive, "is not the result of sw.history"),
        (
            sw.history(batch, until=until),
            "history = 'a batch DataFrame': cannot be combined with live rows that",
        ),
        (
            sw.history(limited, until=until),
            "history = \"maxFilesPerTrigger = '1'\": limits what a micro-batch",
        ),
        (
            sw.history(archive.drop("value"), until=until),
            "history = 'value': column not found in the history",
        ),
        (
            sw.history(archive.withColumn("extra", sql.lit(1)), until=until),
            "history = 'extra': column not found in the live rows",
        ),
        (
            sw.history(archive.withColumn("value", sql.col("value").cast("int")), until=until),
            "history = 'value': is of type int in the history, and bigint in the live rows",
        ),
        (sw.history(archive, until=until, seam="stored"), "seam = 'stored': column not found"),
        (
            sw.history(archive, until=until, seam="origin"),
            "is of type string, neither a timestamp nor an int",
        ),
        (sw.history(archive, until=until, seam="value"), "is not an integer, as the column value is"),
        (sw.history(archive, until=until, seam=3), "is neither a column nor a column name"),  # type: ignore[arg-type]
    ]
    for history, message in cases:
        with pytest.raises(InvalidArgument, match=message):
            counts(live, history)
    with pytest.raises(InvalidArgument, match="df = 'archive': is not a DataFrame"):
        sw.history("archive", until=until)  # type: ignore[arg-type]
    given = sw.history(archive, until=until)
    with pytest.raises(InvalidArgument, match="cannot be combined with event_time=: all rows of the history"):
        sw.stream(live, event_time=sw.ingestion_time(), history=given)
    numbered = sw.headers(origin="origin", sequence="value", watermark="at")
    with pytest.raises(InvalidArgument, match="cannot be combined with headers=: producers do not number"):
        sw.stream(live, event_time="at", headers=numbered, history=given)


def test_an_invalid_time_is_found_where_it_is_written(spark: SparkSession) -> None:
    with pytest.raises(InvalidInstant, match="until = 'noon'"):
        sw.history(spark.range(1), until="noon")
