"""Windows on Spark compared with Spark's own: seconds per micro-batch, after the results are compared.

The same Parquet files in, a Parquet sink out, one Spark session. Spark's `groupBy(window, key)` runs on
RocksDB with changelog checkpoints, and on the default state store, with Spark's default checkpoint writer.
`sw.session()` selects another checkpoint writer of Spark, which makes Spark's own windows faster as well;
where that can make a difference, they are also timed with it. Each run has its own checkpoint. A short run
is repeated as long as it gets faster, and the fastest counts; the first batches of every run are not timed.
So no system pays for starting workers or for code that the JVM has not compiled yet.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Final

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import numpy as np  # after the number of threads is set, which Polars reads once
import polars as pl
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

import slackwater as sw
from benchmarks.bars import draw
from benchmarks.processes import Memory, MemoryWatch, empty_batch_seconds
from benchmarks.report import Report
from slackwater.time import SECOND
from slackwater.windows import Window

BATCH: Final = 500_000
BATCHES: Final = 10
WARM: Final = 3
"""The number of batches at the start of every run that are not timed."""
SHORT: Final = 20.0
"""A run that takes fewer seconds is repeated."""
FASTER: Final = 0.97
"""Runs are repeated while each takes less than this share of the previous one."""
RUNS: Final = 6
"""The maximum number of runs."""
BIDS_A_SECOND: Final = 10_000
DISORDER: Final = 5 * SECOND
LAG: Final = "5 seconds"
SCHEMA: Final = "auction bigint, bidder bigint, price bigint, ts timestamp"
PICTURE: Final = Path(__file__).parent.parent / "docs" / "images" / "benchmark-spark.svg"
CHECKPOINTS: Final = "spark.sql.streaming.checkpointFileManagerClass"
PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
STORES: Final = {
    "RocksDB": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "default": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}


@dataclass(frozen=True)
class Workload:
    """One comparison: our window, Spark's, and how many times faster we aim to be than which store."""

    name: str
    keys: int
    window: Window
    native: Callable[[], Column]
    aims: dict[str, float]
    batch: int = BATCH
    """How many bids a micro-batch has."""

    def __str__(self) -> str:
        return f"{self.name}, {self.keys:,} keys, batches of {self.batch:,}"


def _ten_seconds() -> Column:
    return sql.window("ts", "10 seconds")


def _sliding() -> Column:
    return sql.window("ts", "60 seconds", "10 seconds")


def _sessions() -> Column:
    # Spark joins sessions that are exactly the gap apart: a gap shorter by a microsecond is the same as ours.
    return sql.session_window("ts", "9 seconds 999 milliseconds 999 microseconds")


WORKLOADS: Final = (
    Workload("tumbling 10 s", 1_000, sw.fixed("10 seconds"), _ten_seconds, {"RocksDB": 0.8, "default": 0.8}),
    Workload("tumbling 10 s", 200_000, sw.fixed("10 seconds"), _ten_seconds, {"RocksDB": 6, "default": 2}),
    Workload(
        "sliding 60 s every 10 s",
        1_000,
        sw.sliding("60 seconds", every="10 seconds"),
        _sliding,
        {"RocksDB": 2},
    ),
    Workload(
        "sliding 60 s every 10 s",
        200_000,
        sw.sliding("60 seconds", every="10 seconds"),
        _sliding,
        {"RocksDB": 6},
    ),
    Workload(
        "sliding 60 s every 10 s",
        1_000,
        sw.sliding("60 seconds", every="10 seconds"),
        _sliding,
        {"RocksDB": 2},
        batch=4 * BATCH,
    ),
    Workload("sessions, gap 10 s", 200_000, sw.sessions("10 seconds"), _sessions, {"RocksDB": 3}),
)


