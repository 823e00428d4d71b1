"""Streams of panes upserted into real tables: the final table equals the reference model."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from slackwater import windows
from slackwater.errors import InvalidArgument
from slackwater.progress.watermark_policies import Lag, lag
from slackwater.spark.api.stream import stream
from slackwater.spark.api.upsert import Mode, upsert_once, upsert_to
from slackwater.sql.database import database_url, temporary_engine
from slackwater.sql.pane_targets import Fold, TableDoesNotFit
from slackwater.time import SECOND
from tests.spark.oracle import Truth, table_of, truth_of
from tests.spark.postgres import PASSWORD, Server
from tests.spark.running import Batch, Scenario, ended, expected, write
from tests.spark.scenarios import SCENARIOS

pytestmark = pytest.mark.spark

SESSIONS = SCENARIOS["sessions that merge and take back"]
RETRACTING = SCENARIOS["early, on time, late, retracting"]
NULL_KEYS = SCENARIOS["rows without a time, keys without a value"]
DISCARDING = SCENARIOS["discarding by the clock"]
SUMS = replace(DISCARDING, options=replace(DISCARDING.options, accumulations=("count", "sum")))


def streamed(spark: SparkSession, scenario: Scenario, folder: Path) -> DataFrame:
    """The panes of a stream that has a micro-batch for every batch of the scenario, and one for its end."""
    if not (folder / "in").exists():
        for number, batch in enumerate(scenario.batches):
            write(folder / "in", number, batch)
    times = [batch.now * SECOND for batch in scenario.batches]
    schema = spark.read.parquet(str(folder / "in")).schema
    rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    return scenario.build(rows, [*times, times[-1] + SECOND]).to_df(flush=True)


def run(panes: DataFrame, url: str, folder: Path, **options: Any) -> None:
    writer = upsert_to(panes, url, "totals", key=["key"], create=True, **options)
    ended(writer.option("checkpointLocation", str(folder / "checkpoint")))


def model_truth(scenario: Scenario) -> Truth:
    return truth_of(expected(scenario, [[batch] for batch in scenario.batches]))


@pytest.mark.proof
@pytest.mark.parametrize(
    "scenario",
    [SESSIONS, RETRACTING, NULL_KEYS],
    ids=["sessions", "retracting", "null keys"],
)
def test_table_equals_model(spark: SparkSession, url: str, tmp_path: Path, scenario: Scenario) -> None:
    run(streamed(spark, scenario, tmp_path), url, tmp_path)
    assert table_of(url, "totals") == model_truth(scenario)


@pytest.mark.proof
def test_deltas_are_added_up(spark: SparkSession, url: str, tmp_path: Path) -> None:
    run(
        streamed(spark, SUMS, tmp_path), url, tmp_path, mode="discarding", fold={"count": "sum", "sum": "sum"}
    )
    whole = replace(SUMS, options=replace(SUMS.options, mode="accumulating"))
    assert table_of(url, "totals") == model_truth(whole)


def test_replayed_batches_are_merged_once(spark: SparkSession, url: str, tmp_path: Path) -> None:
    """The commit log is what a driver had no time to write: without its last entry the batch is run again."""
    panes = streamed(spark, SUMS, tmp_path)
    options: dict[str, Any] = {"mode": "discarding", "fold": "sum"}
    run(panes, url, tmp_path, **options)
    truth = table_of(url, "totals")
    commits = sorted(
        (path for path in (tmp_path / "checkpoint" / "commits").iterdir() if path.name.isdigit()),
        key=lambda path: int(path.name),
    )
    last = commits[-1]
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    run(streamed(spark, SUMS, tmp_path), url, tmp_path, **options)
    assert last.exists(), "the batch was not run again"
    assert table_of(url, "totals") == truth


@pytest.mark.proof
def test_a_restored_checkpoint_is_rejected(spark: SparkSession, server: Server, tmp_path: Path) -> None:
    url = server.create_database("put_back")
    for number, batch in enumerate(RETRACTING.batches[:2]):
        write(tmp_path / "in", number, batch)
    first = replace(RETRACTING, batches=RETRACTING.batches[:2])
    run(streamed(spark, first, tmp_path), url, tmp_path)
    run_again = tmp_path / "again"
    shutil.copytree(tmp_path / "checkpoint", run_again / "checkpoint")
    for number in (2, 1):
        for log in ("commits", "offsets"):
            (run_again / "checkpoint" / log / str(number)).unlink()
            (run_again / "checkpoint" / log / f".{number}.crc").unlink(missing_ok=True)
    with pytest.raises(StreamingQueryException, match="another run of this query is ahead"):
        run(streamed(spark, first, tmp_path), url, run_again)


def test_a_batch_frame_is_merged_in_one_transaction(spark: SparkSession, url: str, tmp_path: Path) -> None:
    for number, batch in enumerate(SESSIONS.batches):
        write(tmp_path / "in", number, batch)
    panes = SESSIONS.build(spark.read.parquet(str(tmp_path / "in")), ()).to_df()
    for _ in range(2):
        upsert_once(panes, url, "totals", key=["key"], create=True)
    truth = truth_of(expected(SESSIONS, [SESSIONS.batches], bounded=True))
    assert table_of(url, "totals") == truth


def test_deltas_of_a_batch_frame_are_merged_once(spark: SparkSession, url: str, tmp_path: Path) -> None:
    write(tmp_path / "in", 0, Batch([("a", 1, 5), ("a", 2, 6)], 0, None))
    scenario = replace(SUMS, options=replace(SUMS.options, window=windows.Global()), policy=Lag(0))
    panes = scenario.build(spark.read.parquet(str(tmp_path / "in")), ()).to_df()
    options: dict[str, Any] = {"key": ["key"], "mode": "discarding", "fold": "sum", "windows": False}
    for name in ("monday", "monday", "tuesday"):
        upsert_once(panes, url, "totals", identity=name, create=True, **options)
    assert rows(url) == [("a", 4, 22)]
    with pytest.raises(InvalidArgument, match="deltas that are merged twice are counted twice"):
        upsert_once(panes, url, "totals", **options)


def rows(url: str) -> list[tuple[Any, ...]]:
    with temporary_engine(database_url(url)) as engine, engine.connect() as connection:
        return [tuple(row) for row in connection.exec_driver_sql("SELECT * FROM totals")]


# ---- what is refused before anything runs


@pytest.fixture
def panes(spark: SparkSession, tmp_path: Path) -> DataFrame:
    return streamed(spark, RETRACTING, tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "discarding"}, 'discarding panes are deltas.*write fold="sum"'),
        ({"mode": "accumulating", "fold": "sum"}, "would count elements twice"),
        (
            {"mode": "discarding", "fold": {"count": "sum", "sum": "sum"}},
            "has no entry for column collect",
        ),
        ({"key": ["who"]}, "column not found in the panes; available: key, count, sum, collect"),
        ({"key": "key"}, r'write key=\["key"\]'),
        ({"key": ["collect"]}, "is a nested column"),
        ({"key": [], "windows": False}, "rows cannot be distinguished"),
        ({"table": "a b"}, "is not a plain identifier"),
        ({"url": "mysql://a:secret@b/c"}, "is neither PostgreSQL nor SQLite"),
    ],
)
def test_invalid_arguments_are_rejected_before_the_query_starts(
    panes: DataFrame, tmp_path: Path, options: Any, message: str
) -> None:
    given = {"url": f"sqlite:///{tmp_path}/a.db", "table": "totals", "key": ["key"], **options}
    with pytest.raises(InvalidArgument, match=message) as raised:
        upsert_to(panes, create=True, **given)
    assert "secret" not in str(raised.value)
    assert not (tmp_path / "a.db").exists()


@pytest.mark.parametrize("mode", ["accumulating", "discarding"])
def test_sessions_that_could_stay_beside_the_merged_one_are_rejected(
    spark: SparkSession, tmp_path: Path, mode: Mode
) -> None:
    rows = spark.readStream.format("rate").load().selectExpr("timestamp as at", "value as user")
    clicks = stream(rows, event_time="at", watermark=lag("5 seconds")).key_by("user")
    windowed = clicks.window(windows.sessions("5 seconds"))
    windowed = windowed.discarding() if mode == "discarding" else windowed.accumulating()
    fold: Fold | None = "sum" if mode == "discarding" else None
    target: dict[str, Any] = {"url": f"sqlite:///{tmp_path}/a.db", "table": "totals", "create": True}
    with pytest.raises(InvalidArgument, match=f"mode = '{mode}'.*call .accumulating_and_retracting"):
        windowed.allowed_lateness("1 minute").agg(n=windows.count()).upsert_to(**target, fold=fold)
    each = windows.every(count=1)
    early = windowed.trigger(windows.after_watermark(early=each, late=each))
    with pytest.raises(InvalidArgument, match=f"mode = '{mode}'.*call .accumulating_and_retracting"):
        early.agg(n=windows.count()).upsert_to(**target, fold=fold)
    windowed.agg(n=windows.count()).upsert_to(**target, fold=fold)  # fires once, when nothing can merge
    retracting = windowed.accumulating_and_retracting().allowed_lateness("1 minute")
    retracting.agg(n=windows.count()).upsert_to(**target)


def test_a_frame_without_pane_columns_is_rejected(spark: SparkSession, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    with pytest.raises(InvalidArgument, match=r"has no struct column 'window'; pass .* panes\.to_df\(\)"):
        upsert_once(spark.range(3), url, "totals", key=["id"])
    with pytest.raises(InvalidArgument, match="call upsert_once"):
        upsert_to(spark.range(3), url, "totals", key=["id"])


def test_upsert_once_rejects_a_stream(panes: DataFrame, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="call upsert_to"):
        upsert_once(panes, f"sqlite:///{tmp_path}/a.db", "totals", key=["key"])


def test_a_missing_table_and_one_of_other_types(panes: DataFrame, url: str) -> None:
    with pytest.raises(TableDoesNotFit, match="does not exist in"):
        upsert_to(panes, url, "totals", key=["key"])
    with temporary_engine(database_url(url)) as engine, engine.begin() as connection:
        connection.execute(sql.text('CREATE TABLE totals ("key" TEXT, "count" TEXT)'))
    with pytest.raises(
        TableDoesNotFit,
        match=r"lacks window_start .*, window_end .*, sum .*, collect .*count is TEXT, needs BIGINT",
    ):
        upsert_to(panes, url, "totals", key=["key"], create=True)


@pytest.mark.proof
def test_query_plans_do_not_contain_the_password(spark: SparkSession, server: Server, tmp_path: Path) -> None:
    url = server.create_database("secret")
    writer = upsert_to(streamed(spark, RETRACTING, tmp_path), url, "totals", key=["key"], create=True)
    query = (
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    )
    query.awaitTermination()
    printed = (
        str(query.lastProgress)
        + str(query.status)
        + (query._jsq.explainInternal(True) if hasattr(query, "_jsq") else "")
    )
    printed += "".join(
        path.read_text(errors="replace") for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()
    )
    assert "totals" in printed or query.lastProgress
    assert PASSWORD not in printed
    assert PASSWORD.replace(" ", "%20") not in printed
