"""Migrations: every version of the store is upgraded to the newest with its records intact."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sql
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy.engine import Connection, Engine

from slackwater.errors import UnknownSchemaVersion
from slackwater.ingest.ledger.progress_ledger import read_history
from slackwater.metadata import migrations
from slackwater.metadata import store_schema as schema
from slackwater.metadata.store import open_store, schema_version
from slackwater.sql.database import create_engine, database_url
from tests.support.sampling import sampled

LEASE = {"name": "bucket 7", "owner": "a", "expires_at": 2**62, "version": 3}


def at_version(engine: Engine, version: str) -> None:
    with engine.begin() as connection:
        migrations.upgrade(connection, version)


def differences(connection: Connection) -> list[object]:
    def ours(name: str | None, kind: str, _: object) -> bool:
        return kind != "table" or name != schema.VERSION_TABLE

    context = MigrationContext.configure(
        connection,
        opts={"include_name": ours, "version_table": schema.VERSION_TABLE, "compare_type": True},
    )
    return list(compare_metadata(context, schema.TABLES))


def test_the_schema_names_the_newest_migration() -> None:
    assert migrations.known()[-1] == schema.NEWEST


@pytest.mark.parametrize("version", sampled(migrations.known(), keep=migrations.known()[::5]))
def test_every_version_is_upgraded_with_its_records(empty_url: str, version: str) -> None:
    engine = create_engine(database_url(empty_url))
    at_version(engine, version)
    with engine.begin() as connection:
        connection.execute(schema.leases.insert().values(LEASE))
    engine.dispose()
    with open_store(empty_url, create=True) as store:
        assert store.read(schema_version) == schema.NEWEST
        assert store.read(lambda c: [dict(row._mapping) for row in c.execute(sql.select(schema.leases))]) == [
            LEASE
        ]
        assert store.read(differences) == []


def test_the_byte_offsets_of_batches_survive_the_rename_of_their_column(empty_url: str) -> None:
    engine = create_engine(database_url(empty_url))
    at_version(engine, "0013")
    with engine.begin() as connection:
        before = sql.MetaData()
        before.reflect(connection, only=["slackwater_streams", "slackwater_appends"])
        stream, append = (
            {column.name: column.type.python_type(7) for column in before.tables[name].c}
            for name in ("slackwater_streams", "slackwater_appends")
        )
        connection.execute(before.tables["slackwater_streams"].insert().values(stream))
        connection.execute(before.tables["slackwater_appends"].insert().values(append | {"place": 4096}))
    engine.dispose()
    with open_store(empty_url, create=True) as store:
        assert store.read(lambda c: c.scalar(sql.select(schema.appends.c.byte_offset))) == 4096


def test_failed_reads_are_taken_over_from_the_outcomes_since_the_last_success(empty_url: str) -> None:
    engine = create_engine(database_url(empty_url))
    at_version(engine, "0007")
    entries = [  # unit, low, state, ended_at
        ("failed twice", 3, "failed", 5),
        ("failed twice", 4, "failed", 6),
        ("stopped", 7, "interrupted", 5),
        ("repeated", 1, "failed", 5),
        ("repeated", 1, "succeeded", 6),
        ("failed later", 1, "failed", 5),
        ("failed later", 1, "succeeded", 6),
        ("failed later", 2, "failed", 7),
    ]
    with engine.begin() as connection:
        run = {"id": "a", "job": "orders", "watermark": "system", "started_at": 1, "state": "failed"}
        connection.execute(schema.runs.insert().values(run))
        for number, (unit, low, state, ended) in enumerate(entries):
            connection.execute(
                schema.outcomes.insert().values(
                    run="a", number=number, start=0, unit=unit, low=low, high=10, state=state,
                    rows=0, bytes=0, started_at=0, ended_at=ended,
                )
            )  # fmt: skip
    engine.dispose()
    with open_store(empty_url, create=True) as store:
        history = store.read(lambda connection: read_history(connection, "orders", "system"))
    assert sorted(history.failed_reads()) == [
        (0, "failed later", 2),
        (0, "failed twice", 3),
        (0, "stopped", 7),
    ]


def test_the_migrations_create_the_tables_of_the_schema(empty_url: str) -> None:
    with open_store(empty_url, create=True) as store:
        assert store.read(differences) == []


def test_a_difference_is_found(empty_url: str) -> None:
    with open_store(empty_url, create=True) as store:
        store.write(lambda c: c.exec_driver_sql("ALTER TABLE slackwater_leases ADD COLUMN more INTEGER"))
        assert len(store.read(differences)) == 1


def test_a_store_of_a_newer_release_is_rejected_and_unchanged(empty_url: str) -> None:
    with open_store(empty_url, create=True) as store:
        store.write(lambda c: c.exec_driver_sql("UPDATE slackwater_version SET version_num = '9999'"))
    with pytest.raises(
        UnknownSchemaVersion, match="schema version 9999, but this release supports 0001"
    ) as caught:
        open_store(empty_url, create=True)
    assert "p4ss" not in str(caught.value)
    engine = create_engine(database_url(empty_url))
    with engine.begin() as connection:
        assert schema_version(connection) == "9999"
    engine.dispose()


@pytest.mark.search
def test_processes_that_open_a_new_store_at_the_same_time_take_turns(empty_url: str) -> None:
    failed: list[BaseException] = []

    def opened() -> None:
        try:
            open_store(empty_url, create=True).close()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=opened) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    with open_store(empty_url, create=True) as store:
        assert store.read(differences) == []


@pytest.mark.search
def test_one_process_can_open_several_new_stores_at_the_same_time(tmp_path: Path) -> None:
    def opened(number: int) -> list[object]:
        with open_store(f"sqlite:///{tmp_path}/{number}.db", create=True) as store:
            return store.read(differences)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(opened, range(8))) == [[]] * 8


def test_a_migration_that_fails_leaves_nothing_behind(empty_url: str) -> None:
    engine = create_engine(database_url(empty_url))
    with engine.begin() as connection:
        # makes the second migration fail
        connection.exec_driver_sql("CREATE TABLE slackwater_segments (x INTEGER)")
    with pytest.raises(sql.exc.DBAPIError), engine.begin() as connection:
        migrations.upgrade(connection)
    with engine.begin() as connection:
        assert sql.inspect(connection).get_table_names() == ["slackwater_segments"]
    engine.dispose()
