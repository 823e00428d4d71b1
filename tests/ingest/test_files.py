"""The file source on Spark, through the Hadoop file system of its path."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from slackwater.ingest import InvalidJob, parse_job
from slackwater.ingest.extraction import Extraction
from slackwater.ingest.job_checks import check_runnable
from slackwater.ingest.ledger.run_ledger import outcomes_of
from slackwater.ingest.runner import Report, run_job
from slackwater.metadata.store import open_store
from slackwater.time import DAY, instant

pytestmark = pytest.mark.spark
AXIS = {"name": "system", "type": "datetime", "range": {"from": "2020-01-01", "to": "P0D"}}
START = instant("2020-01-01T00:00:00Z")


def put(path: Path, number: int, modified: int | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"id": number}) + "\n", encoding="utf-8")
    if modified is not None:
        os.utime(path, ns=(modified * 1000, modified * 1000))


@pytest.fixture(params=["file", "viewfs"])
def address(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """The folder ``in`` as a URL: plain, and mounted in a file system that only Hadoop knows."""
    if request.param == "file":
        yield f"file://{tmp_path}/in"
        return
    (tmp_path / "in").mkdir()
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    link = "fs.viewfs.mounttable.shop.link./orders"
    settings.set(link, f"file://{tmp_path}/in")
    settings.set("fs.viewfs.impl.disable.cache", "true")
    yield "viewfs://shop/orders"
    settings.unset(link)


def run(spark: SparkSession, folder: Path, now: str, **more: Any) -> Report:
    job = parse_job(
        {
            "ms.watermark": [AXIS], "ms.source.type": "files", "ms.source.format": "json",
            "ms.target.type": "parquet", "ms.target.path": f"file://{folder}/copied",
        }
        | {f"ms.{name.replace('_', '.')}": value for name, value in more.items()}
    )  # fmt: skip
    with open_store(f"sqlite:///{folder}/store.db", create=True) as store:
        return run_job(job, store, Extraction(job, spark), now=instant(now))


def numbers(spark: SparkSession, folder: Path) -> list[int]:
    whole = folder / "copied" / "rows"  # a job without units has one folder
    place = whole if whole.exists() else whole.parent
    return sorted(row.id for row in spark.read.parquet(str(place)).collect())


def test_files_are_chosen_by_when_they_were_modified(
    spark: SparkSession, tmp_path: Path, address: str
) -> None:
    for number in range(4):
        put(tmp_path / f"in/x/{number}.json", number, START + number * DAY)
    put(tmp_path / "in/x/5.json", 5, START + DAY - 1000)
    keys = {
        "source_path": f"{address}/**/*.json",
        "source_files_by": "modified",
        "work_unit_partition": "daily",
    }
    first = run(spark, tmp_path, "2020-01-03T01:00:00Z", **keys)
    assert [(outcome.rows, outcome.error) for outcome in first.outcomes] == [(2, None), (1, None)]
    assert numbers(spark, tmp_path) == [0, 1, 5]
    second = run(spark, tmp_path, "2020-01-05T01:00:00Z", **keys)
    assert [outcome.rows for outcome in second.outcomes] == [1, 1]
    assert numbers(spark, tmp_path) == [0, 1, 2, 3, 5]


def test_files_are_chosen_by_the_date_in_their_path(
    spark: SparkSession, tmp_path: Path, address: str
) -> None:
    for day in (1, 2, 3):
        put(tmp_path / f"in/2020/01/{day:02}/a [{day}] ä%20{{}}.json", day)
        put(tmp_path / f"in/2020/01/{day:02}/_hidden.json", 99)
        put(tmp_path / f"in/2020/01/{day:02}/a.txt", 98)
    keys = {"source_path": f"{address}/*/*/*/*.json", "source_files_pattern": "yyyy/MM/dd"}
    report = run(spark, tmp_path, "2020-01-03T01:00:00Z", **keys)
    assert [(outcome.rows, outcome.error) for outcome in report.outcomes] == [(2, None)]
    assert numbers(spark, tmp_path) == [1, 2]


def test_rows_without_a_time_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        {"id": 1, "at": "2020-01-01 05:00:00"},
        {"id": 2, "at": None},
        {"id": 3},
        {"id": 4, "at": "2019-12-31"},
    ]
    path = tmp_path / "in/2020-01-01.json"
    path.parent.mkdir()
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    keys = {"source_path": f"file://{path}", "source_files_pattern": "yyyy-MM-dd", "time_column": "at"}
    report = run(spark, tmp_path, "2020-01-02T01:00:00Z", **keys)
    assert [(outcome.rows, outcome.without_time) for outcome in report.outcomes] == [(1, 2)]
    assert numbers(spark, tmp_path) == [1]
    with open_store(f"sqlite:///{tmp_path}/store.db", create=True) as store:
        assert [outcome.without_time for outcome in outcomes_of(store, report.run)] == [2]


def test_a_unit_is_a_file_and_its_name_no_pattern(spark: SparkSession, tmp_path: Path, address: str) -> None:
    for number, name in enumerate(["a.json", "b.json", "[ab].json", "*.json"]):
        put(tmp_path / "in" / name, number)
    units = {"name": "file", "type": "unit", "units": ["[ab].json", "*.json", "none.json"]}
    report = run(
        spark,
        tmp_path,
        "2020-01-02T01:00:00Z",
        watermark=[AXIS, units],
        source_path=f"{address}/{{{{file}}}}",
    )
    assert [(outcome.rows, outcome.error) for outcome in report.outcomes] == [(1, None), (1, None), (0, None)]
    assert numbers(spark, tmp_path) == [2, 3]


def test_a_folder_of_another_file_system_is_refused_as_a_target() -> None:
    keys = {
        "source.type": "files",
        "source.path": "hdfs://h/in",
        "source.format": "csv",
        "target.type": "csv",
    }
    job = parse_job(
        {f"ms.{name}": value for name, value in keys.items()} | {"ms.target.path": "hdfs://h/out"}
    )
    with pytest.raises(InvalidJob, match="'hdfs://h/out': is not a local path"):
        check_runnable(job)


def test_a_file_system_that_spark_does_not_have_is_told(spark: SparkSession, tmp_path: Path) -> None:
    report = run(spark, tmp_path, "2020-01-02T01:00:00Z", source_path="nosuch://h/in/*.json")
    assert 'No FileSystem for scheme "nosuch"' in str(report.outcomes[0].error)


@pytest.mark.parametrize("path", ["in/*.json", "in/{{day}}/*", "in/a.json", "in/**/a.json"])
def test_a_folder_that_is_not_there_is_not_an_empty_one(
    spark: SparkSession, tmp_path: Path, path: str
) -> None:
    day = {"name": "day", "type": "watermark", "value": "low", "pattern": "yyyyMMdd"}
    keys = {"source_path": f"{tmp_path}/{path}", "parameters": [day]}
    (failed,) = run(spark, tmp_path, "2020-01-03T01:00:00Z", **keys).outcomes
    assert "does not exist; correct it" in str(failed.error)
    (tmp_path / "in").mkdir()
    (there,) = run(spark, tmp_path, "2020-01-03T01:00:00Z", **keys).outcomes
    if path == "in/a.json":
        assert "does not exist; correct it" in str(there.error)
    else:
        assert (there.rows, there.error) == (0, None)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("csv", "id,n\n1,abc\n"), ("csv", "id,n\n1,99999999999\n"), ("csv", "id,n\n1\n"),
        ("json", '{"id": 1, "n": "abc"}\n'), ("json", '{"id": 1, "n": 1\n'),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_fails_its_unit(
    spark: SparkSession, tmp_path: Path, form: str, text: str
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / f"in/a.{form}").write_text(text, encoding="utf-8")
    schema = [{"name": "id", "type": "int"}, {"name": "n", "type": "int"}]
    keys = {"source_path": f"{tmp_path}/in/*", "source_format": form, "schema": schema}
    (failed,) = run(spark, tmp_path, "2020-01-03T01:00:00Z", **keys).outcomes
    assert failed.error is not None
    lenient = {**keys, "source_options": {"MODE": "PERMISSIVE"}}
    assert run(spark, tmp_path, "2020-01-03T01:00:00Z", **lenient).succeeded


def test_what_is_written_as_csv_is_read_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    texts = ['a"b', "c,\\", '"q"', "line\nbreak", "\\", "plain"]
    (tmp_path / "in").mkdir()
    lines = [json.dumps({"id": number, "text": text}) for number, text in enumerate(texts)]
    (tmp_path / "in/a.json").write_text("\n".join(lines), encoding="utf-8")
    schema = [{"name": "id", "type": "int"}, {"name": "text", "type": "string"}]
    now = "2020-01-03T01:00:00Z"
    assert run(
        spark,
        tmp_path,
        now,
        source_path=f"{tmp_path}/in/*",
        schema=schema,
        target_type="csv",
        job_name="there",
    ).succeeded
    back = {
        "source_path": f"{tmp_path}/copied/rows/*.csv", "source_format": "csv", "schema": schema,
        "source_options": {"multiLine": True}, "target_path": str(tmp_path / "back"), "job_name": "back",
    }  # fmt: skip
    assert run(spark, tmp_path, now, **back).succeeded
    found = spark.read.parquet(str(tmp_path / "back/rows")).collect()
    assert {row.id: row.text for row in found} == dict(enumerate(texts))
