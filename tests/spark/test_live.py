"""Running queries: batches by the clock alone, idle origins, and the reports of `why`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from slackwater import windows
from slackwater.errors import InvalidArgument
from slackwater.progress.watermark_policies import Lag, lag
from slackwater.spark.api.stream import stream
from slackwater.spark.monitor.reports import why
from slackwater.time import END_OF_TIME, SECOND
from tests.spark.running import (
    Batch,
    Scenario,
    as_stream,
    expected,
    of_kind,
    panes_of,
    until,
    write,
)
from tests.spark.scenarios import check
from tests.support.windowed import Options

pytestmark = pytest.mark.spark


def test_an_idle_origin_is_excluded_until_it_sends_again(spark: SparkSession, tmp_path: Path) -> None:
    """No rows for ten seconds, in batches of four: the slow origin holds the watermark until the third."""
    scenario = Scenario(
        Options(windows.Fixed(10 * SECOND)),
        [
            Batch([("a", 31, 1, "fast"), ("a", 2, 2, "slow")], now=100, watermark=2),
            Batch([("b", 32, 3, "fast")], now=104, watermark=2),
            Batch([("b", 41, 4, "fast")], now=108, watermark=2),
            Batch([("a", 45, 5, "fast")], now=110, watermark=45),
            Batch([("a", 47, 6, "slow"), ("b", 61, 7, "fast")], now=112, watermark=47),
            Batch([("b", 52, 8, "slow")], now=114, watermark=52),
        ],
        stream_options={"origin": "origin", "idle_after": "10 seconds"},
    )
    portions = [[batch] for batch in scenario.batches]
    check(as_stream(spark, scenario, tmp_path, portions, None), expected(scenario, portions), scenario)


@pytest.mark.proof
def test_an_idle_source_closes_its_windows_by_choice(spark: SparkSession, tmp_path: Path) -> None:
    scenario = Scenario(
        Options(windows.Fixed(10 * SECOND), idle="close"),
        [
            Batch([("a", 1, 1), ("a", 12, 2)], now=100, watermark=12),
            Batch([], now=105, watermark=12),
            Batch([], now=110, watermark=12, idle=True),
            Batch([("a", 15, 3), ("a", 21, 4)], now=112, watermark=21),
        ],
        stream_options={"idle_after": "10 seconds"},
    )
    portions = [[batch] for batch in scenario.batches]
    rows = as_stream(spark, scenario, tmp_path, portions, 3)
    check(rows, expected(scenario, portions), scenario)
    assert [pane.timing for pane in panes_of(rows[2], scenario.options)] == ["ON_TIME"]


@pytest.mark.proof
def test_a_slow_batch_and_a_restart_make_no_origin_idle(spark: SparkSession, tmp_path: Path) -> None:
    scenario = Scenario(
        Options(windows.Fixed(10 * SECOND)),
        [
            Batch([("a", 31, 1, "fast"), ("a", 2, 2, "slow")], now=100, watermark=2),
            Batch([("b", 52, 3, "fast")], now=500, watermark=2),
            Batch([("b", 61, 4, "fast")], now=9_000, watermark=2),
            Batch([("a", 5, 5, "slow")], now=9_001, watermark=5),
        ],
        stream_options={"origin": "origin", "idle_after": "10 seconds"},
    )
    portions = [[batch] for batch in scenario.batches]
    check(as_stream(spark, scenario, tmp_path, portions, 2), expected(scenario, portions), scenario)


@pytest.mark.proof
def test_one_row_from_the_future_does_not_advance_the_watermark(spark: SparkSession, tmp_path: Path) -> None:
    scenario = Scenario(
        Options(windows.Fixed(10 * SECOND)),
        [
            Batch([("a", 101, 1), ("b", 99_999, 2), ("a", 95, 3)], now=100, watermark=101),
            Batch([("a", 97, 4), ("b", 120, 5), ("a", 113, 6)], now=110, watermark=120),
        ],
        Lag(0),
        stream_options={"max_ahead": "10 seconds"},
    )
    portions = [[batch] for batch in scenario.batches]
    check(as_stream(spark, scenario, tmp_path, portions, None), expected(scenario, portions), scenario)


def test_the_clock_fires_panes_without_new_rows(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After one file the early pane comes by the clock alone, and `why` names the missing origin.

    The row without a time is reported in the log.
    """
    write(tmp_path / "in", 0, Batch([("a", 1, 5, "x"), ("a", None, 6, "x")], 0, None))
    schema = spark.read.parquet(str(tmp_path / "in")).schema
    df = spark.readStream.schema(schema).parquet(str(tmp_path / "in"))
    options = Options(windows.Fixed(10 * SECOND))
    panes = (
        stream(df, event_time="at", watermark=lag("5 seconds"), origin="origin", clock="100 milliseconds")
        .key_by("key")
        .window(options.window)
        .trigger(
            windows.after_watermark(early=windows.every(duration="1 second"), late=windows.every(count=1))
        )
        .agg(count=windows.count(), sum=windows.sum("value"), collect=windows.collect("value"))
    )
    rows: list[Any] = []

    def collect(frame: DataFrame, number: int) -> None:
        rows.extend(frame.collect())

    query = (
        panes.to_df()
        .writeStream.foreachBatch(collect)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="0 seconds")
        .start()
    )
    try:
        until(lambda: bool(rows))
        said = why(query)
        until(lambda: "1 row was left out of the results so far, because they have no usable" in caplog.text)
    finally:
        query.stop()
        query.awaitTermination()
    (pane,) = panes_of(rows, options)
    assert (pane.timing, pane.values) == ("EARLY", {"count": 1, "sum": 5, "collect": [5]})
    assert not of_kind(rows, "invalid")
    (report,) = said.operators
    assert report.watermark == -4 * SECOND
    assert report.slowest.held_by == "partition 'x'"
    assert report.open_windows == 1
    assert report.totals == {
        "early": report.totals["early"], "on_time": 0, "late": 0, "retractions": 0,
        "dropped_late": 0, "dropped_closed": 0, "dropped_duplicate": 0, "invalid": 1, "ahead": 0,
        "duplicates": 0, "expired_keys": 0, "fallbacks": 0, "failed": 0,
    }  # fmt: skip
    assert said.state_bytes > 0
    assert report.lag is not None
    assert "held back by partition 'x'" in str(said)

    writer = panes.to_df(flush=True).writeStream.foreachBatch(collect)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    ended = writer.trigger(availableNow=True).start()
    ended.awaitTermination()
    assert panes_of(rows, options)[-1].timing == "ON_TIME"
    (last,) = why(ended).operators
    assert last.watermark == END_OF_TIME
    assert last.slowest.ended
    assert last.open_windows == 0
    assert last.totals["on_time"] == 1


def test_why_raises_for_a_query_without_operators(spark: SparkSession, tmp_path: Path) -> None:
    query = (
        spark.readStream.format("rate").load()
        .writeStream.format("noop").option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    with pytest.raises(InvalidArgument, match="has not reported anything yet"):
        why(query)
