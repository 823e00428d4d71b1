"""What has to be on the disk before others are told of it."""

from __future__ import annotations

import os
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
