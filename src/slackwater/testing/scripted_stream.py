"""Scripted streams: a test lists batches, watermarks and processing times, and runs an operator on them.

Each event is one step of the operator, without Spark and without sleeping. The run has the output of each
step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, ClassVar, Protocol, TypeVar, overload

import polars as pl

from slackwater.errors import InvalidArgument
from slackwater.testing.manual_clock import ManualClock, Moment, moment
from slackwater.testing.pipeline_run import PipelineRun, run_pipeline
from slackwater.testing.scripted_run import (
    ClockMove,
    DeduplicateRun,
    Event,
    JoinRun,
    Leftovers,
    Output,
    ScriptedElements,
    Silence,
    Step,
    Together,
    WatermarkMove,
    WindowRun,
    elements_of,
    move_clock,
    watermarks_of,
)
from slackwater.testing.text_table import T
from slackwater.time import END_OF_TIME, check_int64, duration
from slackwater.windows.engine.asof_operator import AsofOperator, AsofOutput
from slackwater.windows.engine.blobs import BlobStore
from slackwater.windows.engine.cogroup_operator import MergeOperator, MergeState
from slackwater.windows.engine.deduplicate_operator import (
    DeduplicateOperator,
    DeduplicateOutput,
    DeduplicateState,
)
from slackwater.windows.engine.join_operator import JoinOperator, JoinOutput
from slackwater.windows.engine.window_state import WindowState
from slackwater.windows.engine.windowed_operator import WindowedOperator, WindowOutput
from slackwater.windows.spec.operator_spec import SIDES, Side


class _HasBlobs(Protocol):
    @property
    def blobs(self) -> BlobStore: ...


State = TypeVar("State", bound=_HasBlobs)


class _Operator(Protocol[State]):
    """The part of an operator's interface that does not depend on its kind."""

    def initial_state(self) -> State: ...
    def load(self, saved: bytes, blobs: BlobStore) -> State: ...
    def save(self, state: State) -> bytes: ...


@dataclass(frozen=True, slots=True)
class _Arrived:
    """What an operator gets in a step, by side."""

    rows: Mapping[Side | None, pl.DataFrame]
    marks: Mapping[Side | None, int]
    idle: frozenset[Side | None]
    now: int

    @property
    def both(self) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
        return self.rows.get("left"), self.rows.get("right")

    @property
    def by_side(self) -> dict[str, int]:
        return {side: mark for side, mark in self.marks.items() if side is not None}

    @property
    def idle_sides(self) -> frozenset[str]:
        return frozenset(side for side in self.idle if side is not None)


