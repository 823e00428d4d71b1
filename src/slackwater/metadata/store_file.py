"""The file of a SQLite store: notice that it was removed or replaced while the store is open.

A connection to a file that was removed goes on working, but what it writes is lost with the connection. The
file is therefore identified by its inode, and by the id that the store got when it was created.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sql
from sqlalchemy.engine import URL, Connection

from slackwater.errors import StoreReplaced
from slackwater.metadata.store_schema import store
from slackwater.sql.database import redacted_url


@dataclass(frozen=True, slots=True)
class StoreFile:
    """The identity of an open database file.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.metadata.store import open_store
    >>> with (
    ...     TemporaryDirectory() as folder,
    ...     open_store(f"sqlite:///{folder}/store.db", create=True) as opened,
    ... ):
    ...     file = opened.read(lambda connection: StoreFile.of(opened.url, connection))
    ...     file.check()
    """

    url: URL
    device: int
    inode: int
    id: str | None
    """None if the store has an older schema, without an id."""

    @classmethod
    def of(cls, url: URL, connection: Connection) -> StoreFile:
        """The identity of the file at a URL, to which ``connection`` is open."""
        found = _status(url)
        has_id = sql.inspect(connection).has_table(store.name)
        identity = connection.execute(sql.select(store.c.id)).scalar() if has_id else None
        return cls(url, found.st_dev, found.st_ino, identity)

    def check(self) -> None:
        """Raise `StoreReplaced` if the file is not at its path any more."""
        found = _status(self.url)
        if (found.st_dev, found.st_ino) != (self.device, self.inode):
            raise StoreReplaced(redacted_url(self.url), "replaced")

    def check_id(self, connection: Connection) -> None:
        """Raise `StoreReplaced` if the file has the content of another store."""
        if self.id is not None and connection.execute(sql.select(store.c.id)).scalar() != self.id:
            raise StoreReplaced(redacted_url(self.url), "replaced")


def _status(url: URL) -> os.stat_result:
    try:
        return Path(str(url.database)).stat()
    except FileNotFoundError:
        raise StoreReplaced(redacted_url(url), "removed") from None
