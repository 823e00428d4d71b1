"""The partials of slices: folded from elements, appended as blobs, merged now and then, combined to windows.

A batch appends one blob to each slice that it touches and reads none. Blobs of a level are merged into one of
the next when there are many of them, so each partial is merged a few times however many batches come.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl

from slackwater.windows.assigners import WindowBounds
from slackwater.windows.engine.rules import END, FIRED, SEQUENCE, START, Rules, match, stack
from slackwater.windows.engine.slices import Slicing
from slackwater.windows.engine.window_state import FAN_IN, Blob, SliceEntry, WindowState

_ROWS_AT_ONCE = 4_000_000
"""So many partials are combined at a time when many windows are due."""
_WORTH_APART = 10_000
"""From so many rows on, a slice or window is grouped by itself, which needs only the keys."""
_FEW_SLICES = 8
"""Up to so many slices, their rows are picked one slice after the other."""


class SlicePartials:
    """The partials of one operator, in the slices of its windows."""

    def __init__(self, rules: Rules, slicing: Slicing) -> None:
        self.rules = rules
        self.slicing = slicing
        self.counts_steps = slicing.shared and rules.spec.mode == "discarding"
        """Whether partials remember their step, because windows that share them fire apart."""

    # ---- adding

    def fold(
        self, elements: pl.DataFrame, slices: int, watermark: int, carried: Sequence[str] = ()
    ) -> pl.DataFrame:
        """The elements of each slice and key as a partial, which keeps the ``carried`` columns."""
        kept = [pl.col(name).first() for name in carried]
        return self._grouped(elements, slices, [*self.rules.add_elements(watermark), *kept])

    def merge(self, partials: pl.DataFrame, slices: int) -> pl.DataFrame:
        """The partials of each slice and key as one; of equal event times the first stays the first."""
        return self._grouped(partials, slices, self.rules.merge_partials())

    def _grouped(self, frame: pl.DataFrame, slices: int, aggregations: Sequence[pl.Expr]) -> pl.DataFrame:
        keys, columns = self.rules.key_columns, self.slicing.columns
        if frame.height <= slices * _WORTH_APART:
            return frame.group_by(*columns, *keys).agg(aggregations)
        grouped: list[pl.DataFrame] = []
        for place, part in _apart(frame, columns):
            bounds = [
                pl.lit(value, pl.Int64()).alias(name) for name, value in zip(columns, place, strict=True)
            ]
            grouped.append(part.group_by(keys).agg(aggregations).select(*bounds, pl.all()))
        return stack(grouped)

    def append(self, state: WindowState, partials: pl.DataFrame) -> None:
        """Keep the partials of a batch, a blob to a slice."""
        columns = self.slicing.columns
        if self.counts_steps:
            partials = partials.with_columns(pl.lit(state.step, pl.Int64()).alias(SEQUENCE))
        for place, frame in partials.partition_by(columns, as_dict=True, include_key=False).items():
            bounds = self.slicing.bounds(*place)
            entry = state.slices.setdefault(bounds, SliceEntry(*bounds, blobs=[]))
            self._push(state, entry, frame, 0)
            while len(entry.blobs) >= FAN_IN and entry.blobs[-FAN_IN].level == entry.blobs[-1].level:
                last = entry.blobs[-FAN_IN:]
                merged = self._compacted(state, entry, last)
                del entry.blobs[-FAN_IN:]
                for blob in last:
                    state.delete(blob.name)
                self._push(state, entry, merged, last[-1].level + 1)

    @staticmethod
    def _push(state: WindowState, entry: SliceEntry, frame: pl.DataFrame, level: int) -> None:
        name = state.write(frame)
        if name is not None:
            entry.blobs.append(Blob(name, level, frame.height))

    def _compacted(self, state: WindowState, entry: SliceEntry, blobs: Sequence[Blob]) -> pl.DataFrame:
        """The partials of some blobs of a slice, as few as the firings of its windows allow."""
        partials = stack(state.read(blob.name) for blob in blobs)
        keys, aggregations = self.rules.key_columns, self.rules.merge_partials()
        if not self.counts_steps:
            return partials.group_by(keys).agg(aggregations)
        # Steps after the last firing of any window over the slice need not be told apart any more.
        holders = (state.windows.get(window) for window in self.slicing.windows((entry.start, entry.end)))
        fired = max((holder.fired for holder in holders if holder is not None), default=-1)
        step = pl.when(pl.col(SEQUENCE) > fired).then(pl.col(SEQUENCE).max()).otherwise(pl.col(SEQUENCE))
        return partials.with_columns(step.alias(SEQUENCE)).group_by(*keys, SEQUENCE).agg(aggregations)

    # ---- combining

    def combine(
        self, state: WindowState, windows: Iterable[WindowBounds], before: pl.DataFrame | None = None
    ) -> pl.DataFrame:
        """The partials of some windows, one row per window and key.

        ``before`` says for each row in which step it last fired, where only what came since counts.
        """
        keys = self.rules.key_columns
        merged: list[pl.DataFrame] = []
        together: list[tuple[WindowBounds, pl.DataFrame]] = []
        for window in windows:
            bounds = pl.lit(window[0], pl.Int64()).alias(START), pl.lit(window[1], pl.Int64()).alias(END)
            frames = [
                state.read(blob.name)
                for part in self._known(state, window)
                for blob in state.slices[part].blobs
            ]
            if self.counts_steps:
                together += [(window, frame) for frame in frames]
            elif len(frames) == 1:
                merged.append(frames[0].with_columns(bounds))
            elif sum(frame.height for frame in frames) >= _WORTH_APART:
                grouped = stack(frames).group_by(keys).agg(self.rules.merge_partials())
                merged.append(grouped.with_columns(bounds))
            else:
                together += [(window, frame) for frame in frames]
        if together:
            several = _in_windows(together)
            if before is not None:
                several = match(several, before, self.rules.row_columns, "inner")
                several = several.filter(pl.col(SEQUENCE) > pl.col(FIRED))
            merged.append(several.group_by(self.rules.row_columns).agg(self.rules.merge_partials()))
        if not merged:  # all was emitted before, and discarded
            nothing = pl.lit(None, pl.Int64())
            return state.no_partials.with_columns(nothing.alias(START), nothing.alias(END))
        return stack(merged)

    def portions(self, state: WindowState, windows: Sequence[WindowBounds]) -> Iterable[list[WindowBounds]]:
        """The windows in portions whose partials fit into memory together."""
        portion: list[WindowBounds] = []
        size = 0
        for window in windows:
            rows = sum(blob.rows for part in self._known(state, window) for blob in state.slices[part].blobs)
            if portion and size + rows > _ROWS_AT_ONCE:
                yield portion
                portion, size = [], 0
            portion.append(window)
            size += rows
        if portion:
            yield portion

    def _known(self, state: WindowState, window: WindowBounds) -> list[WindowBounds]:
        return [part for part in self.slicing.slices(window) if part in state.slices]

    # ---- keeping less

    def replace(self, state: WindowState, windows: Iterable[WindowBounds], merged: pl.DataFrame) -> None:
        """Keep what was combined anyway, where it saves combining it again."""
        if self.slicing.shared or self.rules.spec.mode == "discarding":
            return
        scattered = [window for window in windows if len(state.slices[window].blobs) > 1]
        if not scattered:
            return
        by_window = merged.partition_by(START, END, as_dict=True, include_key=False)
        for window in scattered:
            entry = state.slices[window]
            level = max(blob.level for blob in entry.blobs) + 1
            self._rewrite(state, entry, by_window[window], level)

    def discard(self, state: WindowState, fired: dict[WindowBounds, pl.DataFrame | None]) -> None:
        """Drop the partials of rows that fired, by window; ``None`` stands for all of its rows."""
        if self.slicing.shared:  # what fired in one window may still be new in another
            return
        for window, rows in fired.items():
            entry = state.slices.get(window)
            if entry is not None and rows is not None:
                kept = match(self._compacted(state, entry, entry.blobs), rows, self.rules.key_columns, "anti")
                self._rewrite(state, entry, kept, entry.blobs[0].level)
            if rows is None or (entry is not None and not entry.blobs):
                state.forget_slice(window)

    def _rewrite(self, state: WindowState, entry: SliceEntry, frame: pl.DataFrame, level: int) -> None:
        for blob in entry.blobs:
            state.delete(blob.name)
        entry.blobs.clear()
        self._push(state, entry, frame, level)


def _apart(frame: pl.DataFrame, columns: Sequence[str]) -> Iterable[tuple[tuple[int, ...], pl.DataFrame]]:
    """The rows of each slice, without the columns that tell slices apart."""
    places = frame.select(columns).unique()
    if places.height > _FEW_SLICES:
        return frame.partition_by(columns, as_dict=True, include_key=False).items()
    # To pick the rows of a few slices takes a third of the time of parting all at once.
    return ((place, _picked(frame, columns, place)) for place in sorted(places.rows()))


def _picked(frame: pl.DataFrame, columns: Sequence[str], place: tuple[int, ...]) -> pl.DataFrame:
    same = (pl.col(name) == value for name, value in zip(columns, place, strict=True))
    return frame.filter(*same).drop(columns)


def _in_windows(frames: Sequence[tuple[WindowBounds, pl.DataFrame]]) -> pl.DataFrame:
    """Frames below each other, with the bounds of the window that each is of."""
    heights = pl.Series([frame.height for _, frame in frames], dtype=pl.UInt32)
    kinds = {START: pl.Int64(), END: pl.Int64()}
    bounds = pl.DataFrame([window for window, _ in frames], kinds, orient="row")
    repeated = bounds.select(pl.all().repeat_by(heights).explode())
    return stack(frame for _, frame in frames).with_columns(repeated)
