"""Fencing: a run that slept past its lease cannot replace what the run that took over has written."""

from __future__ import annotations

import sqlite3
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slackwater.errors import InvalidArgument
from slackwater.ingest.job_errors import RunReplaced
from slackwater.ingest.targets.delta_target import DeltaTarget
from slackwater.ingest.targets.folder_target import FolderTarget
from slackwater.ingest.targets.manifest_target import ManifestTarget
from slackwater.ingest.targets.rejected_rows import joined_letters
from slackwater.ingest.targets.replacement import ReplacingTarget, Slice, StagedRows
from slackwater.ingest.targets.staging_folder import remove_staging_folders, staging_folder
from slackwater.ingest.targets.table_target import TableTarget
from slackwater.ingest.units import WHOLE
from slackwater.sql.database import database_url
from slackwater.sql.pane_targets import TableDoesNotFit
from slackwater.tables.manifest import parquet_dataset
from slackwater.tables.object_store import object_store
from slackwater.tables.table_address import append_table

SLICE = Slice(WHOLE, 0, 0, 10)
KEYS: dict[str, Any] = {"time_column": None, "watermark_column": None, "zone": "UTC", "job": "orders"}


def target_of(kind: str, folder: Path, token: int | None) -> ReplacingTarget[Any]:
    target: ReplacingTarget[Any]
    if kind == "sqlite":
        target = TableTarget(database_url(f"sqlite:///{folder}/copied.db"), "copied", **KEYS)
    elif kind == "delta":
        target = DeltaTarget(folder / "copied", **KEYS)
    elif kind == "manifest":
        target = ManifestTarget(object_store((folder / "copied").as_uri()), **KEYS)
    else:
        target = FolderTarget(folder / "copied", "parquet", **KEYS)
    if token is not None:
        target.fence(token)
    return target


@pytest.mark.parametrize("kind", ["delta", "folder", "manifest"])
def test_a_folder_to_which_append_to_writes_is_refused(tmp_path: Path, kind: str) -> None:
    append_table(f"parquet:{tmp_path}/copied").prepare(pa.schema([("id", pa.int64())]), create=True)
    before = sorted(tmp_path.rglob("*"))
    target = target_of(kind, tmp_path, token=3)
    with pytest.raises(TableDoesNotFit, match="a folder to which append_to or Spark's file sink writes"):
        target.pass_fence()
    assert sorted(tmp_path.rglob("*")) == before


def written(kind: str, folder: Path) -> list[int]:
    if kind == "sqlite":
        with closing(sqlite3.connect(folder / "copied.db")) as connection:
            return [number for (number,) in connection.execute("SELECT id FROM copied")]
    if kind == "delta":
        import deltalake

        return list(deltalake.DeltaTable(folder / "copied").to_pyarrow_table()["id"].to_pylist())
    if kind == "manifest":
        return list(parquet_dataset((folder / "copied").as_uri()).to_table()["id"].to_pylist())
    return list(pq.read_table(folder / "copied" / "rows")["id"].to_pylist())


class Writing:
    """A run that has staged a row; `swap` writes it."""

    def __init__(self, target: ReplacingTarget[Any], number: int) -> None:
        self.target = target
        target.pass_fence()
        self.area = target.staging_area()
        self.entered = self.area.__enter__()
        batch = pa.record_batch({"id": pa.array([number])})
        self.columns = {"id": pa.int64()}
        if not isinstance(target, (FolderTarget, ManifestTarget)):
            partition = pa.array(["1970-01-01 00:00:00"])
            batch = batch.append_column("slackwater_partition", partition)
            self.columns["slackwater_partition"] = pa.string()
        name = uuid.uuid4().hex
        size, payload = target.stage_task(self.entered, SLICE)(iter([batch]), name)
        self.staged = [StagedRows(name, 1, size, None, payload)]

    def swap(self) -> None:
        assert self.target.swap(self.entered, self.staged, self.columns, SLICE, joined_letters([])) == 0


@pytest.mark.parametrize("kind", ["sqlite", "parquet", "delta", "manifest"])
def test_a_run_that_was_replaced_while_it_slept_changes_no_row(tmp_path: Path, kind: str) -> None:
    asleep = Writing(target_of(kind, tmp_path, 5), 1)
    Writing(target_of(kind, tmp_path, 6), 2).swap()
    with pytest.raises(RunReplaced, match="another run has taken over job 'orders'"):
        asleep.swap()
    assert written(kind, tmp_path) == [2]


@pytest.mark.parametrize("kind", ["sqlite", "parquet", "delta", "manifest"])
def test_a_run_that_was_replaced_is_stopped_before_the_newer_one_has_written(
    tmp_path: Path, kind: str
) -> None:
    asleep = Writing(target_of(kind, tmp_path, 5), 1)
    target_of(kind, tmp_path, 6).pass_fence()
    with pytest.raises(RunReplaced):
        asleep.swap()
    with pytest.raises(RunReplaced):
        target_of(kind, tmp_path, 5).pass_fence()


def test_tokens_are_those_of_one_job(tmp_path: Path) -> None:
    target_of("parquet", tmp_path, 9).pass_fence()
    other = FolderTarget(tmp_path / "copied", "parquet", **{**KEYS, "job": "returns"})
    other.fence(5)
    Writing(other, 1).swap()
    assert written("parquet", tmp_path) == [1]


@pytest.mark.parametrize(("first", "second"), [("parquet", "manifest"), ("manifest", "parquet")])
def test_a_folder_keeps_its_layout(tmp_path: Path, first: str, second: str) -> None:
    Writing(target_of(first, tmp_path, 5), 1).swap()
    with pytest.raises(InvalidArgument, match=r"ms\.target\.layout"):
        target_of(second, tmp_path, 6).pass_fence()


@pytest.mark.parametrize("job", ["..", ".", "a/../..", "../x"])
def test_no_name_of_a_job_leads_out_of_the_staging_folder(tmp_path: Path, job: str) -> None:
    (tmp_path / "target" / "rows").mkdir(parents=True)
    with staging_folder(tmp_path / "target" / "_staging", job) as folder:
        assert (tmp_path / "target" / "_staging") in folder.resolve().parents
    remove_staging_folders(tmp_path / "target" / "_staging", job)
    assert (tmp_path / "target" / "rows").exists()
