"""Where a reader group stands among the segments: which are being read, and which may be read next.

A segment that was read to its sealed end is finished. Its successors join once all their predecessors are
finished, so the events of one key are read in their order across scaling. A finished segment counts in the
position of the group until all its successors have joined: the group's entries always cover the key space.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from slackwater.streams.log.positions import END_OF_SEGMENT, Position
from slackwater.streams.log.segments import Epochs, Segment


@dataclass(frozen=True, slots=True)
class Entry:
    """How far a group is in one segment, and which reader reads it.

    >>> Entry(5).reader is None
    True
    """

    offset: int
    finished: bool = False
    reader: str | None = None


Entries = Mapping[int, Entry]
"""Every segment that a group has read or reads, by id."""


def position_of(entries: Entries, epochs: Epochs) -> Position:
    """The position of a group; a finished segment is ahead of any offset.

    >>> from slackwater.streams.log.segments import even_ranges
    >>> epochs = Epochs([[Segment(number, 0, *bounds) for number, bounds in enumerate(even_ranges(2))]])
    >>> position_of({0: Entry(5), 1: Entry(7)}, epochs)
    Position({0: 5, 1: 7})
    """
    counting = _counting(entries, epochs)
    return Position.of(
        {segment: END_OF_SEGMENT if entry.finished else entry.offset for segment, entry in counting.items()}
    )


def advanced(entries: Entries, lengths: Mapping[int, int], epochs: Epochs) -> dict[int, Entry]:
    """The entries after those that reached their sealed end are finished, and successors have joined.

    >>> from slackwater.streams.log.segments import KEY_SPACE, even_ranges
    >>> epochs = Epochs([[Segment(0, 0, 0, KEY_SPACE)]]).scale([0], even_ranges(2))
    >>> [entry.offset for entry in advanced({0: Entry(9)}, {0: 9}, epochs).values()]
    [9, 0, 0]
    >>> [entry.offset for entry in advanced({0: Entry(8)}, {0: 9}, epochs).values()]
    [8]
    """
    known = dict(entries)
    open_ends = list(_counting(known, epochs))
    while open_ends:
        identity = open_ends.pop()
        entry = known[identity]
        if not entry.finished:
            # a segment that never had an event is finished as soon as it is sealed
            if not epochs.is_sealed(identity) or entry.offset < lengths.get(identity, 0):
                continue
            known[identity] = replace(entry, finished=True, reader=None)
        for successor in epochs.successors(identity):
            if successor.id not in known and not _waits(successor, known, epochs):
                known[successor.id] = Entry(0)
                open_ends.append(successor.id)
    return dict(sorted(known.items()))


def readable(entries: Entries, epochs: Epochs) -> list[int]:
    """The segments that may be read now.

    >>> from slackwater.streams.log.segments import KEY_SPACE
    >>> readable({0: Entry(9)}, Epochs([[Segment(0, 0, 0, KEY_SPACE)]]))
    [0]
    """
    return [
        identity
        for identity, entry in entries.items()
        if not entry.finished and not _waits(epochs.segment(identity), entries, epochs)
    ]


def shares(readers: Collection[str], segments: int) -> dict[str, int]:
    """How many segments each reader gets; they differ by at most one.

    >>> shares({"b", "a"}, 3)
    {'a': 2, 'b': 1}
    """
    each, more = divmod(segments, len(readers)) if readers else (0, 0)
    return {reader: each + (place < more) for place, reader in enumerate(sorted(readers))}


def _counting(entries: Entries, epochs: Epochs) -> dict[int, Entry]:
    """Without those whose successors have all joined."""
    return {
        identity: entry
        for identity, entry in entries.items()
        if not entry.finished or any(after.id not in entries for after in epochs.successors(identity))
    }


def _waits(segment: Segment, entries: Entries, epochs: Epochs) -> bool:
    """Whether a predecessor is still to be read; one before the group's beginning is not."""
    for predecessor in epochs.predecessors(segment.id):
        entry = entries.get(predecessor.id)
        if entry is not None:
            if not entry.finished:
                return True
        elif any(predecessor.succeeds(epochs.segment(other)) for other in _counting(entries, epochs)):
            return True
    return False
