"""The time that a target states: all units are read before it, also where a slice has no rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from slackwater.ingest import WHOLE, Plan, WorkUnit
from slackwater.ingest.plan.plan_completeness import PlanCompleteness
from slackwater.ingest.sources.arrow_types import INSTANTS
from slackwater.ingest.targets.delta_target import DeltaTarget
from slackwater.ingest.targets.manifest_target import ManifestTarget
from slackwater.ingest.targets.rejected_rows import joined_letters
from slackwater.ingest.targets.replacement import Slice, StagedRows
from slackwater.table_progress.completeness_reader import complete_until
from slackwater.tables.object_store import object_store

KEYS: dict[str, Any] = {"time_column": "at", "watermark_column": None, "zone": "UTC", "job": "orders"}


def plan_of(*starts: int) -> Plan:
    units = [WorkUnit(start, start + 10, WHOLE, start) for start in starts]
    return Plan("orders", "system", 30, 0, 30, units, [], (), None)


class Job:
    """A run of three slices, which can be replaced in any order."""

    def __init__(self, kind: str, folder: Path, *starts: int) -> None:
        self.address = f"{'delta' if kind == 'delta' else 'parquet'}:{folder}"
        store = object_store(folder.as_uri())
        self.target: Any = DeltaTarget(folder, **KEYS) if kind == "delta" else ManifestTarget(store, **KEYS)
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


@pytest.mark.parametrize("kind", ["delta", "manifest"])
def test_the_time_follows_the_slices_also_those_without_rows(tmp_path: Path, kind: str) -> None:
    job = Job(kind, tmp_path / "copied", 0, 10, 20)
    assert job.read(0, rows=2) == 10
    assert job.read(10, rows=0) == 20
    assert job.read(20, rows=1) == 30


@pytest.mark.parametrize("kind", ["delta", "manifest"])
def test_a_slice_that_is_missing_holds_the_time_back(tmp_path: Path, kind: str) -> None:
    job = Job(kind, tmp_path / "copied", 0, 10, 20)
    assert [job.read(20, rows=1), job.read(10, rows=1), job.read(0, rows=1)] == [0, 0, 30]


@pytest.mark.parametrize("kind", ["delta", "manifest"])
def test_the_time_does_not_go_back(tmp_path: Path, kind: str) -> None:
    job = Job(kind, tmp_path / "copied", 0)
    assert job.read(0, rows=1) == 30
    again = Job(kind, tmp_path / "copied", 0, 10)
    assert again.read(10, rows=1) == 30
    assert complete_until(again.address, identity="ingest:orders") == 30
    assert complete_until(again.address, identity="ingest:returns") is None
