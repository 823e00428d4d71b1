"""A Delta Lake table on an object store as a target.

The fencing token of a run is an application transaction of its commits. A commit that another one preceded is
made again on the newer version, where a run that was replaced finds the higher token and stops.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow as pa

from slackwater.ingest.job_errors import RunReplaced
from slackwater.ingest.sources.spark_columns import Columns
from slackwater.ingest.targets.dead_letter_files import write_letter_object
from slackwater.ingest.targets.delta_commits import LETTERS, DeltaCommits, library
from slackwater.ingest.targets.replacement import Slice, StagedRows, StageTask
from slackwater.ingest.targets.schema_drift import fit
from slackwater.ingest.targets.staged_objects import RunMark, uploading
from slackwater.tables.object_store import ObjectStore

_STAGING: Final = "_slackwater"
_FENCE: Final = "slackwater-fence:"
"""The prefix of the application of a fencing token."""


@dataclass(frozen=True)
class DeltaObjectsTarget(DeltaCommits[None]):
    """The object store with the table, and the columns that identify its rows."""

    store: ObjectStore

    @property
    def location(self) -> str:
        """The URL of the table."""
        return self.store.url

    @property
    def _mark(self) -> RunMark:
        return RunMark(self.job, self.token)

    # ---- the fence

    def check_fence(self, table: Any) -> None:
        """Compare the token of the run with the highest one in the log."""
        if self.token is not None and (table.transaction_version(_FENCE + self.job) or 0) > self.token:
            raise RunReplaced(self.job)

    def transactions(self) -> list[Any]:
        """The token of the run."""
        return [] if self.token is None else [library().Transaction(_FENCE + self.job, self.token)]

    def pass_fence(self) -> None:
        """Commit the token of the run; a table that does not exist has no runs to fence off."""
        self.check_folder(self.store)
        failed = library().exceptions.CommitFailedError
        while self.token is not None and (table := self.open_table()) is not None:
            self.check_fence(table)
            if table.transaction_version(_FENCE + self.job) == self.token:
                return
            properties = library().CommitProperties(
                custom_metadata=self.metadata_of(table),
                max_commit_retries=0,
                app_transactions=self.transactions(),
            )
            try:
                table.create_write_transaction([], "append", table.schema(), [], commit_properties=properties)
            except failed:  # another writer committed first
                continue

    # ---- the steps of a replacement

    def remove_leftovers(self) -> None:
        """Remove what earlier runs of the job staged."""
        self.store.delete(key for key in self.store.keys(_STAGING) if self._mark.is_of_earlier_run(key))

    def staging_area(self) -> AbstractContextManager[None]:
        """Nothing: the names of staged files tell which run they belong to."""
        return nullcontext()

    def stage_task(self, area: None, slice_: Slice) -> StageTask:
        """Upload the rows of a task."""
        return uploading(self.store, partial(_staged, self._mark))

    def swap(
        self, area: None, staged: Sequence[StagedRows], columns: Columns, slice_: Slice, letters: pa.Table
    ) -> int | None:
        """Replace the slice in one commit."""
        if staged:
            fitting = fit(columns, self.target_columns(columns), self.drift)
            if fitting.cast or fitting.missing:
                return None
        if (table := self.open_table()) is not None:
            self.check_fence(table)
        unit = hashlib.sha256(slice_.unit.key.encode()).hexdigest()[:32]
        key = f"{LETTERS}/{unit}.jsonl"
        before = self.store.read(key)
        write_letter_object(
            self.store, key, before and before.content, letters, slice_, self.job, self.time_column
        )
        keys = [_staged(self._mark, task.name) for task in staged]
        with TemporaryDirectory() as folder:
            self.commit([self.store.local_file(key, Path(folder)) for key in keys], columns, slice_)
        self.store.delete(keys)
        return 0


def _staged(mark: RunMark, name: str) -> str:
    return f"{_STAGING}/rows{mark.suffix(name)}.parquet"
