"""`Panes.append_to`: rows in Parquet files that the tasks of the last operator write."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

import slackwater as sw
from slackwater import windows
from slackwater.errors import InvalidArgument
from slackwater.progress.watermark_policies import lag
from slackwater.spark.api.output_rows import OutputRows
from slackwater.spark.api.panes import Panes
from slackwater.spark.api.stream import stream
from slackwater.sql.pane_targets import TableDoesNotFit
from slackwater.tables.object_store import object_store
from slackwater.tables.table_address import append_table
from slackwater.time import END_OF_TIME, SECOND
from tests.spark.oracle import truth_of
from tests.spark.running import Batch, ended, expected, streamed, write
from tests.spark.scenarios import SCENARIOS
from tests.support.programs import Program
from tests.support.sampling import sampled
from tests.tables.appended import committed_files, current_results, rows_in
from tests.tables.object_store import s3_server

pytestmark = pytest.mark.spark

RETRACTING = SCENARIOS["early, on time, late, retracting"]
FORMATS = ("parquet", "delta")


def run(writer: DataStreamWriter, folder: Path, name: str = "checkpoint") -> StreamingQuery:
    return ended(writer.option("checkpointLocation", str(folder / name)))


def comparable(rows: Sequence[Any]) -> list[str]:
    """Rows as they can be compared: without an order."""
    return sorted(repr(row) for row in rows)


@pytest.mark.parametrize("mode", ["LEGACY", "EXCEPTION"])
def test_old_times_are_read_as_they_were_written(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    old = -14_830_974_000  # a day of 1500, in the calendar that Spark before 3.0 did not use
    df = shop(spark, tmp_path, Batch([("a", old, 1)], 0, None))
    run(totals(df).append_to(f"parquet:{tmp_path}/out", create=True, flush=True), tmp_path)
    setting = "spark.sql.parquet.datetimeRebaseModeInRead"
    before = spark.conf.get(setting)
    spark.conf.set(setting, mode)
    try:
        (row,) = spark.read.parquet(str(tmp_path / "out")).selectExpr("unix_micros(window.start)").collect()
    finally:
        spark.conf.set(setting, str(before))
    assert row[0] == old // 10 * 10 * SECOND


@pytest.mark.parametrize("kind", sampled(FORMATS, keep=["delta"]))
def test_a_stream_with_retractions(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    address = f"{kind}:{tmp_path}/all panes"
    panes = streamed(spark, RETRACTING, tmp_path)
    query = run(panes.append_to(address, create=True, flat=True, flush=True), tmp_path)
    table = append_table(address)
    assert current_results(table) == truth_of(expected(RETRACTING, [[one] for one in RETRACTING.batches]))
    (entry,) = table.ledger().values()
    assert (entry.batch, entry.complete_until) == (len(RETRACTING.batches), END_OF_TIME)
    assert [operator.watermark for operator in sw.why(query).operators] == [END_OF_TIME]
    if kind == "delta":
        found = DeltaTable(str(tmp_path / "all panes")).to_pyarrow_table()
        assert comparable(found.to_pylist()) == comparable(rows_in(table))


def shop(spark: SparkSession, folder: Path, *batches: Batch) -> DataFrame:
    for number, batch in enumerate(batches):
        write(folder / "in", number, batch)
    reader = spark.readStream.schema("key string, at timestamp, value long, origin string")
    return reader.option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))


def totals(df: DataFrame, **options: Any) -> Panes:
    keyed = stream(df, event_time="at", watermark=lag("0 seconds")).key_by("key")
    return keyed.window(windows.fixed("10 seconds")).agg(total=windows.sum("value"), **options)


def test_the_rows_are_those_of_the_dataframe(spark: SparkSession, tmp_path: Path) -> None:
    late = Batch([("a", 6, 4)], 0, None)
    df = shop(spark, tmp_path, Batch([("a", 5, 1), ("a", 30, 2), ("b", None, 3)], 0, None), late)
    panes = totals(df, late="emit", invalid="emit")
    collected: list[Any] = []

    def collect(batch: DataFrame, _: int) -> None:
        collected.extend(batch.collect())

    run(panes.to_df(flush=True).writeStream.foreachBatch(collect), tmp_path, "compared")
    run(panes.append_to(f"parquet:{tmp_path}/out", create=True, flush=True), tmp_path)
    found = spark.read.parquet(str(tmp_path / "out"))
    assert found.schema == panes.to_df().schema
    assert comparable(found.collect()) == comparable(collected)
    assert {row.pane.kind for row in collected} == {"pane", "late", "invalid"}
    assert sw.complete_until(f"parquet:{tmp_path}/out") == END_OF_TIME


def test_a_restarted_query_goes_on_and_removes_unfinished_files(spark: SparkSession, tmp_path: Path) -> None:
    address = f"parquet:{tmp_path}/out"
    df = shop(spark, tmp_path, Batch([("a", 5, 1)], 0, None), Batch([("a", 15, 2)], 0, None))
    query = run(totals(df).append_to(address, create=True), tmp_path)
    lost = tmp_path / "out" / f"part-{query.runId}-00000-killed.parquet"
    half = tmp_path / "out" / f"_part-{query.runId}-00001-killed.parquet.staged"
    for path in (lost, half):
        path.touch()
    write(tmp_path / "in", 2, Batch([("a", 25, 4)], 0, None))
    run(totals(df).append_to(address), tmp_path)
    assert not lost.exists()
    assert not half.exists()
    whole = pl.read_parquet(tmp_path / "out" / "*.parquet")  # by a reader that does not know the log
    assert sorted(whole["total"].to_list()) == [1, 2]
    assert len(committed_files(append_table(address))) == len(list((tmp_path / "out").glob("*.parquet")))
    assert sw.complete_until(address) == 25 * SECOND


def test_a_batch_that_is_repeated_is_skipped(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    address = f"parquet:{tmp_path}/out"
    df = shop(spark, tmp_path, Batch([("a", 5, 1)], 0, None), Batch([("a", 15, 2)], 0, None))
    run(totals(df).append_to(address, create=True, flush=True), tmp_path)
    before = committed_files(append_table(address))
    last = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    run(totals(df).append_to(address, flush=True), tmp_path)
    assert committed_files(append_table(address)) == before
    assert "is already in parquet:" in caplog.text


def test_a_checkpoint_that_was_restored_from_a_backup_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    address = f"parquet:{tmp_path}/out"
    df = shop(spark, tmp_path, Batch([("a", 5, 1)], 0, None))
    run(totals(df).append_to(address, create=True), tmp_path)
    backup = tmp_path / "backup"
    shutil.copytree(tmp_path / "checkpoint", backup)
    write(tmp_path / "in", 1, Batch([("a", 15, 2)], 0, None))
    run(totals(df).append_to(address), tmp_path)
    before = append_table(address).ledger()
    shutil.rmtree(tmp_path / "checkpoint")
    backup.rename(tmp_path / "checkpoint")
    write(tmp_path / "in", 1, Batch([("a", 13, 4)], 0, None))  # moves the watermark less far
    with pytest.raises(Exception, match="StaleBatch"):
        run(totals(df).append_to(address), tmp_path)
    assert append_table(address).ledger() == before


def test_another_query_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    address = f"delta:{tmp_path}/out"
    df = shop(spark, tmp_path, Batch([("a", 5, 1)], 0, None), Batch([("a", 15, 2)], 0, None))
    first = run(totals(df).append_to(address, create=True, identity="totals"), tmp_path)
    with pytest.raises(Exception, match="belongs to query"):
        run(totals(df).append_to(address, identity="totals"), tmp_path, "another")
    assert [row["total"] for row in rows_in(append_table(address))] == [1]
    again = totals(df).append_to(address, identity="totals", takeover_from=str(first.id))
    run(again, tmp_path, "third")
    assert [row["total"] for row in rows_in(append_table(address))] == [1, 1]


def nested(spark: SparkSession, df: DataFrame, how: str = "inner") -> OutputRows:
    """A join with a struct whose field ``list`` cannot be null, as Spark finds."""
    other = df.where("value < 3").selectExpr(
        "key", "at as seen", "struct(value, array(value) as list) as both"
    )
    left = stream(df, event_time="at", watermark=lag("0 seconds"))
    right = stream(other, event_time="seen", watermark=lag("0 seconds"))
    return left.join(right, on=("key",), before="0 seconds", after="0 seconds", how=how)


@pytest.mark.parametrize("kind", sampled(FORMATS, keep=["parquet"]))
def test_rows_of_joins_and_nested_values(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    address = f"{kind}:{tmp_path}/out"
    df = shop(spark, tmp_path, Batch([("a", 5, 1), ("b", 6, 2)], 0, None))
    run(nested(spark, df).append_to(address, create=True, flush=True), tmp_path)
    rows = rows_in(append_table(address))
    found = sorted((row["key"], row["value"], row["both"]) for row in rows)
    assert found == [("a", 1, {"value": 1, "list": [1]}), ("b", 2, {"value": 2, "list": [2]})]
    assert sw.complete_until(address) is None


@pytest.mark.parametrize("kind", sampled(FORMATS, keep=["parquet"]))
def test_a_struct_is_null_in_rows_without_a_match(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    address = f"{kind}:{tmp_path}/out"
    df = shop(spark, tmp_path, Batch([("a", 5, 1), ("b", 6, 3)], 0, None))
    joined = nested(spark, df, "left")
    assert not joined.to_df().schema["both"].dataType["list"].nullable  # type: ignore[index]
    run(joined.append_to(address, create=True, flush=True), tmp_path)
    found = sorted((row["key"], row["value"], row["both"]) for row in rows_in(append_table(address)))
    assert found == [("a", 1, {"value": 1, "list": [1]}), ("b", 3, None)]
    collected: list[Any] = []

    def collect(batch: DataFrame, _: int) -> None:
        collected.extend((row.key, row.value, row.both and row.both.asDict()) for row in batch.collect())

    run(joined.to_df(flush=True).writeStream.foreachBatch(collect), tmp_path, "compared")
    assert sorted(collected) == found


@pytest.mark.proof
def test_rows_without_duplicates_and_a_stream_that_reads_the_folder(
    spark: SparkSession, tmp_path: Path
) -> None:
    df = shop(spark, tmp_path, *(Batch([("a", n, n), ("a", n, n)], 0, None) for n in range(12)))
    unique = stream(df, event_time="at", watermark=lag("0 seconds")).deduplicate(
        on=["value"], within="1 hour"
    )
    run(unique.append_to(f"parquet:{tmp_path}/out", create=True), tmp_path)
    found: list[Any] = []

    def collect(batch: DataFrame, _: int) -> None:
        found.extend(row.value for row in batch.collect())

    schema = spark.read.parquet(str(tmp_path / "out")).schema
    reader = spark.readStream.schema(schema).parquet(str(tmp_path / "out"))
    run(reader.writeStream.foreachBatch(collect), tmp_path, "reader")
    assert sorted(found) == list(range(12))


def append_in_a_process(address: str, folder: Path, **variables: str) -> str:
    """Append 40 totals in a process of its own, whose tasks fail once each; returns what it said."""
    for number in range(2):
        rows = [(f"key {key}", 10 * number + 5, key) for key in range(20)]
        write(folder / "in", number, Batch(rows, 0, None))
    program = [sys.executable, "-m", "tests.spark.append_driver", address, str(folder)]
    with Program(program, folder / "driver.log", variables) as driver:
        driver.finish()
        return driver.said()


@pytest.mark.proof
@pytest.mark.parametrize("kind", FORMATS)
def test_tasks_that_fail_once_leave_nothing_behind(tmp_path: Path, kind: str) -> None:
    address = f"{kind}:{tmp_path}/out"
    said = append_in_a_process(address, tmp_path)
    assert "the first attempt of a task fails at its second bucket" in said
    rows = rows_in(append_table(address))
    assert sorted(row["total"] for row in rows) == sorted([*range(20), *range(20)])
    files = {path.name for path in (tmp_path / "out").rglob("*.parquet")}
    assert files == {path.name for path in committed_files(append_table(address))}


@pytest.mark.proof
def test_threads_that_are_not_pinned(tmp_path: Path) -> None:
    append_in_a_process(f"parquet:{tmp_path}/out", tmp_path, PYSPARK_PIN_THREAD="false")
    rows = rows_in(append_table(f"parquet:{tmp_path}/out"))
    assert sorted(row["total"] for row in rows) == sorted([*range(20), *range(20)])


@pytest.mark.proof
@pytest.mark.parametrize("kind", FORMATS)
def test_files_on_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    address = f"{kind}:s3://lake/all panes"
    with s3_server("lake") as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        append_in_a_process(address, tmp_path)
        store = object_store("s3://lake/all panes")
        keys = [key for key in store.keys("") if key.endswith(".parquet")]
        found = pl.concat(pl.read_parquet(store.local_file(key, tmp_path)) for key in keys)
        assert sorted(found["total"].to_list()) == sorted([*range(20), *range(20)])
        assert sw.complete_until(address) == END_OF_TIME
        if kind == "parquet":
            listed = store.read(f"_spark_metadata/{len(store.keys('_spark_metadata')) - 1}")
            assert listed is not None
            assert b"s3://lake/all%20panes/part-" in listed.content
        else:
            assert DeltaTable("s3://lake/all panes").to_pyarrow_table().num_rows == 40


def test_plain_columns_that_differ_in_case_only_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    df = shop(spark, tmp_path, Batch([("a", 5, 1)], 0, None))
    keyed = stream(df, event_time="at", watermark=lag("0 seconds")).key_by("key")
    panes = keyed.window(windows.fixed("10 seconds")).agg(Window_Start=windows.sum("value"))
    with pytest.raises(InvalidArgument, match="Spark ignores case in names"):
        panes.append_to(f"parquet:{tmp_path}/out", create=True, flat=True)
    assert not (tmp_path / "out").exists()


def test_wrong_arguments_are_refused_before_the_query_starts(spark: SparkSession, tmp_path: Path) -> None:
    df = shop(spark, tmp_path, Batch([("a", 5, 1)], 0, None))
    with pytest.raises(InvalidArgument, match="is not the address of a table that files can be appended to"):
        totals(df).append_to(f"{tmp_path}/out")
    with pytest.raises(TableDoesNotFit, match="does not exist; pass create=True"):
        totals(df).append_to(f"parquet:{tmp_path}/out")
    with pytest.raises(InvalidArgument, match="takeover_from = '5f1c': has no effect without identity="):
        totals(df).append_to(f"parquet:{tmp_path}/out", create=True, takeover_from="5f1c")
    totals(df).append_to(f"parquet:{tmp_path}/out", create=True)
    with pytest.raises(TableDoesNotFit, match="column window is not in the rows"):
        totals(df).append_to(f"parquet:{tmp_path}/out", flat=True)
    batch = totals(spark.read.schema(df.schema).parquet(str(tmp_path / "in")))
    with pytest.raises(InvalidArgument, match=r"is not streaming; write to_df\(\)"):
        batch.append_to(f"parquet:{tmp_path}/out")
