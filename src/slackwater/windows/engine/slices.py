"""Slices of event time: assignment of elements to slices, and the relation of slices to windows.

A slice is the range of event time between two adjacent bounds of any windows. Where windows do not overlap,
a slice is a window; sliding windows share slices, so that an element is stored once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, overload

import polars as pl

from slackwater.errors import InvalidArgument
from slackwater.time import DAY, frame_floor
from slackwater.windows.assigners import (
    GLOBAL_BOUNDS,
    Calendar,
    Fixed,
    Global,
    Inherited,
    Sliding,
    WindowBounds,
)
from slackwater.windows.operator_columns import END, START, TIME, input_column

WINDOW_START = "window_start"
WINDOW_END = "window_end"
HOLDER_START: Final = "holder:start"
"""With `HOLDER_END`, the bounds of a window that contains a slice, where the slice has bounds too."""
HOLDER_END: Final = "holder:end"

WindowsBySlice = Mapping[WindowBounds, Sequence[WindowBounds]]
"""Slices, each with some of the windows that contain it."""


class WindowRange(Sequence[WindowBounds]):
    """Sliding windows with consecutive starts, of which none is stored: a slice can be in thousands.

    >>> list(WindowRange(range(0, 3), 10)[1:])
    [(1, 11), (2, 12)]
    """

    __slots__ = ("_size", "_starts")

    def __init__(self, starts: range, size: int) -> None:
        self._starts = starts
        self._size = size

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, index: int) -> WindowBounds: ...
    @overload
    def __getitem__(self, index: slice) -> WindowRange: ...
    def __getitem__(self, index: int | slice) -> WindowBounds | WindowRange:
        if isinstance(index, slice):
            return WindowRange(self._starts[index], self._size)
        start = self._starts[index]
        return start, start + self._size

    def __iter__(self) -> Iterator[WindowBounds]:
        size = self._size
        return ((start, start + size) for start in self._starts)


class Slicing:
    """Slices for one window configuration.

    >>> elements = pl.DataFrame({"time": [1, 3, 8]})
    >>> Slicing(Sliding(7, 5)).assign(elements)["start"].to_list()
    [0, 2, 7]
    >>> list(Slicing(Sliding(7, 5)).windows((2, 5))), list(Slicing(Sliding(7, 5)).slices((0, 7)))
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

    def windows(self, bounds: WindowBounds) -> Sequence[WindowBounds]:
        """The windows that contain a slice, in ascending order; none for a slice in a gap."""
        if isinstance(self.window, Sliding):
            return WindowRange(self.window.starts_at(bounds[0]), self.window.size)
        return [bounds]

    def distinct(self, several: Iterable[Sequence[WindowBounds]]) -> list[WindowBounds]:
        """The windows of several slices, given in ascending order, each once.

        >>> slicing = Slicing(Sliding(4, 1))
        >>> slicing.distinct([slicing.windows((0, 1)), slicing.windows((2, 3))])
        [(-3, 1), (-2, 2), (-1, 3), (0, 4), (1, 5), (2, 6)]
        """
        if not self.shared:
            return list(dict.fromkeys(window for windows in several for window in windows))
        found: list[WindowBounds] = []
        for windows in several:
            known = bisect_right(windows, found[-1]) if found else 0
            found += windows[known:]
        return found

    def last_end(self, bounds: WindowBounds) -> int:
        """The end of the last window that contains a slice.

        >>> Slicing(Sliding(60, 10)).last_end((20, 30)), Slicing(Fixed(10)).last_end((20, 30))
        (80, 30)
        """
        if not isinstance(self.window, Sliding):
            return bounds[1]
        return frame_floor(bounds[0], self.window.every, self.window.offset) + self.window.size

    def slices(self, bounds: WindowBounds) -> Iterator[WindowBounds]:
        """The slices that a window consists of, in ascending order."""
        if not isinstance(self.window, Sliding):
            yield bounds
            return
        at = bounds[0]
        while at < bounds[1]:
            part = self.window.slice_at(at)
            yield part
            at = part[1]

    def slices_in(self, frame: pl.DataFrame) -> list[WindowBounds]:
        """The slices that occur in a frame."""
        return [self.bounds(*row) for row in frame.select(self.columns).unique().rows()]

    def slice_frame(self, slices: Iterable[WindowBounds]) -> pl.DataFrame:
        """A row for each slice, with the columns that identify it."""
        frame = pl.DataFrame(list(slices), schema={START: pl.Int64, END: pl.Int64}, orient="row")
        return frame.select(self.columns)

    def window_frame(self, windows: WindowsBySlice) -> pl.DataFrame:
        """A row for each slice and window that contains it."""
        pairs = [(*bounds, *window) for bounds, several in windows.items() for window in several]
        schema = dict.fromkeys((START, END, HOLDER_START, HOLDER_END), pl.Int64)
        frame = pl.DataFrame(pairs, schema=schema, orient="row")
        return frame if END in self.columns else frame.drop(END)

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
