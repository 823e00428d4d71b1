"""Session windows: how batches, watermarks and the clock act on stored sessions.

A window row is a session of one key: its bounds, the state of its trigger, and its partials. Sessions are
stored in groups by the time they end, one blob per group, so that a batch reads only the groups it can
overlap, and the watermark only those it completes. How sessions merge is in
`slackwater.windows.engine.session_merging`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import polars as pl

from slackwater.time import BEGINNING_OF_TIME, SECOND
from slackwater.windows.assigners import Sessions, WindowBounds
from slackwater.windows.columns import ADDED, END, ROW, START, TIME
from slackwater.windows.engine.compiled_spec import CompiledSpec, StepResults
from slackwater.windows.engine.firing import (
    EMITS,
    FIRES,
    PANE_LAST,
    Evaluation,
    by_clock,
    by_watermark,
    decide,
    undo_suppressed,
)
from slackwater.windows.engine.frames import match, stack
from slackwater.windows.engine.retractions import emit, retraction_hold
from slackwater.windows.engine.session_merging import NEW_OWNER, SessionMerging
from slackwater.windows.engine.window_state import WindowEntry, WindowState

_GROUP: Final = "group"
_GAPS_IN_A_GROUP: Final = 8


class SessionWindows:
    """The session windows of one operator."""

    minimum_width = SECOND
    """The minimum width of a group, however short the gap."""

    def __init__(self, compiled: CompiledSpec, window: Sessions) -> None:
        self.compiled = compiled
        self.gap = window.gap
        self.width = max(_GAPS_IN_A_GROUP * window.gap, self.minimum_width)
        self.merging = SessionMerging(compiled, window.gap)

    # ---- the three phases of a step

    def add(self, state: WindowState, elements: pl.DataFrame, now: int, out: StepResults) -> None:
        """Add the elements of a batch; lateness is determined by the watermark before the step."""
        watermark = BEGINNING_OF_TIME if state.watermark is None else state.watermark
        elements = self._drop_late(elements, watermark, out)
        if elements.is_empty():
            return
        sessions = self.merging.sessions_of(elements, watermark)
        groups = self._overlapping(state, int(sessions[START].min()), int(sessions[END].max()))  # type: ignore[arg-type]
        stored = self._read_rows(state, groups)
        merge = self.merging.merge(stored, sessions, elements, watermark, out)
        last_panes = self._reassigned(self._read_last_panes(state, groups), merge.owners)
        merged = merge.merged.with_columns(self.compiled.add_to_rows(watermark, now)).drop(ADDED)
        # A trigger that waits for the end need not be evaluated for sessions that are not complete.
        due = pl.col(END) <= watermark if self.compiled.trigger.waits_for_end else pl.lit(value=True)
        any_due = merged.height > 0 and bool(merged.select(due.any()).item())
        # A retraction can shorten a session to one that would have been purged before.
        purged = self.compiled.lateness.purge_times(pl.col(END)) <= watermark
        evaluation = Evaluation(watermark, state.clock, state.step, due, purged, evaluates_trigger=any_due)
        if any_due:
            merged, last_panes = self._fire(merged, last_panes, evaluation, out)
        self._store(state, groups, [merge.untouched, merged], last_panes, evaluation)

    def advance(self, state: WindowState, before: int, watermark: int, out: StepResults) -> None:
        """Evaluate the sessions that the new watermark completes or purges."""
        groups = state.due_windows.take(watermark)
        if not groups:
            return
        evaluation = by_watermark(self.compiled, state, before, watermark)
        self._evaluate(state, groups, evaluation.due | evaluation.purged, evaluation, out)

    def tick(self, state: WindowState, before: int, out: StepResults) -> None:
        """Evaluate the sessions whose target time the clock has passed."""
        groups = state.targets.take(state.clock - 1)
        if not groups:
            return
        evaluation = by_clock(self.compiled, state, before)
        self._evaluate(state, groups, evaluation.due, evaluation, out)

    def _evaluate(
        self,
        state: WindowState,
        groups: list[WindowBounds],
        due: pl.Expr,
        evaluation: Evaluation,
        out: StepResults,
    ) -> None:
        rows = self._read_rows(state, groups)
        if rows is None:
            return
        evaluated, others = rows.filter(due), rows.filter(~due)
        last_panes = self._read_last_panes(state, groups)
        evaluated, last_panes = self._fire(evaluated, last_panes, evaluation, out)
        self._store(state, groups, [others, evaluated], last_panes, evaluation)

    def _drop_late(self, elements: pl.DataFrame, watermark: int, out: StepResults) -> pl.DataFrame:
        """The elements that are not late; each is tested with its own interval, before any merging."""
        lateness, spec = self.compiled.lateness, self.compiled.spec
        end = pl.col(TIME) + self.gap
        late = (lateness.purge_times(end) <= watermark) | lateness.is_late_by_element(watermark)
        dropped = elements.filter(late)
        if dropped.is_empty():
            return elements
        out.dropped_late += dropped.height
        if spec.late == "emit":
            nothing = pl.lit(None, pl.Int64())
            start, end = (pl.col(TIME), end) if spec.drop_late == "by_window" else (nothing, nothing)
            reason = pl.lit("late").alias("reason")
            out.late.append(dropped.select(ROW, reason, start.alias(START), end.alias(END)))
        return elements.filter(~late)

    def closing_time(self, state: WindowState) -> int | None:
        """The watermark that closes all open sessions."""
        rows = self._read_rows(state, state.windows)
        if rows is None:
            return None
        return int(rows.select(self.compiled.lateness.purge_times(pl.col(END)).max()).item())

    # ---- firing

    def _fire(
        self, rows: pl.DataFrame, last_panes: pl.DataFrame | None, evaluation: Evaluation, out: StepResults
    ) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Emit the panes that are due; the remaining rows, and the last panes to keep."""
        compiled = self.compiled
        if rows.is_empty():
            return rows, last_panes
        columns = rows.columns
        rows = decide(rows, compiled, evaluation)
        emitting = rows.filter(EMITS)
        if emitting.height:
            emission = emit(emitting, compiled, last_panes)
            if emission.panes.height:
                out.panes.append(emission.panes)
            if compiled.keeps_panes:
                last_panes = emission.last_panes
            rows = undo_suppressed(rows, emission.suppressed)
        if compiled.spec.mode == "discarding":
            partials = [name for name in columns if name.startswith("part:")]
            rows = rows.with_columns(
                pl.when(~pl.col(FIRES)).then(pl.col(name)).alias(name) for name in partials
            )
        if last_panes is not None:
            # A closed session takes no part in merging, so its last pane is never retracted.
            last_panes = match(last_panes, rows.filter(PANE_LAST), compiled.row_columns, "anti")
        rows = rows.filter(compiled.lateness.purge_times(pl.col(END)) > evaluation.watermark)
        return rows.select(columns), last_panes

    # ---- groups of sessions in the state

    def _overlapping(self, state: WindowState, start: int, end: int) -> list[WindowBounds]:
        """The groups with sessions that may overlap a time range."""
        return sorted(
            bounds
            for bounds, entry in state.windows.items()
            if entry.end > start and entry.earliest_start < end
        )

    def _read_rows(self, state: WindowState, groups: Iterable[WindowBounds]) -> pl.DataFrame | None:
        rows = state.read_all(state.windows[bounds].rows for bounds in groups)
        return None if rows is None else self.compiled.upgraded(rows)

    def _read_last_panes(self, state: WindowState, groups: Iterable[WindowBounds]) -> pl.DataFrame | None:
        return state.read_all(state.windows[bounds].last_panes for bounds in groups)

    def _reassigned(self, last_panes: pl.DataFrame | None, owners: pl.DataFrame) -> pl.DataFrame | None:
        """The last panes, assigned to the sessions into which their own were merged."""
        if last_panes is None or owners.is_empty():
            return last_panes
        found = match(last_panes, owners, self.compiled.row_columns, "left")
        moved = found.with_columns(pl.coalesce(owner, bound).alias(bound) for owner, bound in NEW_OWNER)
        return moved.drop(owner for owner, _ in NEW_OWNER)

    def _store(
        self,
        state: WindowState,
        groups: list[WindowBounds],
        frames: list[pl.DataFrame],
        last_panes: pl.DataFrame | None,
        evaluation: Evaluation,
    ) -> None:
        """Write the sessions into their groups, with the times at which each group is due again."""
        filled = [frame for frame in frames if frame.height]
        rows = stack(filled).with_columns(self._group()) if filled else None
        changed = set(groups)
        if rows is not None:
            named = {(start, start + self.width) for start in rows[_GROUP].unique()}
            entered = [bounds for bounds in named - changed if bounds in state.windows]
            if entered:  # sessions grew into a group that the batch did not overlap
                others = self._read_rows(state, entered)
                if others is not None:
                    rows = stack([rows, others.with_columns(self._group())])
                known = [
                    frame
                    for frame in (last_panes, self._read_last_panes(state, entered))
                    if frame is not None
                ]
                last_panes = stack(known) if known else None
            changed |= named
        rows_by_group = {} if rows is None else _partition(rows)
        panes_by_group = {} if last_panes is None else _partition(last_panes.with_columns(self._group()))
        for bounds in sorted(changed):
            frame = rows_by_group.get((bounds[0],))
            if frame is None:
                if bounds in state.windows:
                    state.forget(bounds)
                continue
            self._store_group(state, bounds, frame, panes_by_group.get((bounds[0],)), evaluation)

    def _store_group(
        self,
        state: WindowState,
        bounds: WindowBounds,
        rows: pl.DataFrame,
        last_panes: pl.DataFrame | None,
        evaluation: Evaluation,
    ) -> None:
        compiled = self.compiled
        end = pl.col(END)
        due = pl.when(end > evaluation.watermark).then(end).otherwise(compiled.lateness.purge_times(end))
        due = pl.min_horizontal(due, compiled.event_target(evaluation.watermark))
        entry = state.windows.get(bounds) or WindowEntry(*bounds)
        entry.due, entry.hold, entry.waiting, entry.target, entry.earliest_start = rows.select(
            due.min().alias("due"),
            compiled.hold().min().alias("hold"),
            compiled.waiting(evaluation.watermark).min().alias("waiting"),
            compiled.clock_target(evaluation.clock).min().alias("target"),
            pl.col(START).min().alias("earliest_start"),
        ).row(0)
        entry.retractable = retraction_hold(last_panes, compiled)
        entry.rows = state.write(rows, replaces=entry.rows)
        if last_panes is None:
            state.delete(entry.last_panes)
            entry.last_panes = None
        else:
            entry.last_panes = state.write(last_panes, replaces=entry.last_panes)
        state.note(entry)

    def _group(self) -> pl.Expr:
        end = pl.col(END)
        return (end - end % self.width).alias(_GROUP)


def _partition(frame: pl.DataFrame) -> dict[tuple[object, ...], pl.DataFrame]:
    return frame.partition_by(_GROUP, as_dict=True, include_key=False)
