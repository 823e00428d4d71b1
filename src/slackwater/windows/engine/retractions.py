"""Panes as they are emitted: values, retractions of the panes they replace, suppression of unchanged ones.

In accumulating-and-retracting mode, and with ``only_updated``, the last emitted pane of each key and window
is kept. A new pane is emitted directly after the retraction of the kept pane, and replaces it. If every
element of a window was retracted, it has no pane any more, and the kept pane is only retracted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import polars as pl

from slackwater.time import END_OF_TIME
from slackwater.windows.engine.compiled_spec import CompiledSpec
from slackwater.windows.engine.firing import (
    PANE_INDEX,
    PANE_LAST,
    PANE_ON_TIME_INDEX,
    PANE_TIMESTAMP,
    PANE_TIMING,
)
from slackwater.windows.engine.frames import match, stack
from slackwater.windows.engine.window_state import KeyTimes
from slackwater.windows.operator_columns import END, REMAINING, ROW, START, key_column, value_column

PANE_START: Final = "pane:start"
PANE_END: Final = "pane:end"
_RETRACTION: Final = "pane:retraction"
_DESCRIPTION: Final = (PANE_TIMING, PANE_INDEX, PANE_ON_TIME_INDEX, PANE_LAST, PANE_TIMESTAMP)


@dataclass(frozen=True)
class Emission:
    """The panes of some window rows, the rows whose pane was suppressed, and the last panes to keep."""

    panes: pl.DataFrame
    suppressed: pl.Series
    last_panes: pl.DataFrame | None


def emit(
    rows: pl.DataFrame,
    compiled: CompiledSpec,
    last_panes: pl.DataFrame | None,
    parts: pl.DataFrame | None = None,
) -> Emission:
    """Build the panes of window rows that have their partials.

    Args:
        rows: the window rows that emit, with the columns that `decide` added and their partials.
        compiled: the operator.
        last_panes: the last panes of the same windows, if they are kept.
        parts: the partials with the elements of the rows, if the rows do not have them.

    >>> from slackwater.windows import Count, Fixed, WindowSpec
    >>> spec = WindowSpec(window=Fixed(10), accumulations={"n": Count()}, event_time="ts")
    >>> row = {START: 0, END: 10, "key:0": 0, ROW: 0, "part:n:n": 2, PANE_TIMING: "EARLY", PANE_INDEX: 0}
    >>> row |= {PANE_ON_TIME_INDEX: -1, PANE_LAST: False, PANE_TIMESTAMP: 9}
    >>> emit(pl.DataFrame([row]), CompiledSpec(spec), None).panes.select("window_end", "n", "timing").rows()
    [(10, 2, 'EARLY')]
    """
    values = [value_column(name) for name in compiled.spec.accumulations]
    emitted = compiled.with_values(rows, parts)
    withdrawn = emitted.clear()
    if compiled.spec.takes_retractions and compiled.spec.mode != "discarding":
        is_withdrawn = _is_withdrawn(compiled)
        withdrawn, emitted = emitted.filter(is_withdrawn), emitted.filter(~is_withdrawn)
    suppressed = withdrawn[ROW]
    if compiled.spec.only_updated and last_panes is not None:
        unchanged = _unchanged(emitted, last_panes, compiled, values)
        emitted = match(emitted, unchanged, [ROW], "anti")
        suppressed = pl.concat([suppressed, unchanged[ROW]])
    identity = [*compiled.row_columns, ROW]
    results = emitted.select(
        *identity, pl.col(START).alias(PANE_START), pl.col(END).alias(PANE_END), *values, *_DESCRIPTION,
        pl.lit(value=False).alias(_RETRACTION),
    )  # fmt: skip
    if not compiled.keeps_panes:
        return Emission(_output(results, compiled), suppressed, None)
    kept = results.filter(~pl.col(PANE_LAST)).drop(ROW)
    panes = results
    if last_panes is not None:
        replaced = stack([results.select(identity), withdrawn.select(identity)])
        if compiled.spec.retracts:
            retractions = match(last_panes, replaced, compiled.row_columns, "inner").with_columns(
                pl.lit(value=True).alias(_RETRACTION)
            )
            # A stable sort: the retractions of a row first, then the pane that replaces them.
            panes = stack([results, retractions]).sort(ROW, ~pl.col(_RETRACTION), maintain_order=True)
        kept = stack([match(last_panes, replaced, compiled.row_columns, "anti"), kept])
    return Emission(_output(panes, compiled), suppressed, kept)


def retraction_hold(last_panes: pl.DataFrame | None, compiled: CompiledSpec) -> int | None:
    """The watermark to hold while the last panes may be retracted: their lowest timestamp plus the lateness.

    An operator downstream with the same lateness then accepts the retractions, whatever its windows. A window
    that is not purged yet, and whose panes have its end as their timestamp, holds nothing by this. A session
    that was merged does, because its old window ends before the merged one.

    >>> from slackwater.windows import Count, Fixed, WindowSpec
    >>> spec = WindowSpec(
    ...     window=Fixed(10),
    ...     accumulations={"n": Count()},
    ...     event_time="ts",
    ...     allowed_lateness=5,
    ...     mode="accumulating_and_retracting",
    ... )
    >>> retraction_hold(pl.DataFrame({PANE_TIMESTAMP: [9, 3]}), CompiledSpec(spec))
    8
    """
    if last_panes is None or last_panes.is_empty():
        return None
    return held_at(pane_times(last_panes).hold, compiled)


def held_at(timestamp: int | None, compiled: CompiledSpec) -> int | None:
    """The watermark to hold while a pane with this timestamp may be retracted; None for no hold."""
    lateness = compiled.spec.allowed_lateness
    retracts = compiled.spec.retracts and compiled.emits_retractions
    if timestamp is None or not retracts or lateness is None:
        return None
    return min(timestamp + lateness, END_OF_TIME)


def pane_times(last_panes: pl.DataFrame) -> KeyTimes:
    """The lowest timestamp of some last panes."""
    return KeyTimes(hold=last_panes.select(pl.col(PANE_TIMESTAMP).min()).item())


def _is_withdrawn(compiled: CompiledSpec) -> pl.Expr:
    """Whether every element of a window row was retracted, so that it has no pane.

    An accumulating pane that was emitted before cannot be retracted, so an empty one replaces it.
    """
    empty = (pl.col(REMAINING) == 0).fill_null(value=False)
    return empty if compiled.spec.retracts else empty & (pl.col(PANE_INDEX) == 0)


def _unchanged(
    emitted: pl.DataFrame, last_panes: pl.DataFrame, compiled: CompiledSpec, values: list[str]
) -> pl.DataFrame:
    """The rows whose values equal those of the last pane, unless they owe a retraction of another window."""
    same_window = (pl.col(PANE_START) == pl.col(START)) & (pl.col(PANE_END) == pl.col(END))
    last = last_panes.filter(same_window).select(
        *compiled.row_columns, *(pl.col(name).alias(f"last:{name}") for name in values)
    )
    owing = last_panes.filter(~same_window).select(compiled.row_columns)
    candidates = match(emitted, owing, compiled.row_columns, "anti")
    candidates = match(candidates, last, compiled.row_columns, "inner")
    equal = [pl.col(name).eq_missing(pl.col(f"last:{name}")) for name in values]
    return candidates.filter(*equal).select(ROW)


def _output(panes: pl.DataFrame, compiled: CompiledSpec) -> pl.DataFrame:
    """The panes under the names of `WindowSpec.pane_columns`."""
    keys = [pl.col(key_column(number)).alias(name) for number, name in enumerate(compiled.spec.key)]
    return panes.select(
        *keys,
        pl.col(PANE_START).alias("window_start"),
        pl.col(PANE_END).alias("window_end"),
        *(pl.col(value_column(name)).alias(name) for name in compiled.spec.accumulations),
        pl.col(PANE_TIMING).alias("timing"),
        pl.col(PANE_INDEX).alias("index"),
        pl.col(PANE_ON_TIME_INDEX).alias("on_time_index"),
        (pl.col(PANE_INDEX) == 0).alias("is_first"),
        pl.col(PANE_LAST).alias("is_last"),
        pl.col(_RETRACTION).alias("retraction"),
        pl.col(PANE_TIMESTAMP).alias("timestamp"),
    )
