"""A lakehouse table as the target of panes: its columns, and the merge of one batch.

A format has to do two things: read the ledger, and apply changes together with new ledger entries in one
commit that fails if another commit came first. Everything else is the same for all formats.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import polars as pl
import pyarrow as pa

from slackwater.errors import SlackwaterError
from slackwater.sql.pane_targets import Fold, TableDoesNotFit
from slackwater.tables.lake_ledger import BatchCommit, LedgerEntry
from slackwater.tables.pane_fold import DELETED, new_value

_ATTEMPTS: Final = 8
_FIRST_WAIT: Final = 0.05
"""Seconds before the second attempt; doubled with every further one."""


Conditions = Sequence[tuple[str, str, datetime]]
"""Conditions on columns, each with a column, ``<`` or ``>``, and a value."""


class CommitConflict(SlackwaterError):
    """Another process committed first."""

    def __init__(self, table: str, reason: str) -> None:
        self.table = table
        super().__init__(
            f"{_ATTEMPTS} attempts to commit to {table} failed because of concurrent commits: {reason}; "
            f"start the query again when the table has fewer writers"
        )


class LostRace(Exception):
    """One attempt of a commit lost against another commit."""


@dataclass(frozen=True)
class LakeColumns:
    """The columns of a target table: those that identify a row, and the values with their folds.

    >>> LakeColumns(pa.schema([("key", pa.string())]), pa.schema([("n", pa.int64())])).schema.names
    ['key', 'n']
    """

    identity: pa.Schema
    values: pa.Schema
    fold: Mapping[str, Fold] = field(default_factory=dict)
    """How deltas are folded, by value column; empty if a pane is a full result."""

    @property
    def schema(self) -> pa.Schema:
        """All columns."""
        return pa.schema([*self.identity, *self.values])


class LakeTable(ABC):
    """A table of a lakehouse format. It is pickled to the process that commits."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The table in messages, without credentials."""

    @abstractmethod
    def columns(self) -> pa.Schema | None:
        """The columns of the table; None if it does not exist."""

    @abstractmethod
    def create(self, schema: pa.Schema) -> None:
        """Create the table."""

    @abstractmethod
    def ledger(self) -> dict[str, LedgerEntry]:
        """The entries of all identities, of the table as it is now; empty if it has none."""

    @abstractmethod
    def rows(self, names: Sequence[str], conditions: Conditions) -> pl.DataFrame:
        """Some columns of the rows for which all conditions hold, of the table as it is now."""

    @abstractmethod
    def attempt(self, columns: LakeColumns, changes: pl.DataFrame, batch: BatchCommit) -> bool:
        """Apply changes and record the batch in one commit; returns False if it was applied before.

        Raises:
            LostRace: Another commit came first.
        """

    def prepare(self, columns: LakeColumns, *, create: bool) -> None:
        """Check that the table fits, or create it.

        Raises:
            TableDoesNotFit: The table does not exist, or has missing or wrong columns, which are all named.
        """
        found = self.columns()
        if found is None:
            if not create:
                described = ", ".join(f"{one.name} {one.type}" for one in columns.schema)
                raise TableDoesNotFit(
                    "table", self.name, "does not exist",
                    fix=f"pass create=True, or create it with the columns {described}",
                )  # fmt: skip
            self.create(columns.schema)
            return
        problems = _problems(columns.schema, found)
        if problems:
            raise TableDoesNotFit(
                "table", self.name, f"does not fit the panes: {'; '.join(problems)}",
                fix="alter the table, rename keys or values, or write to another table",
            )  # fmt: skip

    def merge(self, columns: LakeColumns, changes: pl.DataFrame, batch: BatchCommit) -> bool:
        """Apply changes once; returns whether the batch was new.

        Args:
            columns: The columns of the table.
            changes: What `folded_panes` returned for the whole batch.
            batch: The batch.

        Raises:
            CommitConflict: Other commits came first, again and again.
            IdentityInUse: The identity belongs to another query, or to a newer run of this one.
            StaleBatch: A later batch of the query was applied before.
        """
        return until_committed(self.name, lambda: self.attempt(columns, changes, batch))


