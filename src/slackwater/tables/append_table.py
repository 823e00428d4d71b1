"""Tables that files are appended to: every batch of a query adds files, and its commit makes them visible."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from slackwater.errors import InvalidArgument
from slackwater.tables.lake_ledger import BatchCommit, LedgerEntry
from slackwater.tables.object_store import ObjectStore

_REQUESTS: Final = 16
NO_FILES: Final = "the driver cannot see the files that the tasks wrote"


@dataclass(frozen=True, slots=True)
class AppendedFile:
    """A Parquet file that a task has written: its key below the table, and its rows.

    >>> AppendedFile("part-0.parquet", 7).rows
    7
    """

    key: str
    rows: int


class AppendTable(ABC):
    """A table of Parquet files. It is pickled to the tasks that write, and to the process that commits."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The table in messages, without credentials."""

    @property
    @abstractmethod
    def store(self) -> ObjectStore:
        """Where its files are."""

    @abstractmethod
    def staged(self, key: str) -> str:
        """The key under which a task writes a file that gets another key when it is committed."""

    @abstractmethod
    def prepare(self, schema: pa.Schema, *, create: bool) -> pa.Schema:
        """Check that the table fits, or create it.

        Args:
            schema: The columns of the rows.
            create: Create the table if it does not exist.

        Returns:
            The schema of the files to be written.

        Raises:
            TableDoesNotFit: The table does not exist, or has missing or wrong columns, which are all named.
        """

    @abstractmethod
    def ledger(self) -> dict[str, LedgerEntry]:
        """The entries of all identities; empty if the table does not exist."""

    @abstractmethod
    def append(self, schema: pa.Schema, files: Sequence[AppendedFile], batch: BatchCommit) -> bool:
        """Make the files of a batch visible and record the batch; returns False if it was applied before.

        Args:
            schema: The columns of the files, which `prepare` returned.
            files: The files.
            batch: The batch.

        Raises:
            CommitConflict: Other commits came first, again and again.
            IdentityInUse: The identity belongs to another query, or to a newer run of this one.
            InvalidArgument: The driver cannot see the files.
            StaleBatch: A later batch of the query was applied before, or one with the same number and other
                results.
            TableDoesNotFit: The table was changed or deleted after the query was started.
        """


def file_prefix(run: str) -> str:
    """The beginning of the keys of all files that a run of a query writes.

    >>> file_prefix("5f1c9d20")
    'part-5f1c9d20-'
    """
    return f"part-{run}-"


def not_shared(table: str, problem: str) -> InvalidArgument:
    """The error if a table is in a folder that the machines of the cluster do not share.

    >>> print(not_shared("parquet:/data/panes", "does not exist on the machine of this task"))
    table = 'parquet:/data/panes': does not exist on the machine of this task; use a path that all machines \
of the cluster share, or the URL of an object store
    """
    fix = "use a path that all machines of the cluster share, or the URL of an object store"
    return InvalidArgument("table", table, problem, fix=fix)


def file_sizes(store: ObjectStore, files: Sequence[AppendedFile]) -> list[int]:
    """The sizes of files in bytes."""
    if len(files) <= 1:
        return [store.size(file.key) for file in files]
    with ThreadPoolExecutor(min(_REQUESTS, len(files))) as threads:
        return list(threads.map(lambda file: store.size(file.key), files))
