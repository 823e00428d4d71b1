"""Copies of large blobs in files of the executor, which are read faster than Spark's state store.

Spark takes 14 ms to pass a megabyte of state to Python, because it pickles binary values byte by byte. Most
blobs that a batch reads were written by a Python worker of the same executor in an earlier batch. So each
large blob is also written to a file in the local folder of the Spark application, and read from there if the
file still exists. Spark's state store gets every blob as well: a copy that is missing only costs time.

Every copy has a new random token, which is the name of its file and never names another content. The small
state of a bucket contains the tokens, and Spark commits it together with the blobs. A repeated batch, another
attempt of a task, another executor and an older checkpoint therefore find the content that belongs to their
small state, or no file. Spark deletes the folder when the application ends.
"""

from __future__ import annotations

import os
import shutil
import zlib
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final
from uuid import uuid4

from slackwater.progress.saved_form import Saved

_VARIABLE: Final = "SPARK_LOCAL_DIRS"
"""The folders of the application, separated by commas. Spark sets this variable for its Python workers."""
_FOLDER: Final = "slackwater-blobs"
_CAPACITY: Final = 1 << 30
"""The size of all copies of an executor. Each of its processes may add `_INTERVAL` before it checks again."""
_INTERVAL: Final = 1 << 26
"""After how many bytes a process checks the size of the folder and the space on the disk."""
_MIN_FREE: Final = 2 << 30
"""The free space below which no copies are written, because Spark needs the disk itself."""


class LocalCopy(Saved):
    """What the small state of a bucket records about the copy of a blob."""

    token: bytes
    size: int
    crc: int


class LocalCopies:
    """The copies in one folder, which the processes of an executor share.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     copies = LocalCopies(Path(folder, "copies"))
    ...     copy = copies.write(b"content")
    ...     copies.read(copy)
    ...     copies.delete(copy)
    ...     copies.read(copy) is None
    b'content'
    True
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._unchecked = _INTERVAL
        self._has_space = False

    def write(self, blob: bytes) -> LocalCopy | None:
        """Write a copy; None if the disk has too little space or the file cannot be written."""
        copy = LocalCopy(uuid4().bytes, len(blob), zlib.crc32(blob))
        try:
            if not self._accepts(len(blob)):
                return None
            with self._path(copy).open("xb") as file:
                file.write(blob)
        except OSError:
            self.delete(copy)
            return None
        return copy

    def read(self, copy: LocalCopy) -> bytes | None:
        """The blob; None if its file is missing, truncated or damaged."""
        try:
            with self._path(copy).open("rb") as file:
                blob = file.read(copy.size + 1)
        except OSError:
            return None
        return blob if len(blob) == copy.size and zlib.crc32(blob) == copy.crc else None

    def delete(self, copy: LocalCopy) -> None:
        """Delete a copy if it exists."""
        with suppress(OSError):
            self._path(copy).unlink()

    def _path(self, copy: LocalCopy) -> Path:
        return self._folder / copy.token.hex()

    def _accepts(self, size: int) -> bool:
        """Whether there is space for a further blob, as of the last check."""
        if self._unchecked >= _INTERVAL:
            self._unchecked, self._has_space = 0, False
            self._has_space = self._make_space()
        self._unchecked += size
        return self._has_space

    def _make_space(self) -> bool:
        """Delete the oldest copies until the others fit; return whether the disk has space for more."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        files: list[tuple[int, int, str]] = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # another process has deleted it
                    found = entry.stat()
                    files.append((found.st_mtime_ns, found.st_size, entry.path))
        excess = sum(size for _, size, _ in files) - _CAPACITY
        for _, size, path in sorted(files):
            if excess <= 0:
                break
            Path(path).unlink(missing_ok=True)
            excess -= size
        return shutil.disk_usage(self._folder).free >= _MIN_FREE


def worker_copies() -> LocalCopies | None:
    """The copies of the executor that started this Python worker; None if Spark gave it no local folder."""
    first = os.environ.get(_VARIABLE, "").split(",")[0]
    return _copies_below(first) if first else None


@cache
def _copies_below(folder: str) -> LocalCopies:
    """One object for each folder: it counts the bytes of all tasks that this process runs."""
    return LocalCopies(Path(folder, _FOLDER))
