"""Telemetry of real queries: every batch, over restarts and failures, until it is closed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from slackwater.errors import InvalidArgument
from slackwater.spark.api.stream import stream
from slackwater.spark.monitor.reports import why
from slackwater.spark.monitor.telemetry import QueryHistory, Telemetry, telemetry
from slackwater.time import END_OF_TIME, SECOND
from slackwater.windows import count, fixed
from tests.spark.running import Batch, as_stream, until, write
from tests.spark.scenarios import SCENARIOS

pytestmark = pytest.mark.spark

BEHIND = SCENARIOS["two origins, one behind"]


def over(heard: Telemetry, count: int = 1) -> tuple[QueryHistory, ...]:
    """The histories after all queries have ended; the event of a batch arrives shortly after the batch."""
    until(lambda: len(heard.queries()) == count and not any(query.running for query in heard.queries()))
    return heard.queries()


def listeners(spark: SparkSession) -> int:
    """How many the JVM calls."""
    return len(spark._jsparkSession.streams().listListeners())


def test_every_batch_is_recorded_over_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    portions = [[batch] for batch in BEHIND.batches]
    with telemetry(spark) as heard, telemetry(spark, batches=2) as forgetful:
        as_stream(spark, BEHIND, tmp_path, portions, 2)
        # Two runs of one query, with one id.
        until(lambda: len(heard.queries()) == 1 and len(heard.queries()[0].batches) == len(portions) + 1)
        (history,) = over(heard)
        (short,) = over(forgetful)
    assert [batch.number for batch in history.batches] == [0, 1, 2, 3, 4]
    assert [batch.rows for batch in history.batches] == [len(batch.rows) for batch in BEHIND.batches] + [0]
    reports = [batch.report.operators[0] for batch in history.batches]
    wanted = [batch.watermark * SECOND for batch in BEHIND.batches if batch.watermark is not None]
    assert [report.watermark for report in reports] == [*wanted, END_OF_TIME]
    assert [report.slowest.held_by for report in reports] == ["partition 'slow'"] * 4 + [None]
    assert [report.slowest.reason for report in reports[:4]] == ["slowest"] * 4
    assert [report.lag for report in reports[:4]] == [
        (batch.now - batch.watermark) * SECOND for batch in BEHIND.batches if batch.watermark is not None
    ]
    assert reports[0].open_windows == 2
    panes = [report.totals["on_time"] for report in reports]
    assert panes == sorted(panes)
    assert panes[-1] > panes[0]
    assert all(len(report.buckets) == 2 for report in reports)
    assert all(batch.report.state_bytes > 0 and batch.duration > 0 for batch in history.batches)
    assert (history.running, history.error) == (False, None)
    assert short.batches == history.batches[-2:]
    assert heard.query(history.id) == history


@pytest.mark.proof
def test_a_failure_is_recorded_and_a_closed_listener_records_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(tmp_path / "in", 0, Batch([("a", 1, 5)], 0, None))
    schema = spark.read.parquet(str(tmp_path / "in")).schema
    df = spark.readStream.schema(schema).parquet(str(tmp_path / "in"))

    def run(frame: Any, name: str) -> Any:
        writer = frame.writeStream.format("noop").queryName(name).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / name)).start()
        if name == "broken":
            until(lambda: not query.isActive)
        else:
            query.awaitTermination()
        return query

    panes = (
        stream(df, event_time="at", watermark=BEHIND.policy)
        .window(fixed("10 seconds"))
        .agg(n=count())
        .to_df(flush=True)
    )
    already = listeners(spark)
    with telemetry(spark, queries=1) as few, telemetry(spark) as heard:
        run(panes.selectExpr("assert_true(n > 5, 'too few bids') as fine"), "broken")
        (broken,) = over(heard)
        assert (broken.name, broken.running) == ("broken", False)
        # The stream ends in a batch of its own: the batches before the one that failed are recorded.
        assert broken.last is not None
        assert {operator.totals["on_time"] for operator in broken.last.report.operators} == {0}
        assert broken.error is not None
        assert "\n" not in broken.error
        query = run(panes, "whole")
        over(heard, 2)
        last = heard.query(query).last
        assert last is not None
        assert last.report == why(query)
        assert heard.query("broken") == broken
        assert [one.name for one in over(few)] == ["whole"]
    before = heard.queries()
    with telemetry(spark) as later:
        run(df, "plain")
        assert [(one.name, one.last) for one in over(later)] == [("plain", None)]
    assert heard.queries() == before
    assert listeners(spark) == already
    heard.close()  # again, without harm


def test_invalid_arguments_raise(spark: SparkSession) -> None:
    with pytest.raises(InvalidArgument, match="batches = 0: must be at least 1"):
        telemetry(spark, batches=0)
    with (
        telemetry(spark) as heard,
        pytest.raises(
            InvalidArgument,
            match="query = 'bids': is unknown: no event of it was received; create the telemetry before",
        ),
    ):
        heard.query("bids")
