"""Evolution of saved state: what happens to open windows when a query is stopped, changed and started again.

| change | windows that were open |
|---|---|
| accumulation added | null in panes with elements from before the change, or the value since the change |
| accumulation removed | its partials are deleted |
| accumulation changed | as if it was removed and added |
| trigger | it begins anew; elements since the last firing keep counting and are evaluated at once |
| allowed lateness lowered | purged in the next step if the new limit has passed, with their last pane |
| allowed lateness raised | kept for longer; windows that were purged stay purged |
| ``only_updated`` | the last pane before the change is not compared |
| ttl added | a key without further elements expires when the watermark has advanced by the ttl |
| ttl changed | applies to all keys; keys that expired stay purged, and late elements for them are dropped |
| ttl removed | all keys that are still stored are kept |

Another window, key, mode or timestamp is refused. State is rewritten blob by blob, once, when it is loaded.
"""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from slackwater.time import BEGINNING_OF_TIME, END_OF_TIME
from slackwater.windows.accumulations.python import Accumulation
from slackwater.windows.engine.compiled_spec import CompiledSpec
from slackwater.windows.engine.operator_description import UNRECORDED, OperatorDescription
from slackwater.windows.engine.session_windows import SessionWindows
from slackwater.windows.engine.sliced_windows import SlicedWindows
from slackwater.windows.engine.window_state import WindowState
from slackwater.windows.operator_columns import (
    END,
    FIRST,
    LATEST,
    NEW,
    START,
    TIME,
    WEIGHT,
    input_column,
    key_column,
    missed_column,
    value_column,
)
from slackwater.windows.spec.windowing_strategy import WINDOW_COLUMNS

Adapt = Callable[[pl.DataFrame], pl.DataFrame]


