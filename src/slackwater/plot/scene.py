"""The contents of the event-time picture as plain numbers, for one key of a run.

Separate from the drawing, so that the contents can be tested without an image.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import polars as pl

from slackwater._suggestions import available
from slackwater.errors import InvalidArgument
from slackwater.testing.scripted_run import ScriptedElements, Step, WindowRun, elements_of, watermarks_of
from slackwater.time import BEGINNING_OF_TIME, END_OF_TIME
from slackwater.windows.engine.windowed_operator import WindowOutput

Fate = Literal["on time", "late", "dropped"]


@dataclass(frozen=True, slots=True)
class Dot:
    """An element: its event time, its arrival and its fate."""

    event_time: int
    arrival: int
    text: str
    fate: Fate


@dataclass(frozen=True, slots=True)
class Box:
    """A pane: its window on the x axis; on the y axis the time from the previous firing to its own.

    The first pane of a window begins at the first arrival.
    """

    start: int
    end: int
    since: int
    fired: int
    timing: str
    text: str
    retracted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Corner:
    """A move of the watermark: its value from this processing time on."""

    at: int
    watermark: int


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything that is drawn."""

    dots: tuple[Dot, ...]
    boxes: tuple[Box, ...]
    watermark: tuple[Corner, ...]
    finish: int
    clocked: bool
    """Whether the clock moved during the run; if not, processing times are step numbers."""

    def times(self) -> Iterator[int]:
        """Every finite event time in the scene."""
        yield from (dot.event_time for dot in self.dots)
        ends = [bound for box in self.boxes for bound in (box.start, box.end)]
        values = [*ends, *(corner.watermark for corner in self.watermark)]
        yield from (value for value in values if value not in (BEGINNING_OF_TIME, END_OF_TIME))


def scene(
    run: WindowRun, *, value: str, element: str | None = None, key: tuple[Any, ...] | None = None
) -> Scene:
    """Build the scene of one key of a run: panes show ``value``, elements their column ``element``.

    >>> from slackwater.plot.examples import example
    >>> shown = scene(example("panes"), value="total", element="price")
    >>> [(box.timing, box.text) for box in shown.boxes if box.start == 0]
    [('EARLY', '12'), ('ON_TIME', '12'), ('LATE', '21')]
    >>> [dot.event_time // 10**6 for dot in shown.dots if dot.fate == "dropped"]
    [16]
    """
    if value not in run.values:
        raise InvalidArgument(
            "value",
            value,
            "is not an accumulation of this run",
            fix=available(value, run.values, lead="use one of "),
        )
    key = _only_key(run) if key is None else key
    dots: list[Dot] = []
    boxes: list[Box] = []
    corners: list[Corner] = []
    known: int | None = None
    clocked = any(step.now != 0 for step in run.steps)
    steps = run.steps if clocked else tuple(replace(step, now=n) for n, step in enumerate(run.steps, 1))
    for step in steps:
        for arrived in elements_of(step.event):
            dots.extend(_dots(run, step, arrived, known, element, key))
        if watermarks_of(step.event) and step.watermark is not None and step.watermark != known:
            corners.append(Corner(step.now, step.watermark))
        known = step.watermark
        boxes.extend(_boxes(run, step, value, key, dots, boxes))
    finish = steps[-1].now if steps else 0
    return Scene(tuple(dots), tuple(boxes), tuple(corners), finish, clocked)


def _only_key(run: WindowRun) -> tuple[Any, ...]:
    """The only key of a run."""
    batches = [one.rows.select(run.key) for step in run.steps for one in elements_of(step.event)]
    keys = {row for batch in batches for row in batch.rows()} if run.key else {()}
    if len(keys) > 1:
        raise InvalidArgument(
            "key", None, f"is required: the run has {len(keys)} keys", fix="name one, as in key=('a',)"
        )
    return next(iter(keys), ())


def _dots(
    run: WindowRun,
    step: Step[WindowOutput],
    event: ScriptedElements,
    watermark: int | None,
    element: str | None,
    key: tuple[Any, ...],
) -> Iterator[Dot]:
    event_time = run.event_times[event.side]
    dropped = _dropped(event.rows, step.output)
    for row, gone in zip(event.rows.iter_rows(named=True), dropped, strict=True):
        if tuple(row[name] for name in run.key) != key:
            continue
        late = watermark is not None and row[event_time] < watermark
        yield Dot(
            event_time=row[event_time],
            arrival=step.now,
            text="" if element is None else _text(row[element]),
            fate="dropped" if gone else "late" if late else "on time",
        )


def _dropped(rows: pl.DataFrame, output: WindowOutput) -> list[bool]:
    """Whether each row was dropped; exact only if the operator emits dropped rows."""
    count = output.dropped_late + output.dropped_closed
    if output.late is not None and count:
        gone = output.late.select(rows.columns).unique().with_columns(gone=pl.lit(value=True))
        joined = rows.join(gone, on=rows.columns, how="left", nulls_equal=True, maintain_order="left")
        return joined["gone"].fill_null(value=False).to_list()
    return [count >= rows.height > 0] * rows.height


def _boxes(
    run: WindowRun,
    step: Step[WindowOutput],
    value: str,
    key: tuple[Any, ...],
    dots: list[Dot],
    earlier: list[Box],
) -> Iterator[Box]:
    retracted: list[str] = []
    for pane in step.output.panes.iter_rows(named=True):
        if tuple(pane[name] for name in run.key) != key:
            continue
        if pane["retraction"]:
            retracted.append(_text(pane[value]))
            continue
        start, end = pane["window_start"], pane["window_end"]
        since = pane_begin(start, end, step.now, dots, earlier)
        yield Box(start, end, since, step.now, pane["timing"], _text(pane[value]), tuple(retracted))
        retracted = []


def pane_begin(start: int, end: int, fired: int, dots: Sequence[Dot], earlier: Sequence[Box]) -> int:
    """The processing time at which a pane begins: the previous firing, or the first arrival in its window.

    >>> pane_begin(0, 10, 9, [Dot(3, 5, "", "on time"), Dot(4, 4, "", "dropped")], [])
    5
    """
    before = [box.fired for box in earlier if (box.start, box.end) == (start, end)]
    arrived = [dot.arrival for dot in dots if start <= dot.event_time < end and dot.fate != "dropped"]
    return max(before) if before else min(arrived, default=fired)


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
