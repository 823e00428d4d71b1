"""Allowed lateness: when a window is purged, and which elements are too late.

A window that ends at ``end`` accepts elements while the watermark is below ``end`` plus the allowed lateness.
At that watermark its state is purged, and later elements for it are dropped. In a global window with a ttl,
each key is purged on its own, as if it had a window that ends at its latest event time plus the ttl.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from slackwater.time import BEGINNING_OF_TIME, END_OF_TIME
from slackwater.windows.operator_columns import LATEST, TIME
from slackwater.windows.spec.window_spec import WindowSpec


@dataclass(frozen=True)
class Lateness:
    """The lateness rules of one operator.

    >>> from slackwater.windows import count, fixed
    >>> counts = {"window": fixed("10 seconds"), "accumulations": {"n": count()}, "event_time": "ts"}
    >>> Lateness(WindowSpec(**counts, allowed_lateness=5)).purge_time(20)
    25
    """

    spec: WindowSpec

    def purge_time(self, end: int) -> int:
        """The watermark at which a window that ends at ``end`` is purged."""
        if self.spec.allowed_lateness is None:
            return END_OF_TIME
        return min(end + self.spec.allowed_lateness, END_OF_TIME)

    def purge_times(self, end: pl.Expr) -> pl.Expr:
        """`purge_time` for a column of ends."""
        if self.spec.allowed_lateness is None:
            return end.clip(lower_bound=END_OF_TIME)  # not a literal: see `is_late_by_element`
        latest = END_OF_TIME - self.spec.allowed_lateness
        return (
            pl.when(end >= latest)
            .then(pl.lit(END_OF_TIME, pl.Int64()))
            .otherwise(end + min(self.spec.allowed_lateness, END_OF_TIME))
        )

    def is_late_by_element(self, watermark: int) -> pl.Expr:
        """Whether an element is too late by its own event time; only with ``drop_late="by_element"``.

        Never an expression of literals alone: with several threads, Polars can fail to filter by one.
        """
        if self.spec.drop_late == "by_window" or self.spec.allowed_lateness is None:
            return pl.col(TIME).is_null()  # always false: elements have an event time
        return pl.col(TIME) < max(watermark - self.spec.allowed_lateness, -(2**63))

    @property
    def _kept_for(self) -> int:
        """How long a key is kept after its latest element."""
        return (self.spec.ttl or 0) + (self.spec.allowed_lateness or 0)

    def expiry(self) -> pl.Expr:
        """The watermark at which the key of a window row expires; null for one whose time is not known."""
        kept_for = min(self._kept_for, END_OF_TIME)
        latest = pl.col(LATEST)
        later = pl.when(latest.is_not_null()).then(pl.lit(END_OF_TIME, pl.Int64()))
        return pl.when(latest < END_OF_TIME - kept_for).then(latest + kept_for).otherwise(later)

    def expired_until(self, watermark: int) -> int:
        """The latest event time at which the state of a key without later elements has expired."""
        return max(watermark - self._kept_for, BEGINNING_OF_TIME)

    def next_due(self, end: int, watermark: int) -> int:
        """The next watermark at which a window has to be evaluated: its end, then its purge time."""
        return end if watermark < end else self.purge_time(end)
