"""What travels: watermarks, the two words an input can say, and the header of a buffer."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

DEFAULT_KEY: Final = "default"
"""The watermark key of a stream with a single event time."""

Origin = str | int
"""Whoever emits buffers: a source partition, a device, a segment, a stateful operator."""

NO_WATERMARKS: Final[Mapping[str, int]] = MappingProxyType({})


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
