"""A Delta Lake table as a target: a slice is replaced in one commit of the transaction log.

Tasks write files to a folder that is not part of the table, and the driver streams them into the commit that
removes the old rows. A process that is killed before the commit leaves the table unchanged. After one that is
killed between the commit and the record of its success, the next run replaces the slice by the same rows.

The library deltalake does not flush what it writes, so the files of a commit are flushed here, before the
unit counts as read. A crash of the machine in between can leave a version whose files are incomplete.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pyarrow as pa

from slackwater._durable_files import fsync_path
from slackwater.ingest.sources.extracted_rows import Batches
from slackwater.ingest.sources.spark_columns import Columns
from slackwater.ingest.targets.dead_letter_files import DEAD_LETTERS, write_letters
from slackwater.ingest.targets.delta_commits import LETTERS, DeltaCommits
from slackwater.ingest.targets.folder_fence import fenced
from slackwater.ingest.targets.parquet_writer import write_parquet
from slackwater.ingest.targets.replacement import Slice, StagedRows, StageTask
from slackwater.ingest.targets.schema_drift import fit
from slackwater.ingest.targets.staging_folder import remove_staging_folders, staging_folder
from slackwater.tables.object_store import folder_url, object_store

_LOG: Final = "_delta_log"
_LAST_CHECKPOINT: Final = "_last_checkpoint"
"""The only file in the log that is replaced."""
_STAGING: Final = "_slackwater"
_FENCE: Final = "_slackwater_fence"
"""The folder with the fencing tokens; the names of folders that begin with _ are not part of the table."""


@dataclass(frozen=True)
class DeltaTarget(DeltaCommits[Path]):
    """The folder of a Delta Lake table, and the columns that identify its rows."""

    folder: Path

    @property
    def location(self) -> str:
        """The folder of the table."""
        return str(self.folder)

    # ---- the steps of a replacement

    def pass_fence(self) -> None:
        """Record the token of the run next to the table."""
        self.check_folder(object_store(folder_url(self.location)))
        with fenced(self.folder / _FENCE, self.job, self.token):
            pass

    def remove_leftovers(self) -> None:
        """Remove the staging folders of a killed run."""
        remove_staging_folders(self.folder / _STAGING, self.job)

    def staging_area(self) -> AbstractContextManager[Path]:
        """Provide a new staging folder."""
        return staging_folder(self.folder / _STAGING, self.job)

    def stage_task(self, area: Path, slice_: Slice) -> StageTask:
        """Write the rows of a task to one Parquet file."""

        def stage(batches: Batches, name: str) -> tuple[int, bytes | None]:
            first = next(batches, None)
            if first is None:
                return 0, None
            path = area / name
            write_parquet(path, first, batches)
            return path.stat().st_size, None

        return stage

    def swap(
        self, area: Path, staged: Sequence[StagedRows], columns: Columns, slice_: Slice, letters: pa.Table
    ) -> int | None:
        """Replace the slice in one commit."""
        with fenced(self.folder / _FENCE, self.job, self.token):
            if staged:
                fitting = fit(columns, self.target_columns(columns), self.drift)
                if fitting.cast or fitting.missing:
                    return None
            self._replace_letters(area, letters, slice_)  # first: a commit is followed by nothing that fails
            known = self._logged()
            self._commit([area / task.name for task in staged], columns, slice_)
            self._flush(self._logged() - known)
            return 0

    def _replace_letters(self, area: Path, letters: pa.Table, slice_: Slice) -> None:
        unit = hashlib.sha256(slice_.unit.key.encode()).hexdigest()[:32]
        path, fresh = self.folder / LETTERS / f"{unit}.jsonl", area / DEAD_LETTERS
        write_letters(fresh, path, letters, slice_, self.job, self.time_column)
        if fresh.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh.replace(path)
            fsync_path(path.parent)
        else:
            path.unlink(missing_ok=True)

    def _commit(self, files: list[Path], columns: Columns, slice_: Slice) -> None:
        self.commit(files, columns, slice_)

    def _logged(self) -> set[str]:
        """The names of the versions and checkpoints in the log; other writers have temporary files there."""
        names = (path.name for path in (self.folder / _LOG).glob("[0-9]*"))
        return {name for name in names if name.endswith((".json", ".parquet"))}

    def _flush(self, logged: set[str]) -> None:
        """Flush the files that new entries of the log added, then the entries."""
        if not logged:
            return
        log = self.folder / _LOG
        entries = [
            json.loads(line) for name in logged if name.endswith(".json") for line in _lines(log / name)
        ]
        added = [self.folder / unquote(entry["add"]["path"]) for entry in entries if "add" in entry]
        for path in (*added, *sorted({path.parent for path in added})):
            fsync_path(path)
        replaced = [_LAST_CHECKPOINT] if (log / _LAST_CHECKPOINT).exists() else []
        for name in (*sorted(logged), *replaced):
            fsync_path(log / name)
        for folder in (log, self.folder, self.folder.parent):
            fsync_path(folder)


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()
