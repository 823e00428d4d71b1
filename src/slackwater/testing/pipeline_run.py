"""The run of a user's pipeline on a scripted stream: the same function as on Spark, in this process."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from slackwater._suggestions import available
from slackwater.errors import InvalidArgument
from slackwater.testing.manual_clock import ManualClock
from slackwater.testing.scripted_run import (
    Event,
    Leftovers,
    ScriptedElements,
    Silence,
    WatermarkMove,
    elements_of,
    move_clock,
    watermarks_of,
)
from slackwater.time import END_OF_TIME
from slackwater.windows.spec.operator_spec import SIDES

if TYPE_CHECKING:
    from slackwater.spark.in_process.pipeline_execution import BatchOutput, PipelineExecution

_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True)
class PipelineStep:
    r"""One event, with the processing time, and what the last operator of the pipeline emitted.

    >>> import slackwater as sw
    >>> from slackwater.testing import TestStream
    >>> def counts(bids):
    ...     rows = sw.stream(bids, event_time="ts", watermark=sw.lag("0 seconds"))
    ...     return rows.window(sw.fixed("10 seconds")).agg(n=sw.count())
    >>> step = TestStream().add("ts[s] | price \n 12 | 5").run(counts).steps[0]
    >>> step.watermark, step.rows.height
    (12000000, 0)
    """

    event: Event
    now: int
    watermark: int | None
    """The watermark of the last operator, in microseconds; None if it is not known yet."""
    rows: pl.DataFrame
    """The rows as ``to_df()`` returns them on Spark."""
    panes: pl.DataFrame | None
    """The panes with plain columns and times in microseconds; None if the rows are not panes."""


@dataclass(frozen=True, slots=True, repr=False)
class PipelineRun:
    r"""The run of a pipeline: its steps, and everything that it emitted, in order.

    >>> import slackwater as sw
    >>> from slackwater.testing import TestStream
    >>> def totals(bids):
    ...     rows = sw.stream(bids, event_time="ts", watermark=sw.lag("2 seconds"))
    ...     return rows.key_by("auction").window(sw.fixed("10 seconds")).agg(total=sw.sum("price"))
    >>> bids = (
    ...     TestStream()
    ...     .add("auction | ts[s] | price \n a | 3 | 5 \n a | 8 | 2")
    ...     .add("auction | ts[s] | price \n a | 12 | 1")
    ... )
    >>> run = bids.run(totals)
    >>> run.panes.select("auction", "window_end", "total", "timing").rows()
    [('a', 10000000, 7, 'ON_TIME')]
    >>> run.steps[-1].watermark, run.dropped_late
    (10000000, 0)
    >>> run
    PipelineRun[auction, window, total, pane], 2 steps, 1 row
    """

    steps: tuple[PipelineStep, ...]
    counters: Mapping[str, int]
    """Counters of all operators together, such as ``dropped_late`` and ``invalid``; see `slackwater.why`."""
    left: Leftovers
    """What is in the state of all operators after the last step."""

    def __repr__(self) -> str:
        rows, steps = self.rows, len(self.steps)
        counts = (
            f"{number} {name}{'' if number == 1 else 's'}"
            for number, name in ((steps, "step"), (rows.height, "row"))
        )
        return f"PipelineRun[{', '.join(rows.columns)}], {', '.join(counts)}"

    @property
    def rows(self) -> pl.DataFrame:
        """All rows, with the columns that ``to_df()`` returns on Spark."""
        frames = [step.rows for step in self.steps]
        return pl.concat(frames, how="vertical_relaxed") if frames else pl.DataFrame()

    @property
    def panes(self) -> pl.DataFrame:
        """All panes with plain columns: the key, the bounds of the window in microseconds, values and timing.

        Raises:
            InvalidArgument: The pipeline returns no panes but rows, of a join or a stream.
        """
        frames = [step.panes for step in self.steps if step.panes is not None]
        if self.steps and not frames:
            raise InvalidArgument(
                "panes", None, "do not exist: the pipeline returns rows", fix="use run.rows"
            )
        filled = [frame for frame in frames if not frame.is_empty()]
        return pl.concat(filled, how="diagonal_relaxed") if filled else pl.DataFrame()

    @property
    def dropped_late(self) -> int:
        """The number of rows that operators dropped as late, once for each window."""
        return self.counters.get("dropped_late", 0)


def run_pipeline(events: Sequence[Event], function: Callable[..., Any], *, restart: bool) -> PipelineRun:
    """Run the pipeline that a function builds; the implementation of `TestStream.run` for functions."""
    from slackwater.spark.in_process.pipeline_execution import MicroBatch

    inputs = _parameters(function)
    execution = _execution(function, _columns(events, inputs))
    clock = ManualClock()
    steps: list[PipelineStep] = []
    output: BatchOutput | None = None
    for number, event in enumerate(events, start=1):
        move_clock(clock, event)
        moves = {name: move.to for move in watermarks_of(event) for name in _inputs_of(move, inputs)}
        ends = any(move.to == END_OF_TIME for move in watermarks_of(event))
        rows: dict[str, list[pl.DataFrame]] = {}
        for elements in elements_of(event):
            (name,) = _inputs_of(elements, inputs)
            rows.setdefault(name, []).append(elements.rows)
        reached = {name: to for name, to in moves.items() if to != END_OF_TIME}
        output = execution.step(MicroBatch(rows, reached, clock(), number if restart else 1, ends))
        watermark = output.reports[-1].watermark if output.reports else None
        steps.append(PipelineStep(event, clock(), watermark, output.rows, output.panes))
    return PipelineRun(tuple(steps), _counters(output), _leftovers(output))


def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of the inputs: the parameters without a default."""
    parameters = inspect.signature(function).parameters.values()
    names = tuple(one.name for one in parameters if one.kind in _POSITIONAL and one.default is one.empty)
    if not names:
        raise InvalidArgument(
            "pipeline",
            getattr(function, "__name__", function),
            "has no parameter for its input",
            fix="write def pipeline(df): return slackwater.stream(df, …)…",
        )
    return names


