"""The JDBC source: Derby, which comes with Spark, and PostgreSQL with its own driver."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from slackwater.ingest import parse_job
from slackwater.ingest.extraction import Extraction
from slackwater.ingest.runner import Report, run_job
from slackwater.metadata.store import open_store
from slackwater.time import instant
from tests.ingest.copying import execute
from tests.spark.postgres import Server
from tests.support.programs import Program

pytestmark = pytest.mark.spark
UNITS = ["north", "x' OR '1' = '1", "'); DROP TABLE orders; --"]
ROWS = [(number, number % 4 * 6, UNITS[number % 2]) for number in range(32)]
"""Of eight days from the 1st of March 2020 on, every six hours."""

QUERY = "SELECT id, sold FROM orders WHERE shop = {{shop}} AND sold >= {{low}} AND sold < {{high}}"


def axis(start: str, end: str) -> dict[str, Any]:
    return {"name": "system", "type": "datetime", "range": {"from": start, "to": end}}


@pytest.fixture
def derby(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    java: Any = spark._jvm
    java.java.lang.System.setProperty("derby.stream.error.file", f"{tmp_path}/derby.log")
    url = f"jdbc:derby:{tmp_path}/shop"
    connection = java.java.sql.DriverManager.getConnection(f"{url};create=true")
    statement = connection.createStatement()
    statement.execute("CREATE TABLE orders (id INT, sold TIMESTAMP, shop VARCHAR(40))")
    for number, hour, shop in ROWS:
        doubled = shop.replace("'", "''")
        at = f"TIMESTAMP('2020-03-{1 + number // 4:02} {hour:02}:00:00')"
        statement.execute(f"INSERT INTO orders VALUES ({number}, {at}, '{doubled}')")  # noqa: S608 - our own
    yield url
    connection.close()
    with pytest.raises(Exception, match="shutdown"):
        java.java.sql.DriverManager.getConnection(f"{url};shutdown=true")


def run(spark: SparkSession, folder: Path, keys: dict[str, Any]) -> Report:
    job = parse_job(
        {
            "ms.time.column": "SOLD", "ms.source.type": "sql",
            "ms.target.type": "sql", "ms.target.url": f"sqlite:///{folder}/copy.db",
            "ms.target.table": "copied", **keys,
        }
    )  # fmt: skip
    with open_store(f"sqlite:///{folder}/store.db", create=True) as store:
        return run_job(job, store, Extraction(job, spark), now=instant("2020-03-20T00:00:00Z"))


def copied(folder: Path, query: str = "SELECT id FROM copied") -> list[Any]:
    with closing(sqlite3.connect(folder / "copy.db")) as database:
        return sorted(row[0] if len(row) == 1 else row for row in database.execute(query))


def test_a_range_is_read_in_parts_on_the_clocks_of_the_job(
    spark: SparkSession, tmp_path: Path, derby: str
) -> None:
    keys = {
        "ms.source.url": derby, "ms.source.table": "orders", "ms.source.partitions": 3,
        "ms.watermark": [axis("2020-03-02 06:00:00", "2020-03-08 12:00:00")],
        "ms.timezone": "America/Los_Angeles",
    }  # fmt: skip
    report = run(spark, tmp_path, keys)
    assert [(outcome.state, outcome.rows, outcome.error) for outcome in report.outcomes] == [
        ("succeeded", 25, None)
    ]
    assert run(spark, tmp_path, {**keys, "ms.backfill": True}).succeeded
    assert copied(tmp_path, "SELECT ID FROM copied") == list(range(5, 30))
    # the 8th has no 02:00; 00:00 is in winter time, 06:00 in summer time
    times = copied(tmp_path, "SELECT ID, SOLD FROM copied WHERE ID IN (5, 28, 29)")
    assert [at[:19] for _, at in times] == [
        "2020-03-02 14:00:00",
        "2020-03-08 08:00:00",
        "2020-03-08 13:00:00",
    ]


def test_units_with_hostile_values_are_units(spark: SparkSession, tmp_path: Path, derby: str) -> None:
    unit = {"name": "shop", "type": "unit", "units": UNITS}
    keys = {
        "ms.source.url": derby, "ms.source.query": QUERY,
        "ms.watermark": [axis("2020-03-01", "2020-03-03"), unit], "ms.source.partitions": 2,
    }  # fmt: skip
    report = run(spark, tmp_path, keys)
    assert [(outcome.state, outcome.rows) for outcome in report.outcomes] == [("succeeded", 4)] * 2 + [
        ("succeeded", 0)
    ]
    assert copied(tmp_path, "SELECT ID, shop FROM copied") == [(n, shop) for n, _, shop in ROWS[:8]]


def test_database_errors_are_reported_without_the_address(spark: SparkSession, tmp_path: Path) -> None:
    keys = {
        "ms.source.url": f"jdbc:derby:{tmp_path}/nothing;user=me;password=s3cret",
        "ms.source.table": "orders", "ms.watermark": [axis("2020-03-01", "2020-03-03")],
    }  # fmt: skip
    [outcome] = run(spark, tmp_path, keys).outcomes
    assert "not found" in str(outcome.error)
    assert "s3cret" not in str(outcome.error)


def driver_of_postgresql() -> str:
    given = os.environ.get("POSTGRES_JDBC", "")
    paths = [given, "/usr/share/java/postgresql.jar", "/usr/share/java/postgresql-jdbc.jar"]
    found = [path for path in paths if path and Path(path).is_file()]
    if not found:
        pytest.skip("no JDBC driver of PostgreSQL on this machine: scripts/jdbc.sh installs it")
    return found[0]


@pytest.mark.postgres
@pytest.mark.proof
def test_the_command_reads_by_a_driver_that_the_job_names(server: Server, tmp_path: Path) -> None:
    url = server.create_database("by_jdbc")
    execute(url, "CREATE TABLE orders (id BIGINT, sold TIMESTAMPTZ, shop TEXT, price NUMERIC(8, 2))")
    rows = [(n, f"2020-03-{1 + n // 4:02} {hour:02}:00:00+01:00", shop, f"{n}.25") for n, hour, shop in ROWS]
    execute(url, "INSERT INTO orders VALUES (?, ?, ?, ?)", rows)
    keys = {
        "ms.watermark": [axis("2020-03-02", "2020-03-04"), {"name": "shop", "type": "unit", "units": UNITS}],
        "ms.timezone": "Europe/Berlin", "ms.time.column": "sold", "ms.source.partitions": 2,
        "ms.source.type": "sql", "ms.source.url": f"jdbc:postgresql://127.0.0.1:{server.port}/by_jdbc",
        "ms.source.jdbc.user": "tester", "ms.source.jdbc.password": "${env:SHOP_PASSWORD}",
        "ms.source.jdbc.jars": [driver_of_postgresql()], "ms.source.jdbc.driver": "org.postgresql.Driver",
        "ms.source.query": QUERY.replace("id", "id, price"),
        "ms.target.type": "sql", "ms.target.url": url, "ms.target.table": "copied",
    }  # fmt: skip
    (tmp_path / "shop.yaml").write_text(yaml.safe_dump(keys), encoding="utf-8")
    state = ["--state", f"sqlite:///{tmp_path}/store.db", "--now", "2020-03-05"]
    command = [sys.executable, "-m", "slackwater.cli", "ingest", str(tmp_path / "shop.yaml"), *state]
    password = server.url().split(":")[2].split("@")[0].replace("%20", " ")
    with Program(command, tmp_path / "log", {"SHOP_PASSWORD": password}) as program:
        program.finish()
        assert password not in program.said()
    same = "sold = (SELECT sold FROM orders WHERE orders.id = copied.id)"
    got = execute(url, f"SELECT id, shop, price::text, {same} FROM copied")  # noqa: S608 - our own
    assert sorted(got) == [(n, shop, f"{n}.25", True) for n, _, shop in ROWS[4:12]]