class Evolution:
    """Adapts the state of an operator that had other settings to those of this operator."""

    def __init__(self, compiled: CompiledSpec, windows: SessionWindows | SlicedWindows) -> None:
        self.compiled = compiled
        self.windows = windows
        self.description = OperatorDescription.of(compiled.spec)

    def apply(self, state: WindowState) -> None:
        """Adapt a state that was loaded; raises `IncompatibleState` if that is not possible."""
        self._check_partials(state)
        if state.divided_again:
            state.divided_again = False
            self._set_times(state)
        saved, new = state.description, self.description
        if saved == new:
            return
        saved.check_change(new)
        if saved.allowed_lateness == UNRECORDED:
            self._rewrite_partials(state, self.compiled.upgraded)
        if saved.partials != new.partials:
            self._change_accumulations(state, saved.partials)
        if saved.only_updated and not self.compiled.keeps_panes:
            for entry in state.windows.values():
                for name in (entry.last_panes, *(blob.name for blob in entry.pane_log)):
                    state.delete(name)
                entry.last_panes, entry.pane_log = None, []
        if saved.trigger != new.trigger:
            self._restart_trigger(state)
        if saved.ttl != new.ttl and None in (saved.ttl, new.ttl):
            self._change_expiry(state)
        elif saved.allowed_lateness not in (None, UNRECORDED) and (
            (saved.allowed_lateness, saved.ttl) != (new.allowed_lateness, new.ttl)
        ):
            self._keep_purged(state, saved.allowed_lateness + (saved.ttl or 0))
        self._set_times(state)
        state.description = new

    # ---- accumulations

    def _check_partials(self, state: WindowState) -> None:
        """Reject partials in a form that is not loaded any more."""
        in_python = {
            name: each for name, each in self.compiled.accumulations.items() if isinstance(each, Accumulation)
        }
        columns = _partial_columns(state) if in_python else []
        for name, accumulation in in_python.items():
            accumulation.check_saved(self.compiled.partials[name], columns)

    def _change_accumulations(self, state: WindowState, saved: dict[str, str]) -> None:
        new = self.description.partials
        removed = [name for name in saved if saved[name] != new.get(name)]
        added = [name for name in new if saved.get(name) != new[name]]
        kept_markers = [name for name in state.missed if name not in removed]
        marked = added if self.compiled.spec.on_change == "null" else []
        state.missed = [*kept_markers, *marked] if state.windows else []
        empty_partials = self._partial_types(added)
        prefixes = tuple(f"part:{name}:" for name in removed)

        def partials(frame: pl.DataFrame) -> pl.DataFrame:
            kept = frame.drop(name for name in frame.columns if name.startswith(prefixes))
            nulls = [pl.lit(None, dtype).alias(name) for name, dtype in empty_partials.items()]
            return kept.with_columns(
                *nulls, *(pl.lit(value=True).alias(missed_column(name)) for name in marked)
            )

        def panes(frame: pl.DataFrame) -> pl.DataFrame:
            kept = frame.drop((value_column(name) for name in removed), strict=False)
            return kept.with_columns(pl.lit(None).alias(value_column(name)) for name in added)

        self._rewrite_partials(state, partials)
        for entry in state.windows.values():
            for blob in entry.pane_log:
                blob.name = _rewrite(state, blob.name, panes) or blob.name
            entry.last_panes = _rewrite(state, entry.last_panes, panes)
        kept = (each for name, each in self.compiled.spec.accumulations.items() if name not in added)
        read = {
            *self.compiled.spec.key,
            *WINDOW_COLUMNS,
            *(column for each in kept for column in each.inputs),
        }
        state.kinds = {name: kind for name, kind in state.kinds.items() if name in read}

    @staticmethod
    def _rewrite_partials(state: WindowState, adapt: Adapt) -> None:
        """Adapt the partials of all slices, or of all sessions."""
        if state.empty is not None:
            state.empty = adapt(state.empty)
        logs = [*(part.blobs for part in state.slices.values())]
        logs += [entry.row_log for entry in state.windows.values()]
        for log in logs:
            for blob in log:
                blob.name = _rewrite(state, blob.name, adapt) or blob.name

    def _partial_types(self, added: list[str]) -> dict[str, pl.DataType]:
        """The partial columns of new accumulations, as if all of their input had been null so far."""
        spec = self.compiled.spec
        elements = {
            key_column(0): pl.Int64(),
            TIME: pl.Int64(),
            **({WEIGHT: pl.Int64()} if spec.takes_retractions else {}),
            **{input_column(name): pl.Null() for name in spec.inputs},
        }
        aggregations = [
            expression
            for name in added
            for expression in self.compiled.accumulations[name].add(self.compiled.partials[name])
        ]
        partials = pl.DataFrame(schema=elements).group_by(key_column(0)).agg(aggregations)
        return dict(partials.drop(key_column(0)).schema)

    # ---- the trigger

    def _restart_trigger(self, state: WindowState) -> None:
        compiled = self.compiled
        watermark = BEGINNING_OF_TIME if state.watermark is None else state.watermark
        restarted = compiled.trigger.restarted(pl.col(END) <= watermark, watermark)

        def rows(frame: pl.DataFrame) -> pl.DataFrame:
            if NEW not in frame.columns:  # only deletions of sessions
                return frame
            return frame.drop(pl.selectors.starts_with("trigger:")).with_columns(restarted)

        for bounds, entry in state.windows.items():
            for blob in entry.row_log:
                blob.name = _rewrite(state, blob.name, rows) or blob.name
            if isinstance(self.windows, SlicedWindows):
                frame = self._window_rows(state, self.windows, bounds)
                if frame is not None:
                    entry.rows = state.write(rows(frame).drop(START, END), replaces=entry.rows)
                    state.flush()
        state.restarted = True

    def _window_rows(
        self, state: WindowState, windows: SlicedWindows, bounds: tuple[int, int]
    ) -> pl.DataFrame | None:
        """The rows of a window; None if it has none and the new trigger needs none before the end."""
        rows = state.windows[bounds].rows
        if rows is not None:
            start, end = (pl.lit(bound, pl.Int64()) for bound in bounds)
            return state.read(rows).with_columns(start.alias(START), end.alias(END))
        if windows.waits_for_end:
            return None
        first_rows, _ = windows.first_rows(state, [bounds])
        # The former trigger waited for the end, so the arrival of the first element was not stored.
        return first_rows.with_columns(pl.lit(state.clock, pl.Int64()).alias(FIRST))

    # ---- the ttl

    def _change_expiry(self, state: WindowState) -> None:
        """Add or remove the latest event time of each key, after a ttl was added or removed."""
        watermark = pl.lit(state.watermark, pl.Int64()).alias(LATEST)
        if state.watermark != END_OF_TIME:  # what a former ttl has purged may begin anew
            state.purged_until = BEGINNING_OF_TIME
        for bounds, entry in state.windows.items():
            if self.compiled.spec.ttl is None:
                entry.rows = _rewrite(state, entry.rows, lambda rows: rows.drop(LATEST))
            elif isinstance(self.windows, SlicedWindows):
                frame = self._window_rows(state, self.windows, bounds)
                if frame is not None:
                    frame = frame.with_columns(watermark).drop(START, END)
                    entry.rows = state.write(frame, replaces=entry.rows)
                    state.flush()

    # ---- times

    @staticmethod
    def _keep_purged(state: WindowState, lateness: int) -> None:
        """Remember which windows were purged with the former lateness."""
        if state.watermark is not None:
            limit = END_OF_TIME if state.watermark == END_OF_TIME else state.watermark - lateness
            state.purged_until = max(state.purged_until, limit)

    def _set_times(self, state: WindowState) -> None:
        """Note again when each window is due, what it owes and which watermark it holds."""
        for entry in state.windows.values():
            self.windows.set_times(state, entry)
            state.note(entry)
            state.flush()


def _partial_columns(state: WindowState) -> list[str]:
    """The columns of saved partials; none if no partials are saved."""
    if state.empty is not None:
        return state.empty.columns
    logs = (state.read(blob.name).columns for entry in state.windows.values() for blob in entry.row_log)
    return next((columns for columns in logs if NEW in columns), [])


def _rewrite(state: WindowState, name: str | None, adapt: Adapt) -> str | None:
    """Replace a blob by an adapted one, which is written at once; returns the name of the new one."""
    if name is None:
        return None
    written = state.write(adapt(state.read(name)), replaces=name)
    state.flush()
    return written
