"""The same pipeline function on Spark and in a `TestStream`: equal rows in every micro-batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import slackwater as sw
from slackwater.testing import TestStream
from slackwater.time import SECOND
from tests.spark.running import Batch, run_available, write

pytestmark = pytest.mark.spark

BATCHES: Sequence[Sequence[tuple[str, int, int]]] = (
    [("a", 1, 1), ("b", 2, 2), ("b", 2, 5)],
    [("a", 3, 4), ("c", 4, 0)],
    [("b", 14, 8), ("a", 2, 3)],
    [("c", 35, 16), ("a", 1, 9)],
)
CLOCK = sw.Ticks(tuple(number * SECOND for number in range(len(BATCHES) + 1)))


def chain(rows: Any) -> Any:
    """Windows with early panes and retractions, a filter, and windows that inherit the trigger."""
    sums = (
        sw.stream(rows, event_time="at", watermark=sw.lag("1 second"), clock=CLOCK)
        .filter("value > 0")
        .with_columns(twice="value * 2")
        .key_by("key")
        .window(sw.sliding("10 seconds", every="5 seconds"))
        .trigger(sw.after_watermark(early=sw.every(count=1), late=sw.every(count=1)))
        .allowed_lateness("5 seconds")
        .accumulating_and_retracting()
        .agg(total=sw.sum("twice"), best=sw.max_by("value", by="twice"))
    )
    return sums.window(sw.fixed("20 seconds")).agg(panes=sw.count("*"), total=sw.sum("total"))


def joined(rows: Any) -> Any:
    """Sessions joined with rows without duplicates."""

    async def named(row: dict[str, Any]) -> dict[str, Any]:
        return {"key": row["key"], "name": f"{row['key']}{row['value']}"}

    stream = sw.stream(rows, event_time="at", watermark=sw.lag("1 second"), clock=CLOCK)
    sessions = stream.key_by("key").window(sw.sessions("5 seconds")).agg(total=sw.sum("value"))
    unique = stream.deduplicate(on=["key"], within="3 seconds").map_async(named, "key string, name string")
    return unique.join(sessions, on=["key"], before="0 seconds", after="20 seconds", how="leftOuter")


def on_spark(spark: SparkSession, folder: Path, function: Callable[[Any], Any]) -> list[pl.DataFrame]:
    for number, rows in enumerate(BATCHES):
        write(folder / "in", number, Batch(rows, 0, None))
    schema = spark.read.parquet(str(folder / "in")).drop("origin").schema
    df = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    found: dict[int, pa.Table] = {}

    def collect(frame: DataFrame, number: int) -> None:
        found[number] = frame.toArrow()

    run_available(function(df).to_df(flush=True), folder / "checkpoint", collect)
    return [pl.DataFrame(found[number]) for number in sorted(found)]


def in_process(function: Callable[[Any], Any]) -> list[pl.DataFrame]:
    stream = TestStream()
    for number, rows in enumerate(BATCHES):
        frame = pl.DataFrame(rows, schema=["key", "at", "value"], orient="row")
        stream = stream.add(frame.with_columns(pl.col("at") * SECOND), at=number * SECOND)
    return [step.rows for step in stream.end(at=len(BATCHES) * SECOND).run(function).steps]


@pytest.mark.parametrize("function", [chain, pytest.param(joined, marks=pytest.mark.proof)])
def test_a_function_gives_the_same_rows_on_spark_and_in_process(
    spark: SparkSession, tmp_path: Path, function: Callable[[Any], Any]
) -> None:
    here, there = in_process(function), on_spark(spark, tmp_path, function)
    assert [_plain(frame) for frame in here] == [_plain(frame) for frame in there]
    assert any(frame.height for frame in here)


def _plain(frame: pl.DataFrame) -> list[str]:
    """Rows in a fixed order; the order within a micro-batch depends on the hash of keys."""
    in_utc = frame.with_columns(pl.selectors.datetime().dt.convert_time_zone("UTC"))
    return sorted(repr(in_utc.columns) + repr(row) for row in in_utc.rows())
