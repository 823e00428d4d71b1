"""Windows with fixed bounds (global, fixed, sliding, calendar, inherited): adding, firing and purging.

Partials are stored in slices, one blob per slice and batch, and compacted when there are many. A window whose
trigger waits for the end stores nothing else: a batch appends to slices and reads nothing. Only if the
trigger has to be evaluated before the end, or after it, does a window store a blob of window rows, one per
key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import polars as pl

from slackwater.time import BEGINNING_OF_TIME, END_OF_TIME
from slackwater.windows.assigners import GLOBAL_BOUNDS, WindowBounds
from slackwater.windows.engine.compiled_spec import CompiledSpec, StepResults
from slackwater.windows.engine.divided_frames import (
    Measure,
    change_keys,
    is_divided,
    is_few,
    measure_parts,
    read_due,
    read_keys,
    rows_due,
    times_of,
    whole_if_many,
)
from slackwater.windows.engine.element_dropping import ElementDropping
from slackwater.windows.engine.firing import (
    EMITS,
    FIRES,
    Evaluation,
    after_restart,
    by_clock,
    by_watermark,
    decide,
    undo_suppressed,
)
from slackwater.windows.engine.frames import match, stack
from slackwater.windows.engine.retractions import emit, held_at, pane_times, retraction_hold
from slackwater.windows.engine.slice_partials import Combined, SlicePartials
from slackwater.windows.engine.slices import HOLDER_END, HOLDER_START, Slicing, WindowsBySlice
from slackwater.windows.engine.window_state import KeyTimes, WindowEntry, WindowState
from slackwater.windows.operator_columns import (
    ADDED,
    CLOSED,
    END,
    FIRED,
    FRESH,
    NEW,
    SEQUENCE,
    STAMP,
    START,
)


def _reached(at: int | None, until: int) -> bool:
    return at is not None and at <= until


class SlicedWindows:
    """The windows of one operator whose windows do not merge."""

    def __init__(self, compiled: CompiledSpec, slicing: Slicing) -> None:
        self.compiled = compiled
        self.slicing = slicing
        self.waits_for_end = (
            compiled.trigger.waits_for_end
            and compiled.spec.timestamp != "latest"
            and compiled.spec.ttl is None
        )
        """Whether a window stores no window rows before its end."""
        self.divides = not self.waits_for_end and not compiled.trigger.can_finish
        """Whether windows with many keys are divided by key, because a few keys may be due."""
        self.partials = SlicePartials(compiled, slicing, divides=self.divides)
        self.dropping = ElementDropping(compiled, slicing)

    # ---- the three phases of a step

    def add(self, state: WindowState, elements: pl.DataFrame, now: int, out: StepResults) -> None:
        """Add the elements of a batch; lateness is determined by the watermark before the step."""
        watermark = BEGINNING_OF_TIME if state.watermark is None else state.watermark
        elements = self.slicing.assign(elements)
        elements, accepting = self.dropping.drop_late(state, elements, watermark, out)
        if elements.is_empty():
            return
        partials = self.partials.fold(elements, len(accepting), watermark)
        self._add_partials(state, partials, accepting, now, out, elements)

    def fold(self, elements: pl.DataFrame, carried: Sequence[str]) -> pl.DataFrame:
        """Aggregate elements to partials where there is no state and the watermark is not known."""
        elements = self.slicing.assign(elements)
        slices = elements[self.slicing.columns[0]].n_unique()  # an estimate that only affects how to group
        return self.partials.fold(elements, slices, BEGINNING_OF_TIME, carried)

    def merge_folded(self, several: Sequence[pl.DataFrame], carried: Sequence[str]) -> pl.DataFrame:
        """Merge partials that were folded before, where there is no state."""
        if len(several) == 1:
            return several[0]
        partials = self._stacked(several)
        return self.partials.merge(partials, partials[self.slicing.columns[0]].n_unique(), carried)

    def _stacked(self, several: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Folded partials together; lists may be narrow in some of them."""
        if any(each.schema != several[0].schema for each in several):
            several = [self.compiled.upgraded(each) for each in several]
        return stack(several)

    def add_folded(
        self, state: WindowState, several: Sequence[pl.DataFrame], now: int, out: StepResults
    ) -> None:
        """Add partials that were folded before; lateness is determined by the watermark before the step."""
        watermark = BEGINNING_OF_TIME if state.watermark is None else state.watermark
        partials, accepting = self.dropping.drop_late(state, self._stacked(several), watermark, out)
        if partials.is_empty():
            return
        if len(several) > 1:
            partials = self.partials.merge(partials, len(accepting))
        self._add_partials(state, partials, accepting, now, out)

    def _add_partials(
        self,
        state: WindowState,
        partials: pl.DataFrame,
        accepting: WindowsBySlice,
        now: int,
        out: StepResults,
        elements: pl.DataFrame | None = None,
    ) -> None:
        """Store the partials of a batch, and evaluate the windows that may fire because of them."""
        watermark = BEGINNING_OF_TIME if state.watermark is None else state.watermark
        if state.empty is None:
            kept = partials.drop(*self.slicing.columns, *self.compiled.latest_columns)
            state.empty = self.compiled.upgraded(kept.clear())
        accepting = {bounds: accepting[bounds] for bounds in sorted(self.slicing.slices_in(partials))}
        windows = self.slicing.distinct(accepting.values())
        evaluated = [window for window in windows if not self._is_waiting(state, window, watermark)]
        rows: pl.DataFrame | None = None
        if evaluated:
            rows = self._touched_rows(state, partials, accepting, evaluated)
            if self.compiled.trigger.can_finish:
                rows, partials = self.dropping.drop_closed(rows, partials, elements, out)
        self.partials.append(state, partials.drop(self.compiled.latest_columns))
        for start, end in windows:
            if (start, end) not in state.windows:
                due = self.compiled.lateness.next_due(end, watermark)
                waiting = end if end < END_OF_TIME else None
                state.note(WindowEntry(start, end, due=due, waiting=waiting))
        self._hold_at_earliest(state, partials, accepting, watermark)
        if rows is not None:
            rows = rows.with_columns(self.compiled.add_to_rows(watermark, now))
            touched = pl.col(ADDED) > 0
            evaluation = Evaluation(watermark, state.clock, state.step, touched, selected=True)
            self._fire(state, rows, evaluation, out)

    def advance(self, state: WindowState, before: int, watermark: int, out: StepResults) -> None:
        """Evaluate the windows that the new watermark completes, and purge those it has passed for good."""
        due = state.due_windows.take(watermark)
        purge_time = self.compiled.lateness.purge_time
        for windows in self.partials.portions(state, due):
            without_rows = [window for window in windows if state.windows[window].rows is None]
            with_rows = [window for window in windows if state.windows[window].rows is not None]
            evaluation = replace(
                by_watermark(self.compiled, state, before, watermark),
                evaluates_trigger=any(purge_time(end) > watermark for _, end in windows),
            )
            if without_rows:
                rows, combined = self.first_rows(state, without_rows)
                self._fire(state, rows, evaluation, out, combined)
            complete = [window for window in with_rows if window[1] <= watermark]
            if complete:
                self._fire(state, self._read_rows(state, complete), evaluation, out)
            incomplete = [window for window in with_rows if window[1] > watermark]
            if incomplete:
                rows = self._due_rows(state, incomplete, lambda times: _reached(times.due, watermark))
                self._fire(state, rows, replace(evaluation, selected=True), out)
        self._purge(state, [window for window in due if purge_time(window[1]) <= watermark], watermark)

    def restart(self, state: WindowState, out: StepResults) -> None:
        """Evaluate a trigger that has changed for the windows with elements that were not emitted yet."""
        evaluation = after_restart(self.compiled, state)
        purge_time = self.compiled.lateness.purge_time
        for bounds, entry in list(state.windows.items()):
            if entry.rows is not None and purge_time(entry.end) > evaluation.watermark:
                self._fire(state, self._read_rows(state, [bounds]), evaluation, out)

    def tick(self, state: WindowState, before: int, out: StepResults) -> None:
        """Evaluate the windows whose target time the clock has passed."""
        due = state.targets.take(state.clock - 1)
        if not due:
            return
        evaluation = replace(by_clock(self.compiled, state, before), selected=True)
        rows = self._due_rows(state, due, lambda times: _reached(times.target, state.clock - 1))
        self._fire(state, rows, evaluation, out)

    # ---- window rows

    def _is_waiting(self, state: WindowState, window: WindowBounds, watermark: int) -> bool:
        """Whether the window has no window rows yet and needs none before its end."""
        if not self.waits_for_end or watermark >= window[1]:
            return False
        entry = state.windows.get(window)
        return entry is None or entry.rows is None

    def _hold_at_earliest(
        self, state: WindowState, partials: pl.DataFrame, accepting: WindowsBySlice, watermark: int
    ) -> None:
        """Hold the watermark at the earliest element of windows without rows, if that is the timestamp."""
        if self.compiled.spec.timestamp != "earliest" or not self.waits_for_end:
            return
        earliest = partials.group_by(self.slicing.columns).agg(pl.col(STAMP).min())
        for *bounds, stamp in earliest.rows():
            for window in accepting[self.slicing.bounds(*bounds)] if stamp is not None else ():
                entry = state.windows[window]
                if entry.rows is None and watermark < window[1]:
                    entry.hold = stamp if entry.hold is None else min(entry.hold, stamp)
                    entry.waiting = window[1]
                    state.note(entry)

    def first_rows(self, state: WindowState, windows: list[WindowBounds]) -> tuple[pl.DataFrame, Combined]:
        """The rows of windows that stored none, and their partials: all of their elements are new."""
        combined = self.partials.combine(state, windows)
        merged = combined.partials
        stamp = pl.col(STAMP) if STAMP in merged.columns else pl.lit(None, pl.Int64()).alias(STAMP)
        rows = merged.select(*self.compiled.row_columns, *self.compiled.new_rows, stamp, ADDED)
        rows = rows.with_columns(pl.col(ADDED).alias(NEW), pl.lit(value=True).alias(FRESH))
        return rows.drop(ADDED), combined

    def _touched_rows(
        self,
        state: WindowState,
        partials: pl.DataFrame,
        accepting: WindowsBySlice,
        windows: list[WindowBounds],
    ) -> pl.DataFrame:
        """The rows of some windows, with the number of elements that this batch adds to each.

        Of windows that are divided by key, only the rows of the keys in this batch.
        """
        compiled = self.compiled
        wanted = set(windows)
        holders = self.slicing.window_frame(
            {bounds: [one for one in several if one in wanted] for bounds, several in accepting.items()}
        )
        added = match(partials, holders, self.slicing.columns, "inner").drop(START, END, strict=False)
        added = added.rename({HOLDER_START: START, HOLDER_END: END})
        stamp = [compiled.merge_stamps()] if compiled.spec.timestamp != "end_of_window" else []
        latest = compiled.latest_columns
        added = added.group_by(compiled.row_columns).agg(pl.col(ADDED).sum(), *stamp, pl.col(latest).max())
        if not stamp:
            added = added.with_columns(pl.lit(None, pl.Int64()).alias(STAMP))
        fresh = added.select(*compiled.row_columns, *compiled.new_rows, STAMP, *latest, ADDED)
        stored = [
            window for window in windows if window in state.windows and state.windows[window].rows is not None
        ]
        if not stored:
            return fresh
        kept = self._rows_of(state, stored, fresh).with_columns(pl.lit(0, pl.Int64()).alias(ADDED))
        return (
            stack([kept, fresh])
            .group_by(compiled.row_columns)
            .agg(*compiled.combine_rows, *compiled.trigger.combine())
        )

    @staticmethod
    def _read_rows(
        state: WindowState,
        windows: Iterable[WindowBounds],
        of_divided: Callable[[str], pl.DataFrame] | None = None,
    ) -> pl.DataFrame:
        """The rows of some windows; ``of_divided`` reads those that are needed of a divided frame."""
        frames: list[pl.DataFrame] = []
        for window in windows:
            bounds = pl.lit(window[0], pl.Int64()).alias(START), pl.lit(window[1], pl.Int64()).alias(END)
            name = state.windows[window].rows
            if of_divided is not None and name is not None and is_divided(state, name):
                rows = of_divided(name)
            else:
                rows = state.read(name)
            frames.append(rows.with_columns(bounds))
        return stack(frames)

    def _rows_of(
        self, state: WindowState, windows: Sequence[WindowBounds], keys: pl.DataFrame
    ) -> pl.DataFrame:
        columns = self.compiled.key_columns
        for window in windows:
            entry = state.windows[window]
            entry.rows = whole_if_many(state, entry.rows, keys.height)
        return self._read_rows(state, windows, lambda name: read_keys(state, name, keys, columns))

    def _due_rows(
        self, state: WindowState, windows: Sequence[WindowBounds], is_due: Callable[[KeyTimes], bool]
    ) -> pl.DataFrame:
        for window in windows:
            entry = state.windows[window]
            # The keys that are due are fewer than the rows of the parts that are due.
            entry.rows = whole_if_many(state, entry.rows, rows_due(state, entry.rows, is_due) // 8)
        return self._read_rows(state, windows, lambda name: read_due(state, name, is_due))

    # ---- firing

    def _fire(
        self,
        state: WindowState,
        rows: pl.DataFrame,
        evaluation: Evaluation,
        out: StepResults,
        combined: Combined | None = None,
    ) -> None:
        """Decide which rows fire, emit their panes, and store the remaining rows and partials."""
        compiled = self.compiled
        before = rows.select(*compiled.row_columns, FIRED) if self.partials.counts_steps else None
        rows = decide(rows, compiled, evaluation)
        fired = rows.filter(FIRES)
        if fired.height:
            emitting = rows.filter(EMITS)
            if emitting.height:
                rows = self._emit(state, rows, emitting, before, combined, out)
            if compiled.spec.mode == "discarding":
                divided = any(is_divided(state, state.windows[one].rows) for one in self._windows(fired))
                everything = fired.height == rows.height and not (divided and evaluation.selected)
                self._discard(state, fired, everything=everything)
        if evaluation.expired is not None:
            rows = self._expire(state, rows, evaluation.expired, evaluation, out)
        self._store(state, rows, evaluation)

    def _expire(
        self,
        state: WindowState,
        rows: pl.DataFrame,
        is_expired: pl.Expr,
        evaluation: Evaluation,
        out: StepResults,
    ) -> pl.DataFrame:
        """Delete the state of keys that have expired; the rows that remain."""
        expired = rows.filter(is_expired)
        if expired.is_empty() or evaluation.watermark == END_OF_TIME:  # then everything is purged
            return rows
        out.expired += expired.height
        entry = state.windows[GLOBAL_BOUNDS]
        if entry.rows is not None and is_divided(state, entry.rows):
            entry.rows = self._change_rows(state, entry, expired, None, evaluation)
        elif expired.height == rows.height:
            state.delete(entry.rows)
            entry.rows = None
        if entry.rows is None:
            state.forget(GLOBAL_BOUNDS)
            state.forget_slice(GLOBAL_BOUNDS)
            return rows.clear()
        self.partials.discard(state, {GLOBAL_BOUNDS: expired})
        if entry.last_panes is not None:
            self._change_last_panes(state, entry, expired, None)
        state.note(entry)
        return rows.filter(~is_expired)

    def _emit(
        self,
        state: WindowState,
        rows: pl.DataFrame,
        emitting: pl.DataFrame,
        before: pl.DataFrame | None,
        combined: Combined | None,
        out: StepResults,
    ) -> pl.DataFrame:
        """Emit the panes of some rows; all rows with their pane indexes."""
        compiled = self.compiled
        windows = self._windows(emitting) if combined is None or compiled.keeps_panes else []
        if combined is None:
            combined = self.partials.combine(state, windows, before, emitting)
            self.partials.replace(state, windows, combined)
            in_order = False
        else:  # the rows were built from these partials
            in_order = emitting.height == combined.partials.height
        partials = combined.partials
        if in_order:
            values = partials.drop(*compiled.row_columns, ADDED, STAMP, SEQUENCE, strict=False)
            emitting = emitting.hstack(values)
        else:
            values = partials.drop(ADDED, STAMP, SEQUENCE, strict=False)
            emitting = match(emitting, values, compiled.row_columns, "left")
        last_panes = None
        if compiled.keeps_panes:
            last_panes = self._last_panes_of(state, windows, emitting)
        emission = emit(emitting, compiled, last_panes, combined.parts)
        if emission.panes.height:
            out.panes.append(emission.panes)
        if emission.last_panes is not None:
            self._store_last_panes(state, windows, emitting, emission.last_panes)
        return undo_suppressed(rows, emission.suppressed)

    def _discard(self, state: WindowState, fired: pl.DataFrame, *, everything: bool) -> None:
        if everything:
            self.partials.discard(state, dict.fromkeys(self._windows(fired)))
            return
        by_window = fired.partition_by(START, END, as_dict=True)
        self.partials.discard(state, {window: by_window[window] for window in self._windows(fired)})

    def _store(self, state: WindowState, rows: pl.DataFrame, evaluation: Evaluation) -> None:
        """Write the rows of each window, with the times at which the window is due again."""
        if not evaluation.evaluates_trigger:  # every window is purged
            return
        compiled = self.compiled
        times = rows.group_by(self.slicing.columns).agg(
            *([] if END in self.slicing.columns else [pl.col(END).first()]),
            compiled.hold().min().alias("hold"),
            compiled.waiting(evaluation.watermark).first(ignore_nulls=True).alias("waiting"),
            compiled.clock_target(evaluation.clock).min().alias("target"),
            compiled.next_watermark(evaluation.watermark).min().alias("next_watermark"),
            pl.col(FIRED).max(),
        )
        columns = [*compiled.row_columns, *compiled.state_columns]
        kept = rows.select(columns).partition_by(self.slicing.columns, as_dict=True, include_key=False)
        for start, end, hold, waiting, target, next_watermark, fired in times.rows():
            if compiled.lateness.purge_time(end) <= evaluation.watermark:
                continue
            entry = state.windows[start, end]
            bounds = (start, end) if END in self.slicing.columns else (start,)
            stored = kept[bounds].drop(END, strict=False)
            entry.fired = max(entry.fired, fired)
            if evaluation.selected and is_divided(state, entry.rows):
                entry.rows = self._change_rows(state, entry, stored, stored, evaluation)
                continue
            divides = self._divides(rows, evaluation)
            entry.rows = state.write(stored, replaces=entry.rows, divides=divides)
            if is_divided(state, entry.rows):
                measure_parts(state, entry.rows, self._measure(entry, evaluation.watermark, evaluation.clock))
            self._set_times(entry, KeyTimes(hold, waiting, target, next_watermark), evaluation.watermark)
            if compiled.trigger.can_finish and entry.last_panes is not None:  # closed rows retract nothing
                closed = kept[bounds].filter(CLOSED)
                panes = match(state.read(entry.last_panes), closed, compiled.key_columns, "anti")
                entry.retractable = retraction_hold(panes, compiled)
            state.note(entry)

    def _divides(self, rows: pl.DataFrame, evaluation: Evaluation) -> bool:
        """Whether the rows of windows are divided by key, because few of them were touched or fired."""
        if not self.divides or not evaluation.selected or not is_few(0, rows.height):
            return False
        needed = (rows[ADDED] > 0) if ADDED in rows.columns else rows[FIRES]
        return is_few(int(needed.sum()), rows.height)

    def _change_rows(
        self,
        state: WindowState,
        entry: WindowEntry,
        removed: pl.DataFrame,
        added: pl.DataFrame | None,
        evaluation: Evaluation,
    ) -> str | None:
        """Replace the rows of some keys in a divided window; the name of its rows, None if none remain."""
        measure = self._measure(entry, evaluation.watermark, evaluation.clock)
        name = change_keys(state, str(entry.rows), self.compiled.key_columns, removed, added, measure)
        if name is not None:
            self._set_times(entry, times_of(state, name), evaluation.watermark)
            state.note(entry)
        return name

    def _last_panes_of(
        self, state: WindowState, windows: Iterable[WindowBounds], emitting: pl.DataFrame
    ) -> pl.DataFrame | None:
        """The last panes of some windows; of those that are divided, only the panes of the emitting keys."""
        columns = self.compiled.key_columns
        entries = [state.windows[window] for window in windows]
        for entry in entries:
            entry.last_panes = whole_if_many(state, entry.last_panes, emitting.height)
        names = [entry.last_panes for entry in entries if entry.last_panes is not None]
        frames = [
            read_keys(state, name, emitting, columns) if is_divided(state, name) else state.read(name)
            for name in names
        ]
        return stack(frames) if frames else None

    def _store_last_panes(
        self,
        state: WindowState,
        windows: Iterable[WindowBounds],
        emitting: pl.DataFrame,
        last_panes: pl.DataFrame,
    ) -> None:
        by_window = last_panes.partition_by(START, END, as_dict=True)
        for window in windows:
            entry = state.windows[window]
            kept = by_window.get(window, last_panes.clear())
            if is_divided(state, entry.last_panes):
                self._change_last_panes(state, entry, emitting, kept)
                continue
            divides = self.divides and is_few(emitting.height, kept.height)
            entry.last_panes = state.write(kept, replaces=entry.last_panes, divides=divides)
            measure_parts(state, entry.last_panes, pane_times)
            entry.retractable = retraction_hold(kept, self.compiled)

    def _change_last_panes(
        self, state: WindowState, entry: WindowEntry, removed: pl.DataFrame, added: pl.DataFrame | None
    ) -> None:
        """Replace the last panes of some keys of a window."""
        keys, name = self.compiled.key_columns, str(entry.last_panes)
        if is_divided(state, name):
            entry.last_panes = change_keys(state, name, keys, removed, added, pane_times)
            times = KeyTimes() if entry.last_panes is None else times_of(state, entry.last_panes)
            entry.retractable = held_at(times.hold, self.compiled)
            return
        kept = match(state.read(name), removed, keys, "anti")
        entry.last_panes = state.write(kept, replaces=name)
        entry.retractable = retraction_hold(kept, self.compiled)

    def _measure(self, entry: WindowEntry, watermark: int, clock: int) -> Measure:
        """When the keys of some rows of a window are due."""
        compiled = self.compiled
        bounds = pl.lit(entry.start, pl.Int64()).alias(START), pl.lit(entry.end, pl.Int64()).alias(END)
        times = (
            compiled.hold().min().alias("hold"),
            compiled.waiting(watermark).first(ignore_nulls=True).alias("waiting"),
            compiled.clock_target(clock).min().alias("target"),
            compiled.next_watermark(watermark).min().alias("next_watermark"),
        )
        return lambda rows: KeyTimes(*rows.with_columns(bounds).select(times).row(0))

    def _set_times(self, entry: WindowEntry, times: KeyTimes, watermark: int) -> None:
        """Set when a window is due from the times of its keys."""
        entry.hold, entry.waiting, entry.target = times.hold, times.waiting, times.target
        due = self.compiled.lateness.next_due(entry.end, watermark)
        entry.due = due if times.due is None else min(due, times.due)

    def set_times(self, state: WindowState, entry: WindowEntry) -> None:
        """Set again when a stored window is due, after the settings of the operator have changed."""
        compiled = self.compiled
        watermark = BEGINNING_OF_TIME if state.watermark is None else state.watermark
        entry.due = compiled.lateness.next_due(entry.end, watermark)
        entry.waiting = entry.end if entry.end < END_OF_TIME else None
        panes = None if entry.last_panes is None else state.read(entry.last_panes)
        measure_parts(state, entry.last_panes, pane_times)
        if entry.rows is not None:
            rows, measure = state.read(entry.rows), self._measure(entry, watermark, state.clock)
            measure_parts(state, entry.rows, measure)
            self._set_times(entry, measure(rows), watermark)
            if panes is not None:  # closed rows retract nothing
                panes = match(panes, rows.filter(CLOSED), compiled.key_columns, "anti")
        entry.retractable = retraction_hold(panes, compiled)

    def closing_time(self, state: WindowState) -> int | None:
        """The watermark that closes all open windows, apart from those that only the end of input closes."""
        times = (self.compiled.lateness.purge_time(end) for _, end in state.windows)
        return max((at for at in times if at < END_OF_TIME), default=None)

    def _purge(self, state: WindowState, windows: Iterable[WindowBounds], watermark: int) -> None:
        """Delete windows, and the slices that no window needs any more."""
        reached = BEGINNING_OF_TIME
        for start, end in sorted(windows):
            state.forget((start, end))
            if not self.slicing.shared:
                state.forget_slice((start, end))
                continue
            for part in self.slicing.slices((max(start, reached), end)):
                # Later slices are needed longer, so the first one that is still needed ends the search.
                if self.compiled.lateness.purge_time(self.slicing.last_end(part)) > watermark:
                    break
                state.forget_slice(part)
                reached = part[1]

    def _windows(self, rows: pl.DataFrame) -> list[WindowBounds]:
        """The windows that occur in some rows, in ascending order."""
        columns = self.slicing.columns
        if END in columns:
            return sorted(rows.select(columns).unique().rows())
        ends = rows.group_by(START).agg(pl.col(END).first())
        return sorted(ends.rows())
