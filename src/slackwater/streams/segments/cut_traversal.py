"""Traversal of stream cuts: advance a cut by a number of events, and list the events between two cuts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from slackwater.streams.segments.epochs import Epochs, Segment, overlapping
from slackwater.streams.segments.positions import Position


@dataclass(frozen=True, slots=True)
class Span:
    """The events ``[start, end)`` of one segment.

    >>> Span(0, 3, 5).events
    2
    """

    segment: int
    start: int
    end: int

    @property
    def events(self) -> int:
        """Number of events."""
        return self.end - self.start


def enter_successors(
    epochs: Epochs, cut: Position, lengths: Mapping[int, int], entered: Mapping[int, int] | None = None
) -> Position:
    """Replace the segments that are sealed and at their end in the cut by their successors.

    Segments that were sealed together are replaced together. A successor enters at its offset in ``entered``,
    or at 0.

    >>> epochs = Epochs([[Segment(0, 0, 0, 2**62)]]).scale([0], [(0, 2**61), (2**61, 2**62)])
    >>> left, right = (segment.id for segment in epochs.active)
    >>> enter_successors(epochs, Position.of({0: 9}), {0: 10, left: 0, right: 0})
    Position({0: 9})
    >>> after = enter_successors(epochs, Position.of({0: 10}), {0: 10, left: 0, right: 0})
    >>> after == Position.of({left: 0, right: 0})
    True
    """
    offsets = dict(cut.items())

    def is_finished(identity: int) -> bool:
        return identity in offsets and epochs.is_sealed(identity) and offsets[identity] >= lengths[identity]

    while replaced := next(filter(None, (_replaced(epochs, i, is_finished) for i in sorted(offsets))), None):
        old, new = replaced
        for segment in old:
            del offsets[segment.id]
        for segment in new:
            offsets[segment.id] = 0 if entered is None else entered.get(segment.id, 0)
    return Position.of(offsets)


def readable_cut(epochs: Epochs, cut: Position, lengths: Mapping[int, int]) -> Position:
    """The latest cut at which reading can start without missing an event after ``cut``.

    Usually this is ``cut`` itself. Where writers were several epochs apart, the cut of a mark can be on both
    sides of a segment in between: past some of its successors, but not past all of its predecessors. Then the
    result goes back to the last epoch that the cut has reached in every key range.

    >>> epochs = Epochs([[Segment(0, 0, 0, 2**61), Segment(1, 0, 2**61, 2**62)]])
    >>> epochs = epochs.scale([0, 1], [(0, 2**62)])
    >>> epochs = epochs.scale([epochs.active[0].id], [(0, 2**61), (2**61, 2**62)])
    >>> newest = epochs.active[0].id
    >>> readable_cut(epochs, Position.of({newest: 3, 1: 9}), {identity: 10 for identity in epochs.segments})
    Position({0: 10, 1: 9})
    """
    offsets = dict(cut.items())
    inside = sorted((epochs.segment(identity) for identity in offsets), key=lambda segment: segment.low)

    def is_torn(segment: Segment) -> bool:
        over = overlapping(inside, segment)
        is_left = any(other.id > segment.id for other in over)
        return is_left and any(other.id < segment.id for other in over)

    if not any(is_torn(segment) for segment in epochs.segments.values()):
        return cut
    reached = next(
        members
        for members in (epochs[number] for number in reversed(range(len(epochs))))
        if all(other.id >= segment.id for segment in members for other in overlapping(inside, segment))
    )
    return Position.of({s.id: offsets.get(s.id, lengths[s.id]) for s in reached})


def advance_cut(
    epochs: Epochs, cut: Position, lengths: Mapping[int, int], events: int | None = None
) -> Position:
    """Advance a cut by at most ``events`` events, or to the end of the stream.

    The events are divided evenly among the segments, so that no segment runs far ahead of the others.

    >>> epochs = Epochs([[Segment(0, 0, 0, 2**61), Segment(1, 0, 2**61, 2**62)]])
    >>> advance_cut(epochs, Position.of({0: 0, 1: 0}), {0: 100, 1: 3}, events=10)
    Position({0: 7, 1: 3})
    >>> advance_cut(epochs, Position.of({0: 0, 1: 0}), {0: 100, 1: 3})
    Position({0: 100, 1: 3})
    """
    reached = enter_successors(epochs, cut, lengths)
    left = sum(lengths.values()) if events is None else events
    while True:
        offsets = dict(reached.items())
        # segments with the fewest events left come first; what they leave over goes to the others
        waiting = sorted(offsets, key=lambda identity: lengths[identity] - offsets[identity])
        for index, identity in enumerate(waiting):
            taken = min(lengths[identity] - offsets[identity], left // (len(waiting) - index))
            offsets[identity] += taken
            left -= taken
        moved = enter_successors(epochs, Position.of(offsets), lengths)
        if moved == reached or left == 0:
            return moved
        reached = moved


def spans_between(epochs: Epochs, start: Position, end: Position, lengths: Mapping[int, int]) -> list[Span]:
    """The events between two cuts, by segment.

    A segment that a cut has passed in only some of its keys counts as entirely after that cut. Consecutive
    pairs of cuts therefore neither miss nor repeat an event.

    >>> epochs = Epochs([[Segment(0, 0, 0, 2**62)]]).scale([0], [(0, 2**61), (2**61, 2**62)])
    >>> left, right = (segment.id for segment in epochs.active)
    >>> lengths = {0: 10, left: 5, right: 5}
    >>> spans = spans_between(epochs, Position.of({0: 8}), Position.of({left: 1, right: 0}), lengths)
    >>> [(span.segment == 0, span.start, span.end) for span in spans]
    [(True, 8, 10), (False, 0, 1)]
    """
    first, last = _CutOffsets(epochs, start, lengths), _CutOffsets(epochs, end, lengths)
    spans = [Span(identity, first.offset(identity), last.offset(identity)) for identity in sorted(lengths)]
    return [span for span in spans if span.events > 0]


class _CutOffsets:
    """The offset that a cut has reached in every segment, also in those that it does not contain."""

    def __init__(self, epochs: Epochs, cut: Position, lengths: Mapping[int, int]) -> None:
        self._epochs = epochs
        self._offsets = dict(cut.items())
        self._lengths = lengths
        self._ordered = sorted((epochs.segment(i) for i in self._offsets), key=lambda s: s.low)

    def offset(self, identity: int) -> int:
        if identity in self._offsets:
            return min(self._offsets[identity], self._lengths[identity])
        over = overlapping(self._ordered, self._epochs.segment(identity))
        return self._lengths[identity] if all(other.id > identity for other in over) else 0


def _replaced(
    epochs: Epochs, identity: int, is_finished: Callable[[int], bool]
) -> tuple[set[Segment], set[Segment]] | None:
    """The segments sealed together with this one, and their successors; None if not all are finished."""
    old, new = {epochs.segment(identity)}, set[Segment]()
    while all(is_finished(segment.id) for segment in old):
        followers = {follower for segment in old for follower in epochs.successors(segment.id)}
        before = {earlier for follower in followers for earlier in epochs.predecessors(follower.id)}
        if before == old and followers == new:
            return old, new
        old, new = before, followers
    return None
