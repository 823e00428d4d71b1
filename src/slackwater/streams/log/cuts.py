"""Stream cuts: a place in a stream, one offset for every part of the key space.

Positions of writers miss ranges and hold a segment beside its successor; what readers need is one
cut that lies at or after all of them. This module makes it (M4), and says where a position stands
against one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

from slackwater.errors import InvalidArgument
from slackwater.streams.log.positions import Position, highest
from slackwater.streams.log.segments import (
    KEY_SPACE,
    Epochs,
    Segment,
    check_cover,
    overlapping,
    unknown_segment,
)


class Standing(IntEnum):
    """Where a position stands against a mark."""

    BEFORE = -1
    STRADDLING = 0
    PASSED = 1


def stream_cut(epochs: Epochs, positions: Iterable[Position], previous: Position | None = None) -> Position:
    """The cut at or after every position and the previous cut (M4).

    A range that nobody reports is filled from the highest epoch that somebody reports, at offset 0.

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
    # "highest" is meant of what is reported; the stream itself may be further
    newest = max((epochs.segment(identity).epoch for identity in offsets), default=0)
    while gaps := cover.gaps():
        for low, high in gaps:
            for segment in overlapping(epochs[newest], Segment(0, 0, low, high)):
                cover.put(segment)
    return Position.of({segment.id: offsets.get(segment.id, 0) for segment in cover.ordered})


class _Cover:
    """Segments without overlap, by key range; one that is put in removes those it overlaps."""

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
    """The cut, if it covers the key space once; else an error that names the place.

    >>> epochs = Epochs([[Segment(0, 0, 0, KEY_SPACE)]])
    >>> check_cut(epochs, Position.of({}))
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: cut = []: leave [0, 1) to nobody; cover [0, 1) once
    """
    check_cover([epochs.segment(identity) for identity, _ in cut.items()], "cut")
    return cut


def compare(position: Position, cut: Position, segments: Mapping[int, Segment]) -> Standing:
    """Where a position stands against a cut: passed, before it, or on both sides of it.

    Every entry of the position is compared with its own segment in the cut by offset, or, if the cut
    does not have that segment, with all overlapping ones by id. Equal is passed. A position without
    entries has nothing behind the cut, and so has passed it: ask about one that has entries.

    >>> segments = {0: Segment(0, 0, 0, 5), 1: Segment(1, 0, 5, 9)}
    >>> cut = Position.of({0: 10, 1: 10})
    >>> [compare(Position.of({0: 10, 1: offset}), cut, segments).name for offset in (10, 9, 11)]
    ['PASSED', 'BEFORE', 'PASSED']
    >>> compare(Position.of({0: 11, 1: 9}), cut, segments).name
    'STRADDLING'
    """
    return CutComparison(cut, segments).standing(position)


class CutComparison:
    """A cut that many positions are compared with; see `compare`."""

    def __init__(self, cut: Position, segments: Mapping[int, Segment]) -> None:
        self._segments = segments
        self._offsets = dict(cut.items())
        self._ordered = sorted((_known(segments, i) for i in self._offsets), key=lambda s: s.low)

    def standing(self, position: Position) -> Standing:
        """Where this position stands against the cut."""
        ahead = behind = False
        for identity, offset in position.items():
            there = self._offsets.get(identity)
            if there is not None:
                ahead |= offset > there
                behind |= offset < there
                continue
            for other in self._overlapping(_known(self._segments, identity)):
                ahead |= identity > other.id
                behind |= identity < other.id
        if behind:
            return Standing.STRADDLING if ahead else Standing.BEFORE
        return Standing.PASSED

    def _overlapping(self, segment: Segment) -> Sequence[Segment]:
        return overlapping(self._ordered, segment)


def _known(segments: Mapping[int, Segment], identity: int) -> Segment:
    try:
        return segments[identity]
    except KeyError:
        raise unknown_segment(identity) from None


def check_reached(cut: Position, lengths: Mapping[int, int], name: str = "cut") -> Position:
    """The cut, if the stream has come as far; who started behind its end would miss what comes first.

    >>> check_reached(Position.of({0: 3}), {0: 2})
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: cut = {0: 3}: lies behind the end of segment 0, 2; give the tail, or \
a cut before it
    """
    for identity, offset in cut.items():
        if offset > lengths[identity]:
            reason = f"lies behind the end of segment {identity}, {lengths[identity]}"
            raise InvalidArgument(name, dict(cut.items()), reason, fix="give the tail, or a cut before it")
    return cut


def check_not_before(epochs: Epochs, cut: Position, other: Position, name: str) -> None:
    """Raise if ``cut`` lies before ``other``, or on both sides of it.

    >>> epochs = Epochs([[Segment(0, 0, 0, KEY_SPACE)]])
    >>> check_not_before(epochs, Position.of({0: 3}), Position.of({0: 4}), "end")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: end = {0: 3}: does not lie at or after {0: 4}; give a later cut
    """
    if compare(cut, other, epochs.segments) is not Standing.PASSED:
        reason = f"does not lie at or after {dict(other.items())}"
        raise InvalidArgument(name, dict(cut.items()), reason, fix="give a later cut")
