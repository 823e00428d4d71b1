"""How long each partition has been silent: which of them are idle, and which may be forgotten (rule G3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import Final

_SPARE: Final = 16

_IsActive = Callable[[int], bool]
"""Whether a slot is active."""


class PartitionSilence:
    """When each slot last sent something.

    The deadlines of active slots are in a heap. A slot that sends again keeps its entry, which is then too
    early and is repaired when it reaches the top: an event costs no heap operation.

    Args:
        idle_after: A slot that has been silent for this many microseconds is idle; None: never.

    >>> silence = PartitionSilence(idle_after=10)
    >>> silence.hear(0, 5, was_idle=False, is_active=lambda slot: True)
    True
    >>> list(silence.expired(14)), list(silence.expired(15))
    ([], [0])
    """

    __slots__ = ("_deadlines", "_idle_after", "last_heard")

    def __init__(self, idle_after: int | None) -> None:
        self._idle_after = idle_after
        self._deadlines: list[tuple[int, int]] = []
        self.last_heard: dict[int, int] = {}
        """When each slot last sent something."""

    def hear(self, slot: int, now: int, *, was_idle: bool, is_active: _IsActive) -> bool:
        """Record that a slot sent something; return whether it is new or was idle."""
        before = self.last_heard.get(slot)
        self.last_heard[slot] = now
        joins = before is None or was_idle
        if self._idle_after is not None and (joins or before is None or now < before):
            heappush(self._deadlines, (now, slot))
            if len(self._deadlines) > 2 * len(self.last_heard) + _SPARE:
                self.set_deadlines(is_active)
        return joins

    def expired(self, now: int) -> Iterator[int]:
        """Yield the slots that have been silent for ``idle_after``, each once until it sends again."""
        if self._idle_after is None:
            return
        while self._deadlines and self._deadlines[0][0] + self._idle_after <= now:
            heard, slot = heappop(self._deadlines)
            last = self.last_heard.get(slot)
            if last is None:
                continue  # the slot was dropped
            if last > heard:
                heappush(self._deadlines, (last, slot))
            else:
                yield slot

    def drop(self, slot: int) -> None:
        """Forget a slot."""
        del self.last_heard[slot]

    def shift(self, by: int, is_active: _IsActive) -> None:
        """Move all times by so many microseconds."""
        self.restore(((slot, heard + by) for slot, heard in self.last_heard.items()), is_active)

    def renumber(self, new: Mapping[int, int], is_active: _IsActive) -> None:
        """Give the slots other numbers."""
        self.restore(((new[slot], heard) for slot, heard in self.last_heard.items()), is_active)

    def restore(self, heard: Iterable[tuple[int, int]], is_active: _IsActive) -> None:
        """Replace all slots and the times at which they last sent something."""
        self.last_heard = dict(heard)
        self.set_deadlines(is_active)

    def set_deadlines(self, is_active: _IsActive) -> None:
        """Build the heap again, without outdated entries."""
        self._deadlines = [(heard, slot) for slot, heard in self.last_heard.items() if is_active(slot)]
        heapify(self._deadlines)
