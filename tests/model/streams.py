"""Reference model of cuts and comparisons: point by point, on a key space of eighths.

The segments at one point of the key space, ordered by id, are the history of that point. An entry of a
position at that point is (id, offset), and all statements about cuts are statements about these entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from slackwater.streams.segments.epochs import KEY_SPACE, Epochs, Segment
from slackwater.streams.segments.positions import Position

POINTS: Sequence[int] = [KEY_SPACE // 8 * step for step in range(8)]

Entry = tuple[int, int]


def entries_at(epochs: Epochs, position: Position, key_point: int) -> list[Entry]:
    """The entries of a position at one point of the key space, ascending."""
    return [
        (identity, offset)
        for identity, offset in position.items()
        if _holds(epochs.segment(identity), key_point)
    ]


def cut_model(epochs: Epochs, positions: Iterable[Position]) -> dict[int, int]:
    """M4 as the specification words it, by scanning all entries."""
    highest: dict[int, int] = {}
    for position in positions:
        for identity, offset in position.items():
            highest[identity] = max(offset, highest.get(identity, 0))
    cut: dict[int, int] = {}
    for identity in sorted(highest):
        _add(epochs, cut, identity, highest[identity])
    newest = max((epochs.segment(identity).epoch for identity in cut), default=0)
    while missing := [p for p in POINTS if not any(_holds(epochs.segment(i), p) for i in cut)]:
        for segment in epochs[newest]:
            if any(_holds(segment, key_point) for key_point in missing):
                _add(epochs, cut, segment.id, 0)
    return cut


def standing_model(epochs: Epochs, position: Position, cut: Position) -> int:
    """Compare a position with a cut, entry by entry."""
    there = dict(cut.items())
    signs: set[int] = set()
    for identity, offset in position.items():
        if identity in there:
            signs.add((offset > there[identity]) - (offset < there[identity]))
        else:
            mine = epochs.segment(identity)
            signs |= {
                1 if identity > other else -1 for other in there if mine.overlaps(epochs.segment(other))
            }
    if -1 in signs:
        return 0 if 1 in signs else -1
    return 1


def _add(epochs: Epochs, cut: dict[int, int], identity: int, offset: int) -> None:
    added = epochs.segment(identity)
    for other in [other for other in cut if other < identity and added.overlaps(epochs.segment(other))]:
        del cut[other]
    cut[identity] = offset


def _holds(segment: Segment, key_point: int) -> bool:
    return segment.low <= key_point < segment.high
