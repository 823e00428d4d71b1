"""Session windows: how batches, watermarks and the clock act on stored sessions.

A window row is a session of one key: its bounds, the state of its trigger, and its partials. Sessions are
stored in groups by the time they end, so that a batch reads only the groups it can overlap, and the watermark
only those it completes. The rows of a group are a log, so that a batch writes only the sessions that it
changes (`slackwater.windows.engine.row_log`). How sessions merge is in
`slackwater.windows.engine.session_merging`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from slackwater.time import BEGINNING_OF_TIME, MINUTE, SECOND
from slackwater.windows.assigners import Sessions, WindowBounds
from slackwater.windows.engine.compiled_spec import CompiledSpec, StepResults
from slackwater.windows.engine.firing import (
    EMITS,
    FIRES,
    PANE_LAST,
    PANE_TIMESTAMP,
    Evaluation,
    after_restart,
    by_clock,
    by_watermark,
    decide,
    undo_suppressed,
)
from slackwater.windows.engine.frames import match, stack
from slackwater.windows.engine.retractions import PANE_END, PANE_START, emit, retraction_hold
from slackwater.windows.engine.row_log import RowLog
from slackwater.windows.engine.session_merging import NEW_OWNER, SessionMerging
from slackwater.windows.engine.window_state import Blob, WindowEntry, WindowState
from slackwater.windows.operator_columns import ADDED, END, ROW, START, TIME

_GROUP: Final = "group"
_GAPS_IN_A_GROUP: Final = 8
_USUAL_GAP: Final = MINUTE
"""The gap that determines the width of a group if each element has its own."""
_WORTH_SPLITTING: Final = 4
"""With so many stored sessions for each one of the batch, those of other keys are left alone."""
_MANY: Final = 4
"""If at least one of so many sessions has changed, all are written."""


@dataclass(frozen=True)
class _Change:
    """Rows before and after a change, and rows of the same groups that have not changed."""

    before: pl.DataFrame | None
    after: pl.DataFrame | None
    unchanged: Sequence[pl.DataFrame | None]

    @property
    def height(self) -> int:
        """The number of rows that have changed."""
        return max(0 if rows is None else rows.height for rows in (self.before, self.after))


class SessionWindows:
    """The session windows of one operator."""

    minimum_width = SECOND
    """The minimum width of a group, however short the gap."""

    def __init__(self, compiled: CompiledSpec, window: Sessions) -> None:
        self.compiled = compiled
        gap = _USUAL_GAP if isinstance(window.gap, str) else window.gap
        self.width = max(_GAPS_IN_A_GROUP * gap, self.minimum_width)
        self.merging = SessionMerging(compiled, window)
        self.rows = RowLog(compiled.row_columns)
        self.panes = RowLog([*compiled.row_columns, PANE_START, PANE_END])

    # ---- the three phases of a step

    def add(self, state: WindowState, elements: pl.DataFrame, now: int, out: StepResults) -> None:
        """Add the elements of a batch; lateness is determined by the watermark before the step."""
        watermark = BEGINNING_OF_TIME if state.watermark is None else state.watermark
        elements = self._drop_late(state, elements, watermark, out)
        if elements.is_empty():
            return
        sessions = self.merging.sessions_of(elements, watermark).with_columns(state.nothing_missed())
        groups = self._overlapping(state, int(sessions[START].min()), int(sessions[END].max()))  # type: ignore[arg-type]
        stored, others = self._with_keys_of(sessions, self._read_rows(state, groups))
        merge = self.merging.merge(stored, sessions, elements, watermark, out)
        known_panes, other_panes = self._with_keys_of(sessions, self._read_last_panes(state, groups))
        last_panes = self._reassigned(known_panes, merge.owners)
        merged = merge.merged.with_columns(self.compiled.add_to_rows(watermark, now)).drop(ADDED)
        # A trigger that waits for the end need not be evaluated for sessions that are not complete.
        due = pl.col(END) <= watermark if self.compiled.trigger.waits_for_end else pl.lit(value=True)
        any_due = merged.height > 0 and bool(merged.select(due.any()).item())
        # A retraction can shorten a session to one that would have been purged before.
        purged = self.compiled.lateness.purge_times(pl.col(END)) <= watermark
        evaluation = Evaluation(watermark, state.clock, state.step, due, purged, evaluates_trigger=any_due)
        if any_due:
            merged, last_panes = self._fire(merged, last_panes, evaluation, out)
        rows = _Change(merge.owners, merged, [merge.untouched, others])
        self._store(state, groups, rows, _Change(known_panes, last_panes, [other_panes]), evaluation)

    def advance(self, state: WindowState, before: int, watermark: int, out: StepResults) -> None:
        """Evaluate the sessions that the new watermark completes or purges."""
        groups = state.due_windows.take(watermark)
        if not groups:
            return
        evaluation = by_watermark(self.compiled, state, before, watermark)
        self._evaluate(state, groups, evaluation.due | evaluation.purged, evaluation, out)

    def restart(self, state: WindowState, out: StepResults) -> None:
        """Evaluate a trigger that has changed for the sessions with elements that were not emitted yet."""
        evaluation = after_restart(self.compiled, state)
        self._evaluate(state, sorted(state.windows), evaluation.due, evaluation, out)

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
        before, others = rows.filter(due), rows.filter(~due)
        known_panes, other_panes = self._read_last_panes(state, groups), None
        if known_panes is not None:
            columns = self.compiled.row_columns
            other_panes = match(known_panes, before, columns, "anti")
            known_panes = match(known_panes, before, columns, "semi")
        evaluated, last_panes = self._fire(before, known_panes, evaluation, out)
        change = _Change(before, evaluated, [others])
        self._store(state, groups, change, _Change(known_panes, last_panes, [other_panes]), evaluation)

    def _drop_late(
        self, state: WindowState, elements: pl.DataFrame, watermark: int, out: StepResults
    ) -> pl.DataFrame:
        """The elements that are not late; each is tested with its own interval, before any merging."""
        lateness, spec = self.compiled.lateness, self.compiled.spec
        end = self.merging.ends
        late = (lateness.purge_times(end) <= watermark) | lateness.is_late_by_element(watermark)
        if state.purged_until > BEGINNING_OF_TIME:
            late |= end <= state.purged_until
        dropped = elements.filter(late)
        if dropped.is_empty():
            return elements
        out.dropped_late += dropped.height
        nothing = pl.lit(None, pl.Int64())
        start, end = (pl.col(TIME), end) if spec.drop_late == "by_window" else (nothing, nothing)
        out.sample(dropped, "late", (start, end), self.compiled.key_columns)
        if spec.late == "emit":
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
        rows = _stacked(self.rows.read(state, state.windows[bounds].row_log) for bounds in groups)
        return None if rows is None else self.compiled.upgraded(rows)

    def _read_last_panes(self, state: WindowState, groups: Iterable[WindowBounds]) -> pl.DataFrame | None:
        return _stacked(self.panes.read(state, state.windows[bounds].pane_log) for bounds in groups)

    def _with_keys_of(
        self, sessions: pl.DataFrame, rows: pl.DataFrame | None
    ) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
        """Rows with the key of one of the sessions, and the others; all rows and None if these are few."""
        if rows is None or rows.height < _WORTH_SPLITTING * sessions.height:
            return rows, None
        keys = self.compiled.key_columns
        wanted = sessions.select(keys).unique()
        return match(rows, wanted, keys, "semi"), match(rows, wanted, keys, "anti")

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
        rows: _Change,
        panes: _Change,
        evaluation: Evaluation,
    ) -> None:
        """Write what has changed in the groups, with the times at which each group is due again.

        Sessions may have grown into groups that were not read; their times are combined with the known ones.
        """
        stored, panes_stored = self._live(rows), self._live(panes)
        filled = self._set_times(state, groups, stored, panes_stored, evaluation)
        for bounds in groups:
            if bounds not in filled:
                state.forget(bounds)
        self._write(state, groups, rows, stored, self.rows, lambda entry: entry.row_log)
        self._write(state, groups, panes, panes_stored, self.panes, lambda entry: entry.pane_log)

    def _live(self, rows: _Change) -> pl.DataFrame | None:
        """All rows of the groups after the change, with their group."""
        frames = [frame for frame in (*rows.unchanged, rows.after) if frame is not None and frame.height]
        return stack(frames).with_columns(self._group()) if frames else None

    def _set_times(
        self,
        state: WindowState,
        groups: list[WindowBounds],
        rows: pl.DataFrame | None,
        panes: pl.DataFrame | None,
        evaluation: Evaluation,
    ) -> set[WindowBounds]:
        """Note when the groups are due; returns those with rows."""
        filled: set[WindowBounds] = set()
        if rows is None:
            return filled
        retractable = self._retraction_holds(panes)
        times = self.times(evaluation.watermark, evaluation.clock)
        for start, due, hold, waiting, target, earliest in rows.group_by(_GROUP).agg(times).rows():
            bounds = self._bounds(start)
            filled.add(bounds)
            entry = WindowEntry(*bounds)
            entry.due, entry.hold, entry.waiting, entry.target = due, hold, waiting, target
            entry.earliest_start, entry.retractable = earliest, retractable.get(start)
            if (known := state.windows.get(bounds)) is not None:
                entry.row_log, entry.pane_log = known.row_log, known.pane_log
                if bounds not in groups:
                    _include(entry, known)
            state.note(entry)
        return filled

    def _retraction_holds(self, panes: pl.DataFrame | None) -> dict[int, int | None]:
        """The watermark that each group holds while its last panes may be retracted."""
        if panes is None:
            return {}
        lowest = panes.group_by(_GROUP).agg(pl.col(PANE_TIMESTAMP).min())
        by_group = lowest.partition_by(_GROUP, as_dict=True)
        return {int(str(start)): retraction_hold(part, self.compiled) for (start,), part in by_group.items()}

    def _write(
        self,
        state: WindowState,
        groups: list[WindowBounds],
        change: _Change,
        live: pl.DataFrame | None,
        rows: RowLog,
        log_of: Callable[[WindowEntry], list[Blob]],
    ) -> None:
        """Write a change of rows or last panes into the logs of their groups."""
        kept = {bounds[0] for bounds in groups if bounds in state.windows}
        if not change.height:
            return
        stored = 0 if live is None else live.height
        logs = (log_of(state.windows[self._bounds(start)]) for start in kept)
        if _MANY * change.height >= stored or any(log and state.is_new(log[0].name) for log in logs):
            # Many rows have changed, or their base was not written yet: a delta would save nothing.
            written = {} if live is None else _partition(live)
            for start in kept:
                rows.replace(state, log_of(state.windows[self._bounds(start)]), written.pop(start, None))
            for start, added in written.items():
                rows.update(state, log_of(state.windows[self._bounds(start)]), None, added)
            return
        removed, after = self._by_group(change.before), self._by_group(change.after)
        for start in sorted((removed.keys() & kept) | after.keys()):
            log = log_of(state.windows[self._bounds(start)])
            rows.update(state, log, removed.get(start), after.get(start))

    def _by_group(self, rows: pl.DataFrame | None) -> dict[int, pl.DataFrame]:
        if rows is None or rows.is_empty():
            return {}
        return _partition(rows.with_columns(self._group()))

    def _bounds(self, start: int) -> WindowBounds:
        return start, start + self.width

    def set_times(self, state: WindowState, entry: WindowEntry) -> None:
        """Set again when a stored group is due, after the settings of the operator have changed."""
        watermark = BEGINNING_OF_TIME if state.watermark is None else state.watermark
        rows, panes = self.rows.read(state, entry.row_log), self.panes.read(state, entry.pane_log)
        if rows is not None:
            times = rows.select(self.times(watermark, state.clock)).row(0)
            entry.due, entry.hold, entry.waiting, entry.target, entry.earliest_start = times
        entry.retractable = retraction_hold(panes, self.compiled)

    def times(self, watermark: int, clock: int) -> list[pl.Expr]:
        """When a group is due: by watermark, held timestamp, end of what is owed, clock; its start."""
        compiled = self.compiled
        end = pl.col(END)
        due = pl.when(end > watermark).then(end).otherwise(compiled.lateness.purge_times(end))
        due = pl.min_horizontal(due, compiled.event_target(watermark))
        return [
            due.min().alias("due"),
            compiled.hold().min().alias("hold"),
            compiled.waiting(watermark).min().alias("waiting"),
            compiled.clock_target(clock).min().alias("target"),
            pl.col(START).min().alias("earliest_start"),
        ]

    def _group(self) -> pl.Expr:
        end = pl.col(END)
        return (end - end % self.width).alias(_GROUP)


def _partition(rows: pl.DataFrame) -> dict[int, pl.DataFrame]:
    parts = rows.partition_by(_GROUP, as_dict=True, include_key=False)
    return {int(str(start)): part for (start,), part in parts.items()}


def _stacked(frames: Iterable[pl.DataFrame | None]) -> pl.DataFrame | None:
    found = [frame for frame in frames if frame is not None]
    return stack(found) if found else None


def _include(entry: WindowEntry, known: WindowEntry) -> None:
    """Make a group due no later than its sessions that were not read."""
    entry.due = min(entry.due, known.due)
    entry.earliest_start = min(entry.earliest_start, known.earliest_start)
    entry.hold = _earliest(entry.hold, known.hold)
    entry.waiting = _earliest(entry.waiting, known.waiting)
    entry.target = _earliest(entry.target, known.target)
    entry.retractable = _earliest(entry.retractable, known.retractable)


def _earliest(*times: int | None) -> int | None:
    return min((time for time in times if time is not None), default=None)
