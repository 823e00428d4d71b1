"""Ending a stream: every row counts, or an error is raised; no row is late because of a limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from slackwater import windows
from slackwater.progress.watermark_policies import lag
from slackwater.spark.api.panes import Panes
from slackwater.spark.api.stream import Stream, stream
from slackwater.spark.monitor.reports import why
from slackwater.spark.versions import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from slackwater.time import SECOND
from tests.spark.running import Batch, write

pytestmark = pytest.mark.spark

ROWS = [[("a", 1, 1), ("b", 12, 2)], [("a", 2, 4)], [("b", 3, 8)]]
"""One file each; the rows of the second and third are in windows that the first watermark has passed."""
TOTALS = [("a", 0, 5), ("b", 0, 8), ("b", 10, 2)]


def rows_of(spark: SparkSession, folder: Path, **options: Any) -> DataFrame:
    schema = spark.read.parquet(str(folder / "in")).schema
    return spark.readStream.schema(schema).options(**options).parquet(str(folder / "in"))


def timed(df: DataFrame) -> Stream:
    return stream(df, event_time="at", watermark=lag("1 minute"))


def totals(df: DataFrame) -> Panes:
    return timed(df).key_by("key").window(windows.fixed("10 seconds")).agg(total=windows.sum("value"))


def run(df: DataFrame, folder: Path) -> StreamingQuery:
    writer = df.writeStream.format("parquet").option("path", str(folder / "out"))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def found(spark: SparkSession, folder: Path) -> list[tuple[Any, ...]]:
    rows = spark.read.parquet(str(folder / "out")).selectExpr("key", "unix_seconds(window.start)", "total")
    return sorted(tuple(row) for row in rows.collect())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, rows in enumerate(ROWS):
        write(tmp_path / "in", number, Batch(rows, 0, None))
    return tmp_path


def test_a_limited_source_is_read_to_its_end_in_one_run(spark: SparkSession, folder: Path) -> None:
    run(totals(rows_of(spark, folder, maxFilesPerTrigger=1)).to_df(flush=True), folder)
    assert found(spark, folder) == TOTALS
    run(totals(rows_of(spark, folder, maxFilesPerTrigger=1)).to_df(flush=True), folder)
    assert found(spark, folder) == TOTALS, "a stream that has ended stays ended"


@pytest.mark.proof
def test_a_batch_whose_rows_are_all_filtered_out_is_not_the_end(spark: SparkSession, folder: Path) -> None:
    kept = rows_of(spark, folder, maxFilesPerTrigger=1).where("value != 4")
    run(totals(kept).to_df(flush=True), folder)
    assert found(spark, folder) == [("a", 0, 1), *TOTALS[1:]]


@pytest.mark.proof
def test_a_chain_and_a_join_of_limited_sources_end_in_one_run(spark: SparkSession, folder: Path) -> None:
    rows = rows_of(spark, folder, maxFilesPerTrigger=1)
    collected: list[Any] = []

    def collect(frame: DataFrame, _: int) -> None:
        collected.extend(tuple(row) for row in frame.collect())

    def run_into_list(df: DataFrame, name: str) -> list[Any]:
        collected.clear()
        writer = df.writeStream.foreachBatch(collect).option("checkpointLocation", str(folder / name))
        writer.trigger(availableNow=True).start().awaitTermination()
        return sorted(collected)

    chain = totals(rows).agg(total=windows.sum("total")).to_df(flush=True).select("total")
    assert run_into_list(chain, "chain") == [(2,), (13,)]
    pairs = timed(rows).join(timed(rows), on=["key"], before="1 second", after="1 second").to_df(flush=True)
    found = run_into_list(pairs.select("key", "value_left", "value_right"), "join")
    assert found == [("a", 1, 1), ("a", 1, 4), ("a", 4, 1), ("a", 4, 4), ("b", 2, 2), ("b", 8, 8)]


def test_the_rows_of_a_stream_are_flushed_and_fallbacks_are_counted(
    spark: SparkSession, folder: Path
) -> None:
    async def known(row: dict[str, Any]) -> dict[str, Any]:
        if row["key"] == "b":
            raise ConnectionError("b is not known")
        return {"key": row["key"], "value": row["value"]}

    def tenfold(row: dict[str, Any]) -> dict[str, Any]:
        return {"key": row["key"], "value": row["value"] * 10}

    called = timed(rows_of(spark, folder)).map_async(known, "key string, value bigint", fallback=tenfold)
    sums = called.key_by("key").window(windows.fixed("10 seconds")).agg(total=windows.sum("value"))
    query = run(sums.filter("total > 20").select("key", "total").to_df(flush=True), folder)
    assert [tuple(row) for row in spark.read.parquet(str(folder / "out")).collect()] == [("b", 80)]
    (report,) = why(query).operators
    assert report.totals["fallbacks"] == 2


@pytest.mark.proof
def test_a_limited_source_with_another_trigger_raises(spark: SparkSession, folder: Path) -> None:
    panes = totals(rows_of(spark, folder, maxFilesPerTrigger=1)).to_df(flush=True)
    writer = panes.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(processingTime="1 second").start()
    with pytest.raises(StreamingQueryException, match=r"limited by maxFilesPerTrigger = '1'.*availableNow"):
        query.awaitTermination()


@pytest.mark.proof
def test_every_row_counts_in_batches_and_then_a_flush(spark: SparkSession, folder: Path) -> None:
    run(totals(rows_of(spark, folder, maxFilesPerTrigger=1)).to_df(), folder)
    assert found(spark, folder) == []
    run(totals(rows_of(spark, folder)).to_df(flush=True), folder)
    assert found(spark, folder) == TOTALS


@pytest.mark.proof
def test_every_row_counts_in_one_flush(spark: SparkSession, folder: Path) -> None:
    run(totals(rows_of(spark, folder)).to_df(flush=True), folder)
    assert found(spark, folder) == TOTALS
    run(totals(rows_of(spark, folder)).to_df(flush=True), folder)
    assert found(spark, folder) == TOTALS


@pytest.mark.proof
def test_a_source_with_a_built_in_limit_is_read_to_its_end(spark: SparkSession, folder: Path) -> None:
    spark.dataSource.register(OneByOne)
    run(totals(spark.readStream.format("one_by_one").load()).to_df(flush=True), folder)
    assert found(spark, folder) == [("a", 0, 3)]


@pytest.mark.proof
def test_rows_after_the_end_stop_the_query(spark: SparkSession, folder: Path) -> None:
    run(totals(rows_of(spark, folder)).to_df(flush=True), folder)
    commits = sorted(path.name for path in (folder / "checkpoint" / "commits").glob("[0-9]*"))
    write(folder / "in", 9, Batch([("a", 99, 1)], 0, None))
    for _ in range(2):  # the batch that stopped is tried again, and is not passed over
        with pytest.raises(StreamingQueryException, match="rows arrived after the end of the stream"):
            run(totals(rows_of(spark, folder)).to_df(flush=True), folder)
        assert found(spark, folder) == TOTALS
    assert commits == sorted(path.name for path in (folder / "checkpoint" / "commits").glob("[0-9]*"))


class OneByOne(DataSource):
    """A source with a built-in limit: three rows, one in each batch."""

    @classmethod
    def name(cls) -> str:
        return "one_by_one"

    def schema(self) -> str:
        return "key string, at timestamp, value bigint"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return OneByOneReader()


class OneByOneReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"row": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """There never is more."""

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        return {"row": min(start["row"] + 1, 3)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(start["row"], end["row"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        at = pa.array([(partition.value + 1) * SECOND], pa.timestamp("us", "UTC"))
        values = [pa.array(["a"]), at, pa.array([1], pa.int64())]
        yield pa.RecordBatch.from_arrays(values, ["key", "at", "value"])
