"""Notes: the rules for times that writers note, without a store (N1, N2).

`mark_store` stores them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from slackwater.streams.segments.positions import Position


class NoteResult(StrEnum):
    """Result of noting a time; with any value but ``ok`` nothing was stored (N2)."""

    OK = "ok"
    INVALID_TIME = "invalid_time"
    INVALID_POSITION = "invalid_position"
    TOO_FAR_AHEAD = "too_far_ahead"
    """Further ahead of the store's clock than `MarkSettings.max_ahead` allows."""


@dataclass(frozen=True, slots=True)
class WriterMark:
    """The stored record of one writer: the last time that it noted, and its position then.

    >>> WriterMark("w", 10, Position.of({0: 5})).closed
    False
    """

    writer: str
    time: int
    position: Position
    closed: bool = False
    behind_since: int | None = None
    """When a cycle first found it behind the watermark; None if it is not behind."""
    version: int = 0


def validate_note(
    last: WriterMark | None, time: int, position: Position, latest: int | None = None
) -> NoteResult:
    """Decide whether a noted time may replace the writer's last one (N2).

    Equal values are accepted; time is checked first. Times after ``latest`` are too far ahead.

    >>> last = WriterMark("w", 10, Position.of({0: 5}))
    >>> validate_note(last, 10, Position.of({0: 5})), validate_note(last, 9, Position.of({0: 4}))
    (<NoteResult.OK: 'ok'>, <NoteResult.INVALID_TIME: 'invalid_time'>)
    >>> validate_note(last, 11, Position.of({0: 4}))
    <NoteResult.INVALID_POSITION: 'invalid_position'>
    """
    if last is not None and time < last.time:
        return NoteResult.INVALID_TIME
    if latest is not None and time > latest:
        return NoteResult.TOO_FAR_AHEAD
    if last is not None and position.goes_back_from(last.position):
        return NoteResult.INVALID_POSITION
    return NoteResult.OK
