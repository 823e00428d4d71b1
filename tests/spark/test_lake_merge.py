"""`Panes.merge_into`, `Panes.foreach_batch` and `Panes.split`: the panes of a stream in tables of files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from slackwater import windows
from slackwater.errors import InvalidArgument
from slackwater.progress.watermark_policies import lag
from slackwater.spark.api.stream import stream
from slackwater.sql.commit_owner import IdentityInUse
from slackwater.sql.database import database_url, temporary_engine
from slackwater.tables.iceberg_table import IcebergTable
from slackwater.tables.lake_table import LakeTable
from slackwater.time import END_OF_TIME, SECOND
from tests.spark.oracle import micros, truth_of
from tests.spark.running import Batch, ended, expected, streamed, write
from tests.spark.scenarios import SCENARIOS
from tests.support.sampling import sampled
from tests.tables.lakes import catalog_properties, lake, truth_in

pytestmark = pytest.mark.spark

RETRACTING = SCENARIOS["early, on time, late, retracting"]
DISCARDING = SCENARIOS["discarding by the clock"]
SUMS = replace(DISCARDING, options=replace(DISCARDING.options, accumulations=("count", "sum")))


def run(writer: DataStreamWriter, folder: Path) -> None:
    ended(writer.option("checkpointLocation", str(folder / "checkpoint")))


def address(table: LakeTable, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if isinstance(table, IcebergTable):
        for name, value in catalog_properties(folder).items():
            monkeypatch.setenv(f"PYICEBERG_CATALOG__{table.catalog.upper()}__{name.upper()}", value)
    return table.name


@pytest.mark.parametrize("kind", sampled(["delta", "iceberg", "parquet"], keep=["delta"]))
def test_a_stream_with_retractions(
    spark: SparkSession, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake(kind, tmp_path)
    panes = streamed(spark, RETRACTING, tmp_path)
    run(panes.merge_into(address(table, tmp_path, monkeypatch), create=True, flush=True), tmp_path)
    assert truth_in(table) == truth_of(expected(RETRACTING, [[batch] for batch in RETRACTING.batches]))
    (entry,) = table.ledger().values()
    assert (entry.complete_until, entry.final_until) == (END_OF_TIME, END_OF_TIME)


@pytest.mark.proof
def test_a_stream_of_deltas(spark: SparkSession, tmp_path: Path) -> None:
    table = lake("delta", tmp_path)
    panes = streamed(spark, SUMS, tmp_path)
    with pytest.raises(InvalidArgument, match="fold = None: is required: discarding panes are deltas"):
        panes.merge_into(table.name, create=True)
    run(panes.merge_into(table.name, fold="sum", create=True, flush=True), tmp_path)
    whole = replace(SUMS, options=replace(SUMS.options, mode="accumulating"))
    assert truth_in(table) == truth_of(expected(whole, [[batch] for batch in whole.batches]))


@pytest.mark.proof
def test_the_function_of_foreach_batch_gets_what_an_upsert_applies(
    spark: SparkSession, tmp_path: Path
) -> None:
    panes = streamed(spark, RETRACTING, tmp_path)
    truth: dict[Any, Any] = {}
    numbers: list[int] = []

    def apply(changes: DataFrame, number: int) -> None:
        numbers.append(number)
        rows = changes.collect()
        identities = [(row["key"], row.window_start, row.window_end) for row in rows]
        assert len(set(identities)) == len(identities)
        for identity, row in zip(identities, rows, strict=True):
            if row.deleted:
                truth.pop(identity, None)
            else:
                truth[identity] = {
                    "count": row["count"],
                    "sum": row["sum"],
                    "collect": sorted(row["collect"]),
                }

    run(panes.foreach_batch(apply, flush=True), tmp_path)
    assert numbers == list(range(len(RETRACTING.batches) + 1))
    found = {(key, micros(start), micros(end)): values for (key, start, end), values in truth.items()}
    assert found == truth_of(expected(RETRACTING, [[batch] for batch in RETRACTING.batches]))


def test_rows_are_split_by_kind(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", 0, Batch([("a", 5, 1), ("a", 30, 2), ("b", None, 3)], 0, None))
    write(tmp_path / "in", 1, Batch([("a", 6, 4)], 0, None))
    reader = spark.readStream.schema("key string, at timestamp, value long, origin string")
    df = reader.option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    keyed = stream(df, event_time="at", watermark=lag("0 seconds")).key_by("key")
    split = keyed.window(windows.fixed("10 seconds")).agg(total=windows.sum("value")).split(flush=True)
    assert split.late.columns == ["key", "window", "total"]
    assert split.invalid.columns == ["key", "total"]
    assert split.panes.columns == ["key", "window", "total", "pane"]
    found: list[Any] = []

    def collect(batch: DataFrame, number: int) -> None:
        found.extend((row["key"], row.total, row.pane.kind) for row in batch.collect())

    run(split.all_rows.writeStream.foreachBatch(collect), tmp_path)
    assert sorted(found) == [("a", 1, "pane"), ("a", 2, "pane"), ("a", 4, "late"), ("b", 3, "invalid")]


@pytest.mark.proof
def test_the_ledger_of_an_upsert_states_the_completeness(spark: SparkSession, tmp_path: Path) -> None:
    scenario = RETRACTING
    panes = streamed(spark, scenario, tmp_path)
    url = f"sqlite:///{tmp_path}/totals.db"
    # without flush the stream does not end, and the watermark is that of the rows
    run(panes.upsert_to(url, "totals", create=True), tmp_path)
    with temporary_engine(database_url(url)) as engine, engine.connect() as connection:
        (row,) = connection.exec_driver_sql("SELECT complete_until, final_until FROM slackwater_upserts")
    last = scenario.batches[-1].watermark
    assert last is not None
    assert row.complete_until is not None
    assert row.complete_until <= last * SECOND
    assert row.final_until == row.complete_until - (scenario.options.allowed_lateness or 0)


def test_invalid_arguments(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(3).selectExpr("id % 2 as key", "timestamp_seconds(id) as at", "id as value")
    batch = stream(rows, event_time="at", watermark=lag("1 second")).key_by("key")
    totals = batch.window(windows.fixed("10 seconds")).agg(total=windows.sum("value"))
    with pytest.raises(InvalidArgument, match="frame = 'a batch DataFrame': is not streaming"):
        totals.merge_into(f"delta:{tmp_path}/t", create=True)
    with pytest.raises(InvalidArgument, match="foreach_batch = 'a batch DataFrame': is not streaming"):
        totals.foreach_batch(lambda changes, number: None)
    panes = streamed(spark, RETRACTING, tmp_path)
    with pytest.raises(InvalidArgument, match="table = 'totals': is not the address of a table of files"):
        panes.merge_into("totals")
    with pytest.raises(
        InvalidArgument, match="is a table of a database, not of files; use upsert_to"
    ) as raised:
        panes.merge_into("postgresql://app:secret@db/shop#totals")
    assert "secret" not in str(raised.value)
    with pytest.raises(InvalidArgument, match=r"function = '<lambda>\(changes\)': cannot be called with two"):
        panes.foreach_batch(lambda changes: None)  # type: ignore[misc,arg-type]
    with pytest.raises(InvalidArgument, match="takeover_from = 'x': has no effect without identity="):
        panes.merge_into(f"delta:{tmp_path}/t", takeover_from="x")
    with pytest.raises(InvalidArgument, match="function = 5: is not a function"):
        panes.foreach_batch(5)  # type: ignore[arg-type]
    applied = batch.window(windows.fixed("10 seconds")).apply(lambda key, window, rows: rows, "n long")
    with pytest.raises(InvalidArgument, match="split = 'apply': does not emit late and invalid rows"):
        applied.split()


@pytest.mark.proof
def test_another_query_under_the_same_identity_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    panes = streamed(spark, RETRACTING, tmp_path)
    table = lake("delta", tmp_path)
    run(panes.merge_into(table.name, create=True, identity="totals"), tmp_path)
    (owner,) = (entry.query for entry in table.ledger().values())
    with pytest.raises(Exception, match=IdentityInUse.__name__):
        run(panes.merge_into(table.name, identity="totals"), tmp_path / "second")
    run(panes.merge_into(table.name, identity="totals", takeover_from=owner), tmp_path / "third")
    assert table.ledger()["totals"].query != owner
