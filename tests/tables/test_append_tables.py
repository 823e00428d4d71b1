"""Tables that files are appended to: what a commit adds and records, and which commits are refused."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import boto3  # type: ignore[import-untyped]  # no stubs
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from slackwater._durable_files import fsync_path
from slackwater.errors import CorruptState, InvalidArgument
from slackwater.progress.completeness import Completeness
from slackwater.sql.commit_owner import Committer, IdentityInUse
from slackwater.sql.pane_targets import StaleBatch, TableDoesNotFit
from slackwater.table_progress.completeness_reader import complete_until
from slackwater.tables.append_table import AppendedFile, AppendTable
from slackwater.tables.appended_delta import AppendedDelta
from slackwater.tables.appended_folder import AppendedFolder
from slackwater.tables.delta_table import DeltaLakeTable
from slackwater.tables.lake_ledger import BatchCommit
from slackwater.tables.manifest import ManifestTable
from slackwater.tables.object_store import FolderObjects
from slackwater.tables.parquet_table import ParquetTable
from slackwater.tables.table_address import append_table, lake_table
from tests.tables.appended import committed_files, rows_in
from tests.tables.object_store import s3_server

COLUMNS = pa.schema([("key", pa.string()), ("n", pa.int16())])
FORMATS = ("delta", "parquet")


@pytest.fixture(params=FORMATS)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{request.param}:{tmp_path}/all panes"


def created(address: str, columns: pa.Schema = COLUMNS) -> tuple[AppendTable, pa.Schema]:
    table = append_table(address)
    return table, table.prepare(columns, create=True)


def file(table: AppendTable, schema: pa.Schema, name: str, *numbers: int) -> AppendedFile:
    """A file that a task has written."""
    rows = pa.table({"key": [name] * len(numbers), "n": list(numbers)}, schema=schema)
    assert isinstance(table.store, FolderObjects)
    pq.write_table(rows, table.store.folder / f"part-{name}.parquet")
    return AppendedFile(f"part-{name}.parquet", len(numbers))


def batch(
    number: int, until: int | None = None, *, query: str = "5f1c", run: str = "a", identity: str = "panes"
) -> BatchCommit:
    return BatchCommit(identity, number, Committer(query, run), Completeness.of(until, 5))


def found(table: AppendTable) -> list[tuple[str, int]]:
    return [(row["key"], row["n"]) for row in rows_in(table)]


def test_a_batch_is_added_once(address: str) -> None:
    table, schema = created(address)
    assert table.append(schema, [file(table, schema, "a", 1, 2), file(table, schema, "b", 3)], batch(0, 20))
    assert table.append(schema, [], batch(1, 30))
    assert not table.append(schema, [file(table, schema, "c", 3)], batch(1, 30))
    assert found(table) == [("a", 1), ("a", 2), ("b", 3)]
    (entry,) = table.ledger().values()
    assert (entry.batch, entry.complete_until, entry.final_until) == (1, 30, 25)
    assert complete_until(address) == 30
    assert complete_until(address, final=True) == 25


def test_a_table_goes_on_after_a_restart(address: str) -> None:
    table, schema = created(address)
    table.append(schema, [file(table, schema, "a", 1)], batch(0))
    again = append_table(address)
    assert again.prepare(COLUMNS, create=False) == schema
    assert again.append(schema, [file(table, schema, "b", 2)], batch(1, run="b"))
    with pytest.raises(IdentityInUse, match="run b has replaced run a"):
        table.append(schema, [file(table, schema, "c", 3)], batch(1, run="a"))
    with pytest.raises(IdentityInUse, match="belongs to query 5f1c"):
        table.append(schema, [file(table, schema, "d", 3)], batch(7, query="9d20", run="c"))
    with pytest.raises(StaleBatch):
        table.append(schema, [file(table, schema, "e", 3)], batch(0, run="b"))
    assert found(table) == [("a", 1), ("b", 2)]


def test_a_batch_with_the_number_of_another_is_refused(address: str) -> None:
    table, schema = created(address)
    stated = Completeness.of(20, 5)
    done = BatchCommit("panes", 0, Committer("5f1c", "a"), stated, clock=7)
    assert table.append(schema, [file(table, schema, "a", 1)], done)
    for other in (
        BatchCommit("panes", 0, Committer("5f1c", "b"), Completeness.of(30, 5), clock=7),
        BatchCommit("panes", 0, Committer("5f1c", "b"), stated, clock=8),
    ):
        with pytest.raises(StaleBatch, match="batch 0 of panes has other results than the batch 0 that is"):
            table.append(schema, [file(table, schema, "b", 2)], other)
    for same in (
        BatchCommit("panes", 0, Committer("5f1c", "b"), Completeness.of(20, 9), clock=7),
        BatchCommit("panes", 0, Committer("5f1c", "b"), Completeness()),
    ):
        assert not table.append(schema, [], same)
    assert found(table) == [("a", 1)]


def test_a_query_whose_identity_is_changed_goes_on(address: str) -> None:
    table, schema = created(address)
    assert table.append(schema, [file(table, schema, "a", 1)], batch(3, 20, identity="query 5f1c"))
    assert table.append(schema, [file(table, schema, "x", 9)], batch(8, 40, identity="other", query="9d20"))
    assert not table.append(schema, [file(table, schema, "b", 1)], batch(3, 20, run="b", identity="panes"))
    assert table.append(schema, [file(table, schema, "c", 2)], batch(4, 30, run="b", identity="panes"))
    assert found(table) == [("a", 1), ("x", 9), ("c", 2)]
    assert {name: entry.batch for name, entry in table.ledger().items()} == {"other": 8, "panes": 4}
    assert complete_until(address) == 30
    with pytest.raises(IdentityInUse, match="run b has replaced run a"):
        table.append(schema, [], batch(5, run="a", identity="query 5f1c"))
    taken = replace(batch(4, 30, run="b", identity="other"), committer=Committer("5f1c", "b", "9d20"))
    assert not table.append(schema, [], taken), "the batch of this query is in the table"


def test_two_queries_append_to_one_table(address: str) -> None:
    table, schema = created(address)

    def append(query: str) -> None:
        for number in range(15):
            added = file(table, schema, f"{query}-{number}", number)
            assert table.append(schema, [added], batch(number, number, query=query, identity=query))

    threads = [threading.Thread(target=append, args=(name,)) for name in ("x", "y")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found(table)) == sorted((f"{query}-{n}", n) for query in "xy" for n in range(15))
    assert {name: entry.batch for name, entry in table.ledger().items()} == {"x": 14, "y": 14}


def test_a_table_is_not_created_by_mistake(address: str) -> None:
    with pytest.raises(TableDoesNotFit, match="does not exist; pass create=True"):
        append_table(address).prepare(COLUMNS, create=False)


def test_other_columns_are_refused(address: str) -> None:
    created(address)
    other = pa.schema([("key", pa.int64()), ("m", pa.int64())])
    with pytest.raises(TableDoesNotFit) as error:
        append_table(address).prepare(other, create=True)
    for problem in ("column m is missing", "column key is string, needs int64"):
        assert problem in str(error.value)


@pytest.mark.parametrize(
    "wrong",
    ["panes", "sqlite:///shop.db#panes", "parquet:", "iceberg:lake/shop.panes", "parquet:hdfs://host/a"],
)
def test_other_addresses_are_refused(wrong: str) -> None:
    with pytest.raises(InvalidArgument, match=r"append|object store"):
        append_table(wrong)


@pytest.mark.parametrize("kind", ["delta", "parquet"])
@pytest.mark.parametrize(
    "location",
    [
        "//AKIA:hidden@b/p",
        " s3://AKIA:hidden@b/p",
        "s3:AKIA:hidden@b/p",
        "s3:AKIA/hidden@b/p",
        "AKIA:hidden@b/p",
        " //AKIA:hid@hidden@b/p",
        "s3://hidden@b/p",
        "s3://AKIA:hid\nhidden@b/p",
    ],
)
def test_nothing_before_an_at_sign_is_shown(kind: str, location: str) -> None:
    with pytest.raises(InvalidArgument) as error:
        append_table(f"{kind}:{location}")
    for part in ("hid", "AKIA"):
        assert part not in str(error.value)
    if kind == "delta" and location.strip().startswith("s3://"):
        assert "hid" not in lake_table(f"{kind}:{location}").name
        return
    with pytest.raises(InvalidArgument) as error:
        lake_table(f"{kind}:{location}")
    assert "hid" not in str(error.value)


@pytest.mark.parametrize("slashes", ["/", "//"])
def test_credentials_in_an_address_are_refused_and_not_shown(slashes: str) -> None:
    for secret in ("hidden", "hid/hidden", "hid/hidden@hidden"):
        with pytest.raises(InvalidArgument, match=r"contains credentials|has no bucket name") as error:
            append_table(f"delta:s3:{slashes}key:{secret}@lake/panes")
        assert "hidden" not in str(error.value)


# ---- Delta Lake


def test_rows_have_the_types_of_the_delta_table(tmp_path: Path) -> None:
    DeltaTable.create(
        str(tmp_path / "t"), pa.schema([("n", pa.int64()), ("key", pa.string()), ("x", pa.int64())])
    )
    table = append_table(f"delta:{tmp_path}/t")
    schema = table.prepare(COLUMNS, create=False)
    assert schema.field("n").type == pa.int64()
    table.append(schema, [file(table, schema, "a", 1)], batch(0))
    assert DeltaTable(str(tmp_path / "t")).to_pyarrow_table().to_pylist() == [{"n": 1, "key": "a", "x": None}]


def test_types_that_delta_lake_does_not_have_are_refused(tmp_path: Path) -> None:
    intervals = pa.schema([("took", pa.duration("us"))])
    with pytest.raises(TableDoesNotFit, match=r"cannot be created: .*Duration.*; cast columns to types"):
        append_table(f"delta:{tmp_path}/t").prepare(intervals, create=True)


def test_types_that_parquet_does_not_have_are_refused(tmp_path: Path) -> None:
    columns = pa.schema([("took", pa.month_day_nano_interval())])
    with pytest.raises(TableDoesNotFit, match=r"cannot be written: .*; cast the columns to types"):
        append_table(f"parquet:{tmp_path}/t").prepare(columns, create=True)
    assert not (tmp_path / "t").exists()


def test_partitioned_delta_tables_are_refused(tmp_path: Path) -> None:
    DeltaTable.create(str(tmp_path / "t"), COLUMNS, partition_by=["key"])
    with pytest.raises(TableDoesNotFit, match="is partitioned by key"):
        append_table(f"delta:{tmp_path}/t").prepare(COLUMNS, create=False)


@pytest.mark.parametrize(
    "restricted",
    [
        pa.field("more", pa.int64(), nullable=False),
        pa.field("more", pa.list_(pa.field("element", pa.int64(), nullable=False))),
        pa.field("more", pa.struct([pa.field("n", pa.int64(), nullable=False)])),
    ],
)
def test_delta_tables_with_columns_that_must_not_be_null_are_refused(
    tmp_path: Path, restricted: pa.Field
) -> None:
    DeltaTable.create(str(tmp_path / "t"), pa.schema([*COLUMNS, restricted]))
    with pytest.raises(TableDoesNotFit, match="has columns that must not be null"):
        append_table(f"delta:{tmp_path}/t").prepare(COLUMNS, create=False)


def test_delta_tables_with_constraints_are_refused(tmp_path: Path) -> None:
    table = DeltaTable.create(str(tmp_path / "t"), COLUMNS)
    table.alter.add_constraint({"positive": "n > 0"})
    with pytest.raises(TableDoesNotFit, match="which append_to does not support"):
        append_table(f"delta:{tmp_path}/t").prepare(COLUMNS, create=False)


@pytest.mark.parametrize("changed", [[("key", pa.string())], [("key", pa.string()), ("n", pa.int64())]])
def test_a_table_whose_columns_have_changed_gets_no_more_files(
    address: str, tmp_path: Path, changed: list[tuple[str, pa.DataType]]
) -> None:
    table, schema = created(address)
    assert table.append(schema, [file(table, schema, "a", 1)], batch(0))
    if address.startswith("delta:"):
        DeltaTable.create(f"{tmp_path}/all panes", pa.schema(changed), mode="overwrite")
    else:
        shutil.rmtree(f"{tmp_path}/all panes")
        created(address, pa.schema(changed))
    added = file(table, schema, "b", 2)
    with pytest.raises(TableDoesNotFit, match=r"column n is (missing|int64, needs int)") as error:
        table.append(schema, [added], batch(1))
    assert "append to another table" in str(error.value) or "write to another folder" in str(error.value)
    assert "part-b.parquet" not in {path.name for path in committed_files(table)}


@pytest.mark.parametrize("change", ["constraint", "partitions"])
def test_a_delta_table_that_has_changed_gets_no_more_files(tmp_path: Path, change: str) -> None:
    table, schema = created(f"delta:{tmp_path}/t")
    assert table.append(schema, [file(table, schema, "a", 1)], batch(0))
    if change == "constraint":
        DeltaTable(str(tmp_path / "t")).alter.add_constraint({"positive": "n > 0"})
    else:
        DeltaTable.create(str(tmp_path / "t"), schema, partition_by=["key"], mode="overwrite")
    version = DeltaTable(str(tmp_path / "t")).version()
    with pytest.raises(TableDoesNotFit, match="which append_to does not support; append to another table"):
        table.append(schema, [file(table, schema, "b", -1)], batch(1))
    assert DeltaTable(str(tmp_path / "t")).version() == version


def test_a_folder_that_is_not_shared_is_an_error(address: str) -> None:
    table, schema = created(address)
    with pytest.raises(
        InvalidArgument, match="cannot see the files that the tasks wrote; use a path that all machines"
    ):
        table.append(schema, [AppendedFile("part-elsewhere.parquet", 1)], batch(0))
    assert found(table) == []


def test_a_run_whose_files_a_newer_one_has_deleted_is_refused(address: str) -> None:
    table, schema = created(address)
    assert table.append(schema, [file(table, schema, "a", 1)], batch(0, run="a"))
    assert table.append(schema, [file(table, schema, "b", 2)], batch(1, run="b"))
    with pytest.raises(IdentityInUse):
        table.append(schema, [AppendedFile("part-deleted.parquet", 1)], batch(2, run="a"))


# ---- folders of Parquet files


@pytest.fixture
def folder(tmp_path: Path) -> tuple[AppendedFolder, pa.Schema]:
    table, schema = created(f"parquet:{tmp_path}/panes")
    assert isinstance(table, AppendedFolder)
    return table, schema


def logs(table: AppendedFolder) -> list[str]:
    names = (path.name for path in (Path(table.location) / "_spark_metadata").iterdir())
    return sorted(names, key=lambda name: int(name.split(".")[0]))


def parts(table: AppendedFolder) -> list[str]:
    """The names of all files of rows, committed or not."""
    return sorted(path.name for path in Path(table.location).glob("*part-*"))


def staged(table: AppendedFolder, schema: pa.Schema, name: str) -> AppendedFile:
    """A file that a task has written and that is not committed."""
    written = file(table, schema, name, 1)
    path = Path(table.location) / written.key
    path.rename(path.with_name(table.staged(written.key)))
    return written


def test_every_tenth_entry_of_the_log_lists_all_files(folder: tuple[AppendedFolder, pa.Schema]) -> None:
    table, schema = folder
    for number in range(31):
        table.append(schema, [file(table, schema, str(number), number)], batch(number))
    kept = ["19.compact", *map(str, range(20, 29)), "29.compact", "30", "31"]
    assert [name for name in logs(table) if int(name.split(".")[0]) >= 19] == kept
    assert "9.compact" not in logs(table)
    assert [n for _, n in found(table)] == list(range(31))
    newest = (Path(table.location) / "_spark_metadata" / "29.compact").read_text().splitlines()
    assert [json.loads(line)["isDir"] for line in newest[1:]] == [True, *[False] * 29]


def test_files_of_runs_that_cannot_commit_any_more_are_deleted(
    folder: tuple[AppendedFolder, pa.Schema],
) -> None:
    table, schema = folder
    table.append(schema, [file(table, schema, "a-0", 1)], batch(0, run="a"))
    file(table, schema, "a-lost", 2)
    file(table, schema, "x-unknown", 3)  # of a run that may still commit
    (Path(table.location) / table.staged("part-a-half.parquet")).touch()
    (Path(table.location) / table.staged("part-b-current.parquet")).touch()
    table.append(schema, [], batch(1, run="b"))
    assert parts(table) == ["_part-b-current.parquet.staged", "part-a-0.parquet", "part-x-unknown.parquet"]
    assert not table.append(
        schema, [file(table, schema, "c-0", 7)], batch(1, run="c")
    )  # does not claim the table
    table.append(schema, [file(table, schema, "b-2", 4)], batch(2, run="b"))
    table.append(schema, [], batch(3, run="c"))
    assert [n for _, n in found(table)] == [1, 4]


def test_files_that_cannot_be_deleted_do_not_fail_the_commit(
    folder: tuple[AppendedFolder, pa.Schema],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    table, schema = folder
    table.append(schema, [file(table, schema, "a-0", 1)], batch(0, run="a"))
    file(table, schema, "a-lost", 2)

    def refuse(store: FolderObjects, keys: Iterable[str]) -> None:
        raise PermissionError(f"{len(list(keys))} files")

    monkeypatch.setattr(FolderObjects, "delete", refuse)
    assert table.append(schema, [], batch(1, run="b"))
    assert "cannot be deleted: 1 files" in caplog.text


def test_staged_files_get_their_names_with_the_commit(folder: tuple[AppendedFolder, pa.Schema]) -> None:
    table, schema = folder
    written = staged(table, schema, "a")
    assert table.staged(written.key).startswith("_")
    assert list(Path(table.location).glob("*.parquet")) == [], "readers of a pattern find it"
    table.append(schema, [written], batch(0))
    assert found(table) == [("a", 1)]


def test_the_folder_is_flushed_once_for_all_files_of_a_batch(
    folder: tuple[AppendedFolder, pa.Schema], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, schema = folder
    files = [staged(table, schema, name) for name in "abcdefgh"]
    flushed: list[Path] = []

    def counted(path: Path) -> None:
        flushed.append(path)
        fsync_path(path)

    monkeypatch.setattr("slackwater.tables.object_store.fsync_path", counted)
    assert table.append(schema, files, batch(0))
    assert flushed.count(Path(table.location)) == 1
    assert len(found(table)) == len(files)


def test_staged_files_of_refused_and_repeated_batches_are_deleted(
    folder: tuple[AppendedFolder, pa.Schema],
) -> None:
    table, schema = folder
    assert table.append(schema, [staged(table, schema, "a")], batch(1))
    assert not table.append(schema, [staged(table, schema, "repeated")], batch(1))
    with pytest.raises(IdentityInUse):
        table.append(schema, [staged(table, schema, "refused")], batch(2, query="9d20", run="x"))
    with pytest.raises(StaleBatch):
        table.append(schema, [staged(table, schema, "stale")], batch(0))
    assert parts(table) == ["part-a.parquet"]


def test_files_of_a_commit_that_fails_are_deleted(folder: tuple[AppendedFolder, pa.Schema]) -> None:
    table, schema = folder
    assert table.append(schema, [staged(table, schema, "a")], batch(0))
    with pytest.raises(InvalidArgument, match="the driver cannot see the files"):
        table.append(
            schema, [staged(table, schema, "here"), AppendedFile("part-missing.parquet", 1)], batch(1)
        )
    assert parts(table) == ["part-a.parquet"]
    obstacle = Path(table.location) / "_spark_metadata" / "2"
    obstacle.mkdir()  # the entry of the log cannot be written
    with pytest.raises(IsADirectoryError):
        table.append(schema, [staged(table, schema, "b")], batch(1))
    assert parts(table) == ["part-a.parquet"]
    obstacle.rmdir()
    assert table.append(schema, [staged(table, schema, "c")], batch(1))
    assert parts(table) == ["part-a.parquet", "part-c.parquet"]


def test_a_log_that_was_deleted_or_is_incomplete_is_named(
    folder: tuple[AppendedFolder, pa.Schema], caplog: pytest.LogCaptureFixture
) -> None:
    table, schema = folder
    for number in range(3):
        table.append(schema, [file(table, schema, f"a-{number}", number)], batch(number, run="a"))
    log = Path(table.location) / "_spark_metadata"
    (log / "1").unlink()
    assert table.append(schema, [], batch(3, run="b")), (
        "files of run a are not deleted, which needs the whole log"
    )
    assert "version 1 of parquet:" in caplog.text
    shutil.rmtree(log)
    with pytest.raises(TableDoesNotFit, match="was deleted; start the query again"):
        table.append(schema, [staged(table, schema, "d")], batch(4, run="b"))


def test_files_of_a_commit_that_loses_a_race_are_deleted(
    folder: tuple[AppendedFolder, pa.Schema], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, schema = folder
    replace = FolderObjects.replace
    mine, other = file(table, schema, "mine", 1), file(table, schema, "other", 2)

    def late(store: FolderObjects, key: str, content: bytes, tag: str | None) -> bool:
        monkeypatch.setattr(FolderObjects, "replace", replace)
        assert table.append(schema, [other], batch(0, query="9d20"))
        return replace(store, key, content, tag)

    monkeypatch.setattr(FolderObjects, "replace", late)
    with pytest.raises(IdentityInUse):
        table.append(schema, [mine], batch(0))
    assert parts(table) == ["part-other.parquet"]
    assert found(table) == [("other", 2)]


@pytest.mark.parametrize("spelling", ["link", "panes/../panes"])
def test_another_spelling_of_the_location_is_refused(
    folder: tuple[AppendedFolder, pa.Schema], spelling: str
) -> None:
    table, _ = folder
    parent = Path(table.location).parent
    (parent / "link").symlink_to(table.location)
    with pytest.raises(TableDoesNotFit, match=r"was created as file:///.*/panes; write \"parquet:file:///"):
        append_table(f"parquet:{parent}/{spelling}").prepare(COLUMNS, create=True)


def test_a_commit_whose_answer_is_lost_is_not_made_twice(
    folder: tuple[AppendedFolder, pa.Schema], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, schema = folder
    replace = FolderObjects.replace

    def lost(store: FolderObjects, key: str, content: bytes, tag: str | None) -> bool:
        monkeypatch.setattr(FolderObjects, "replace", replace)
        assert replace(store, key, content, tag)
        return False

    monkeypatch.setattr(FolderObjects, "replace", lost)
    assert not table.append(schema, [file(table, schema, "a-0", 1)], batch(0, run="a"))
    table.append(schema, [], batch(1, run="b"))
    assert found(table) == [("a-0", 1)]


def test_a_commit_into_an_obsolete_version_of_the_log_is_repeated(
    folder: tuple[AppendedFolder, pa.Schema], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, schema = folder
    table.append(schema, [file(table, schema, "a-0", 100)], batch(0))
    replace = FolderObjects.replace

    def overtaken(store: FolderObjects, key: str, content: bytes, tag: str | None) -> bool:
        monkeypatch.setattr(FolderObjects, "replace", replace)
        for number in range(40):  # another query commits while this request is under way
            added = file(table, schema, f"b-{number}", number)
            table.append(schema, [added], batch(number, query="9d20", identity="other"))
        assert replace(store, key, content, tag), "the version exists no longer"
        return True

    monkeypatch.setattr(FolderObjects, "replace", overtaken)
    assert table.append(schema, [file(table, schema, "a-1", 101)], batch(1))
    assert table.append(schema, [file(table, schema, "a-2", 102)], batch(2))
    assert sorted(n for _, n in found(table)) == [*range(40), 100, 101, 102]
    assert {name: entry.batch for name, entry in table.ledger().items()} == {"panes": 2, "other": 39}


def test_a_commit_that_many_others_follow_at_once_is_not_repeated(
    folder: tuple[AppendedFolder, pa.Schema], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, schema = folder
    replace = FolderObjects.replace

    def followed(store: FolderObjects, key: str, content: bytes, tag: str | None) -> bool:
        monkeypatch.setattr(FolderObjects, "replace", replace)
        assert replace(store, key, content, tag)
        for number in range(40):
            table.append(schema, [], batch(number, query="9d20", identity="other"))
        return True

    monkeypatch.setattr(FolderObjects, "replace", followed)
    assert not table.append(schema, [file(table, schema, "a-0", 100)], batch(0)), "the batch is in the ledger"
    assert [n for _, n in found(table)] == [100]


def test_whether_nested_values_may_be_null_does_not_matter(tmp_path: Path) -> None:
    strict, loose = (
        pa.schema([("s", pa.struct([pa.field("z", pa.list_(pa.int64()), nullable=nullable)]))])
        for nullable in (False, True)
    )
    for first, then in ((strict, loose), (loose, strict)):
        address = f"parquet:{tmp_path}/{first.field('s').type}"
        created(address, first)
        assert append_table(address).prepare(then, create=False) == loose


def refused(folder: Path) -> str:
    with pytest.raises(TableDoesNotFit) as error:
        append_table(f"parquet:{folder}").prepare(COLUMNS, create=True)
    return str(error.value)


def test_folders_of_other_programs_are_refused(tmp_path: Path) -> None:
    log = tmp_path / "spark" / "_spark_metadata"
    log.mkdir(parents=True)
    (log / "0").write_text("v1", encoding="utf-8")
    assert "has a log that Spark's file sink or an ingestion job writes" in refused(tmp_path / "spark")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "part-0.parquet").touch()
    message = "contains files that append_to has not written, such as part-0.parquet"
    assert message in refused(tmp_path / "files")


@pytest.mark.proof
def test_markers_of_folders_on_an_object_store_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server("lake") as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        client = boto3.client("s3", endpoint_url=variables["AWS_ENDPOINT_URL"])
        for key in ("panes/", "panes/_spark_metadata/"):
            client.put_object(Bucket="lake", Key=key, Body=b"")
        table, schema = created("parquet:s3://lake/panes")
        with pytest.raises(InvalidArgument, match="the driver cannot see the files"):
            table.append(schema, [AppendedFile("part-missing.parquet", 1)], batch(0))
        assert table.append(schema, [], batch(0))
        client.put_object(Bucket="lake", Key="other/rows.csv", Body=b"1")
        with pytest.raises(TableDoesNotFit, match=r"has not written, such as rows\.csv"):
            created("parquet:s3://lake/other")


def test_a_folder_that_two_queries_create_at_once_is_used_by_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"parquet:{tmp_path}/panes"
    newest = AppendedFolder._newest

    def before_the_other(table: AppendedFolder) -> object:
        monkeypatch.setattr(AppendedFolder, "_newest", newest)
        assert table._newest() is None
        created(address)
        return None

    monkeypatch.setattr(AppendedFolder, "_newest", before_the_other)
    table, schema = created(address)
    assert table.append(schema, [file(table, schema, "a", 1)], batch(0))


def test_other_tables_in_the_folder_are_refused(folder: tuple[AppendedFolder, pa.Schema]) -> None:
    table, _ = folder
    message = "is a folder to which append_to or Spark's file sink writes"
    for other in (ParquetTable(table.location), DeltaLakeTable(table.location)):
        with pytest.raises(TableDoesNotFit, match=message):
            other.create(COLUMNS)
    with pytest.raises(TableDoesNotFit, match=message):
        AppendedDelta(DeltaLakeTable(table.location)).prepare(COLUMNS, create=True)
    with pytest.raises(TableDoesNotFit, match=message):
        ManifestTable(table.store).commit(lambda old: msgspec.structs.replace(old, fences={"a": 1}))


def test_a_folder_that_was_not_created_to_the_end_can_be_used(tmp_path: Path) -> None:
    log = tmp_path / "panes" / "_spark_metadata"
    log.mkdir(parents=True)
    (log / "_0-5f1c").touch()
    created(f"parquet:{tmp_path}/panes")


def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "check the path and its permissions" in refused(tmp_path / "file" / "panes")


@pytest.mark.parametrize("content", ["v1\n{", 'v1\n{"slackwater":{"columns":7}}'])
def test_a_damaged_log_is_reported(folder: tuple[AppendedFolder, pa.Schema], content: str) -> None:
    table, _ = folder
    (Path(table.location) / "_spark_metadata" / "1").write_text(content, encoding="utf-8")
    with pytest.raises(CorruptState, match="log of a folder"):
        table.ledger()


def test_a_missing_entry_of_the_log_is_reported(folder: tuple[AppendedFolder, pa.Schema]) -> None:
    table, schema = folder
    for number in range(8):
        table.append(schema, [file(table, schema, str(number), number)], batch(number))
    (Path(table.location) / "_spark_metadata" / "3").unlink()
    with pytest.raises(CorruptState, match=r"version 3 of parquet:.* is missing"):
        table.append(schema, [file(table, schema, "8", 8)], batch(8))


def test_a_deleted_table_is_reported(folder: tuple[AppendedFolder, pa.Schema]) -> None:
    table, schema = folder
    added: Sequence[AppendedFile] = [file(table, schema, "a", 1)]
    (Path(table.location) / "_spark_metadata" / "0").unlink()
    with pytest.raises(TableDoesNotFit, match="was deleted"):
        table.append(schema, added, batch(0))
    assert committed_files(table) == []
