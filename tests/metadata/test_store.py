"""Transactions of the store: atomic, retried where that is safe, and errors without secrets; leases."""

from __future__ import annotations

import threading
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sql
from sqlalchemy.engine import Connection

from slackwater.errors import InvalidArgument, StoreUnavailable
from slackwater.metadata.leases import Leases
from slackwater.metadata.store import open_store
from slackwater.metadata.store_schema import leases
from tests.spark.postgres import PASSWORD, Server


def count(connection: Connection) -> int:
    return connection.execute(sql.select(sql.func.count()).select_from(leases)).scalar_one()


def add(connection: Connection, name: str) -> None:
    connection.execute(leases.insert().values(name=name, owner="a", expires_at=0, version=1))


def test_work_that_fails_changes_nothing(store_url: str) -> None:
    def work(connection: Connection) -> None:
        add(connection, "x")
        raise KeyError("half way")

    with open_store(store_url) as store:
        with pytest.raises(KeyError):
            store.write(work)
        assert store.read(count) == 0


@pytest.mark.postgres
def test_a_user_without_privileges_gets_an_error(stores: str) -> None:
    url = sql.make_url(stores)
    with psycopg.connect(stores, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS visitor")
        connection.execute(f"CREATE ROLE visitor LOGIN PASSWORD '{PASSWORD}'")
        connection.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    visiting = url.set(username="visitor").render_as_string(hide_password=False)
    with pytest.raises(StoreUnavailable, match=r"is not available: .*permission denied") as caught:
        open_store(visiting)
    assert PASSWORD not in str(caught.value)


def test_concurrent_writes_lose_no_update(store_url: str) -> None:
    def increment(connection: Connection) -> None:
        row = connection.execute(sql.select(leases.c.version).with_for_update()).scalar_one()
        connection.execute(leases.update().values(version=row + 1))

    with open_store(store_url) as store:
        store.write(lambda connection: add(connection, "x"))

        def many() -> None:
            for _ in range(25):
                store.write(increment)

        threads = [threading.Thread(target=many) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.read(lambda c: c.execute(sql.select(leases.c.version)).scalar_one()) == 101


def test_sqlite_settings_are_applied(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        settings = {
            name: store.read(lambda c, name=name: c.exec_driver_sql(f"PRAGMA {name}").scalar())  # type: ignore[misc]  # bound now
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert settings == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 30_000}


def test_readers_do_not_wait_for_a_writer(store_url: str) -> None:
    with open_store(store_url) as store:

        def work(connection: Connection) -> int:
            add(connection, "x")
            return store.read(count)

        assert store.write(work) == 0
        assert store.read(count) == 1


@pytest.mark.postgres
def test_a_deadlock_is_retried(server: Server, request: pytest.FixtureRequest) -> None:
    with open_store(server.create_database(request.node.name[:60])) as store:
        for name in "ab":
            store.write(lambda connection, name=name: add(connection, name))  # type: ignore[misc]  # bound now
        both = threading.Barrier(2, timeout=20)
        attempts = []

        def in_order(order: str) -> None:
            first = threading.Event()

            def work(connection: Connection) -> None:
                attempts.append(order)
                for name in order:
                    connection.execute(
                        leases.update().where(leases.c.name == name).values(version=leases.c.version + 1)
                    )
                    if name == order[0] and not first.is_set():
                        first.set()
                        both.wait()

            store.write(work)

        threads = [threading.Thread(target=in_order, args=(order,)) for order in ("ab", "ba")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(attempts) == 3
        assert store.read(lambda c: c.execute(sql.select(leases.c.version)).scalars().all()) == [3, 3]


@pytest.mark.postgres
@pytest.mark.parametrize("repeatable", [True, False])
def test_only_repeatable_work_is_retried_after_a_lost_connection(server: Server, repeatable: bool) -> None:
    with open_store(server.create_database(f"lost_{repeatable}")) as store:
        attempts = []

        def work(connection: Connection) -> None:
            attempts.append(1)
            if len(attempts) == 1:
                own = connection.execute(sql.select(sql.func.pg_backend_pid())).scalar_one()
                with open_store(server.url()) as other:
                    other.read(lambda c: c.execute(sql.select(sql.func.pg_terminate_backend(own))).all())
            add(connection, "x")

        if repeatable:
            store.write(work, repeatable=True)
            assert store.read(count) == 1
        else:
            with pytest.raises(StoreUnavailable) as caught:
                store.write(work)
            assert PASSWORD not in str(caught.value)
            assert store.read(count) == 0
        assert len(attempts) == 1 + repeatable


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("sqlite://", "is an in-memory database"),
        ("sqlite:///no-such-folder/store.db", "not available: unable to open database file"),
        ("mysql://app:s3cret@db.example/x", "neither PostgreSQL nor SQLite"),
        ("postgresql://app:s3cret@127.0.0.1:1/x", "not available"),
        ("s3cret", "cannot be parsed"),
    ],
)
def test_errors_about_an_unreachable_store_do_not_show_the_password(url: str, says: str) -> None:
    with pytest.raises((InvalidArgument, StoreUnavailable), match=says) as caught:
        open_store(url)
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(vars(caught.value))


def test_a_file_that_is_not_a_database_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_bytes(b"something else entirely" * 100)
    with pytest.raises(StoreUnavailable, match="file is not a database"):
        open_store(f"sqlite:///{tmp_path}/store.db")


# ---- leases


class Clock:
    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def test_a_lease_is_held_until_exactly_its_end(store_url: str) -> None:
    clock = Clock()
    with open_store(store_url) as store:
        held = Leases(store, clock=clock)
        mine = held.acquire("job", "a", lasting=10)
        assert mine is not None
        clock.now = 9
        assert held.acquire("job", "b", lasting=10) is None
        assert [lease.owner for lease in held.held()] == ["a"]
        clock.now = 10
        assert held.held() == []
        taken = held.acquire("job", "b", lasting=10)
        assert taken is not None
        assert (held.renew(mine, lasting=10), held.release(mine)) == (None, False)
        renewed = held.renew(taken, lasting=50)
        assert renewed is not None
        assert (renewed.expires_at, renewed.version) == (60, taken.version + 1)
        assert held.release(renewed)
        assert held.held() == []


def test_acquiring_a_lease_again_invalidates_the_older_one(store_url: str) -> None:
    with open_store(store_url) as store:
        held = Leases(store, clock=lambda: 0)
        old = held.acquire("job", "a", lasting=10)
        new = held.acquire("job", "a", lasting=10)
        assert old is not None
        assert new is not None
        assert held.renew(old, lasting=10) is None
        assert held.renew(new, lasting=10) is not None


def test_only_one_of_many_processes_acquires_a_lease(store_url: str) -> None:
    with open_store(store_url) as store:
        held = Leases(store, clock=lambda: 0)
        got: list[object] = []
        start = threading.Barrier(8)

        def want(owner: str) -> None:
            start.wait()
            got.append(held.acquire("job", owner, lasting=10))

        threads = [threading.Thread(target=want, args=(f"owner {number}",)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(lease is not None for lease in got) == 1


def test_leases_are_found_by_prefix(store_url: str) -> None:
    with open_store(store_url) as store:
        held = Leases(store, clock=lambda: 0)
        for name in ("a_1", "a_2", "ab1"):
            held.acquire(name, "o", lasting=1)
        assert [lease.name for lease in held.held("a_")] == ["a_1", "a_2"]


@pytest.mark.parametrize("lasting", [0, -1])
def test_a_lease_must_be_positive(tmp_path: Path, lasting: int) -> None:
    with (
        open_store(f"sqlite:///{tmp_path}/store.db") as store,
        pytest.raises(InvalidArgument, match="must be greater than zero"),
    ):
        Leases(store).acquire("job", "a", lasting=lasting)
