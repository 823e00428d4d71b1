"""From the times that writers note to watermarks: the rules alone, without a store.

A note is judged against the writer's last one (N1, N2, N4). A cycle is judged from everything a
stream has on record (M1–M4, M7), and says what to write; the store writes it, if nothing that the
decision rests on has changed meanwhile (M5, N6).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from slackwater.errors import InvalidArgument
from slackwater.streams.log.cuts import stream_cut
from slackwater.streams.log.positions import Position
from slackwater.streams.log.segments import Epochs
from slackwater.time import SECOND, check_int64


@dataclass(frozen=True, slots=True)
class MarkSettings:
    """How often a controller looks at a stream, and how long it waits for a writer that is behind.

    >>> MarkSettings().period == 10 * SECOND, MarkSettings().timeout == 60 * SECOND
    (True, True)
    """

    period: int = 10 * SECOND
    timeout: int = 60 * SECOND

    def __post_init__(self) -> None:
        for name in ("period", "timeout"):
            if check_int64(getattr(self, name), name) <= 0:
                fix = "give a duration above zero"
                raise InvalidArgument(name, getattr(self, name), "must be greater than zero", fix=fix)


_WRITER_ID: Final = re.compile(r"[A-Za-z0-9.-]{1,250}")


class NoteResult(StrEnum):
    """What became of a note; anything but ``ok`` stored nothing."""

    OK = "ok"
    INVALID_TIME = "invalid_time"
    INVALID_POSITION = "invalid_position"


@dataclass(frozen=True, slots=True)
class WriterMark:
    """What is on record about one writer: the last time it noted, and where it was then.

    >>> WriterMark("w", 10, Position.of({0: 5})).closed
    False
    """

    writer: str
    time: int
    position: Position
    closed: bool = False
    behind_since: int | None = None
    """When a cycle first found it behind the watermark, if it has been so ever since."""
    version: int = 0


@dataclass(frozen=True, slots=True)
class Mark:
    """A watermark: at ``cut``, every writer had noted ``lower`` or more, and none more than ``upper``.

    >>> Mark(10, 12, Position.of({0: 5})).lower
    10
    """

    lower: int
    upper: int
    cut: Position


@dataclass(frozen=True, slots=True)
class Cycle:
    """What a cycle decided. ``behind`` and ``caught_up`` set and clear `WriterMark.behind_since`.

    >>> Cycle().mark is None
    True
    """

    mark: Mark | None = None
    delete: tuple[WriterMark, ...] = ()
    behind: tuple[WriterMark, ...] = ()
    caught_up: tuple[WriterMark, ...] = ()
    waited_for: tuple[WriterMark, ...] = ()
    """Who holds the watermark back; empty if nobody does."""


def check_writer_id(writer: object, kind: str = "writer") -> str:
    """The id of a writer, or of something else that is named like one, if it can be one (N4).

    >>> check_writer_id("host-7.eu")
    'host-7.eu'
    >>> check_writer_id("host 7")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: writer = 'host 7': is no writer id; use 1–250 letters, digits, '.', '-'
    """
    if not isinstance(writer, str) or not _WRITER_ID.fullmatch(writer):
        fix = "use 1–250 letters, digits, '.', '-'"
        raise InvalidArgument(kind, writer, f"is no {kind} id", fix=fix)
    return writer


def judge_note(last: WriterMark | None, time: int, position: Position) -> NoteResult:
    """Whether a note may replace the writer's last one (N2). Equal is accepted; time is checked first.

    >>> last = WriterMark("w", 10, Position.of({0: 5}))
    >>> judge_note(last, 10, Position.of({0: 5})), judge_note(last, 9, Position.of({0: 4}))
    (<NoteResult.OK: 'ok'>, <NoteResult.INVALID_TIME: 'invalid_time'>)
    >>> judge_note(last, 11, Position.of({0: 4}))
    <NoteResult.INVALID_POSITION: 'invalid_position'>
    """
    if last is None:
        return NoteResult.OK
    if time < last.time:
        return NoteResult.INVALID_TIME
    if position.goes_back_from(last.position):
        return NoteResult.INVALID_POSITION
    return NoteResult.OK


def judge_cycle(
    writers: Iterable[WriterMark],
    newest: Mark | None,
    epochs: Epochs,
    *,
    now: int,
    first_noted: int | None,
    settings: MarkSettings,
) -> Cycle:
    """What one cycle of the controller does for a stream (M1–M4, M7).

    ``first_noted`` is when the stream's first mark was accepted, None if there was none.

    >>> from slackwater.streams.log.segments import KEY_SPACE, Segment
    >>> epochs = Epochs([[Segment(0, 0, 0, KEY_SPACE)]])
    >>> writers = [WriterMark("a", 7, Position.of({0: 5})), WriterMark("b", 9, Position.of({0: 3}))]
    >>> judge_cycle(writers, None, epochs, now=10 * SECOND, first_noted=0, settings=MarkSettings()).mark
    Mark(lower=7, upper=9, cut=Position({0: 5}))
    >>> judge_cycle(
    ...     writers, None, epochs, now=9 * SECOND, first_noted=0, settings=MarkSettings()
    ... ).mark is None
    True
    """
    if first_noted is None or now < first_noted + settings.period:
        return Cycle()
    participating: list[WriterMark] = []
    waited_for: list[WriterMark] = []
    gone: list[WriterMark] = []
    for writer in writers:
        if newest is None or writer.time > newest.lower:
            participating.append(writer)
        elif writer.closed or _behind_for(writer, now) >= settings.timeout:
            gone.append(writer)
        else:
            waited_for.append(writer)
    mark = None
    if participating and not waited_for:
        times = [writer.time for writer in participating]
        previous = None if newest is None else newest.cut
        cut = stream_cut(epochs, (writer.position for writer in participating), previous)
        mark = Mark(min(times), max(times), cut)
    return Cycle(
        mark=mark,
        delete=tuple(gone),
        behind=tuple(writer for writer in waited_for if writer.behind_since is None),
        caught_up=tuple(writer for writer in participating if writer.behind_since is not None),
        waited_for=tuple(waited_for),
    )


def _behind_for(writer: WriterMark, now: int) -> int:
    return 0 if writer.behind_since is None else now - writer.behind_since
