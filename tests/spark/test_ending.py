"""Ending a stream: every row counts, or an error is raised; no row is late because of a limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from slackwater import windows
from slackwater.errors import InvalidArgument
from slackwater.progress.generator import lag
from slackwater.spark.api.stream import Panes, Stream, stream
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


def run(df: DataFrame, folder: Path) -> None:
    writer = df.writeStream.format("parquet").option("path", str(folder / "out"))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()


def found(spark: SparkSession, folder: Path) -> list[tuple[Any, ...]]:
    rows = spark.read.parquet(str(folder / "out")).selectExpr("key", "unix_seconds(window.start)", "total")
    return sorted(tuple(row) for row in rows.collect())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, rows in enumerate(ROWS):
        write(tmp_path / "in", number, Batch(rows, 0, None))
    return tmp_path


@pytest.mark.parametrize(
    "through",
    [
        totals,
        lambda df: totals(df).agg(total=windows.sum("total")),
        lambda df: timed(df).join(timed(df), on=["key"], before="1 second", after="1 second"),
    ],
    ids=["windows", "a chain", "a join"],
)
def test_a_limited_source_raises_before_anything_runs(
    spark: SparkSession, folder: Path, through: Callable[[DataFrame], Any]
) -> None:
    limited = through(rows_of(spark, folder, MAXFILESPERTRIGGER=2))
    with pytest.raises(InvalidArgument, match=r"limited by MAXFILESPERTRIGGER = '2'.*without that option"):
        limited.to_df(flush=True)
    limited.to_df()


def test_a_limited_source_of_the_other_kind_raises_too(spark: SparkSession) -> None:
    ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    panes = stream(ticks, event_time="timestamp", watermark=lag("1 minute")).window(
        windows.fixed("10 seconds")
    )
    with pytest.raises(InvalidArgument, match="limited by rowsPerBatch = '5'"):
        panes.agg(n=windows.count()).to_df(flush=True)


@pytest.mark.proof
def test_every_row_counts_in_batches_and_then_a_flush(spark: SparkSession, folder: Path) -> None:
    run(totals(rows_of(spark, folder, maxFilesPerTrigger=1)).to_df(), folder)
    assert found(spark, folder) == []
    run(totals(rows_of(spark, folder)).to_df(flush=True), folder)
    assert found(spark, folder) == TOTALS


def test_every_row_counts_in_one_flush(spark: SparkSession, folder: Path) -> None:
    run(totals(rows_of(spark, folder)).to_df(flush=True), folder)
    assert found(spark, folder) == TOTALS
    run(totals(rows_of(spark, folder)).to_df(flush=True), folder)
    assert found(spark, folder) == TOTALS


@pytest.mark.proof
def test_rows_after_the_end_stop_the_query(spark: SparkSession, folder: Path) -> None:
    spark.dataSource.register(OneByOne)
    panes = totals(spark.readStream.format("one_by_one").load()).to_df(flush=True)
    for _ in range(2):  # the batch that stopped is tried again, and is not passed over
        with pytest.raises(StreamingQueryException, match="rows arrived after the end of the stream"):
            run(panes, folder)
        assert found(spark, folder) == [("a", 0, 1)]
    assert sorted(path.name for path in (folder / "checkpoint" / "commits").glob("[0-9]*")) == ["0"]


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
