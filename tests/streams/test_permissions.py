"""The store and the data files are created for their owner only, whatever the umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from slackwater.streams.log.catalog import Streams
from slackwater.streams.log.transactions import TransactionalWriter
from slackwater.streams.log.writer import Writer
from slackwater.streams.maintenance.compaction import compact


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("no_umask")
def test_nobody_else_can_read_or_change_a_store_and_its_streams(tmp_path: Path) -> None:
    with Streams.open(f"sqlite:///{tmp_path}/store.db", create=True) as streams:
        stream = streams.create("shop/bids", data=f"{tmp_path}/far/data")
        other = streams.create("shop/clicks")
        for one in (stream, other):
            with Writer(one, "w") as writer:
                for _ in range(8):
                    writer.write(b"a")
                    writer.flush()
        with TransactionalWriter(other, "t") as loader:
            transaction = loader.begin()
            transaction.write(b"b")
            transaction.commit()
        assert compact(stream, minimum_age=-1).into == 1
        found = {path: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    names = {path.name for path in found}
    assert {"store.db", "store.db-wal", "store.db-shm", "far", "data"} <= names
    assert any(name.endswith(".transaction.arrow") for name in names)
    wrong = [path for path, mode in found.items() if mode != (0o700 if path.is_dir() else 0o600)]
    assert wrong == []


@pytest.mark.usefixtures("no_umask")
def test_a_folder_that_exists_keeps_its_permissions(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    with Streams.open(f"sqlite:///{tmp_path}/store.db", create=True) as streams:
        streams.create("shop/bids", data=str(shared))
    assert stat.S_IMODE(shared.stat().st_mode) == 0o755
