"""Watermarks, the control messages IDLE and DONE, and buffer headers."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, Literal, NamedTuple, TypeGuard

from slackwater.errors import InvalidArgument
from slackwater.time import check_int64

DEFAULT_KEY: Final = "default"
"""The watermark key of a stream with a single event time."""

Origin = str | int
"""The name of what emits buffers: a source partition, a device, a segment, a stateful operator."""

Watermarks = Mapping[str, int]
"""Watermarks by key."""

NO_WATERMARKS: Final[Watermarks] = {}
"""Shared by all buffers without a watermark. A plain dictionary, because headers are pickled."""


def check_origin(origin: object, name: str = "origin") -> Origin:
    """Validate the name of an origin: a string or a 64-bit integer, the types that the saved form stores.

    >>> check_origin("sensor-7"), check_origin(7)
    ('sensor-7', 7)
    >>> check_origin(("sensor", 7))
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: origin = ('sensor', 7): is neither a string nor an integer; \
write "sensor/7"
    """
    if is_text(origin):
        return origin
    try:
        return check_int64(origin, name)
    except InvalidArgument:
        reason = "is neither a string nor an integer"
        raise InvalidArgument(name, origin, reason, fix='write "sensor/7"') from None


def is_text(value: object) -> TypeGuard[str]:
    """Return whether ``value`` is a string that can be encoded as UTF-8; lone surrogates cannot.

    >>> is_text("order_time"), is_text(chr(0xD800)), is_text(7)
    (True, False, False)
    """
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


class Watermark(NamedTuple):
    """The assertion that no element with a timestamp **below** ``value`` will follow.

    An element exactly at the watermark is on time. Watermarks of different keys are independent.
    A named tuple, because millions are created: it costs a third of a frozen dataclass.

    Args:
        value: Microseconds since the epoch.
        key: The watermark key: one for each event-time column.

    >>> import slackwater as sw
    >>> sw.Watermark(10)
    Watermark(value=10, key='default')
    """

    value: int
    key: str = DEFAULT_KEY


class Control(Enum):
    """A control message of an input, in addition to data and watermarks."""

    IDLE = "idle"
    DONE = "done"

    def __repr__(self) -> str:
        return self.name


IDLE: Final = Control.IDLE
"""Excludes an input from coalescing until it sends something again."""
DONE: Final = Control.DONE
"""Ends an input; nothing may follow."""

Emission = Watermark | Literal[Control.IDLE]
"""An output of a coalescer, generator or tracker. In one step, watermarks come before IDLE (C10)."""


class BufferHeader(NamedTuple):
    """The header of a buffer, the unit in which data moves.

    Args:
        origin: What emitted the buffer.
        sequence: 1, 2, 3, … per origin without gaps.
        chunk: 1 to n within a sequence.
        last_chunk: Whether this is chunk n.
        watermarks: Watermarks by key; empty if the buffer carries none.

    >>> import slackwater as sw
    >>> sw.BufferHeader("sensor-7", sequence=1, chunk=1, last_chunk=True, watermarks={"default": 10}).sequence
    1
    """

    origin: Origin
    sequence: int
    chunk: int = 1
    last_chunk: bool = True
    watermarks: Watermarks = NO_WATERMARKS