def until_committed(table: str, attempt: Callable[[], bool]) -> bool:
    """Try to commit until no other commit comes first, a few times.

    Raises:
        CommitConflict: Other commits came first, again and again.

    >>> until_committed("totals", lambda: True)
    True
    """
    wait = _FIRST_WAIT
    for number in range(_ATTEMPTS):
        try:
            return attempt()
        except LostRace as lost:
            if number + 1 == _ATTEMPTS:
                raise CommitConflict(table, str(lost)) from lost
            time.sleep(wait)
            wait *= 2
    raise AssertionError  # the loop returns or raises


def changed_rows(
    before: pl.DataFrame, columns: LakeColumns, changes: pl.DataFrame, schema: pa.Schema
) -> pa.Table:
    """The rows of a table after changes.

    Args:
        before: The rows of the table, or at least those that the changes identify.
        columns: The columns that the panes have; the table may have more, which keep their values.
        changes: What `folded_panes` returned.
        schema: All columns of the table.

    >>> columns = LakeColumns(pa.schema([("key", pa.string())]), pa.schema([("n", pa.int64())]))
    >>> before = pl.DataFrame({"key": ["a", "b", "c"], "n": [1, 2, 3]})
    >>> changes = pl.DataFrame({"key": ["a", "b"], "n": [5, None], "deleted": [False, True]})
    >>> changed_rows(before, columns, changes, columns.schema).to_pydict()
    {'key': ['c', 'a'], 'n': [3, 5]}
    """
    identity, values = columns.identity.names, columns.values.names
    kept = before.join(changes, on=identity, how="anti", nulls_equal=True)
    results = changes.filter(~pl.col(DELETED)).drop(DELETED)
    further = [name for name in before.columns if name not in results.columns]
    if columns.fold or further:
        folded = [pl.col(name).alias(_OLD + name) for name in values if columns.fold]
        old = before.select(*identity, *folded, *further)
        results = results.join(old, on=identity, how="left", nulls_equal=True)
    if columns.fold:
        results = results.with_columns(new_value(name, columns.fold[name], _OLD + name) for name in values)
    parts = [
        frame.select(schema.names).to_arrow(compat_level=pl.CompatLevel.oldest()) for frame in (kept, results)
    ]
    return pa.concat_tables([part.cast(schema) for part in parts])


_OLD: Final = "old:"


def _problems(wanted: pa.Schema, found: pa.Schema) -> list[str]:
    """What is wrong with the columns of a table; a wider type is not."""
    problems: list[str] = []
    for one in wanted:
        if one.name not in found.names:
            problems.append(f"column {one.name} is missing")
        elif not _fits(one.type, found.field(one.name).type):
            problems.append(_wrong_type(one, found))
    return problems


def column_problems(wanted: pa.Schema, found: pa.Schema) -> list[str]:
    """What is wrong with the columns of a table for files that are added as they are.

    >>> column_problems(pa.schema([("n", pa.int32())]), pa.schema([("n", pa.int64())]))
    ['column n is int64, needs int32']
    """
    names = frozenset(found.names)
    missing = [f"column {one.name} is missing" for one in wanted if one.name not in names]
    both = (one for one in wanted if one.name in names)
    return missing + [_wrong_type(one, found) for one in both if one.type != found.field(one.name).type]


def _wrong_type(wanted: pa.Field, found: pa.Schema) -> str:
    return f"column {wanted.name} is {found.field(wanted.name).type}, needs {wanted.type}"


def _fits(wanted: pa.DataType, found: pa.DataType) -> bool:
    if wanted == found or _plain(wanted) == _plain(found):
        return True
    wider: dict[pa.DataType, Sequence[pa.DataType]] = {
        pa.int32(): (pa.int64(),),
        pa.float32(): (pa.float64(),),
    }
    return found in wider.get(wanted, ())


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type without the variants that Arrow has for the same values."""
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if kind in (pa.int8(), pa.int16()):
        return pa.int32()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(one.name, _plain(one.type)) for one in kind.fields])
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    return kind


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema in the types that lakehouse formats have: nullable, and without Arrow's variants.

    >>> plain_schema(pa.schema([pa.field("n", pa.int16(), nullable=False)]))
    n: int32
    """
    return pa.schema([pa.field(one.name, _plain(one.type)) for one in schema])
