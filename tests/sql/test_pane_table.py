"""The target table of panes: whether it fits, which values it can store, and secrets that are never shown."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sql

from slackwater.errors import InvalidArgument
from slackwater.sql.database import database_url, temporary_engine
from slackwater.sql.dead_letters import RowsRejected
from slackwater.sql.pane_table import PaneColumn, PaneTable
from slackwater.sql.pane_targets import TableDoesNotFit
from slackwater.time import to_datetime
from tests.spark.postgres import PASSWORD, Server
from tests.sql.panes import KEY, SECOND, TOTAL, at_once, batch, fold, made, rows, run_sql

pytestmark = pytest.mark.postgres


# ---- the table


def test_a_missing_table_is_named_with_what_would_create_it(url: str) -> None:
    target = PaneTable(database_url(url), "totals", KEY, TOTAL)
    with pytest.raises(
        TableDoesNotFit, match=r"does not exist in .*pass create=True, or create it: CREATE TABLE"
    ) as raised:
        target.prepare()
    assert PASSWORD not in str(raised.value)
    for statement in str(raised.value).partition("create it: ")[2].split("; "):
        run_sql(url, statement)
    target.prepare()
    fold(target, 0, batch(("a", 0, 5, 0, False)))
    assert rows(target) == [("a", 5)]


def test_every_column_that_does_not_fit_is_named(url: str) -> None:
    run_sql(url, "CREATE TABLE totals (name TEXT, window_start TEXT, total TEXT, reason TEXT NOT NULL)")
    with pytest.raises(TableDoesNotFit) as raised:
        PaneTable(database_url(url), "totals", KEY, TOTAL).prepare(create=True)
    message = str(raised.value)
    for part in (
        "lacks window_end",
        "window_start is TEXT, needs",
        "total is TEXT, needs BIGINT",
        "has NOT NULL columns that panes do not fill: reason",
    ):
        assert part in message


def test_a_table_with_columns_of_its_own_keeps_them(url: str) -> None:
    run_sql(url, "CREATE TABLE totals (name TEXT, total BIGINT, note TEXT DEFAULT 'new')")
    target = made(url, windows=False)
    fold(target, 0, batch(("a", 0, 5, 0, False)))
    run_sql(url, "UPDATE totals SET note = 'seen'")
    fold(target, 1, batch(("a", 0, 6, 1, False), ("b", 0, 1, 0, False)))
    assert rows(target, "SELECT name, total, note FROM totals") == [("a", 6, "seen"), ("b", 1, "new")]


def test_a_table_in_a_schema(server: Server) -> None:
    url = server.create_database("with_schema")
    run_sql(url, "CREATE SCHEMA shop")
    target = PaneTable(database_url(url), "shop.totals", KEY, TOTAL)
    target.prepare(create=True)
    fold(target, 0, batch(("a", 0, 5, 0, False)))
    assert rows(target, "SELECT name, total FROM shop.totals") == [("a", 5)]
    assert rows(target, "SELECT batch FROM shop.slackwater_upserts") == [(0,)]


def test_many_may_prepare_the_table_at_once(url: str) -> None:
    target = PaneTable(database_url(url), "totals", KEY, TOTAL)
    at_once(*[lambda: target.prepare(create=True)] * 6)
    assert rows(target) == []


VALUES: Sequence[tuple[str, pa.DataType, Any]] = [
    ("boolean", pa.bool_(), True),
    ("integer", pa.int32(), -(2**31)),
    ("integer", pa.int8(), 7),
    ("long", pa.int64(), 2**63 - 1),
    ("float", pa.float32(), 0.5),
    ("double", pa.float64(), 0.1),
    ("double", pa.float64(), float("inf")),
    ("decimal(38,18)", pa.decimal128(38, 18), Decimal("12345678901234567890.123456789012345678")),
    ("text", pa.string(), "日本 \"quoted\", 'single'\n\\N \\. ;-- ünï 🌊"),
    ("text", pa.string(), ""),
    ("binary", pa.binary(), b"\x00\xff'\\"),
    ("date", pa.date32(), to_datetime(0).date()),
    ("timestamp", pa.timestamp("us", "Asia/Tokyo"), to_datetime(1_700_000_000_123_456)),
    ("local timestamp", pa.timestamp("us"), to_datetime(1_700_000_000_123_456).replace(tzinfo=None)),
    ("json", pa.string(), '[1, {"a": "ü"}]'),
]


@pytest.mark.parametrize(("kind", "arrow", "value"), VALUES)
def test_a_value_comes_back_as_it_went_in(url: str, kind: str, arrow: pa.DataType, value: Any) -> None:
    target = made(url, values=(PaneColumn("total", kind),), windows=False)
    target.prepare()  # what was created fits
    panes = pa.record_batch(
        {
            "name": ["set", "null"],
            "total": pa.array([value, None], arrow),
            "pane_index": [0, 0],
            "retraction": [False, False],
        }
    )
    fold(target, 0, panes)
    table = target.table
    with temporary_engine(target.url) as engine, engine.connect() as connection:
        found = dict(connection.execute(sql.select(table.c.name, table.c.total)).all())
    seen = found["set"]
    if kind == "timestamp" and seen.tzinfo is None:
        seen = seen.replace(tzinfo=value.tzinfo)
    if kind == "decimal(38,18)":
        seen = Decimal(seen)
    assert seen == ([1, {"a": "ü"}] if kind == "json" else value)
    assert found["null"] is None


def test_keys_of_every_plain_kind_are_found_again(url: str) -> None:
    for (kind, arrow, value), number in zip(VALUES, itertools.count()):
        if kind == "json":
            continue
        target = PaneTable(
            database_url(url), f"keyed_{number}", (PaneColumn("name", kind),), TOTAL, windows=False
        )
        target.prepare(create=True)
        for index in range(2):
            given = {
                "name": pa.array([value], arrow),
                "total": [index],
                "pane_index": [index],
                "retraction": [False],
            }
            fold(target, index, pa.record_batch(given))
        assert rows(target, f"SELECT total FROM keyed_{number}") == [(1,)], kind  # noqa: S608 - our own


def numbered(name: float | None, index: int) -> pa.RecordBatch:
    given = {
        "name": pa.array([name], pa.float64()),
        "total": [index],
        "pane_index": [index],
        "retraction": [False],
    }
    return pa.record_batch(given)


def test_not_a_number_as_a_key_is_found_again_in_postgresql(server: Server) -> None:
    target = made(server.create_database("nan_keys"), key=(PaneColumn("name", "double"),), windows=False)
    for index, name in enumerate([math.nan, None, math.nan]):
        fold(target, index, numbered(name, index))
    assert sorted(total for _, total in rows(target)) == [1, 2]


def test_not_a_number_as_a_key_is_refused_in_sqlite_which_stores_it_as_null(tmp_path: Path) -> None:
    target = made(f"sqlite:///{tmp_path}/a.db", key=(PaneColumn("name", "double"),), windows=False)
    fold(target, 0, numbered(None, 0))
    with pytest.raises(RowsRejected, match=r"1 row: column 'name' is NaN, which SQLite stores as NULL"):
        fold(target, 1, numbered(math.nan, 1))
    assert rows(target) == [(None, 0)]


@pytest.mark.proof
def test_a_huge_batch_goes_in_whole(url: str) -> None:
    target, count = made(url), 100_000
    many = pa.record_batch(
        {
            "name": pa.array([f"key {number}" for number in range(count)]),
            "window_start": pa.array([0] * count, pa.timestamp("us", "UTC")),
            "window_end": pa.array([SECOND] * count, pa.timestamp("us", "UTC")),
            "total": pa.array(range(count), pa.int64()),
            "pane_index": pa.array([0] * count, pa.int64()),
            "retraction": pa.array([False] * count),
        }
    )
    fold(target, 0, many)
    fold(target, 1, many)
    assert rows(target, "SELECT count(*), sum(total) FROM totals") == [(count, count * (count - 1) // 2)]


# ---- names and secrets


@pytest.mark.parametrize(
    "name", ["", "totals; DROP TABLE x", 'to"tals', "a.b.c", "x" * 64, "1st", "a b", "a."]
)
def test_a_table_name_that_is_not_plain_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="table = "):
        PaneTable(database_url("sqlite:////nowhere/a.db"), name, KEY, TOTAL)


@pytest.mark.parametrize("name", ['na"me', "na me", "name)", ""])
def test_a_column_name_that_is_not_plain_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="column = "):
        PaneTable(database_url("sqlite:////nowhere/a.db"), "totals", (PaneColumn(name, "text"),), TOTAL)


def test_words_that_sql_has_taken_are_fine_names(url: str) -> None:
    columns = (PaneColumn("select", "text"), PaneColumn("größe", "text"))
    target = PaneTable(
        database_url(url),
        "table",
        columns,
        (PaneColumn("position", "long"), PaneColumn("order", "long")),
        windows=False,
    )
    target.prepare(create=True)
    given = {
        "select": ["x"],
        "größe": ["y"],
        "position": [1],
        "order": [2],
        "pane_index": [0],
        "retraction": [False],
    }
    fold(target, 0, pa.record_batch(given))
    fold(target, 1, pa.record_batch({**given, "position": [3]}))
    assert rows(target, 'SELECT "select", "größe", position, "order" FROM "table"') == [("x", "y", 3, 2)]


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://app:s3cret@127.0.0.1:1/shop",
        "postgresql://app@127.0.0.1:1/shop?password=s3cret",
        "mysql://app:s3cret@127.0.0.1/shop",
        "postgresql://app:s3cret@127.0.0.1:port/shop",
        "s3cret",
    ],
)
def test_no_error_shows_a_password(address: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(Exception, match=r".") as raised:
        PaneTable(database_url(address), "totals", KEY, TOTAL).prepare()
    shown = "".join(repr(one) + str(one) for one in chained(raised.value)) + caplog.text
    assert "s3cret" not in shown


def test_no_representation_shows_a_password() -> None:
    target = PaneTable(
        database_url("postgresql://app:s3cret@db/shop?sslpassword=s3cret"), "totals", KEY, TOTAL
    )
    assert "s3cret" not in repr(target) + str(target)


def test_a_failing_statement_does_not_show_its_values(server: Server) -> None:
    url = server.create_database("failing")
    target = made(url)
    run_sql(url, "ALTER TABLE totals ADD CHECK (total < 10)")
    with pytest.raises(sql.exc.IntegrityError) as raised:
        fold(target, 0, batch(("a", 0, 50, 0, False)), identity="s3cret")
    assert "s3cret" not in str(raised.value)


def chained(error: BaseException | None) -> Iterator[BaseException]:
    while error:
        yield error
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize("address", ["sqlite://", "sqlite:///:memory:"])
def test_a_database_in_memory_is_refused(address: str) -> None:
    with pytest.raises(InvalidArgument, match="name a file"):
        database_url(address)
