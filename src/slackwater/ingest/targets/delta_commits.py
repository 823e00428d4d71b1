"""What Delta Lake targets share: a slice is replaced in one commit of the transaction log.

A commit also states up to which time the job has read everything, in the ledger that `merge_into` keeps. It
is never rebased on a commit of another writer: it fails and is made again, so that it continues the newest
ledger.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.dataset as pads

from slackwater.errors import InvalidArgument
from slackwater.ingest.sources.extracted_rows import Rows
from slackwater.ingest.sources.spark_columns import Columns
from slackwater.ingest.targets.replacement import ReplacingTarget, Slice
from slackwater.sql.identifiers import quote_identifier
from slackwater.tables.object_store import ObjectStore
from slackwater.tables.spark_file_log import check_no_file_log
from slackwater.time import format_instant

LETTERS: Final = "_slackwater_dead_letters"
"""The folder with the rows that the table cannot store, in a file for each unit."""
_MAX_ATTEMPTS: Final = 20

StagingArea = TypeVar("StagingArea")


@dataclass(frozen=True)
class DeltaCommits(ReplacingTarget[StagingArea]):
    """A Delta Lake table; the subclass says where it is, and where rows are staged."""

    @property
    @abstractmethod
    def location(self) -> str:
        """The path or the URL of the table."""

    def shape(self, rows: Rows, slice_: Slice) -> Rows:
        """Add the columns that identify the unit."""
        return rows.marked(slice_.identity(self.time_column))

    def target_columns(self, found: Columns) -> Columns | None:
        """Read the schema of the table."""
        table = self.open_table()
        if table is None:
            return None
        schema = _with_spark_types(pa.schema(table.schema()))
        return {field.name: field.type for field in schema}

    def open_table(self) -> Any:
        """The newest version of the table; None if it does not exist."""
        table = library().DeltaTable
        return table(self.location) if table.is_deltatable(self.location) else None

    def check_folder(self, store: ObjectStore) -> None:
        """Raise `TableDoesNotFit` if `append_to` writes to the folder and no Delta table is in it."""
        if self.open_table() is None:
            check_no_file_log(store, f"delta:{self.location}")

    def check_fence(self, table: Any) -> None:
        """Raise `RunReplaced` if a newer run has committed to this version; nothing if a lock does that."""

    def transactions(self) -> list[Any]:
        """The application transactions of a commit."""
        return []

    def metadata_of(self, table: Any) -> dict[str, str]:
        """The metadata of a commit that continues the ledger of a version."""
        from slackwater.tables.delta_table import LEDGER, encode_ledger, ledger_of  # not in executors

        known = ledger_of(table)
        return {LEDGER: encode_ledger(known)} if known else {}

    def commit(self, files: Sequence[Path], columns: Columns, slice_: Slice) -> None:
        """Replace the slice by the rows of files, which can be read repeatedly."""
        errors = library().exceptions
        for attempt in range(_MAX_ATTEMPTS):
            table = self.open_table()
            if table is not None:
                self.check_fence(table)
            try:
                self._attempt(table, files, columns, slice_)
            except errors.CommitFailedError:  # another writer committed first
                if attempt == _MAX_ATTEMPTS - 1:
                    raise
            else:
                return

    def _attempt(self, table: Any, files: Sequence[Path], columns: Columns, slice_: Slice) -> None:
        from slackwater.tables.delta_table import LEDGER, encode_ledger, ledger_of  # not in executors
        from slackwater.tables.lake_ledger import LedgerEntry

        known = {} if table is None else ledger_of(table)
        until, identity = self.complete_after(slice_), self.identity
        range_ = f"[{format_instant(slice_.low)}, {format_instant(slice_.high)})"
        metadata = {"slackwater.job": self.job, "slackwater.slice": f"{slice_.unit} {range_}".strip()}
        if until is not None:
            before = known[identity].complete_until if identity in known else None
            known[identity] = LedgerEntry(
                0, None, complete_until=until if before is None else max(before, until)
            )
        if known:
            metadata[LEDGER] = encode_ledger(known)
        properties = library().CommitProperties(
            custom_metadata=metadata, max_commit_retries=0, app_transactions=self.transactions()
        )
        if not columns:
            if table is not None:
                version = table.version()
                table.delete(self._predicate(slice_), commit_properties=properties)
                if table.version() == version and until is not None:  # nothing was deleted
                    table.create_write_transaction(
                        [], "append", table.schema(), [], commit_properties=properties
                    )
            return
        schema = pa.schema(list(columns.items()))
        library().write_deltalake(
            self.location if table is None else table,
            _reader(files, schema),
            mode="append" if table is None else "overwrite",
            predicate=None if table is None else self._predicate(slice_),
            schema_mode="merge" if table is not None and self.drift == "add" else None,
            commit_properties=properties,
        )

    def _predicate(self, slice_: Slice) -> str:
        conditions = [
            f"{quote_identifier(name)} IS NULL"
            if value is None
            else f"{quote_identifier(name)} = {_literal(value)}"
            for name, value in slice_.identity(self.time_column).items()
        ]
        if self.time_column is not None:
            at = quote_identifier(self.time_column)
            conditions += [f"{at} >= {_literal(format_instant(slice_.low))}"]
            conditions += [f"{at} < {_literal(format_instant(slice_.high))}"]
        return " AND ".join(conditions)


def _literal(value: str) -> str:
    doubled = value.replace("'", "''")
    return f"'{doubled}'"


def _with_spark_types(schema: pa.Schema) -> pa.Schema:
    """Replace the wide variants of string and binary by those that Spark has."""
    wide = {pa.large_string(): pa.string(), pa.string_view(): pa.string(), pa.large_binary(): pa.binary()}
    return pa.schema([(field.name, wide.get(field.type, field.type)) for field in schema])


def _reader(files: Sequence[Path], schema: pa.Schema) -> pa.RecordBatchReader:
    """Read the rows of files in batches, without running Python.

    The threads of deltalake read it. Some of its functions keep the GIL while they wait for these threads, so
    a reader that needs the GIL would block both forever if another unit calls such a function.
    """
    dataset = pads.dataset([str(path) for path in files], schema=schema, format="parquet")
    return dataset.scanner(batch_readahead=1, fragment_readahead=1, use_threads=False).to_reader()


def library() -> Any:
    """The package deltalake.

    Raises:
        InvalidArgument: It is not installed.
    """
    try:
        import deltalake
        import deltalake.exceptions
    except ModuleNotFoundError:
        reason = "needs the package deltalake, which is not installed"
        fix = 'run: pip install "slackwater[delta]"'
        raise InvalidArgument("ms.target.type", "delta", reason, fix=fix) from None
    return deltalake
