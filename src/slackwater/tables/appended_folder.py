"""A folder of Parquet files that only grows, with the log that Spark's own file sink would write.

An entry of the log adds the files of one batch. Its first line, which Spark ignores, contains the columns of
the table and the ledger, so a batch becomes visible and is recorded by one conditional request. Every tenth
entry lists all files, as Spark expects.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from slackwater import time
from slackwater._arrow_types import nullable_schema
from slackwater.errors import CorruptState
from slackwater.sql.pane_targets import TableDoesNotFit
from slackwater.tables.append_table import (
    NO_FILES,
    AppendedFile,
    AppendTable,
    file_prefix,
    file_sizes,
    not_shared,
)
from slackwater.tables.lake_ledger import BatchCommit, LedgerEntry
from slackwater.tables.lake_table import CommitConflict, LostRace, until_committed
from slackwater.tables.object_store import (
    LOCK,
    FolderObjects,
    ObjectStore,
    ObjectStoreFailed,
    folder_url,
    local_folder,
    object_store,
)
from slackwater.tables.spark_file_log import (
    FOLDER,
    log_content,
    log_file,
    log_key,
    log_lines,
    log_note,
    log_versions,
)

_ANOTHER: Final = "write to another folder"
_READS: Final = 10
_COMPLETE_EVERY: Final = 10
"""How many entries of the log there are for each one that lists all files; Spark's default."""
_KEPT: Final = 2 * _COMPLETE_EVERY
"""Entries that are so many versions older than a complete one are deleted: readers that have listed the log
may still read the last interval."""
_log = logging.getLogger(__name__)
_STAGED: Final = "_"
"""Spark skips files whose names begin with this."""
_STAGED_END: Final = ".staged"
"""Patterns such as ``*.parquet`` do not match names that end with this."""
_MILLISECOND: Final = 1000


class FolderNote(msgspec.Struct, frozen=True):
    """What an entry of the log states in addition to its files."""

    columns: dict[str, str]
    """The types of the columns, as Arrow names them."""
    ledger: dict[str, LedgerEntry] = {}
    location: str = ""
    """The URL of the folder."""


@dataclass(frozen=True, slots=True)
class _Log:
    versions: dict[int, bool]
    """Each with whether it lists all files."""
    note: FolderNote
    """What the newest one states."""


class _FirstLine(msgspec.Struct, frozen=True):
    slackwater: FolderNote | None = None


