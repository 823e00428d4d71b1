"""The results of running an operator on a scripted stream, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Generic, Protocol, TypeVar

import polars as pl

from slackwater.testing.manual_clock import ManualClock
from slackwater.testing.text_table import UNITS, aligned
from slackwater.time import BEGINNING_OF_TIME, END_OF_TIME
from slackwater.windows.engine.asof_operator import AsofOutput
from slackwater.windows.engine.deduplicate_operator import DeduplicateOutput
from slackwater.windows.engine.join_operator import JoinOutput
from slackwater.windows.engine.windowed_operator import WindowOutput
from slackwater.windows.spec.operator_spec import Side
from slackwater.windows.spec.windowing_strategy import PANE_COLUMNS

Output = TypeVar("Output")


@dataclass(frozen=True, slots=True)
class ScriptedElements:
    """A batch of rows that arrives; ``at`` is the processing time, if it is given."""

    rows: pl.DataFrame
    side: Side | None = None
    at: int | None = None
    input: str | None = None
    """The parameter of a pipeline that gets the rows."""


@dataclass(frozen=True, slots=True)
class WatermarkMove:
    """An advance of the watermark of one side, or of all sides, to an event time."""

    to: int
    side: Side | None = None
    at: int | None = None
    input: str | None = None
    """The parameter of a pipeline whose watermark advances."""


@dataclass(frozen=True, slots=True)
class Silence:
    """One side, or all sides, become idle until their next rows or watermark."""

    side: Side | None = None
    at: int | None = None


@dataclass(frozen=True, slots=True)
class ClockMove:
    """An advance of the processing time by a number of microseconds."""

    by: int


@dataclass(frozen=True, slots=True)
class Together:
    """Rows and watermarks that arrive in one step; the rows are judged by the watermarks before it."""

    elements: tuple[ScriptedElements, ...]
    watermarks: tuple[WatermarkMove, ...]
    at: int | None = None


Event = ScriptedElements | WatermarkMove | ClockMove | Silence | Together


def elements_of(event: Event) -> tuple[ScriptedElements, ...]:
    """The rows of an event, by side.

    >>> elements_of(ClockMove(5))
    ()
    """
    match event:
        case ScriptedElements():
            return (event,)
        case Together(elements=elements):
            return elements
        case _:
            return ()


def watermarks_of(event: Event) -> tuple[WatermarkMove, ...]:
    """The watermarks of an event, by side.

    >>> watermarks_of(WatermarkMove(5))
    (WatermarkMove(to=5, side=None, at=None, input=None),)
    """
    match event:
        case WatermarkMove():
            return (event,)
        case Together(watermarks=watermarks):
            return watermarks
        case _:
            return ()


def move_clock(clock: ManualClock, event: Event) -> None:
    """Advance the processing time as an event says.

    >>> clock = ManualClock()
    >>> move_clock(clock, ClockMove(5))
    >>> clock()
    5
    """
    if isinstance(event, ClockMove):
        clock.advance(event.by)
    elif event.at is not None:
        clock.set(event.at)


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What the state of an operator contains after a run.

    >>> from slackwater.testing import Leftovers
    >>> Leftovers(windows=1, rows=0, blobs=2).is_empty
    False
    """

    windows: int
    """Open windows."""
    rows: int
    """Rows that a join has buffered."""
    blobs: int
    """Blobs in the state store."""

    @property
    def is_empty(self) -> bool:
        """Whether everything was cleaned up."""
        return not (self.windows or self.rows or self.blobs)


class HasLeftovers(Protocol):
    """The result of a run that says what is left in the state."""

    @property
    def left(self) -> Leftovers:
        """What is in the state after the last step."""


def assert_cleaned_up(run: HasLeftovers) -> None:
    r"""Assert that a run left no window, no buffered row and no blob in the state of the operator.

    Args:
        run: the result of `TestStream.run`.

    Raises:
        AssertionError: something is left; the message says what.

    >>> import slackwater as sw
    >>> from slackwater.testing import assert_cleaned_up
    >>> from slackwater.testing import TestStream
    >>> from slackwater.windows import Fixed, Sum
    >>> totals = sw.WindowedOperator(window=Fixed(10), accumulations={"total": Sum("price")}, event_time="ts")
    >>> stream = TestStream().add("ts | price \n 3 | 5 \n 12 | 1").advance_watermark(10)
    >>> assert_cleaned_up(stream.end().run(totals))
    >>> assert_cleaned_up(stream.run(totals))
    Traceback (most recent call last):
    AssertionError: not cleaned up: 1 open window, 1 blob
    """
    left = run.left
    counts = {"open window": left.windows, "buffered row": left.rows, "blob": left.blobs}
    found = [f"{count} {name}{'s' * (count > 1)}" for name, count in counts.items() if count]
    if found:
        raise AssertionError(f"not cleaned up: {', '.join(found)}")


