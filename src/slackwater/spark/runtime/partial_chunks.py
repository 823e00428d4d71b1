"""Chunks that a source delivers in parts, over several micro-batches.

A header may announce the number of rows of its chunk. The chunk is then complete when so many rows have
arrived: its rows are processed as they arrive, and its watermark takes effect with the last of them. Numbered
rows are recognized when they arrive again; rows without a number can only be counted, so too many of them are
an error and never a guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from slackwater.errors import SequenceConflict
from slackwater.progress.saved_form import Saved
from slackwater.progress.values import Origin
from slackwater.spark.wire.buffers import Number, OriginChunk, Run

_FIX: Final = "number the rows with headers(row=…), so that repeated rows are recognized"


class PartialChunk(Saved):
    """The rows of a chunk that have arrived."""

    origin: Origin
    sequence: int
    chunk: int
    last: bool
    announced: int | None
    """The number of rows of the whole chunk; None if the header does not contain it."""
    unnumbered: int
    numbered: list[Run]
    watermark: int | None

    @property
    def number(self) -> Number:
        """The identity of the chunk."""
        return self.origin, self.sequence, self.chunk, self.last

    @property
    def arrived(self) -> int:
        """How many rows have arrived."""
        return self.unnumbered + sum(end - start + 1 for start, end in self.numbered)

    @property
    def is_complete(self) -> bool:
        """Whether all announced rows have arrived."""
        return self.announced is None or self.arrived == self.announced

    def add(self, part: OriginChunk) -> None:
        """Add the rows that one task saw.

        Raises:
            SequenceConflict: The part announces another number of rows than an earlier one.

        >>> chunk = PartialChunk.of(OriginChunk("a", 1, 1, True, None, 0, 5, 0, ((1, 2),)))
        >>> chunk.add(OriginChunk("a", 1, 1, True, 9, 0, 5, 0, ((2, 3), (5, 5))))
        >>> chunk.numbered, chunk.arrived, chunk.watermark
        ([(1, 3), (5, 5)], 4, 9)
        """
        if self.announced is None:
            self.announced = part.announced
        elif part.announced is not None and part.announced != self.announced:
            reason = f"announces {part.announced} rows, but {self.announced} were announced before"
            raise SequenceConflict(self.origin, self.sequence, self.chunk, reason)
        self.unnumbered += part.unnumbered
        self.numbered = _united([*self.numbered, *part.numbered])
        marks = [mark for mark in (self.watermark, part.watermark) if mark is not None]
        self.watermark = max(marks, default=None)

    def check(self) -> None:
        """Raise SequenceConflict if more rows have arrived than were announced."""
        if self.announced is None or 0 <= self.arrived <= self.announced:
            return
        reason = f"{self.arrived} rows have arrived, but its header announces {self.announced}"
        fix = f": some arrived twice; {_FIX}" if self.unnumbered else "; correct the number in the header"
        raise SequenceConflict(self.origin, self.sequence, self.chunk, reason + fix)

    @classmethod
    def of(cls, part: OriginChunk) -> PartialChunk:
        """A chunk of which one part has arrived."""
        unnumbered, numbered = part.unnumbered, list(part.numbered)
        return cls(*part.number, part.announced, unnumbered, numbered, part.watermark)


def combined(known: PartialChunk | None, parts: Sequence[OriginChunk]) -> PartialChunk:
    """Combine the parts of a chunk, of which several tasks may have rows, with what arrived before.

    Raises:
        SequenceConflict: The parts contradict each other, or have more rows than announced.

    >>> parts = [OriginChunk("a", 1, 1, True, None, 0, 5, rows) for rows in (2, 3)]
    >>> combined(None, parts).is_complete
    True
    """
    chunk = PartialChunk.of(parts[0]) if known is None else known
    for part in parts[1:] if known is None else parts:
        chunk.add(part)
    chunk.check()
    return chunk


def _united(runs: list[Run]) -> list[Run]:
    """Inclusive runs as ascending runs that neither overlap nor touch."""
    united: list[Run] = []
    for start, end in sorted(runs):
        if united and start <= united[-1][1] + 1:
            united[-1] = united[-1][0], max(united[-1][1], end)
        else:
            united.append((start, end))
    return united
