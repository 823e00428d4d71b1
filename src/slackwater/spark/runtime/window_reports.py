"""What a bucket reports about windows: the open ones by end, the panes of a batch, and dropped rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import groupby
from typing import Final

import polars as pl

from slackwater.monitoring.query_state import LateRow, OpenWindows, WindowPanes
from slackwater.time import END_OF_TIME
from slackwater.windows.engine.dropped_samples import KEY
from slackwater.windows.engine.window_state import WindowEntry, WindowState

LISTED_ENDS: Final = 50
"""How many ends of open windows a bucket lists, the earliest first."""
LISTED_PANES: Final = 50
"""For how many ends a bucket reports the panes of a batch, the latest ones if there are more."""
_SAMPLED_ENDS: Final = 1_000
_LONGEST_VALUE: Final = 100


@dataclass
class PaneCounts:
    """The panes of a batch by the end of their window and their timing.

    >>> counts, timing = PaneCounts(), ["EARLY", "ON_TIME", "ON_TIME"]
    >>> bounds = {"window_start": [0, 0, 0], "window_end": [10, 10, 10]}
    >>> counts.add(pl.DataFrame({**bounds, "timing": timing, "retraction": [False, False, True]}))
    >>> counts.panes
    (WindowPanes(end=10, start=0, early=1, on_time=1, late=0, retractions=1),)
    """

    _by_end: dict[int, WindowPanes] = field(default_factory=dict)

    def add(self, panes: pl.DataFrame) -> None:
        """Count some panes."""
        ends = panes["window_end"]
        if ends.head(_SAMPLED_ENDS).n_unique() > LISTED_PANES:
            # Nearly every session has an end of its own: count only those that are listed.
            panes = panes.filter(ends >= ends.unique().top_k(LISTED_PANES).min())
        kept, timing = ~pl.col("retraction"), pl.col("timing")
        counted = panes.group_by("window_end").agg(
            pl.col("window_start").min(),
            *((kept & (timing == name)).sum().alias(name) for name in ("EARLY", "ON_TIME", "LATE")),
            (~kept).sum().alias("retractions"),
        )
        for end, start, *counts in counted.top_k(LISTED_PANES, by="window_end").rows():
            known = self._by_end.get(end, WindowPanes(end, start))
            sums = (one + more for one, more in zip(_counts(known), counts, strict=True))
            self._by_end[end] = WindowPanes(end, min(known.start, start), *sums)

    @property
    def panes(self) -> tuple[WindowPanes, ...]:
        """The counts of the latest ends, the earliest of them first."""
        return tuple(self._by_end[end] for end in sorted(self._by_end)[-LISTED_PANES:])


def _counts(panes: WindowPanes) -> tuple[int, int, int, int]:
    return panes.early, panes.on_time, panes.late, panes.retractions


def open_by_end(
    state: WindowState, allowed_lateness: int | None, sizes: Mapping[str, bytes]
) -> tuple[tuple[OpenWindows, ...], int]:
    """The open windows by end, the earliest `LISTED_ENDS` of them, and how many windows are left out.

    ``sizes`` are the blobs whose size is known without reading the state store. Sessions are not listed: the
    index has groups of them, and their ends are only known from the stored rows.
    """
    if state.description.has_sessions:
        return (), len(state.windows)
    entries = nsmallest(_MOST_WINDOWS, state.windows.values(), key=lambda entry: (entry.end, entry.start))
    groups: list[OpenWindows] = []
    for end, several in groupby(entries, key=lambda entry: entry.end):
        if len(groups) == LISTED_ENDS:
            break
        windows = list(several)
        groups.append(
            OpenWindows(
                end=end,
                start=min(entry.start for entry in windows),
                windows=len(windows),
                keys=_sum(_keys(state, entry) for entry in windows),
                bytes=_sum(_bytes(state, entry, sizes) for entry in windows),
                owes_pane=any(entry.waiting is not None for entry in windows),
                closes_at=END_OF_TIME
                if allowed_lateness is None
                else min(end + allowed_lateness, END_OF_TIME),
            )
        )
    return tuple(groups), len(state.windows) - sum(group.windows for group in groups)


_MOST_WINDOWS: Final = 1_000
"""How many windows are looked at: inherited windows of different lengths may share an end."""


def _keys(state: WindowState, entry: WindowEntry) -> int | None:
    """The number of keys, or more if the partials of a key are in several blobs."""
    own = state.slices.get((entry.start, entry.end))
    return None if own is None else sum(blob.rows for blob in own.blobs)


def _bytes(state: WindowState, entry: WindowEntry, sizes: Mapping[str, bytes]) -> int | None:
    own = state.slices.get((entry.start, entry.end))
    blobs = () if own is None else own.blobs
    names = [*(blob.name for blob in blobs), *(name for name in (entry.rows, entry.last_panes) if name)]
    if not names or any(name not in sizes for name in names):
        return None
    return sum(len(sizes[name]) for name in names)


def _sum(values: Iterable[int | None]) -> int | None:
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if len(known) == len(found) else None


def shortened(key: Mapping[str, object]) -> dict[str, str]:
    """The values of a key as short texts.

    >>> len(shortened({"shop": "x" * 1000})["shop"])
    100
    """
    return {name: str(value)[:_LONGEST_VALUE] for name, value in key.items()}


def late_rows(
    sample: pl.DataFrame | None, watermark: int | None, ahead: str | None, *, keeps_values: bool
) -> tuple[LateRow, ...]:
    """Dropped rows for a report; their values are left out unless ``keeps_values``.

    ``watermark`` is the one before the batch, and ``ahead`` what held it back. The rows of a join have the
    watermark of their side.
    """
    if sample is None:
        return ()
    found: list[LateRow] = []
    for row in sample.iter_rows(named=True):
        passed = row["event_time"] if row["window_end"] is None else row["window_end"]
        behind = row.get("watermark", watermark)
        known = passed is not None and behind is not None
        key = row.get(KEY) or {}
        found.append(
            LateRow(
                row["reason"],
                event_time=row["event_time"],
                window_start=row["window_start"],
                window_end=row["window_end"],
                lateness=behind - passed if known else None,
                watermark=behind,
                ahead=ahead,
                rows=row["rows"],
                values=shortened(key) if keeps_values else None,
                side=row.get("side"),
            )
        )
    return tuple(found)
