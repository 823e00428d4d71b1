"""Time windows of readers: between the newest mark that was passed and the first that was not reached."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from slackwater.streams.segments.cuts import Standing, compare
from slackwater.streams.segments.epochs import Segment
from slackwater.streams.segments.positions import Position
from slackwater.streams.time.marks import Mark


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Bounds on the event time that a reader group has reached; None where a bound is not known yet.

    Every event that was written before its writer noted a time at or below ``lower`` has been read. No writer
    had noted a time after ``upper`` at the first mark that the group has not reached.

    >>> TimeWindow(None, 9)
    TimeWindow(lower=None, upper=9)
    """

    lower: int | None = None
    upper: int | None = None

    def advance(
        self,
        position: Position,
        marks: Sequence[Mark],
        segments: Mapping[int, Segment],
        *,
        reading: Position | None = None,
    ) -> TimeWindow:
        """The window at a new position of the group; an empty position changes nothing.

        The lower bound never goes back, even if the position does. The upper bound is never below it.

        Args:
            position: Position of the group at its checkpoints, for the lower bound.
            marks: Marks of the stream, ascending.
            segments: Segments of the stream by id.
            reading: Position as it is now, with what was read since the checkpoints, for the upper bound; by
                default the same.

        >>> segments = {0: Segment(0, 0, 0, 9)}
        >>> marks = [Mark(10, 19, Position.of({0: 5})), Mark(20, 29, Position.of({0: 8}))]
        >>> window = TimeWindow().advance(Position.of({0: 5}), marks, segments)
        >>> window, window.advance(Position.of({0: 4}), marks, segments)
        (TimeWindow(lower=10, upper=29), TimeWindow(lower=10, upper=29))
        >>> window.advance(Position.of({0: 5}), marks, segments, reading=Position.of({0: 8}))
        TimeWindow(lower=10, upper=None)
        """
        if not len(position):
            return self
        lower = self.lower
        newer: list[tuple[Mark, Standing]] = []
        for mark in reversed(marks):
            if self.lower is not None and mark.lower <= self.lower:
                break
            standing = compare(position, mark.cut, segments)
            if standing is Standing.PASSED:
                lower = mark.lower
                break
            newer.append((mark, standing))
        if reading is not None:
            standings = ((mark, compare(reading, mark.cut, segments)) for mark, _ in newer)
            newer = [(mark, standing) for mark, standing in standings if standing is not Standing.PASSED]
        if not newer:
            return TimeWindow(lower, None)
        ahead = (mark for mark, standing in reversed(newer) if standing is Standing.BEFORE)
        return TimeWindow(lower, next(ahead, newer[0][0]).upper)


def newest_passed(position: Position, marks: Sequence[Mark], segments: Mapping[int, Segment]) -> Mark | None:
    """The newest of the ascending marks that a position has passed, if any.

    >>> marks = [Mark(10, 19, Position.of({0: 5})), Mark(20, 29, Position.of({0: 8}))]
    >>> newest_passed(Position.of({0: 7}), marks, {0: Segment(0, 0, 0, 9)}).lower
    10
    """
    if not len(position):
        return None

    def is_ahead(mark: Mark) -> bool:
        return compare(position, mark.cut, segments) is not Standing.PASSED

    # cuts ascend, so a position that has passed one has passed all before it
    count = bisect_left(marks, 1, key=is_ahead)
    return marks[count - 1] if count else None


def mark_at(marks: Iterable[Mark], time: int) -> Mark | None:
    """The newest of the ascending marks whose upper bound is at or below ``time``.

    A reader that starts at its cut misses no event noted at or after ``time``. If the result is None, start
    at the head.

    >>> marks = [Mark(10, 19, Position.of({0: 5})), Mark(20, 29, Position.of({0: 8}))]
    >>> [None if (mark := mark_at(marks, time)) is None else mark.lower for time in (18, 19, 28, 29)]
    [None, 10, 10, 20]
    """
    newest = None
    for mark in marks:
        if mark.upper <= time:
            newest = mark
    return newest
