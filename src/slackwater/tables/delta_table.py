"""A Delta Lake table as the target of panes: one MERGE commit for each batch.

The metadata of every commit contains the ledger of all queries. A commit is never rebased on another one:
it fails if another came first and is made again, so the ledger is always that of the newest commit. The
number of the batch is also recorded as an application transaction, which outlives the log of the commits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
import polars as pl
import pyarrow as pa

from slackwater import time
from slackwater.errors import MissingExtra
from slackwater.sql.identifiers import quote_identifier
from slackwater.sql.pane_targets import Fold, TableDoesNotFit
from slackwater.tables.append_table import AppendedFile
from slackwater.tables.lake_ledger import BatchCommit, LedgerEntry
from slackwater.tables.lake_table import (
    Conditions,
    LakeColumns,
    LakeTable,
    LostRace,
    column_problems,
    plain_schema,
)
from slackwater.tables.object_store import folder_url, is_object_store, object_store, without_secret
from slackwater.tables.pane_fold import DELETED
from slackwater.tables.spark_file_log import check_no_file_log

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, RemoveAction

LEDGER: Final = "slackwater.ledger"
COMPLETE: Final = "slackwater.complete_until"
_APPLICATION: Final = "slackwater:"
"""The prefix of application ids."""
_MILLISECOND: Final = 1000
_BASIC_VERSION: Final = 2
"""The writer version up to which the protocol has no further checks of rows than those of the schema."""
_NEWEST: Final = 20
"""How many commits are searched for the ledger before all of them are."""


@dataclass(frozen=True)
class DeltaLakeTable(LakeTable):
    """A Delta Lake table by its location, a path or a URL.

    >>> DeltaLakeTable("/data/totals").name
    'delta:/data/totals'
    """

    location: str

    @property
    def name(self) -> str:
        """The table in messages."""
        return f"delta:{without_secret(self.location)}"

    def columns(self) -> pa.Schema | None:
        """The columns of the table; None if it does not exist."""
        if not _library().DeltaTable.is_deltatable(self.location):
            return None
        return pa.schema(self._open().schema())

    def create(self, schema: pa.Schema) -> None:
        """Create the table.

        Raises:
            TableDoesNotFit: A column has a type that Delta Lake does not have, or `append_to` writes to the
                folder. The latter is not checked on an object store without ``obstore``.
        """
        library = _library()
        location = folder_url(self.location)
        if is_object_store(location):
            with suppress(MissingExtra):
                check_no_file_log(object_store(location), self.name)
        try:
            library.DeltaTable.create(self.location, schema=schema, mode="ignore")
        except Exception as error:  # a type that Delta Lake does not have raises no exception of its own
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise TableDoesNotFit(
                "table", self.name, f"cannot be created: {reason}",
                fix="cast columns to types that Delta Lake has, and check the location",
            ) from error  # fmt: skip

    def check_appends(self, features: frozenset[str]) -> None:
        """Raise if files cannot be added without checks of their rows.

        Args:
            features: The writer features with which they can be.

        Raises:
            TableDoesNotFit: The table is partitioned, has restrictions, or needs another feature.
        """
        self._check_appends(self._open(), features)

    def _check_appends(self, table: DeltaTable, features: frozenset[str]) -> None:
        obstacle = _append_obstacle(table, features)
        if obstacle is not None:
            raise TableDoesNotFit(
                "table", self.name, f"{obstacle}, which append_to does not support",
                fix="append to another table, or write to_df() with the connector of Delta Lake",
            )  # fmt: skip

    def _check_columns(self, table: DeltaTable, schema: pa.Schema) -> None:
        """Raise if the columns of files are not columns of the table, in the same types."""
        problems = column_problems(schema, plain_schema(pa.schema(table.schema())))
        if problems:
            raise TableDoesNotFit(
                "table", self.name, f"was changed, and does not fit the files: {'; '.join(problems)}",
                fix="change the columns back, or append to another table",
            )  # fmt: skip

    def append(
        self,
        schema: pa.Schema,
        files: Sequence[AppendedFile],
        sizes: Callable[[], Sequence[int]],
        batch: BatchCommit,
        features: frozenset[str],
    ) -> bool:
        """Add files and record the batch in one commit; returns False if it was applied before.

        Args:
            schema: The columns of the files.
            files: The files.
            sizes: Called for their sizes in bytes if the batch is new.
            batch: The batch.
            features: The writer features of tables to which files can be added without checks of their rows.

        Raises:
            LostRace: Another commit came first.
            TableDoesNotFit: The table has changed since the query was built: see `check_appends`, or the
                columns of the files are missing or have other types.
        """

        def add(table: DeltaTable, properties: Any) -> None:
            self._check_appends(table, features)
            self._check_columns(table, schema)
            now = time.now() // _MILLISECOND
            add_action = _library().transaction.AddAction
            actions = [
                add_action(
                    file.key, size, {}, now, data_change=True, stats=json.dumps({"numRecords": file.rows})
                )
                for file, size in zip(files, sizes(), strict=True)
            ]
            _append(table, actions, properties)

        return self.commit(batch, add)

    def ledger(self) -> dict[str, LedgerEntry]:
        """The entries of all identities, from the newest commit that has them."""
        if not _library().DeltaTable.is_deltatable(self.location):
            return {}
        return ledger_of(self._open())

    def rows(self, names: Sequence[str], conditions: Conditions) -> pl.DataFrame:
        """Some columns of the rows for which all conditions hold."""
        found = self._open().to_pyarrow_table(columns=list(names), filters=list(conditions))
        return pl.DataFrame(pl.from_arrow(found))

    def attempt(self, columns: LakeColumns, changes: pl.DataFrame, batch: BatchCommit) -> bool:
        """Apply changes and record the batch in one commit."""
        return self.commit(
            batch,
            lambda table, properties: (
                _append(table, [], properties)
                if changes.is_empty()
                else _merge(table, columns, changes, properties)
            ),
        )

    def commit(self, batch: BatchCommit, apply: Callable[[DeltaTable, Any], None]) -> bool:
        """Record the batch in the commit that ``apply`` makes; returns False if it was applied before.

        Args:
            batch: The batch.
            apply: Makes one commit with the properties that it is called with.

        Raises:
            LostRace: Another commit came first.
        """
        library = _library()
        table = self._open()
        known = ledger_of(table)
        if batch.identity not in known:
            applied = table.transaction_version(_APPLICATION + batch.identity)
            if applied is not None:  # the log of the commit is gone
                known[batch.identity] = LedgerEntry(applied, None)
        entry = batch.entry(self.name, known)
        if entry is None:
            return False
        metadata = {LEDGER: encode_ledger(batch.record(known, entry))}
        if entry.complete_until is not None:
            metadata[COMPLETE] = str(entry.complete_until)
        properties = library.CommitProperties(
            custom_metadata=metadata,
            max_commit_retries=0,
            app_transactions=[library.Transaction(_APPLICATION + batch.identity, batch.number)],
        )
        try:
            apply(table, properties)
        except library.exceptions.CommitFailedError as error:
            raise LostRace(str(error)) from error
        return True

    def _open(self) -> DeltaTable:
        table: DeltaTable = _library().DeltaTable(self.location)
        return table


def ledger_of(table: DeltaTable) -> dict[str, LedgerEntry]:
    """The entries of all identities, from the newest commit that has them."""
    for limit in (1, _NEWEST, None):
        for commit in table.history(limit):
            if LEDGER in commit:
                return msgspec.json.decode(commit[LEDGER], type=dict[str, LedgerEntry])
    return {}


def encode_ledger(known: dict[str, LedgerEntry]) -> str:
    """The ledger as the metadata of a commit.

    >>> encode_ledger({"totals": LedgerEntry(7, None)})
    '{"totals":{"batch":7,"query":null}}'
    """
    return msgspec.json.encode(known).decode()


def _append_obstacle(table: DeltaTable, features: frozenset[str]) -> str | None:
    """Why files cannot be added without checks of their rows; None if they can be."""
    protocol, partitions = table.protocol(), table.metadata().partition_columns
    unknown = sorted(frozenset(protocol.writer_features or ()) - features)
    if partitions:
        return f"is partitioned by {', '.join(partitions)}"
    if unknown:
        return f"uses the table {'features' if unknown[1:] else 'feature'} {', '.join(unknown)}"
    if protocol.min_writer_version > _BASIC_VERSION and not protocol.writer_features:
        return f"needs writer version {protocol.min_writer_version}"
    if _restricts(json.loads(table.schema().to_json())):
        return "has columns that must not be null, or invariants"
    return None


def _restricts(described: Any) -> bool:
    """Whether the schema of a table, or a part of it, restricts values.

    >>> _restricts({"fields": [{"name": "n", "nullable": False, "metadata": {}}]})
    True
    """
    if isinstance(described, list):
        return any(map(_restricts, described))
    if not isinstance(described, dict):
        return False
    nullable = (described.get(name, True) for name in ("nullable", "containsNull", "valueContainsNull"))
    return not all(nullable) or "delta.invariants" in described or any(map(_restricts, described.values()))


def _append(table: DeltaTable, actions: list[AddAction | RemoveAction], properties: Any) -> None:
    table.create_write_transaction(actions, "append", table.schema(), [], commit_properties=properties)


def _merge(table: DeltaTable, columns: LakeColumns, changes: pl.DataFrame, properties: Any) -> None:
    schema = pa.schema([*columns.schema, pa.field(DELETED, pa.bool_())])
    source = changes.select(schema.names).to_arrow(compat_level=pl.CompatLevel.oldest()).cast(schema)
    same = " AND ".join(_same(name, changes[name].null_count() > 0) for name in columns.identity.names)
    deleted = f"new.{quote_identifier(DELETED)}"
    updates = {
        quote_identifier(name): _new_value(name, columns.fold.get(name)) for name in columns.values.names
    }
    inserted = {quote_identifier(name): f"new.{quote_identifier(name)}" for name in columns.schema.names}
    merger = table.merge(source, same, source_alias="new", target_alias="old", commit_properties=properties)
    if changes[DELETED].any():
        merger = merger.when_matched_delete(deleted)
    if updates:
        merger = merger.when_matched_update(updates, predicate=f"NOT {deleted}")
    merger.when_not_matched_insert(inserted, predicate=f"NOT {deleted}").execute()


def _same(name: str, has_nulls: bool) -> str:
    quoted = quote_identifier(name)
    equal = f"old.{quoted} = new.{quoted}"
    return f"({equal} OR (old.{quoted} IS NULL AND new.{quoted} IS NULL))" if has_nulls else equal


def _new_value(name: str, how: Fold | None) -> str:
    old, new = f"old.{quote_identifier(name)}", f"new.{quote_identifier(name)}"
    match how:
        case None:
            return new
        case "sum":
            return f"COALESCE({old} + {new}, {old}, {new})"
        case "min":
            return f"CASE WHEN {old} IS NULL OR {new} < {old} THEN {new} ELSE {old} END"
        case "max":
            return f"CASE WHEN {old} IS NULL OR {new} > {old} THEN {new} ELSE {old} END"


def _library() -> Any:
    try:
        import deltalake
        import deltalake.exceptions
        import deltalake.transaction
    except ModuleNotFoundError:
        raise MissingExtra("delta", "deltalake") from None
    return deltalake
