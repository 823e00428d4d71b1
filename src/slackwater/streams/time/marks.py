"""Marks: the rules that turn noted times into watermarks, without a store (M1–M4, M7).

A cycle decides from the records of all writers of a stream what to write. `mark_store` writes it, unless a
record that the decision depends on has changed since (M5, N6).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from slackwater.streams.segments.cuts import stream_cut
from slackwater.streams.segments.epochs import Epochs
from slackwater.streams.segments.positions import Position
from slackwater.streams.settings import MarkSettings
from slackwater.streams.time.notes import WriterMark


@dataclass(frozen=True, slots=True)
class Mark:
    """A watermark: at ``cut``, every writer had noted ``lower`` or later, and none a time after ``upper``.

    >>> Mark(10, 12, Position.of({0: 5})).lower
    10
    """

    lower: int
    upper: int
    cut: Position


@dataclass(frozen=True, slots=True)
class CycleDecision:
    """What a cycle writes. ``behind`` and ``caught_up`` set and clear `WriterMark.behind_since`.

    >>> CycleDecision().mark is None
    True
    """

    mark: Mark | None = None
    delete: tuple[WriterMark, ...] = ()
    behind: tuple[WriterMark, ...] = ()
    caught_up: tuple[WriterMark, ...] = ()
    waited_for: tuple[WriterMark, ...] = ()
    """Writers that hold the watermark back."""


def decide_cycle(
    writers: Iterable[WriterMark],
    newest: Mark | None,
    epochs: Epochs,
    *,
    now: int,
    first_noted: int | None,
    settings: MarkSettings,
) -> CycleDecision:
    """Decide what one cycle of the controller writes for a stream (M1–M4, M7).

    Args:
        writers: Records of all writers of the stream.
        newest: The newest mark, or None.
        epochs: The segments of the stream.
        now: Time of the cycle.
        first_noted: When the stream's first noted time was accepted, or None.
        settings: Period and timeout of the stream.

    >>> from slackwater.streams.segments.epochs import KEY_SPACE, Segment
    >>> epochs, settings = Epochs([[Segment(0, 0, 0, KEY_SPACE)]]), MarkSettings(period="10 microseconds")
    >>> writers = [WriterMark("a", 7, Position.of({0: 5})), WriterMark("b", 9, Position.of({0: 3}))]
    >>> decide_cycle(writers, None, epochs, now=10, first_noted=0, settings=settings).mark
    Mark(lower=7, upper=9, cut=Position({0: 5}))
    >>> decide_cycle(writers, None, epochs, now=9, first_noted=0, settings=settings).mark is None
    True
    """
    if first_noted is None or now < first_noted + settings.period:
        return CycleDecision()
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
    return CycleDecision(
        mark=mark,
        delete=tuple(gone),
        behind=tuple(writer for writer in waited_for if writer.behind_since is None),
        caught_up=tuple(writer for writer in participating if writer.behind_since is not None),
        waited_for=tuple(waited_for),
    )


def _behind_for(writer: WriterMark, now: int) -> int:
    return 0 if writer.behind_since is None else now - writer.behind_since