@dataclass(frozen=True, slots=True)
class TestStream:
    r"""A sequence of events for an operator; every method returns a new, longer stream.

    Each event is one step of the operator. Times are microseconds, durations since zero such as ``"10
    seconds"``, or ISO 8601 instants; rows are a frame or a text table (see `T`). For an operator with two
    inputs, ``side`` is ``"left"`` or ``"right"``. Initially the watermark is unknown and the processing time
    is 0; ``at`` is the processing time of an event.

    >>> import slackwater as sw
    >>> from slackwater.testing import TestStream
    >>> from slackwater.windows import Fixed, Sum
    >>> stream = (
    ...     TestStream()
    ...     .add("key | ts | price \n a | 3 | 5 \n a | 8 | 2")
    ...     .advance_watermark(10)
    ...     .add("key | ts | price \n a | 9 | 100")
    ... )
    >>> operator = sw.WindowedOperator(
    ...     window=Fixed(10), accumulations={"total": Sum("price")}, key=("key",), event_time="ts"
    ... )
    >>> run = stream.run(operator)
    >>> run.steps[1].output.panes.select("key", "window_start", "window_end", "total", "timing").rows()
    [('a', 0, 10, 7, 'ON_TIME')]
    >>> run.dropped_late
    1
    """

    __test__: ClassVar[bool] = False  # pytest would collect it by its name

    events: tuple[Event, ...] = ()

    def add(
        self,
        rows: pl.DataFrame | str,
        *,
        side: Side | None = None,
        at: Moment | None = None,
        input: str | None = None,  # noqa: A002 - the word for it
    ) -> TestStream:
        r"""Add a batch of rows.

        Args:
            rows: the rows, as a frame or a text table.
            side: the input they belong to, for an operator with two inputs.
            at: the processing time of their arrival; unchanged by default.
            input: the parameter that gets them, for a pipeline with several inputs.

        >>> from slackwater.testing import TestStream
        >>> TestStream().add("ts \n 3").events[0].rows.rows()
        [(3,)]
        """
        frame = T(rows) if isinstance(rows, str) else rows
        return self._then(ScriptedElements(frame, _checked_side(side), _checked_clock(at), input))

    def step(
        self,
        rows: pl.DataFrame | str | None = None,
        *,
        left: pl.DataFrame | str | None = None,
        right: pl.DataFrame | str | None = None,
        watermark: Moment | None = None,
        left_watermark: Moment | None = None,
        right_watermark: Moment | None = None,
        at: Moment | None = None,
    ) -> TestStream:
        r"""Add rows and watermarks that arrive in one step, as in one micro-batch.

        The rows are judged by the watermarks before the step; then the watermarks advance.

        Args:
            rows: the rows, for an operator with one input.
            left: the rows of the left input.
            right: the rows of the right input.
            watermark: the new watermark, of both inputs if there are two.
            left_watermark: the new watermark of the left input.
            right_watermark: the new watermark of the right input.
            at: the processing time; unchanged by default.

        Raises:
            InvalidArgument: the step is empty, or has ``watermark`` and that of a side.

        >>> import slackwater as sw
        >>> from slackwater.testing import TestStream
        >>> import polars as pl
        >>> columns = {"ts": pl.Int64}
        >>> join = sw.JoinOperator(sw.JoinSpec(on=(), before=0, after=5), left=columns, right=columns)
        >>> TestStream().step(left="ts \n 3", right="ts \n 4", watermark=10).run(join).rows.rows()
        [(3, 4)]
        """
        given: dict[Side | None, pl.DataFrame | str | None] = {None: rows, "left": left, "right": right}
        marks: dict[Side | None, Moment | None] = {
            None: watermark, "left": left_watermark, "right": right_watermark,
        }  # fmt: skip
        if watermark is not None and (left_watermark is not None or right_watermark is not None):
            raise InvalidArgument(
                "watermark", watermark, "is given for both sides and for one", fix="give the sides only"
            )
        elements = tuple(
            ScriptedElements(T(table) if isinstance(table, str) else table, side)
            for side, table in given.items()
            if table is not None
        )
        moves = tuple(
            WatermarkMove(moment(to, name="watermark"), side) for side, to in marks.items() if to is not None
        )
        if not elements and not moves:
            raise InvalidArgument(
                "step", (), "is empty", fix="give rows or a watermark, or use advance_processing_time"
            )
        return self._then(Together(elements, moves, _checked_clock(at)))

    def advance_watermark(
        self,
        to: Moment,
        *,
        side: Side | None = None,
        at: Moment | None = None,
        input: str | None = None,  # noqa: A002 - the word for it
    ) -> TestStream:
        """Advance the watermark: no element with an event time below ``to`` is expected any more.

        Args:
            to: the new watermark.
            side: the input it belongs to; both inputs by default.
            at: the processing time; unchanged by default.
            input: the parameter of a pipeline whose watermark advances; all of them by default.

        >>> from slackwater.testing import TestStream
        >>> TestStream().advance_watermark("10 seconds").events[0].to
        10000000
        """
        at_clock = _checked_clock(at)
        return self._then(WatermarkMove(moment(to, name="to"), _checked_side(side), at_clock, input))

    def advance_processing_time(self, by: int | str | timedelta) -> TestStream:
        """Advance the processing time by a duration.

        Args:
            by: a duration: microseconds, text such as "5 seconds", or a timedelta.

        >>> from slackwater.testing import TestStream
        >>> TestStream().advance_processing_time("5 seconds").events[0].by
        5000000
        """
        step = duration(by, name="by") if isinstance(by, (str, timedelta)) else check_int64(by, "by")
        if step < 0:
            raise InvalidArgument("by", by, "is negative", fix="use a duration that is not negative")
        return self._then(ClockMove(step))

    def idle(self, *, side: Side | None = None, at: Moment | None = None) -> TestStream:
        r"""Make an input idle until its next rows or watermark.

        Args:
            side: the input; all inputs by default.
            at: the processing time; unchanged by default.

        >>> import slackwater as sw
        >>> from slackwater.testing import TestStream
        >>> from slackwater.windows import Fixed, Sum
        >>> totals = sw.WindowedOperator(
        ...     window=Fixed(10), accumulations={"total": Sum("price")}, event_time="ts", idle="close"
        ... )
        >>> TestStream().step("ts | price \n 3 | 5", watermark=4).idle().run(totals).panes["total"].to_list()
        [5]
        """
        return self._then(Silence(_checked_side(side), _checked_clock(at)))

    def end(self, *, at: Moment | None = None) -> TestStream:
        """End the input on all sides: the watermark advances to the end of time.

        Args:
            at: the processing time; unchanged by default.

        >>> import slackwater as sw
        >>> from slackwater.testing import TestStream
        >>> TestStream().end().events[0].to == sw.END_OF_TIME
        True
        """
        return self._then(WatermarkMove(END_OF_TIME, at=_checked_clock(at)))

    @overload
    def run(self, operator: WindowedOperator | MergeOperator, *, restart: bool = False) -> WindowRun: ...
    @overload
    def run(self, operator: JoinOperator | AsofOperator, *, restart: bool = False) -> JoinRun: ...
    @overload
    def run(self, operator: DeduplicateOperator, *, restart: bool = False) -> DeduplicateRun: ...
    @overload
    def run(self, operator: Callable[..., Any], *, restart: bool = False) -> PipelineRun: ...
    def run(
        self,
        operator: WindowedOperator
        | MergeOperator
        | JoinOperator
        | AsofOperator
        | DeduplicateOperator
        | Callable[..., Any],
        *,
        restart: bool = False,
    ) -> WindowRun | JoinRun | DeduplicateRun | PipelineRun:
        r"""Run an operator, or the pipeline that a function builds, on the events.

        A function is called with the rows of the test in place of its DataFrames, and returns panes, joined
        rows or a stream: the pipeline that runs on Spark, unchanged. Each event is one micro-batch. The
        watermark is that of the pipeline, such as ``lag("5 seconds")`` behind the rows that were added;
        `advance_watermark` advances it further, as a row without content would. `end` ends the input.

        A column of integers that is an event time contains microseconds. The pipeline may use column names
        and SQL text; what only Spark can compute, such as ``F.lower("city")``, raises.

        Args:
            operator: the operator to run, from its initial state; or a function with a parameter for each
                input. With two parameters, ``side="left"`` and ``side="right"`` are the first and the second.
            restart: save and load the state between any two steps.

        Returns:
            The steps with their outputs.

        Raises:
            InvalidArgument: the events do not fit the operator, or the pipeline needs Spark.

        >>> import polars as pl
        >>> import slackwater as sw
        >>> from slackwater.testing import TestStream
        >>> columns = {"key": pl.String, "ts": pl.Int64}
        >>> join = sw.JoinOperator(sw.JoinSpec(on=("key",), before=0, after=5), left=columns, right=columns)
        >>> run = (
        ...     TestStream()
        ...     .add("key | ts \n a | 1", side="left")
        ...     .add("key | ts \n a | 6", side="right")
        ...     .run(join, restart=True)
        ... )
        >>> run.rows.rows()
        [('a', 1, 6)]
        >>> def busy(clicks):
        ...     rows = sw.stream(clicks, event_time="ts", watermark=sw.lag("0 seconds"))
        ...     counts = rows.key_by("page").window(sw.fixed("1 minute")).agg(clicks=sw.count())
        ...     return counts.filter("clicks > 1")
        >>> TestStream().add("page | ts[s] \n a | 3 \n a | 5 \n b | 7").end().run(busy).rows.rows()
        [('a', 2)]
        """
        if isinstance(operator, JoinOperator | AsofOperator):
            return self._run_join(operator, restart=restart)
        if isinstance(operator, DeduplicateOperator):
            return self._run_deduplicate(operator, restart=restart)
        if isinstance(operator, MergeOperator):
            return self._run_merge(operator, restart=restart)
        if isinstance(operator, WindowedOperator):
            return self._run_windowed(operator, restart=restart)
        if not callable(operator):
            raise InvalidArgument(
                "operator",
                operator,
                "is neither an operator nor a function that builds a pipeline",
                fix="pass the function itself: run(pipeline)",
            )
        return run_pipeline(self.events, operator, restart=restart)

    def _run_windowed(self, operator: WindowedOperator, *, restart: bool) -> WindowRun:
        def step(state: WindowState, arrived: _Arrived) -> tuple[WindowState, WindowOutput]:
            marks = {operator.spec.watermark_key: arrived.marks[None]} if arrived.marks else {}
            return operator.step(state, arrived.rows.get(None), marks, arrived.now, idle=None in arrived.idle)

        steps, state = self._replay((None,), operator, step, restart=restart)
        left = Leftovers(state.open_windows, 0, len(state.blobs))
        return WindowRun(steps, tuple(operator.spec.key), {None: operator.spec.event_time}, left)

    def _run_merge(self, operator: MergeOperator, *, restart: bool) -> WindowRun:
        def step(state: MergeState, arrived: _Arrived) -> tuple[MergeState, WindowOutput]:
            left, right = arrived.both
            return operator.step(state, left, right, arrived.by_side, arrived.now, idle=arrived.idle_sides)

        steps, state = self._replay(SIDES, operator, step, restart=restart)
        times: dict[Side | None, str] = {side: operator.spec.times[side] for side in SIDES}
        left = Leftovers(state.windows.open_windows, 0, len(state.blobs))
        return WindowRun(steps, tuple(operator.spec.key), times, left)

    def _run_join(self, operator: JoinOperator | AsofOperator, *, restart: bool) -> JoinRun:
        def step(state: Any, arrived: _Arrived) -> tuple[Any, JoinOutput | AsofOutput]:
            left, right = arrived.both
            return operator.step(state, left, right, arrived.by_side, idle=arrived.idle_sides)

        steps, state = self._replay(SIDES, operator, step, restart=restart)
        buffered = sum(chunk.rows for side in (state.left, state.right) for chunk in side.chunks)
        return JoinRun(steps, Leftovers(0, buffered, len(state.blobs)))

    def _run_deduplicate(self, operator: DeduplicateOperator, *, restart: bool) -> DeduplicateRun:
        def step(state: DeduplicateState, arrived: _Arrived) -> tuple[DeduplicateState, DeduplicateOutput]:
            marks = {operator.spec.watermark_key: arrived.marks[None]} if arrived.marks else {}
            return operator.step(state, arrived.rows.get(None), marks)

        steps, state = self._replay((None,), operator, step, restart=restart)
        kept = sum(chunk.rows for chunk in state.kept.chunks)
        return DeduplicateRun(steps, Leftovers(0, kept, len(state.blobs)))

    def _replay(
        self,
        inputs: Sequence[Side | None],
        operator: _Operator[State],
        step: Callable[[State, _Arrived], tuple[State, Output]],
        *,
        restart: bool,
    ) -> tuple[tuple[Step[Output], ...], State]:
        """Run one step per event; return the steps and the last state. ``inputs`` are the valid sides."""
        clock = ManualClock()
        marks: dict[Side | None, int] = {}
        idle: set[Side | None] = set()
        watermark: int | None = None
        state = operator.initial_state()
        steps = []
        for event in self.events:
            batches = {_input(one.side, inputs): one.rows for one in elements_of(event)}
            for move in watermarks_of(event):
                sides = inputs if move.side is None else (_input(move.side, inputs),)
                marks = {**marks, **dict.fromkeys(sides, move.to)}
                idle -= set(sides)
            idle -= set(batches)
            if isinstance(event, Silence):
                idle |= set(inputs) if event.side is None else {_input(event.side, inputs)}
            move_clock(clock, event)
            state, output = step(state, _Arrived(batches, marks, frozenset(idle), clock()))
            if restart:
                state = operator.load(operator.save(state), dict(state.blobs))
            watermark = _coalesced(watermark, inputs, marks, idle)
            steps.append(Step(event, clock(), watermark, output))
        return tuple(steps), state

    def _then(self, event: Event) -> TestStream:
        return replace(self, events=(*self.events, event))


def _checked_side(side: Side | None) -> Side | None:
    if side is not None and side not in SIDES:
        raise InvalidArgument("side", side, "is not a valid side", fix='use "left" or "right"')
    return side


def _input(side: Side | None, inputs: Sequence[Side | None]) -> Side | None:
    """The side of an event; raises if the operator has no such input."""
    if side in inputs:
        return side
    if side is None:
        raise InvalidArgument(
            "side", None, "is missing for an operator with two inputs", fix='use add(…, side="left")'
        )
    raise InvalidArgument("side", side, "is given for an operator with one input", fix="leave it out")


def _coalesced(
    before: int | None,
    inputs: Sequence[Side | None],
    marks: Mapping[Side | None, int],
    idle: Set[Side | None],
) -> int | None:
    """The watermark of all inputs: the lowest of those that are not idle, the highest if all are (C2, C6)."""
    active = [side for side in inputs if side not in idle]
    known = [marks[side] for side in active if side in marks]
    if active and len(known) < len(active):
        return before
    reached = min(known) if active else max(marks.values(), default=before)
    return reached if before is None or (reached is not None and reached > before) else before


def _checked_clock(at: Moment | None) -> int | None:
    return None if at is None else moment(at, name="at")
