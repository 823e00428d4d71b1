"""Reference model of a tracker: recomputed from all buffers, then coalesced by the coalescing model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from slackwater.progress.values import BufferHeader, Emission, Origin
from tests.model.coalescing import Message, emissions


class Rejected(Exception):
    """The buffer violates S6 or arrives after DONE."""


@dataclass
class TrackerModel:
    """All accepted buffers and all steps; every result is derived from them."""

    declared: tuple[Origin, ...] | None
    seen: list[BufferHeader] = field(default_factory=list)
    steps: list[Message] = field(default_factory=list)
    numbers: dict[Origin, int] = field(default_factory=dict)
    ended: set[Origin] = field(default_factory=set)

    def __post_init__(self) -> None:
        for origin in self.declared or ():
            self.numbers[origin] = len(self.numbers)

    def chunks(self, origin: Origin, sequence: int) -> dict[int, bool]:
        """The accepted chunks of a sequence with their last flags."""
        return {
            header.chunk: header.last_chunk
            for header in self.seen
            if (header.origin, header.sequence) == (origin, sequence)
        }

    def is_complete(self, origin: Origin, sequence: int) -> bool:
        chunks = self.chunks(origin, sequence)
        lasts = [chunk for chunk, last in chunks.items() if last]
        return bool(lasts) and len(chunks) == lasts[0]

    def complete(self, origin: Origin) -> int:
        end = 0
        while self.is_complete(origin, end + 1):
            end += 1
        return end

    def local(self, origin: Origin, key: str) -> int | None:
        end = self.complete(origin)
        values = [
            header.watermarks[key]
            for header in self.seen
            if header.origin == origin and header.sequence <= end and key in header.watermarks
        ]
        return max(values, default=None)

    def observe(self, header: BufferHeader) -> bool:
        """Whether the buffer is a duplicate; raises Rejected if it is invalid."""
        origin, sequence, chunk, last, _ = header
        if sequence < 1 or chunk < 1 or (origin not in self.numbers and self.declared is not None):
            raise Rejected
        if sequence <= self.complete(origin):
            return True
        chunks = self.chunks(origin, sequence)
        if chunk in chunks:
            if chunks[chunk] != last:
                raise Rejected
            return True
        lasts = [number for number, is_last in chunks.items() if is_last]
        if (lasts and (last or chunk > lasts[0])) or (last and any(number > chunk for number in chunks)):
            raise Rejected
        if origin in self.ended:
            raise Rejected
        before = {key: self.local(origin, key) for key in _keys([*self.seen, header])}
        self.seen.append(header)
        risen = tuple(
            (key, value)
            for key in before
            if (value := self.local(origin, key)) is not None and value != before[key]
        )
        self.steps.append(Message(self._number(origin), "watermark" if risen else "event", risen))
        return False

    def idle(self, origin: Origin) -> None:
        self._say(origin, "idle")

    def done(self, origin: Origin) -> None:
        self._say(origin, "done")
        self.ended.add(origin)

    def emitted(self) -> list[set[Emission]]:
        """The expected emissions of every step so far."""
        return emissions(len(self.declared or ()), self.steps)

    def _say(self, origin: Origin, word: Literal["idle", "done"]) -> None:
        if origin in self.ended or (origin not in self.numbers and self.declared is not None):
            raise Rejected
        self.steps.append(Message(self._number(origin), word))

    def _number(self, origin: Origin) -> int:
        return self.numbers.setdefault(origin, len(self.numbers))


def _keys(headers: Sequence[BufferHeader]) -> set[str]:
    return {key for header in headers for key in header.watermarks}