def _inputs_of(event: ScriptedElements | WatermarkMove, inputs: Sequence[str]) -> tuple[str, ...]:
    """The inputs that an event belongs to: all of them if a watermark does not name one."""
    if event.input is not None:
        if event.input not in inputs:
            raise InvalidArgument(
                "input", event.input, "is not a parameter of the pipeline", fix=available(event.input, inputs)
            )
        return (event.input,)
    if event.side is not None:
        if len(inputs) != len(SIDES):
            raise InvalidArgument(
                "side",
                event.side,
                f"is given for a pipeline with {len(inputs)} inputs",
                fix="leave it out" if len(inputs) == 1 else f"write input={inputs[0]!r}",
            )
        return (inputs[SIDES.index(event.side)],)
    if isinstance(event, ScriptedElements) and len(inputs) > 1:
        raise InvalidArgument(
            "input", None, "is missing for a pipeline with several inputs", fix=f"write input={inputs[0]!r}"
        )
    return tuple(inputs)


def _columns(events: Sequence[Event], inputs: Sequence[str]) -> dict[str, Mapping[str, pl.DataType]]:
    """The columns of each input, from all of its rows."""
    frames: dict[str, list[pl.DataFrame]] = {name: [] for name in inputs}
    for event in events:
        if isinstance(event, Silence):
            raise InvalidArgument(
                "idle",
                event.side,
                "cannot be scripted for a pipeline, whose inputs become idle by the clock",
                fix="use advance_processing_time, longer than idle_after and in several steps",
            )
        for elements in elements_of(event):
            (name,) = _inputs_of(elements, inputs)
            frames[name].append(elements.rows.clear())
    for name, several in frames.items():
        if not several:
            raise InvalidArgument(
                "input",
                name,
                "has no rows, so its columns are unknown",
                fix=f"add(pl.DataFrame(schema=…), input={name!r})",
            )
    return {name: dict(pl.concat(several, how="diagonal_relaxed").schema) for name, several in frames.items()}


def _execution(
    function: Callable[..., Any], columns: Mapping[str, Mapping[str, pl.DataType]]
) -> PipelineExecution:
    """The pipeline that the function builds over scripted rows."""
    from slackwater.spark.in_process.pipeline_execution import PipelineExecution
    from slackwater.spark.in_process.scripted_rows import ScriptedRows, built

    result = built(function, [ScriptedRows(name, kinds) for name, kinds in columns.items()])
    return PipelineExecution(result)


def _counters(output: BatchOutput | None) -> dict[str, int]:
    totals: dict[str, int] = {}
    for report in () if output is None else output.reports:
        for name, count in report.totals.items():
            totals[name] = totals.get(name, 0) + count
    return totals


def _leftovers(output: BatchOutput | None) -> Leftovers:
    if output is None:
        return Leftovers(0, 0, 0)
    windows = sum(report.open_windows for report in output.reports)
    rows = sum(size.rows for report in output.reports for size in report.buffers.values())
    return Leftovers(windows, rows, output.blobs)