def bids(folder: Path, keys: int, batch: int = BATCH, seed: int = 7) -> Path:
    """Seeded bids as files, two for a batch, each row at most five seconds behind the latest before it."""
    rng = np.random.default_rng(seed)
    number = batch * BATCHES
    arrival = np.arange(number, dtype=np.int64) * (SECOND // BIDS_A_SECOND)
    frame = pl.DataFrame(
        {
            "auction": rng.integers(0, keys, number),
            "bidder": rng.integers(0, 1_000_000, number),
            "price": rng.integers(1, 10_000, number),
            "ts": pl.Series(arrival + DISORDER - rng.integers(0, DISORDER, number)).cast(
                pl.Datetime("us", "UTC")
            ),
        }
    )
    folder.mkdir(parents=True)
    for place, start in enumerate(range(0, number, batch // 2)):
        path = folder / f"{place:03}.parquet"
        frame.slice(start, batch // 2).write_parquet(path)
        os.utime(path, (place, place))
    return folder


def read(spark: SparkSession, folder: Path) -> DataFrame:
    """The bids as a stream, two files a batch."""
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 2).parquet(str(folder))


def ours(spark: SparkSession, folder: Path, workload: Workload) -> DataFrame:
    """The windows of this library over the bids."""
    return windows(read(spark, folder), workload)


def windows(rows: DataFrame, workload: Workload) -> DataFrame:
    """The windows of this library."""
    stream = sw.stream(rows, event_time="ts", watermark=sw.lag(LAG), clock="1 hour")
    panes = stream.key_by("auction").window(workload.window)
    results = panes.agg(bids=sw.count(), total=sw.sum("price"), best=sw.max("price")).to_df()
    return results.select("window", "auction", "bids", "total", "best")


def native(spark: SparkSession, folder: Path, workload: Workload) -> DataFrame:
    """Spark's own windows over the bids."""
    return spark_windows(read(spark, folder), workload)


def spark_windows(rows: DataFrame, workload: Workload) -> DataFrame:
    """Spark's own windows."""
    grouped = rows.withWatermark("ts", LAG).groupBy(workload.native().alias("window"), "auction")
    return grouped.agg(
        sql.count("*").alias("bids"), sql.sum("price").alias("total"), sql.max("price").alias("best")
    )


@contextmanager
def usual_checkpoints(spark: SparkSession) -> Iterator[None]:
    """Queries that are started inside write checkpoints as Spark does without `sw.session()`."""
    before = str(spark.conf.get(CHECKPOINTS))
    spark.conf.unset(CHECKPOINTS)
    yield
    spark.conf.set(CHECKPOINTS, before)


@dataclass(frozen=True)
class Run:
    """What a run took and where its rows are."""

    batches: list[float]
    output: Path
    memory: Memory

    @property
    def seconds(self) -> float:
        """Of a batch, in the mean: what a stream has to pay in the long run."""
        return mean(self.batches)

    def rows(self) -> pl.DataFrame:
        """The results, in one order."""
        frame = pl.read_parquet(self.output / "*.parquet")
        flat = frame.select("auction", pl.col("window").struct.field("start"), "bids", "total", "best")
        return flat.sort("auction", "start")


def settled(make: Callable[[], DataFrame], work: Path, name: str) -> Run:
    """A run after which nothing is compiled any more: the fastest of those that it took to get there."""
    runs = [execute(make, work, name)]
    while sum(runs[-1].batches) < SHORT and len(runs) < RUNS:
        runs.append(execute(make, work, f"{name}-{len(runs)}"))
        if runs[-1].seconds > FASTER * runs[-2].seconds:
            break
    return min(runs, key=lambda run: run.seconds)


def execute(make: Callable[[], DataFrame], work: Path, name: str) -> Run:
    """Write the stream until its files are read."""
    output = work / f"{name}-out"
    with MemoryWatch() as watch:
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
    return Run(took[WARM:], output, watch.peak)


@contextmanager
def store(spark: SparkSession, name: str) -> Iterator[None]:
    """Queries that are started inside use this state store."""
    before = str(spark.conf.get(PROVIDER))
    spark.conf.set(PROVIDER, STORES[name])
    yield
    spark.conf.set(PROVIDER, before)


def check(workload: Workload, results: pl.DataFrame, others: dict[str, pl.DataFrame]) -> None:
    """Every row of Spark's own windows is ours too, with the same values."""
    for name, theirs in others.items():
        shared = results.join(theirs.select("auction", "start"), on=["auction", "start"], how="semi")
        mine = shared.sort("auction", "start")
        assert theirs.height > 0, f"{workload}: {name} gave nothing"
        assert mine.cast(theirs.schema).equals(theirs), f"{workload}: {name} differs"


@dataclass(frozen=True)
class Comparison:
    """A workload that all systems have run, with equal results."""

    workload: Workload
    mine: Run
    theirs: dict[str, Run]
    tuned: dict[str, Run]
    """Spark's own windows with the checkpoints of `sw.session()`, where they are quick."""

    def times(self, store: str) -> float:
        """How many times faster than Spark on this store."""
        return self.theirs[store].seconds / self.mine.seconds

    def seconds(self, store: str) -> float | None:
        """What Spark took on this store, if it ran there."""
        return self.theirs[store].seconds if store in self.theirs else None


def compare(spark: SparkSession, workload: Workload) -> Comparison:
    """Run a workload three ways."""
    with tempfile.TemporaryDirectory(prefix="slackwater-bench-") as name:
        work = Path(name)
        folder = bids(work / "in", workload.keys, workload.batch)
        mine = settled(lambda: ours(spark, folder, workload), work, "ours")
        theirs: dict[str, Run] = {}
        tuned: dict[str, Run] = {}
        for kind in workload.aims:
            with store(spark, kind):
                with usual_checkpoints(spark):
                    theirs[kind] = settled(lambda: native(spark, folder, workload), work, kind)
                if sum(theirs[kind].batches) < SHORT:
                    tuned[kind] = settled(lambda: native(spark, folder, workload), work, f"{kind}-tuned")
        check(workload, mine.rows(), {kind: one.rows() for kind, one in theirs.items()})
    return Comparison(workload, mine, theirs, tuned)


def run(report: Report) -> None:
    """All workloads."""
    spark = sw.session(
        config={
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.memory": "6g",
        }
    )
    spark.sparkContext.setLogLevel("ERROR")
    # Only for what the JVM compiles on the way: else the first to be measured would pay for it.
    for workload in WORKLOADS[:2]:
        compare(spark, workload)
    _windows(report, [compare(spark, workload) for workload in WORKLOADS])
    _nothing(report, spark)


def _windows(report: Report, comparisons: Sequence[Comparison]) -> None:
    section = report.section(
        "On Spark: against Spark's own windows",
        f"{BATCHES} micro-batches of {BATCH:,} bids or more, {BIDS_A_SECOND:,} per second of event time, "
        f"watermark lag {LAG}, count, sum and maximum, Parquet in and out, same columns. Seconds per batch "
        f"(mean, without the first {WARM}); the results are equal. Spark uses its default checkpoint writer; "
        "“our checkpoints” are figures with that of `sw.session()`. Memory is the peak of the JVM and of the "
        "Python workers.",
        (
            "workload",
            "keys",
            "bids per batch",
            "Slackwater",
            "Spark, RocksDB",
            "Spark, default store",
            "times RocksDB",
            "times default",
            "RocksDB, our checkpoints",
            "default, our checkpoints",
            "memory, Slackwater",
            "memory, RocksDB",
        ),
    )
    for each in comparisons:
        section.row(
            each.workload.name,
            each.workload.keys,
            each.workload.batch,
            f"{each.mine.seconds:.2f}",
            *("–" if (took := each.seconds(kind)) is None else f"{took:.2f}" for kind in STORES),
            *(f"{each.times(kind):.1f}" if kind in each.theirs else "–" for kind in STORES),
            *(f"{each.tuned[kind].seconds:.2f}" if kind in each.tuned else "–" for kind in STORES),
            each.mine.memory,
            each.theirs["RocksDB"].memory,
        )
        for kind, aim in each.workload.aims.items():
            verdict = "met" if each.times(kind) >= aim else "MISSED"
            tuned = each.tuned.get(kind)
            section.verdict(
                f"{each.workload}: {each.times(kind):.1f} times Spark on {kind} (aim {aim:g}: {verdict})"
                + (f"; with our checkpoints {tuned.seconds / each.mine.seconds:.1f} times" if tuned else "")
            )
    draw(
        PICTURE,
        [
            f"{each.workload.name}\n{each.workload.keys:,} keys\n{each.workload.batch:,} bids"
            for each in comparisons
        ],
        {
            "Slackwater": [each.mine.seconds for each in comparisons],
            **{f"Spark, {kind}": [each.seconds(kind) for each in comparisons] for kind in STORES},
        },
        title="A micro-batch",
    )
    section.picture = f"images/{PICTURE.name}"
    report.show(section)


def _nothing(report: Report, spark: SparkSession) -> None:
    section = report.section(
        "On Spark: a batch without rows",
        "The fixed cost of a query: median of the batches without rows.",
        ("query", "seconds per batch"),
    )
    workload = WORKLOADS[0]
    schema = pa.schema(
        [
            ("auction", pa.int64()),
            ("bidder", pa.int64()),
            ("price", pa.int64()),
            ("ts", pa.timestamp("us", "UTC")),
        ]
    )
    queries: dict[str, Callable[[DataFrame], DataFrame]] = {
        "Slackwater": lambda rows: windows(rows, workload),
        "Spark, RocksDB": lambda rows: spark_windows(rows, workload),
    }
    with usual_checkpoints(spark):
        for name, build in queries.items():
            section.row(name, f"{_empty(spark, build, schema):.2f}")
    for name, build in queries.items():
        section.row(f"{name}, checkpoints of `sw.session()`", f"{_empty(spark, build, schema):.2f}")
    report.show(section)


def _empty(spark: SparkSession, build: Callable[[DataFrame], DataFrame], schema: pa.Schema) -> float:
    with tempfile.TemporaryDirectory(prefix="slackwater-bench-") as folder:
        return empty_batch_seconds(spark, build, schema, Path(folder))
