"""Changes of a store are noticed, also those that do not change the time and size of its files."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from slackwater.sql.database import database_url
from slackwater.ui.change_feed import ChangeFeed

NANOSECONDS = 1_000_000_000


async def changes(path: Path, seconds: float) -> int:
    """How many changes of a file are noticed in some seconds."""
    feed = ChangeFeed(database_url(f"sqlite:///{path}"), lambda: None, poll_seconds=0.005)
    async with feed.polling():
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0:
            await feed.wait(feed.changes, left)
    return feed.changes


def test_a_file_that_was_just_written_is_looked_at_again(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"begun")
    written = time.time_ns() + NANOSECONDS  # however slow this machine is
    os.utime(path, ns=(written, written))
    assert asyncio.run(changes(path, 0.3)) > 1


def test_a_file_that_is_at_rest_is_noticed_once(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"done")
    written = time.time_ns() - NANOSECONDS
    os.utime(path, ns=(written, written))
    assert asyncio.run(changes(path, 0.3)) == 1
