"""What Spark's JVM and its Python workers print to standard error, without lines that mean nothing to users.

Spark's worker for the first batch of a stateful query prints its steps. A worker whose reader has finished
early, as after ``show()`` or at the end of the program, prints the traceback of a broken pipe. Both look like
errors. All other lines, also other tracebacks, pass unchanged.
"""

from __future__ import annotations

import os
import re
import threading
from contextlib import suppress
from typing import Final

_CHATTER: Final = (
    b"Starting Streaming TransformWithStateInPandas Python worker.",
    b"Streaming TransformWithStateInPandas Python worker ",
)
"""How lines begin that the worker for the first batch of a query prints; each has an empty line after it."""
_TRACEBACK: Final = b"Traceback (most recent call last):"
_FLUSH: Final = b"PySpark daemon failed to flush the output to the worker process:"
_STARTS: Final = (*_CHATTER, _TRACEBACK, _FLUSH)
_GONE: Final = (b"BrokenPipeError", b"ConnectionResetError")
_DAEMON: Final = b"pyspark/daemon.py"
_ENDS: Final = re.compile(rb"(?<=[\r\n])")
"""After the end of a line: a progress bar returns to the beginning of its line."""
_MOST_HELD: Final = 200
_CHUNK: Final = 65536
_STDERR: Final = 2


class ConsoleFilter:
    r"""Removes the lines that mean nothing from a stream of bytes.

    >>> lines = ConsoleFilter()
    >>> lines.feed(b"Starting Streaming TransformWithStateInPandas Python worker.\n\nWARN a real one\n")
    b'WARN a real one\n'
    """

    def __init__(self) -> None:
        self._rest = b""
        """The beginning of a line that may have to be removed."""
        self._inside = False
        """Whether the beginning of the current line has passed already."""
        self._held: list[bytes] = []
        """The lines of a traceback so far."""
        self._skips_empty = False
        self._skips_frames = False
        """Whether a broken pipe was just removed: workers that end together mix their lines."""

    def feed(self, data: bytes) -> bytes:
        """The part of everything so far that is known to pass, and has not been returned yet."""
        passed: list[bytes] = []
        *lines, rest = _ENDS.split(self._rest + data)
        for line in lines:
            if self._inside:
                passed.append(line)
                self._inside = False
            else:
                passed += self._passed(line)
        self._rest = rest
        if rest and (self._inside or not self._may_be_removed(rest)):
            # A progress bar has no end of line: it must not wait for one.
            passed.append(rest)
            self._rest, self._inside, self._skips_frames = b"", True, False
        return b"".join(passed)

    def end(self) -> bytes:
        """What was held back, at the end of the stream."""
        left = b"".join(self._held) + self._rest
        self._held, self._rest = [], b""
        return left

    def _may_be_removed(self, rest: bytes) -> bool:
        starts = (*_STARTS, b" ", *_GONE) if self._skips_frames else _STARTS
        return bool(self._held) or any(start.startswith(rest) or rest.startswith(start) for start in starts)

    def _passed(self, line: bytes) -> list[bytes]:
        if self._held:
            return self._traceback(line)
        if self._skips_frames and line.startswith((b" ", *_GONE)):
            return []
        self._skips_frames = False
        if self._skips_empty and line == b"\n":
            self._skips_empty = False
            return []
        self._skips_empty = line.startswith(_CHATTER)
        if self._skips_empty:
            return []
        if line.startswith((_TRACEBACK, _FLUSH)):
            self._held = [line]
            return []
        return [line]

    def _traceback(self, line: bytes) -> list[bytes]:
        held = self._held = [*self._held, line]
        is_frame = line.startswith((b" ", _TRACEBACK))
        if is_frame and len(held) < _MOST_HELD:
            return []
        self._held = []
        if line.startswith(_GONE) and any(_DAEMON in frame for frame in held):
            self._skips_frames = True
            return []
        return held


def filtered_pipe(target: int = _STDERR) -> int:
    """A file descriptor for the standard error of a process; what passes the filter goes to ``target``.

    A thread reads the other end until all writers have closed it.

    Args:
        target: The descriptor to copy to, by default our standard error. It is duplicated, so that it stays
            the same if the caller replaces it later, as the process itself would keep what it inherits.

    Returns:
        The descriptor to write to. Close it after the process has started.
    """
    reader, writer = os.pipe()
    copy = threading.Thread(target=_copy, args=(reader, os.dup(target)), name="spark-console", daemon=True)
    copy.start()
    return writer


def _copy(reader: int, target: int) -> None:
    lines = ConsoleFilter()
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        while data := pipe.read(_CHUNK):
            _write(target, lines.feed(data))
    _write(target, lines.end())
    os.close(target)


def _write(target: int, data: bytes) -> None:
    # Without a console the lines are lost. They must be read nevertheless, or the process would block.
    with suppress(OSError):
        while data:
            data = data[os.write(target, data) :]
