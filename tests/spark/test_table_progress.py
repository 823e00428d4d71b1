"""Event time that flows through tables: completeness as a watermark, and streams with noted times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import slackwater as sw
from slackwater.errors import InvalidArgument, SlackwaterError, UnknownStream
from slackwater.progress.completeness import Completeness
from slackwater.spark.wire.clock_source import Ticks
from slackwater.sql.commit_owner import Committer
from slackwater.streams.log.catalog import Streams
from slackwater.streams.maintenance.mark_cycle import CycleRunner
from slackwater.streams.settings import MarkSettings, StreamSettings
from slackwater.tables.lake_ledger import BatchCommit
from slackwater.tables.parquet_table import ParquetTable
from slackwater.time import SECOND
from tests.spark.running import Batch, collector, run_available, write
from tests.tables.lakes import COLUMNS, changes

pytestmark = pytest.mark.spark

SCHEMA = "key string, at timestamp, value long, origin string"


@pytest.mark.proof
def test_windows_fire_when_the_table_is_complete(spark: SparkSession, tmp_path: Path) -> None:
    table = ParquetTable(str(tmp_path / "totals"))
    table.prepare(COLUMNS, create=True)
    collected: dict[int, list[Any]] = {}
    runs: list[list[tuple[Any, ...]]] = []
    steps: list[tuple[list[tuple[Any, ...]], int | None]] = [
        ([("a", 5, 1), ("a", 55, 2)], None),  # rows alone do not move the watermark
        ([("a", 7, 3), ("b", 12, 4)], 10),
        ([("a", 8, 5)], 60),  # late: the table had stated that all rows before 10 are there
    ]
    query = None
    for number, (rows, complete) in enumerate(steps):
        write(tmp_path / "in", number, Batch(rows, 0, None))
        if complete is not None:
            stated = Completeness(complete * SECOND, complete * SECOND)
            table.merge(COLUMNS, changes(), BatchCommit("q", number, Committer("q"), stated))
        df = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in"))
        totals = sw.stream(df, event_time="at", watermark=sw.completeness(table.name)).key_by("key")
        panes = totals.window(sw.fixed("10 seconds")).agg(total=sw.sum("value"), late="emit")
        before = len(collected)
        query = run_available(panes.to_df(), tmp_path / "checkpoint", collector(collected))
        new = [row for batch in sorted(collected)[before:] for row in collected[batch]]
        runs.append(sorted((row["key"], row.total, row.pane.kind) for row in new))
    assert runs[0] == []
    assert runs[1] == [("a", 4, "pane")]
    assert runs[2] == [("a", 2, "pane"), ("a", 5, "late"), ("b", 4, "pane")]
    assert query is not None
    report = sw.why(query).operators[-1]
    assert report.watermark == 60 * SECOND
    assert [origin.name for origin in report.origins.listed] == [table.name]


def test_invalid_arguments(spark: SparkSession, tmp_path: Path) -> None:
    ParquetTable(str(tmp_path / "totals")).prepare(COLUMNS, create=True)
    write(tmp_path / "in", 0, Batch([("a", 5, 1)], 0, None))
    watermark = sw.completeness(f"parquet:{tmp_path}/totals", lag="10 seconds")
    limited = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    with pytest.raises(
        InvalidArgument, match="may be ahead of the rows that a batch has read: a source is limited by"
    ):
        sw.stream(limited, event_time="at", watermark=watermark)
    df = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in"))
    with pytest.raises(InvalidArgument, match="origin = 'origin': cannot be combined with the completeness"):
        sw.stream(df, event_time="at", watermark=watermark, origin="origin")
    with pytest.raises(InvalidArgument, match="table = 'totals': is not the address of a table"):
        sw.completeness("totals")
    rows = spark.read.parquet(str(tmp_path / "in"))
    windowed = sw.stream(rows, event_time="at", watermark=sw.lag("0 seconds")).window(sw.fixed("10 seconds"))
    panes = windowed.agg(total=sw.sum("value"))
    with pytest.raises(InvalidArgument, match="panes = 'a batch DataFrame': is not streaming"):
        sw.write_stream(panes, "shop/totals", store="sqlite:///none.db")


COLUMNS_OF_TOTALS = pa.schema(
    [
        ("key", pa.string()),
        ("window_start", pa.timestamp("us", "UTC")),
        ("window_end", pa.timestamp("us", "UTC")),
        ("total", pa.int64()),
    ]
)


def test_a_stream_that_does_not_fit_is_found_before_the_query_starts(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    df = spark.readStream.schema(SCHEMA).parquet(str(tmp_path))
    keyed = sw.stream(df, event_time="at", watermark=sw.lag("0 seconds")).key_by("key")
    panes = keyed.window(sw.fixed("10 seconds")).agg(total=sw.sum("value"))
    with pytest.raises(SlackwaterError, match=r"store\.db"):
        sw.write_stream(panes, "shop/totals", store=store)
    with Streams.open(store, create=True) as streams:
        streams.create("shop/bids", columns=pa.schema([("key", pa.string())]))
        streams.create("shop/totals", columns=COLUMNS_OF_TOTALS)
    with pytest.raises(
        InvalidArgument, match="'shop/bids': has the columns key, and the panes have key, window_"
    ):
        sw.write_stream(panes, "shop/bids", store=store)
    with pytest.raises(InvalidArgument, match="key = 'keys': column not found; available: key"):
        sw.write_stream(panes, "shop/totals", store=store, key="keys")
    with pytest.raises(UnknownStream, match="shop/total"):
        sw.write_stream(panes, "shop/total", store=store)


@pytest.mark.proof
def test_a_derived_stream_drives_windows(spark: SparkSession, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    quick = StreamSettings(marks=MarkSettings(period="1 microsecond"))
    with Streams.open(store, create=True) as streams:
        streams.create("shop/totals", columns=COLUMNS_OF_TOTALS, settings=quick)
    for number, rows in enumerate(([("a", 5, 1), ("b", 12, 2)], [("a", 14, 4)], [("a", 63, 8)])):
        write(tmp_path / "in", number, Batch(rows, 0, None))
    df = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    clock = Ticks(tuple(number * SECOND for number in (1, 2, 3)))
    first = sw.stream(df, event_time="at", watermark=sw.lag("0 seconds"), clock=clock).key_by("key")
    panes = first.window(sw.fixed("10 seconds")).agg(total=sw.sum("value"))
    writer = sw.write_stream(panes, "shop/totals", store=store, key="key")
    run_writer(writer, tmp_path / "first")
    with Streams.open(store) as streams:
        CycleRunner(streams.store).run(streams.get("shop/totals").id)
    # the window that ends at 70 is open, so results up to 63 are complete
    assert sw.complete_until("stream:shop/totals", store=store) == 63 * SECOND

    second = sw.read_stream(spark, "shop/totals", store=store, event_time="window_end")
    hours = second.window(sw.fixed("30 seconds")).agg(total=sw.sum("total"))
    collected: dict[int, list[Any]] = {}
    run_available(hours.to_df(), tmp_path / "second", collector(collected))
    found = {(row.window.start.second, row.total) for rows in collected.values() for row in rows}
    assert found == {(0, 7)}


def run_writer(writer: Any, checkpoint: Path) -> None:
    started = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    started.awaitTermination()
