"""Rows that a target cannot store: they fail their unit, or become dead letters that are not doubled."""

from __future__ import annotations

import json
import sqlite3
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from slackwater.ingest.job_errors import RowRejected
from slackwater.ingest.sources.arrow_types import INSTANTS
from slackwater.ingest.sources.spark_columns import REJECTED
from slackwater.ingest.targets.dead_letter_files import DEAD_LETTERS
from slackwater.ingest.targets.delta_target import DeltaTarget
from slackwater.ingest.targets.folder_target import FolderTarget
from slackwater.ingest.targets.manifest_target import ManifestTarget
from slackwater.ingest.targets.rejected_rows import LETTERS, RejectionRule, RowSorter
from slackwater.ingest.targets.replacement import Slice, StagedRows
from slackwater.ingest.targets.table_target import TableTarget
from slackwater.ingest.units import unit_of
from slackwater.sql.database import database_url
from slackwater.sql.dead_letters import dead_letters
from slackwater.tables.manifest import ManifestTable
from slackwater.tables.object_store import object_store

UNIT = unit_of({"site": "7"})
KINDS = ["sqlite", "parquet", "delta", "manifest"]
REJECTION = {"reason": "column 'price' is odd", "value": "1.9", "content": '{"price":1.9}'}


def batch(rejections: list[dict[str, str] | None]) -> pa.RecordBatch:
    times = pa.array(range(len(rejections)), INSTANTS)
    kind = pa.struct([(name, pa.string()) for name in REJECTION])
    return pa.record_batch(
        {"price": [1] * len(rejections), "at": times, REJECTED: pa.array(rejections, kind)}
    )


def test_a_rejected_row_fails_its_task_and_the_error_shows_column_value_and_row() -> None:
    with pytest.raises(RowRejected, match=r"column 'price' is odd: '1\.9', in the row \{\"price\":1\.9\}"):
        RowSorter(RejectionRule()).accepted(batch([None, REJECTION]))


def test_a_rejected_row_becomes_a_dead_letter_with_its_event_time() -> None:
    sorter = RowSorter(RejectionRule(emit=True, time_column="at"))
    assert sorter.accepted(batch([None, None])).schema.names == ["price", "at"]
    assert sorter.payload() is None
    assert sorter.accepted(batch([None, REJECTION, None])).num_rows == 2
    assert [row for part in sorter.letters for row in part.to_pylist()] == [
        {"reason": "column 'price' is odd", "content": '{"price":1.9}', "time": 1}
    ]


def target_of(kind: str, folder: Path, time_column: str | None) -> Any:
    keys: dict[str, Any] = {
        "time_column": time_column, "watermark_column": None, "zone": "UTC",
        "job": "orders", "on_error": "emit",
    }  # fmt: skip
    if kind == "sqlite":
        return TableTarget(database_url(f"sqlite:///{folder}/copied.db"), "copied", **keys)
    path = folder / "copied"
    if kind == "manifest":
        return ManifestTarget(object_store(path.as_uri()), **keys)
    return DeltaTarget(path, **keys) if kind == "delta" else FolderTarget(path, "parquet", **keys)


def swap(target: Any, slice_: Slice, letters: list[tuple[str, int | None]]) -> None:
    """Replace a slice by one row and some letters."""
    partitioned = isinstance(target, (FolderTarget, ManifestTarget))
    identity = {} if partitioned else slice_.identity(target.time_column)
    arrays = {
        "id": pa.array([1]), "at": pa.array([slice_.low], INSTANTS),
        **{name: pa.array([value], pa.string()) for name, value in identity.items()},
    }  # fmt: skip
    rows = pa.record_batch(arrays)
    found = [{"reason": "odd", "content": json.dumps({"id": name}), "time": at} for name, at in letters]
    name = uuid.uuid4().hex
    with target.staging_area() as area:
        size, payload = target.stage_task(area, slice_)(iter([rows]), name)
        columns = {field.name: field.type for field in rows.schema}
        staged = [StagedRows(name, 1, size, None, payload)]
        assert target.swap(area, staged, columns, slice_, pa.Table.from_pylist(found, LETTERS)) == 0


