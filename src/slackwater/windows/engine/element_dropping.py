"""Elements that no window accepts: those that are too late, and those of windows that their trigger closed.

Every element that is dropped is counted, once for each window that would have had it. With ``late="emit"``
its row is returned with the reason.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import polars as pl

from slackwater.windows.assigners import WindowBounds
from slackwater.windows.engine.compiled_spec import CompiledSpec, StepResults
from slackwater.windows.engine.frames import match
from slackwater.windows.engine.slices import HOLDER_END, HOLDER_START, Slicing, WindowsBySlice
from slackwater.windows.engine.window_state import WindowState
from slackwater.windows.operator_columns import ADDED, CLOSED, END, ROW, START, TIME


class ElementDropping:
    """Drops elements of one operator whose windows do not merge."""

    def __init__(self, compiled: CompiledSpec, slicing: Slicing) -> None:
        self.compiled = compiled
        self.slicing = slicing

    def drop_late(
        self, state: WindowState, elements: pl.DataFrame, watermark: int, out: StepResults
    ) -> tuple[pl.DataFrame, WindowsBySlice]:
        """The elements that some window accepts, and by slice the windows that accept them."""
        lateness = self.compiled.lateness

        def accepts(window: WindowBounds) -> bool:
            return lateness.purge_time(window[1]) > watermark and window[1] > state.purged_until

        by_element = self.compiled.spec.drop_late == "by_element"
        windows = {bounds: self.slicing.windows(bounds) for bounds in self.slicing.slices_in(elements)}
        gaps = [bounds for bounds, holders in windows.items() if not holders]
        if gaps:
            elements = match(elements, self.slicing.slice_frame(gaps), self.slicing.columns, "anti")
        if by_element:
            is_late = lateness.is_late_by_element(watermark)
            behind = elements.filter(is_late)
            if behind.height:
                elements = elements.filter(~is_late)
                self._report_late(behind, None, out)
        if self.compiled.spec.ttl is not None:
            is_expired = pl.col(TIME) <= max(lateness.expired_until(watermark), state.purged_until)
            expired = elements.filter(is_expired)
            if expired.height:
                elements = elements.filter(~is_expired)
                self._report_late(expired, None if by_element else windows, out)
        accepting: dict[WindowBounds, Sequence[WindowBounds]] = {}
        late: dict[WindowBounds, Sequence[WindowBounds]] = {}
        for bounds, holders in windows.items():
            first = bisect_left(holders, 1, key=accepts)
            accepting[bounds] = holders[first:]
            if first:
                late[bounds] = holders[:first]
        if late:
            dropped = match(elements, self.slicing.slice_frame(late), self.slicing.columns, "semi")
            self._report_late(dropped, None if by_element else late, out)
            gone = [bounds for bounds in late if by_element or not accepting[bounds]]
            if gone:
                elements = match(elements, self.slicing.slice_frame(gone), self.slicing.columns, "anti")
        return elements, accepting

    def _report_late(self, dropped: pl.DataFrame, windows: WindowsBySlice | None, out: StepResults) -> None:
        """Count dropped elements: once for each of the windows, or once each if there are none."""
        if windows is not None:
            dropped = match(dropped, self.slicing.window_frame(windows), self.slicing.columns, "inner")
        out.dropped_late += int(dropped[ADDED].sum()) if ADDED in dropped.columns else dropped.height
        if dropped.is_empty():
            return
        nothing = pl.lit(None, pl.Int64())
        start, end = (pl.col(HOLDER_START), pl.col(HOLDER_END)) if windows is not None else (nothing, nothing)
        out.sample(dropped, "late", (start, end), self.compiled.key_columns)
        if self.compiled.spec.late == "emit":
            out.late.append(
                dropped.select(ROW, pl.lit("late").alias("reason"), start.alias(START), end.alias(END))
            )

    def drop_closed(
        self, rows: pl.DataFrame, partials: pl.DataFrame, elements: pl.DataFrame | None, out: StepResults
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Drop and count the elements of windows that their trigger has closed."""
        compiled = self.compiled
        closed = rows.filter(pl.col(CLOSED) & (pl.col(ADDED) > 0)).select(*compiled.row_columns, ADDED)
        if closed.is_empty():
            return rows, partials
        out.dropped_closed += int(closed[ADDED].sum())
        out.sample(closed, "closed", (pl.col(START), pl.col(END)), compiled.key_columns)
        rows = rows.with_columns(pl.when(pl.col(CLOSED)).then(0).otherwise(pl.col(ADDED)).alias(ADDED))
        if compiled.spec.late == "emit" and elements is not None:
            windows = self.slicing.window_frame(
                {bounds: self.slicing.windows(bounds) for bounds in self.slicing.slices_in(elements)}
            )
            found = match(
                match(elements, windows, self.slicing.columns, "inner"),
                closed.rename({START: HOLDER_START, END: HOLDER_END}),
                [HOLDER_START, HOLDER_END, *compiled.key_columns],
                "semi",
            )
            bounds = pl.col(HOLDER_START).alias(START), pl.col(HOLDER_END).alias(END)
            out.late.append(found.select(ROW, pl.lit("closed").alias("reason"), *bounds))
        if not self.slicing.shared:
            partials = match(partials, closed, [*self.slicing.columns, *compiled.key_columns], "anti")
        return rows, partials
