"""A common interface to the windowed operator and its reference model, so that tests can run either.

Rows are plain dictionaries: the key columns, `ts`, `value`, `retraction` if the input contains retractions,
and `window_start` and `window_end` for inherited windows. Both return an `Observed`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

import polars as pl

from slackwater import windows
from slackwater.windows.spec.operator_spec import Late
from tests.model.windows import Drop, Pane, Row, WindowedModel

EVENT_TIME = "ts"
VALUE = "value"
RETRACTION = "retraction"


@dataclass(frozen=True)
class Options:
    """The settings of a windowed operator."""

    window: windows.Window
    trigger: windows.Trigger = windows.DEFAULT_TRIGGER
    accumulations: tuple[str, ...] = ("count", "sum", "collect")
    key: tuple[str, ...] = ("key",)
    mode: str = "accumulating"
    allowed_lateness: int | None = 0
    on_time: str = "always"
    closing: str = "if_non_empty"
    timestamp: str = "end_of_window"
    drop_late: str = "by_window"
    idle: str = "hold"
    only_updated: bool = False
    retractions: bool = False
    """Whether the column `retraction` marks rows that retract an earlier one."""


@dataclass(frozen=True)
class Observed:
    """The output of a step: panes in order, dropped rows, and the forwarded watermark (None if unchanged)."""

    panes: tuple[Pane, ...] = ()
    dropped_late: int = 0
    dropped_closed: int = 0
    forwarded: int | None = None
    drops: tuple[Drop, ...] = field(default=())
    waiting: int | None = None
    expired: int = 0
    takes_retractions: bool = False


class Subject(Protocol):
    """The operator or the model, with its state."""

    def step(self, rows: Sequence[Row], watermark: int | None, now: int) -> Observed:
        """Run one step with a batch, a watermark and a processing time."""


def accumulate(names: Iterable[str], rows: Sequence[Row]) -> Row:
    """The value of each accumulation over the rows; without rows, as in SQL."""
    remaining = remaining_rows(rows)
    values = [row[VALUE] for row in remaining if row[VALUE] is not None]
    count, known, total = 0, 0, 0
    for row in rows:
        weight = -1 if row.get(RETRACTION) else 1
        count += weight
        known += 0 if row[VALUE] is None else weight
        total += (row[VALUE] or 0) * weight
    by_time = sorted((row for row in remaining if row[VALUE] is not None), key=lambda row: row[EVENT_TIME])
    results: Row = {
        "count": count,
        "sum": total if known else None,
        "min": min(values, default=None),
        "max": max(values, default=None),
        "mean": total / known if known else None,
        "first": by_time[0][VALUE] if values else None,
        "last": by_time[-1][VALUE] if values else None,
        "collect": sorted(values),
        "collect_set": sorted(set(values)),
        "sort": sorted(values),
        "top_n": sorted(values, reverse=True)[:2],
        "count_distinct": len(set(values)),
        "sum_distinct": sum(set(values)) if values else None,
        "ordered": [row[VALUE] for row in by_time],
    }
    return {name: results[name] for name in names}


def remaining_rows(rows: Sequence[Row]) -> list[Row]:
    """The rows that were not retracted; with retractions, those with equal event times by value."""
    if not any(RETRACTION in row for row in rows):
        return list(rows)
    counts: Counter[tuple[int, float | None]] = Counter()
    for row in rows:
        counts[row[EVENT_TIME], row[VALUE]] += -1 if row[RETRACTION] else 1
    known = [element for element in counts.elements() if element[1] is not None]
    return [{EVENT_TIME: at, VALUE: value} for at, value in sorted(known)]


class ModelSubject:
    """The reference model."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.model = WindowedModel(
            options.window,
            options.trigger,
            lambda rows: accumulate(options.accumulations, rows),
            mode=options.mode,
            allowed_lateness=options.allowed_lateness,
            on_time=options.on_time,
            closing=options.closing,
            timestamp=options.timestamp,
            drop_late=options.drop_late,
            idle=options.idle,
            only_updated=options.only_updated,
            retractions=RETRACTION if options.retractions else None,
        )

    def step(self, rows: Sequence[Row], watermark: int | None, now: int, *, idle: bool = False) -> Observed:
        keyed = [(tuple(row[name] for name in self.options.key), row[EVENT_TIME], row) for row in rows]
        output = self.model.step(keyed, watermark, now, idle=idle)
        return Observed(
            panes=tuple(pane for emission in output.emissions for pane in emission.panes),
            dropped_late=output.dropped("late"),
            dropped_closed=output.dropped("closed"),
            forwarded=output.forwarded,
            drops=tuple(self._drop(drop) for drop in output.drops),
            waiting=output.waiting,
            expired=output.expired,
            takes_retractions=self.options.retractions,
        )

    def _drop(self, drop: Drop) -> Drop:
        """The drop with the columns that are compared; a row with an inherited window keeps it."""
        window = drop.window
        if "window_start" in drop.row:
            window = drop.row["window_start"], drop.row["window_end"]
        kept = {name: drop.row[name] for name in (*self.options.key, EVENT_TIME, VALUE)}
        return Drop(kept, drop.reason, window)


