"""Engines of SQLite share the statements that they have compiled."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sql

from slackwater.sql import database
from slackwater.sql.database import create_engine, database_url, temporary_engine


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> database._CompiledStatements:
    statements = database._CompiledStatements()
    monkeypatch.setattr(database, "_COMPILED", statements)
    return statements


def test_a_statement_is_compiled_once_for_all_files(
    tmp_path: Path, compiled: database._CompiledStatements
) -> None:
    results = []
    for number in range(3):
        url = database_url(f"sqlite:///{tmp_path}/{number}.db")
        with temporary_engine(url) as engine, engine.begin() as connection:
            connection.exec_driver_sql(f"CREATE TABLE totals AS SELECT {number} AS total")
            totals = sql.table("totals", sql.column("total"))
            results.append(connection.scalar(sql.select(totals.c.total).where(totals.c.total == number)))
    assert results == [0, 1, 2]
    assert len(compiled) == 1


def test_the_checks_of_an_engine_are_its_own(tmp_path: Path, compiled: database._CompiledStatements) -> None:
    """A temporary engine does not warn of a missing join condition, and a later engine does."""
    url = database_url(f"sqlite:///{tmp_path}/a.db")
    tables = [sql.table(name, sql.column("x")) for name in ("a", "b")]
    product = sql.select(*(table.c.x for table in tables))
    with temporary_engine(url) as engine, engine.begin() as connection:
        for table in tables:
            connection.exec_driver_sql(f"CREATE TABLE {table.name} (x)")
        assert connection.execute(product).all() == []
    engine = create_engine(url)
    with engine.begin() as connection, pytest.warns(sql.exc.SAWarning, match="cartesian product"):
        connection.execute(product)
    engine.dispose()
    assert len(compiled) == 2


def test_the_number_of_statements_is_bounded(
    tmp_path: Path, compiled: database._CompiledStatements, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database._CompiledStatements, "_MOST", 3)
    with temporary_engine(database_url(f"sqlite:///{tmp_path}/a.db")) as engine, engine.begin() as connection:
        for number in range(10):
            connection.execute(sql.select(sql.literal(1).label(f"x{number}")))
            assert 1 <= len(compiled) <= 3
