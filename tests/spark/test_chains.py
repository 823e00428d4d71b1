"""Chains of operators and unions of streams: watermarks travel with the data, batch by batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from slackwater import windows
from slackwater.errors import InvalidArgument
from slackwater.progress.watermark_policies import Lag, lag
from slackwater.spark.api.panes import Panes
from slackwater.spark.api.stream import stream
from slackwater.spark.wire.clock_source import Ticks
from slackwater.time import END_OF_TIME, SECOND
from tests.model.windows import Row
from tests.spark.running import Batch, Scenario, as_batch, as_stream, expected, model_row, write
from tests.spark.scenarios import EARLY_AND_LATE, check, following
from tests.support.sampling import sampled
from tests.support.windowed import ModelSubject, Observed, Options

pytestmark = pytest.mark.spark

TOTALS = Options(
    windows.Inherited(),
    windows.after_watermark(early=windows.every(count=1), late=windows.every(count=1)),
    accumulations=("count", "sum"),
    key=(),
    mode="accumulating_and_retracting",
    allowed_lateness=20 * SECOND,
    retractions=True,
)


@dataclass(frozen=True)
class Chain(Scenario):
    """Sums per key, and then their sum over all keys in the same windows, which inherits the lateness."""

    def build(self, df: DataFrame, times: Sequence[int]) -> Panes:
        options = self.options
        first = (
            stream(df, event_time="at", watermark=self.policy, clock=Ticks(tuple(times)))
            .key_by("key")
            .window(options.window)
            .trigger(options.trigger)
            .allowed_lateness("20 seconds")
            .accumulating_and_retracting()
            .agg(value=windows.sum("value"))
        )
        return (
            first.window(windows.Inherited())
            .trigger(TOTALS.trigger)
            .accumulating_and_retracting()
            .agg(count=windows.count(), sum=windows.sum("value"))
        )


CHAIN = Chain(
    Options(
        windows.Fixed(10 * SECOND),
        EARLY_AND_LATE,
        accumulations=("sum",),
        mode="accumulating_and_retracting",
        allowed_lateness=20 * SECOND,
    ),
    following(
        [
            [("a", 1, 1), ("a", 2, 2), ("b", 3, 3), ("c", 4, 4)],
            [("a", 4, 4), ("b", 9, 5), ("b", 14, 6), ("c", 12, 7)],
            [("a", 18, 7), ("a", 6, 8), ("d", 7, 9)],
            [("a", 5, 9), ("b", 7, 10), ("b", 24, 11)],
            [("a", 3, 12), ("c", 60, 13)],
        ]
    ),
    Lag(5 * SECOND),
)


def expected_chain(portions: Sequence[Sequence[Batch]], *, bounded: bool = False) -> list[Observed]:
    """Two models in a chain: the second processes in a batch what the first emits in it."""
    first, second = ModelSubject(CHAIN.options), ModelSubject(TOTALS)
    observed: list[Observed] = []
    steps: list[tuple[list[Row], int | None, int]] = []
    for portion in portions:
        rows = [model_row(row) for batch in portion for row in batch.rows]
        last = portion[-1].watermark
        watermark = END_OF_TIME if bounded else None if last is None else last * SECOND
        steps.append((rows, watermark, portion[-1].now * SECOND))
    if not bounded:
        steps.append(([], END_OF_TIME, steps[-1][2] + SECOND))
    for rows, watermark, now in steps:
        said = first.step(rows, watermark, now)
        elements: list[Row] = [
            {
                "ts": pane.timestamp,
                "value": pane.values["sum"],
                "retraction": pane.retraction,
                "window_start": pane.start,
                "window_end": pane.end,
            }
            for pane in said.panes
        ]
        observed.append(second.step(elements, said.forwarded, now))
    return observed


def checked(rows: list[list[Any]], model: list[Observed]) -> None:
    check(rows, [Observed(panes=said.panes) for said in model], Scenario(TOTALS, []))


def test_a_chain_as_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    checked(as_batch(spark, CHAIN, tmp_path), expected_chain([CHAIN.batches], bounded=True))


@pytest.mark.parametrize("restart_after", sampled([None, 3], keep=[3]))
def test_a_chain_in_micro_batches(spark: SparkSession, tmp_path: Path, restart_after: int | None) -> None:
    portions = [[batch] for batch in CHAIN.batches]
    checked(as_stream(spark, CHAIN, tmp_path, portions, restart_after), expected_chain(portions))


@dataclass(frozen=True)
class Union(Scenario):
    """The rows of a folder, united with those of a second folder that have another lag.

    The second folder grows over time, so that a restart finds only what had arrived by then.
    """

    spark: SparkSession | None = None
    folder: Path | None = None
    there: Sequence[Sequence[tuple[Any, ...]]] = ()

    def build(self, df: DataFrame, times: Sequence[int]) -> Panes:
        assert self.spark is not None
        assert self.folder is not None
        second_folder = self.folder / "second"
        come = len(times) if df.isStreaming else len(self.there)
        for number, rows in enumerate(self.there[:come]):
            if not (second_folder / f"{number:05}.parquet").exists():
                write(second_folder, number, Batch(rows, 0, None))
        if df.isStreaming:
            reader = self.spark.readStream.schema(df.schema).option("maxFilesPerTrigger", 1)
            other = reader.parquet(str(second_folder))
        else:
            other = self.spark.read.parquet(str(second_folder))
        clock = Ticks(tuple(times))
        one = stream(df, event_time="at", watermark=self.policy, clock=clock)
        two = stream(other, event_time="at", watermark=lag("2 seconds"), clock=clock, **self.stream_options)
        return (
            one.union(two)
            .key_by("key")
            .window(self.options.window)
            .agg(
                late="emit", count=windows.count(), sum=windows.sum("value"), collect=windows.collect("value")
            )
        )


Steps = Sequence[tuple[list[tuple[Any, ...]], list[tuple[Any, ...]], int, int]]

UNION: Steps = (
    ([("a", 1, 1), ("b", 31, 2)], [("a", 4, 10)], 1000, 2),
    ([("a", 33, 3)], [("b", 16, 20), ("a", 3, 30)], 1001, 14),
    ([("a", 8, 4)], [("b", 47, 40)], 1002, 28),
)
"""Rows of both sides, the clock, and the watermark: the lower of (highest left - 5), (highest right - 2)."""

IDLE_UNION: Steps = (
    ([("a", 31, 1)], [("a", 4, 10)], 1000, 2),
    ([("a", 36, 2)], [], 1004, 2),
    ([("b", 41, 3)], [], 1008, 2),
    ([("a", 45, 4)], [], 1010, 40),
    ([("b", 58, 5)], [], 1014, 53),
    ([("a", 61, 6)], [("b", 57, 20)], 1018, 55),
)
"""The same with a side that is idle after ten seconds without rows, also over a restart."""


@pytest.mark.parametrize(
    ("steps", "options", "restart_after"),
    [
        pytest.param(UNION, {}, None, marks=pytest.mark.proof),
        pytest.param(UNION, {}, 1, marks=pytest.mark.proof),
        pytest.param(UNION, {}, 2, marks=pytest.mark.proof),
        pytest.param(IDLE_UNION, {"idle_after": "10 seconds"}, 4, marks=pytest.mark.proof),
    ],
    ids=["slower side", "restart", "another restart", "idle side and restart"],
)
def test_the_slower_of_two_streams_holds_the_watermark(
    spark: SparkSession, tmp_path: Path, steps: Steps, options: dict[str, Any], restart_after: int | None
) -> None:
    scenario = Union(
        Options(windows.Fixed(10 * SECOND)),
        [Batch([*here, *there], now, watermark) for here, there, now, watermark in steps],
        Lag(5 * SECOND),
        options,
        spark=spark,
        folder=tmp_path,
        there=[there for _, there, _, _ in steps],
    )
    here = [[Batch(rows, now, None)] for rows, _, now, _ in steps]
    rows = as_stream(spark, scenario, tmp_path, here, restart_after)
    check(rows, expected(scenario, [[batch] for batch in scenario.batches]), scenario)


def test_a_union_of_batches_fires_everything(spark: SparkSession, tmp_path: Path) -> None:
    scenario = Union(
        Options(windows.Fixed(10 * SECOND)),
        [Batch(here, now, None) for here, _, now, _ in UNION],
        Lag(5 * SECOND),
        spark=spark,
        folder=tmp_path,
        there=[there for _, there, _, _ in UNION],
    )
    both = [Batch([*here, *there], now, None) for here, there, now, _ in UNION]
    rows = as_batch(spark, scenario, tmp_path)
    check(rows, expected(scenario, [both], bounded=True), scenario)


def test_emitted_late_rows_cannot_be_input_of_another_operator(spark: SparkSession) -> None:
    df = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 'a' as key, 3 as value")
    windowed = stream(df, event_time="at", watermark=lag("5 seconds")).key_by("key").window(windows.Fixed(10))
    with pytest.raises(InvalidArgument, match='write late="count"'):
        windowed.agg(late="emit", n=windows.count()).key_by("key")


def test_a_chain_over_retractions_needs_accumulations_that_take_elements_back(spark: SparkSession) -> None:
    df = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 'a' as key, 3 as value")
    first = (
        stream(df, event_time="at", watermark=lag("5 seconds"))
        .key_by("key")
        .window(windows.Fixed(10))
        .accumulating_and_retracting()
        .agg(n=windows.count())
    )
    with pytest.raises(InvalidArgument, match=r"cannot subtract elements.*use count_distinct"):
        first.agg(best=windows.approx_count_distinct("n"))
    (row,) = first.agg(best=windows.max("n")).to_df().collect()
    assert row["best"] == 1


def test_rows_of_a_data_frame_have_no_window_to_inherit(spark: SparkSession) -> None:
    df = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 'a' as key, 3 as value")
    with pytest.raises(InvalidArgument, match="cannot be inherited, because rows of a DataFrame"):
        stream(df, event_time="at", watermark=lag("5 seconds")).key_by("key").agg(n=windows.count())


def test_a_column_with_different_types_in_a_union_raises(spark: SparkSession) -> None:
    one = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 'a' as key, 3 as value")
    two = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 'a' as key, 'x' as value")
    united = stream(one, event_time="at", watermark=lag("1 second")).union(
        stream(two, event_time="at", watermark=lag("1 second"))
    )
    with pytest.raises(InvalidArgument, match="has different types in the united streams: int and string"):
        united.window(windows.Fixed(10)).agg(total=windows.sum("value"))


def test_panes_of_a_global_window_stay_in_it(spark: SparkSession) -> None:
    df = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 1 as key")
    whole = stream(df, event_time="at", watermark=Lag(0)).key_by("key").window(windows.global_window())
    panes = whole.agg(n=windows.count())
    (row,) = panes.agg(n=windows.sum("n")).to_df().collect()
    assert row["n"] == 1
    for window in (windows.fixed("10 seconds"), windows.global_window()):
        with pytest.raises(InvalidArgument, match="cannot contain panes of a global window"):
            panes.window(window)
