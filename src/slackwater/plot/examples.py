"""The scripted streams of the documentation, shared by its pictures and its tests."""

from __future__ import annotations

from typing import Final, Literal

from slackwater.errors import InvalidArgument
from slackwater.testing import TestStream, WindowRun
from slackwater.time import SECOND
from slackwater.windows import Fixed, Sessions, Sum, WindowedOperator, after_watermark, every

ExampleName = Literal["panes", "sessions"]

_PANES: Final = (
    # clock, then an element (time, price) or a watermark, in seconds
    *((8, (3, 5)), (15, (12, 7)), (22, 9), (28, 14), (30, (27, 3)), (33, 20), (37, (34, 4)), (43, 31)),
    *((48, (8, 9)), (50, (46, 3)), (54, 40), (57, (53, 8)), (62, 50), (66, (16, 2)), (70, (57, 6)), (76, 60)),
)
_SESSIONS: Final = ((4, (2, 5)), (9, (7, 1)), (24, (22, 4)), (30, 19), (38, (14, 2)), (44, 34))


def example(name: ExampleName) -> WindowRun:
    """Run an example of the documentation.

    >>> example("panes").panes.height
    7
    """
    match name:
        case "panes":
            operator = WindowedOperator(
                window=Fixed(20 * SECOND),
                trigger=after_watermark(early=every(count=2), late=every(count=1)),
                accumulations={"total": Sum("price")},
                key=("auction",),
                event_time="ts",
                allowed_lateness=30 * SECOND,
                late="emit",
            )
            return _stream(_PANES).run(operator)
        case "sessions":
            operator = WindowedOperator(
                window=Sessions(10 * SECOND),
                trigger=after_watermark(late=every(count=1)),
                accumulations={"total": Sum("price")},
                key=("auction",),
                event_time="ts",
                mode="accumulating_and_retracting",
                allowed_lateness=60 * SECOND,
                late="emit",
            )
            return _stream(_SESSIONS).run(operator)
    raise InvalidArgument("name", name, "is not the name of an example", fix='use "panes" or "sessions"')


def _stream(script: tuple[tuple[int, int | tuple[int, int]], ...]) -> TestStream:
    """A scripted stream from pairs of a clock time and an element or a watermark, in seconds."""
    stream = TestStream()
    for clock, event in script:
        at = clock * SECOND
        if isinstance(event, tuple):
            stream = stream.add(f"auction | ts[s] | price\na | {event[0]} | {event[1]}", at=at)
        else:
            stream = stream.advance_watermark(event * SECOND, at=at)
    return stream
