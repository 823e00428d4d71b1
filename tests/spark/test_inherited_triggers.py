"""Operators over panes inherit the trigger: early results pass through a chain, and nothing counts twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import slackwater as sw
from slackwater.spark.api.panes import Panes
from slackwater.time import SECOND
from slackwater.windows.triggers import CONTINUED_TRIGGER, DEFAULT_TRIGGER
from tests.spark.running import Batch, collector, run_available, write

pytestmark = pytest.mark.spark

BATCHES = (
    [("a", 1, 1), ("b", 2, 2)],
    [("a", 3, 4)],
    [("b", 14, 8)],
    [("c", 35, 16)],
)


def sums(df: DataFrame, times: Sequence[int] = ()) -> Panes:
    clock: Any = sw.Ticks(tuple(times)) if times else "1 second"
    return (
        sw.stream(df, event_time="at", watermark=sw.lag("0 seconds"), clock=clock)
        .key_by("key")
        .window(sw.fixed("10 seconds"))
        .trigger(sw.after_watermark(early=sw.every(count=1), late=sw.every(count=1)))
        .accumulating_and_retracting()
        .agg(total=sw.sum("value"))
    )


def totals(panes: Panes) -> Panes:
    return panes.window(sw.fixed("20 seconds")).agg(keys=sw.count(), total=sw.sum("total"))


def maximum(panes: Panes) -> Panes:
    return totals(panes).window(sw.fixed("40 seconds")).agg(sums=sw.count(), best=sw.max("total"))


def emitted(
    spark: SparkSession, folder: Path, chain: Callable[[Panes], Panes], value: str
) -> list[list[tuple[Any, ...]]]:
    for number, rows in enumerate(BATCHES):
        write(folder / "in", number, Batch(rows, 0, None))
    schema = spark.read.parquet(str(folder / "in")).schema
    df = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    times = [number * SECOND for number in range(len(BATCHES) + 1)]
    found: dict[int, Any] = {}
    frame = chain(sums(df, times)).to_df(flush=True)
    selected = frame.selectExpr("unix_seconds(window.start)", value, "pane.timing", "pane.retraction")
    run_available(selected, folder / "checkpoint", collector(found))
    return [sorted(map(tuple, found[number])) for number in sorted(found)]


def test_early_results_pass_through_a_chain(spark: SparkSession, tmp_path: Path) -> None:
    assert emitted(spark, tmp_path, totals, "total") == [
        [(0, 3, "EARLY", False)],
        [(0, 7, "EARLY", False)],
        [(0, 15, "EARLY", False)],
        # The batch that completes a window brings its panes first, and then the watermark.
        [(0, 15, "EARLY", False), (0, 15, "ON_TIME", False), (20, 16, "EARLY", False)],
        [(20, 16, "EARLY", False), (20, 16, "ON_TIME", False)],
    ]


def test_no_early_result_counts_twice_in_a_longer_chain(spark: SparkSession, tmp_path: Path) -> None:
    rows = emitted(spark, tmp_path, maximum, "struct(sums, best) as value")
    last = [(start, tuple(value), timing) for start, value, timing, _ in rows[-1]]
    assert last == [(0, (2, 16), "EARLY"), (0, (2, 16), "ON_TIME")]
    assert [tuple(value) for start, value, _, _ in rows[2]] == [(1, 15)]


def test_a_trigger_or_a_mode_that_is_set_is_not_replaced(spark: SparkSession) -> None:
    df = spark.createDataFrame([], "key string, at timestamp, value bigint")
    early = sums(df)
    assert totals(early).dataflow.spec.trigger == CONTINUED_TRIGGER
    assert early.filter("total > 1").key_by("key").window(sw.fixed("1 minute")).strategy.trigger == (
        CONTINUED_TRIGGER
    )
    deduplicated = early.deduplicate(on=["key"], within="1 minute")
    assert deduplicated.window(sw.fixed("1 minute")).strategy.trigger == CONTINUED_TRIGGER
    chosen = early.window(sw.fixed("1 minute")).trigger(sw.after_watermark(late=sw.every(count=1)))
    assert chosen.agg(keys=sw.count()).dataflow.spec.trigger == DEFAULT_TRIGGER
    on_time = chosen.agg(keys=sw.count()).window(sw.fixed("1 hour"))
    assert on_time.strategy.trigger == DEFAULT_TRIGGER
    assert totals(early).elements().retracts
    assert not early.window(sw.fixed("1 minute")).accumulating().agg(n=sw.count()).elements().retracts
    plain = sw.stream(df, event_time="at", watermark=sw.lag("0 seconds")).key_by("key")
    both = plain.window(sw.fixed("1 minute")).cogroup(
        early.key_by("key"), left=["value"], right=["total"]
    )
    assert both.dataflow.spec.trigger == CONTINUED_TRIGGER


def test_explain_shows_an_inherited_trigger(spark: SparkSession) -> None:
    df = spark.createDataFrame([], "key string, at timestamp, value bigint")
    plan = str(totals(sums(df)).explain())
    assert plan.count("late=repeatedly(after_count(1))), inherited") == 1
    assert "inherited" not in str(sums(df).explain())
