"""Panes into a Delta Lake table: `merge_into` against a merge that users write in ``foreachBatch``.

Spark's own ``MERGE INTO`` for Delta needs a jar that PyPI's ``delta-spark`` does not contain, so the peer is
the same library that `merge_into` uses, deltalake, called once for each batch with the collected rows.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import slackwater as sw
from benchmarks.lake_merge_cost import contents, merge_by_hand
from benchmarks.report import Report, best
from benchmarks.streams_spark import local_session
from slackwater.spark.api.lake_merge import merge_into

ROWS = int(os.environ.get("BENCH_ROWS", "40_000"))
BATCHES = 12
KEYS = 5_000
SKIPPED = 3
RUNS = 3
AIM = 1.0


def _make_panes(spark: SparkSession, folder: Path) -> Path:
    """Panes with corrections and retractions, one file for each batch."""
    source, panes = folder / "bids", folder / "panes"
    for number in range(BATCHES):
        rows = spark.range(number * ROWS, (number + 1) * ROWS, numPartitions=1).selectExpr(
            f"concat('auction-', hash(id) % {KEYS}) auction", "id % 97 price",
            f"timestamp_micros(1704067200000000 + id * 60000000000 div {ROWS}) at",
        )  # fmt: skip
        rows.write.mode("append").parquet(str(source))
    panes.mkdir()

    def save(batch: DataFrame, number: int) -> None:
        batch.coalesce(1).write.parquet(str(folder / "saved" / str(number)))
        for file in (folder / "saved" / str(number)).glob("*.parquet"):
            file.rename(panes / f"{number:05d}.parquet")

    schema = "auction string, price long, at timestamp"
    bids = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(source))
    made = (
        sw.stream(bids, event_time="at", watermark=sw.lag("30 seconds"))
        .key_by("auction")
        .window(sw.tumbling("5 minutes"))
        .trigger(sw.after_watermark(early=sw.every(count=1), late=sw.every(count=1)))
        .accumulating_and_retracting()
        .agg(bids=sw.count(), total=sw.sum("price"))
        .to_df()
    )
    query = made.writeStream.foreachBatch(save).option("checkpointLocation", str(folder / "make"))
    query.trigger(availableNow=True).start().awaitTermination()
    return panes


def _written_by_hand(frame: DataFrame, table: str) -> DataStreamWriter:
    def write(batch: DataFrame, number: int) -> None:
        rows = pl.DataFrame(pl.from_arrow(batch.toArrow()))
        merge_by_hand(table, rows.unnest("window").unnest("pane"))

    return frame.writeStream.foreachBatch(write)


def _with_slackwater(frame: DataFrame, table: str) -> DataStreamWriter:
    return merge_into(frame, f"delta:{table}", key=["auction"], create=True)


def _measure(
    spark: SparkSession, panes: Path, folder: Path, write: Callable[[DataFrame, str], DataStreamWriter]
) -> tuple[float, pl.DataFrame]:
    schema = spark.read.parquet(str(panes)).schema
    frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(panes))
    writer = write(frame, str(folder / "table")).option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    seconds = [
        one["durationMs"]["triggerExecution"] / 1e3 for one in query.recentProgress if one["numInputRows"]
    ]
    return statistics.mean(seconds[SKIPPED:]), contents(str(folder / "table"))


def run(report: Report) -> None:
    """The same panes into two tables, in turns."""
    section = report.section(
        "Panes into a Delta Lake table",
        f"The same panes, with corrections and retractions, of {BATCHES} micro-batches of {ROWS:,} bids and "
        f"{KEYS:,} keys, read from files and merged into a table that starts empty. Peer: `foreachBatch` "
        "with `toArrow()`, the newest pane of each row by Polars, and one `merge` of deltalake; it is not "
        "exactly once. Spark's `MERGE INTO` was not run: its connector for Delta is a jar on Maven, which "
        f"`delta-spark` from PyPI does not contain. Seconds per batch (mean, without the first {SKIPPED}), "
        f"best of {RUNS} runs in turns; both tables are equal.",
        ["", "seconds per batch"],
    )
    ways: dict[str, Any] = {"merge_into": _with_slackwater, "foreachBatch and merge": _written_by_hand}
    took: dict[str, list[float]] = {way: [] for way in ways}
    tables: list[pl.DataFrame] = []
    with TemporaryDirectory() as name:
        folder = Path(name)
        spark = local_session()
        try:
            panes = _make_panes(spark, folder)
            count = spark.read.parquet(str(panes)).count()
            for number in range(RUNS):
                tables.clear()
                for way, write in ways.items():
                    seconds, table = _measure(spark, panes, folder / f"{way}-{number}", write)
                    took[way].append(seconds)
                    tables.append(table)
                assert tables[0].height > KEYS
                assert tables[0].equals(tables[1])
        finally:
            spark.stop()
    fastest = {way: best(seconds) for way, seconds in took.items()}
    for way, seconds in fastest.items():
        section.row(way, f"{seconds:.2f}")
    ratio = fastest["foreachBatch and merge"] / fastest["merge_into"]
    said = "met" if ratio >= AIM else "MISSED"
    section.verdict(
        f"{count:,} pane rows into {tables[0].height:,} rows: merge_into is {ratio:.2f} times as fast "
        f"(aim: at least equal): {said}"
    )
    report.show(section)
