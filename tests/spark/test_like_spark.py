"""`lag(…, like_spark=True)` drops the same rows as Spark's ``withWatermark`` with the same delay."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

import slackwater as sw
from slackwater.errors import InvalidArgument
from slackwater.time import SECOND
from tests.spark.running import Batch, collector, run_available, write

pytestmark = pytest.mark.spark

FILES = 5
Counts = Counter[tuple[int, str]]
"""Accepted rows by the start of their window and their key."""


def arrivals() -> list[list[tuple[str, int, int]]]:
    """Rows a second apart, up to 40 seconds out of order, in files of 20."""
    rng = random.Random(7)
    rows = [(rng.choice("ab"), max(at - rng.choice((0, 3, 9, 20, 40)), 0), 1) for at in range(20 * FILES)]
    return [rows[first : first + 20] for first in range(0, len(rows), 20)]


def read(spark: SparkSession, folder: Path) -> DataFrame:
    schema = spark.read.parquet(str(folder)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def native(df: DataFrame, folder: Path) -> Counts:
    counts = (
        df.withWatermark("at", "5 seconds").groupBy(F.window("at", "10 seconds"), "key").count()
    ).select(F.unix_seconds("window.start").alias("start"), "key", "count")
    batches: dict[int, Any] = {}
    query = (
        counts.writeStream.foreachBatch(collector(batches))
        .outputMode("update")
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    latest: Counts = Counter()
    for _, rows in sorted(batches.items()):
        latest.update({(row.start, row.key): row["count"] - latest[row.start, row.key] for row in rows})
    return latest


def slackwater(df: DataFrame, folder: Path, *, like_spark: bool) -> Counts:
    clock = sw.Ticks(tuple(number * SECOND for number in range(FILES + 1)))
    policy = sw.lag("5 seconds", like_spark=like_spark)
    panes = (
        sw.stream(df, event_time="at", watermark=policy, clock=clock)
        .key_by("key")
        .window(sw.tumbling("10 seconds"))
        .agg(count=sw.count())
    )
    batches: dict[int, Any] = {}
    rows = panes.to_df(flush=True, flat=True).withColumn("start", F.unix_seconds("window_start"))
    run_available(rows, folder, collector(batches))
    return Counter({(row.start, row.key): row["count"] for rows in batches.values() for row in rows})


@pytest.mark.proof
def test_the_same_rows_are_dropped_as_with_native_watermarks(spark: SparkSession, tmp_path: Path) -> None:
    for number, rows in enumerate(arrivals()):
        write(tmp_path / "in", number, Batch(rows, 0, None))
    expected = native(read(spark, tmp_path / "in"), tmp_path / "native")
    alike = slackwater(read(spark, tmp_path / "in"), tmp_path / "alike", like_spark=True)
    plain = slackwater(read(spark, tmp_path / "in"), tmp_path / "plain", like_spark=False)
    assert alike == expected
    # Both have dropped rows, and the usual lag, which counts every row at once, has dropped more.
    assert plain.total() < expected.total() < 20 * FILES


def test_an_origin_cannot_be_like_spark(spark: SparkSession) -> None:
    df = spark.sql("select timestamp_seconds(id) as at, 'a' as device from range(1)")
    with pytest.raises(InvalidArgument, match=r"origin = 'device': cannot be combined with lag\(…, like_sp"):
        sw.stream(df, event_time="at", watermark=sw.lag("5 seconds", like_spark=True), origin="device")
