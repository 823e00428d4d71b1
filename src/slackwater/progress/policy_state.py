"""What two watermark policies remember of each partition, in addition to its watermark (rule G1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set

from slackwater.time import END_OF_TIME


class ClockAnchors:
    """For `LagThenClock`: the watermark of each slot by its events, from which the clock continues.

    >>> anchors = ClockAnchors()
    >>> anchors.raise_to(0, 20, now=100)
    >>> list(anchors.at(107))
    [(0, 27)]
    """

    __slots__ = ("_anchors",)

    def __init__(self, saved: Iterable[tuple[int, int, int]] = ()) -> None:
        self._anchors = {slot: (value, at) for slot, value, at in saved}

    @property
    def slots(self) -> Set[int]:
        """The slots that have an anchor."""
        return self._anchors.keys()

    def raise_to(self, slot: int, value: int, *, now: int) -> None:
        """Record the watermark of a slot by its events, if it is a new highest one."""
        known = self._anchors.get(slot)
        if known is None or value > known[0]:
            self._anchors[slot] = value, now

    def restart(self, slot: int, value: int, *, now: int) -> None:
        """Let the clock continue from here, whatever was known before."""
        self._anchors[slot] = value, now

    def at(self, now: int) -> Iterator[tuple[int, int]]:
        """Yield each slot with its watermark: that by its events, and the time since they arrived."""
        for slot, (value, since) in self._anchors.items():
            yield slot, min(value + max(0, now - since), END_OF_TIME)

    def drop(self, slot: int) -> None:
        """Forget a slot."""
        self._anchors.pop(slot, None)

    def shift(self, by: int) -> None:
        """Move all times by so many microseconds."""
        self._anchors = {slot: (value, at + by) for slot, (value, at) in self._anchors.items()}

    def renumber(self, new: Mapping[int, int]) -> None:
        """Give the slots other numbers."""
        self._anchors = {new[slot]: anchor for slot, anchor in self._anchors.items()}

    def save(self) -> list[tuple[int, int, int]]:
        """The anchors, for the constructor."""
        return [(slot, value, at) for slot, (value, at) in self._anchors.items()]


class PostponedEvents:
    """For `LagLikeSpark`: watermarks of slots by their events, each of which counts one tick later.

    >>> pending = PostponedEvents()
    >>> pending.postpone(0, 20)
    >>> pending.tick(), pending.tick()
    ([], [(0, 20)])
    """

    __slots__ = ("_pending",)

    def __init__(self, saved: Iterable[tuple[int, int, bool]] = ()) -> None:
        self._pending = {slot: (value, is_due) for slot, value, is_due in saved}

    @property
    def slots(self) -> Set[int]:
        """The slots with events that do not count yet."""
        return self._pending.keys()

    def postpone(self, slot: int, value: int) -> int | None:
        """Add the watermark of an event; return the one of the batch before, if there is one to count."""
        known, is_due = self._pending.get(slot, (value, False))
        self._pending[slot] = value if is_due else max(known, value), False
        return known if is_due else None

    def tick(self) -> list[tuple[int, int]]:
        """Return the slots and watermarks of the batch before this one; those of this batch are due next."""
        due = [(slot, value) for slot, (value, is_due) in self._pending.items() if is_due]
        self._pending = {slot: (value, True) for slot, (value, is_due) in self._pending.items() if not is_due}
        return due

    def take_all(self) -> list[tuple[int, int]]:
        """Remove and return all slots and their watermarks."""
        found = [(slot, value) for slot, (value, _) in self._pending.items()]
        self._pending = {}
        return found

    def drop(self, slot: int) -> None:
        """Forget a slot."""
        self._pending.pop(slot, None)

    def renumber(self, new: Mapping[int, int]) -> None:
        """Give the slots other numbers."""
        self._pending = {new[slot]: pending for slot, pending in self._pending.items()}

    def save(self) -> list[tuple[int, int, bool]]:
        """The events, for the constructor."""
        return [(slot, value, is_due) for slot, (value, is_due) in self._pending.items()]
