"""Lines of standard input as they arrive, and the time up to which all of them are known."""

from __future__ import annotations

import io
import os
import select
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

_CHUNK_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class LineBatch:
    """Lines that were read together."""

    lines: list[bytes]
    complete_at: int | None
    """A time at which the sender had sent nothing but what was read by now; None if that is not known."""


def live_lines(
    source: BinaryIO, clock: Callable[[], int], *, maximum: int, wait: Callable[[], float | None]
) -> Iterator[LineBatch]:
    r"""Read lines as they arrive: at most ``maximum`` at a time, and fewer if no more are there.

    Args:
        source: A pipe, a terminal, a file, or a stream in memory.
        clock: Returns the current time in microseconds.
        maximum: Most lines of a batch.
        wait: Returns the seconds to wait for lines before a batch without lines; None for no limit.

    Yields:
        Batches of lines; the last one is complete.

    >>> batches = live_lines(io.BytesIO(b"a\nb\nc"), lambda: 7, maximum=2, wait=lambda: None)
    >>> [(batch.lines, batch.complete_at) for batch in batches]
    [([b'a\n', b'b\n'], None), ([b'c'], 7)]
    """
    descriptor = _descriptor(source)
    waiting: list[bytes] = []
    rest, has_ended = b"", False
    while not has_ended:
        if not waiting:
            _is_readable(descriptor, wait())
        # read the clock first: what the sender sends later has a later time
        at = clock()
        while len(waiting) < maximum and not has_ended and _is_readable(descriptor, 0):
            chunk = source.read(_CHUNK_BYTES) if descriptor is None else os.read(descriptor, _CHUNK_BYTES)
            has_ended = not chunk
            *lines, rest = (rest + chunk).split(b"\n")
            waiting += [line + b"\n" for line in lines]
        if has_ended and rest:
            waiting.append(rest)
        is_complete = has_ended or not (rest or _is_readable(descriptor, 0))
        for start in range(0, max(1, len(waiting)), maximum):
            some = waiting[start : start + maximum]
            is_last = start + maximum >= len(waiting)
            yield LineBatch(some, at if is_complete and is_last else None)
        waiting = []


def _descriptor(source: BinaryIO) -> int | None:
    try:
        return source.fileno()
    except (AttributeError, io.UnsupportedOperation):
        return None


def _is_readable(descriptor: int | None, seconds: float | None) -> bool:
    """Wait for input; a stream in memory is always readable."""
    if descriptor is None:
        return True
    return bool(select.select([descriptor], [], [], seconds)[0])
