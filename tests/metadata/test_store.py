"""Transactions of the store: atomic, retried where that is safe, and errors without secrets; leases."""

from __future__ import annotations

import sqlite3
import stat
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sql
from sqlalchemy.engine import Connection

from slackwater.errors import InvalidArgument, StoreReplaced, StoreUnavailable, UnknownStore
from slackwater.metadata.leases import Leases
from slackwater.metadata.store import open_store
from slackwater.metadata.store_schema import leases
from slackwater.time import DAY, HOUR, SECOND, now
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
        open_store(visiting, create=True)
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
    with open_store(f"sqlite:///{tmp_path}/store.db", create=True) as store:
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
    with open_store(server.create_database(request.node.name[:60]), create=True) as store:
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
    with open_store(server.create_database(f"lost_{repeatable}"), create=True) as store:
        attempts = []

        def work(connection: Connection) -> None:
            attempts.append(1)
            if len(attempts) == 1:
                own = connection.execute(sql.select(sql.func.pg_backend_pid())).scalar_one()
                with open_store(server.url(), create=True) as other:
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
        open_store(url, create=True)
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(vars(caught.value))


def test_a_file_that_is_not_a_database_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_bytes(b"something else entirely" * 100)
    with pytest.raises(StoreUnavailable, match="file is not a database"):
        open_store(f"sqlite:///{tmp_path}/store.db", create=True)


# ---- stores that are missing, removed or replaced


def test_opening_a_store_does_not_create_it(empty_url: str, tmp_path: Path) -> None:
    with pytest.raises(UnknownStore, match="there is no metadata store at") as caught:
        open_store(empty_url)
    assert PASSWORD not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    with open_store(empty_url, create=True) as store:
        assert store.read(count) == 0
    open_store(empty_url).close()


@pytest.mark.parametrize("content", [b"", None])
def test_a_file_without_a_store_is_not_filled(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "store.db"
    if content is None:
        with sqlite3.connect(path) as other:
            other.execute("CREATE TABLE mine (x INTEGER)")
        other.close()
    else:
        path.write_bytes(content)
    url = f"sqlite:///{path}"
    with pytest.raises(UnknownStore):
        open_store(url)
    with closing(sqlite3.connect(path)) as other:
        tables = other.execute("SELECT count(*) FROM sqlite_master").fetchall()
    assert tables == [(0 if content is not None else 1,)]


def test_a_new_store_belongs_to_its_owner_only(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.db", create=True) as store:
        store.write(lambda connection: add(connection, "x"))
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys(["store.db", "store.db-wal", "store.db-shm"], 0o600)


def remove(path: Path) -> None:
    path.unlink()


def replace_by_another(path: Path) -> None:
    open_store(f"sqlite:///{path}.new", create=True).close()
    path.with_name("store.db.new").rename(path)


@pytest.mark.parametrize(("change", "says"), [(remove, "was removed"), (replace_by_another, "was replaced")])
@pytest.mark.parametrize("during", [False, True])
def test_a_store_that_disappears_takes_no_more_writes(
    tmp_path: Path, change: Callable[[Path], None], says: str, during: bool
) -> None:
    path = tmp_path / "store.db"

    def work(connection: Connection) -> None:
        add(connection, "y")
        if during:
            change(path)

    with open_store(f"sqlite:///{path}", create=True) as store:
        store.write(lambda connection: add(connection, "x"))
        if not during:
            change(path)
        with pytest.raises(StoreReplaced, match=says):
            store.write(work)
        with pytest.raises(StoreReplaced, match=says):
            store.read(count)
    assert path.exists() == (change is replace_by_another)


def test_the_content_of_another_store_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    open_store(f"sqlite:///{tmp_path}/other.db", create=True).close()
    with open_store(f"sqlite:///{path}", create=True) as store:
        store.close()
        path.write_bytes((tmp_path / "other.db").read_bytes())
        with pytest.raises(StoreReplaced, match="was replaced"):
            store.write(lambda connection: add(connection, "x"))


# ---- outages, and the clock of the store


@pytest.mark.postgres
@pytest.mark.parametrize("repeatable", [True, False])
def test_refused_connections_are_retried_once_the_store_was_reached(stores: str, repeatable: bool) -> None:
    refused = []

    def refuse(*_: object) -> None:
        refused.append(1)
        if len(refused) <= 3:
            raise psycopg.OperationalError("connection refused")

    with open_store(stores, create=True) as store:
        store.write(lambda connection: connection.execute(leases.delete()))
        store.close()
        sql.event.listen(store._engine, "do_connect", refuse)
        store.write(lambda connection: add(connection, "x"), repeatable=repeatable)
        assert (len(refused), store.read(count)) == (4, 1)


@pytest.mark.postgres
def test_the_store_has_the_clock_of_the_server(stores: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(stores, create=True) as store:
        here = now()
        monkeypatch.setattr("time.time_ns", lambda: (here + 2 * DAY) * 1_000)
        assert abs(store.now() - here) < HOUR
        lease = Leases(store).acquire("fast host", "a", lasting=SECOND)
        assert lease is not None
        assert lease.expires_at < here + HOUR
        assert Leases(store).release(lease)


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
        open_store(f"sqlite:///{tmp_path}/store.db", create=True) as store,
        pytest.raises(InvalidArgument, match="must be greater than zero"),
    ):
        Leases(store).acquire("job", "a", lasting=lasting)
