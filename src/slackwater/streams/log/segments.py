"""Segments and epochs: who owns which part of the key space, and who came after whom.

The key space [0, 1) is counted in whole steps of 2⁻⁶², so that ranges compare exactly, whatever
fraction they were written as, and fit into 64 bits in every database. A boundary that two ranges
share is rounded the same way for both, so nothing falls between them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Final

from slackwater.errors import InvalidArgument
from slackwater.time import check_int64

KEY_SPACE: Final = 2**62
"""The points of the key space; a range is ``[low, high)`` with ``0 ≤ low < high ≤ KEY_SPACE``."""

_NUMBERS: Final = 2**32
_EPOCHS: Final = 2**31
_MOST: Final = 2**16
"""Segments at once: every cut of a stream has so many entries."""

KeyRange = tuple[int, int]
"""``[low, high)`` in points of the key space."""


def point(fraction: float | Fraction, name: str = "range") -> int:
    """The point of the key space nearest to a fraction of it.

    >>> point(0.5) == KEY_SPACE // 2, point(1.0) == KEY_SPACE
    (True, True)
    >>> point(1.5)
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: range = 1.5: lies outside [0, 1]; give a fraction of the key space
    """
    if not 0 <= fraction <= 1:
        fix = "give a fraction of the key space"
        raise InvalidArgument(name, fraction, "lies outside [0, 1]", fix=fix)
    return round(Fraction(fraction) * KEY_SPACE)


def even_ranges(count: int) -> list[KeyRange]:
    """The key space in ``count`` ranges of equal size.

    >>> [(low / KEY_SPACE, high / KEY_SPACE) for low, high in even_ranges(2)]
    [(0.0, 0.5), (0.5, 1.0)]
    """
    if not 1 <= check_int64(count, "segments") <= _MOST:
        fix = f"give 1 or more, and at most {_MOST:,}"
        raise InvalidArgument("segments", count, "is not a number of segments", fix=fix)
    return split_range((0, KEY_SPACE), count)


def split_range(whole: KeyRange, parts: int) -> list[KeyRange]:
    """One range in ``parts`` ranges of equal size.

    >>> split_range((0, 9), 3)
    [(0, 3), (3, 6), (6, 9)]
    """
    low, high = whole
    bounds = [low + (high - low) * part // parts for part in range(parts + 1)]
    return list(pairwise(bounds))


@dataclass(frozen=True, slots=True)
class Segment:
    """One append-only part of a stream: it takes the routing keys whose point lies in ``[low, high)``.

    >>> left, both = Segment(3, 0, 0, KEY_SPACE // 2), Segment(0, 1, 0, KEY_SPACE)
    >>> both.id == 2**32, both.succeeds(left), left.succeeds(both)
    (True, True, False)
    """

    number: int
    epoch: int
    low: int
    high: int
    id: int = field(init=False, compare=False)
    """``epoch · 2³² + number``: later segments have higher ids."""

    def __post_init__(self) -> None:
        if not 0 <= self.number < _NUMBERS:
            raise InvalidArgument("number", self.number, "does not fit into 32 bits", fix="count from 0")
        if not 0 <= self.epoch < _EPOCHS:
            raise InvalidArgument("epoch", self.epoch, "does not fit into 31 bits", fix="count from 0")
        if not 0 <= self.low < self.high <= KEY_SPACE:
            shown = [self.low / KEY_SPACE, self.high / KEY_SPACE]
            fix = "give low and high with 0 ≤ low < high ≤ 1"
            raise InvalidArgument("range", shown, "is not a range of the key space", fix=fix)
        object.__setattr__(self, "id", self.epoch * _NUMBERS + self.number)

    @property
    def fractions(self) -> tuple[float, float]:
        """The range as people read it."""
        return self.low / KEY_SPACE, self.high / KEY_SPACE

    def overlaps(self, other: Segment) -> bool:
        """Whether the ranges share a point; ranges that only touch do not."""
        return self.low < other.high and other.low < self.high

    def succeeds(self, other: Segment) -> bool:
        """Whether events of one routing key may stand in ``other`` first and here later."""
        return self.id > other.id and self.overlaps(other)


def check_cover(segments: Iterable[Segment], name: str = "segments") -> list[Segment]:
    """The segments by key range, if they cover the key space once; else an error that names the place.

    >>> check_cover([Segment(0, 0, 0, 5)])
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: segments = [0]: leave [1.08e-18, 1) to nobody; cover [0, 1) once
    """
    ordered = sorted(segments, key=lambda segment: segment.low)
    reached = 0
    for low, high in [*((s.low, s.high) for s in ordered), (KEY_SPACE, KEY_SPACE)]:
        if low != reached:
            first, last = sorted((low, reached))
            what = "to nobody" if low > reached else "to two segments"
            place = f"[{first / KEY_SPACE:.3g}, {last / KEY_SPACE:.3g})"
            ids = [segment.id for segment in ordered[:10]]
            raise InvalidArgument(name, ids, f"leave {place} {what}", fix="cover [0, 1) once")
        reached = high
    return ordered


class Epochs:
    """The history of a stream's segments: which were active together, from the first epoch to the last.

    >>> whole = Segment(0, 0, 0, KEY_SPACE)
    >>> epochs = Epochs([[whole]]).scale([whole.id], split_range((0, KEY_SPACE), 2))
    >>> [segment.number for segment in epochs.active], [s.number for s in epochs.successors(whole.id)]
    ([1, 2], [1, 2])
    >>> [segment.id for segment in epochs.predecessors(epochs.active[0].id)]
    [0]
    """

    def __init__(self, epochs: Iterable[Iterable[Segment]]) -> None:
        self._epochs = [check_cover(members, f"epoch {number}") for number, members in enumerate(epochs)]
        if not self._epochs:
            raise InvalidArgument("epochs", [], "hold no epoch", fix="give the segments of epoch 0")
        self._segments: dict[int, Segment] = {}
        self._last_epoch: dict[int, int] = {}
        for number, members in enumerate(self._epochs):
            for segment in members:
                known = self._segments.setdefault(segment.id, segment)
                if known != segment or segment.epoch > number:
                    reason = f"does not fit its place in epoch {number}"
                    raise InvalidArgument("segment", segment.id, reason, fix="number segments once")
                self._last_epoch[segment.id] = number

    @property
    def active(self) -> Sequence[Segment]:
        """The segments that take events now, by key range."""
        return self._epochs[-1]

    @property
    def segments(self) -> Mapping[int, Segment]:
        """Every segment there ever was, by id."""
        return self._segments

    def __len__(self) -> int:
        return len(self._epochs)

    def __getitem__(self, epoch: int) -> Sequence[Segment]:
        return self._epochs[epoch]

    def segment(self, identity: int) -> Segment:
        """The segment with that id, or an error."""
        try:
            return self._segments[identity]
        except KeyError:
            raise unknown_segment(identity) from None

    def is_sealed(self, identity: int) -> bool:
        """Whether the segment takes no more events."""
        return self._last_epoch[self.segment(identity).id] < len(self._epochs) - 1

    def successors(self, identity: int) -> list[Segment]:
        """What directly follows a segment: the overlapping ones of the epoch after its last."""
        segment = self.segment(identity)
        after = self._last_epoch[identity] + 1
        return [] if after == len(self._epochs) else overlapping(self._epochs[after], segment)

    def predecessors(self, identity: int) -> list[Segment]:
        """What directly precedes a segment: the overlapping ones of the epoch before its own."""
        segment = self.segment(identity)
        return [] if segment.epoch == 0 else overlapping(self._epochs[segment.epoch - 1], segment)

    def at(self, key_point: int) -> Segment:
        """The active segment that takes the routing keys of this point."""
        return self.active[bisect_right(self.active, key_point, key=lambda segment: segment.low) - 1]

    def scale(self, sealed: Iterable[int], ranges: Iterable[KeyRange]) -> Epochs:
        """The history with one epoch more: the ``sealed`` segments replaced by new ones with these ranges.

        The new ranges must cover what the sealed segments covered, and nothing else.
        """
        gone = set(sealed)
        if not gone:
            raise InvalidArgument("seal", [], "names no segment", fix="name the segments to replace")
        known = {segment.id for segment in self.active}
        if missing := sorted(gone - known):
            fix = f"name some of the active segments {sorted(known)}"
            raise InvalidArgument("seal", missing, "is not an active segment", fix=fix)
        first = 1 + max(segment.number for segment in self._segments.values())
        made = [
            Segment(first + place, len(self), low, high) for place, (low, high) in enumerate(sorted(ranges))
        ]
        kept = [segment for segment in self.active if segment.id not in gone]
        check_cover([*kept, *made], "ranges")
        return Epochs([*self._epochs, [*kept, *made]])


def overlapping(ordered: Sequence[Segment], segment: Segment) -> list[Segment]:
    """Those of ``ordered`` (disjoint, by key range) that share a point with ``segment``.

    >>> halves = [Segment(0, 0, 0, 4), Segment(1, 0, 4, 8)]
    >>> [half.id for half in overlapping(halves, Segment(0, 1, 4, 6))]
    [1]
    """
    first = bisect_right(ordered, segment.low, key=lambda other: other.high)
    last = bisect_left(ordered, segment.high, key=lambda other: other.low)
    return list(ordered[first:last])


def unknown_segment(identity: object) -> InvalidArgument:
    """The error about a segment that the stream never had.

    >>> print(unknown_segment(7))
    segment = 7: is no segment of this stream; describe the stream to see its segments
    """
    fix = "describe the stream to see its segments"
    return InvalidArgument("segment", identity, "is no segment of this stream", fix=fix)
