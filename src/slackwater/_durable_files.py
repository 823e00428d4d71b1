"""Fsync and file-lock helpers."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
