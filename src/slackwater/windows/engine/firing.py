"""Firing: which window rows emit a pane, with which timing and index.

`decide` evaluates the trigger and the purge for all window rows at once. A window row is one key in one
window; the decision updates its columns and adds the ``pane:`` columns that describe the pane. The panes
themselves are built in `slackwater.windows.engine.retractions`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import polars as pl

from slackwater.time import BEGINNING_OF_TIME
from slackwater.windows.engine.compiled_spec import CompiledSpec
from slackwater.windows.engine.compiled_trigger import Moment
from slackwater.windows.engine.window_state import WindowState
from slackwater.windows.operator_columns import (
    CLOSED,
    END,
    FIRED,
    FIRST,
    FRESH,
    INDEX,
    NEW,
    ON_TIME,
    ROW,
    STAMP,
)

FIRES: Final = "pane:fires"
"""Whether the row fires: its trigger is ready, or its window is purged."""
EMITS: Final = "pane:emits"
"""Whether the row fires and its pane is emitted."""
PANE_LAST: Final = "pane:last"
PANE_INDEX: Final = "pane:index"
PANE_ON_TIME_INDEX: Final = "pane:on_time_index"
PANE_TIMING: Final = "pane:timing"
PANE_TIMESTAMP: Final = "pane:timestamp"
_READY: Final = "pane:ready"


@dataclass(frozen=True)
class Evaluation:
    """The occasion on which window rows are evaluated: a batch, a watermark, or the clock.

    Args:
        watermark: the operator's watermark.
        clock: the processing time.
        step: the number of the step.
        due: for which rows the trigger is evaluated.
        purged: which rows are purged.
        completes: which rows' windows this watermark completes.
        expired: which rows are purged because of the ttl; None if keys do not expire on this occasion.
        selected: whether only the rows that may be due were read of windows that are divided by key.
        evaluates_trigger: False if no row is due, so that the trigger need not be evaluated.
    """

    watermark: int
    clock: int
    step: int
    due: pl.Expr
    purged: pl.Expr = field(default_factory=lambda: pl.lit(value=False))
    completes: pl.Expr = field(default_factory=lambda: pl.lit(value=False))
    expired: pl.Expr | None = None
    selected: bool = False
    evaluates_trigger: bool = True


def by_watermark(compiled: CompiledSpec, state: WindowState, before: int, watermark: int) -> Evaluation:
    """The evaluation after the watermark advanced: rows that it completes, purges, or that wait for it."""
    completes = (pl.col(END) > before) & (pl.col(END) <= watermark)
    reached = (compiled.event_target(before) <= watermark).fill_null(value=False)
    purged = compiled.lateness.purge_times(pl.col(END)) <= watermark
    expired = None
    if compiled.spec.ttl is not None:
        expired = (compiled.lateness.expiry() <= watermark).fill_null(value=False)
        purged = purged | expired
    return Evaluation(watermark, state.clock, state.step, completes | reached, purged, completes, expired)


def by_clock(compiled: CompiledSpec, state: WindowState, before: int) -> Evaluation:
    """The evaluation after the clock moved from ``before``: rows whose target time has passed are due."""
    watermark = BEGINNING_OF_TIME if state.watermark is None else state.watermark
    passed = (compiled.trigger.target(before) < state.clock).fill_null(value=False)
    return Evaluation(watermark, state.clock, state.step, passed)


def after_restart(compiled: CompiledSpec, state: WindowState) -> Evaluation:
    """The evaluation after the trigger was changed: rows with elements that were not emitted are due."""
    watermark = BEGINNING_OF_TIME if state.watermark is None else state.watermark
    kept = compiled.lateness.purge_times(pl.col(END)) > watermark
    return Evaluation(watermark, state.clock, state.step, kept & (pl.col(NEW) > 0))


def decide(rows: pl.DataFrame, compiled: CompiledSpec, evaluation: Evaluation) -> pl.DataFrame:
    """The window rows after the firing, with the columns that describe their panes.

    >>> from slackwater.windows import Count, Fixed, WindowSpec
    >>> spec = WindowSpec(window=Fixed(10), accumulations={"n": Count()}, event_time="ts")
    >>> compiled = CompiledSpec(spec)
    >>> rows = pl.DataFrame({"start": [0], "end": [10], "key:0": [0]}).with_columns(compiled.new_rows)
    >>> rows = rows.with_columns(new=2, fresh=True, stamp=pl.lit(None, pl.Int64))
    >>> true = pl.lit(value=True)
    >>> evaluation = Evaluation(watermark=10, clock=0, step=1, due=true, completes=true)
    >>> decide(rows, compiled, evaluation).select(EMITS, PANE_TIMING, NEW, INDEX).rows()
    [(True, 'ON_TIME', 0, 1)]
    """
    complete = pl.col(END) <= evaluation.watermark
    is_open = ~pl.col(CLOSED)
    ready = pl.lit(value=False)
    finished, trigger_columns = pl.lit(value=False), list[pl.Expr]()
    if evaluation.evaluates_trigger:
        moment = Moment(complete, evaluation.clock, evaluation.watermark)
        is_ready = is_open & evaluation.due & ~evaluation.purged & compiled.trigger.ready(moment)
        rows = rows.with_columns(is_ready.alias(_READY))
        ready = pl.col(_READY)
        finished, trigger_columns = compiled.trigger.fire(ready, moment)
    fires = ready | (is_open & evaluation.purged)
    last = finished | evaluation.purged
    on_time = (pl.col(ON_TIME) == 0) & (pl.col(FRESH) | ((pl.col(NEW) == 0) & evaluation.completes))
    timing = (
        pl.when(~complete)
        .then(pl.lit("EARLY"))
        .when(on_time)
        .then(pl.lit("ON_TIME"))
        .otherwise(pl.lit("LATE"))
    )
    emits = pl.col(NEW) > 0
    if compiled.spec.on_time == "always":
        emits = emits | (complete & on_time)
    if compiled.spec.closing == "always":
        emits = emits | last
    rows = rows.with_columns(
        fires.alias(FIRES),
        (fires & emits).alias(EMITS),
        timing.alias(PANE_TIMING),
        pl.col(INDEX).alias(PANE_INDEX),
        pl.when(complete).then(pl.col(ON_TIME)).otherwise(-1).alias(PANE_ON_TIME_INDEX),
        last.alias(PANE_LAST),
        pl.coalesce(pl.col(STAMP), pl.col(END) - 1).alias(PANE_TIMESTAMP),
        (is_open & finished).or_(pl.col(CLOSED)).alias(CLOSED),
        *trigger_columns,
    )
    fires, emits = pl.col(FIRES), pl.col(EMITS)
    return rows.with_columns(
        pl.when(fires).then(0).otherwise(pl.col(NEW)).alias(NEW),
        pl.when(~fires).then(pl.col(FIRST)).alias(FIRST),
        (pl.col(FRESH) & ~fires).alias(FRESH),
        pl.when(~fires).then(pl.col(STAMP)).alias(STAMP),
        pl.when(fires).then(evaluation.step).otherwise(pl.col(FIRED)).cast(pl.Int64).alias(FIRED),
        (pl.col(INDEX) + emits).cast(pl.Int64).alias(INDEX),
        (pl.col(ON_TIME) + (emits & complete)).cast(pl.Int64).alias(ON_TIME),
    ).with_row_index(ROW)


def undo_suppressed(rows: pl.DataFrame, suppressed: pl.Series) -> pl.DataFrame:
    """Give back the indexes of panes that were suppressed after the decision.

    >>> rows = pl.DataFrame({ROW: [0, 1], INDEX: [1, 1], ON_TIME: [1, 1], PANE_ON_TIME_INDEX: [0, 0]})
    >>> undo_suppressed(rows, pl.Series([1]))[INDEX].to_list()
    [1, 0]
    """
    if suppressed.is_empty():
        return rows
    is_suppressed = pl.col(ROW).is_in(suppressed.implode())
    early = pl.col(PANE_ON_TIME_INDEX) < 0
    return rows.with_columns(
        (pl.col(INDEX) - is_suppressed).cast(pl.Int64).alias(INDEX),
        (pl.col(ON_TIME) - (is_suppressed & ~early)).cast(pl.Int64).alias(ON_TIME),
    )
