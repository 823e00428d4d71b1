"""Notices when the metadata store may have changed, once for all pages that are open."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from sqlalchemy.engine import URL

POLL_SECONDS: Final = 1.0
_REFRESH_SECONDS: Final = 10.0
"""After this long a change is assumed: plans and lags change with the clock alone."""

_SETTLED_NANOSECONDS: Final = 50_000_000
"""A file that was written less than this long ago may have changed again with the same time and size."""

Fingerprint = tuple[tuple[str, int, int], ...] | float
"""Two equal ones mean that nothing was written in between."""


def fingerprint(url: URL) -> Fingerprint:
    """A value that changes when the store does; for a database server it changes with every call.

    >>> from slackwater.sql.database import database_url
    >>> fingerprint(database_url("sqlite:////no-such-store.db"))
    ()
    """
    if url.get_backend_name() != "sqlite":
        return time.monotonic()
    found = []
    for suffix in ("", "-wal"):
        path = Path(f"{url.database}{suffix}")
        try:
            status = path.stat()
        except OSError:
            continue
        found.append((suffix, status.st_mtime_ns, status.st_size))
    return tuple(found)


def is_settled(found: Fingerprint, now: int) -> bool:
    """Whether another change would give another fingerprint: the clock of files ticks every few milliseconds.

    A transaction writes several times. If it is looked at in between, its end may not change the time of the
    file any more.

    >>> is_settled((("-wal", 1_000_000_000, 4096),), now=1_030_000_000)
    False
    """
    if isinstance(found, float):
        return True
    return all(now - written >= _SETTLED_NANOSECONDS for _, written, _ in found)


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
        self._url = url
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
        known: Fingerprint | None = ()
        noticed = time.monotonic()
        while True:
            if self._listeners:
                found = await asyncio.to_thread(fingerprint, self._url)
                is_due = time.monotonic() - noticed >= _REFRESH_SECONDS
                if found != known or is_due:
                    problem = await asyncio.to_thread(self._find_problem)
                    known = found if is_settled(found, time.time_ns()) else None
                    noticed = time.monotonic()
                    async with self._changed:
                        self.problem = problem
                        self.changes += 1
                        self._changed.notify_all()
            await asyncio.sleep(self._poll_seconds)
