"""A Parquet table on an object store as a target; a slice is replaced by one change of the manifest.

Tasks upload their files to the folder where they stay, and no reader sees them before the manifest lists
them. A process that is killed before that leaves files that no manifest lists; the next run of the job
removes them, and the files that the run before has replaced. The fencing token is in the manifest, so the
request that changes the table also passes the fence.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec
import pyarrow as pa

from slackwater.errors import InvalidArgument
from slackwater.ingest.job_errors import RunReplaced
from slackwater.ingest.sources.extracted_rows import Rows
from slackwater.ingest.sources.spark_columns import Columns
from slackwater.ingest.targets.dead_letter_files import write_letter_object
from slackwater.ingest.targets.folder_names import VERSIONS, folder_names
from slackwater.ingest.targets.parquet_copier import copy_parquet
from slackwater.ingest.targets.replacement import ReplacingTarget, Slice, StagedRows, StageTask
from slackwater.ingest.targets.schema_drift import Fit, fit
from slackwater.ingest.targets.staged_objects import RunMark, temporary_file, uploading
from slackwater.tables.manifest import DATA, Manifest, ManifestTable, TableFile
from slackwater.tables.object_store import FolderObjects, ObjectStore

_LETTERS: Final = "_dead_letters"


@dataclass(frozen=True)
class ManifestTarget(ReplacingTarget[None]):
    """An object store, and the columns that identify its rows."""

    store: ObjectStore

    @property
    def _table(self) -> ManifestTable:
        return ManifestTable(self.store)

    @property
    def _mark(self) -> RunMark:
        return RunMark(self.job, self.token)

    # ---- the steps of a replacement

    def pass_fence(self) -> None:
        """Record the token of the run in the manifest; publish what a killed run may have committed."""
        if isinstance(self.store, FolderObjects) and (self.store.folder / VERSIONS).exists():
            fix = "use another folder, or remove ms.target.layout"
            raise InvalidArgument(
                "ms.target.layout", "manifest", "the folder was written with links", fix=fix
            )
        found = self._table.commit(self._past_fence)
        if found is not None and found.version:
            self._table.publish(found)

    def remove_leftovers(self) -> None:
        """Remove the files of earlier runs of the job that do not belong to the table."""
        found, mark = self._table.read(), self._mark
        listed = {*(file.key for file in found.files), *found.letters.values()}
        keys = (*self.store.keys(DATA), *self.store.keys(_LETTERS))
        self.store.delete(key for key in keys if key not in listed and mark.is_of_earlier_run(key))

    def shape(self, rows: Rows, slice_: Slice) -> Rows:
        """Drop the fields of the unit, which are in the name of its folder."""
        return rows.without(slice_.unit.as_dict())

    def staging_area(self) -> AbstractContextManager[None]:
        """Nothing: files are uploaded to where they stay."""
        return nullcontext()

    def target_columns(self, found: Columns) -> Columns | None:
        """Read the columns that all units share."""
        return self._table.read().columns

    def stage_task(self, area: None, slice_: Slice) -> StageTask:
        """Upload the rows of a task."""
        return uploading(self.store, partial(_key, _prefix(slice_), self._mark))

    def swap(
        self, area: None, staged: Sequence[StagedRows], columns: Columns, slice_: Slice, letters: pa.Table
    ) -> int | None:
        """List the staged files in the manifest instead of the rows of the slice."""

        def change(found: Manifest) -> Manifest | None:
            found = self._past_fence(found)
            fitting = fit(columns, found.columns, self.drift) if staged else Fit(dict(found.columns or {}))
            if fitting.cast or fitting.missing:
                return None
            return self._replaced(found, staged, fitting.all_columns, slice_, letters)

        committed = self._table.commit(change)
        if committed is None:
            return None
        self._table.publish(committed)
        return 0

    def _past_fence(self, found: Manifest) -> Manifest:
        if self.token is None:
            return found
        if found.fences.get(self.job, self.token) > self.token:
            raise RunReplaced(self.job)
        return msgspec.structs.replace(found, fences={**found.fences, self.job: self.token})

    # ---- the content of the next version

    def _replaced(
        self,
        found: Manifest,
        staged: Sequence[StagedRows],
        columns: Columns,
        slice_: Slice,
        letters: pa.Table,
    ) -> Manifest:
        after = found.with_columns(columns)
        others = [file for file in found.files if file.unit != slice_.unit.key]
        own = [file for file in found.files if file.unit == slice_.unit.key]
        kept = [one for file in own for one in self._kept(file, slice_, after)]
        prefix, newest = _prefix(slice_), len(after.schemas) - 1
        new = [
            TableFile(_key(prefix, self._mark, task.name), task.size, *_range(slice_), newest)
            for task in staged
        ]
        complete = dict(found.complete_until)
        if (until := self.complete_after(slice_)) is not None:
            complete[self.job] = max(until, complete.get(self.job, until))
        return msgspec.structs.replace(
            after,
            files=(*others, *kept, *new),
            letters=self._letters(found, letters, slice_),
            complete_until=complete,
        )

    def _kept(self, file: TableFile, slice_: Slice, after: Manifest) -> Iterator[TableFile]:
        """Carry over the rows of a file that are not in the slice, with all columns."""
        at = self.time_column
        if at is None:
            disjoint = file.start != slice_.start
        else:
            disjoint = file.high <= slice_.low or file.low >= slice_.high
        newest = len(after.schemas) - 1
        if disjoint and file.columns == newest:
            yield file
        elif disjoint or (at is not None and not (slice_.low <= file.low and file.high <= slice_.high)):
            owner = Slice(slice_.unit, file.start, file.low, file.high)
            key = _key(_prefix(owner), self._mark)
            with temporary_file() as path:
                old = self.store.local_file(file.key, path.parent)
                copy_parquet(old, path, None if disjoint else at, slice_, after.columns or {})
                self.store.write(key, path)
                yield TableFile(key, path.stat().st_size, *_range(owner), newest)

    def _letters(self, found: Manifest, letters: pa.Table, slice_: Slice) -> dict[str, str]:
        unit = slice_.unit.key
        known = dict(found.letters)
        if unit not in known and not letters.num_rows:
            return known
        digest = hashlib.sha256(unit.encode()).hexdigest()[:32]
        key = f"{_LETTERS}/{digest}{self._mark.suffix()}.jsonl"
        before = self.store.read(known.pop(unit)) if unit in known else None
        if write_letter_object(
            self.store, key, before and before.content, letters, slice_, self.job, self.time_column
        ):
            known[unit] = key
        return known


def _range(slice_: Slice) -> tuple[str, int, int, int]:
    return slice_.unit.key, slice_.start, slice_.low, slice_.high


def _prefix(slice_: Slice) -> str:
    """The start of a key: the folder of the unit, as Spark names partitions, and the range of the rows."""
    folders = [DATA, *folder_names(slice_.unit.as_dict())]
    return f"{'/'.join(folders)}/{slice_.low}_{slice_.high}"


def _key(prefix: str, mark: RunMark, name: str | None = None) -> str:
    return f"{prefix}{mark.suffix(name)}.parquet"
