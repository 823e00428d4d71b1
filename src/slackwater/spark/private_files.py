"""Files with code in the cache folder, which only their owner may change.

The JVM and the Python workers run what is in them. A file that another user could have written is therefore
not used, also if it is in a folder that only this user can change: the folder may have been open to others
when the file was created.
"""

from __future__ import annotations

import os
import stat
import uuid
from pathlib import Path
from typing import Final

_OTHERS_WRITE: Final = 0o022


def is_private(status: os.stat_result) -> bool:
    """Whether a regular file belongs to this user, and neither its group nor others may write it.

    >>> is_private(os.stat("/"))
    False
    """
    mode = status.st_mode
    return stat.S_ISREG(mode) and status.st_uid == os.getuid() and not mode & _OTHERS_WRITE


def read_private(path: Path) -> bytes:
    """The content of a file that only this user may write.

    Raises:
        PermissionError: The file belongs to another user, or its group or others may write it.
        OSError: The file does not exist, is a symbolic link, or cannot be read.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_private(Path(folder, "a"), b"content")
    ...     read_private(Path(folder, "a"))
    b'content'
    """
    # With O_NONBLOCK, the call returns if the file is a pipe.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not is_private(os.fstat(descriptor)):
            raise PermissionError(f"{path} is not a file that only its owner, this user, may write")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def write_private(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Create or replace a file in one step; its permissions never exceed the mode.

    Args:
        path: The file; its folder exists.
        content: The content.
        mode: The permissions.

    Raises:
        OSError: The file cannot be written. The old one stays as it was.
    """
    fresh = path.with_name(f"{path.name}-{uuid.uuid4().hex[:8]}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - created by os.open, which sets the permissions
            file.write(content)
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
