"""A learned lag on Spark: the same over a restart, and the one that the rules give in process."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from slackwater.progress.watermark_policies import learned
from slackwater.spark.api.stream import stream
from slackwater.spark.monitor.reports import reported
from slackwater.spark.wire.clock_source import Ticks
from slackwater.time import SECOND
from slackwater.windows import count, fixed
from tests.spark.running import Batch, collector, run_available, write

pytestmark = [pytest.mark.spark, pytest.mark.proof]
BATCHES = 6


def batches() -> list[Batch]:
    random = Random(5)
    found = []
    for number in range(BATCHES):
        rows = [("x", 10 * number + random.randint(0, 9), 1, random.choice("ab")) for _ in range(60)]
        rows += [("x", max(0, 10 * number - random.randint(1, 25)), 1, "a") for _ in range(6)]
        found.append(Batch(rows, 10 * number, None))
    return found


def lags(
    spark: SparkSession, folder: Path, portions: list[int]
) -> list[tuple[int | None, int, float | None]]:
    """Each new watermark with the lag; the query is restarted after each portion of files."""
    found: list[tuple[int | None, int, float | None]] = []
    files = iter(batches())
    written = 0
    for portion in portions:
        for _ in range(portion):
            write(folder / "in", written, next(files))
            written += 1
        schema = spark.read.parquet(str(folder / "in")).schema
        df = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
        clock = Ticks(tuple(10 * number * SECOND for number in range(BATCHES)))
        panes = (
            stream(df, event_time="at", watermark=learned(0.9), origin="origin", clock=clock)
            .key_by("key")
            .window(fixed("10 seconds"))
            .agg(n=count())
        )
        query = run_available(panes.to_df(), folder / "checkpoint", collector({}))
        for progress in query.recentProgress:
            report = reported(progress)
            if report is not None:
                (operator,) = report.operators
                (lag,) = next(bucket.policy_lags for bucket in operator.buckets if bucket.policy_lags)
                reached = operator.watermark, lag.lag, lag.coverage
                if found[-1:] != [reached]:  # a run may end with a batch of the clock alone
                    found.append(reached)
    return found


def test_a_restart_between_batches_changes_no_decision(spark: SparkSession, tmp_path: Path) -> None:
    straight = lags(spark, tmp_path / "straight", [BATCHES])
    assert lags(spark, tmp_path / "restarted", [2, 3, 1]) == straight
    assert len(straight) == BATCHES
    assert [lag for _, lag, _ in straight[:2]] == [60 * SECOND] * 2
    assert all(lag < 30 * SECOND and coverage == 0.9 for _, lag, coverage in straight[2:])
