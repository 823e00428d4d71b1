"""Checkpoints of stopped queries: changed queries go on, state is shown, and its partitions change."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

import slackwater as sw
from slackwater.cli.app import app
from slackwater.errors import InvalidArgument
from slackwater.spark.api.stream import Stream
from slackwater.spark.checkpoint.rescaling import rescale
from slackwater.spark.checkpoint.state_reader import operator_states
from slackwater.spark.wire.clock_source import Ticks
from slackwater.time import SECOND
from tests.spark.running import Batch, collector, run_available, write

pytestmark = pytest.mark.spark


@dataclass
class Query:
    """A query over files, run to the end of the available ones again and again with one checkpoint."""

    spark: SparkSession
    folder: Path
    batches: dict[int, list[Any]] = field(default_factory=dict)
    files: int = 0
    buckets: int = 4

    @property
    def checkpoint(self) -> str:
        return str(self.folder / "checkpoint")

    def add(self, *rows: tuple[str, int, int]) -> Stream:
        """Write a file of rows; returns the stream of all files."""
        write(self.folder / "in", self.files, Batch(rows, 0, None))
        self.files += 1
        files = self.spark.readStream.schema(self.spark.read.parquet(str(self.folder / "in")).schema)
        df = files.option("maxFilesPerTrigger", 1).parquet(str(self.folder / "in"))
        ticks = Ticks(tuple(number * SECOND for number in range(self.files)))
        return sw.stream(
            df, event_time="at", watermark=sw.lag("0 seconds"), clock=ticks, buckets=self.buckets
        ).key_by("key")

    def run(self, df: DataFrame) -> list[Any]:
        """Run the query; returns the rows of its last micro-batch."""
        run_available(df, Path(self.checkpoint), collector(self.batches))
        return self.batches[max(self.batches)]


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> Query:
    return Query(spark, tmp_path)


ROWS = tuple((f"k{number}", 1 + number % 5, number) for number in range(12))


def test_a_query_changes_is_inspected_and_rescaled(query: Query, spark: SparkSession) -> None:
    """One checkpoint through its life: every start of a query takes seconds."""
    first = query.add(*ROWS).window(sw.fixed("10 seconds")).trigger(sw.every(count=5))
    query.run(first.agg(n=sw.count()).to_df())

    # Read without running: four buckets, one window, twelve keys.
    (found,) = operator_states(spark, query.checkpoint)
    assert (found.kind, found.partitions, len(found.buckets)) == ("window", 2, 4)
    assert (found.open_windows, found.keys, found.dropped_late) == (1, 12, 0)
    assert found.description == (
        "fixed(size=10 s) key=(key) accumulating repeatedly(after_count(5)) n=count()"
    )
    assert str(found.watermarks["default"]) == "1970-01-01 00:00:05+00:00"
    assert [(each["origin"], each["status"]) for each in found.origins] == [("input", "active")]
    rows = sw.state(spark, query.checkpoint)
    assert rows.selectExpr("sum(keys)", "count(*)").first() == (12, 4)
    assert rows.selectExpr("inline(windows)").selectExpr("sum(keys)").first() == (12,)

    # A damaged copy is reported as such.
    copy = query.folder / "copy"
    for damaged in ("offsets/0", "state/0/0/1.zip"):
        shutil.copytree(query.checkpoint, copy, ignore=shutil.ignore_patterns("*.crc"))
        (copy / damaged).write_bytes((copy / damaged).read_bytes()[:20])
        with pytest.raises(InvalidArgument, match=r"copy': .*cannot be read \(.*; give the checkpointLoc"):
            sw.state(spark, copy)
        shutil.rmtree(copy)

    # The same state in one partition, and a changed query that goes on with it.
    assert rescale(spark, query.checkpoint, 1) == 4
    changed = query.add(("k0", 6, 100), ("k1", 7, 100), ("new", 8, 100))
    windowed = changed.window(sw.fixed("10 seconds")).trigger(sw.every(count=2)).allowed_lateness("1 hour")
    panes = query.run(windowed.agg(n=sw.count(), total=sw.sum("value")).to_df())
    assert sorted((row["key"], row["n"], row["total"]) for row in panes) == [
        ("k0", 2, None),
        ("k1", 2, None),
    ]
    (found,) = operator_states(spark, query.checkpoint)
    assert (found.partitions, found.keys) == (1, 13)

    # A change that the state cannot follow names the difference, and changes nothing.
    refused = query.add(("k0", 9, 1)).window(sw.fixed("20 seconds")).agg(n=sw.count())
    with pytest.raises(
        StreamingQueryException, match=r"window was fixed\(size=10 s\) and is now fixed\(size=20 s"
    ):
        query.run(refused.to_df())

    # Checks of a rescale.
    for partitions, problem in (
        (1, "is already the number of partitions"),
        (3, "does not divide the number of buckets"),
    ):
        with pytest.raises(InvalidArgument, match=problem):
            rescale(spark, query.checkpoint, partitions)


@pytest.mark.proof
def test_every_operator_of_a_chain_is_listed(
    query: Query, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = query.add(*ROWS).window(sw.sessions("2 seconds")).allowed_lateness("1 hour").agg(n=sw.count())
    query.run(first.agg(all=sw.sum("n")).to_df())
    totals, sessions = operator_states(spark, query.checkpoint)  # Spark numbers them from the end
    assert (sessions.open_windows, sessions.keys) == (12, 12)
    assert totals.description.startswith("inherited() key=() accumulating ")
    assert {each["origin"] for each in totals.origins} == {f"bucket {number}" for number in sessions.buckets}

    monkeypatch.setattr("slackwater.cli.checkpoint._local_session", lambda: spark)
    shown = CliRunner().invoke(app, ["state", query.checkpoint, "--json"])
    assert [each["open_windows"] for each in json.loads(shown.stdout)] == [totals.open_windows, 12]


def test_a_folder_that_is_not_a_checkpoint_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="checkpoint = "):
        sw.state(spark, str(tmp_path / "nothing"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidArgument, match="checkpoint = "):
        sw.state(spark, str(tmp_path / "empty"))


def test_a_checkpoint_of_another_library_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 2).load()
    counts = rates.groupBy("value").count().writeStream.format("noop").outputMode("update")
    query = counts.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination()
    with pytest.raises(InvalidArgument, match="has no operators of Slackwater, only stateStoreSave"):
        sw.state(spark, str(tmp_path))
