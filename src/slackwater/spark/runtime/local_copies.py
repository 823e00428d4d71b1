"""Copies of large blobs in files of the executor, which are read faster than Spark's state store.

Spark takes 14 ms to pass a megabyte of state to Python, because it pickles binary values byte by byte. Most
blobs that a batch reads were written by a Python worker of the same executor in an earlier batch. So each
large blob is also written to a file in the local folder of the Spark application, and read from there if the
file still exists. Spark's state store gets every blob as well: a copy that is missing only costs time.

Every copy has a new random token, which is the name of its file and never names another content. The small
state of a bucket contains the tokens, and Spark commits it together with the blobs. A repeated batch, another
attempt of a task, another executor and an older checkpoint therefore find the content that belongs to their
small state, or no file.

Spark deletes the folder when the application ends, unless the executor is killed or its files are kept for an
external shuffle service. Each process therefore holds a shared lock on the folder. Workers of other executors
on the machine delete a folder that no process has held or changed for an hour.
"""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import time
import zlib
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final
from uuid import uuid4
from weakref import finalize

from slackwater.errors import InvalidArgument
from slackwater.progress.saved_form import Saved

_VARIABLE: Final = "SPARK_LOCAL_DIRS"
"""The folders of the application, separated by commas. Spark sets this variable for its Python workers."""
_FOLDER: Final = "slackwater-blobs"
_BLOCK_FOLDERS: Final = "blockmgr-*"
"""The local folders of Spark's executors, each of which may contain a folder of copies."""
_ABANDONED: Final = 3600
"""After how many seconds a folder that no process holds is deleted. Spark ends workers that are idle for a
minute, and later starts others for the same executor."""
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LIMIT: Final = "SLACKWATER_STATE_COPIES"
"""The environment variable with the size of all copies of an executor, in MiB; 0: no copies."""
_CAPACITY: Final = 1 << 30
"""The size in bytes if it is not set. Each process may add `_INTERVAL` before it checks again."""
_MOST_DIGITS: Final = 12
"""More than any disk has; `int` raises an error of its own for more than 4,300 digits."""
_INTERVAL: Final = 1 << 26
"""After how many bytes a process checks the size of the folder and the space on the disk."""
_MIN_FREE: Final = 2 << 30
"""With less free space, copies are deleted and none are written, because Spark needs the disk itself."""


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

    def __init__(self, folder: Path, capacity: int = _CAPACITY) -> None:
        self._folder = folder
        self._capacity = capacity
        self._unchecked = _INTERVAL
        self._has_space = False
        self._held: int | None = None

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
        """Delete random copies until the others fit; return whether the disk has space for more.

        Each batch reads the copies of all buckets. If these exceed the capacity, each of the oldest would be
        deleted before it is read again.
        """
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._hold()
        delete_abandoned(self._folder.parent)
        files = self._files()
        excess = sum(size for size, _ in files) - self._capacity
        excess = max(excess, _MIN_FREE - self._free())
        random.shuffle(files)
        for size, path in files:
            if excess <= 0:
                break
            path.unlink(missing_ok=True)
            excess -= size
        return self._free() >= _MIN_FREE

    def _hold(self) -> None:
        """Lock the folder until this process ends, so that `delete_abandoned` leaves it alone.

        Raises:
            OSError: The folder is about to be deleted, or was deleted before it was locked.
        """
        if self._held is not None and self._is_folder(self._held):
            return
        descriptor = os.open(self._folder, _FOLDER_FLAGS)
        finalize(self, os.close, descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if not self._is_folder(descriptor):
            raise FileNotFoundError(f"{self._folder} was deleted")
        self._held = descriptor

    def _is_folder(self, descriptor: int) -> bool:
        """Whether a descriptor refers to the folder; another folder may have the same path now."""
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(descriptor), self._folder.stat())
        return False

    def _files(self) -> list[tuple[int, Path]]:
        """The copies in the folder, with their sizes."""
        files: list[tuple[int, Path]] = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # another process has deleted it
                    files.append((entry.stat().st_size, Path(entry.path)))
        return files

    def _free(self) -> int:
        return shutil.disk_usage(self._folder).free


def delete_abandoned(folder: Path) -> None:
    """Delete the copies of executors that have ended, next to the local folder of an executor.

    Args:
        folder: The local folder of this executor, whose own copies stay.
    """
    for other in folder.parent.glob(f"{_BLOCK_FOLDERS}/{_FOLDER}"):
        if other.parent != folder:
            with suppress(OSError):  # a process holds it, another one deletes it, or it is another user's
                _delete_if_abandoned(other)


def _delete_if_abandoned(folder: Path) -> None:
    # Others may write in the parent, as in /tmp. Only files in the folder that was checked are deleted.
    descriptor = os.open(folder, _FOLDER_FLAGS)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        status = os.fstat(descriptor)
        if status.st_uid == os.getuid() and time.time() - status.st_mtime > _ABANDONED:
            with os.scandir(descriptor) as entries:
                for entry in list(entries):
                    os.unlink(entry.name, dir_fd=descriptor)
            folder.rmdir()
    finally:
        os.close(descriptor)


def worker_copies() -> LocalCopies | None:
    """The copies of the executor that started this Python worker.

    Returns:
        The copies; None if they are turned off, or if Spark gave the worker no local folder.

    Raises:
        InvalidArgument: The environment variable with their size is not a whole number.
    """
    first, capacity = os.environ.get(_VARIABLE, "").split(",")[0], _capacity(os.environ.get(_LIMIT))
    return _copies_below(first, capacity) if first and capacity else None


def _capacity(text: str | None) -> int:
    """The size in bytes that the environment variable gives.

    >>> _capacity(None), _capacity("1"), _capacity("0")
    (1073741824, 1048576, 0)
    >>> _capacity("1g")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: SLACKWATER_STATE_COPIES = '1g': must be a whole number of MiB; set \
1024, for example, or 0 to disable copies
    """
    if text is None:
        return _CAPACITY
    if not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise InvalidArgument(
            _LIMIT, text, "must be a whole number of MiB", fix="set 1024, for example, or 0 to disable copies"
        )
    return int(text) << 20


@cache
def _copies_below(folder: str, capacity: int) -> LocalCopies:
    """One object for each folder: it counts the bytes of all tasks that this process runs."""
    return LocalCopies(Path(folder, _FOLDER), capacity)