class OperatorSubject:
    """The columnar operator; `reload` saves its state and continues from the saved bytes."""

    late: Late = "emit"

    def __init__(self, options: Options, schema: Mapping[str, Any] | None = None) -> None:
        self.options = options
        self.schema = schema
        known: dict[str, windows.ColumnarAccumulation] = {
            "count": windows.count(),
            "sum": windows.sum(VALUE),
            "min": windows.min(VALUE),
            "max": windows.max(VALUE),
            "mean": windows.mean(VALUE),
            "first": windows.first(VALUE),
            "last": windows.last(VALUE),
            "collect": windows.collect(VALUE),
            "collect_set": windows.collect_set(VALUE),
            "sort": windows.sort(VALUE),
            "top_n": windows.top_n(VALUE, 2),
            "count_distinct": windows.count_distinct(VALUE),
            "sum_distinct": windows.sum_distinct(VALUE),
            "ordered": windows.collect(VALUE, ordered=True),
        }
        self.operator = windows.WindowedOperator(
            window=options.window,
            trigger=options.trigger,
            accumulations={name: known[name] for name in options.accumulations},
            key=options.key,
            event_time=EVENT_TIME,
            mode=options.mode,
            allowed_lateness=options.allowed_lateness,
            on_time=options.on_time,
            closing=options.closing,
            timestamp=options.timestamp,
            drop_late=options.drop_late,
            idle=options.idle,
            late=self.late,
            only_updated=options.only_updated,
            allow_data_loss=True,
            retractions=RETRACTION if options.retractions else None,
        )
        self.state = self.operator.initial_state()

    def step(self, rows: Sequence[Row], watermark: int | None, now: int, *, idle: bool = False) -> Observed:
        batch = None
        if rows or self.schema is not None:  # with a schema, a step without rows is an empty frame
            batch = pl.DataFrame(rows, schema=self.schema, infer_schema_length=None)
        watermarks = {} if watermark is None else {"default": watermark}
        output = self.run_step(batch, watermarks, now, idle=idle)
        late = [] if output.late is None else output.late.iter_rows(named=True)
        return Observed(
            panes=tuple(self._pane(row) for row in output.panes.iter_rows(named=True)),
            dropped_late=output.dropped_late,
            dropped_closed=output.dropped_closed,
            forwarded=output.watermarks.get("default"),
            drops=tuple(self._drop(row) for row in late),
            waiting=output.waiting,
            expired=output.expired_keys,
            takes_retractions=self.options.retractions,
        )

    def run_step(
        self, batch: pl.DataFrame | None, watermarks: dict[str, int], now: int, *, idle: bool = False
    ) -> windows.WindowOutput:
        """Run one step with the unchanged batch."""
        self.state, output = self.operator.step(self.state, batch, watermarks, now, idle=idle)
        return output

    def reload(self) -> None:
        """Save the state and load it again, which must not change anything."""
        self.state = self.operator.load(self.operator.save(self.state), dict(self.state.blobs))

    def _pane(self, row: Row) -> Pane:
        values = {name: row[name] for name in self.options.accumulations}
        for name in values.keys() & {"collect", "collect_set"}:
            values[name] = sorted(values[name])  # their order is not defined
        return pane_of(row, self.options.key, values)

    def _drop(self, row: Row) -> Drop:
        bounds = None if row["window_start"] is None else (row["window_start"], row["window_end"])
        return Drop(
            {name: row[name] for name in (*self.options.key, EVENT_TIME, VALUE)}, row["reason"], bounds
        )


