"""What processes that share a disk owe each other."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def synchronise(path: Path) -> None:
    """Wait until a file, or the entries of a folder, would survive a crash of the machine.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     synchronise(Path(folder))
    """
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Wait until no other process is here, and keep others out; the end of the process ends it, too.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, alone(Path(folder, "lock")):
    ...     Path(folder, "lock").exists()
    True
    """
    opened = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)
