"""Ingestion time: rows get the time of their batch, also when the batch is repeated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Row as SparkRow

from slackwater import time, windows
from slackwater.errors import InvalidArgument
from slackwater.progress.watermark_policies import lag
from slackwater.spark.api.stream import Stream, stream
from slackwater.spark.api.stream_options import ingestion_time
from slackwater.spark.wire.clock_source import Ticks
from slackwater.time import SECOND
from tests.spark.running import Batch, Scenario, as_stream, expected, micros, run_available, write
from tests.spark.scenarios import EARLY_AND_LATE, check
from tests.support.windowed import Options

pytestmark = pytest.mark.spark


@dataclass(frozen=True)
class Arriving(Scenario):
    """The event times in the rows are ignored."""

    def stream(self, df: DataFrame, times: Sequence[int]) -> Stream:
        made = stream(df, event_time=ingestion_time(), clock=Ticks(tuple(times)), **self.stream_options)
        assert not made.sources[0].can_fold
        return made


def arriving(now: int, *rows: tuple[str, int]) -> Batch:
    """Rows (key, value) that arrive at a second; the watermark is that second."""
    return Batch(
        [(key, None, value) for key, value in rows], now, now, [(key, now, value) for key, value in rows]
    )


SCENARIO = Arriving(
    Options(windows.Fixed(10 * SECOND), EARLY_AND_LATE, mode="accumulating_and_retracting"),
    [
        arriving(1001, ("a", 1), ("b", 2)),
        arriving(1008, ("a", 3), ("a", 4)),
        arriving(1010, ("b", 5)),
        arriving(1025, ("a", 6)),
    ],
)


@pytest.mark.proof
@pytest.mark.parametrize("restart_after", [None, 2])
def test_rows_have_the_time_of_their_batch(
    spark: SparkSession, tmp_path: Path, restart_after: int | None
) -> None:
    portions = [[batch] for batch in SCENARIO.batches]
    rows = as_stream(spark, SCENARIO, tmp_path, portions, restart_after)
    check(rows, expected(SCENARIO, portions), SCENARIO)


def test_a_batch_has_the_time_of_its_run(spark: SparkSession) -> None:
    df = spark.sql("select 'a' as key union all select 'b'")
    before = time.now()
    windowed = stream(df, event_time=ingestion_time()).window(windows.fixed("1 second"))
    (row,) = windowed.agg(n=windows.count()).to_df().collect()
    assert row["n"] == 2
    assert before - SECOND < micros(row["window"]["start"]) <= time.now()


def test_a_batch_that_is_repeated_has_the_time_of_the_first_attempt(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The sink fails in the second batch; when the batch is repeated, the clock has advanced."""
    options = Options(windows.Fixed(10 * SECOND), EARLY_AND_LATE)
    collected: dict[int, list[SparkRow]] = {}

    def run(times: tuple[int, ...], failing: int | None) -> None:
        schema = spark.read.parquet(str(tmp_path / "in")).schema
        df = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
        panes = Arriving(options, []).build(df, [at * SECOND for at in times])

        def collect(frame: DataFrame, number: int) -> None:
            collected[number] = frame.collect()
            if number == failing:
                raise RuntimeError("the sink is gone")

        run_available(panes.to_df(), tmp_path / "checkpoint", collect)

    for number, value in enumerate((1, 2, 3)):
        write(tmp_path / "in", number, Batch([("a", None, value), ("a", None, value)], 0, None))
    with pytest.raises(StreamingQueryException, match="the sink is gone"):
        run((1001, 1012), failing=1)
    first_attempt = collected.pop(1)
    run((5000, 6000, 7000), failing=None)
    assert sorted(collected[1]) == sorted(first_attempt)
    assert starts(collected[1]) == [1000, 1010]
    assert starts(collected[2]) == [1010, 7000]


def starts(rows: Sequence[SparkRow]) -> list[int]:
    """The seconds at which the windows of panes begin."""
    return sorted(micros(row["window"]["start"]) // SECOND for row in rows)


def test_ingestion_time_with_max_ahead_raises(spark: SparkSession) -> None:
    df = spark.sql("select 'a' as key")
    with pytest.raises(InvalidArgument, match=r"max_ahead = .*no row is ahead of the clock"):
        stream(df, event_time=ingestion_time(), watermark=lag("1 second"), max_ahead="1 second")
