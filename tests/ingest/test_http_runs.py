"""Runs on Spark from an HTTP server: the target equals the server, and its errors are reported."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from slackwater.ingest import parse_job
from slackwater.ingest.extraction import Extraction
from slackwater.ingest.runner import Report, run_job
from slackwater.metadata.store import open_store
from slackwater.time import instant
from tests.support.http_server import Api, hung_up, serving, status

pytestmark = pytest.mark.spark
AXIS = {"name": "system", "type": "datetime", "range": {"from": "2020-01-01", "to": "P0D"}}
SHOPS = {"name": "shop", "type": "unit", "units": ["a&b", "ö/.."]}
ROWS = [
    {"id": number, "at": f"2020-01-{number:02}T12:00:00Z", "shop": "a&b" if number % 2 else "ö/.."}
    for number in range(1, 9)
]


@pytest.fixture
def api() -> Iterator[Api]:
    with serving(ROWS) as running:
        yield running


def keys(api: Api, folder: Path, path: str, **more: Any) -> dict[str, Any]:
    return {
        "ms.watermark": [AXIS], "ms.time.column": "at",
        "ms.source.type": "http", "ms.source.url": f"{api.url}/{path}",
        "ms.source.http.query": {"since": "{{low}}", "until": "{{high}}"},
        "ms.source.http.retry": {"wait_seconds": 0},
        "ms.target.type": "parquet", "ms.target.path": str(folder / "copied"),
    } | {f"ms.{name.replace('_', '.')}": value for name, value in more.items()}  # fmt: skip


def run(spark: SparkSession, folder: Path, now: str, given: dict[str, Any]) -> Report:
    job = parse_job(given)
    with open_store(f"sqlite:///{folder}/store.db", create=True) as store:
        return run_job(job, store, Extraction(job, spark), now=instant(now))


def copied(spark: SparkSession, folder: Path) -> list[Row]:
    whole = folder / "copied" / "rows"  # a job without units has one folder
    place = whole if whole.exists() else whole.parent
    return sorted(spark.read.parquet(str(place)).collect(), key=lambda row: int(row.id))


def numbers(spark: SparkSession, folder: Path) -> list[int]:
    return [int(row.id) for row in copied(spark, folder)]


def test_units_are_read_page_by_page_and_only_what_is_missing_is_asked_for(
    spark: SparkSession, tmp_path: Path, api: Api
) -> None:
    given = keys(api, tmp_path, "cursor", source_http_records="data.items", grace_period_days=1)
    given |= {"ms.source.http.pagination": {"type": "cursor", "cursor": "meta.next"}}
    given |= {"ms.watermark": [AXIS, SHOPS], "ms.source.partitions": 2}
    given["ms.source.http.query"] |= {"shop": "{{shop}}"}
    api.faults.extend([status(503), hung_up])
    first = run(spark, tmp_path, "2020-01-07T09:00:00Z", given)
    assert [(outcome.rows, outcome.error) for outcome in first.outcomes] == [(3, None), (3, None)]
    assert numbers(spark, tmp_path) == [1, 2, 3, 4, 5, 6]
    assert {asked.query["shop"] for asked in api.requests} == {"a&b", "ö/.."}
    api.requests.clear()
    api.rows = [{**row, "late": True} for row in api.rows] + [{**ROWS[5], "id": 66, "late": True}]
    second = run(spark, tmp_path, "2020-01-08T09:00:00Z", {**given, "ms.schema.drift": "add"})
    assert second.succeeded, second.outcomes
    assert min(asked.query["since"] for asked in api.requests) == "2020-01-06T00:00:00Z"
    assert numbers(spark, tmp_path) == [1, 2, 3, 4, 5, 6, 7, 66]


def test_a_server_that_gives_whole_days_for_parts_of_a_day_gives_no_row_twice(
    spark: SparkSession, tmp_path: Path, api: Api
) -> None:
    given = keys(api, tmp_path, "all", source_partitions=3)
    given["ms.source.http.query"] = {"from": "{{low}}"}  # a parameter that this server ignores
    del given["ms.target.path"]
    given |= {
        "ms.target.type": "sql",
        "ms.target.table": "copied",
        "ms.target.url": f"sqlite:///{tmp_path}/a.db",
    }
    assert run(spark, tmp_path, "2020-01-09T09:00:00Z", given).succeeded
    assert len(api.requests) == 3
    with closing(sqlite3.connect(tmp_path / "a.db")) as table:
        assert table.execute("SELECT id FROM copied ORDER BY id").fetchall() == [
            (day,) for day in range(1, 9)
        ]


def test_types_come_from_all_pages_and_nothing_is_lost(spark: SparkSession, tmp_path: Path, api: Api) -> None:
    values: list[dict[str, Any]] = [
        {
            "failure": "of a part",
            "id": 1,
            "big": 1,
            "mixed": 1,
            "maybe": None,
            "inner": {"a": [1]},
            "flag": True,
            "n": 1,
        },
        {"id": 2, "big": 2**70, "mixed": "x", "n": 0.5},
        {"id": 3, "mixed": [True], "none": None},
    ]
    api.rows = [{**row, "at": "2020-01-01T01:00:00+01:00", "ä.b": f"'{row['id']}"} for row in values]
    api.size = 1
    given = keys(api, tmp_path, "page")
    given |= {"ms.source.http.pagination": {"type": "page"}, "ms.source.http.query": {}}
    report = run(spark, tmp_path, "2020-01-09T09:00:00Z", given)
    assert report.succeeded, report.outcomes
    frame = spark.read.parquet(f"{tmp_path}/copied/rows")
    assert {name: kind for name, kind in frame.dtypes if name not in ("id", "at")} == {
        "failure": "string",
        "big": "decimal(38,0)", "mixed": "string", "maybe": "string", "inner": "string", "flag": "boolean",
        "n": "double", "none": "string", "ä.b": "string",
    }  # fmt: skip
    first, second, third = sorted(frame.collect(), key=lambda row: int(row.id))
    assert (first.inner, first.mixed, first.n, first.maybe) == ('{"a":[1]}', "1", 1.0, None)
    assert (int(second.big), second.mixed, second.flag, second["ä.b"]) == (2**70, "x", None, "'2")
    assert third.mixed == "[true]"


def test_a_given_schema_chooses_and_reads_nested_columns(
    spark: SparkSession, tmp_path: Path, api: Api
) -> None:
    api.rows = [
        {"id": "7", "at": "2020-01-01T12:00:00", "price": "12.30", "who": {"id": 1, "x": 2}, "more": 1}
    ]
    columns = {
        "id": "bigint",
        "at": "timestamp",
        "price": "decimal(10,2)",
        "who": "struct<id:bigint>",
        "gone": "int",
    }
    given = keys(api, tmp_path, "all")
    given |= {"ms.schema": [{"name": name, "type": kind} for name, kind in columns.items()]}
    assert run(spark, tmp_path, "2020-01-02T09:00:00Z", given).succeeded
    (row,) = copied(spark, tmp_path)
    assert (row.id, str(row.price), row.who.id, row.gone) == (7, "12.30", 1, None)
    assert "more" not in row
    api.rows[0]["price"] = "dear"
    report = run(spark, tmp_path, "2020-01-02T09:00:00Z", {**given, "ms.backfill": True})
    assert "'dear'" in str(report.outcomes[0].error)


def test_csv_is_text_that_a_schema_types(spark: SparkSession, tmp_path: Path, api: Api) -> None:
    api.rows = [{**row, "name": "" if row["id"] == 2 else "x"} for row in ROWS]
    given = keys(api, tmp_path, "csv")
    given |= {
        "ms.source.http.format": "csv",
        "ms.source.options": {"delimiter": ";"},
        "ms.target.type": "json",
    }
    given["ms.schema"] = [
        {"name": "id", "type": "int"},
        {"name": "at", "type": "timestamp"},
        {"name": "name", "type": "string"},
    ]
    assert run(spark, tmp_path, "2020-01-03T09:00:00Z", given).succeeded
    lines = [
        line for file in (tmp_path / "copied/rows").glob("*.json") for line in file.read_text().splitlines()
    ]
    assert [(row["id"], row["name"]) for row in map(json.loads, lines)] == [(1, "x"), (2, None)]


def test_nothing_empties_the_slice_and_a_failure_leaves_it(
    spark: SparkSession, tmp_path: Path, api: Api
) -> None:
    given = keys(api, tmp_path, "all", backfill=True)
    assert run(spark, tmp_path, "2020-01-09T09:00:00Z", given).succeeded
    api.requests.clear()
    api.faults.extend([status(500)] * 5)
    failed = run(spark, tmp_path, "2020-01-09T09:00:00Z", given)
    assert "RequestFailed: GET" in str(failed.outcomes[0].error)
    assert len(api.requests) == 5  # Spark did not run the task again
    assert numbers(spark, tmp_path) == list(range(1, 9))
    api.rows = []
    empty = run(spark, tmp_path, "2020-01-09T09:00:00Z", given)
    assert [(outcome.state, outcome.rows) for outcome in empty.outcomes] == [("succeeded", 0)]
    assert list((tmp_path / "copied/rows").glob("*.parquet")) == []


def test_wrong_credentials_are_reported_without_them(spark: SparkSession, tmp_path: Path, api: Api) -> None:
    (tmp_path / "token.json").write_text('{"token": "s3cret-token"}', encoding="utf-8")
    api.allowed = lambda asked: asked.headers.get("authorization") == "Bearer other"
    given = keys(api, tmp_path, "all")
    given |= {"ms.secondary.input": [{"path": f"{tmp_path}/token.json", "category": "authentication"}]}
    given |= {"ms.source.http.authentication": {"method": "bearer", "token": "{{token}}"}}
    report = run(spark, tmp_path, "2020-01-09T09:00:00Z", given)
    error = str(report.outcomes[0].error)
    assert f"RequestFailed: GET {api.url}/all returned 401 Unauthorized" in error
    assert "s3cret" not in error
    assert api.requests[0].headers["authorization"] == "Bearer s3cret-token"
    assert len(api.requests) == 1


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([{"Id": 1}, {"id": 2}], "fields 'Id' and 'id', the same column"),
        ([{"": 1}], "a field '', which is not a valid column name"),
        ([{}], "the records have no fields"),
    ],
)
def test_records_that_are_not_rows_are_reported(
    spark: SparkSession, tmp_path: Path, api: Api, rows: list[dict[str, Any]], problem: str
) -> None:
    api.faults.append(status(200, rows))
    report = run(spark, tmp_path, "2020-01-09T09:00:00Z", keys(api, tmp_path, "all"))
    assert problem in str(report.outcomes[0].error)
