"""The version of a store changes with every commit, also one that leaves the files as they were."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from slackwater.sql.database import database_url
from slackwater.ui.change_feed import StoreVersion


def test_a_commit_is_seen_when_it_can_be_read_and_not_before(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("PRAGMA journal_mode=WAL")
    writer.execute("CREATE TABLE t (x)")
    version = StoreVersion(database_url(f"sqlite:///{path}"))
    seen = version.read()
    assert version.read() == seen
    writer.execute("BEGIN")
    writer.execute("INSERT INTO t VALUES (1)")
    os.utime(path)
    assert version.read() == seen, "nothing is committed yet"
    times = path.stat()
    writer.execute("COMMIT")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert version.read() != seen
    version.close()
    writer.close()


def test_a_store_that_is_gone_or_replaced_has_another_version(tmp_path: Path) -> None:
    path, other = tmp_path / "store.db", tmp_path / "other.db"
    for each in (path, other):
        sqlite3.connect(each).execute("CREATE TABLE t (x)").connection.close()
    version = StoreVersion(database_url(f"sqlite:///{path}"))
    first = version.read()
    path.rename(tmp_path / "moved.db")
    assert version.read() is None
    other.rename(path)
    assert version.read() not in (None, first)
    version.close()


def test_a_file_that_is_no_database_has_a_new_version_each_time(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"not a database" * 100)
    version = StoreVersion(database_url(f"sqlite:///{path}"))
    assert version.read() != version.read()
