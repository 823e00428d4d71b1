"""Segments and epochs: which segment owns which key range, and which segments succeed which.

The key space [0, 1) is counted in integer steps of 2⁻⁶². Ranges therefore compare exactly, whatever fraction
they were written as, and fit into 64 bits in every database. A boundary that two ranges share is rounded the
same way for both, so no key falls between them.
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
"""Number of points in the key space; a range is ``[low, high)`` with ``0 ≤ low < high ≤ KEY_SPACE``."""

_NUMBERS: Final = 2**32
_EPOCHS: Final = 2**31
_MAX_SEGMENTS: Final = 2**16
"""Active segments of a stream; every cut has one entry for each."""

KeyRange = tuple[int, int]
"""``[low, high)`` in points of the key space."""


def point(fraction: float | Fraction, name: str = "range") -> int:
    """The point of the key space nearest to a fraction of it.

    >>> point(0.5) == KEY_SPACE // 2, point(1.0) == KEY_SPACE
    (True, True)
    >>> point(1.5)
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: range = 1.5: is outside [0, 1]; give a fraction of the key space
    """
    if not 0 <= fraction <= 1:
        fix = "give a fraction of the key space"
        raise InvalidArgument(name, fraction, "is outside [0, 1]", fix=fix)
    return round(Fraction(fraction) * KEY_SPACE)


def even_ranges(count: int) -> list[KeyRange]:
    """Split the key space into ``count`` ranges of equal size.

    >>> [(low / KEY_SPACE, high / KEY_SPACE) for low, high in even_ranges(2)]
    [(0.0, 0.5), (0.5, 1.0)]
    """
    if not 1 <= check_int64(count, "segments") <= _MAX_SEGMENTS:
        fix = f"give a number between 1 and {_MAX_SEGMENTS:,}"
        raise InvalidArgument("segments", count, "is not a valid number of segments", fix=fix)
    return split_range((0, KEY_SPACE), count)


def split_range(whole: KeyRange, parts: int) -> list[KeyRange]:
    """Split a key range into ``parts`` ranges of equal size.

    >>> split_range((0, 9), 3)
    [(0, 3), (3, 6), (6, 9)]
    """
    low, high = whole
    bounds = [low + (high - low) * part // parts for part in range(parts + 1)]
    return list(pairwise(bounds))


@dataclass(frozen=True, slots=True)
class Segment:
    """One append-only part of a stream; it stores the routing keys whose point lies in ``[low, high)``.

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
            raise InvalidArgument("range", shown, "is not a valid key range", fix=fix)
        object.__setattr__(self, "id", self.epoch * _NUMBERS + self.number)

    @property
    def fractions(self) -> tuple[float, float]:
        """The key range as fractions of the key space."""
        return self.low / KEY_SPACE, self.high / KEY_SPACE

    def overlaps(self, other: Segment) -> bool:
        """Whether the key ranges share a point; adjacent ranges do not."""
        return self.low < other.high and other.low < self.high

    def succeeds(self, other: Segment) -> bool:
        """Whether a routing key may have events in ``other`` first and in this segment later."""
        return self.id > other.id and self.overlaps(other)


def check_cover(segments: Iterable[Segment], name: str = "segments") -> list[Segment]:
    """Return the segments ordered by key range, if they cover the key space exactly once.

    >>> check_cover([Segment(0, 0, 0, 5)])
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: segments = [0]: key range [1.08e-18, 1) is not covered; cover \
[0, 1) once
    """
    ordered = sorted(segments, key=lambda segment: segment.low)
    reached = 0
    for low, high in [*((s.low, s.high) for s in ordered), (KEY_SPACE, KEY_SPACE)]:
        if low != reached:
            first, last = sorted((low, reached))
            problem = "not covered" if low > reached else "covered twice"
            key_range = f"[{first / KEY_SPACE:.3g}, {last / KEY_SPACE:.3g})"
            ids = [segment.id for segment in ordered[:10]]
            raise InvalidArgument(name, ids, f"key range {key_range} is {problem}", fix="cover [0, 1) once")
        reached = high
    return ordered


class Epochs:
    """The history of a stream's segments: which segments were active together, epoch by epoch.

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
            raise InvalidArgument("epochs", [], "is empty", fix="give the segments of epoch 0")
        self._segments: dict[int, Segment] = {}
        self._last_epoch: dict[int, int] = {}
        for number, members in enumerate(self._epochs):
            for segment in members:
                known = self._segments.setdefault(segment.id, segment)
                if known != segment or segment.epoch > number:
                    reason = f"cannot be active in epoch {number}: its range changed, or it starts later"
                    raise InvalidArgument("segment", segment.id, reason, fix="use each segment id once")
                self._last_epoch[segment.id] = number

    @property
    def active(self) -> Sequence[Segment]:
        """The segments that take events now, ordered by key range."""
        return self._epochs[-1]

    @property
    def segments(self) -> Mapping[int, Segment]:
        """All segments of all epochs, by id."""
        return self._segments

    def __len__(self) -> int:
        return len(self._epochs)

    def __getitem__(self, epoch: int) -> Sequence[Segment]:
        return self._epochs[epoch]

    def segment(self, identity: int) -> Segment:
        """Return the segment with this id, or raise."""
        try:
            return self._segments[identity]
        except KeyError:
            raise unknown_segment(identity) from None

    def is_sealed(self, identity: int) -> bool:
        """Whether the segment takes no more events."""
        return self._last_epoch[self.segment(identity).id] < len(self._epochs) - 1

    def successors(self, identity: int) -> list[Segment]:
        """The direct successors of a segment: the overlapping segments of the epoch after its last."""
        segment = self.segment(identity)
        after = self._last_epoch[identity] + 1
        return [] if after == len(self._epochs) else overlapping(self._epochs[after], segment)

    def predecessors(self, identity: int) -> list[Segment]:
        """The direct predecessors of a segment: the overlapping segments of the epoch before its own."""
        segment = self.segment(identity)
        return [] if segment.epoch == 0 else overlapping(self._epochs[segment.epoch - 1], segment)

    def at(self, key_point: int) -> Segment:
        """The active segment that stores the routing keys of this point."""
        return self.active[bisect_right(self.active, key_point, key=lambda segment: segment.low) - 1]

    def scale(self, sealed: Iterable[int], ranges: Iterable[KeyRange]) -> Epochs:
        """Return the history with a new epoch, in which new segments replace the ``sealed`` ones.

        Args:
            sealed: Ids of active segments to seal.
            ranges: Key ranges of the new segments. Together they cover exactly what the sealed segments
                covered.

        Raises:
            InvalidArgument: A sealed segment is not active, or the ranges leave a gap or overlap.
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
            Segment(number, len(self), low, high) for number, (low, high) in enumerate(sorted(ranges), first)
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
    """The error about a segment id that the stream never had.

    >>> print(unknown_segment(7))
    segment = 7: is not a segment of this stream; describe the stream to see its segments
    """
    fix = "describe the stream to see its segments"
    return InvalidArgument("segment", identity, "is not a segment of this stream", fix=fix)
