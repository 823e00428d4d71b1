"""Targets: schema drift under every policy, column types, merging by key, and secrets in messages."""

from __future__ import annotations

import csv
import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from slackwater.ingest.runner import Report
from slackwater.ingest.targets.dead_letter_files import DEAD_LETTERS
from slackwater.sql.dead_letters import dead_letters
from slackwater.time import DAY, HOUR, to_datetime
from tests.ingest.copying import AXIS, ROWS, START, add, execute, from_orders, orders, run
from tests.spark.postgres import Server
from tests.support.sampling import sampled

pytestmark = pytest.mark.spark
DAYS = [f"2020-01-0{day}T01:00:00Z" for day in range(10)]


def target_keys(target: str, folder: Path) -> dict[str, Any]:
    if target == "sql":
        return {"target_type": "sql", "target_url": f"sqlite:///{folder}/copied.db", "target_table": "copied"}
    return {"target_type": target, "target_path": str(folder / "copied")}


def rows_of(spark: SparkSession, target: str, folder: Path) -> dict[int, dict[str, Any]]:
    """The rows of a target by their number, without their times."""
    return dict(listed(spark, target, folder))


def listed(spark: SparkSession, target: str, folder: Path) -> list[tuple[int, dict[str, Any]]]:
    """The same, also where a number is there twice."""
    if target == "sql":
        url = f"sqlite:///{folder}/copied.db"
        names = [name for (name,) in execute(url, "SELECT name FROM pragma_table_info('copied')")]
        rows = [dict(zip(names, row, strict=True)) for row in execute(url, "SELECT * FROM copied")]
    elif target == "delta":
        rows = DeltaTable(folder / "copied").to_pyarrow_table().to_pylist()
    elif target == "parquet":
        rows = [row.asDict() for row in spark.read.parquet(f"{folder}/copied/rows").collect()]
    else:
        texts = [file.read_text(encoding="utf-8") for file in (folder / "copied" / "rows").glob("*.csv")]
        assert len({text.splitlines()[0] for text in texts}) == 1
        rows = [
            {name: value or None for name, value in row.items()}
            for text in texts
            for row in csv.DictReader(text.splitlines())
        ]
        rows = [{**row, "id": int(str(row["id"]))} for row in rows]
    found = [(row["id"], {name: value for name, value in row.items() if name != "at"}) for row in rows]
    return sorted(found, key=lambda row: row[0])


@pytest.mark.parametrize("target", sampled(["sql", "parquet", "csv", "delta"], keep=["sql", "delta"]))
def test_schema_drift_under_each_policy(spark: SparkSession, tmp_path: Path, target: str) -> None:
    source = f"sqlite:///{tmp_path}/source.db"
    orders(source)
    keys = from_orders(source, **target_keys(target, tmp_path))
    assert run(spark, tmp_path, DAYS[2], keys).succeeded
    execute(source, "ALTER TABLE orders ADD COLUMN note TEXT DEFAULT 'n'")
    execute(source, "ALTER TABLE orders DROP COLUMN name")

    (failed,) = run(spark, tmp_path, DAYS[3], keys).outcomes
    assert "SchemaDrift" in str(failed.error)
    assert "(new: note; missing: name)" in str(failed.error)
    assert set(rows_of(spark, target, tmp_path)) == set(range(5))

    (added,) = run(spark, tmp_path, DAYS[3], {**keys, "ms.schema.drift": "add"}).outcomes
    assert (added.state, added.drift) == ("succeeded", "new: note; missing: name")
    rows = rows_of(spark, target, tmp_path)
    assert rows[0] == {"id": 0, "name": "o'0", "note": None}
    assert rows[9] == {"id": 9, "name": None, "note": "n"}

    # another type: refused, or cast while every value can be
    text = "SELECT CAST(id AS TEXT) AS id, at, 7 AS more FROM orders WHERE at >= {{low}} AND at < {{high}}"
    changed = {name: value for name, value in keys.items() if name != "ms.source.table"}
    changed["ms.source.query"] = text
    for policy in ("fail", "add"):
        (failed,) = run(spark, tmp_path, DAYS[4], {**changed, "ms.schema.drift": policy}).outcomes
        assert "changed: id from int64 to string" in str(failed.error)
    ignoring = {**changed, "ms.schema.drift": "ignore"}
    bad = {**ignoring, "ms.source.query": text.replace("CAST(id AS TEXT)", "'x' || id")}
    (failed,) = run(spark, tmp_path, DAYS[4], bad).outcomes
    assert "cannot be cast" in str(failed.error)
    assert set(rows_of(spark, target, tmp_path)) == set(range(10))
    assert run(spark, tmp_path, DAYS[4], ignoring).succeeded
    rows = rows_of(spark, target, tmp_path)
    assert set(rows) == set(range(15))
    assert rows[14] == {"id": 14, "name": None, "note": None}


