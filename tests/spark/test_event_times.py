"""Several event times in one stream: a watermark for each, one of which drives the windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from slackwater import windows
from slackwater.errors import InvalidArgument
from slackwater.progress.watermark_policies import Lag, lag
from slackwater.spark.api.stream import Stream, stream
from slackwater.spark.monitor.reports import OperatorReport, reported
from slackwater.spark.runtime.keyed_progress import TimesProgress, TimesRules
from slackwater.spark.runtime.operator_inputs import Inputs, ProgressHeaders
from slackwater.spark.runtime.source_progress import SourceRules
from slackwater.spark.wire.buffers import Observation, Peak
from slackwater.spark.wire.clock_source import Ticks
from slackwater.time import SECOND
from tests.spark.running import SCHEMA, Batch, Scenario, as_batch, as_stream, expected, of_kind, write
from tests.spark.scenarios import check, invalid
from tests.support.sampling import sampled
from tests.support.windowed import Options

TWO_TIMES = pa.schema([*SCHEMA, ("shipped", pa.timestamp("us", "UTC"))])


@dataclass(frozen=True)
class Shipped(Scenario):
    """Orders by the time of their shipment; rows are (key, ordered, value, origin, shipped)."""

    schema: pa.Schema = TWO_TIMES

    def stream(self, df: DataFrame, times: Sequence[int]) -> Stream:
        event_times = {"at": Lag(5 * SECOND), "shipped": Lag(2 * SECOND)}
        made = stream(df, event_times=event_times, origin="origin", clock=Ticks(tuple(times)))
        return made.by("shipped")


def shipped(rows: list[tuple[Any, ...]], now: int, watermark: int | None) -> Batch:
    """The windows see the second of shipment as the event time."""
    return Batch(rows, now, watermark, [(row[0], row[4], row[2]) for row in rows])


SCENARIO = Shipped(
    Options(windows.Fixed(10 * SECOND), allowed_lateness=5 * SECOND),
    [
        shipped([("a", 1, 1, "east", 31), ("b", 2, 2, "west", 12), ("a", 0, 3, "west", None)], 1000, 10),
        shipped([("a", 50, 4, "east", 35), ("b", 51, 5, "west", 27)], 1010, 25),
        shipped([("c", 60, 6, "west", 8), ("b", 61, 7, "west", 38), ("c", None, 8, "east", 44)], 1020, 36),
    ],
)


@pytest.mark.spark
def test_windows_by_one_of_several_times_as_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    rows = as_batch(spark, SCENARIO, tmp_path)
    check(rows, expected(SCENARIO, [SCENARIO.batches], bounded=True), SCENARIO)
    assert of_kind(rows[0], "invalid") == invalid(SCENARIO.batches)


@pytest.mark.spark
@pytest.mark.parametrize("restart_after", sampled([None, 2], keep=[2]))
def test_windows_by_one_of_several_times_in_micro_batches(
    spark: SparkSession, tmp_path: Path, restart_after: int | None
) -> None:
    portions = [[batch] for batch in SCENARIO.batches]
    rows = as_stream(spark, SCENARIO, tmp_path, portions, restart_after)
    check(rows, expected(SCENARIO, portions), SCENARIO)


@pytest.mark.spark
@pytest.mark.proof
def test_windows_by_one_of_several_times_in_one_micro_batch(spark: SparkSession, tmp_path: Path) -> None:
    portions = [SCENARIO.batches]
    check(as_stream(spark, SCENARIO, tmp_path, portions, None), expected(SCENARIO, portions), SCENARIO)


@pytest.mark.spark
def test_every_key_is_reported_and_the_driving_one_is_passed_on(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", 0, SCENARIO.batches[0], TWO_TIMES)
    schema = spark.read.parquet(str(tmp_path / "in")).schema
    df = spark.readStream.schema(schema).parquet(str(tmp_path / "in"))
    made = SCENARIO.stream(df, [1000])
    panes = made.window(windows.fixed("10 seconds"), by="shipped").agg(n=windows.count())
    query = (
        panes.agg(panes=windows.count())
        .to_df()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    report = reported(query.recentProgress[-1])
    assert report is not None
    last, first = report.operators
    assert {key: report.watermark for key, report in first.keys.items()} == {
        "at": -4 * SECOND,
        "shipped": 10 * SECOND,
    }
    assert first.keys["at"].held_by == "partition 'east'"
    assert first.watermark == 10 * SECOND
    assert "watermark of key 'at'" in str(first)
    assert last.watermark == 10 * SECOND, "the key that drove the windows is the one that goes on"
    assert last.keys == {}
    assert "of key 'shipped'" in last.slowest.why


@pytest.mark.spark
def test_invalid_event_times_raise(spark: SparkSession) -> None:
    df = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, timestamp'2024-01-01 00:00:09Z' as shipped")
    times = {"at": lag("5 seconds"), "shipped": lag("1 second")}
    one = stream(df, event_time="at", watermark=lag("1 second"))
    several = stream(df, event_times=times)
    refused: list[tuple[Any, str]] = [
        (lambda: stream(df), "event_time = None: is missing"),
        (
            lambda: stream(df, event_time="at", event_times=times),
            "event_time = 'at': cannot be combined with event_t",
        ),
        (
            lambda: stream(df, event_times=times, watermark=lag("1 second")),
            "give each event time its own policy",
        ),
        (lambda: stream(df, event_times={}), "event_times = {}: is empty"),
        (lambda: stream(df, event_times={"day": lag("1 second")}), "event_times = 'day': column not found"),
        (lambda: stream(df, event_times={"at": "1 second"}), "is not a watermark policy"),  # type: ignore[dict-item]
        (lambda: several.window(windows.fixed("1 second"), by="day"), "by = 'day'.*use one of at, shipped"),
        (lambda: one.by("at"), "by = 'at': is not a watermark key of the input; use one of default"),
        (lambda: one.union(several), "is the watermark key of the other stream, but this stream has"),
        (
            lambda: several.union(several.by("shipped")),
            "is the watermark key of the other stream, but this stream has",
        ),
    ]
    for build, message in refused:
        with pytest.raises(InvalidArgument, match=message):
            build()
    assert several.watermark_key == "at", "the first drives unless another is chosen"


def keys(*names: str, **options: Any) -> TimesRules:
    return TimesRules(tuple(SourceRules(Lag(0), key=name, **options) for name in names), names[0])


def seen(origin: str, **times: int) -> list[Observation]:
    return [Observation(origin, [Peak(at, 1)], key) for key, at in times.items()]


def test_keys_do_not_influence_each_other() -> None:
    progress = TimesProgress(keys("order", "shipped"), now=0)
    progress.advance([*seen("a", order=5, shipped=50), *seen("b", order=7)], now=0)
    assert progress.watermarks == {"order": 5, "shipped": None}, "b has not shipped anything yet"
    progress.advance(seen("b", shipped=30), now=1)
    assert progress.watermarks == {"order": 5, "shipped": 30}


def test_an_origin_with_one_of_the_times_is_idle_for_no_key() -> None:
    progress = TimesProgress(keys("order", "shipped", idle_after=10), now=0)
    progress.advance([*seen("a", order=5, shipped=6), *seen("b", order=7, shipped=8)], now=0)
    for now in (4, 8, 12):
        progress.advance([*seen("a", order=now), *seen("b", shipped=40 + now)], now=now)
    assert progress.watermarks == {"order": 7, "shipped": 6}
    for now in (16, 20, 24):
        progress.advance(seen("b", shipped=40 + now), now=now)
    assert progress.watermarks == {"order": 7, "shipped": 64}, "a is silent for both, b holds orders"


def test_times_from_the_future_are_counted_for_each_key() -> None:
    progress = TimesProgress(keys("order", "shipped", max_ahead=10), now=0)
    assert progress.advance([*seen("a", order=500, shipped=5), *seen("b", order=4, shipped=3)], now=0) == 1
    assert progress.watermarks == {"order": None, "shipped": 3}


def test_all_keys_survive_a_restart() -> None:
    rules = keys("order", "shipped")
    progress = TimesProgress(rules, now=0)
    progress.advance([*seen("a", order=5, shipped=50), *seen("b", order=7, shipped=60)], now=0)
    again = TimesProgress(rules, 0, progress.save())
    again.advance(seen("a", order=6), now=9, restarted=True)
    assert again.watermarks == {"order": 6, "shipped": 50}


def test_keys_of_several_inputs_are_coalesced_by_name() -> None:
    rules = keys("order", "shipped"), keys("order", "paid")
    inputs = Inputs(rules, now=0)
    first, second = seen("a", order=20, shipped=30), seen("b", order=10, paid=40)
    inputs.advance([ProgressHeaders(first), ProgressHeaders(second)], now=0)
    assert inputs.watermarks == {"order": 10, "shipped": None, "paid": None}
    assert inputs.why("paid").held_by == "input 0, which has no such key"
    assert inputs.why("order").held_by == "partition 'b'"
    again = Inputs(rules, 0, inputs.save())
    again.advance([ProgressHeaders(), ProgressHeaders(seen("b", order=15))], now=1)
    assert (again.watermark, again.watermarks["order"]) == (15, 15)


def test_a_report_shows_the_slowest_bucket_of_each_key() -> None:
    from slackwater.spark.monitor.reports import BucketReport, KeyReport

    def bucket(number: int, at: int | None) -> BucketReport:
        key_reports = (KeyReport("paid", at, f"paid is at {at}", None, None, "slowest"),)
        return BucketReport(number, 0, 5, "five", None, None, "slowest", 0, False, {}, key_reports)

    report = OperatorReport((bucket(0, 9), bucket(1, 7), bucket(2, 8)))
    assert report.keys["paid"].watermark == 7
    assert str(report).endswith("paid is at 7")
    assert OperatorReport((bucket(0, 9), bucket(1, None))).keys["paid"].watermark is None
