"""Inputs that are silent, or heard late: discovery of origins, and a cogroup with an idle side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Row as SparkRow

import slackwater as sw
from slackwater.spark.wire.clock_source import Ticks
from slackwater.time import SECOND
from tests.spark.running import Batch, collector, run_available, write

pytestmark = [pytest.mark.spark, pytest.mark.proof]

Rows = Sequence[tuple[Any, ...]]


def files(spark: SparkSession, folder: Path, batches: Sequence[Rows]) -> DataFrame:
    """A source with the rows of one batch in each micro-batch."""
    for number, rows in enumerate(batches):
        write(folder, number, Batch(rows, 0, None))
    schema = spark.read.parquet(str(folder)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def clock(*seconds: int) -> Ticks:
    return Ticks(tuple(second * SECOND for second in seconds))


def run(output: DataFrame, folder: Path) -> list[list[SparkRow]]:
    collected: dict[int, list[SparkRow]] = {}
    run_available(output, folder / "checkpoint", collector(collected))
    return [collected[number] for number in sorted(collected)]


@pytest.mark.parametrize(("wait", "counted"), [("5 seconds", 4), (None, 2)])
def test_rows_of_an_origin_that_is_heard_second_count_if_origins_are_discovered(
    spark: SparkSession, tmp_path: Path, wait: str | None, counted: int
) -> None:
    batches = [[("k", 100, 1, "fast"), ("k", 101, 1, "fast")], [("k", 1, 1, "slow"), ("k", 2, 1, "slow")]]
    rows = sw.stream(
        files(spark, tmp_path / "rows", batches),
        event_time="at",
        watermark=sw.lag("0 seconds"),
        origin="origin",
        origins=None if wait is None else sw.discover(wait),
        clock=clock(0, 1, 2),
    )
    panes = rows.key_by("key").window(sw.fixed("10 seconds")).agg(n=sw.count())
    found = [row for panes in run(panes.to_df(flush=True), tmp_path) for row in panes]
    assert sum(row["n"] for row in found) == counted


@pytest.mark.parametrize("idle_after", ["5 seconds", None])
def test_an_idle_side_does_not_hold_back_a_cogroup(
    spark: SparkSession, tmp_path: Path, idle_after: str | None
) -> None:
    sides = {
        "left": [[("k", 1, 10)], [("k", 30, 20)], [("k", 60, 30)]],
        "right": [[("k", 2, 11)], [], []],
    }
    left, right = (
        sw.stream(
            files(spark, tmp_path / name, batches).drop("origin"),
            event_time="at",
            watermark=sw.lag("0 seconds"),
            idle_after=idle_after,
            clock=clock(0, 10, 20, 30),
        ).key_by("key")
        for name, batches in sides.items()
    )
    panes = left.window(sw.fixed("10 seconds")).cogroup(right, left=["value"], right=["value"], how="full")
    *before, end = run(panes.to_df(flush=True), tmp_path)
    fired = [(row["value"], row["value_right"]) for rows in before for row in rows]
    assert fired == ([] if idle_after is None else [(10, 11), (20, None)])
    last = [(row["value"], row["value_right"]) for row in end]
    assert sorted(fired + last) == [(10, 11), (20, None), (30, None)]
