"""Delta Lake tables on an object store: merges, commits at the same time, and completeness."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from slackwater.progress.completeness import Completeness
from slackwater.sql.commit_owner import Committer
from slackwater.table_progress.completeness_reader import complete_until
from slackwater.tables.lake_ledger import BatchCommit
from slackwater.tables.table_address import lake_table
from tests.tables.lakes import COLUMNS, changes, contents
from tests.tables.object_store import s3_server


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with s3_server("lake") as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield "delta:s3://lake/totals"


@pytest.mark.proof
def test_a_delta_table_on_an_object_store(address: str) -> None:
    table = lake_table(address)
    for missing in (address, "parquet:s3://lake/totals"):
        assert complete_until(missing) is None
    table.prepare(COLUMNS, create=True)
    first = BatchCommit("totals", 0, Committer("one"), Completeness(50, 40))
    assert table.merge(COLUMNS, changes(("a", 0, 1, 0.5, [1], False)), first)
    assert not table.merge(COLUMNS, changes(("a", 0, 1, 0.5, [1], False)), first)
    assert contents(table) == [("a", 0, 1, 0.5, [1])]
    assert (complete_until(address), complete_until(address, final=True)) == (50, 40)

    failures: list[BaseException] = []

    def write(name: str) -> None:
        try:
            for number in range(2):
                done = BatchCommit(name, number, Committer(name), Completeness(60 + number))
                table.merge(COLUMNS, changes((name, number, number, 0.0, [], False)), done)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(name,)) for name in ("x", "y")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(contents(table)) == 5
    assert complete_until(address, identity="y") == 61
