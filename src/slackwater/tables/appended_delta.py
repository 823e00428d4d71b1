"""A Delta Lake table that files are appended to: a commit of the table adds the files of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from slackwater.tables.append_table import NO_FILES, AppendedFile, AppendTable, file_sizes, not_shared
from slackwater.tables.delta_table import DeltaLakeTable
from slackwater.tables.lake_ledger import BatchCommit, LedgerEntry
from slackwater.tables.lake_table import LakeColumns, plain_schema, until_committed
from slackwater.tables.object_store import ObjectStore, folder_url, local_folder, object_store

_FEATURES: Final = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "deletionVectors",
        "domainMetadata",
        "invariants",
        "timestampNtz",
        "v2Checkpoint",
        "variantType",
    }
)
"""The writer features of a table to which files can be added without checks of their rows."""


@dataclass(frozen=True)
class AppendedDelta(AppendTable):
    """A Delta Lake table by its location, a path or a URL.

    >>> AppendedDelta(DeltaLakeTable("/data/panes")).name
    'delta:/data/panes'
    """

    table: DeltaLakeTable

    @property
    def name(self) -> str:
        """The table in messages."""
        return self.table.name

    @property
    def store(self) -> ObjectStore:
        """Where its files are."""
        return object_store(folder_url(self.table.location))

    def staged(self, key: str) -> str:
        """The same key: readers use the log of the table, and ``VACUUM`` deletes what is not in it."""
        return key

    def prepare(self, schema: pa.Schema, *, create: bool) -> pa.Schema:
        """Check the columns and the features of the table, or create it."""
        plain = plain_schema(schema)
        if local_folder(self.store) is None:
            self.store.read("_delta_log/_last_checkpoint")  # raises if tasks could not use the store
        self.table.prepare(LakeColumns(pa.schema([]), plain), create=create)
        self.table.check_appends(_FEATURES)
        found = self.table.columns()
        return plain if found is None else plain_schema(pa.schema([found.field(one) for one in plain.names]))

    def ledger(self) -> dict[str, LedgerEntry]:
        """The entries of all identities."""
        return self.table.ledger()

    def append(self, schema: pa.Schema, files: Sequence[AppendedFile], batch: BatchCommit) -> bool:
        """Add the files in one commit."""
        try:
            return until_committed(
                self.name,
                lambda: self.table.append(
                    schema, files, lambda: file_sizes(self.store, files), batch, _FEATURES
                ),
            )
        except FileNotFoundError as error:
            raise not_shared(self.name, NO_FILES) from error
