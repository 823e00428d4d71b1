"""Panes that the tasks of an operator write to a stream, compared with those that go through Spark's sink."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import slackwater as sw
from slackwater.spark.api.panes import Panes
from slackwater.streams.log.catalog import Stream, Streams
from slackwater.streams.log.scan import scan
from slackwater.streams.spark import stream_output
from slackwater.streams.time import mark_store
from slackwater.time import SECOND
from tests.spark.running import Batch, ended, write

pytestmark = pytest.mark.spark

SCHEMA = "key string, at timestamp, value long, origin string"
COLUMNS = pa.schema(
    [
        ("key", pa.string()),
        ("window_start", pa.timestamp("us", "UTC")),
        ("window_end", pa.timestamp("us", "UTC")),
        ("total", pa.int64()),
        ("mean", pa.float64()),
        ("values", pa.list_(pa.int64())),
        ("last", pa.string()),
        ("retraction", pa.bool_()),
        ("kind", pa.string()),
    ]
)
KEYS = ("a", "b", "ä")


def panes(spark: SparkSession, folder: Path) -> Panes:
    """Panes with corrections, late rows, lists and text, in more buckets than partitions."""
    df = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))
    windowed = (
        sw.stream(df, event_time="at", watermark=sw.lag("0 seconds"), buckets=8)
        .key_by("key")
        .window(sw.fixed("10 seconds"))
        .allowed_lateness("10 seconds")
        .accumulating_and_retracting()
    )
    return windowed.agg(
        total=sw.sum("value"),
        mean=sw.mean("value"),
        values=sw.collect("value"),
        last=sw.last("origin"),
        late="emit",
    )


def write_rows(folder: Path) -> None:
    """Four batches: two windows, a correction of the first one, a row that is too late, and no row at all."""
    rows: list[list[tuple[Any, ...]]] = [
        [(key, second, value) for value, key in enumerate(KEYS) for second in (1, 4, 13)],
        [("a", 15, None), ("b", 2, 7)],
        [("ä", 33, 8), ("a", 3, 9)],
        [("a", 1, 5)],
    ]
    for number, some in enumerate(rows):
        write(folder, number, Batch(some, 0, None))


def events(stream: Stream) -> list[tuple[Any, ...]]:
    """All events, in the order of each routing key."""
    found = [row for batch in scan(stream, stream.head()) for row in batch.events.to_pylist()]
    rows = [tuple(row[name] for name in COLUMNS.names) for row in found]
    return sorted(rows, key=lambda row: str(row[0]))


def noted(stream: Stream) -> list[int | None]:
    marks = stream.store.read(lambda connection: mark_store.writer_marks(connection, stream.id))
    return [mark.time for mark in marks]


def test_tasks_write_what_the_sink_of_spark_writes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    write_rows(tmp_path / "in")
    with Streams.open(store, create=True) as streams:
        direct, through = (
            streams.create(f"shop/{name}", segments=3, columns=COLUMNS) for name in ("direct", "through")
        )
        ended(
            sw.write_stream(panes(spark, tmp_path / "in"), "shop/direct", store=store, key="key").option(
                "checkpointLocation", str(tmp_path / "direct")
            )
        )
        monkeypatch.setattr(stream_output, "pins_threads", lambda _: False)
        ended(
            sw.write_stream(panes(spark, tmp_path / "in"), "shop/through", store=store, key="key").option(
                "checkpointLocation", str(tmp_path / "through")
            )
        )
        written = events(direct)
        assert written == events(through)
        kinds = {
            (row[COLUMNS.names.index("kind")], row[COLUMNS.names.index("retraction")]) for row in written
        }
        assert kinds == {("pane", False), ("pane", True), ("late", None)}
        assert noted(direct) == noted(through)


def test_a_repeated_batch_is_stored_once(spark: SparkSession, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    write_rows(tmp_path / "in")
    with Streams.open(store, create=True) as streams:
        stream = streams.create("shop/totals", columns=COLUMNS)
        checkpoint = tmp_path / "checkpoint"
        ended(
            sw.write_stream(panes(spark, tmp_path / "in"), "shop/totals", store=store).option(
                "checkpointLocation", str(checkpoint)
            )
        )
        once, commits = (
            events(stream),
            sorted((checkpoint / "commits").glob("[0-9]*"), key=lambda p: int(p.name)),
        )
        # as if the driver had been killed after the commit of the stream and before that of the query
        commits[-1].unlink()
        (checkpoint / "commits" / f".{commits[-1].name}.crc").unlink(missing_ok=True)
        ended(
            sw.write_stream(panes(spark, tmp_path / "in"), "shop/totals", store=store).option(
                "checkpointLocation", str(checkpoint)
            )
        )
        assert events(stream) == once
        assert max(time for time in noted(stream) if time is not None) >= 23 * SECOND


def test_a_writer_id_belongs_to_one_query(spark: SparkSession, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    write_rows(tmp_path / "in")

    def run(checkpoint: str, takeover_from: str | None = None) -> StreamingQuery:
        rows = panes(spark, tmp_path / "in")
        writer = sw.write_stream(
            rows, "shop/totals", store=store, writer="totals", takeover_from=takeover_from
        )
        return ended(writer.option("checkpointLocation", str(tmp_path / checkpoint)))

    with Streams.open(store, create=True) as streams:
        stream = streams.create("shop/totals", columns=COLUMNS)
        owner = run("first")
        once = events(stream)
        with pytest.raises(Exception, match=r"belongs to query .*takeover_from"):
            run("second")
        assert events(stream) == once
        run("third", takeover_from=str(owner.id))
        assert len(events(stream)) == 2 * len(once), "a query that takes over appends its own batches"


def test_a_batch_that_fails_in_a_task_stores_nothing(spark: SparkSession, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    write_rows(tmp_path / "in")
    with Streams.open(store, create=True) as streams:
        narrow = pa.schema(
            [field if field.name != "total" else pa.field("total", pa.int8()) for field in COLUMNS]
        )
        stream = streams.create("shop/totals", columns=narrow)
        rows = [("a", 1, 1_000), ("b", 40, 1)]
        write(tmp_path / "large", 0, Batch(rows, 0, None))
        writer = sw.write_stream(panes(spark, tmp_path / "large"), "shop/totals", store=store, key="key")
        with pytest.raises(Exception, match="total"):
            ended(writer.option("checkpointLocation", str(tmp_path / "checkpoint")))
        assert events(stream) == []
