"""A Delta table after a crash of the machine: what a high watermark covers has been flushed."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import deltalake
import pyarrow as pa
import pytest

from slackwater.ingest.sources.arrow_types import INSTANTS
from slackwater.ingest.targets import delta_target
from slackwater.ingest.targets.delta_target import DeltaTarget
from slackwater.ingest.targets.rejected_rows import joined_letters
from slackwater.ingest.targets.replacement import Slice, StagedRows
from slackwater.ingest.units import WHOLE


def replace(target: DeltaTarget, low: int, high: int, ids: list[int]) -> None:
    rows = pa.record_batch({"id": pa.array(ids, pa.int64()), "at": pa.array([low] * len(ids), INSTANTS)})
    slice_ = Slice(WHOLE, low, low, high)
    with target.staging_area() as area:
        size, payload = target.stage_task(area, slice_)(iter([rows]), "a")
        columns = {field.name: field.type for field in rows.schema}
        staged = [StagedRows("a", len(ids), size, None, payload)] if ids else []
        target.swap(area, staged, columns if ids else {}, slice_, joined_letters([]))


def test_every_file_of_a_commit_is_flushed_before_the_log_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "copied"
    target = DeltaTarget(folder=folder, time_column="at", watermark_column=None, zone="UTC")
    flushed: list[Path] = []
    monkeypatch.setattr(delta_target, "fsync_path", flushed.append)
    seen: set[str] = set()
    # a new table, a replaced slice, a slice that is emptied, one without rows
    for version, (low, ids) in enumerate([(0, [1]), (10, [2, 3]), (0, [4]), (10, []), (90, [])]):
        replace(target, low, low + 10, ids)
        table = deltalake.DeltaTable(str(folder))
        new = {unquote(uri) for uri in table.file_uris()} - seen
        seen |= new
        entry = folder / "_delta_log" / f"{version:020}.json"
        if entry.exists():
            assert {Path(uri) for uri in new} <= set(flushed[: flushed.index(entry)])
            assert flushed[flushed.index(entry) :] == [entry, entry.parent, folder, tmp_path]
        flushed.clear()
    assert sorted(deltalake.DeltaTable(str(folder)).to_pyarrow_table()["id"].to_pylist()) == [4]