@dataclass(frozen=True, slots=True)
class Step(Generic[Output]):
    """One event, with the processing time, the watermark and the output after it.

    The watermark of an operator with two inputs is the minimum, and None until both are known.

    >>> from slackwater.testing import Step
    >>> Step(ClockMove(5), now=5, watermark=None, output="nothing").now
    5
    """

    event: Event
    now: int
    watermark: int | None
    output: Output


@dataclass(frozen=True, slots=True)
class WindowRun:
    r"""The run of a `WindowedOperator` or `MergeOperator`: its steps, and all panes in order of emission.

    ``key`` and ``event_times`` (by side, or under None) are the column names of the operator, which `story`
    needs.

    >>> import slackwater as sw
    >>> from slackwater.testing import TestStream
    >>> from slackwater.windows import Fixed, Sum
    >>> totals = sw.WindowedOperator(window=Fixed(10), accumulations={"total": Sum("price")}, event_time="ts")
    >>> run = TestStream().add("ts | price \n 3 | 5").advance_watermark(10).run(totals)
    >>> run.panes["total"].to_list(), run.steps[1].watermark
    ([5], 10)
    """

    steps: tuple[Step[WindowOutput], ...]
    key: tuple[str, ...]
    event_times: Mapping[Side | None, str]
    left: Leftovers
    """What is in the state after the last step."""

    @property
    def values(self) -> tuple[str, ...]:
        """The columns of a pane that hold its values."""
        columns = self.steps[0].output.panes.columns if self.steps else []
        return tuple(name for name in columns if name not in (*self.key, *PANE_COLUMNS))

    @property
    def panes(self) -> pl.DataFrame:
        """The panes of all steps."""
        return _stacked([step.output.panes for step in self.steps])

    @property
    def late(self) -> pl.DataFrame | None:
        """The dropped rows of all steps; None unless the operator has ``late="emit"``."""
        delivered = [step.output.late for step in self.steps if step.output.late is not None]
        return _stacked(delivered) if delivered else None

    @property
    def dropped_late(self) -> int:
        """The number of (element, window) pairs that were dropped as late, in all steps."""
        return sum(step.output.dropped_late for step in self.steps)

    @property
    def dropped_closed(self) -> int:
        """The number of (element, window) pairs that were dropped because the trigger had finished."""
        return sum(step.output.dropped_closed for step in self.steps)

    def story(self, unit: str = "us") -> str:
        r"""Format the run as a table, with a line for each event and each pane that it causes.

        Args:
            unit: the unit of times: ``us``, ``ms``, ``s``, ``min`` or ``h``.

        >>> import slackwater as sw
        >>> from slackwater.testing import TestStream
        >>> from slackwater.windows import Fixed, Sum
        >>> operator = sw.WindowedOperator(
        ...     window=Fixed(10), accumulations={"total": Sum("price")}, key=("key",), event_time="ts"
        ... )
        >>> run = (
        ...     TestStream()
        ...     .add("key | ts | price \n a | 3 | 5 \n a | 8 | 2")
        ...     .advance_watermark(10)
        ...     .run(operator)
        ... )
        >>> print(run.story())
        clock | event            | watermark | window  | key | pane    | total
        0     | a at 3 (price 5) |           |         |     |         |
              | a at 8 (price 2) |           |         |     |         |
        0     | watermark        | 10        | [0, 10) | a   | ON_TIME | 7
        """
        lines = [line for step in self.steps for line in self._lines(step, unit)]
        names = ["clock", "event", "watermark", "window", *self.key, "pane", *self.values]
        return "\n".join(aligned([names, *lines]))

    def _lines(self, step: Step[WindowOutput], unit: str) -> Iterator[tuple[str, ...]]:
        """The lines of a step; none for an advance of the clock without panes, as every line has the time."""
        events = self._event_lines(step.event, unit)
        panes = [
            (
                f"[{in_unit(pane['window_start'], unit)}, {in_unit(pane['window_end'], unit)})",
                *self._key_text(pane),
                ("retracts " if pane["retraction"] else "") + pane["timing"],
                *(_text(pane[name]) for name in self.values),
            )
            for pane in sorted(step.output.panes.iter_rows(named=True), key=self._key_text)
        ]
        if dropped := step.output.dropped_late + step.output.dropped_closed:
            panes.append(self._blank(f"dropped {dropped}"))
        if isinstance(step.event, ClockMove) and not panes:
            return
        watermark = "" if step.watermark is None else in_unit(step.watermark, unit)
        for event, pane in zip_longest(events, panes):
            first = event is not None and event is events[0]
            yield (
                in_unit(step.now, unit) if first else "",
                event or "",
                watermark if first else "",
                *(pane or self._blank("")),
            )

    def _key_text(self, pane: dict[str, object]) -> list[str]:
        """The key as text, by which panes are sorted; the order within a key is kept."""
        return [_text(pane[name]) for name in self.key]

    def _blank(self, pane: str) -> tuple[str, ...]:
        return ("", *("" for _ in self.key), pane, *("" for _ in self.values))

    def _event_lines(self, event: Event, unit: str) -> list[str]:
        match event:
            case ClockMove():
                return ["clock"]
            case Silence(side=side):
                return ["idle" if side is None else f"{side} idle"]
            case Together(elements=elements, watermarks=watermarks):
                parts: list[Event] = [*elements, *watermarks]
                return [line for part in parts for line in self._event_lines(part, unit)]
            case WatermarkMove(side=side):
                return ["watermark" if side is None else f"{side} watermark"]
            case ScriptedElements(rows=rows, side=side):
                prefix = "" if side is None else f"{side} "
                time = self.event_times[side]
                lines = [prefix + self._row_text(row, time, unit) for row in rows.iter_rows(named=True)]
                return lines or ["no rows"]

    def _row_text(self, row: dict[str, object], event_time: str, unit: str) -> str:
        key = " ".join(str(row[name]) for name in self.key)
        at = row[event_time]
        rest = [
            f"{name} {_text(value)}" for name, value in row.items() if name not in (*self.key, event_time)
        ]
        time = in_unit(at, unit) if isinstance(at, int) else str(at)
        return f"{key} at {time}".strip() + (f" ({', '.join(rest)})" if rest else "")


