"""Runs on Spark between databases and files: the target equals the source."""

from __future__ import annotations

import csv
import json
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from slackwater.ingest import parse_job
from slackwater.ingest.axis.timezones import instant_of, zone
from slackwater.ingest.extraction import Extraction
from slackwater.ingest.runner import run_job
from slackwater.metadata.store import open_store
from slackwater.time import DAY, instant
from tests.ingest.copying import AXIS, ROWS, START, add, execute, orders, run
from tests.spark.postgres import Server

pytestmark = pytest.mark.spark


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/source.db"
    server: Server = request.getfixturevalue("server")
    return server.create_database(f"source_{time.monotonic_ns()}")


@pytest.fixture
def source(database: str) -> str:
    orders(database)
    return database


def numbers(spark: SparkSession, target: str, location: Path | str) -> list[int]:
    if target == "sql":
        return sorted(row[0] for row in execute(str(location), "SELECT id FROM copied"))
    if target == "delta":
        return sorted(DeltaTable(location).to_pyarrow_table()["id"].to_pylist())
    if target == "parquet":
        return sorted(row.id for row in spark.read.parquet(f"{location}/rows").collect())
    texts = [file.read_text(encoding="utf-8") for file in Path(location, "rows").glob(f"*.{target}")]
    if target == "json":
        return sorted(json.loads(line)["id"] for text in texts for line in text.splitlines())
    return sorted(int(row["id"]) for text in texts for row in csv.DictReader(text.splitlines()))


CHANGES = {
    "autumn": ("Europe/Berlin", "2020-10-25T00:00:00", "2020-10-25T06:00:00", "hourly"),
    "an end in the hour that comes twice": (
        "Europe/Berlin", "2020-10-25T00:00:00", "2020-10-25T02:30:00", "hourly",
    ),
    "spring": ("Europe/Berlin", "2020-03-29T00:00:00", "2020-03-29T06:00:00", "hourly"),
    "half an hour": ("Australia/Lord_Howe", "2020-04-05T00:00:00", "2020-04-05T04:00:00", "hourly"),
    "days of autumn": ("Europe/Berlin", "2020-10-24T00:00:00", "2020-10-27T00:00:00", "daily"),
    "days of spring, at midnight": ("Asia/Beirut", "2020-03-28T00:00:00", "2020-03-31T00:00:00", "daily"),
    "days in winter": ("Europe/Berlin", "2020-01-01T00:00:00", "2020-01-04T00:00:00", "daily"),
}  # fmt: skip
"""Where clocks change, or do not, and a range around that, cut into partitions."""
QUERY = "SELECT * FROM o WHERE at >= {{low}} AND at < {{high}}"


def in_proof(change: str) -> list[pytest.MarkDecorator]:
    """Two changes of the clocks are tested in `make test`, the others in `make proof`."""
    return [] if change in ("autumn", "spring") else [pytest.mark.proof]


def clocks(url: str, kind: str, timezone: ZoneInfo, begin: datetime) -> list[datetime]:
    """A table of what a clock shows, every 15 minutes from a day before a time to four days behind it."""
    execute(url, f"CREATE TABLE o (id BIGINT, at {kind})")
    wall = [begin + timedelta(minutes=15 * number) for number in range(-96, 4 * 96)]
    shown = [at.replace(tzinfo=timezone) if kind == "TIMESTAMPTZ" else at for at in wall]
    execute(url, "INSERT INTO o VALUES (?, ?)", [(number, str(at)) for number, at in enumerate(shown)])
    return wall


