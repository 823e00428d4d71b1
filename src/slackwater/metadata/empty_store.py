"""Copies of an empty SQLite store, for tests and examples: running all migrations for each takes longer."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from slackwater.metadata.store import open_store


def copy_empty_store(folder: Path | str) -> str:
    """Write a new SQLite store with all tables into a folder, and return its URL.

    The copies have the same store id, so they must not replace each other.

    >>> with TemporaryDirectory() as folder, open_store(copy_empty_store(folder)) as store:
    ...     store.is_embedded
    True
    """
    path = Path(folder) / "store.db"
    path.write_bytes(_empty_store())
    return f"sqlite:///{path}"


@cache
def _empty_store() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        open_store(f"sqlite:///{path}", create=True).close()
        return path.read_bytes()
