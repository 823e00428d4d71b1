"""`Panes.upsert_to`: key, windows and mode are taken from the panes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql
from pyspark.sql import SparkSession

from slackwater import windows
from slackwater.errors import InvalidArgument
from slackwater.progress.watermark_policies import lag
from slackwater.spark.api.panes import Panes
from slackwater.spark.api.stream import stream
from slackwater.sql.database import database_url, temporary_engine
from tests.spark.oracle import table_of, truth_of
from tests.spark.running import ended, expected, streamed
from tests.spark.scenarios import SCENARIOS

pytestmark = pytest.mark.spark

RETRACTING = SCENARIOS["early, on time, late, retracting"]
DISCARDING = SCENARIOS["discarding by the clock"]
SUMS = replace(DISCARDING, options=replace(DISCARDING.options, accumulations=("count", "sum")))


def run(panes: Panes, url: str, folder: Path, **options: Any) -> None:
    writer = panes.upsert_to(url, "totals", create=True, flush=True, **options)
    ended(writer.option("checkpointLocation", str(folder / "checkpoint")))


@pytest.mark.proof
def test_a_stream_with_retractions(spark: SparkSession, url: str, tmp_path: Path) -> None:
    run(streamed(spark, RETRACTING, tmp_path), url, tmp_path)
    truth = truth_of(expected(RETRACTING, [[batch] for batch in RETRACTING.batches]))
    assert table_of(url, "totals") == truth


@pytest.mark.proof
def test_a_stream_of_deltas(spark: SparkSession, url: str, tmp_path: Path) -> None:
    panes = streamed(spark, SUMS, tmp_path)
    with pytest.raises(InvalidArgument, match="fold = None: is required: discarding panes are deltas"):
        panes.upsert_to(url, "totals", create=True)
    run(panes, url, tmp_path, fold="sum")
    whole = replace(SUMS, options=replace(SUMS.options, mode="accumulating"))
    assert table_of(url, "totals") == truth_of(expected(whole, [[batch] for batch in whole.batches]))


@pytest.fixture
def keyed(spark: SparkSession) -> Any:
    rows = spark.range(6).selectExpr(
        "id % 2 as key", "id % 3 as part", "timestamp_seconds(id) as at", "id as value"
    )
    return stream(rows, event_time="at", watermark=lag("1 second")).key_by("key", "part")


def rows_of(url: str, statement: str) -> list[Any]:
    with temporary_engine(database_url(url)) as engine, engine.connect() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(statement)]


@pytest.mark.proof
def test_a_global_window_has_no_window_columns(keyed: Any, url: str) -> None:
    panes = keyed.window(windows.global_window()).agg(total=windows.sum("value"))
    kept = panes.key_by("key").agg(total=windows.sum("total"))
    for number, one in enumerate((panes, kept)):
        one.upsert_once(url, f"totals_{number}", create=True)
    assert rows_of(url, "SELECT key, total FROM totals_1 ORDER BY key") == [(0, 6), (1, 9)]
    assert rows_of(url, "SELECT count(*), sum(total) FROM totals_0") == [(6, 15)]
    with temporary_engine(database_url(url)) as engine:
        for table in ("totals_0", "totals_1"):
            names = {column["name"] for column in sql.inspect(engine).get_columns(table)}
            assert not names & {"window_start", "window_end"}


def test_windows_that_are_kept_are_columns(keyed: Any, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/truth.db"
    panes = keyed.window(windows.fixed("3 seconds")).agg(total=windows.sum("value"))
    panes.key_by("key").agg(total=windows.sum("total")).upsert_once(url, "totals", create=True)
    found = rows_of(url, "SELECT key, substr(window_start, 18, 2), total FROM totals ORDER BY 1, 2")
    assert found == [(0, "00", 2), (0, "03", 4), (1, "00", 1), (1, "03", 8)]


def test_panes_that_a_table_cannot_store_are_rejected(keyed: Any, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/truth.db"
    pairs = keyed.window(windows.fixed("3 seconds")).cogroup(
        keyed, left=["value"], right=["value"], how="inner"
    )
    with pytest.raises(InvalidArgument, match="how = 'inner': produces several rows per key and window"):
        pairs.upsert_once(url, "totals", create=True)
    panes = keyed.window(windows.fixed("3 seconds")).agg(total=windows.sum("value"))
    with pytest.raises(InvalidArgument, match="call upsert_once"):
        panes.upsert_to(url, "totals", create=True)
