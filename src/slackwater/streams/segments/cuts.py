"""Stream cuts: offsets by segment that cover the key space once, and how positions compare with them.

A writer's position may miss key ranges and may contain both a segment and its successor. Readers need one cut
at or after all positions; `stream_cut` computes it (M4).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from enum import IntEnum

from slackwater.errors import InvalidArgument
from slackwater.streams.segments.epochs import (
    KEY_SPACE,
    Epochs,
    Segment,
    check_cover,
    overlapping,
    unknown_segment,
)
from slackwater.streams.segments.positions import Position, highest


class Standing(IntEnum):
    """How a position compares with a cut."""

    BEFORE = -1
    STRADDLING = 0
    PASSED = 1


def stream_cut(epochs: Epochs, positions: Iterable[Position], previous: Position | None = None) -> Position:
    """The cut at or after every position and the previous cut (M4).

    A key range that no position contains is filled from the highest epoch that a position contains, at offset
    0.

    >>> whole = Segment(0, 0, 0, KEY_SPACE)
    >>> halves = Epochs([[whole]]).scale([0], [(0, KEY_SPACE // 2), (KEY_SPACE // 2, KEY_SPACE)])
    >>> left, right = (segment.id for segment in halves.active)
    >>> stream_cut(halves, [Position.of({0: 90}), Position.of({left: 4})]) == Position.of({left: 4, right: 0})
    True
    """
    reported = highest([*positions, *([] if previous is None else [previous])])
    offsets = dict(reported.items())
    cover = _Cover()
    for identity in offsets:
        cover.put(epochs.segment(identity))
    # the highest epoch among the reported positions; the stream itself may be in a later one
    newest = max((epochs.segment(identity).epoch for identity in offsets), default=0)
    while gaps := cover.gaps():
        for low, high in gaps:
            for segment in overlapping(epochs[newest], Segment(0, 0, low, high)):
                cover.put(segment)
    return Position.of({segment.id: offsets.get(segment.id, 0) for segment in cover.ordered})


class _Cover:
    """Disjoint segments, ordered by key range; adding one removes those that it overlaps."""

    def __init__(self) -> None:
        self.ordered: list[Segment] = []

    def put(self, segment: Segment) -> None:
        first = bisect_right(self.ordered, segment.low, key=lambda other: other.high)
        last = bisect_left(self.ordered, segment.high, key=lambda other: other.low)
        self.ordered[first:last] = [segment]

    def gaps(self) -> list[tuple[int, int]]:
        ends = [0, *(segment.high for segment in self.ordered)]
        starts = [*(segment.low for segment in self.ordered), KEY_SPACE]
        return [(end, start) for end, start in zip(ends, starts, strict=True) if end < start]


def check_cut(epochs: Epochs, cut: Position) -> Position:
    """Return the cut, if it covers the key space exactly once.

    >>> epochs = Epochs([[Segment(0, 0, 0, KEY_SPACE)]])
    >>> check_cut(epochs, Position.of({}))
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: cut = []: key range [0, 1) is not covered; cover [0, 1) once
    """
    check_cover([epochs.segment(identity) for identity, _ in cut.items()], "cut")
    return cut


def compare(position: Position, cut: Position, segments: Mapping[int, Segment]) -> Standing:
    """Compare a position with a cut: passed, before it, or on both sides of it.

    Each entry of the position is compared with the same segment in the cut by offset. If the cut does not
    contain that segment, the entry is compared by id with all segments of the cut that overlap it. Equal
    counts as passed. A position without entries also counts as passed; callers handle that case themselves.

    >>> segments = {0: Segment(0, 0, 0, 5), 1: Segment(1, 0, 5, 9)}
    >>> cut = Position.of({0: 10, 1: 10})
    >>> [compare(Position.of({0: 10, 1: offset}), cut, segments).name for offset in (10, 9, 11)]
    ['PASSED', 'BEFORE', 'PASSED']
    >>> compare(Position.of({0: 11, 1: 9}), cut, segments).name
    'STRADDLING'
    """
    return CutComparison(cut, segments).standing(position)


class CutComparison:
    """A cut that is prepared for comparison with many positions; see `compare`."""

    def __init__(self, cut: Position, segments: Mapping[int, Segment]) -> None:
        self._segments = segments
        self._offsets = dict(cut.items())
        self._ordered = sorted((_known(segments, i) for i in self._offsets), key=lambda s: s.low)

    def standing(self, position: Position) -> Standing:
        """Compare one position with the cut."""
        ahead = behind = False
        for identity, offset in position.items():
            cut_offset = self._offsets.get(identity)
            if cut_offset is not None:
                ahead |= offset > cut_offset
                behind |= offset < cut_offset
                continue
            for other in overlapping(self._ordered, _known(self._segments, identity)):
                ahead |= identity > other.id
                behind |= identity < other.id
        if behind:
            return Standing.STRADDLING if ahead else Standing.BEFORE
        return Standing.PASSED


def _known(segments: Mapping[int, Segment], identity: int) -> Segment:
    try:
        return segments[identity]
    except KeyError:
        raise unknown_segment(identity) from None


def check_reached(cut: Position, lengths: Mapping[int, int], name: str = "cut") -> Position:
    """Return the cut, if it is not beyond the end of the stream, where a reader would miss events.

    >>> check_reached(Position.of({0: 3}), {0: 2})
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: cut = {0: 3}: is beyond the end of segment 0, which has 2 events; \
give the tail, or a cut before it
    """
    for identity, offset in cut.items():
        if offset > lengths[identity]:
            reason = f"is beyond the end of segment {identity}, which has {lengths[identity]} events"
            raise InvalidArgument(name, dict(cut.items()), reason, fix="give the tail, or a cut before it")
    return cut


def check_not_before(epochs: Epochs, cut: Position, other: Position, name: str) -> None:
    """Raise if ``cut`` is before ``other``, or on both sides of it.

    >>> epochs = Epochs([[Segment(0, 0, 0, KEY_SPACE)]])
    >>> check_not_before(epochs, Position.of({0: 3}), Position.of({0: 4}), "end")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: end = {0: 3}: is not at or after {0: 4}; give a later cut
    """
    if compare(cut, other, epochs.segments) is not Standing.PASSED:
        reason = f"is not at or after {dict(other.items())}"
        raise InvalidArgument(name, dict(cut.items()), reason, fix="give a later cut")