@pytest.mark.parametrize("target", ["sql", "parquet", "csv", "delta"])
def test_slices_are_replaced_in_the_timezone_of_the_job(
    spark: SparkSession, tmp_path: Path, target: str
) -> None:
    source = f"sqlite:///{tmp_path}/source.db"
    orders(source)  # its times name no zone, so they are in the timezone of the job
    keys = from_orders(
        source, **target_keys(target, tmp_path), timezone="America/New_York", grace_period_days=1
    )
    for day, count in ((3, 10), (4, 15)):
        assert run(spark, tmp_path, f"2020-01-0{day}T12:00:00Z", keys).succeeded
        assert [row[0] for row in listed(spark, target, tmp_path)] == list(range(count))


def test_a_given_schema_is_what_is_read(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("id,price,at\n1,1.50,2020-01-01 05:00:00\n", encoding="utf-8")
    columns = [
        {"name": "at", "type": "timestamp"},
        {"name": "price", "type": "decimal(9,2)"},
        {"name": "id", "type": "bigint"},
    ]
    keys = {
        "ms.source.type": "files", "ms.source.format": "csv", "ms.source.path": str(tmp_path / "in.csv"),
        "ms.schema": columns, "ms.target.type": "parquet", "ms.target.path": str(tmp_path / "copied"),
    }  # fmt: skip
    assert run(spark, tmp_path, DAYS[2], keys).outcomes[0].error is not None  # columns are in another order
    keys["ms.schema"] = [columns[2], columns[1], columns[0]]
    assert run(spark, tmp_path, DAYS[2], keys).succeeded
    (row,) = spark.read.parquet(f"{tmp_path}/copied/rows").collect()
    assert (row.id, row.price) == (1, Decimal("1.50"))


def test_a_value_that_is_not_cut_fails_its_unit_or_becomes_a_dead_letter(
    spark: SparkSession, tmp_path: Path
) -> None:
    lines = ["id,price,at", "1,2,2020-01-01 05:00:00", "2,1.9,2020-01-01 06:00:00", "3,x,2020-01-09 05:00:00"]
    (tmp_path / "in.csv").write_text("\n".join(lines), encoding="utf-8")
    kinds = {"id": "bigint", "price": "bigint", "at": "timestamp"}
    keys = {
        "ms.source.type": "files", "ms.source.format": "csv", "ms.source.path": str(tmp_path / "in.csv"),
        "ms.schema": [{"name": name, "type": kind} for name, kind in kinds.items()],
        "ms.target.type": "parquet", "ms.target.path": str(tmp_path / "copied"),
    }  # fmt: skip
    (failed,) = run(spark, tmp_path, DAYS[2], keys).outcomes
    assert "RowRejected: column 'price' has a value that cannot be cast to bigint" in str(failed.error)
    assert '\'1.9\', in the row {"id":"2","price":"1.9"' in str(failed.error)
    assert not (tmp_path / "copied" / "rows").exists()
    (written,) = run(spark, tmp_path, DAYS[2], {**keys, "ms.target.on.error": "emit"}).outcomes
    assert (written.rows, written.rejected) == (1, 1)  # the price "x" belongs to another day
    assert [row.price for row in spark.read.parquet(f"{tmp_path}/copied/rows").collect()] == [2]
    (line,) = (tmp_path / "copied" / "rows" / DEAD_LETTERS).read_text(encoding="utf-8").splitlines()
    letter = json.loads(line)
    assert (letter["job"], letter["row"]["price"]) == ("job", "1.9")
    assert (letter["low"], letter["time"]) == ("2020-01-01T00:00:00Z", "2020-01-01T06:00:00Z")


@pytest.mark.postgres
@pytest.mark.parametrize("on_error", ["fail", "emit"])
def test_a_time_that_postgresql_would_round_is_not_stored(
    spark: SparkSession, tmp_path: Path, server: Server, on_error: str
) -> None:
    source, target = f"sqlite:///{tmp_path}/source.db", server.create_database(f"cut_{time.monotonic_ns()}")
    execute(source, "CREATE TABLE orders (id BIGINT, at TEXT)")
    rows = [(1, "2020-01-01 05:00:00.123"), (2, "2020-01-01 05:00:00.123456")]
    execute(source, "INSERT INTO orders VALUES (?, ?)", rows)
    execute(target, "CREATE TABLE copied (id BIGINT, at TIMESTAMPTZ(3))")
    keys = from_orders(source, target_type="sql", target_url=target, target_table="copied")
    (outcome,) = run(spark, tmp_path, DAYS[3], {**keys, "ms.target.on.error": on_error}).outcomes
    reason = "column 'at' would be rounded: the column stores 3 digits of a second"
    if on_error == "fail":
        assert f"RowRejected: {reason}, in the row" in str(outcome.error)
        assert execute(target, "SELECT id FROM copied") == []
    else:
        assert (outcome.rows, outcome.rejected) == (1, 1)
        assert dead_letters(target, "copied")["reason"].to_list() == [reason]
        assert execute(target, "SELECT id FROM copied") == [(1,)]


@pytest.mark.postgres
def test_rows_that_postgresql_rejects_become_dead_letters_and_are_not_doubled(
    spark: SparkSession, tmp_path: Path, server: Server
) -> None:
    source, target = f"sqlite:///{tmp_path}/source.db", server.create_database(f"dead_{time.monotonic_ns()}")
    execute(source, "CREATE TABLE orders (id BIGINT, at TEXT, name TEXT, more TEXT)")
    names = ["fine", "nul\0", "too long", "fine", "fine"]
    numbers, more = [0, 1, 2, 40_000, 4], ['{"a": 1}', "{}", "{}", "{}", "no JSON"]
    rows = [
        (number, f"2020-01-0{1 + index // 3} 05:00:00", names[index], more[index])
        for index, number in enumerate(numbers)
    ]
    execute(source, "INSERT INTO orders VALUES (?, ?, ?, ?)", rows)
    execute(target, "CREATE TABLE copied (id SMALLINT, at TIMESTAMPTZ, name VARCHAR(5), more JSONB)")
    keys = from_orders(source, target_type="sql", target_url=target, target_table="copied")
    keys |= {"ms.target.on.error": "emit", "ms.grace.period.days": 1}
    for day, rejected in ((3, 4), (4, 2)):
        (outcome,) = run(spark, tmp_path, DAYS[day], keys).outcomes
        assert (outcome.state, outcome.rejected) == ("succeeded", rejected)
        assert execute(target, "SELECT id FROM copied") == [(0,)]
        found = dead_letters(target, "copied").to_dicts()
        reasons = {json.loads(each["content"])["id"]: each["reason"] for each in found}
        assert len(found) == len(reasons) == 4
        for number, part in {1: "U+0000", 2: "longer than 5", 40_000: "16 bits", 4: "type json"}.items():
            assert part in reasons[number]


@pytest.mark.postgres
def test_postgresql_types_are_read_and_written(spark: SparkSession, tmp_path: Path, server: Server) -> None:
    url = server.create_database(f"types_{time.monotonic_ns()}")
    number = "6f7b6a3e-0a4f-4a57-9c39-0a8f6b1b2c3d"
    execute(
        url,
        "CREATE TABLE orders (id INT, at TIMESTAMPTZ, price NUMERIC(9,2), free NUMERIC, number UUID, "
        "more JSONB, prices NUMERIC(9,2)[])",
    )
    values = (1, "2020-01-01 05:00Z", "1.5", "0.3333333333333333333333", number, '{"a": 1}', "{1.5}")
    execute(url, "INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?, ?)", [values])
    folder = from_orders(url, target_type="parquet", target_path=str(tmp_path / "copied"))
    assert run(spark, tmp_path, DAYS[2], folder).succeeded
    (row,) = spark.read.parquet(f"{tmp_path}/copied/rows").collect()
    assert (row.price, row.free, row.number) == (Decimal("1.50"), "0.3333333333333333333333", number)
    assert (json.loads(row.more), row.prices) == ({"a": 1}, ["1.50"])

    execute(
        url,
        "CREATE TABLE copied (id SMALLINT, at TIMESTAMPTZ(3), price NUMERIC(12,4), free VARCHAR(40), "
        "number UUID, more JSONB, prices TEXT, loaded INT GENERATED ALWAYS AS (id + 1) STORED)",
    )
    table = from_orders(url, target_type="sql", target_url=url, target_table="copied", job_name="table")
    assert run(spark, tmp_path, DAYS[2], table).succeeded
    query = "SELECT id, price, number::text, more->>'a', prices, loaded FROM copied"
    assert execute(url, query) == [(1, Decimal("1.5000"), number, "1", '["1.50"]', 2)]


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def test_rows_are_merged_by_key_and_the_newest_stays(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest, kind: str
) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    if kind == "postgresql":
        server: Server = request.getfixturevalue("server")
        url = server.create_database(f"merged_{time.monotonic_ns()}")
    orders(url)
    # two rows of one key within a day, and one of another day, which runs at the same time
    add(url, [(0, START + HOUR, "newer"), (1, START + 2 * DAY + HOUR, "newest")])
    keys = from_orders(
        url, target_type="sql", target_url=url, target_table="copied", target_mode="merge",
        target_key=["id"], work_unit_partition="daily", grace_period_days=9,
    )  # fmt: skip
    assert run(spark, tmp_path, DAYS[4], keys).succeeded
    query = "SELECT id, name FROM copied ORDER BY id"
    expected = [(number, f"o'{number}") for number, _, _ in ROWS]
    expected[:2] = [(0, "newer"), (1, "newest")]
    assert execute(url, query) == expected
    # a day that is read again brings an older row of the key, which changes nothing, and a new row
    add(url, [(99, START + HOUR, "late")])
    assert run(spark, tmp_path, DAYS[5], keys).succeeded
    assert execute(url, query) == [*expected, (99, "late")]

    execute(url, "INSERT INTO orders VALUES (NULL, '2020-01-04 05:00:00', 'no key')")
    *_, failed = run(spark, tmp_path, DAYS[5], keys).outcomes
    assert "ms.target.key = ['id']: is null in some rows" in str(failed.error)
    assert execute(url, query) == [*expected, (99, "late")]


@pytest.mark.postgres
def test_no_message_shows_a_password_in_any_spelling(
    spark: SparkSession, tmp_path: Path, server: Server
) -> None:
    source = f"sqlite:///{tmp_path}/source.db"
    orders(source)
    url = server.create_database(f"secret_{time.monotonic_ns()}").replace("@127", "-wrong%2Fone@127")
    for keys in (
        from_orders(url, target_type="parquet", target_path=str(tmp_path / "copied")),
        from_orders(source, target_type="sql", target_url=url, target_table="copied"),
    ):
        (failed,) = run(spark, tmp_path, DAYS[2], keys).outcomes
        assert failed.error
        assert "p4ss" not in failed.error
        assert "phrase" not in failed.error


def test_units_are_written_apart_into_delta(spark: SparkSession, tmp_path: Path) -> None:
    source = f"sqlite:///{tmp_path}/source.db"
    orders(source)
    units = [AXIS, {"name": "name", "type": "unit", "units": ["o'1", "o'2", "none"]}]
    keys = from_orders(source, **target_keys("delta", tmp_path), watermark=units)
    del keys["ms.source.table"]
    keys["ms.source.query"] = "SELECT id FROM orders WHERE name = {{name}}"
    for _ in range(2):  # without a time column a partition of a unit is replaced as a whole
        assert run(spark, tmp_path, DAYS[4], {**keys, "ms.backfill": True}, time_column=None).succeeded
    rows = DeltaTable(tmp_path / "copied").to_pyarrow_table().select(["id", "name"]).to_pylist()
    assert sorted((row["id"], row["name"]) for row in rows) == [(1, "o'1"), (2, "o'2")]


def test_a_row_without_a_time_is_replaced_by_one_with_a_time(spark: SparkSession, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/copied.db"
    orders(url)
    execute(url, "CREATE TABLE copied (id BIGINT, at TEXT, name TEXT)")
    execute(url, "INSERT INTO copied VALUES (0, NULL, 'old'), (99, NULL, 'stays')")
    merging = {"target_mode": "merge", "target_key": ["id"]}
    assert run(
        spark, tmp_path, DAYS[2], from_orders(url, **target_keys("sql", tmp_path), **merging)
    ).succeeded
    rows = rows_of(spark, "sql", tmp_path)
    assert (rows[0]["name"], rows[99]["name"], len(rows)) == ("o'0", "stays", 6)


@pytest.mark.postgres
def test_times_without_a_zone_in_a_table_are_in_the_timezone_of_the_job(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    url = server.create_database(f"clocks_{time.monotonic_ns()}")
    orders(url)
    execute(url, "CREATE TABLE copied (id BIGINT, at TIMESTAMP, name TEXT)")
    keys = from_orders(
        url, target_type="sql", target_url=url, target_table="copied", timezone="Asia/Tokyo",
        schema_drift="ignore", work_unit_partition="daily", backfill=True,
    )  # fmt: skip
    for _ in range(2):
        assert run(spark, tmp_path, DAYS[6], keys).succeeded
    found = execute(url, "SELECT id, at - INTERVAL '9 hours' FROM copied ORDER BY id")
    assert [(number, moment.isoformat()) for number, moment in found] == [
        (number, to_datetime(at).replace(tzinfo=None).isoformat()) for number, at, _ in ROWS
    ]


def test_spark_reads_back_what_a_unit_is_called(spark: SparkSession, tmp_path: Path) -> None:
    source = f"sqlite:///{tmp_path}/source.db"
    orders(source)
    names = ["é", "日本", "a/b=c%41 d", "x#\"'*?:\\{[]^", "plain"]
    keys = from_orders(source, **target_keys("parquet", tmp_path))
    keys["ms.watermark"] = [AXIS, {"name": "site", "type": "unit", "units": names}]
    keys["ms.source.query"] = "SELECT id, at FROM orders WHERE {{site}} = {{site}} AND at >= {{low}}"
    del keys["ms.source.table"]
    assert run(spark, tmp_path, DAYS[2], keys).succeeded
    found = spark.read.parquet(f"{tmp_path}/copied").groupBy("site").count().collect()
    assert {row.site: row["count"] for row in found} == dict.fromkeys(names, 5)


@pytest.mark.proof
def test_several_jobs_may_write_to_one_folder_at_the_same_time(spark: SparkSession, tmp_path: Path) -> None:
    source = f"sqlite:///{tmp_path}/source.db"
    orders(source)

    def job(number: int) -> Report:
        axis = {**AXIS, "range": {"from": f"2020-01-0{number}", "to": f"2020-01-0{number + 1}"}}
        keys = from_orders(source, **target_keys("parquet", tmp_path), job_name=f"job{number}")
        hourly = {"ms.watermark": [axis], "ms.work.unit.partition": "hourly"}
        (tmp_path / str(number)).mkdir()
        return run(spark, tmp_path / str(number), DAYS[9], {**keys, **hourly})

    with ThreadPoolExecutor(3) as pool:
        reports = list(pool.map(job, (1, 2, 3)))
    assert [(report.succeeded, len(report.outcomes)) for report in reports] == [(True, 24)] * 3
    assert [row[0] for row in listed(spark, "parquet", tmp_path)] == list(range(15))


def test_a_link_to_a_removed_folder_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    source = f"sqlite:///{tmp_path}/source.db"
    orders(source)
    keys = from_orders(source, **target_keys("parquet", tmp_path))
    assert run(spark, tmp_path, DAYS[2], keys).succeeded
    shutil.rmtree(tmp_path / "copied" / "_versions")
    (failed,) = run(spark, tmp_path, DAYS[3], keys).outcomes
    assert "which does not exist; remove the link and set ms.backfill" in str(failed.error)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("nope", "column not found in the source; available: id, at, name"),
        ("id", "does not contain times: int64"),
    ],
)
def test_a_watermark_column_without_times_is_named(
    spark: SparkSession, tmp_path: Path, column: str, message: str
) -> None:
    source = f"sqlite:///{tmp_path}/source.db"
    orders(source)
    keys = from_orders(source, **target_keys("parquet", tmp_path), watermark_column=column)
    (failed,) = run(spark, tmp_path, DAYS[2], keys).outcomes
    assert f"ms.watermark.column = '{column}': {message}" in str(failed.error)


def test_a_column_of_the_schema_that_is_not_read_is_named(spark: SparkSession, tmp_path: Path) -> None:
    source = f"sqlite:///{tmp_path}/source.db"
    orders(source)
    schema = [
        {"name": "ID", "type": "int"},
        {"name": "at", "type": "timestamp"},
        {"name": "a`b", "type": "int"},
    ]
    keys = from_orders(source, **target_keys("parquet", tmp_path), schema=schema)
    (failed,) = run(spark, tmp_path, DAYS[2], keys).outcomes
    assert "ms.schema = 'a`b': column not found; use one of id, at, name" in str(failed.error)


def test_a_column_whose_name_differs_from_a_unit_field_only_by_case_is_rejected(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = f"sqlite:///{tmp_path}/source.db"
    orders(source)
    keys = from_orders(source, **target_keys("parquet", tmp_path))
    keys["ms.watermark"] = [AXIS, {"name": "Name", "type": "unit", "units": "a"}]
    keys["ms.source.query"] = "SELECT * FROM orders WHERE {{Name}} = 'a' AND at >= {{low}}"
    del keys["ms.source.table"]
    (failed,) = run(spark, tmp_path, DAYS[2], keys).outcomes
    problem = "ms.watermark = 'name': is a column with the same name in Spark as the field 'Name'"
    assert problem in str(failed.error)


def test_a_unit_that_fails_has_not_changed_the_columns_and_a_long_text_is_kept(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = f"sqlite:///{tmp_path}/source.db"
    orders(source)
    add(source, [(99, START + HOUR, "x" * 200_000)])
    keys = from_orders(source, **target_keys("csv", tmp_path), grace_period="PT5H")
    assert run(spark, tmp_path, DAYS[2], keys).succeeded
    kept = tmp_path / "copied" / "rows"
    (file,) = kept.glob("*.csv")
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("2020-01-01", "no date at all"), encoding="utf-8")
    execute(source, "ALTER TABLE orders ADD COLUMN more TEXT DEFAULT 'm'")
    (failed,) = run(spark, tmp_path, DAYS[3], {**keys, "ms.schema.drift": "add"}).outcomes
    assert failed.error is not None
    file.write_text(text, encoding="utf-8")
    execute(source, "ALTER TABLE orders DROP COLUMN more")
    assert run(spark, tmp_path, DAYS[3], keys).succeeded
    assert [row[0] for row in csv_rows(kept)] == [*range(10), 99]


def csv_rows(folder: Path) -> list[tuple[int, int]]:
    found = []
    for file in folder.glob("*.csv"):
        with file.open(encoding="utf-8", newline="") as opened:
            found += [(int(row["id"]), len(row["name"])) for row in csv.DictReader(opened)]
    return sorted(found)
