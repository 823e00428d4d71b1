"""Tests of the API over Spark Connect, which `test_connect` runs in a separate process.

A process that has a session of the other kind cannot have one of this, so pytest does not collect them by
itself. What runs on the server cannot reach a list here: results are read from files, tables and answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from slackwater import windows
from slackwater.errors import InvalidArgument
from slackwater.progress.watermark_policies import lag
from slackwater.spark.api.panes import Panes
from slackwater.spark.api.stream import stream
from slackwater.spark.monitor.reports import why
from slackwater.spark.monitor.telemetry import telemetry
from slackwater.spark.session import STATE_STORE, check_session, session
from slackwater.tables.table_address import append_table
from slackwater.time import END_OF_TIME, SECOND
from tests.spark.oracle import table_of, truth_of
from tests.spark.running import Batch, Scenario, as_batch, ended, expected, panes_of, until, write
from tests.spark.scenarios import SCENARIOS, check
from tests.tables.appended import current_results

# The client of Spark Connect closes its channel under the thread that hears of queries, which may warn then.
pytestmark = pytest.mark.filterwarnings("ignore:StreamingQueryListenerBus Handler thread:UserWarning")

RETRACTING = SCENARIOS["early, on time, late, retracting"]
BEHIND = SCENARIOS["two origins, one behind"]
FIXED = SCENARIOS["fixed"]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    spark = session(
        "slackwater over Connect",
        remote="local[2]",
        partitions=2,
        config={
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.session.timeZone": "UTC",
            "spark.connect.grpc.binding.address": "127.0.0.1",
        },
    )
    assert type(spark).__module__.startswith("pyspark.sql.connect")
    yield spark
    spark.stop()


def streamed(spark: SparkSession, scenario: Scenario, folder: Path, until: int) -> Panes:
    """The panes of the first files, one micro-batch each, and of the end after the last file."""
    for number in range(until):
        if not (folder / "in" / f"{number:05}.parquet").exists():
            write(folder / "in", number, scenario.batches[number])
    times = [batch.now * SECOND for batch in scenario.batches[:until]]
    if until == len(scenario.batches):
        times.append(times[-1] + SECOND)
    schema = spark.read.parquet(str(folder / "in")).schema
    rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    return scenario.build(rows, times)


def run(writer: Any, folder: Path) -> Any:
    return ended(writer.option("checkpointLocation", str(folder / "checkpoint")))


def test_a_stream_into_files_over_a_restart_and_what_is_heard_of_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = str(tmp_path / "out")

    def run_until(batches: int) -> Any:
        panes = streamed(spark, BEHIND, tmp_path, batches).to_df(flush=batches == len(BEHIND.batches))
        return run(panes.writeStream.format("parquet").option("path", sink), tmp_path)

    with telemetry(spark) as heard:
        run_until(2)
        query = run_until(len(BEHIND.batches))
        until(lambda: bool(heard.queries()) and len(heard.queries()[0].batches) == len(BEHIND.batches) + 1)
        until(lambda: not heard.queries()[0].running)
        (history,) = heard.queries()
    portions = [[batch] for batch in BEHIND.batches]
    model = expected(BEHIND, portions)
    found = panes_of(spark.read.parquet(sink).collect(), BEHIND.options)
    wanted = [pane for step in model for pane in step.panes]
    assert sorted((p.key, p.start, p.timing, repr(p.values)) for p in found) == sorted(
        (p.key, p.start, p.timing, repr(p.values)) for p in wanted
    )
    marks = [batch.report.operators[0].watermark for batch in history.batches]
    known = [batch.watermark * SECOND for batch in BEHIND.batches if batch.watermark is not None]
    assert marks == [*known, END_OF_TIME]
    assert [batch.rows for batch in history.batches] == [len(batch.rows) for batch in BEHIND.batches] + [0]
    assert history.batches[0].report.operators[0].slowest.held_by == "partition 'slow'"
    assert why(query) == history.batches[-1].report
    assert why(query).state_bytes > 0


def test_a_stream_into_a_table_of_the_truth(spark: SparkSession, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/truth.db"
    panes = streamed(spark, RETRACTING, tmp_path, len(RETRACTING.batches))
    run(panes.upsert_to(url, "totals", create=True, flush=True), tmp_path)
    assert table_of(url, "totals") == truth_of(
        expected(RETRACTING, [[batch] for batch in RETRACTING.batches])
    )


def test_a_stream_into_files_that_tasks_write(spark: SparkSession, tmp_path: Path) -> None:
    address = f"parquet:{tmp_path}/files"
    panes = streamed(spark, RETRACTING, tmp_path, len(RETRACTING.batches))
    run(panes.append_to(address, create=True, flat=True, flush=True), tmp_path)
    truth = truth_of(expected(RETRACTING, [[batch] for batch in RETRACTING.batches]))
    assert current_results(append_table(address)) == truth


def test_a_stream_into_memory_and_into_a_function(spark: SparkSession, tmp_path: Path) -> None:
    panes = streamed(spark, FIXED, tmp_path, 1).to_df(flush=True)
    run(panes.writeStream.format("memory").queryName("panes"), tmp_path / "one")
    rows = spark.table("panes").collect()
    assert {row["pane"]["timing"] for row in rows} == {"ON_TIME"}
    target = str(tmp_path / "counted")

    def counted(frame: Any, number: int) -> None:
        frame.groupBy().count().write.mode("append").json(target)

    run(panes.writeStream.foreachBatch(counted), tmp_path / "two")
    assert sum(row["count"] for row in spark.read.json(target).collect()) == len(rows)


def test_a_limited_source_is_refused_where_the_stream_is_to_end(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", 0, FIXED.batches[0])
    reader = spark.readStream.schema(spark.read.parquet(str(tmp_path / "in")).schema)
    limited = reader.option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    counts = stream(limited, event_time="at", watermark=lag("1 second")).window(windows.fixed("1 minute"))
    with pytest.raises(InvalidArgument, match="limited by maxFilesPerTrigger = '1'"):
        counts.agg(n=windows.count()).to_df(flush=True)


def test_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    rows = as_batch(spark, RETRACTING, tmp_path)
    check(rows, expected(RETRACTING, [RETRACTING.batches], bounded=True), RETRACTING)


def test_a_union_a_chain_a_join_and_answers(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", 0, Batch([("a", 1, 5), ("b", 2, 6), ("a", 12, 7)], 0, None))
    df = spark.read.parquet(str(tmp_path / "in"))

    async def larger(row: dict[str, Any]) -> dict[str, Any] | None:
        return {"key": row["key"], "value": row["value"] + 100} if row["value"] != 6 else None

    one = stream(df, event_time="at", watermark=lag("5 seconds"))
    two = stream(df, event_time="at", watermark=lag("1 minute")).map_async(larger, "key string, value long")
    sums = one.union(two).key_by("key").window(windows.fixed("10 seconds")).agg(sum=windows.sum("value"))
    whole = sums.agg(sum=windows.sum("sum"), keys=windows.count())
    found = sorted(
        (row["window"]["start"].second, row["sum"], row["keys"]) for row in whole.to_df().collect()
    )
    assert found == [(0, 5 + 105 + 6, 2), (10, 7 + 107, 1)]
    joined = one.join(one, on=["key"], before="0 seconds", after="20 seconds")
    later = joined.filter(sql.col("value_right") > 5).with_columns(twice="value_left * 2")
    counts = later.window(windows.fixed("1 minute"), by="right.default").agg(total=windows.sum("twice"))
    assert [row["total"] for row in counts.to_df().collect()] == [2 * (5 + 6 + 7)]
    with pytest.raises(InvalidArgument, match="is not an expression over the columns of the stream"):
        joined.filter("price > 3")
    pairs = joined.to_df().collect()
    assert sorted((row["value_left"], row["value_right"]) for row in pairs) == [
        (5, 5),
        (5, 7),
        (6, 6),
        (7, 7),
    ]


def test_a_session_that_lacks_a_setting(spark: SparkSession) -> None:
    known = spark.conf.get(STATE_STORE) or ""
    spark.conf.set(STATE_STORE, "org.example.Other")
    try:
        with pytest.raises(InvalidArgument, match="does not support stateful operators in Python"):
            check_session(spark)
    finally:
        spark.conf.set(STATE_STORE, known)
