"""How a cut moves along a stream: on to successors, by so many events, and what lies between two cuts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from slackwater.streams.log.positions import Position
from slackwater.streams.log.segments import Epochs, Segment, overlapping


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
        """How many they are."""
        return self.end - self.start


def settled(
    epochs: Epochs, cut: Position, lengths: Mapping[int, int], entered: Mapping[int, int] | None = None
) -> Position:
    """The cut with the successors of segments that are sealed and at their end in it.

    Segments that were replaced together give way together. A successor comes in at its offset in
    ``entered``, or at 0.

    >>> epochs = Epochs([[Segment(0, 0, 0, 2**62)]]).scale([0], [(0, 2**61), (2**61, 2**62)])
    >>> left, right = (segment.id for segment in epochs.active)
    >>> settled(epochs, Position.of({0: 9}), {0: 10, left: 0, right: 0})
    Position({0: 9})
    >>> settled(epochs, Position.of({0: 10}), {0: 10, left: 0, right: 0}) == Position.of({left: 0, right: 0})
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


def readable(epochs: Epochs, cut: Position, lengths: Mapping[int, int]) -> Position:
    """A cut at which reading can start and that misses nothing after ``cut``: mostly ``cut`` itself.

    Where writers were several epochs apart, the cut of a mark can stand on both sides of a segment that
    came between. There it is taken back to an epoch that it has reached everywhere.

    >>> epochs = Epochs([[Segment(0, 0, 0, 2**61), Segment(1, 0, 2**61, 2**62)]])
    >>> epochs = epochs.scale([0, 1], [(0, 2**62)])
    >>> epochs = epochs.scale([epochs.active[0].id], [(0, 2**61), (2**61, 2**62)])
    >>> newest = epochs.active[0].id
    >>> readable(epochs, Position.of({newest: 3, 1: 9}), {identity: 10 for identity in epochs.segments})
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


def advanced(
    epochs: Epochs, cut: Position, lengths: Mapping[int, int], events: int | None = None
) -> Position:
    """The cut after at most so many further events, or after all that there are.

    What is left is divided evenly among the segments, so that none runs far ahead of the others.

    >>> epochs = Epochs([[Segment(0, 0, 0, 2**61), Segment(1, 0, 2**61, 2**62)]])
    >>> advanced(epochs, Position.of({0: 0, 1: 0}), {0: 100, 1: 3}, events=10)
    Position({0: 7, 1: 3})
    >>> advanced(epochs, Position.of({0: 0, 1: 0}), {0: 100, 1: 3})
    Position({0: 100, 1: 3})
    """
    reached = settled(epochs, cut, lengths)
    left = sum(lengths.values()) if events is None else events
    while True:
        offsets = dict(reached.items())
        waiting = sorted(offsets, key=lambda identity: lengths[identity] - offsets[identity])
        for place, identity in enumerate(waiting):
            taken = min(lengths[identity] - offsets[identity], left // (len(waiting) - place))
            offsets[identity] += taken
            left -= taken
        moved = settled(epochs, Position.of(offsets), lengths)
        if moved == reached or left == 0:
            return moved
        reached = moved


def between(epochs: Epochs, start: Position, end: Position, lengths: Mapping[int, int]) -> list[Span]:
    """What lies between two cuts, by segment.

    A segment that one cut has left behind in a part of its keys only lies after that cut as a whole, so
    consecutive pairs of cuts neither miss nor repeat an event.

    >>> epochs = Epochs([[Segment(0, 0, 0, 2**62)]]).scale([0], [(0, 2**61), (2**61, 2**62)])
    >>> left, right = (segment.id for segment in epochs.active)
    >>> lengths = {0: 10, left: 5, right: 5}
    >>> spans = between(epochs, Position.of({0: 8}), Position.of({left: 1, right: 0}), lengths)
    >>> [(span.segment == 0, span.start, span.end) for span in spans]
    [(True, 8, 10), (False, 0, 1)]
    """
    first, last = _Reached(epochs, start, lengths), _Reached(epochs, end, lengths)
    spans = [Span(identity, first.offset(identity), last.offset(identity)) for identity in sorted(lengths)]
    return [span for span in spans if span.events > 0]


class _Reached:
    """How far a cut has come in every segment."""

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
    """The segments that were replaced together with this one, and by which; None if not all are finished."""
    old, new = {epochs.segment(identity)}, set[Segment]()
    while all(is_finished(segment.id) for segment in old):
        followers = {follower for segment in old for follower in epochs.successors(segment.id)}
        before = {earlier for follower in followers for earlier in epochs.predecessors(follower.id)}
        if before == old and followers == new:
            return old, new
        old, new = before, followers
    return None
