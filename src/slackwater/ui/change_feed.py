"""Notices when the metadata store may have changed, once for all pages that are open."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from sqlalchemy.engine import URL

POLL_SECONDS: Final = 1.0
_REFRESH_SECONDS: Final = 10.0
"""After this long a change is assumed: plans and lags change with the clock alone."""

Version = tuple[int, int] | float | None
"""Two equal ones mean that nothing was committed in between; None if there is no store."""


class StoreVersion:
    """The version of a store, which changes with every commit.

    SQLite counts the commits of others for each connection. The modification times of its files cannot
    replace that: they change before a commit is visible, and not at its end.

    Args:
        url: The address of the store. The version of a database server changes with every call.

    >>> from slackwater.sql.database import database_url
    >>> StoreVersion(database_url("sqlite:////no-such-store.db")).read() is None
    True
    """

    def __init__(self, url: URL) -> None:
        self._url = url
        self._file = 0
        self._connection: sqlite3.Connection | None = None

    def read(self) -> Version:
        """The version at this time; another one if the file was replaced."""
        if self._url.get_backend_name() != "sqlite" or self._url.database is None:
            return time.monotonic()
        path = Path(self._url.database)
        try:
            file = path.stat().st_ino
        except OSError:
            self.close()
            return None
        try:
            if self._connection is None or file != self._file:
                self.close()
                address = f"{path.absolute().as_uri()}?mode=ro"
                self._connection = sqlite3.connect(address, uri=True, check_same_thread=False, timeout=0.1)
                self._file = file
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error:
            self.close()
            return time.monotonic()
        return file, version

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class ChangeFeed:
    """Counts the changes of a store while at least one page listens.

    Args:
        url: The address of the store.
        problem: Returns why the store cannot be read; called in a thread.
        poll_seconds: How often the store is checked.
    """

    def __init__(
        self, url: URL, problem: Callable[[], str | None], *, poll_seconds: float = POLL_SECONDS
    ) -> None:
        self.changes = 0
        self.problem: str | None = None
        self._version = StoreVersion(url)
        self._find_problem = problem
        self._poll_seconds = poll_seconds
        self._changed = asyncio.Condition()
        self._listeners = 0

    @asynccontextmanager
    async def polling(self) -> AsyncIterator[None]:
        """Look for changes until the block ends."""
        task = asyncio.create_task(self._poll())
        try:
            yield
        finally:
            task.cancel()
            self._version.close()

    async def wait(self, seen: int, seconds: float) -> None:
        """Wait until the number of changes is not ``seen``, or until the time is over."""
        self._listeners += 1
        try:
            async with self._changed:
                await asyncio.wait_for(self._changed.wait_for(lambda: self.changes != seen), seconds)
        except TimeoutError:
            pass
        finally:
            self._listeners -= 1

    async def _poll(self) -> None:
        known: Version = -1.0  # what is found first counts as a change, also that there is no store
        noticed = time.monotonic()
        while True:
            if self._listeners:
                found = await asyncio.to_thread(self._version.read)
                is_due = time.monotonic() - noticed >= _REFRESH_SECONDS
                if found != known or is_due:
                    problem = await asyncio.to_thread(self._find_problem)
                    known, noticed = found, time.monotonic()
                    async with self._changed:
                        self.problem = problem
                        self.changes += 1
                        self._changed.notify_all()
            await asyncio.sleep(self._poll_seconds)
