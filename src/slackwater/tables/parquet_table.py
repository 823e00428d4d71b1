"""A folder with one Parquet file as the target of panes, with a sidecar file that states its completeness.

A batch writes the whole table to a new file, which replaces the old one at once: readers of the folder see
the table before or after a batch. The ledger is in the metadata of the file, so a batch that is repeated
after a crash is found there. The sidecar is a copy of the ledger, written after the file, which can be read
without Parquet. It never states more than the file contains.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from slackwater._durable_files import file_lock, fsync_path
from slackwater.tables.lake_ledger import BatchCommit, LedgerEntry
from slackwater.tables.lake_table import Conditions, LakeColumns, LakeTable, changed_rows
from slackwater.tables.object_store import object_store
from slackwater.tables.spark_file_log import check_no_file_log

DATA: Final = "data.parquet"
SIDECAR: Final = "_slackwater.json"
"""Spark and others skip files whose names begin with an underscore."""
_LOCK: Final = "_slackwater.lock"
_LEDGER: Final = b"slackwater.ledger"
_Entries = dict[str, LedgerEntry]


@dataclass(frozen=True)
class ParquetTable(LakeTable):
    """A folder on a file system that renames files atomically.

    >>> ParquetTable("/data/totals").name
    'parquet:/data/totals'
    """

    folder: str

    @property
    def name(self) -> str:
        """The table in messages."""
        return f"parquet:{self.folder}"

    @property
    def _data(self) -> Path:
        return Path(self.folder) / DATA

    def columns(self) -> pa.Schema | None:
        """The columns of the table; None if it does not exist."""
        return pq.read_schema(self._data).remove_metadata() if self._data.exists() else None

    def create(self, schema: pa.Schema) -> None:
        """Create the folder with an empty file."""
        check_no_file_log(object_store(Path(self.folder).absolute().as_uri()), self.name)
        Path(self.folder).mkdir(parents=True, exist_ok=True)
        with self._locked():
            if not self._data.exists():
                self._replace(schema.empty_table(), {})

    def ledger(self) -> _Entries:
        """The entries of all identities, from the sidecar."""
        sidecar = Path(self.folder) / SIDECAR
        return msgspec.json.decode(sidecar.read_bytes(), type=_Entries) if sidecar.exists() else {}

    def rows(self, names: Sequence[str], conditions: Conditions) -> pl.DataFrame:
        """Some columns of the rows for which all conditions hold."""
        found = pq.read_table(self._data, columns=list(names), filters=list(conditions))
        return pl.DataFrame(pl.from_arrow(found))

    def attempt(self, columns: LakeColumns, changes: pl.DataFrame, batch: BatchCommit) -> bool:
        """Replace the file, then the sidecar."""
        with self._locked():
            with pq.ParquetFile(self._data) as file:
                schema = file.schema_arrow.remove_metadata()
                entries = _entries(file)
                entry = batch.entry(self.name, entries)
                if entry is None:
                    self._write_sidecar(entries)  # the process may have been killed before it was written
                    return False
                rows = file.read()
            entries = batch.record(entries, entry)
            before = pl.DataFrame(pl.from_arrow(rows))
            after = rows if changes.is_empty() else changed_rows(before, columns, changes, schema)
            self._replace(after.replace_schema_metadata(None), entries)
            self._write_sidecar(entries)
        return True

    def _locked(self) -> AbstractContextManager[None]:
        return file_lock(Path(self.folder) / _LOCK)

    def _replace(self, rows: pa.Table, entries: _Entries) -> None:
        fresh = self._data.with_name(f"_{DATA}.staged")  # readers of *.parquet skip it
        pq.write_table(rows.replace_schema_metadata({_LEDGER: msgspec.json.encode(entries)}), fresh)
        _rename(fresh, self._data)

    def _write_sidecar(self, entries: _Entries) -> None:
        sidecar = Path(self.folder) / SIDECAR
        fresh = sidecar.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(entries))
        _rename(fresh, sidecar)


def _entries(file: pq.ParquetFile) -> _Entries:
    stored = (file.schema_arrow.metadata or {}).get(_LEDGER)
    return {} if stored is None else msgspec.json.decode(stored, type=_Entries)


def _rename(fresh: Path, path: Path) -> None:
    fsync_path(fresh)
    fresh.replace(path)
    fsync_path(path.parent)