@pytest.mark.parametrize(
    "reads", [{"ms.source.table": "o"}, {"ms.source.query": QUERY}], ids=["table", "query"]
)
@pytest.mark.parametrize(
    ("database", "kind", "change"),
    [
        *(pytest.param("sqlite", "TEXT", change, marks=in_proof(change)) for change in CHANGES),
        *(
            pytest.param("postgresql", "TIMESTAMP", change, marks=[pytest.mark.postgres, *in_proof(change)])
            for change in CHANGES
        ),
        pytest.param("postgresql", "TIMESTAMPTZ", "autumn", marks=pytest.mark.postgres),
    ],
    indirect=["database"],
)
def test_no_row_is_lost_or_read_twice_where_clocks_change(
    spark: SparkSession, tmp_path: Path, database: str, kind: str, reads: dict[str, str], change: str
) -> None:
    timezone, begin, end, partition = CHANGES[change]
    wall = clocks(database, kind, ZoneInfo(timezone), datetime.fromisoformat(begin))
    low, high = (instant_of(datetime.fromisoformat(text), zone(timezone)) for text in (begin, end))
    axis = {"name": "system", "type": "datetime", "range": {"from": begin, "to": end}}
    keys = {
        "ms.watermark": [axis], "ms.timezone": timezone, "ms.work.unit.partition": partition, **reads,
        "ms.source.type": "sql", "ms.source.url": database, "ms.source.partitions": 3,
        "ms.target.type": "csv", "ms.target.path": f"{tmp_path}/copied",
    }  # fmt: skip
    report = run(spark, tmp_path, "2020-12-01T00:00:00Z", keys)
    assert report.succeeded, report.outcomes
    wanted = [number for number, at in enumerate(wall) if low <= instant_of(at, zone(timezone)) < high]
    assert numbers(spark, "csv", tmp_path / "copied") == wanted


@pytest.mark.parametrize(("timezone", "ends"), [("Z", "succeeded"), ("Europe/Berlin", "failed")])
def test_texts_that_name_their_zone_are_not_compared_with_other_clocks(
    spark: SparkSession, tmp_path: Path, timezone: str, ends: str
) -> None:
    url = f"sqlite:///{tmp_path}/source.db"
    execute(url, "CREATE TABLE o (id BIGINT, at TEXT)")
    execute(url, "INSERT INTO o VALUES (0, '2020-01-02 00:00:00Z')")
    keys = {
        "ms.timezone": timezone, "ms.source.type": "sql", "ms.source.url": url, "ms.source.query": QUERY,
        "ms.target.type": "csv", "ms.target.path": f"{tmp_path}/copied",
    }  # fmt: skip
    [outcome] = run(spark, tmp_path, "2020-01-04T09:00:00Z", keys).outcomes
    assert outcome.state == ends
    assert (
        "has times with timezones, but {{low}} and {{high}} are local times in" in str(outcome.error)
    ) == (ends == "failed")


@pytest.mark.parametrize("target", ["sql", "parquet", "json", "csv", "delta"])
def test_late_rows_replace_exactly_their_range(
    spark: SparkSession, tmp_path: Path, source: str, target: str
) -> None:
    location: Path | str = tmp_path / "copied"
    keys: dict[str, Any] = {"ms.target.type": target, "ms.target.path": str(location)}
    if target == "sql":  # the database of the source, in another table
        location = source
        keys = {"ms.target.type": "sql", "ms.target.url": source, "ms.target.table": "copied"}
    keys |= {"ms.source.type": "sql", "ms.source.url": source, "ms.source.table": "orders"}
    keys |= {"ms.source.partitions": 2, "ms.grace.period.days": 1}
    first = run(spark, tmp_path, "2020-01-03T09:00:00Z", keys)
    assert [(outcome.state, outcome.rows, outcome.error) for outcome in first.outcomes] == [
        ("succeeded", 10, None)
    ]
    assert numbers(spark, target, location) == list(range(10))
    # one row comes late within the grace period, one before it; one within it goes away
    add(source, [(100, START + DAY + 1, "late"), (101, START + 1, "too late")])
    execute(source, "DELETE FROM orders WHERE id = 6")
    second = run(spark, tmp_path, "2020-01-04T09:00:00Z", keys)
    assert second.succeeded, second.outcomes
    assert numbers(spark, target, location) == [0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 100]


