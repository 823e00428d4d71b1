"""Windows that elements do not move: global, fixed, sliding, calendar, inherited.

Partials lie in slices, one blob per slice and batch, merged now and then. A window that waits for its end
keeps nothing else: a batch appends and reads nothing. Only when the trigger must be asked before the end,
or after it, does a window keep a blob of rows, one per key.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl

from slackwater.time import BEGINNING_OF_TIME
from slackwater.windows.assigners import WindowBounds
from slackwater.windows.engine.firing import (
    FIRES,
    WANTED,
    Question,
    clock_question,
    decide,
    emit,
    take_back_suppressed,
)
from slackwater.windows.engine.partials import SlicePartials
from slackwater.windows.engine.rules import (
    ADDED,
    CLOSED,
    END,
    FIRED,
    FRESH,
    ROW,
    SEQUENCE,
    STAMP,
    START,
    Collector,
    Rules,
    match,
    stack,
)
from slackwater.windows.engine.slices import Slicing
from slackwater.windows.engine.trigger_machine import NEW
from slackwater.windows.engine.window_state import WindowEntry, WindowState


class SlicedWindows:
    """Folds batches into slices, and fires the windows made of them."""

    def __init__(self, rules: Rules, slicing: Slicing) -> None:
        self.rules = rules
        self.slicing = slicing
        self.waits = rules.machine.waits_for_end and rules.spec.timestamp != "latest"
        """Whether a window keeps no rows before its end."""
        self.partials = SlicePartials(rules, slicing)

    # ---- the three parts of a step

    def add(self, state: WindowState, elements: pl.DataFrame, now: int, out: Collector) -> None:
        """Elements of a batch, judged by the watermark before the step."""
        watermark = BEGINNING_OF_TIME if state.watermark is None else state.watermark
        elements = self.slicing.assign(elements)
        elements, alive = self._drop_late(elements, watermark, out)
        if elements.is_empty():
            return
        partials = self.partials.fold(elements, len(alive), watermark)
        self._take(state, partials, alive, now, out, elements)

    def fold(self, elements: pl.DataFrame, carried: Sequence[str]) -> pl.DataFrame:
        """Elements as partials, before anybody knows the watermark."""
        elements = self.slicing.assign(elements)
        slices = elements[self.slicing.columns[0]].n_unique()  # about; it only tells how to group
        return self.partials.fold(elements, slices, BEGINNING_OF_TIME, carried)

    def add_folded(
        self, state: WindowState, several: Sequence[pl.DataFrame], now: int, out: Collector
    ) -> None:
        """Partials of a batch that were folded before, judged by the watermark before the step."""
        watermark = BEGINNING_OF_TIME if state.watermark is None else state.watermark
        partials, alive = self._drop_late(stack(several), watermark, out)
        if partials.is_empty():
            return
        if len(several) > 1:
            partials = self.partials.merge(partials, len(alive))
        self._take(state, partials, alive, now, out)

    def _take(
        self,
        state: WindowState,
        partials: pl.DataFrame,
        alive: dict[WindowBounds, list[WindowBounds]],
        now: int,
        out: Collector,
        elements: pl.DataFrame | None = None,
    ) -> None:
        """Keep the partials of a batch, and ask the windows that may fire by them."""
        watermark = BEGINNING_OF_TIME if state.watermark is None else state.watermark
        if state.empty is None:
            state.empty = partials.drop(*self.slicing.columns).clear()
        present = [self.slicing.bounds(*row) for row in partials.select(self.slicing.columns).unique().rows()]
        alive = {bounds: alive[bounds] for bounds in sorted(present)}
        windows = list(dict.fromkeys(window for several in alive.values() for window in several))
        asked = [window for window in windows if not self._is_waiting(state, window, watermark)]
        rows: pl.DataFrame | None = None
        if asked:
            rows = self._touched(state, partials, alive, asked)
            if self.rules.machine.can_finish:
                rows, partials = self._drop_closed(rows, partials, elements, out)
        self.partials.append(state, partials)
        for window in windows:
            if window not in state.windows:
                state.note(
                    WindowEntry(
                        *window, due=window[1] if watermark < window[1] else self.rules.horizon(window[1])
                    )
                )
        self._hold_waiting(state, partials, alive, watermark)
        if rows is not None:
            rows = rows.with_columns(self.rules.add_to_rows(watermark, now))
            touched = pl.col(ADDED) > 0
            self._fire(state, rows, Question(watermark, state.clock, state.step, touched), out)

    def advance(self, state: WindowState, before: int, watermark: int, out: Collector) -> None:
        """The watermark moved: windows it completes are asked, windows it purges say their last word."""
        due = state.dues.take(watermark)
        for windows in self.partials.portions(state, due):
            waiting = [window for window in windows if state.windows[window].rows is None]
            asking = [window for window in windows if state.windows[window].rows is not None]
            question = Question(
                watermark,
                state.clock,
                state.step,
                asked=pl.col(END) > before,
                purged=self.rules.horizon_expression(pl.col(END)) <= watermark,
                completes=pl.col(END) > before,
                asks=any(self.rules.horizon(end) > watermark for _, end in windows),
            )
            if waiting:
                rows, partials = self._rows_of_waiting(state, waiting)
                self._fire(state, rows, question, out, partials)
            if asking:
                self._fire(state, self._read_rows(state, asking), question, out)
        for window in due:
            if self.rules.horizon(window[1]) <= watermark:
                self._purge(state, window, watermark)

    def tick(self, state: WindowState, before: int, out: Collector) -> None:
        """The clock moved: windows whose target it passed are asked."""
        due = state.targets.take(state.clock - 1)
        if not due:
            return
        question = clock_question(self.rules, state, before)
        self._fire(state, self._read_rows(state, due), question, out)

    # ---- judging elements

    def _drop_late(
        self, elements: pl.DataFrame, watermark: int, out: Collector
    ) -> tuple[pl.DataFrame, dict[WindowBounds, list[WindowBounds]]]:
        """The elements that some window takes, and which windows those are, by slice."""
        rules = self.rules
        by_element = rules.spec.drop_late == "by_element"
        slices = [self.slicing.bounds(*row) for row in elements.select(self.slicing.columns).unique().rows()]
        windows = {bounds: self.slicing.windows(bounds) for bounds in slices}
        gaps = [bounds for bounds, holders in windows.items() if not holders]
        if gaps:
            elements = match(elements, self._slice_frame(gaps), self.slicing.columns, "anti")
        if by_element:
            behind = elements.filter(rules.drop_behind(watermark))
            if behind.height:
                elements = elements.filter(~rules.drop_behind(watermark))
                self._report_late(behind, None, out)
        alive = {
            bounds: [window for window in holders if rules.horizon(window[1]) > watermark]
            for bounds, holders in windows.items()
        }
        late = {
            bounds: [window for window in holders if rules.horizon(window[1]) <= watermark]
            for bounds, holders in windows.items()
        }
        late = {bounds: several for bounds, several in late.items() if several}
        if late:
            dropped = match(elements, self._slice_frame(late), self.slicing.columns, "semi")
            self._report_late(dropped, None if by_element else late, out)
            gone = [bounds for bounds in late if by_element or not alive[bounds]]
            if gone:
                elements = match(elements, self._slice_frame(gone), self.slicing.columns, "anti")
        return elements, alive

    def _report_late(
        self, dropped: pl.DataFrame, windows: dict[WindowBounds, list[WindowBounds]] | None, out: Collector
    ) -> None:
        """Count elements that were dropped: each once, or once for each of the windows."""
        if windows is not None:
            dropped = match(dropped, self._holders(windows), self.slicing.columns, "inner")
        out.dropped_late += int(dropped[ADDED].sum()) if ADDED in dropped.columns else dropped.height
        if self.rules.spec.late == "emit" and dropped.height:
            nothing = pl.lit(None, pl.Int64())
            start, end = (
                (pl.col("holder:start"), pl.col("holder:end")) if windows is not None else (nothing, nothing)
            )
            out.late.append(
                dropped.select(ROW, pl.lit("late").alias("reason"), start.alias(START), end.alias(END))
            )

    def _drop_closed(
        self, rows: pl.DataFrame, partials: pl.DataFrame, elements: pl.DataFrame | None, out: Collector
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Elements whose window was closed by its trigger: counted, and kept nowhere."""
        closed = rows.filter(pl.col(CLOSED) & (pl.col(ADDED) > 0)).select(*self.rules.row_columns, ADDED)
        if closed.is_empty():
            return rows, partials
        out.dropped_closed += int(closed[ADDED].sum())
        rows = rows.with_columns(pl.when(pl.col(CLOSED)).then(0).otherwise(pl.col(ADDED)).alias(ADDED))
        if self.rules.spec.late == "emit" and elements is not None:
            slices = [
                self.slicing.bounds(*row) for row in elements.select(self.slicing.columns).unique().rows()
            ]
            holders = self._holders({bounds: self.slicing.windows(bounds) for bounds in slices})
            owners = closed.rename({START: "holder:start", END: "holder:end"})
            found = match(
                match(elements, holders, self.slicing.columns, "inner"),
                owners,
                ["holder:start", "holder:end", *self.rules.key_columns],
                "semi",
            )
            bounds = pl.col("holder:start").alias(START), pl.col("holder:end").alias(END)
            out.late.append(found.select(ROW, pl.lit("closed").alias("reason"), *bounds))
        if not self.slicing.shared:
            partials = match(partials, closed, [*self.slicing.columns, *self.rules.key_columns], "anti")
        return rows, partials

    def _rows_of_waiting(
        self, state: WindowState, windows: list[WindowBounds]
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The rows of windows that kept none, and their partials: everything in them is new."""
        merged = self.partials.combine(state, windows)
        stamp = pl.col(STAMP) if STAMP in merged.columns else pl.lit(None, pl.Int64()).alias(STAMP)
        rows = merged.select(*self.rules.row_columns, *self.rules.new_rows(), stamp, ADDED).with_columns(
            pl.col(ADDED).alias(NEW), pl.lit(value=True).alias(FRESH)
        )
        return rows.drop(ADDED), merged

    # ---- rows

    def _is_waiting(self, state: WindowState, window: WindowBounds, watermark: int) -> bool:
        if not self.waits or watermark >= window[1]:
            return False
        entry = state.windows.get(window)
        return entry is None or entry.rows is None

    def _hold_waiting(
        self,
        state: WindowState,
        partials: pl.DataFrame,
        alive: dict[WindowBounds, list[WindowBounds]],
        watermark: int,
    ) -> None:
        """Windows without rows hold the watermark at their earliest element, if that is the timestamp."""
        if self.rules.spec.timestamp != "earliest" or not self.waits:
            return
        earliest = partials.group_by(self.slicing.columns).agg(pl.col(STAMP).min())
        for *place, stamp in earliest.rows():
            for window in alive[self.slicing.bounds(*place)] if stamp is not None else ():
                entry = state.windows[window]
                if entry.rows is None and watermark < window[1]:
                    entry.hold = stamp if entry.hold is None else min(entry.hold, stamp)
                    state.note(entry)

    def _touched(
        self,
        state: WindowState,
        partials: pl.DataFrame,
        alive: dict[WindowBounds, list[WindowBounds]],
        windows: list[WindowBounds],
    ) -> pl.DataFrame:
        """All rows of some windows, with the number of elements that this batch brings to each."""
        rules = self.rules
        wanted = set(windows)
        holders = self._holders(
            {bounds: [window for window in several if window in wanted] for bounds, several in alive.items()}
        )
        brought = match(partials, holders, self.slicing.columns, "inner").drop(START, END, strict=False)
        brought = brought.rename({"holder:start": START, "holder:end": END})
        stamp = [rules.merge_stamps()] if rules.spec.timestamp != "end_of_window" else []
        brought = brought.group_by(rules.row_columns).agg(pl.col(ADDED).sum(), *stamp)
        if not stamp:
            brought = brought.with_columns(pl.lit(None, pl.Int64()).alias(STAMP))
        fresh = brought.select(*rules.row_columns, *rules.new_rows(), STAMP, ADDED)
        known = [
            window for window in windows if window in state.windows and state.windows[window].rows is not None
        ]
        if not known:
            return fresh
        kept = self._read_rows(state, known).with_columns(pl.lit(0, pl.Int64()).alias(ADDED))
        return (
            stack([kept, fresh])
            .group_by(rules.row_columns)
            .agg(*rules.combine_rows(), *rules.machine.combine())
        )

    def _read_rows(self, state: WindowState, windows: Iterable[WindowBounds]) -> pl.DataFrame:
        frames: list[pl.DataFrame] = []
        for window in windows:
            bounds = pl.lit(window[0], pl.Int64()).alias(START), pl.lit(window[1], pl.Int64()).alias(END)
            frames.append(state.read(state.windows[window].rows).with_columns(bounds))
        return stack(frames)

    # ---- firing

    def _fire(
        self,
        state: WindowState,
        rows: pl.DataFrame,
        question: Question,
        out: Collector,
        partials: pl.DataFrame | None = None,
    ) -> None:
        """Decide, emit, and keep what remains of the rows and their partials."""
        rules = self.rules
        before = rows.select(*rules.row_columns, FIRED) if self.partials.counts_steps else None
        rows = decide(rows, rules, question)
        fired = rows.filter(FIRES)
        if fired.height:
            wanted = rows.filter(WANTED)
            if wanted.height:
                rows = self._emit(state, rows, wanted, before, partials, out)
            if rules.spec.mode == "discarding":
                self._discard(state, fired, everything=fired.height == rows.height)
        self._keep(state, rows, question)

    def _emit(
        self,
        state: WindowState,
        rows: pl.DataFrame,
        wanted: pl.DataFrame,
        before: pl.DataFrame | None,
        partials: pl.DataFrame | None,
        out: Collector,
    ) -> pl.DataFrame:
        rules = self.rules
        windows = self._windows(wanted) if partials is None or rules.keeps_standing else []
        if partials is None:
            partials = self.partials.combine(state, windows, before)
            self.partials.replace(state, windows, partials)
            in_order = False
        else:  # the rows were made of these very partials
            in_order = wanted.height == partials.height
        if in_order:
            wanted = wanted.hstack(partials.drop(*rules.row_columns, ADDED, STAMP, SEQUENCE, strict=False))
        else:
            parts = partials.drop(ADDED, STAMP, SEQUENCE, strict=False)
            wanted = match(wanted, parts, rules.row_columns, "left")
        standing = self._read_standing(state, windows) if rules.keeps_standing else None
        emission = emit(wanted, rules, standing)
        if emission.panes.height:
            out.panes.append(emission.panes)
        if emission.standing is not None:
            self._keep_standing(state, windows, emission.standing)
        return take_back_suppressed(rows, emission.suppressed)

    def _discard(self, state: WindowState, fired: pl.DataFrame, *, everything: bool) -> None:
        if everything:
            self.partials.discard(state, dict.fromkeys(self._windows(fired)))
            return
        by_window = fired.partition_by(START, END, as_dict=True)
        self.partials.discard(state, {window: by_window[window] for window in self._windows(fired)})

    def _keep(self, state: WindowState, rows: pl.DataFrame, question: Question) -> None:
        """Write the rows of each window, and note when the window is due again."""
        if not question.asks:  # every window was purged
            return
        rules = self.rules
        dates = rows.group_by(self.slicing.columns).agg(
            *([] if END in self.slicing.columns else [pl.col(END).first()]),
            rules.hold().min().alias("hold"),
            pl.when(~pl.col(CLOSED)).then(rules.machine.target(question.clock)).min().alias("target"),
            pl.col(FIRED).max(),
        )
        columns = [*rules.row_columns, *rules.state_columns]
        kept = rows.select(columns).partition_by(self.slicing.columns, as_dict=True, include_key=False)
        for start, end, hold, target, fired in dates.rows():
            if rules.horizon(end) <= question.watermark:
                continue
            entry = state.windows[start, end]
            place = (start, end) if END in self.slicing.columns else (start,)
            entry.rows = state.write(kept[place].drop(END, strict=False), replaces=entry.rows)
            entry.hold, entry.target, entry.fired = hold, target, max(entry.fired, fired)
            entry.due = end if question.watermark < end else rules.horizon(end)
            state.note(entry)

    def _read_standing(self, state: WindowState, windows: Iterable[WindowBounds]) -> pl.DataFrame | None:
        kept = [state.windows[window].standing for window in windows]
        frames = [state.read(name) for name in kept if name is not None]
        return stack(frames) if frames else None

    def _keep_standing(
        self, state: WindowState, windows: Iterable[WindowBounds], standing: pl.DataFrame
    ) -> None:
        by_window = standing.partition_by(START, END, as_dict=True)
        for window in windows:
            entry = state.windows[window]
            entry.standing = state.write(by_window.get(window, standing.clear()), replaces=entry.standing)

    def _purge(self, state: WindowState, window: WindowBounds, watermark: int) -> None:
        state.forget(window)
        for part in self.slicing.slices(window):
            if self.rules.horizon(self.slicing.windows(part)[-1][1]) <= watermark:
                state.forget_slice(part)

    # ---- small things

    def _windows(self, rows: pl.DataFrame) -> list[WindowBounds]:
        """The windows that occur in some rows, in ascending order."""
        columns = self.slicing.columns
        if END in columns:
            return sorted(rows.select(columns).unique().rows())
        ends = rows.group_by(START).agg(pl.col(END).first())
        return sorted(ends.rows())

    def _slice_frame(self, slices: Iterable[WindowBounds]) -> pl.DataFrame:
        frame = pl.DataFrame(list(slices), schema={START: pl.Int64, END: pl.Int64}, orient="row")
        return frame.select(self.slicing.columns)

    def _holders(self, windows: dict[WindowBounds, list[WindowBounds]]) -> pl.DataFrame:
        """Slices with each of their windows."""
        pairs = [(*bounds, *window) for bounds, several in windows.items() for window in several]
        schema = dict.fromkeys((START, END, "holder:start", "holder:end"), pl.Int64)
        frame = pl.DataFrame(pairs, schema=schema, orient="row")
        return frame if END in self.slicing.columns else frame.drop(END)
