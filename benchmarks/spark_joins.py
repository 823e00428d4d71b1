"""Joins on Spark compared with Spark's stream–stream join: seconds per micro-batch, results compared first.

Two streams of bids as Parquet files, a Parquet sink, one Spark session, the same settings and watermarks.
The time-bounded join and Spark's join have the same condition. Spark has no streaming as-of join: ours is
compared with the time-bounded join of Spark over the same data, and its rows with Polars' `join_asof` over
all rows. The joins run in turns, each as often as the others; the first batches of a run are not timed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Final

from benchmarks.spark_windows import (  # first, because it sets the number of threads of Polars
    BATCH,
    BIDS_A_SECOND,
    LAG,
    QUIET,
    bids,
    read,
)

# isort: split
import polars as pl
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

import slackwater as sw
from benchmarks.report import Report, spread
from slackwater.spark.api.stream import Stream

BATCHES: Final = 10
WARM: Final = 3
"""The number of batches at the start of every run that are not timed."""
RUNS: Final = 3
SIDE: Final = BATCH // 2
"""The number of bids of each side in a micro-batch."""
KEYS: Final = 200_000
REACH: Final = "10 seconds"
AIM: Final = 3.0
"""How many times faster than Spark on RocksDB we aim to be."""
BOUNDED, ASOF, NATIVE = "time-bounded", "as-of", "native"
PAIR: Final = ["auction", "ts_left", "price_left", "ts_right", "price_right"]


@dataclass(frozen=True)
class Run:
    """What a run took and where its rows are."""

    batches: list[float]
    output: Path

    @property
    def seconds(self) -> float:
        """Of a batch, in the mean: what a stream has to pay in the long run."""
        return mean(self.batches)


def in_turns(joins: Mapping[str, Callable[[], DataFrame]], work: Path) -> dict[str, list[Run]]:
    """The runs of each join."""
    runs: dict[str, list[Run]] = {name: [] for name in joins}
    for number in range(RUNS):
        for name, make in joins.items():
            runs[name].append(execute(make, work, f"{name}-{number}"))
    return runs


def execute(make: Callable[[], DataFrame], work: Path, name: str) -> Run:
    """Write the stream until its files are read."""
    output = work / f"{name}-out"
    query = (
        make()
        .writeStream.option("checkpointLocation", str(work / f"{name}-checkpoint"))
        .trigger(availableNow=True)
        .start(str(output), format="parquet")
    )
    query.awaitTermination()
    progress = [entry for entry in query.recentProgress if entry.numInputRows >= BATCH]
    took = [entry.durationMs["triggerExecution"] / 1000 for entry in progress]
    assert len(took) == BATCHES, f"{name}: {len(took)} batches"
    return Run(took[WARM:], output)


@dataclass(frozen=True)
class Sides:
    """The folders with the bids of both sides."""

    left: Path
    right: Path

    @classmethod
    def written(cls, work: Path) -> Sides:
        """Seeded bids in a folder per side."""
        return cls(
            bids(work / "left", KEYS, SIDE, BATCHES, seed=7),
            bids(work / "right", KEYS, SIDE, BATCHES, seed=8),
        )

    def streams(self, spark: SparkSession) -> tuple[Stream, Stream]:
        """Both sides as streams of this library."""
        one, two = (
            sw.stream(read(spark, folder), event_time="ts", watermark=sw.lag(LAG), clock="1 hour")
            for folder in (self.left, self.right)
        )
        return one, two

    def all_rows(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """All bids of both sides, sorted by time."""
        one, two = (
            pl.read_parquet(folder / "*.parquet").sort("ts", maintain_order=True)
            for folder in (self.left, self.right)
        )
        return one, two


def join(spark: SparkSession, sides: Sides) -> DataFrame:
    """The time-bounded join of this library."""
    one, two = sides.streams(spark)
    return one.join(two, on=["auction"], before="0 seconds", after=REACH).to_df().select(*PAIR)


def asof_join(spark: SparkSession, sides: Sides) -> DataFrame:
    """The as-of join of this library."""
    one, two = sides.streams(spark)
    return one.join_asof(two, on=["auction"]).to_df().select(*PAIR)


def native_join(spark: SparkSession, sides: Sides) -> DataFrame:
    """Spark's stream–stream join with the same condition."""
    one, two = (
        read(spark, folder)
        .withWatermark("ts", LAG)
        .select("auction", sql.col("ts").alias(f"ts_{side}"), sql.col("price").alias(f"price_{side}"))
        .withColumnRenamed("auction", f"auction_{side}")
        for side, folder in (("left", sides.left), ("right", sides.right))
    )
    condition = sql.expr(
        f"auction_left = auction_right and ts_right >= ts_left and ts_right <= ts_left + interval {REACH}"
    )
    return one.join(two, condition).withColumnRenamed("auction_left", "auction").select(*PAIR)


