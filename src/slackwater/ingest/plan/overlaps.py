"""Partitions that overlap: a plan whose partitions start elsewhere than those that earlier runs wrote.

Without a time column a target identifies the rows of a unit by the start of their partition. If ``from`` or
the kind of partition changes, the new partitions do not replace the old ones, and their rows would be in the
target twice.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple

from slackwater.ingest.plan.history import History
from slackwater.ingest.units import Unit
from slackwater.time import Range, format_instant


class Overlap(NamedTuple):
    """A planned partition of a unit, and a recorded one with another start that it overlaps.

    >>> from slackwater.ingest.units import WHOLE
    >>> print(Overlap(WHOLE, Range(0, 10_000_000), Range(5_000_000, 15_000_000)))
    the partition 1970-01-01T00:00:05Z to 1970-01-01T00:00:15Z overlaps 1970-01-01T00:00:00Z to \
1970-01-01T00:00:10Z, which an earlier run wrote as another partition
    """

    unit: Unit
    recorded: Range
    planned: Range

    def __str__(self) -> str:
        unit = f" of {self.unit}" if self.unit.values else ""
        return (
            f"the partition {_text(self.planned)}{unit} overlaps {_text(self.recorded)}, which an earlier "
            f"run wrote as another partition"
        )


def _text(range_: Range) -> str:
    return f"{format_instant(range_.start)} to {format_instant(range_.end)}"


def overlaps_of(planned: Iterable[tuple[int, int, Unit]], history: History) -> tuple[Overlap, ...]:
    """The planned partitions ``(start, end, unit)`` that overlap a recorded one with another start.

    >>> from slackwater.ingest.units import WHOLE
    >>> history = History([(0, WHOLE.key, 10), (20, WHOLE.key, 30)])
    >>> planned = [(0, 10, WHOLE), (10, 20, WHOLE), (15, 25, WHOLE)]
    >>> [overlap.recorded for overlap in overlaps_of(planned, history)]
    [Range(start=20, end=30)]
    """
    recorded: dict[str, list[tuple[int, int]]] = {}
    for start, key, high in history.rows():
        recorded.setdefault(key, []).append((start, high))
    known = {key: _Recorded(sorted(ranges)) for key, ranges in recorded.items()}
    return tuple(
        Overlap(unit, Range(*found), Range(start, end))
        for start, end, unit in planned
        if unit.key in known and (found := known[unit.key].other(start, end)) is not None
    )


class _Recorded:
    """The recorded partitions of one unit, sorted by start."""

    def __init__(self, ranges: list[tuple[int, int]]) -> None:
        self._ranges = ranges
        self._starts = [start for start, _ in ranges]
        self._reaching = list(accumulate(ranges, _later))
        """For each partition, the one up to it that ends last."""

    def other(self, start: int, end: int) -> tuple[int, int] | None:
        """A partition with another start that overlaps ``[start, end)``; None if there is none."""
        before = bisect_left(self._starts, start)
        if before and self._reaching[before - 1][1] > start:
            return self._reaching[before - 1]
        after = bisect_right(self._starts, start)
        return self._ranges[after] if after < bisect_left(self._starts, end) else None


def _later(first: tuple[int, int], second: tuple[int, int]) -> tuple[int, int]:
    """The one of two ranges that ends last."""
    return second if second[1] > first[1] else first