def letters_of(kind: str, folder: Path) -> list[str]:
    if kind == "sqlite":
        found = dead_letters(f"sqlite:///{folder}/copied.db", "copied")
        assert set(found["unit"]) <= {UNIT.key}
        return sorted(json.loads(content)["id"] for content in found["content"])
    lines = [
        json.loads(line)
        for path in sorted({path.resolve() for path in _letter_files(kind, folder)})
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    assert all(line["job"] == "orders" and line["unit"] == {"site": "7"} for line in lines)
    return sorted(line["row"]["id"] for line in lines)


def _letter_files(kind: str, folder: Path) -> list[Path]:
    if kind == "manifest":
        store = object_store((folder / "copied").as_uri())
        return [folder / "copied" / key for key in ManifestTable(store).read().letters.values()]
    if kind == "delta":
        return list((folder / "copied" / "_slackwater_dead_letters").glob("*.jsonl"))
    return [path for path in [folder / "copied" / "site=7" / DEAD_LETTERS] if path.exists()]


@pytest.mark.parametrize("kind", KINDS)
def test_a_range_that_is_read_again_replaces_its_dead_letters_and_no_others(
    tmp_path: Path, kind: str
) -> None:
    target = target_of(kind, tmp_path, "at")
    swap(target, Slice(UNIT, 0, 0, 10), [("early", 2), ("late", 8), ("unknown", None)])
    assert letters_of(kind, tmp_path) == ["early", "late", "unknown"]
    swap(target, Slice(UNIT, 0, 5, 12), [("late", 8), ("new", 11), ("unknown", None)])
    assert letters_of(kind, tmp_path) == ["early", "late", "new", "unknown"]
    swap(target, Slice(UNIT, 0, 0, 12), [])
    assert letters_of(kind, tmp_path) == []


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_time_column_a_partition_replaces_its_dead_letters(tmp_path: Path, kind: str) -> None:
    target = target_of(kind, tmp_path, None)
    swap(target, Slice(UNIT, 0, 0, 10), [("a", None)])
    swap(target, Slice(UNIT, 10, 10, 20), [("b", None)])
    swap(target, Slice(UNIT, 0, 0, 10), [("c", None)])
    assert letters_of(kind, tmp_path) == ["b", "c"]


def test_a_row_that_the_database_rejects_when_it_is_inserted_becomes_a_dead_letter(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "copied.db")) as file:
        file.execute("CREATE TABLE copied (id BIGINT CHECK (id <> 3), at TEXT, site TEXT)")
    target = target_of("sqlite", tmp_path, "at")
    rows = pa.record_batch({"id": range(5), "at": pa.array(range(5), INSTANTS), "site": ["7"] * 5})
    name = uuid.uuid4().hex
    with target.staging_area() as area:
        size, payload = target.stage_task(area, Slice(UNIT, 0, 0, 10))(iter([rows]), name)
        columns = {field.name: field.type for field in rows.schema}
        staged = [StagedRows("a", 5, size, None, payload)]
        found = target.swap(area, staged, columns, Slice(UNIT, 0, 0, 10), LETTERS.empty_table())
    assert found == 1
    (letter,) = dead_letters(f"sqlite:///{tmp_path}/copied.db", "copied").to_dicts()
    assert letter["reason"] == "CHECK constraint failed: id <> 3"
    assert json.loads(letter["content"])["id"] == 3
    with closing(sqlite3.connect(tmp_path / "copied.db")) as file:
        assert [row for (row,) in file.execute("SELECT id FROM copied ORDER BY id")] == [0, 1, 2, 4]
        assert file.execute("SELECT time FROM slackwater_dead_letters").fetchall() == [(3,)]