@dataclass(frozen=True)
class AppendedFolder(AppendTable):
    """A folder or a URL of an object store.

    >>> AppendedFolder("s3://lake/panes").name
    'parquet:s3://lake/panes'
    """

    location: str

    @property
    def name(self) -> str:
        """The table in messages."""
        return f"parquet:{self.location}"

    @property
    def store(self) -> ObjectStore:
        """Where its files are."""
        return object_store(folder_url(self.location))

    def staged(self, key: str) -> str:
        """A name that readers of folders skip; objects cannot be renamed, and have their names at once."""
        return key if local_folder(self.store) is None else f"{_STAGED}{key}{_STAGED_END}"

    def prepare(self, schema: pa.Schema, *, create: bool) -> pa.Schema:
        """Check the columns, or write the first entry of the log."""
        schema = nullable_schema(
            schema
        )  # whether a field may be null depends on how an expression is written
        self._check_types(schema)
        columns = _described(schema)
        try:
            found = self._newest()
            if found is not None:
                self._check(columns, found.note)
            elif not self._create(columns, create=create):
                return self.prepare(schema, create=False)
        except OSError as error:
            fix = "check the path and its permissions"
            raise self._misfit(f"cannot be used: {error}", fix) from error
        return schema

    def _check_types(self, schema: pa.Schema) -> None:
        try:
            pq.ParquetWriter(pa.BufferOutputStream(), schema).close()
        except pa.ArrowException as error:
            fix = "cast the columns to types that Parquet has"
            raise self._misfit(f"cannot be written: {error}", fix) from error

    def _create(self, columns: dict[str, str], *, create: bool) -> bool:
        """Write the first entry of the log; returns False if another process did so first."""
        # If another process has created the log meanwhile, this one cannot be written.
        foreign = next((key for key in self.store.keys("") if _is_foreign(key)), None)
        if foreign is not None:
            raise self._misfit(f"contains files that append_to has not written, such as {foreign}", _ANOTHER)
        if not create:
            raise self._misfit("does not exist", "pass create=True, or correct the address")
        first = log_content([self._note_line(FolderNote(columns))])
        return self.store.replace(log_key(0, complete=False), first, None)

    def _check(self, columns: Mapping[str, str], note: FolderNote) -> None:
        """Raise if rows with these columns cannot be appended."""
        if note.location != self.store.url:
            # The log contains URLs: with others, readers and writers would not agree on the files.
            fix = f'write "parquet:{note.location}", or write to another folder'
            raise self._misfit(f"was created as {note.location}", fix)
        problems = _problems(columns, note.columns)
        if problems:
            raise self._misfit(f"does not fit the rows: {'; '.join(problems)}", _ANOTHER)

    def _misfit(self, reason: str, fix: str) -> TableDoesNotFit:
        return TableDoesNotFit("table", self.name, reason, fix=fix)

    def ledger(self) -> dict[str, LedgerEntry]:
        """The entries of all identities, from the newest entry of the log."""
        note = self._listed_log()[1]
        return {} if note is None else note.ledger

    def append(self, schema: pa.Schema, files: Sequence[AppendedFile], batch: BatchCommit) -> bool:
        """Write the next entry of the log."""
        try:
            added = until_committed(self.name, lambda: self._attempt(_described(schema), files, batch))
        except Exception:  # a full disk or a missing file, for example
            self._discard(files)
            raise
        if not added:
            self._discard(files)
        return added

    def _discard(self, files: Sequence[AppendedFile]) -> None:
        """Delete files that were not committed, of a local folder.

        They have their final names if this commit lost a race or failed. An earlier attempt may have
        committed them.
        """
        staged = {file.key: self.staged(file.key) for file in files}
        renamed = {key: found for key, found in staged.items() if found != key}
        with self._tidying():
            self._delete_unlisted([*renamed, *renamed.values()])

    def _attempt(self, columns: Mapping[str, str], files: Sequence[AppendedFile], batch: BatchCommit) -> bool:
        found = self._newest()
        if found is None:
            raise self._misfit("was deleted", "start the query again")
        known, note = found.versions, found.note
        entry = batch.entry(self.name, note.ledger)
        if entry is None:
            return False
        self._check(columns, note)  # another program may have replaced the folder
        version = max(known) + 1
        complete = (version + 1) % _COMPLETE_EVERY == 0
        fresh = msgspec.structs.replace(note, ledger=batch.record(note.ledger, entry))
        listed = self._listed(known) if complete else []
        try:
            self._publish(files)
            lines = self._lines(files)
        except FileNotFoundError as error:
            batch.entry(self.name, self.ledger())  # raises if a newer run has deleted the files of this one
            raise not_shared(self.name, NO_FILES) from error
        content = log_content([self._note_line(fresh), *listed, *lines])
        key = log_key(version, complete=complete)
        if not self.store.replace(key, content, None):
            raise LostRace(f"version {version} of the log exists")
        if max(log_versions(self.store.keys(FOLDER)), default=version) >= version + _KEPT:
            # The version existed before, and was deleted as obsolete: no reader reads it. If it was not, all
            # versions that are read contain this one, and the next attempt finds the batch in the ledger.
            self._delete([key])
            raise LostRace(f"version {version} of the log is obsolete")
        before = note.ledger.get(batch.identity)
        if before is not None and before.runs[-1:] != entry.runs[-1:]:
            self._discard_files(before.runs)
        if complete:
            old = {one: all_ for one, all_ in known.items() if one <= version - _KEPT}
            self._delete(log_key(one, complete=all_) for one, all_ in old.items())
        return True

    def _publish(self, files: Sequence[AppendedFile]) -> None:
        """Give staged files their names; objects have them already."""
        if isinstance(self.store, FolderObjects):
            self.store.rename({self.staged(file.key): file.key for file in files})

    def _discard_files(self, runs: Sequence[str]) -> None:
        """Delete the files that no commit contains, of runs that cannot commit any more."""
        prefixes = tuple(prefix for run in runs for prefix in (file_prefix(run), _STAGED + file_prefix(run)))
        with self._tidying():
            self._delete_unlisted([key for key in self.store.keys("") if key.startswith(prefixes)])

    def _delete_unlisted(self, keys: Sequence[str]) -> None:
        """Delete those of some files that the log does not list."""
        if keys:
            known = log_versions(self.store.keys(FOLDER))
            if not known:
                raise LostRace("the log was deleted")
            lines = self._listed(known)
            listed = {unquote(json.loads(line)["path"]).rpartition("/")[2] for line in lines}
            self.store.delete(key for key in keys if key not in listed)

    def _delete(self, keys: Iterable[str]) -> None:
        with self._tidying():
            self.store.delete(keys)

    @contextmanager
    def _tidying(self) -> Iterator[None]:
        """Deleting what is not needed any more must not fail a batch that is committed."""
        try:
            yield
        except (OSError, ObjectStoreFailed, LostRace, CorruptState) as error:
            _log.warning("files that %s does not need any more cannot be deleted: %s", self.name, error)

    def _newest(self) -> _Log | None:
        """The log, which states what this class writes; None if there is no log."""
        known, note = self._listed_log()
        if not known:
            return None
        if note is None:
            raise self._misfit("has a log that Spark's file sink or an ingestion job writes", _ANOTHER)
        return _Log(known, note)

    def _listed_log(self) -> tuple[dict[int, bool], FolderNote | None]:
        """The versions of the log, and what the newest one states."""
        for _ in range(_READS):
            known = log_versions(self.store.keys(FOLDER))
            with suppress(LostRace):  # the log has grown by two intervals since it was listed
                return known, self._note(known)
        raise CommitConflict(self.name, "its log grows faster than it can be read")

    def _note(self, known: Mapping[int, bool]) -> FolderNote | None:
        """What the newest of these versions states; None if it states nothing."""
        if not known:
            return None
        lines = self._read(known, max(known))
        try:
            return msgspec.json.decode(lines[0], type=_FirstLine).slackwater if lines else None
        except msgspec.DecodeError as error:
            raise CorruptState("log of a folder", str(error)) from error

    def _listed(self, known: Mapping[int, bool]) -> list[str]:
        """The lines of all files."""
        first = max((version for version, all_ in known.items() if all_), default=0)
        return [line for version in range(first, max(known) + 1) for line in self._read(known, version)[1:]]

    def _read(self, known: Mapping[int, bool], version: int) -> list[str]:
        if version not in known:
            raise CorruptState("log of a folder", f"version {version} of {self.name} is missing")
        stored = self.store.read(log_key(version, complete=known[version]))
        if stored is None:
            raise LostRace(f"version {version} of the log is obsolete")
        return log_lines(stored.content)

    def _lines(self, files: Sequence[AppendedFile]) -> list[str]:
        store, now = self.store, time.now() // _MILLISECOND
        sizes = file_sizes(store, files)
        return [log_file(store.url_of(file.key), size, now) for file, size in zip(files, sizes, strict=True)]

    def _note_line(self, note: FolderNote) -> str:
        located = msgspec.structs.replace(note, location=self.store.url)
        return log_note(self.store.url, slackwater=msgspec.to_builtins(located))


def _is_foreign(key: str) -> bool:
    """Whether another program has written an object; consoles of S3 create empty ones for folders.

    >>> [key for key in ("", "_spark_metadata", "_spark_metadata/0", "part-0.parquet") if _is_foreign(key)]
    ['part-0.parquet']
    """
    return key not in ("", FOLDER) and not key.startswith((LOCK, f"{FOLDER}/"))


def _described(schema: pa.Schema) -> dict[str, str]:
    """The types of columns, as the log states them."""
    return {one.name: str(one.type) for one in schema}


def _problems(wanted: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    problems = [f"column {name} is missing" for name in wanted if name not in found]
    problems += [f"column {name} is not in the rows" for name in found if name not in wanted]
    return problems + [
        f"column {name} is {found[name]}, needs {kind}"
        for name, kind in wanted.items()
        if name in found and found[name] != kind
    ]