def test_units_are_replaced_apart_and_one_that_fails_stops_no_other(
    spark: SparkSession, tmp_path: Path, source: str
) -> None:
    units = [AXIS, {"name": "name", "type": "unit", "units": ["o'1", "o'2", "none"]}]
    query = "SELECT id, at FROM orders WHERE name = {{name}} AND at >= {{low}}"
    keys = {
        "ms.watermark": units, "ms.source.type": "sql", "ms.source.url": source, "ms.source.query": query,
        "ms.target.type": "sql", "ms.target.url": source, "ms.target.table": "copied",
        "ms.work.unit.min.records": 1,
    }  # fmt: skip
    run(spark, tmp_path, "2020-01-04T09:00:00Z", keys)
    report = run(spark, tmp_path, "2020-01-04T09:00:00Z", keys)
    assert [(outcome.state, outcome.unit) for outcome in report.outcomes] == [("failed", '{"name":"none"}')]
    assert "ms.work.unit.min.records = 1: only 0 records were read" in str(report.outcomes[0].error)
    assert sorted(execute(source, "SELECT id, name FROM copied")) == [(1, "o'1"), (2, "o'2")]


def test_new_columns_fail_or_are_added_or_are_left_out(
    spark: SparkSession, tmp_path: Path, source: str
) -> None:
    keys = {
        "ms.source.type": "sql", "ms.source.url": source, "ms.source.table": "orders",
        "ms.target.type": "sql", "ms.target.url": source, "ms.target.table": "copied", "ms.backfill": True,
    }  # fmt: skip
    assert run(spark, tmp_path, "2020-01-04T09:00:00Z", keys).succeeded
    execute(source, "ALTER TABLE orders ADD COLUMN note TEXT")
    report = run(spark, tmp_path, "2020-01-04T09:00:00Z", keys)
    assert "SchemaDrift" in str(report.outcomes[0].error)
    assert "new: note" in str(report.outcomes[0].error)
    for policy, columns in (("ignore", 3), ("add", 4)):
        assert run(spark, tmp_path, "2020-01-04T09:00:00Z", {**keys, "ms.schema.drift": policy}).succeeded
        [first, *_] = execute(source, "SELECT * FROM copied")
        assert len(first) == columns


def test_the_highest_time_seen_is_the_high_watermark(spark: SparkSession, tmp_path: Path) -> None:
    source = f"sqlite:///{tmp_path}/source.db"
    orders(source)
    keys = {
        "ms.source.type": "sql", "ms.source.url": source, "ms.source.table": "orders",
        "ms.target.type": "parquet", "ms.target.path": f"{tmp_path}/copied", "ms.watermark.column": "at",
    }  # fmt: skip
    assert run(spark, tmp_path, "2020-02-01T09:00:00Z", keys).succeeded
    again = run(spark, tmp_path, "2020-02-01T09:00:00Z", keys)
    assert [(outcome.low, outcome.rows) for outcome in again.outcomes] == [(ROWS[-1][1], 1)]
    assert numbers(spark, "parquet", f"{tmp_path}/copied") == list(range(15))


def test_files_are_chosen_by_the_date_in_their_path(spark: SparkSession, tmp_path: Path) -> None:
    for day in (1, 2, 3):
        folder = tmp_path / "in" / f"2020/01/{day:02}"
        folder.mkdir(parents=True)
        (folder / "a.json").write_text(json.dumps({"id": day}) + "\n", encoding="utf-8")
    keys = {
        "ms.source.type": "files", "ms.source.format": "json", "ms.source.path": f"{tmp_path}/in/**/*.json",
        "ms.source.files.pattern": "yyyy/MM/dd", "ms.target.type": "csv",
        "ms.target.path": f"{tmp_path}/copied", "ms.work.unit.partition": "daily",
    }  # fmt: skip
    job = parse_job({"ms.watermark": [AXIS], **keys})
    with open_store(f"sqlite:///{tmp_path}/store.db", create=True) as store:
        for now, read in (("2020-01-03T01:00:00Z", [1, 1]), ("2020-01-05T01:00:00Z", [1, 0])):
            report = run_job(job, store, Extraction(job, spark), now=instant(now))
            assert [outcome.rows for outcome in report.outcomes] == read
    assert numbers(spark, "csv", tmp_path / "copied") == [1, 2, 3]
