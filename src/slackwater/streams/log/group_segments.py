"""Rules of reader groups: which segments a group reads, and how many each reader gets.

A segment that was read to its sealed end is finished. A successor is added once all its predecessors are
finished, so events of one key are read in order across scaling. A finished segment counts in the position of
the group until all its successors are added, so the position always covers the key space.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from slackwater.streams.segments.epochs import Epochs, Segment
from slackwater.streams.segments.positions import END_OF_SEGMENT, Position


@dataclass(frozen=True, slots=True)
class GroupSegment:
    """The offset of a group in one segment, and the reader that is assigned to it.

    >>> GroupSegment(5).reader is None
    True
    """

    offset: int
    finished: bool = False
    reader: str | None = None


GroupSegments = Mapping[int, GroupSegment]
"""All segments that a group has read or is reading, by id."""


def group_position(entries: GroupSegments, epochs: Epochs) -> Position:
    """The position of a group; a finished segment counts as ahead of any offset.

    >>> from slackwater.streams.segments.epochs import even_ranges
    >>> epochs = Epochs([[Segment(number, 0, *bounds) for number, bounds in enumerate(even_ranges(2))]])
    >>> group_position({0: GroupSegment(5), 1: GroupSegment(7)}, epochs)
    Position({0: 5, 1: 7})
    """
    current = _current(entries, epochs)
    return Position.of(
        {segment: END_OF_SEGMENT if entry.finished else entry.offset for segment, entry in current.items()}
    )


def finish_segments(
    entries: GroupSegments, lengths: Mapping[int, int], epochs: Epochs
) -> dict[int, GroupSegment]:
    """Finish the segments that were read to their sealed end, and add their successors.

    >>> from slackwater.streams.segments.epochs import KEY_SPACE, even_ranges
    >>> epochs = Epochs([[Segment(0, 0, 0, KEY_SPACE)]]).scale([0], even_ranges(2))
    >>> [entry.offset for entry in finish_segments({0: GroupSegment(9)}, {0: 9}, epochs).values()]
    [9, 0, 0]
    >>> [entry.offset for entry in finish_segments({0: GroupSegment(8)}, {0: 9}, epochs).values()]
    [8]
    """
    known = dict(entries)
    pending = list(_current(known, epochs))
    while pending:
        identity = pending.pop()
        entry = known[identity]
        if not entry.finished:
            # a segment without events is finished as soon as it is sealed
            if not epochs.is_sealed(identity) or entry.offset < lengths.get(identity, 0):
                continue
            known[identity] = replace(entry, finished=True, reader=None)
        for successor in epochs.successors(identity):
            if successor.id not in known and not _waits(successor, known, epochs):
                known[successor.id] = GroupSegment(0)
                pending.append(successor.id)
    return dict(sorted(known.items()))


def unblocked_segments(entries: GroupSegments, epochs: Epochs) -> list[int]:
    """Ids of the unfinished segments whose predecessors are all finished.

    >>> from slackwater.streams.segments.epochs import KEY_SPACE
    >>> unblocked_segments({0: GroupSegment(9)}, Epochs([[Segment(0, 0, 0, KEY_SPACE)]]))
    [0]
    """
    return [
        identity
        for identity, entry in entries.items()
        if not entry.finished and not _waits(epochs.segment(identity), entries, epochs)
    ]


def reader_quotas(readers: Collection[str], segments: int) -> dict[str, int]:
    """How many segments each reader gets; the numbers differ by at most one.

    >>> reader_quotas({"b", "a"}, 3)
    {'a': 2, 'b': 1}
    """
    each, remainder = divmod(segments, len(readers)) if readers else (0, 0)
    return {reader: each + (index < remainder) for index, reader in enumerate(sorted(readers))}


def _current(entries: GroupSegments, epochs: Epochs) -> dict[int, GroupSegment]:
    """The segments that count in the position: all but the finished ones whose successors were all added."""
    return {
        identity: entry
        for identity, entry in entries.items()
        if not entry.finished or any(after.id not in entries for after in epochs.successors(identity))
    }


def _waits(segment: Segment, entries: GroupSegments, epochs: Epochs) -> bool:
    """Whether a predecessor must still be read; predecessors before the start of the group do not count."""
    for predecessor in epochs.predecessors(segment.id):
        entry = entries.get(predecessor.id)
        if entry is not None:
            if not entry.finished:
                return True
        elif any(predecessor.succeeds(epochs.segment(other)) for other in _current(entries, epochs)):
            return True
    return False