def rows(run: Run) -> pl.DataFrame:
    """The rows of a run, in one order."""
    return pl.read_parquet(run.output / "*.parquet").select(PAIR).sort(PAIR)


def check_pairs(mine: pl.DataFrame, theirs: pl.DataFrame) -> None:
    """Both joins have the same pairs."""
    assert theirs.height > 0, "Spark's join gave nothing"
    assert mine.cast(theirs.schema).equals(theirs), "the pairs differ"


def check_asof(mine: pl.DataFrame, sides: Sides) -> None:
    """Every row of the as-of join is a row of Polars' as-of join over all rows.

    Left rows whose match shares its time with another bid of the auction are left out: which one is selected
    depends on the order of arrival.
    """
    left, right = sides.all_rows()
    right = right.filter(pl.len().over("auction", "ts") == 1)
    ambiguous = sides.all_rows()[1].filter(pl.len().over("auction", "ts") > 1)
    expected = (
        left.join_asof(
            right.with_columns(pl.col("ts").alias("ts_right")), on="ts", by="auction", check_sortedness=False
        )
        .rename({"ts": "ts_left", "price": "price_left"})
        .select(PAIR)
    )
    certain = mine.cast(expected.schema).join(ambiguous.select("auction"), on="auction", how="anti")
    assert certain.height > SIDE, "the as-of join gave too few rows"
    assert certain.join(expected, on=PAIR, how="anti", nulls_equal=True).is_empty(), "the as-of joins differ"


def run(report: Report) -> None:
    """Both joins against Spark's."""
    spark = sw.session(config={**QUIET, "spark.driver.memory": "6g"})
    spark.sparkContext.setLogLevel("ERROR")
    section = report.section(
        "On Spark: against Spark's stream–stream join",
        f"{BATCHES} micro-batches of {SIDE:,} bids per side, {BIDS_A_SECOND:,} per side and second of event "
        f"time, {KEYS:,} keys, watermark lag {LAG}, Parquet in and out, same columns. Inner join of bids at "
        f"most {REACH} apart; the as-of join selects the last earlier bid of the auction and is compared "
        f"with the same join of Spark, which has no as-of join. Seconds per batch (mean, without the first "
        f"{WARM}), {RUNS} runs of each in turns in one `sw.session()`: median, lowest and highest. "
        "Pairs are equal to Spark's, as-of rows to those of Polars.",
        ("join", "Slackwater", "Spark, RocksDB", "times RocksDB"),
    )
    with tempfile.TemporaryDirectory(prefix="slackwater-bench-") as name:
        work = Path(name)
        sides = Sides.written(work)
        runs = in_turns(
            {
                BOUNDED: lambda: join(spark, sides),
                ASOF: lambda: asof_join(spark, sides),
                NATIVE: lambda: native_join(spark, sides),
            },
            work,
        )
        for pairs, theirs in zip(runs[BOUNDED], runs[NATIVE], strict=True):
            check_pairs(rows(pairs), rows(theirs))
        for matches in runs[ASOF]:
            check_asof(rows(matches), sides)
    seconds = {name: [run.seconds for run in several] for name, several in runs.items()}
    for kind in (BOUNDED, ASOF):
        ratios = [theirs / mine for mine, theirs in zip(seconds[kind], seconds[NATIVE], strict=True)]
        times = median(ratios)
        section.row(kind, spread(seconds[kind]), spread(seconds[NATIVE]), spread(ratios, 1))
        verdict = "met" if times >= AIM else "MISSED"
        section.verdict(
            f"{kind} join, {KEYS:,} keys: {times:.1f} times Spark on RocksDB (aim {AIM:g}: {verdict})"
        )
    report.show(section)
