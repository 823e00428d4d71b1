"""Slices of event time: assignment of elements to slices, and the relation of slices to windows.

A slice is the range of event time between two adjacent bounds of any windows. Where windows do not overlap,
a slice is a window; sliding windows share slices, so that an element is stored once.
"""

from __future__ import annotations

import polars as pl

from slackwater.errors import InvalidArgument
from slackwater.time import DAY
from slackwater.windows.assigners import (
    GLOBAL_BOUNDS,
    Calendar,
    Fixed,
    Global,
    Inherited,
    Sliding,
    WindowBounds,
)
from slackwater.windows.columns import END, START, TIME, input_column

WINDOW_START = "window_start"
WINDOW_END = "window_end"


class Slicing:
    """Slices for one window configuration.

    >>> elements = pl.DataFrame({"time": [1, 3, 8]})
    >>> Slicing(Sliding(7, 5)).assign(elements)["start"].to_list()
    [0, 2, 7]
    >>> Slicing(Sliding(7, 5)).windows((2, 5)), Slicing(Sliding(7, 5)).slices((0, 7))
    ([(0, 7)], [(0, 2), (2, 5), (5, 7)])
    """

    def __init__(self, window: Global | Fixed | Sliding | Calendar | Inherited) -> None:
        self.window = window
        self.shared = isinstance(window, Sliding) and window.size > window.every
        """Whether several windows share a slice."""
        self.columns = [START, END] if isinstance(window, Inherited) else [START]
        """The columns that identify a slice."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns of the batch that it reads, in addition to the event time."""
        return (WINDOW_START, WINDOW_END) if isinstance(self.window, Inherited) else ()

    def assign(self, elements: pl.DataFrame) -> pl.DataFrame:
        """Add the start of the slice to elements, and its end if it does not follow from the start."""
        time = pl.col(TIME)
        match self.window:
            case Global():
                return elements.with_columns(pl.lit(GLOBAL_BOUNDS[0], pl.Int64()).alias(START))
            case Fixed(size, offset):
                return elements.with_columns((time - (time - offset % size) % size).alias(START))
            case Sliding(size, every, offset):
                into = (time - offset % every) % every
                cut = size % every
                start = time - into
                if cut:
                    start = start + pl.when(into >= cut).then(cut).otherwise(0)
                return elements.with_columns(start.cast(pl.Int64()).alias(START))
            case Calendar():
                return self._assign_calendar(elements, self.window)
            case Inherited():
                bounds = elements.select(
                    pl.col(input_column(WINDOW_START)).alias(START),
                    pl.col(input_column(WINDOW_END)).alias(END),
                )
                _check_bounds(bounds)
                return elements.with_columns(bounds)

    def bounds(self, start: int, end: int | None = None) -> WindowBounds:
        """The slice that starts there."""
        if end is not None:
            return start, end
        match self.window:
            case Sliding():
                return self.window.slice_at(start)
            case Inherited():
                raise AssertionError("the end of an inherited window does not follow from its start")
            case _:
                return self.window.windows_at(start)[0]

    def windows(self, bounds: WindowBounds) -> list[WindowBounds]:
        """The windows that contain a slice, in ascending order; none for a slice in a gap."""
        return self.window.windows_at(bounds[0]) if isinstance(self.window, Sliding) else [bounds]

    def slices(self, bounds: WindowBounds) -> list[WindowBounds]:
        """The slices that a window consists of, in ascending order."""
        if not isinstance(self.window, Sliding):
            return [bounds]
        slices: list[WindowBounds] = []
        at = bounds[0]
        while at < bounds[1]:
            slices.append(self.window.slice_at(at))
            at = slices[-1][1]
        return slices

    @staticmethod
    def _assign_calendar(elements: pl.DataFrame, window: Calendar) -> pl.DataFrame:
        """Assign by the bounds of the windows around every day that occurs, which are few."""
        starts: set[int] = set()
        for day in elements.select((pl.col(TIME) // DAY).unique().sort()).to_series():
            at = day * DAY
            while at < (day + 1) * DAY:
                start, at = window.windows_at(at)[0]
                starts.add(start)
        ordered = pl.Series(START, sorted(starts), dtype=pl.Int64)
        after = ordered.search_sorted(elements[TIME], side="right")
        return elements.with_columns(ordered.gather(after.cast(pl.Int64) - 1).alias(START))


def _check_bounds(bounds: pl.DataFrame) -> None:
    invalid = bounds.filter(pl.col(START).is_null() | pl.col(END).is_null() | (pl.col(START) >= pl.col(END)))
    if invalid.height:
        raise InvalidArgument(
            "window_start, window_end",
            invalid.row(0),
            "is not a valid window",
            fix="pass the panes of a windowed operator",
        )
