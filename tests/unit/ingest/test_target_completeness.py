"""The time that a target states: all units are read before it, also where a slice has no rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from slackwater.ingest import WHOLE, Plan, WorkUnit
from slackwater.ingest.plan.plan_completeness import PlanCompleteness
from slackwater.ingest.sources.arrow_types import INSTANTS
from slackwater.ingest.targets.delta_target import DeltaTarget
from slackwater.ingest.targets.folder_target import FolderTarget
from slackwater.ingest.targets.manifest_target import ManifestTarget
from slackwater.ingest.targets.rejected_rows import joined_letters
from slackwater.ingest.targets.replacement import Slice, StagedRows
from slackwater.ingest.targets.table_target import TableTarget
from slackwater.progress.completeness import Completeness
from slackwater.sql.commit_owner import Committer
from slackwater.sql.database import database_url, temporary_engine
from slackwater.table_progress.completeness_reader import complete_until
from slackwater.tables.lake_ledger import BatchCommit
from slackwater.tables.object_store import object_store
from slackwater.tables.table_address import lake_table
from tests.tables.lakes import COLUMNS, changes

KEYS: dict[str, Any] = {"time_column": "at", "watermark_column": None, "zone": "UTC", "job": "orders"}


def plan_of(*starts: int) -> Plan:
    units = [WorkUnit(start, start + 10, WHOLE, start) for start in starts]
    return Plan("orders", "system", 30, 0, 30, units, [], (), None)


def target_of(kind: str, folder: Path) -> tuple[Any, str]:
    """A target, and its address for readers."""
    match kind:
        case "delta":
            return DeltaTarget(folder, **KEYS), f"delta:{folder}"
        case "manifest":
            return ManifestTarget(object_store(folder.as_uri()), **KEYS), f"parquet:{folder}"
        case "table":
            url = f"sqlite:///{folder}.db"
            return TableTarget(url=database_url(url), table="copied", **KEYS), f"{url}#copied"
        case _:
            return FolderTarget(folder=folder, format=kind, **KEYS), f"{kind}:{folder}"


KINDS = pytest.mark.parametrize("kind", ["delta", "manifest", "table", "parquet", "json", "csv"])


class Job:
    """A run of three slices, which can be replaced in any order."""

    def __init__(self, kind: str, folder: Path, *starts: int) -> None:
        self.target, self.address = target_of(kind, folder)
        self.completeness = PlanCompleteness(plan_of(*starts))
        self.target.expect(self.completeness)

    def read(self, start: int, rows: int) -> int | None:
        """Replace a slice; returns the time that the table then states."""
        slice_ = Slice(WHOLE, start, start, start + 10)
        if not rows:
            self.target.replace(None, slice_, lambda amount, number=None: None)
            return complete_until(self.address)
        batch = pa.record_batch({"at": pa.array([start] * rows, INSTANTS)})
        with self.target.staging_area() as area:
            size, payload = self.target.stage_task(area, slice_)(iter([batch]), f"{start:032}")
            staged = [StagedRows(f"{start:032}", rows, size, None, payload)]
            self.target.swap(area, staged, {"at": INSTANTS}, slice_, joined_letters([]))
        self.completeness.succeed(start, WHOLE)
        return complete_until(self.address)


@KINDS
def test_the_time_follows_the_slices_also_those_without_rows(tmp_path: Path, kind: str) -> None:
    job = Job(kind, tmp_path / "copied", 0, 10, 20)
    assert job.read(0, rows=2) == 10
    assert job.read(10, rows=0) == 20
    assert job.read(20, rows=1) == 30


@KINDS
def test_a_slice_that_is_missing_holds_the_time_back(tmp_path: Path, kind: str) -> None:
    job = Job(kind, tmp_path / "copied", 0, 10, 20)
    assert [job.read(20, rows=1), job.read(10, rows=1), job.read(0, rows=1)] == [0, 0, 30]


@KINDS
def test_the_time_does_not_go_back(tmp_path: Path, kind: str) -> None:
    job = Job(kind, tmp_path / "copied", 0)
    assert job.read(0, rows=1) == 30
    again = Job(kind, tmp_path / "copied", 0, 10)
    assert again.read(10, rows=1) == 30
    assert complete_until(again.address, identity="ingest:orders") == 30
    assert complete_until(again.address, identity="ingest:returns") is None


@KINDS
def test_a_target_without_rows_states_nothing(tmp_path: Path, kind: str) -> None:
    job = Job(kind, tmp_path / "copied", 0, 10)
    stated = job.read(0, rows=0)
    assert stated == (10 if kind == "manifest" else None)  # an empty manifest is a table
    assert job.read(10, rows=1) == 30


def test_a_folder_is_found_by_its_url(tmp_path: Path) -> None:
    job = Job("parquet", tmp_path / "a b", 0)
    assert job.read(0, rows=1) == 30
    assert complete_until(f"parquet:{(tmp_path / 'a b').as_uri()}") == 30


def test_several_jobs_that_write_to_one_table_hold_each_other_back(tmp_path: Path) -> None:
    Job("table", tmp_path / "copied", 0, 10).read(0, rows=1)
    returns, address = target_of("table", tmp_path / "copied")
    other = replace(returns, job="returns")
    other.expect(PlanCompleteness(plan_of(0)))
    other.replace(None, Slice(WHOLE, 0, 0, 10), lambda amount, number=None: None)
    assert complete_until(address, identity="ingest:returns") == 30
    assert complete_until(address) == 10


def test_a_table_that_was_dropped_states_nothing(tmp_path: Path) -> None:
    job = Job("table", tmp_path / "copied", 0)
    assert job.read(0, rows=1) == 30
    with temporary_engine(job.target.url) as engine, engine.begin() as connection:
        connection.exec_driver_sql("drop table copied")
    assert complete_until(job.address) is None
    again = Job("table", tmp_path / "copied", 0, 10)
    assert again.read(0, rows=1) == 10, "not the time of the table before"


@KINDS
def test_a_job_with_a_watermark_column_states_nothing(tmp_path: Path, kind: str) -> None:
    """Rows that the source did not have yet are read by later runs, from the highest value that was read."""
    job = Job(kind, tmp_path / "copied", 0)
    job.target = replace(job.target, watermark_column="at")
    job.target.expect(job.completeness)
    assert job.read(0, rows=1) is None


def test_a_job_that_fills_a_table_does_not_decide_when_the_results_of_queries_are_final(
    tmp_path: Path,
) -> None:
    job = Job("parquet", tmp_path / "copied", 0)
    assert job.read(0, rows=1) == 30
    assert complete_until(job.address, final=True) is None
    table = lake_table(job.address)
    table.prepare(COLUMNS, create=True)
    table.merge(COLUMNS, changes(), BatchCommit("one", 0, Committer("one"), Completeness(20, 15)))
    assert complete_until(job.address) == 20, "both the job and the query are considered"
    assert complete_until(job.address, final=True) == 15
