"""Every private name of Spark that `slackwater.spark.internals` uses works with the installed version."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from slackwater.spark import internals

pytestmark = pytest.mark.spark


def class_exists(spark: SparkSession, name: str) -> bool:
    """Whether the JVM can load a class."""
    return bool(spark.sparkContext._jvm.java.lang.Class.forName(name))  # type: ignore[union-attr]


@pytest.mark.parametrize("name", [internals.ROCKSDB, internals.FILE_SYSTEM_CHECKPOINTS])
def test_the_classes_exist(spark: SparkSession, name: str) -> None:
    assert class_exists(spark, name)


def test_a_classic_session_is_not_remote(spark: SparkSession) -> None:
    assert not internals.is_remote(spark)


def test_the_default_file_system_is_the_local_disk(spark: SparkSession) -> None:
    assert internals.default_file_system(spark).startswith("file:")


def test_the_interpreter_of_the_workers_exists(spark: SparkSession) -> None:
    assert Path(internals.worker_python(spark)).exists()


def test_a_streaming_query_is_recognized(spark: SparkSession) -> None:
    query = spark.readStream.format("rate").load().writeStream.format("noop").start()
    try:
        assert internals.is_streaming_query(query)
        assert not internals.is_streaming_query("query")
    finally:
        query.stop()


def test_options_of_streaming_sources_of_both_kinds(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(1).write.parquet(str(tmp_path / "rows"))
    files = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1)
    first = files.parquet(str(tmp_path / "rows"))  # a StreamingRelation
    second = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load().select("value")
    both = first.unionAll(second.toDF("id")).unionAll(spark.range(1))  # and a StreamingRelationV2
    options = list(internals.streaming_source_options(both))
    assert [one.get("maxFilesPerTrigger") for one in options] == ["1", None]
    assert [one.get("rowsPerBatch") for one in options] == [None, "5"]


def test_a_checkpoint_is_repartitioned_by_the_private_manager_where_there_is_one() -> None:
    class Manager:
        calls: ClassVar[list[tuple[str, int]]] = []

        def repartition(self, checkpoint: str, partitions: int) -> None:
            self.calls.append((checkpoint, partitions))

    session = SimpleNamespace(_streamingCheckpointManager=Manager())
    assert internals.repartition_checkpoint(cast(SparkSession, session), "checkpoint", 4)
    assert Manager.calls == [("checkpoint", 4)]
    assert not internals.repartition_checkpoint(cast(SparkSession, object()), "checkpoint", 4)


def test_the_checkpoint_manager_exists_since_spark_4_2(spark: SparkSession) -> None:
    release = tuple(map(int, spark.version.split(".")[:2]))
    assert hasattr(spark, "_streamingCheckpointManager") == (release >= (4, 2))


def test_the_causes_of_a_java_error(spark: SparkSession) -> None:
    with pytest.raises(internals.JavaError) as caught:
        class_exists(spark, "no.such.Class")
    assert list(internals.java_causes(caught.value)) == ["java.lang.ClassNotFoundException: no.such.Class"]
    assert list(internals.java_causes(ValueError("not from the JVM"))) == []


def test_schemas_convert_to_arrow_and_back() -> None:
    schema = StructType([StructField("n", LongType()), StructField("at", TimestampType())])
    arrow = internals.to_arrow_schema(schema, timezone="UTC")
    assert arrow.field("at").type == pa.timestamp("us", "UTC")
    assert internals.from_arrow_schema(arrow) == schema
    assert internals.from_arrow_type(pa.int64()) == LongType()
