"""Rows that are stored in a base and deltas, so that changing a few of many rows writes only those.

The first blob of a log is its base. Every other blob is a delta: newer versions of rows, and deletions. Eight
deltas of a level are merged into one of the next, and when the deltas have grown to the size of the base,
everything is rewritten as a new base. So each change is rewritten a logarithmic number of times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from slackwater.windows.engine.frames import match, stack
from slackwater.windows.engine.window_state import FAN_IN, Blob, WindowState

DELETED: Final = "deleted"
"""Whether a row of a delta deletes the row with its identity; a base does not have this column."""
_BASE_LEVEL: Final = 99
_MAX_CHANGED: Final = 1.0
"""How many rows the deltas may have for each row of the base before everything is rewritten."""


@dataclass(frozen=True)
class RowLog:
    """The logs of one kind of rows, which ``identity`` distinguishes."""

    identity: list[str]

    def read(self, state: WindowState, blobs: Sequence[Blob]) -> pl.DataFrame | None:
        """All rows of a log; None if it is empty."""
        return self.live_rows([state.read(blob.name) for blob in blobs])

    def live_rows(self, frames: Sequence[pl.DataFrame]) -> pl.DataFrame | None:
        """The rows that result from a base and its deltas, oldest first; None if there are no frames.

        >>> base = pl.DataFrame({"key": ["a", "b", "c"], "n": [1, 1, 1]})
        >>> delta = pl.DataFrame({"key": ["a", "b"], "n": [5, None], DELETED: [False, True]})
        >>> RowLog(["key"]).live_rows([base, delta]).rows()
        [('c', 1), ('a', 5)]
        """
        if not frames:
            return None
        base, *deltas = frames
        return self._changed([base], self._merged(deltas)) if deltas else base

    def _changed(self, frames: Sequence[pl.DataFrame], changes: pl.DataFrame) -> pl.DataFrame:
        """The rows of a base and its deltas after further changes."""
        base, *deltas = frames
        if deltas:
            changes = self._merged([*deltas, changes])
        kept = match(base, changes.select(self.identity), self.identity, "anti")
        new = changes.filter(~pl.col(DELETED)).drop(DELETED)
        return stack([kept, new]) if new.height else kept

    def _merged(self, deltas: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Several deltas as one: the newest version of each row."""
        if len(deltas) == 1:
            return deltas[0]
        # A delta of deletions has no other columns than the identity.
        every = pl.concat(deltas, how="diagonal_relaxed")
        return every.unique(self.identity, keep="last", maintain_order=True)

    def replace(self, state: WindowState, log: list[Blob], rows: pl.DataFrame | None) -> None:
        """Write all rows of a log as a new base."""
        for blob in log:
            state.delete(blob.name)
        log.clear()
        if rows is not None:
            self._push(state, log, rows, _BASE_LEVEL)

    def update(
        self, state: WindowState, log: list[Blob], removed: pl.DataFrame | None, added: pl.DataFrame | None
    ) -> None:
        """Replace some rows of a log.

        Args:
            state: the state with the blobs.
            log: the blobs of the log, which are updated in place.
            removed: the identities of rows that were in the log.
            added: rows that are in the log from now on; one may have an identity that is removed.
        """
        changes = self._delta(removed, added)
        if changes.is_empty():
            return
        size = log[0].rows if log else 0
        changed = changes.height + sum(blob.rows for blob in log[1:])
        if changed < size * _MAX_CHANGED:
            self._push(state, log, changes, 0)
            self._compact(state, log)
        elif log:
            self.replace(state, log, self._changed([state.read(blob.name) for blob in log], changes))
        else:
            self.replace(state, log, changes.filter(~pl.col(DELETED)).drop(DELETED))

    def _delta(self, removed: pl.DataFrame | None, added: pl.DataFrame | None) -> pl.DataFrame:
        """The new versions, then the deletions of rows that have none."""
        parts: list[pl.DataFrame] = []
        if added is not None:
            parts.append(added.with_columns(pl.lit(value=False).alias(DELETED)))
        if removed is not None and removed.height:
            identities = removed.select(self.identity)
            gone = identities if added is None else match(identities, added, self.identity, "anti")
            parts.append(gone.with_columns(pl.lit(value=True).alias(DELETED)))
        return pl.concat(parts, how="diagonal_relaxed") if parts else pl.DataFrame()

    def _compact(self, state: WindowState, log: list[Blob]) -> None:
        """Merge deltas once there are enough of one level; the base stays."""
        while len(log) > FAN_IN and log[-FAN_IN].level == log[-1].level:
            last = log[-FAN_IN:]
            merged = self._merged([state.read(blob.name) for blob in last])
            del log[-FAN_IN:]
            for blob in last:
                state.delete(blob.name)
            self._push(state, log, merged, last[-1].level + 1)

    @staticmethod
    def _push(state: WindowState, log: list[Blob], frame: pl.DataFrame, level: int) -> None:
        name = state.write(frame)
        if name is not None:
            log.append(Blob(name, level, frame.height))
