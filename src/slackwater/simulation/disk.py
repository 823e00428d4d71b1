"""A disk that forgets what was not flushed: real files, and a record of what would survive a power failure.

The content of a file is durable after `fsync` of the file, and its name after `fsync` of its folder. At a
power failure everything else may be lost, cut off, or kept, as the seed decides.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any


class Disk:
    """The files below a folder.

    Args:
        root: The folder; it exists and is durable.
        point: Called before every operation with a label; it may interrupt the caller.
        is_alive: Whether a process with this id runs.
        random: Decides what a failure leaves.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     disk = Disk(Path(folder), point=lambda label: None, is_alive=lambda pid: True, random=Random(1))
    ...     descriptor = disk.open(f"{folder}/a", os.O_CREAT | os.O_WRONLY, 0o600)
    ...     written = disk.write(descriptor, b"12345")
    ...     disk.fsync(descriptor)
    ...     disk.close(descriptor)
    ...     disk.is_durable(Path(folder, "a"))
    False
    """

    def __init__(
        self, root: Path, *, point: Callable[[str], None], is_alive: Callable[[int], bool], random: Random
    ) -> None:
        self.root = str(root)
        self.is_full = False
        self.is_alive = is_alive
        self._point = point
        self._random = random
        self._paths: dict[int, str] = {}
        self._synced: dict[int, int] = {}
        """Sizes of the durable content, by inode: a renamed file stays durable."""
        self._entries: dict[str, dict[str, str | None]] = {}
        """The durable names of each folder; a symbolic link with its target."""

    # ---- operations

    def open(self, path: str, flags: int, mode: int) -> int:
        """Open a file or a folder."""
        if self._is_inside(path):
            self._point(f"open {self._label(path)}")
        descriptor = os.open(path, flags, mode)
        self._paths[descriptor] = path
        return descriptor

    def write(self, descriptor: int, content: Any) -> int:
        """Write to a file; a full disk takes a part of the content."""
        path = self._paths[descriptor]
        inside = self._is_inside(path)
        if inside:
            self._point(f"write {self._label(path)}")
        self._synced.pop(os.fstat(descriptor).st_ino, None)
        if self.is_full and inside:
            os.write(descriptor, memoryview(content)[: self._random.randrange(len(content) + 1)])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return os.write(descriptor, content)

    def fsync(self, descriptor: int) -> None:
        """Make the content of a file, or the names in a folder, durable."""
        path = self._paths[descriptor]
        if self._is_inside(path):
            self._point(f"fsync {self._label(path)}")
        if os.path.isdir(path):  # noqa: PTH112 - a text, on a hot path
            self._entries[path] = _names(path)
        else:
            found = os.fstat(descriptor)
            self._synced[found.st_ino] = found.st_size

    def close(self, descriptor: int) -> None:
        """Close a file; a killed process may do that, too."""
        self._paths.pop(descriptor, None)
        os.close(descriptor)

    # ---- failures

    def is_durable(self, path: Path) -> bool:
        """Whether a file would survive a power failure, with its content and under its name."""
        text = str(path)
        if not path.exists():
            return False
        found = path.stat()
        if self._synced.get(found.st_ino) != found.st_size:
            return False
        while text != self.root:
            parent, _, name = text.rpartition("/")
            if name not in self._entries.get(parent, ()):
                return False
            text = parent
        return True

    def fail(self) -> int:
        """Lose power: remove or cut off what is not durable; returns how many files and folders suffered."""
        return self._lose(self.root)

    def _lose(self, folder: str) -> int:
        lost = 0
        durable = self._entries.get(folder, {})
        for name in sorted(_names(folder)):
            path = f"{folder}/{name}"
            is_folder = os.path.isdir(path) and not os.path.islink(path)  # noqa: PTH112, PTH114 - a text
            if name not in durable and self._random.random() < 0.7:
                lost += 1
                if is_folder:
                    shutil.rmtree(path)
                else:
                    os.unlink(path)  # noqa: PTH108 - a text
            elif is_folder:
                lost += self._lose(path)
            elif (target := durable.get(name)) is not None and os.readlink(path) != target:  # noqa: PTH115 - a text
                lost += 1
                os.unlink(path)  # noqa: PTH108 - a text
                os.symlink(target, path)  # noqa: PTH211 - a text
            elif not os.path.islink(path):  # noqa: PTH114 - a text
                lost += self._cut_off(path)
        # what is left was read back from the disk
        self._entries[folder] = _names(folder)
        return lost

    def _cut_off(self, path: str) -> int:
        """Lose the end of a file that was not flushed; what is left is durable."""
        found = os.stat(path)  # noqa: PTH116 - a text
        if self._synced.get(found.st_ino) == found.st_size:
            return 0
        self._synced[found.st_ino] = self._random.randrange(found.st_size + 1)
        os.truncate(path, self._synced[found.st_ino])
        return 1

    def _is_inside(self, path: str) -> bool:
        return path.startswith(self.root)

    def _label(self, path: str) -> str:
        return path[len(self.root) + 1 :]


def _names(folder: str) -> dict[str, str | None]:
    with os.scandir(folder) as entries:
        return {
            entry.name: os.readlink(entry.path) if entry.is_symlink() else None  # noqa: PTH115 - a text
            for entry in entries
        }
