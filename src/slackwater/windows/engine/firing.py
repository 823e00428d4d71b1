"""From rows to panes: who fires, what the pane says of itself, and what it takes back.

All of it for all rows at once. A row is one key in one window; deciding changes its columns as the firing
does, and emitting turns the rows that owe a pane into panes, each directly after the ones it replaces.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from slackwater.time import BEGINNING_OF_TIME
from slackwater.windows.engine.rules import (
    CLOSED,
    END,
    FIRED,
    FRESH,
    INDEX,
    ON_TIME,
    ROW,
    STAMP,
    START,
    Rules,
    match,
    stack,
)
from slackwater.windows.engine.trigger_machine import FIRST, NEW, Moment
from slackwater.windows.engine.window_state import WindowState

FIRES = "pane:fires"
WANTED = "pane:wanted"
_PANE_START = "pane:start"
_PANE_END = "pane:end"
_PANE = ["pane:timing", "pane:index", "pane:on_time_index", "pane:last", "pane:timestamp"]
_RETRACTION = "pane:retraction"


@dataclass(frozen=True)
class Question:
    """Why rows are looked at: whom to ask, who is purged, whose window completes; when.

    ``watermark`` and ``clock`` are what the operator knows at that moment.
    """

    watermark: int
    clock: int
    step: int
    asked: pl.Expr
    purged: pl.Expr = field(default_factory=lambda: pl.lit(value=False))
    completes: pl.Expr = field(default_factory=lambda: pl.lit(value=False))
    asks: bool = True
    """False if no row is asked at all, so that the trigger need not be evaluated."""


def clock_question(rules: Rules, state: WindowState, before: int) -> Question:
    """The clock moved from ``before``: rows whose target it passed are asked.

    >>> from slackwater.windows import Count, Fixed, WindowedOperator
    >>> operator = WindowedOperator(window=Fixed(10), accumulations={"n": Count()}, event_time="ts")
    >>> clock_question(operator.rules, operator.initial_state(), before=0).asks
    True
    """
    watermark = BEGINNING_OF_TIME if state.watermark is None else state.watermark
    passed = (rules.machine.target(before) < state.clock).fill_null(value=False)
    return Question(watermark, state.clock, state.step, passed)


def decide(rows: pl.DataFrame, rules: Rules, question: Question) -> pl.DataFrame:
    """The rows after the firing, with what their panes would say of themselves.

    >>> from slackwater.windows import Count, Fixed, WindowedOperator
    >>> rules = WindowedOperator(window=Fixed(10), accumulations={"n": Count()}, event_time="ts").rules
    >>> rows = pl.DataFrame({START: [0], END: [10], "key:0": [0]}).with_columns(rules.new_rows())
    >>> rows = rows.with_columns(new=2, fresh=True, stamp=pl.lit(None, pl.Int64))
    >>> question = Question(10, clock=0, step=1, asked=pl.lit(value=True), completes=pl.lit(value=True))
    >>> decide(rows, rules, question).select(WANTED, "pane:timing", NEW, INDEX).rows()
    [(True, 'ON_TIME', 0, 1)]
    """
    complete = pl.col(END) <= question.watermark
    is_open = ~pl.col(CLOSED)
    asked = pl.lit(value=False)
    finished, trigger = pl.lit(value=False), list[pl.Expr]()
    if question.asks:
        moment = Moment(complete, question.clock)
        ready = is_open & question.asked & ~question.purged & rules.machine.ready(moment)
        rows = rows.with_columns(ready.alias("pane:asked"))
        asked = pl.col("pane:asked")
        finished, trigger = rules.machine.fire(asked, moment)
    fires = asked | (is_open & question.purged)
    last = finished | question.purged
    on_time = (pl.col(ON_TIME) == 0) & (pl.col(FRESH) | ((pl.col(NEW) == 0) & question.completes))
    timing = (
        pl.when(~complete)
        .then(pl.lit("EARLY"))
        .when(on_time)
        .then(pl.lit("ON_TIME"))
        .otherwise(pl.lit("LATE"))
    )
    wanted = pl.col(NEW) > 0
    if rules.spec.on_time == "always":
        wanted = wanted | (complete & on_time)
    if rules.spec.closing == "always":
        wanted = wanted | last
    rows = rows.with_columns(
        fires.alias(FIRES),
        (fires & wanted).alias(WANTED),
        timing.alias("pane:timing"),
        pl.col(INDEX).alias("pane:index"),
        pl.when(complete).then(pl.col(ON_TIME)).otherwise(-1).alias("pane:on_time_index"),
        last.alias("pane:last"),
        pl.coalesce(pl.col(STAMP), pl.col(END) - 1).alias("pane:timestamp"),
        (is_open & finished).or_(pl.col(CLOSED)).alias(CLOSED),
        *trigger,
    )
    fires, wanted = pl.col(FIRES), pl.col(WANTED)
    return rows.with_columns(
        pl.when(fires).then(0).otherwise(pl.col(NEW)).alias(NEW),
        pl.when(~fires).then(pl.col(FIRST)).alias(FIRST),
        (pl.col(FRESH) & ~fires).alias(FRESH),
        pl.when(~fires).then(pl.col(STAMP)).alias(STAMP),
        pl.when(fires).then(question.step).otherwise(pl.col(FIRED)).cast(pl.Int64).alias(FIRED),
        (pl.col(INDEX) + wanted).cast(pl.Int64).alias(INDEX),
        (pl.col(ON_TIME) + (wanted & complete)).cast(pl.Int64).alias(ON_TIME),
    ).with_row_index(ROW)


@dataclass(frozen=True)
class Emission:
    """The panes of some rows; which rows were not emitted after all; and the panes that stand now."""

    panes: pl.DataFrame
    suppressed: pl.Series | None
    standing: pl.DataFrame | None


def emit(wanted: pl.DataFrame, rules: Rules, standing: pl.DataFrame | None) -> Emission:
    """The panes of rows that have their partials; ``standing`` are earlier panes of the same windows.

    >>> from slackwater.windows import Count, Fixed, WindowedOperator
    >>> rules = WindowedOperator(window=Fixed(10), accumulations={"n": Count()}, event_time="ts").rules
    >>> row = {START: 0, END: 10, "key:0": 0, ROW: 0, "part:n:n": 2, "pane:timing": "EARLY", "pane:index": 0}
    >>> row |= {"pane:on_time_index": -1, "pane:last": False, "pane:timestamp": 9}
    >>> emit(pl.DataFrame([row]), rules, None).panes.select("window_end", "n", "timing").rows()
    [(10, 2, 'EARLY')]
    """
    values = [f"value:{name}" for name in rules.spec.accumulations]
    emitted = wanted.with_columns(*rules.values())
    suppressed: pl.Series | None = None
    if rules.spec.only_updated and standing is not None:
        unchanged = _unchanged(emitted, standing, rules, values)
        emitted = match(emitted, unchanged, [ROW], "anti")
        suppressed = unchanged[ROW]
    identity = [*rules.row_columns, ROW]
    results = emitted.select(
        *identity, pl.col(START).alias(_PANE_START), pl.col(END).alias(_PANE_END), *values, *_PANE,
        pl.lit(value=False).alias(_RETRACTION),
    )  # fmt: skip
    if not rules.keeps_standing:
        return Emission(_finished(results, rules), None, None)
    stands = results.filter(~pl.col("pane:last")).drop(ROW)
    panes = results
    if standing is not None:
        owners = results.select(identity)
        if rules.spec.mode == "accumulating_and_retracting":
            taken_back = match(standing, owners, rules.row_columns, "inner").with_columns(
                pl.lit(value=True).alias(_RETRACTION)
            )
            # A stable sort that puts what is taken back first, then its replacement.
            panes = stack([results, taken_back]).sort(ROW, ~pl.col(_RETRACTION), maintain_order=True)
        stands = stack([match(standing, owners, rules.row_columns, "anti"), stands])
    return Emission(_finished(panes, rules), suppressed, stands)


def _unchanged(
    emitted: pl.DataFrame, standing: pl.DataFrame, rules: Rules, values: list[str]
) -> pl.DataFrame:
    """The rows whose values are those of the last pane, unless they owe a retraction of another window."""
    own = (pl.col(_PANE_START) == pl.col(START)) & (pl.col(_PANE_END) == pl.col(END))
    last = standing.filter(own).select(
        *rules.row_columns, *(pl.col(name).alias(f"last:{name}") for name in values)
    )
    owing = standing.filter(~own).select(rules.row_columns)
    candidates = match(match(emitted, owing, rules.row_columns, "anti"), last, rules.row_columns, "inner")
    same = [pl.col(name).eq_missing(pl.col(f"last:{name}")) for name in values]
    return candidates.filter(*same).select(ROW)


def _finished(panes: pl.DataFrame, rules: Rules) -> pl.DataFrame:
    keys = [pl.col(f"key:{number}").alias(name) for number, name in enumerate(rules.spec.key)]
    return panes.select(
        *keys,
        pl.col(_PANE_START).alias("window_start"),
        pl.col(_PANE_END).alias("window_end"),
        *(pl.col(f"value:{name}").alias(name) for name in rules.spec.accumulations),
        pl.col("pane:timing").alias("timing"),
        pl.col("pane:index").alias("index"),
        pl.col("pane:on_time_index").alias("on_time_index"),
        (pl.col("pane:index") == 0).alias("is_first"),
        pl.col("pane:last").alias("is_last"),
        pl.col(_RETRACTION).alias("retraction"),
        pl.col("pane:timestamp").alias("timestamp"),
    )


def take_back_suppressed(rows: pl.DataFrame, suppressed: pl.Series | None) -> pl.DataFrame:
    """Panes that were not emitted after all consume no index.

    >>> rows = pl.DataFrame({ROW: [0, 1], INDEX: [1, 1], ON_TIME: [1, 1], "pane:on_time_index": [0, 0]})
    >>> take_back_suppressed(rows, pl.Series([1]))[INDEX].to_list()
    [1, 0]
    """
    if suppressed is None or suppressed.is_empty():
        return rows
    was = pl.col(ROW).is_in(suppressed.implode())
    early = pl.col("pane:on_time_index") < 0
    return rows.with_columns(
        (pl.col(INDEX) - was).cast(pl.Int64).alias(INDEX),
        (pl.col(ON_TIME) - (was & ~early)).cast(pl.Int64).alias(ON_TIME),
    )
