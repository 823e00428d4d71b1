"""The stage-and-merge engine on both databases: loading values, deleting matches, dropping leftovers."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sql
from sqlalchemy.engine import Connection

from slackwater.sql.adbc import create_loaded_table
from slackwater.sql.database import database_url, temporary_engine
from slackwater.sql.merge import delete_matching, insert_missing, latest_rows
from slackwater.sql.staging_table import (
    StagedRowsLost,
    check_row_count,
    deserialize_batches,
    drop_staging_tables,
    load_batches,
    serialize_batches,
)
from tests.spark.postgres import Server


@pytest.fixture
def connection(empty_url: str) -> Iterator[Connection]:
    with temporary_engine(database_url(empty_url)) as engine, engine.begin() as connection:
        yield connection


def table_of(connection: Connection, name: str, *columns: sql.Column[Any]) -> sql.Table:
    table = sql.Table(name, sql.MetaData(), *columns)
    table.create(connection)
    return table


def everything(connection: Connection, table: sql.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in connection.execute(sql.select(table)))


def test_values_of_every_type_and_odd_column_names_are_loaded(connection: Connection) -> None:
    names = ['a"b', "50%", "a.b", "sélect", ":x"]
    types: list[Any] = [sql.Text(), sql.LargeBinary(), sql.DateTime(), sql.Boolean(), sql.BigInteger()]
    columns = [sql.Column(name, kind) for name, kind in zip(names, types, strict=True)]
    table = table_of(connection, "staged", *columns)
    arrays = [
        pa.array(['say "\\."\n', "", None]),
        pa.array([b"\x00\xff", b"", None]),
        pa.array([datetime(2024, 1, 1, 5, 0, 0, 7), None, None], pa.timestamp("us")),  # noqa: DTZ001 - local
        pa.array([True, False, None]),
        pa.array([2**63 - 1, -(2**63), None]),
    ]
    batch = pa.RecordBatch.from_arrays(arrays, names=names)
    load_batches(connection, table, [batch.slice(0, 2), batch.slice(2, 0), batch.slice(2)])
    expected = list(zip(*(array.to_pylist() for array in arrays), strict=True))
    assert sorted(map(tuple, connection.execute(sql.select(table))), key=repr) == sorted(expected, key=repr)


def test_small_decimals_and_zoned_times_are_plain_text_in_sqlite(tmp_path: Any) -> None:
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    batch = pa.record_batch(
        {
            "price": pa.array([Decimal("0.0000000010"), Decimal(0)], pa.decimal128(20, 10)),
            "at": pa.array([moment, moment], pa.timestamp("us", "Asia/Tokyo")),
        }
    )
    url = database_url(f"sqlite:///{tmp_path}/a.db")
    with temporary_engine(url) as engine, engine.begin() as connection:
        table = table_of(connection, "t", sql.Column("price", sql.Text), sql.Column("at", sql.Text))
        load_batches(connection, table, [batch])
        at = "2024-01-01 00:00:00.000000"
        assert everything(connection, table) == [("0.0000000000", at), ("0.0000000010", at)]


def test_the_latest_row_of_a_key_replaces_the_one_in_the_table(connection: Connection) -> None:
    def columns() -> list[sql.Column[Any]]:
        return [sql.Column("id", sql.BigInteger), sql.Column("at", sql.BigInteger)]

    # the names of the tables are those that a subquery might have
    target, staged = table_of(connection, "latest", *columns()), table_of(connection, "ranked", *columns())
    connection.execute(sql.insert(target), [{"id": 1, "at": 5}, {"id": 2, "at": 9}, {"id": 3, "at": 1}])
    connection.execute(
        sql.insert(staged), [{"id": 1, "at": 6}, {"id": 1, "at": 7}, {"id": 2, "at": 8}, {"id": 4, "at": 2}]
    )
    newest = latest_rows(staged, ["id", "at"], key=["id"], newest_first=[staged.c.at.desc()])
    same = newest.c.id == target.c.id
    delete_matching(connection, target, newest, sql.and_(same, newest.c.at >= target.c.at))
    insert_missing(connection, target, newest, {"id": newest.c.id, "at": newest.c.at}, same)
    assert everything(connection, target) == [(1, 7), (2, 9), (3, 1), (4, 2)]


@pytest.mark.parametrize("suffix", ["", " WITHOUT ROWID"])
def test_sqlite_deletes_matches_from_tables_with_and_without_row_ids(tmp_path: Any, suffix: str) -> None:
    with (
        temporary_engine(database_url(f"sqlite:///{tmp_path}/a.db")) as engine,
        engine.begin() as connection,
    ):
        connection.exec_driver_sql(f"CREATE TABLE t (id INTEGER PRIMARY KEY){suffix}")
        connection.exec_driver_sql("INSERT INTO t VALUES (1), (2), (3)")
        target = sql.Table("t", sql.MetaData(), sql.Column("id", sql.Integer))
        source = sql.select(sql.literal(2).label("id")).subquery("source")
        delete_matching(connection, target, source, source.c.id == target.c.id)
        assert everything(connection, target) == [(1,), (3,)]


def test_sqlite_evaluates_the_source_of_a_delete_once(tmp_path: Any) -> None:
    """A correlated subquery would be evaluated for every row of the table."""
    statements: list[str] = []
    with temporary_engine(database_url(f"sqlite:///{tmp_path}/a.db")) as engine, engine.begin() as connection:
        target = table_of(connection, "t", sql.Column("id", sql.Integer))
        staged = table_of(connection, "staged", sql.Column("id", sql.Integer))
        sql.event.listen(connection, "before_cursor_execute", lambda *given: statements.append(given[2]))
        delete_matching(connection, target, staged, staged.c.id == target.c.id)
        delete = statements[-1]
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {delete}").all()
    assert delete.startswith("DELETE FROM t")
    assert not [row for row in plan if "CORRELATED" in row[-1]]


def test_a_merge_notices_that_staged_rows_are_missing(connection: Connection) -> None:
    table = table_of(connection, "staged", sql.Column("id", sql.BigInteger))
    load_batches(connection, table, [pa.record_batch({"id": [1, 2]})])
    check_row_count(connection, "totals", table, table.c.id > 0, 2)
    with pytest.raises(StagedRowsLost, match="only 1 of 2 rows staged for totals are left"):
        check_row_count(connection, "totals", table, table.c.id > 1, 2)


@pytest.mark.postgres
def test_only_staging_tables_with_the_prefix_are_dropped(server: Server) -> None:
    url = database_url(server.create_database("prefixes"))
    batch = pa.record_batch({"id": [1, 2]})
    for name in ("slackwater_ingest_a_1", "slackwater_ingest_a_2", "slackwater_ingest_b_1"):
        create_loaded_table(url, name, batch.schema, iter([batch]))
    with temporary_engine(url) as engine, engine.begin() as connection:
        drop_staging_tables(connection, "slackwater_ingest_a_")
        assert sql.inspect(connection).get_table_names() == ["slackwater_ingest_b_1"]
        kept = sql.table("slackwater_ingest_b_1")
        assert connection.execute(sql.select(sql.func.count()).select_from(kept)).scalar_one() == 2


def test_serialized_batches_round_trip() -> None:
    batches = [pa.record_batch({"id": [1, 2]}), pa.record_batch({"id": [3]})]
    assert list(deserialize_batches(serialize_batches(batches))) == batches
    assert serialize_batches([]) is None
    assert list(deserialize_batches(None)) == []


class FailingCursor(sqlite3.Cursor):
    """A cursor on a disk that fails while it looks for row ids, which ends the transaction."""

    def execute(self, statement: str, parameters: Any = (), /) -> FailingCursor:
        if "rowid" in statement and "LIMIT" in statement:
            self.connection.rollback()
            raise sqlite3.OperationalError("disk I/O error")
        super().execute(statement, parameters)
        return self


class FailingConnection(sqlite3.Connection):
    def cursor(self, factory: Any = FailingCursor) -> Any:
        return super().cursor(FailingCursor)


def test_a_failure_while_row_ids_are_looked_for_is_raised() -> None:
    engine = sql.create_engine(
        "sqlite://", creator=lambda: sqlite3.connect(":memory:", factory=FailingConnection)
    )
    with engine.begin() as connection:
        target, source = (table_of(connection, name, sql.Column("id", sql.BigInteger)) for name in "ab")
    with pytest.raises(sql.exc.OperationalError, match="disk I/O error"), engine.begin() as connection:
        delete_matching(connection, target, source, source.c.id == target.c.id)
