"""Merging changes into tables of files: every batch once, by its owner, with its completeness."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from slackwater.errors import InvalidArgument
from slackwater.progress.completeness import Completeness
from slackwater.sql.commit_owner import Committer, IdentityInUse
from slackwater.sql.pane_targets import StaleBatch, TableDoesNotFit
from slackwater.tables.delta_table import DeltaLakeTable
from slackwater.tables.iceberg_table import IcebergTable
from slackwater.tables.lake_ledger import BatchCommit
from slackwater.tables.lake_table import LakeColumns, LakeTable
from slackwater.tables.parquet_table import SIDECAR, ParquetTable
from slackwater.tables.table_address import lake_table
from tests.tables.lakes import COLUMNS, FORMATS, changes, contents, lake


@pytest.fixture(params=FORMATS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> LakeTable:
    made = lake(request.param, tmp_path)
    made.prepare(COLUMNS, create=True)
    return made


def batch(number: int, query: str = "one", run: str = "1", **options: str) -> BatchCommit:
    stated = Completeness(number * 10, number * 10 - 5)
    return BatchCommit("totals", number, Committer(query, run, **options), stated)


def test_results_replace_rows_and_deletions_remove_them(table: LakeTable) -> None:
    first = changes(
        ("a", 0, 1, 0.5, [1], False), ("b", 0, 2, None, None, False), (None, 0, 3, 1.0, [], False)
    )
    assert table.merge(COLUMNS, first, batch(0))
    second = changes(
        ("a", 0, 5, 0.1, [7, 8], False),  # replaced
        ("a", 10, 6, None, [], False),  # new
        (None, 0, None, None, None, True),  # deleted, with a null key
        ("never there", 0, None, None, None, True),
    )
    assert table.merge(COLUMNS, second, batch(1))
    assert contents(table) == [("a", 0, 5, 0.1, [7, 8]), ("a", 10, 6, None, []), ("b", 0, 2, None, None)]


def test_rows_between_two_times(table: LakeTable) -> None:
    rows = changes(
        ("a", 5, 1, 0.5, [1], False), (None, 10, 2, None, None, False), ("c", 20, 3, 1.0, [], False)
    )
    table.merge(COLUMNS, rows, batch(0))
    start, end = (datetime.fromtimestamp(second, UTC) for second in (5, 20))
    found = table.rows(["key", "window_start"], (("window_start", ">", start), ("window_start", "<", end)))
    assert found.rows() == [(None, datetime.fromtimestamp(10, UTC))]


def test_a_repeated_batch_is_applied_once(table: LakeTable) -> None:
    deltas = replace(COLUMNS, fold={"n": "sum", "best": "max", "all": "sum"})
    some = changes(("a", 0, 1, 0.5, None, False))
    deltas = LakeColumns(
        COLUMNS.identity, pa.schema([("n", pa.int64()), ("best", pa.float64())]), {"n": "sum", "best": "max"}
    )
    some = some.drop("all")
    assert [table.merge(deltas, some, batch(0)), table.merge(deltas, some, batch(0, run="2"))] == [
        True,
        False,
    ]
    assert contents(table) == [("a", 0, 1, 0.5, None)]
    assert table.merge(deltas, some, batch(1, run="2"))
    assert contents(table) == [("a", 0, 2, 0.5, None)]


def test_deltas_are_folded_into_rows_and_nulls_are_no_values(table: LakeTable) -> None:
    columns = LakeColumns(
        COLUMNS.identity, pa.schema([("n", pa.int64()), ("best", pa.float64())]), {"n": "sum", "best": "min"}
    )
    for number, (n, best) in enumerate([(1, None), (None, 4.0), (5, 9.0)]):
        table.merge(columns, changes(("a", 0, n, best, None, False)).drop("all"), batch(number))
    assert contents(table) == [("a", 0, 6, 4.0, None)]


def test_every_commit_states_its_completeness(table: LakeTable) -> None:
    table.merge(COLUMNS, changes(("a", 0, 1, 0.5, [1], False)), batch(1))
    assert table.ledger()["totals"].completeness == Completeness(10, 5)
    assert table.merge(COLUMNS, changes(), batch(2))
    assert table.ledger()["totals"].completeness == Completeness(20, 15)
    assert contents(table) == [("a", 0, 1, 0.5, [1])]


def test_commits_of_others_keep_the_ledger(table: LakeTable) -> None:
    table.merge(COLUMNS, changes(("a", 0, 1, 0.5, [1], False)), batch(3))
    other = BatchCommit("other", 0, Committer("two", "1"), Completeness(7, 7))
    table.merge(COLUMNS, changes(("b", 0, 1, 0.5, [1], False)), other)
    if isinstance(table, DeltaLakeTable):
        DeltaTable(table.location).optimize.compact()
        DeltaTable(table.location).create_checkpoint()
    assert {name: entry.complete_until for name, entry in table.ledger().items()} == {
        "totals": 30,
        "other": 7,
    }
    assert not table.merge(COLUMNS, changes(("a", 0, 9, 0.5, [1], False)), batch(3, run="2"))


def test_an_identity_has_one_owner(table: LakeTable) -> None:
    table.merge(COLUMNS, changes(), batch(4))
    with pytest.raises(
        StaleBatch, match=r"batch 3 of totals is older than batch 4, which is already in table"
    ):
        table.merge(COLUMNS, changes(), batch(3))
    with pytest.raises(IdentityInUse, match=r"identity 'totals' of table \w+:.* belongs to query one"):
        table.merge(COLUMNS, changes(), batch(5, query="two"))
    assert table.merge(COLUMNS, changes(), batch(0, query="two", takeover_from="one"))
    with pytest.raises(IdentityInUse, match="belongs to query two"):
        table.merge(COLUMNS, changes(), batch(5))


def test_a_batch_with_the_number_of_another_is_refused(table: LakeTable) -> None:
    table.merge(COLUMNS, changes(("a", 0, 1, 0.5, [1], False)), batch(4))
    other = replace(batch(4, run="2"), completeness=Completeness(50, 45))
    with pytest.raises(StaleBatch, match=r"batch 4 of totals has other results than the batch 4 that is"):
        table.merge(COLUMNS, changes(("a", 0, 9, 0.5, [1], False)), other)
    assert contents(table) == [("a", 0, 1, 0.5, [1])]


def test_a_query_whose_identity_is_changed_goes_on(table: LakeTable) -> None:
    table.merge(COLUMNS, changes(("a", 0, 1, 0.5, [1], False)), batch(4))
    table.merge(COLUMNS, changes(), replace(batch(9, query="two"), identity="other"))
    assert not table.merge(COLUMNS, changes(), replace(batch(4, run="2"), identity="named"))
    assert table.merge(COLUMNS, changes(), replace(batch(5, run="2"), identity="named"))
    assert {name: entry.batch for name, entry in table.ledger().items()} == {"other": 9, "named": 5}


def test_a_replaced_run_is_refused(table: LakeTable) -> None:
    table.merge(COLUMNS, changes(), batch(0, run="1"))
    table.merge(COLUMNS, changes(), batch(1, run="2"))
    with pytest.raises(IdentityInUse, match="run 2 has replaced run 1"):
        table.merge(COLUMNS, changes(), batch(2, run="1"))


# The target ignores this warning of Iceberg, but Python's filters belong to the process, not to a thread.
@pytest.mark.search
@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
def test_commits_at_the_same_time_are_all_applied(table: LakeTable) -> None:
    failures: list[BaseException] = []

    def write(name: str) -> None:
        try:
            for number in range(3):
                done = BatchCommit(name, number, Committer(name, "1"), Completeness(number, number))
                table.merge(COLUMNS, changes((name, number, number, 0.0, [], False)), done)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(name,)) for name in ("x", "y")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(contents(table)) == 6
    assert {name: entry.batch for name, entry in table.ledger().items()} == {"x": 2, "y": 2}


@pytest.mark.parametrize("kind", FORMATS)
def test_a_table_that_does_not_fit_is_refused_with_all_its_problems(kind: str, tmp_path: Path) -> None:
    missing = lake(kind, tmp_path)
    assert missing.ledger() == {}
    with pytest.raises(
        TableDoesNotFit, match="does not exist; pass create=True, or create it with the columns key"
    ):
        missing.prepare(COLUMNS, create=False)
    missing.create(
        pa.schema([("key", pa.int64()), ("window_start", pa.timestamp("us", "UTC")), ("n", pa.int64())])
    )
    with pytest.raises(TableDoesNotFit) as raised:
        missing.prepare(COLUMNS, create=True)
    for problem in ("column key is int64, needs string", "column best is missing", "column all is missing"):
        assert problem in str(raised.value)


@pytest.mark.parametrize("kind", FORMATS)
def test_further_columns_of_the_table_keep_their_values(kind: str, tmp_path: Path) -> None:
    table = lake(kind, tmp_path)
    table.create(COLUMNS.schema)
    narrow = LakeColumns(COLUMNS.identity, pa.schema([("n", pa.int64())]))
    table.prepare(narrow, create=False)
    table.merge(COLUMNS, changes(("a", 0, 1, 0.5, [1], False)), batch(0))
    table.merge(narrow, changes(("a", 0, 9, None, None, False)).drop("best", "all"), batch(1))
    assert contents(table) == [("a", 0, 9, 0.5, [1])]


def test_the_number_of_a_batch_outlives_the_log_of_a_delta_table(tmp_path: Path) -> None:
    table = DeltaLakeTable(str(tmp_path / "totals"))
    table.prepare(COLUMNS, create=True)
    table.merge(COLUMNS, changes(("a", 0, 1, 0.5, [1], False)), batch(7))
    DeltaTable(table.location).create_checkpoint()
    for log in (tmp_path / "totals" / "_delta_log").glob("*.json"):
        log.unlink()
    assert table.ledger() == {}  # nothing is stated any more
    assert not table.merge(COLUMNS, changes(("a", 0, 2, 0.5, [1], False)), batch(7))


def test_a_sidecar_that_was_not_written_is_written_with_the_repeated_batch(tmp_path: Path) -> None:
    table = ParquetTable(str(tmp_path / "totals"))
    table.prepare(COLUMNS, create=True)
    table.merge(COLUMNS, changes(("a", 0, 1, 0.5, [1], False)), batch(2))
    (tmp_path / "totals" / SIDECAR).unlink()
    assert table.ledger() == {}
    assert not table.merge(COLUMNS, changes(("a", 0, 1, 0.5, [1], False)), batch(2))
    assert table.ledger()["totals"].complete_until == 20


@pytest.mark.parametrize(
    "address", ["iceberg:totals", "iceberg:/shop.totals", "delta:", "s3://bucket/totals", ""]
)
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(InvalidArgument, match="table = "):
        lake_table(address)
    assert lake_table("delta:s3://bucket/totals").name == "delta:s3://bucket/totals"


def test_a_catalog_has_to_be_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgument, match="names the catalog 'prod', which is not configured; set PYICE"):
        lake_table("iceberg:prod/a.b.totals")
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", "sqlite:///catalog.db")
    table = lake_table("iceberg:prod/a.b.totals")
    assert table == IcebergTable("prod", "a.b.totals", {"uri": "sqlite:///catalog.db"})
    assert "sqlite" not in repr(table)