@dataclass(frozen=True, slots=True)
class JoinRun:
    r"""The run of a `JoinOperator` or `AsofOperator`: its steps, and all rows in order of emission.

    >>> import slackwater as sw
    >>> from slackwater.testing import TestStream
    >>> columns = {"ts": pl.Int64}
    >>> same = sw.JoinOperator(sw.JoinSpec(on=(), before=0, after=0), left=columns, right=columns)
    >>> TestStream().add("ts \n 3", side="left").add("ts \n 3", side="right").run(same).rows.rows()
    [(3, 3)]
    """

    steps: tuple[Step[JoinOutput | AsofOutput], ...]
    left: Leftovers
    """What is in the state after the last step."""

    @property
    def rows(self) -> pl.DataFrame:
        """The rows of all steps; a frame without columns if there are no steps."""
        return pl.concat([step.output.rows for step in self.steps]) if self.steps else pl.DataFrame()

    def late(self, side: Side) -> pl.DataFrame | None:
        """The late rows of a side in all steps; None unless the join has ``late="emit"``.

        Args:
            side: "left" or "right".
        """
        delivered = [step.output.late[side] for step in self.steps if step.output.late is not None]
        return pl.concat(delivered) if delivered else None

    def dropped(self, side: Side) -> int:
        """The number of late rows of a side, in all steps.

        Args:
            side: "left" or "right".
        """
        return sum(step.output.dropped[side] for step in self.steps)


@dataclass(frozen=True, slots=True)
class DeduplicateRun:
    r"""The run of a `DeduplicateOperator`: its steps, and all rows in order of emission.

    >>> import slackwater as sw
    >>> from slackwater.testing import TestStream
    >>> spec = sw.DeduplicateSpec(on=("id",), within=5)
    >>> once = sw.DeduplicateOperator(spec, schema={"id": pl.Int64, "ts": pl.Int64})
    >>> run = TestStream().add("id | ts \n 1 | 3 \n 1 | 4").end().run(once)
    >>> run.rows.rows(), run.duplicates
    ([(1, 3)], 1)
    """

    steps: tuple[Step[DeduplicateOutput], ...]
    left: Leftovers
    """What is in the state after the last step."""

    @property
    def rows(self) -> pl.DataFrame:
        """The rows of all steps; a frame without columns if there are no steps."""
        return pl.concat([step.output.rows for step in self.steps]) if self.steps else pl.DataFrame()

    @property
    def duplicates(self) -> int:
        """The number of duplicates, in all steps."""
        return sum(step.output.duplicates for step in self.steps)

    @property
    def dropped(self) -> int:
        """The number of late rows, in all steps."""
        return sum(step.output.dropped for step in self.steps)


def _stacked(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """Concatenate frames; those without rows are left out, because their types are not known."""
    filled = [frame for frame in frames if not frame.is_empty()] or frames[:1]
    return pl.concat(filled, how="vertical_relaxed") if filled else pl.DataFrame()


def in_unit(microseconds: int, unit: str) -> str:
    """Format a time as a number of units; the beginning and end of time are infinities.

    >>> in_unit(2_500_000, "s"), in_unit(END_OF_TIME, "s")
    ('2.5', '∞')
    """
    if microseconds in (END_OF_TIME, BEGINNING_OF_TIME):
        return "∞" if microseconds == END_OF_TIME else "-∞"
    return f"{microseconds / UNITS[unit]:.6f}".rstrip("0").rstrip(".")


def _text(value: object) -> str:
    return "" if value is None else str(value)
