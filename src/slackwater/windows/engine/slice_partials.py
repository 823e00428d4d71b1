"""The partials of slices: aggregated from elements, appended as blobs, compacted, and combined to windows.

A batch appends one blob to each slice that it touches and reads none. When a level has many blobs, they are
compacted into one blob of the next level, so that each partial is rewritten a logarithmic number of times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Any, Final

import polars as pl

from slackwater.windows.assigners import WindowBounds
from slackwater.windows.engine.compiled_spec import CompiledSpec
from slackwater.windows.engine.divided_frames import change_keys, is_divided, is_few, read_keys
from slackwater.windows.engine.frames import match, stack
from slackwater.windows.engine.slices import Slicing
from slackwater.windows.engine.window_state import FAN_IN, Blob, SliceEntry, WindowState
from slackwater.windows.operator_columns import END, FIRED, SEQUENCE, START

_ROWS_AT_ONCE: Final = 4_000_000
"""How many partials are combined at a time when many windows are due."""
_ROWS_WORTH_SPLITTING: Final = 10_000
"""With at least so many rows, a slice or window is grouped on its own, which needs only the keys."""
_FEW_SLICES: Final = 8
"""Up to this number of slices, the rows of each are selected by a filter."""
_SLICES_WORTH_SHARING: Final = 16
"""Slices that several due windows have in common are merged once for all of them if there are as many."""

_ROWS_WORTH_SELECTING: Final = 2_048
"""Minimum number of partials of a window for which only those of the keys that fire are combined."""
_MAX_FIRING_SHARE: Final = 0.5
"""Only the keys that fire are combined if they are at most this share of the partials."""


@dataclass(frozen=True)
class Combined:
    """The partials of some windows, merged to one row per window and key."""

    partials: pl.DataFrame
    """Without the columns that hold elements."""
    parts: pl.DataFrame | None = None
    """The partials before they were merged, with their elements; None if no accumulation stores elements."""
    selected: frozenset[WindowBounds] = frozenset()
    """The windows of which only the keys that fire were read."""


@dataclass(frozen=True)
class _SharedSlices:
    """Consecutive slices that several windows consist of, merged to one row per key."""

    slices: Sequence[WindowBounds]
    partials: pl.DataFrame


class SlicePartials:
    """The partials of one operator, in the slices of its windows."""

    def __init__(self, compiled: CompiledSpec, slicing: Slicing, *, divides: bool = False) -> None:
        self.compiled = compiled
        self.slicing = slicing
        self.divides = divides
        """Whether many partials are divided by key, because a few keys may fire."""
        self.counts_steps = slicing.shared and compiled.spec.mode == "discarding"
        """Whether partials store their step, because windows that share them fire independently."""

    # ---- adding

    def fold(
        self, elements: pl.DataFrame, slices: int, watermark: int, carried: Sequence[str] = ()
    ) -> pl.DataFrame:
        """Aggregate elements to one partial per slice and key, which keeps the ``carried`` columns."""
        kept = [pl.col(name).first() for name in carried]
        elements, narrow = self.compiled.narrowed(elements)
        aggregations = self.compiled.add_elements(watermark, elements, narrow)
        partials = self._grouped(elements, slices, [*aggregations, *kept])
        numbers = self.compiled.numbers(elements, narrow)
        return partials.with_columns(numbers) if numbers else partials

    def merge(self, partials: pl.DataFrame, slices: int, carried: Sequence[str] = ()) -> pl.DataFrame:
        """Merge partials to one per slice and key; among equal event times the first stays the first."""
        kept = [pl.col(name).first() for name in carried]
        aggregations = self.compiled.merge_partials(present=partials.columns)
        return self._grouped(partials, slices, [*aggregations, *kept])

    def _grouped(self, frame: pl.DataFrame, slices: int, aggregations: Sequence[pl.Expr]) -> pl.DataFrame:
        keys, columns = self.compiled.key_columns, self.slicing.columns
        if frame.height <= slices * _ROWS_WORTH_SPLITTING:
            return frame.group_by(*columns, *keys).agg(aggregations)
        grouped: list[pl.DataFrame] = []
        for bounds, part in _split(frame, columns):
            literals = [
                pl.lit(value, pl.Int64()).alias(name) for name, value in zip(columns, bounds, strict=True)
            ]
            grouped.append(part.group_by(keys).agg(aggregations).select(*literals, pl.all()))
        return stack(grouped)

    def append(self, state: WindowState, partials: pl.DataFrame) -> None:
        """Store the partials of a batch, one blob per slice."""
        columns = self.slicing.columns
        if self.counts_steps:
            partials = partials.with_columns(pl.lit(state.step, pl.Int64()).alias(SEQUENCE))
        partials = self.compiled.stored(partials).with_columns(state.nothing_missed())
        for found, frame in partials.partition_by(columns, as_dict=True, include_key=False).items():
            bounds = self.slicing.bounds(*found)
            entry = state.slices.setdefault(bounds, SliceEntry(*bounds, blobs=[]))
            self._push(state, entry, frame, 0)
            while len(entry.blobs) >= FAN_IN and entry.blobs[-FAN_IN].level == entry.blobs[-1].level:
                last = entry.blobs[-FAN_IN:]
                merged = self._compacted(state, entry, last)
                divides = any(is_divided(state, blob.name) for blob in last)
                del entry.blobs[-FAN_IN:]
                for blob in last:
                    state.delete(blob.name)
                self._push(state, entry, merged, last[-1].level + 1, divides=divides)

    @staticmethod
    def _push(
        state: WindowState, entry: SliceEntry, frame: pl.DataFrame, level: int, *, divides: bool = False
    ) -> None:
        name = state.write(frame, divides=divides)
        if name is not None:
            entry.blobs.append(Blob(name, level, frame.height))

    def _compacted(self, state: WindowState, entry: SliceEntry, blobs: Sequence[Blob]) -> pl.DataFrame:
        """Merge the partials of some blobs of a slice, as far as the firings of its windows allow."""
        partials = stack(self.compiled.widened(self._read(state, blob)) for blob in blobs)
        keys, aggregations = self.compiled.key_columns, self.compiled.merge_partials(state.missed)
        if not self.counts_steps:
            return self.compiled.compacted(partials, state.missed)
        # Steps after the last firing of any window over the slice need not be distinguished any more.
        holders = (state.windows.get(window) for window in self.slicing.windows((entry.start, entry.end)))
        fired = max((holder.fired for holder in holders if holder is not None), default=-1)
        step = pl.when(pl.col(SEQUENCE) > fired).then(pl.col(SEQUENCE).max()).otherwise(pl.col(SEQUENCE))
        partials = partials.with_columns(step.alias(SEQUENCE))
        # In order: among equal event times, the partial of an earlier step stays the first.
        return partials.group_by(*keys, SEQUENCE, maintain_order=True).agg(aggregations)

    def _read(self, state: WindowState, blob: Blob, keys: pl.DataFrame | None = None) -> pl.DataFrame:
        """The partials of a blob, or only those of some keys; their lists may be narrow."""
        if keys is None:
            return self.compiled.complete(state.read(blob.name))
        return self.compiled.complete(read_keys(state, blob.name, keys, self.compiled.key_columns))

    # ---- combining

    def combine(
        self,
        state: WindowState,
        windows: Iterable[WindowBounds],
        before: pl.DataFrame | None = None,
        fired: pl.DataFrame | None = None,
    ) -> Combined:
        """The partials of some windows, one row per window and key.

        Args:
            state: the state with the partials.
            windows: the windows.
            before: the step of the last firing of each row, if only later partials count.
            fired: the rows that fire, if the partials of others are not needed.
        """
        keys, lists = self.compiled.key_columns, self.compiled.element_columns
        aggregations = self.compiled.merge_partials(state.missed, "extremes")
        merged: list[pl.DataFrame] = []
        parts: list[pl.DataFrame] = []
        together: list[tuple[WindowBounds, pl.DataFrame]] = []
        selected: list[WindowBounds] = []
        windows = list(windows)
        is_mergeable = fired is None and not lists and not self.counts_steps
        shared = self._shared(state, windows) if is_mergeable else {}
        for window in windows:
            bounds = pl.lit(window[0], pl.Int64()).alias(START), pl.lit(window[1], pl.Int64()).alias(END)
            common = shared.get(window)
            known = self._known(state, window)
            if common is not None:
                at = known.index(common.slices[0])
                sides = known[:at], known[at + len(common.slices) :]
                left, right = (self._frames(state, self._blobs(state, side)) for side in sides)
                merged.append(
                    stack([*left, common.partials, *right])
                    .group_by(keys)
                    .agg(aggregations)
                    .with_columns(bounds)
                )
                continue
            blobs = self._blobs(state, known)
            chosen = None
            if fired is not None and self._are_selected(state, blobs, fired):
                chosen = fired
                selected.append(window)
            frames = self._frames(state, blobs, chosen)
            are_merged = len(frames) == 1
            if lists and frames:
                united = self.compiled.united(frames)
                found = [name for name in lists if name in united.columns]
                parts.append(united.select(*keys, *found, *bounds))
                frames = [self.compiled.without_elements(united)]
            if self.counts_steps:
                together += [(window, frame) for frame in frames]
            elif are_merged:
                merged.append(frames[0].with_columns(bounds))
            elif sum(frame.height for frame in frames) >= _ROWS_WORTH_SPLITTING:
                grouped = stack(frames).group_by(keys).agg(aggregations)
                merged.append(grouped.with_columns(bounds))
            else:
                together += [(window, frame) for frame in frames]
        if together:
            several = _in_windows(together)
            if before is not None:
                several = match(several, before, self.compiled.row_columns, "inner")
                several = several.filter(pl.col(SEQUENCE) > pl.col(FIRED))
            grouped = several.group_by(self.compiled.row_columns).agg(aggregations)
            merged.append(grouped)
        if not merged:  # everything was emitted before and discarded
            nothing = pl.lit(None, pl.Int64())
            merged.append(state.no_partials.with_columns(nothing.alias(START), nothing.alias(END)))
        return Combined(stack(merged), self.compiled.united(parts) if parts else None, frozenset(selected))

    def _shared(
        self, state: WindowState, windows: Sequence[WindowBounds]
    ) -> dict[WindowBounds, _SharedSlices]:
        """The slices that several windows have in common, by window, if they are worth merging once.

        With ``n`` slices per window, windows are grouped by about the square root of ``n``.
        """
        if len(windows) < 2 or not self.slicing.shared:
            return {}
        known = {window: self._known(state, window) for window in sorted(windows)}
        ordered = list(known)
        size = max(2, isqrt(max(map(len, known.values()))))
        shared: dict[WindowBounds, _SharedSlices] = {}
        for start in range(0, len(ordered), size):
            group = ordered[start : start + size]
            common = set(known[group[0]]).intersection(*(known[window] for window in group[1:]))
            if len(group) < 2 or len(common) < _SLICES_WORTH_SHARING:
                continue
            slices = [part for part in known[group[0]] if part in common]
            frames = self._frames(state, self._blobs(state, slices))
            merged = self.compiled.compacted(stack(frames), state.missed)
            shared |= dict.fromkeys(group, _SharedSlices(slices, merged))
        return shared

    @staticmethod
    def _blobs(state: WindowState, slices: Iterable[WindowBounds]) -> list[Blob]:
        return [blob for part in slices for blob in state.slices[part].blobs]

    def _frames(
        self, state: WindowState, blobs: Sequence[Blob], keys: pl.DataFrame | None = None
    ) -> list[pl.DataFrame]:
        return [self._read(state, blob, keys) for blob in blobs]

    def portions(self, state: WindowState, windows: Sequence[WindowBounds]) -> Iterable[list[WindowBounds]]:
        """Divide windows into portions whose partials fit into memory together."""
        portion: list[WindowBounds] = []
        size = 0
        for window in windows:
            rows = sum(blob.rows for blob in self._blobs(state, self._known(state, window)))
            if portion and size + rows > _ROWS_AT_ONCE:
                yield portion
                portion, size = [], 0
            portion.append(window)
            size += rows
        if portion:
            yield portion

    def _known(self, state: WindowState, window: WindowBounds) -> list[WindowBounds]:
        return [part for part in self.slicing.slices(window) if part in state.slices]

    # ---- rewriting

    def replace(self, state: WindowState, windows: Iterable[WindowBounds], combined: Combined) -> None:
        """Store partials that were combined for a firing, so that they need not be combined again."""
        if self.slicing.shared or self.compiled.spec.mode == "discarding":
            return
        scattered = [
            window
            for window in windows
            if window not in combined.selected and len(state.slices[window].blobs) > 1
        ]
        if not scattered:
            return
        by_window: dict[tuple[Any, ...], pl.DataFrame] = {}
        if combined.parts is None:
            by_window = combined.partials.partition_by(START, END, as_dict=True, include_key=False)
        for window in scattered:
            entry = state.slices[window]
            level = max(blob.level for blob in entry.blobs) + 1
            merged = by_window.get(window)
            if merged is None:  # combined without elements
                merged = self._compacted(state, entry, entry.blobs)
            self._rewrite(state, entry, merged, level)

    def discard(self, state: WindowState, fired: dict[WindowBounds, pl.DataFrame | None]) -> None:
        """Delete the partials of rows that fired, by window; None stands for all rows of the window."""
        if self.slicing.shared:  # partials that fired in one window may still be new in another
            return
        for window, rows in fired.items():
            entry = state.slices.get(window)
            if entry is not None and rows is not None and self._divided_for(state, entry.blobs, rows):
                self._remove(state, entry, rows)
            elif entry is not None and rows is not None:
                kept = match(
                    self._compacted(state, entry, entry.blobs), rows, self.compiled.key_columns, "anti"
                )
                self._rewrite(state, entry, kept, entry.blobs[0].level)
            if rows is None or (entry is not None and not entry.blobs):
                state.forget_slice(window)

    def _are_selected(self, state: WindowState, blobs: Sequence[Blob], fired: pl.DataFrame) -> bool:
        """Whether only the partials of the keys that fire are combined, and the stored ones stay as they are.

        Otherwise all of them are combined, and stored again if no other window shares them. That is done when
        the blobs have twice as many rows as the largest of them, so that a partial is rewritten once for as
        many new ones.
        """
        if self._divided_for(state, blobs, fired):
            return True
        rows = sum(blob.rows for blob in blobs)
        largest = max((blob.rows for blob in blobs), default=0)
        few_fire = fired.height <= _MAX_FIRING_SHARE * rows
        return few_fire and _ROWS_WORTH_SELECTING < rows <= 2 * largest

    def _divided_for(self, state: WindowState, blobs: Sequence[Blob], fired: pl.DataFrame) -> bool:
        """Whether few keys fire, so that only their partials are read; large blobs are divided for that."""
        if not self.divides or not is_few(fired.height, sum(blob.rows for blob in blobs)):
            return False
        for blob in blobs:
            if not is_divided(state, blob.name) and is_few(fired.height, blob.rows):
                blob.name = state.write(state.read(blob.name), blob.name, divides=True) or blob.name
        return True

    def _remove(self, state: WindowState, entry: SliceEntry, rows: pl.DataFrame) -> None:
        """Delete the partials of a few keys in each blob."""
        keys = self.compiled.key_columns
        kept: list[Blob] = []
        for blob in entry.blobs:
            if is_divided(state, blob.name):
                name = change_keys(state, blob.name, keys, rows, None)
                height = 0 if name is None else state.divisions[name].rows
            else:
                frame = match(state.read(blob.name), rows, keys, "anti")
                height = frame.height
                name = blob.name if height == blob.rows else state.write(frame, replaces=blob.name)
            if name is not None:
                kept.append(Blob(name, blob.level, height))
        entry.blobs = kept

    def _rewrite(self, state: WindowState, entry: SliceEntry, frame: pl.DataFrame, level: int) -> None:
        for blob in entry.blobs:
            state.delete(blob.name)
        entry.blobs.clear()
        self._push(state, entry, frame, level)


def _split(frame: pl.DataFrame, columns: Sequence[str]) -> Iterable[tuple[tuple[int, ...], pl.DataFrame]]:
    """The rows of each slice, without the columns that identify the slice."""
    slices = frame.select(columns).unique()
    if slices.height > _FEW_SLICES:
        return frame.partition_by(columns, as_dict=True, include_key=False).items()
    # Filtering a few slices takes a third of the time of partitioning.
    return ((bounds, _filtered(frame, columns, bounds)) for bounds in sorted(slices.rows()))


def _filtered(frame: pl.DataFrame, columns: Sequence[str], bounds: tuple[int, ...]) -> pl.DataFrame:
    same = (pl.col(name) == value for name, value in zip(columns, bounds, strict=True))
    return frame.filter(*same).drop(columns)


def _in_windows(frames: Sequence[tuple[WindowBounds, pl.DataFrame]]) -> pl.DataFrame:
    """Concatenate frames, adding the bounds of the window that each belongs to."""
    heights = pl.Series([frame.height for _, frame in frames], dtype=pl.UInt32)
    schema = {START: pl.Int64(), END: pl.Int64()}
    bounds = pl.DataFrame([window for window, _ in frames], schema, orient="row")
    repeated = bounds.select(pl.all().repeat_by(heights).explode())
    return stack(frame for _, frame in frames).with_columns(repeated)
