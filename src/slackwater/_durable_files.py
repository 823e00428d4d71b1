"""Helpers for files: fsync, locks, and permissions of the owner only."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def fsync_path(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk, so that they survive a crash of the machine.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     fsync_path(Path(folder))
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_private_folder(folder: Path) -> None:
    """Create a folder and those above it that are missing, on disk, for their owner only.

    Existing folders keep their permissions.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     make_private_folder(Path(folder, "a", "b"))
    ...     oct(Path(folder, "a").stat().st_mode & 0o777)
    '0o700'
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)
        fsync_path(path.parent)


def write_durably(path: Path, content: Any) -> None:
    """Write a new file for its owner only; return once it survives a crash of the machine.

    Args:
        path: The file; its folder exists.
        content: The content: anything with the buffer interface.

    Raises:
        OSError: The file cannot be written. On a full disk, the space that it took is freed at once.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_durably(Path(folder, "a"), b"content")
    ...     Path(folder, "a").read_bytes()
    b'content'
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    fsync_path(path.parent)


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file, which is created; the end of the process releases it, too.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, file_lock(Path(folder, "lock")):
    ...     Path(folder, "lock").exists()
    True
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
