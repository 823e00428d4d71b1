"""What travels: watermarks, the two words an input can say, and the header of a buffer."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, Literal, NamedTuple, TypeGuard

from slackwater.errors import InvalidArgument
from slackwater.time import check_int64

DEFAULT_KEY: Final = "default"
"""The watermark key of a stream with a single event time."""

Origin = str | int
"""Whoever emits buffers: a source partition, a device, a segment, a stateful operator."""

NO_WATERMARKS: Final[Mapping[str, int]] = {}
"""Shared by all buffers without a watermark. A plain dictionary, because headers are pickled."""


def check_origin(origin: object, name: str = "origin") -> Origin:
    """``origin``, if it can be the name of one: a text or a 64-bit number, as the saved form keeps it.

    >>> check_origin("sensor-7"), check_origin(7)
    ('sensor-7', 7)
    >>> check_origin(("sensor", 7))
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: origin = ('sensor', 7): is neither a text nor a whole number; \
write "sensor/7"
    """
    if is_text(origin):
        return origin
    try:
        return check_int64(origin, name)
    except InvalidArgument:
        reason = "is neither a text nor a whole number"
        raise InvalidArgument(name, origin, reason, fix='write "sensor/7"') from None


def is_text(value: object) -> TypeGuard[str]:
    """Whether ``value`` is text that can be written down; half of a surrogate pair cannot.

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
    """No element with a timestamp **below** ``value`` will follow; one exactly at it is on time.

    Watermarks of different keys (one per event-time column) never influence each other. A named
    tuple, because millions of them are made: it costs a third of a frozen dataclass.

    >>> Watermark(10)
    Watermark(value=10, key='default')
    """

    value: int
    key: str = DEFAULT_KEY


class Control(Enum):
    """What an input can say besides data and watermarks."""

    IDLE = "idle"
    DONE = "done"

    def __repr__(self) -> str:
        return self.name


IDLE: Final = Control.IDLE
"""Excludes an input from coalescing until it speaks again."""
DONE: Final = Control.DONE
"""The input has ended; nothing may follow."""

Emission = Watermark | Literal[Control.IDLE]
"""What a coalescer, generator or tracker says in answer to a step: watermarks first, then IDLE."""


class BufferHeader(NamedTuple):
    """The header of a buffer, the unit in which data moves.

    Sequences run 1, 2, 3, … per origin without gaps, chunks 1..n inside a sequence; ``last_chunk``
    marks the highest. A buffer may carry a watermark of several keys, or none.

    >>> BufferHeader("sensor-7", sequence=1, chunk=1, last_chunk=True, watermarks={"default": 10}).sequence
    1
    """

    origin: Origin
    sequence: int
    chunk: int = 1
    last_chunk: bool = True
    watermarks: Mapping[str, int] = NO_WATERMARKS
