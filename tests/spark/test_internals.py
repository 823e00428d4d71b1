"""Every private name of Spark that `slackwater.spark.internals` uses works with the installed version."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic, sleep
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from slackwater import windows
from slackwater.progress.watermark_policies import lag
from slackwater.spark import internals, versions
from slackwater.spark.api.stream import stream

pytestmark = pytest.mark.spark


def class_exists(spark: SparkSession, name: str) -> bool:
    """Whether the JVM can load a class."""
    return bool(spark.sparkContext._jvm.java.lang.Class.forName(name))  # type: ignore[union-attr]


@pytest.mark.parametrize("name", [internals.ROCKSDB, versions.FILE_SYSTEM_CHECKPOINTS])
def test_the_classes_exist(spark: SparkSession, name: str) -> None:
    assert class_exists(spark, name)


def test_a_class_is_compiled_and_added_to_the_jvm(spark: SparkSession) -> None:
    name = "org.apache.hadoop.fs.SlackwaterCompiled"
    source = (
        "package org.apache.hadoop.fs; public class SlackwaterCompiled { public int seven() { return 7; } }"
    )
    compiled = internals.compile_java(source)
    assert list(compiled) == [name]
    assert internals.load_classes([name]) == 0
    internals.define_classes("org.apache.hadoop.fs.RawLocalFileSystem", compiled)
    assert internals.load_classes([name]) == 1
    assert spark.sparkContext._jvm.org.apache.hadoop.fs.SlackwaterCompiled().seven() == 7  # type: ignore[union-attr]


def test_a_class_does_not_exist_without_those_inside_it(spark: SparkSession) -> None:
    source = (
        "package org.apache.hadoop.fs; public class SlackwaterOuter {"
        "  public int seven() { return new Inner().seven(); }"
        "  public static class Inner { public int seven() { return 7; } } }"
    )
    compiled = internals.compile_java(source)
    outer, inner = sorted(compiled)
    for damaged in ({outer: compiled[outer], inner: b"damaged"}, {inner: b"damaged", outer: compiled[outer]}):
        with pytest.raises(internals.JavaError):
            internals.define_classes("org.apache.hadoop.fs.RawLocalFileSystem", damaged)
        assert internals.load_classes([outer, inner]) == 0
    internals.define_classes(
        "org.apache.hadoop.fs.RawLocalFileSystem", {outer: compiled[outer], inner: compiled[inner]}
    )
    assert spark.sparkContext._jvm.org.apache.hadoop.fs.SlackwaterOuter().seven() == 7  # type: ignore[union-attr]


def test_the_build_of_hadoop_is_that_of_the_jvm(spark: SparkSession) -> None:
    version, *rest = internals.hadoop_build().split(" from ")
    assert list(internals.spark_jars().glob(f"hadoop-*-{version}.jar"))
    assert rest, "it names the revision"


def test_settings_of_hadoop(spark: SparkSession) -> None:
    assert internals.hadoop_setting("fs.defaultFS") == "file:///"
    assert internals.hadoop_setting("fs.no.such.setting") is None


def test_the_sources_of_settings_are_forgotten(spark: SparkSession) -> None:
    jvm: Any = spark.sparkContext._jvm
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    loaded = jvm.org.apache.hadoop.conf.Configuration()
    name = "io.file.buffer.size"
    assert loaded.getPropertySources(name) is not None, "Hadoop still records them"
    assert settings.getPropertySources(name) is None, "forgotten by sw.session()"
    settings.set("shop.of.a.test", "7")
    internals.forget_setting_sources(spark)
    assert settings.get("shop.of.a.test") == "7"
    assert settings.getPropertySources("shop.of.a.test") is None
    settings.unset("shop.of.a.test")


def test_settings_of_a_hadoop_that_works_differently_stay_as_they_are(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(internals, "get_method", lambda *_: spark.sparkContext._jvm.java.NoSuchMethod)  # type: ignore[union-attr]
    internals.forget_setting_sources(spark)


def test_a_classic_session_is_not_remote(spark: SparkSession) -> None:
    assert not internals.is_remote(spark)


def test_threads_of_a_session_are_pinned(spark: SparkSession) -> None:
    assert internals.pins_threads(spark) == (os.environ.get("PYSPARK_PIN_THREAD", "true") == "true")


def test_the_default_file_system_is_the_local_disk(spark: SparkSession) -> None:
    assert internals.default_file_system(spark).startswith("file:")


def test_the_interpreter_of_the_workers_exists(spark: SparkSession) -> None:
    assert Path(internals.worker_python(spark)).exists()


def test_workers_do_not_import_from_the_archives_of_spark(spark: SparkSession) -> None:
    def imported(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyspark

        yield pa.RecordBatch.from_pydict({"file": [str(pyspark.__file__)]})

    (row,) = spark.range(1, numPartitions=1).mapInArrow(imported, "file string").collect()
    assert Path(row.file).is_file(), "not in an archive"
    assert os.environ["PYSPARK_PYTHON"] == sys.executable, (
        "programs that this one starts do not need the script"
    )


def test_the_session_is_active_in_the_thread_that_registers_a_source(spark: SparkSession) -> None:
    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "source_of_another_thread"

    def register() -> tuple[bool, bool]:
        before = SparkSession.getActiveSession() is not None
        internals.register_source(spark, Source)
        return before, SparkSession.getActiveSession() is not None

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(register).result() == (False, True)


def test_no_process_looks_for_data_sources_if_no_package_has_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = spark.sparkContext._jvm.org.apache.spark.sql.execution.datasources  # type: ignore[union-attr]
    manager = getattr(getattr(known, "DataSourceManager$"), "MODULE$")
    assert internals.skip_source_lookup()
    assert manager.dataSourceBuilders().get().isEmpty()
    (tmp_path / "pyspark_shop.py").touch()
    with monkeypatch.context() as patched:
        patched.syspath_prepend(tmp_path)
        assert not internals.skip_source_lookup()
    with monkeypatch.context() as patched:
        patched.setenv("PYSPARK_DRIVER_PYTHON", "jupyter")
        assert not internals.skip_source_lookup()


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


def test_a_checkpoint_is_not_repartitioned_where_there_is_no_manager() -> None:
    """Where there is one, `test_checkpoints` repartitions a real checkpoint with it."""
    assert not internals.repartition_checkpoint(cast(SparkSession, object()), "checkpoint", 4)


def test_the_checkpoint_manager_exists_since_spark_4_2(spark: SparkSession) -> None:
    release = tuple(map(int, spark.version.split(".")[:2]))
    assert hasattr(spark, "_streamingCheckpointManager") == (release >= (4, 2))


def test_the_causes_of_a_java_error(spark: SparkSession) -> None:
    with pytest.raises(internals.JavaError) as caught:
        class_exists(spark, "no.such.Class")
    assert list(internals.java_causes(caught.value)) == ["java.lang.ClassNotFoundException: no.such.Class"]
    assert list(internals.java_causes(ValueError("not from the JVM"))) == []


def test_the_observed_metrics_of_every_batch_are_reported(spark: SparkSession) -> None:
    found: list[tuple[str, str | None, Mapping[str, str]]] = []
    internals.listen_to_metrics(spark, lambda *metrics: found.append(metrics))
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    counted = rows.observe("counted", sql.count("*").alias("rows"), sql.max("value").alias("last"))
    query = counted.writeStream.format("noop").queryName("observed").start()
    try:
        assert until(lambda: any(name == "observed" for _, name, _ in found), seconds=60)
    finally:
        query.stop()
    identity, _, metrics = next(one for one in found if one[1] == "observed")
    assert identity == str(query.id)
    assert json.loads(metrics["counted"]) == {"rows": 5, "last": 4}


def test_the_offsets_of_every_batch_are_reported(spark: SparkSession) -> None:
    found: list[list[tuple[str | None, str | None]]] = []
    internals.listen_to_offsets(spark, lambda offsets: found.append(list(offsets)))
    one, two = (
        spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).load() for rows in (5, 6)
    )
    query = one.union(two).writeStream.format("noop").start()
    try:
        assert until(lambda: any(len(one) == 2 for one in found), seconds=60)
    finally:
        query.stop()
    offsets = next(one for one in found if len(one) == 2)
    ends = [json.loads(end)["offset"] for _, end in offsets if end is not None]
    assert ends == [5, 6]


def test_errors_of_queries_are_not_logged(spark: SparkSession, query_log: list[str]) -> None:
    with internals.without_query_log(), pytest.raises(AnalysisException):
        spark.range(1).where("no_column > 1")
    assert query_log == []
    with pytest.raises(AnalysisException):
        spark.range(1).where("no_column > 1")
    assert any("no_column" in message for message in query_log), "PySpark logs it"


def test_errors_of_queries_are_logged_again_after_the_last_of_several_blocks(query_log: list[str]) -> None:
    loggers = [PySparkLogger.getLogger(name) for name in internals.QUERY_LOGGERS]
    first, second = internals.without_query_log(), internals.without_query_log()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert all(logger.disabled for logger in loggers), "another thread is still in its block"
    second.__exit__(None, None, None)
    assert not any(logger.disabled for logger in loggers)


def test_classes_are_loaded_and_those_that_cannot_be_are_skipped(spark: SparkSession) -> None:
    assert internals.load_classes([internals.ROCKSDB, "no.such.Class"]) == 1


def monitors(spark: SparkSession) -> int:
    """The number of threads that look for idle Python workers."""
    named = f"Idle Worker Monitor for {internals.worker_python(spark)}"
    threads = cast(Any, spark.sparkContext)._jvm.org.apache.commons.lang3.ThreadUtils
    return int(threads.findThreadsByName(named).size())


def until(condition: Callable[[], bool], seconds: float = 10) -> bool:
    """Whether a condition becomes true in time."""
    deadline = monotonic() + seconds
    while not condition():
        if monotonic() > deadline:
            return False
        sleep(0.01)
    return True


def test_surplus_monitors_of_python_workers_are_stopped(spark: SparkSession) -> None:
    jvm = cast(Any, spark.sparkContext)._jvm
    needed = monitors(spark)
    variables = jvm.scala.collection.immutable.HashMap()
    for _ in range(20):  # what Spark does when a query with a Python source starts
        jvm.org.apache.spark.api.python.PythonWorkerFactory(
            internals.worker_python(spark), "worker", variables, False
        )
    assert monitors(spark) >= 20
    assert internals.stop_surplus_monitors(spark, kept=1000) == 0
    assert internals.stop_surplus_monitors(spark) >= 20
    assert until(lambda: monitors(spark) <= needed)
    assert spark.sparkContext.parallelize(range(4), 2).map(lambda n: 2 * n).sum() == 12  # workers go on


@pytest.mark.proof
def test_restarts_of_a_query_do_not_add_threads(spark: SparkSession, tmp_path: Path) -> None:
    def start(number: int) -> int:
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
        elements = stream(rows, event_time="timestamp", watermark=lag("1 second"))
        panes = elements.window(windows.fixed("1 second")).agg(n=windows.count()).to_df()
        query = panes.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
        try:
            assert until(lambda: query.lastProgress is not None, 60)
        finally:
            query.stop()
        return monitors(spark)

    assert max(start(number) for number in range(12)) <= 16 + 3  # each start adds two, before the next one


def test_schemas_convert_to_arrow_and_back() -> None:
    schema = StructType([StructField("n", LongType()), StructField("at", TimestampType())])
    arrow = versions.to_arrow_schema(schema)
    assert arrow.field("at").type == pa.timestamp("us", "UTC")
    assert versions.from_arrow_schema(arrow) == schema
    assert versions.from_arrow_type(pa.int64()) == LongType()


def test_a_jvm_that_runs_is_not_started_again(spark: SparkSession) -> None:
    def standard_error() -> int:
        raise AssertionError("a second JVM is about to start")

    internals.start_gateway({}, standard_error, list)
