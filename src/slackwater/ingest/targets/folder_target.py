"""A folder of Parquet, JSON or CSV files as a target; a slice is replaced in one step.

Readers see each unit as a symbolic link to a folder that never changes, called a version. Replacing a slice
creates the next version: files without rows of the slice are hard-linked into it, files with some are
rewritten without them, and the new files are moved in; then the link is replaced atomically. A process that
is killed before that leaves folders that no link refers to, and the next run removes them. The dead letters
of a unit are a hidden file of its version, so they are replaced in the same step. The time up to which all
units are read is stated after that, in a hidden file of the folder.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from slackwater._durable_files import fsync_path
from slackwater.errors import InvalidArgument
from slackwater.ingest.sources.extracted_rows import Batches, Rows
from slackwater.ingest.sources.spark_columns import Columns
from slackwater.ingest.targets.dead_letter_files import DEAD_LETTERS, write_letters
from slackwater.ingest.targets.folder_fence import fenced
from slackwater.ingest.targets.folder_names import VERSIONS, folder_names
from slackwater.ingest.targets.parquet_copier import copy_parquet
from slackwater.ingest.targets.parquet_writer import write_parquet
from slackwater.ingest.targets.replacement import ReplacingTarget, Slice, StagedRows, StageTask
from slackwater.ingest.targets.schema_drift import Fit, fit
from slackwater.ingest.targets.staging_folder import remove_staging_folders, staging_folder
from slackwater.tables.folder_records import COMPLETENESS, record_number
from slackwater.tables.manifest import MANIFEST
from slackwater.tables.object_store import folder_url, object_store
from slackwater.tables.spark_file_log import check_no_file_log
from slackwater.time import instant

_STAGING: Final = "_staging"
_COLUMNS: Final = "_columns"
_ROWS: Final = "rows"
_MAX_FIELD_SIZE: Final = (1 << 31) - 1


@dataclass(frozen=True)
class FolderTarget(ReplacingTarget[Path]):
    """A folder, its file format, and the columns that identify its rows."""

    folder: Path
    format: str

    # ---- the steps of a replacement

    def pass_fence(self) -> None:
        """Record the token of the run in the folder.

        Raises:
            TableDoesNotFit: `append_to` or Spark's file sink writes to the folder. Its readers would not see
                the rows.
        """
        if (self.folder / MANIFEST).exists():
            fix = "set it to manifest, or use another folder"
            raise InvalidArgument("ms.target.layout", "links", "the folder has a manifest", fix=fix)
        check_no_file_log(object_store(folder_url(str(self.folder))), f"parquet:{self.folder}")
        with fenced(self.folder, self.job, self.token):
            pass

    def remove_leftovers(self) -> None:
        """Remove the staging folders of a killed run."""
        remove_staging_folders(self.folder / _STAGING, self.job)

    def shape(self, rows: Rows, slice_: Slice) -> Rows:
        """Drop the fields of the unit, which are in the name of its folder."""
        return rows.without(slice_.unit.as_dict())

    def staging_area(self) -> AbstractContextManager[Path]:
        """Provide a new staging folder."""
        return staging_folder(self.folder / _STAGING, self.job)

    def target_columns(self, found: Columns) -> Columns | None:
        """Read the columns that all units of the folder share."""
        return _read_columns(self.folder)

    def stage_task(self, area: Path, slice_: Slice) -> StageTask:
        """Write the rows of a task to one file."""
        write, suffix, stem = _WRITERS[self.format], self.format, _stem(slice_)

        def stage(batches: Batches, name: str) -> tuple[int, bytes | None]:
            first = next(batches, None)
            if first is None:
                return 0, None
            path = area / f"{stem}-{name}.{suffix}"
            write(path, first, batches)
            fsync_path(path)  # by the task, because the driver may be another machine
            return path.stat().st_size, None

        return stage

    def swap(
        self, area: Path, staged: Sequence[StagedRows], columns: Columns, slice_: Slice, letters: pa.Table
    ) -> int | None:
        """Create the next version of the unit, and set the link to it."""
        with fenced(self.folder, self.job, self.token):
            known = _read_columns(self.folder)
            fitting = fit(columns, known, self.drift) if staged else Fit(dict(known or {}))
            if fitting.cast or fitting.missing:
                return None
            self._set_version(area, staged, fitting.all_columns, slice_, letters)
            if fitting.all_columns and (until := self.complete_after(slice_)) is not None:
                record_number(self.folder, COMPLETENESS, self.job, until)
            return 0

    # ---- versions

    def _set_version(
        self, area: Path, staged: Sequence[StagedRows], columns: Columns, slice_: Slice, letters: pa.Table
    ) -> None:
        old = self._current_version(slice_)
        versions = self.folder / VERSIONS / hashlib.sha256(slice_.unit.key.encode()).hexdigest()[:32]
        version = versions / uuid.uuid4().hex
        version.mkdir(parents=True)
        _write_columns(version, columns, area)
        self._keep_other_rows(old, version, slice_, columns)
        for task in staged:
            name = f"{_stem(slice_)}-{task.name}.{self.format}"
            (area / name).rename(version / name)
        before = None if old is None else old / DEAD_LETTERS
        write_letters(version / DEAD_LETTERS, before, letters, slice_, self.job, self.time_column)
        _write_columns(self.folder, columns, area)
        self._set_link(self._link(slice_), version, area)
        for folder in versions.iterdir():  # the previous version stays, for readers that have it open
            if folder not in (old, version):
                shutil.rmtree(folder)

    def _set_link(self, link: Path, version: Path, area: Path) -> None:
        """Replace the link, and return once it and the version survive a crash of the machine."""
        link.parent.mkdir(parents=True, exist_ok=True)
        for path in version.iterdir():
            fsync_path(path)
        self._fsync_folders(version)
        fresh = area / uuid.uuid4().hex
        fresh.symlink_to(os.path.relpath(version, link.parent), target_is_directory=True)
        fresh.replace(link)
        self._fsync_folders(link.parent)

    def _fsync_folders(self, folder: Path) -> None:
        """Flush the names in a folder, and the names of the folders up to the target."""
        for path in (folder, *folder.parents):
            fsync_path(path)
            if path == self.folder:
                return

    def _current_version(self, slice_: Slice) -> Path | None:
        link = self._link(slice_)
        if not link.is_symlink():
            return None
        if not link.exists():
            reason = f"links to {link.readlink()}, which does not exist"
            fix = "remove the link and set ms.backfill to read the unit again"
            raise InvalidArgument("ms.target.path", str(link), reason, fix=fix)
        return link.resolve()

    def _link(self, slice_: Slice) -> Path:
        """The path that readers see: named after the unit, as Spark names partitions."""
        return self.folder.joinpath(*folder_names(slice_.unit.as_dict()) or [_ROWS])

    def _keep_other_rows(self, old: Path | None, version: Path, slice_: Slice, columns: Columns) -> None:
        """Carry over the rows of the old version that are not in the slice, with all columns."""
        if old is None:
            return
        same_columns = _read_columns(old) == dict(columns) or self.format == "json"
        copy = _COPIERS[self.format]
        for file in sorted(path for path in old.iterdir() if not path.name.startswith("_")):
            start, low, high = (int(text) for text in file.stem.split("_")[:3])
            if self.time_column is None:
                disjoint = start != slice_.start
            else:
                disjoint = high <= slice_.low or low >= slice_.high
            if disjoint and same_columns:
                os.link(file, version / file.name)
            elif disjoint:
                copy(file, version / file.name, None, slice_, columns)
            elif self.time_column is not None and not (slice_.low <= low and high <= slice_.high):
                target = version / f"{start}_{low}_{high}_-{uuid.uuid4().hex}.{self.format}"
                copy(file, target, self.time_column, slice_, columns)


def _stem(slice_: Slice) -> str:
    """The start of a file name: the slice that the file was written for."""
    return f"{slice_.start}_{slice_.low}_{slice_.high}_"


def _read_columns(folder: Path) -> dict[str, pa.DataType] | None:
    """Read the columns of a target, or of one version of a unit; None if there are none yet."""
    path = folder / _COLUMNS
    if not path.exists():
        return None
    return {field.name: field.type for field in pa.ipc.read_schema(pa.py_buffer(path.read_bytes()))}


def _write_columns(folder: Path, columns: Columns, area: Path) -> None:
    if columns and _read_columns(folder) != dict(columns):
        fresh = area / uuid.uuid4().hex
        fresh.write_bytes(pa.schema(list(columns.items())).serialize().to_pybytes())
        fsync_path(fresh)
        fresh.replace(folder / _COLUMNS)


# ---- file formats


def _write_json(path: Path, first: pa.RecordBatch, more: Iterator[pa.RecordBatch]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for batch in chain([first], more):
            for row in batch.to_pylist():
                file.write(json.dumps(row, ensure_ascii=False, default=_text) + "\n")


def _write_csv(path: Path, first: pa.RecordBatch, more: Iterator[pa.RecordBatch]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(first.schema.names)
        for batch in chain([first], more):
            for row in batch.to_pylist():
                writer.writerow(["" if value is None else _text(value) for value in row.values()])


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    return json.dumps(value, default=_text) if isinstance(value, (dict, list)) else str(value)


def _copy_json(old: Path, new: Path, time_column: str | None, slice_: Slice, columns: Columns) -> None:
    """Copy lines; a column that is not in a line reads as null."""
    with old.open(encoding="utf-8") as source, new.open("w", encoding="utf-8") as target:
        for line in source:
            if time_column is None or not slice_.low <= instant(json.loads(line)[time_column]) < slice_.high:
                target.write(line)


def _copy_csv(old: Path, new: Path, time_column: str | None, slice_: Slice, columns: Columns) -> None:
    csv.field_size_limit(_MAX_FIELD_SIZE)
    with (
        old.open(encoding="utf-8", newline="") as source,
        new.open("w", encoding="utf-8", newline="") as target,
    ):
        writer = csv.DictWriter(target, list(columns), restval="")
        writer.writeheader()
        for row in csv.DictReader(source):
            if time_column is None or not slice_.low <= instant(row[time_column]) < slice_.high:
                writer.writerow(row)


_WRITERS: Final[dict[str, Callable[[Path, pa.RecordBatch, Iterator[pa.RecordBatch]], None]]] = {
    "parquet": write_parquet,
    "json": _write_json,
    "csv": _write_csv,
}
_COPIERS: Final[dict[str, Callable[[Path, Path, str | None, Slice, Columns], None]]] = {
    "parquet": copy_parquet,
    "json": _copy_json,
    "csv": _copy_csv,
}