class FoldedSubject(OperatorSubject):
    """The columnar operator with batches split and folded before the step; it does not return late rows.

    Two of the three parts are merged before the step, as a task does that folds its rows in turns.
    """

    late = "count"
    parts = 3

    @property
    def can_run(self) -> bool:
        return self.operator.can_fold

    def run_step(
        self, batch: pl.DataFrame | None, watermarks: dict[str, int], now: int, *, idle: bool = False
    ) -> windows.WindowOutput:
        folded: list[windows.Folded] = []
        if batch is not None:
            cuts = [batch.height * part // self.parts for part in range(self.parts + 1)]
            *first, last = (self.operator.fold(batch[low:high]) for low, high in pairwise(cuts))
            folded = [self.operator.merge_folded(first), last]
        self.state, output = self.operator.step(self.state, None, watermarks, now, folded=folded, idle=idle)
        return output


def pane_of(row: Row, key: Sequence[str], values: Mapping[str, Any]) -> Pane:
    """A pane of the model from an output row of an operator."""
    return Pane(
        key=tuple(row[name] for name in key),
        start=row["window_start"],
        end=row["window_end"],
        values=dict(values),
        timing=row["timing"],
        index=row["index"],
        on_time_index=row["on_time_index"],
        is_first=row["is_first"],
        is_last=row["is_last"],
        timestamp=row["timestamp"],
        retraction=row["retraction"],
    )


def blocks(panes: Iterable[Pane]) -> list[tuple[tuple[Pane, ...], Pane]]:
    """Each pane with the retractions directly before it.

    Raises an AssertionError for a retraction that is followed by nothing, by a pane of another key, or by a
    window that does not cover its own.
    """
    found: list[tuple[tuple[Pane, ...], Pane]] = []
    waiting: list[Pane] = []
    for pane in panes:
        if pane.retraction:
            waiting.append(pane)
            continue
        for old in waiting:
            assert old.key == pane.key, f"retraction not directly before its replacement: {old} before {pane}"
            assert pane.start <= old.start <= old.end <= pane.end, f"{old} is not replaced by {pane}"
        found.append((tuple(waiting), pane))
        waiting = []
    assert not waiting, f"retraction without a replacement: {waiting}"
    return found


def canonical(observed: Observed) -> dict[str, Any]:
    """The parts that must be equal; the order of windows and of retractions is not defined."""
    panes: list[Any]
    if observed.takes_retractions:
        # A retraction is emitted alone if everything in its window was retracted.
        panes = sorted(
            observed.panes,
            key=lambda pane: (repr(pane.key), pane.start, pane.end, pane.index, pane.retraction, pane.timing),
        )
    else:
        ordered = sorted(
            blocks(observed.panes), key=lambda block: (repr(block[1].key), block[1].start, block[1].end)
        )
        panes = [(sorted(retractions, key=repr), pane) for retractions, pane in ordered]
    return {
        "panes": panes,
        "dropped_late": observed.dropped_late,
        "dropped_closed": observed.dropped_closed,
        "forwarded": observed.forwarded,
        "drops": sorted(map(repr, observed.drops)),
        "waiting": observed.waiting,
        "expired": observed.expired,
    }
