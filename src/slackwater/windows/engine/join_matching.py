"""Matching rows of two frames with equal keys and times within bounds.

A hash join on the key followed by a filter on time compares every two rows of a key, so a hot key is
quadratic even if nothing matches. Here key and time are combined to one sortable number, and the matches of a
row are a slice of the other side, found by binary search. The cost is n log n plus the number of matching
pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from slackwater.windows.engine.frames import join_equal

LARGEST_NUMBER: Final = 2**62
"""The number of keys times the width of the time range must stay below this, to fit into 64 bits."""


@dataclass(frozen=True, slots=True)
class MatchingRows:
    """Pairs of matching rows in compact form: for each left row a range of positions of right rows.

    One frequent key can have very many pairs, so they are listed in pieces.
    """

    left: pl.Series
    """The numbers of the left rows that match, each once."""
    start: pl.Series
    stop: pl.Series
    """The matches of each left row are the positions from ``start`` to ``stop``, exclusive."""
    order: pl.Series
    """The number of the right row at each position."""

    def pieces(self, rows: int) -> Iterator[tuple[pl.Series, pl.Series]]:
        """The numbers of the left and right rows of all pairs, at most ``rows`` pairs at a time.

        >>> order = pl.Series([7, 8, 9], dtype=pl.UInt32)
        >>> found = MatchingRows(pl.Series([0, 1]), pl.Series([0, 1]), pl.Series([2, 3]), order)
        >>> [(left.to_list(), right.to_list()) for left, right in found.pieces(3)]
        [([0, 0, 1], [7, 8, 8]), ([1], [9])]
        """
        counts = self.stop.cast(pl.Int64) - self.start.cast(pl.Int64)
        total = int(counts.sum())
        if total <= rows:
            yield from [self._pairs(self.left, self.start, self.stop)] if total else []
            return
        after = counts.cum_sum()
        for low in range(0, total, rows):
            high = min(low + rows, total)
            first, last = after.search_sorted(low, side="right"), after.search_sorted(high, side="left")
            some = slice(first, last + 1)
            skipped = (low - after[some] + counts[some]).clip(0)
            omitted = (after[some] - high).clip(0)
            yield self._pairs(self.left[some], self.start[some] + skipped, self.stop[some] - omitted)

    def _pairs(self, left: pl.Series, start: pl.Series, stop: pl.Series) -> tuple[pl.Series, pl.Series]:
        pairs = (
            pl.DataFrame({"left": left, "start": start, "stop": stop})
            .select("left", pl.int_ranges("start", "stop", dtype=pl.UInt32).alias("position"))
            .explode("position")
        )
        return pairs["left"], self.order.gather(pairs["position"])


def matching_rows(
    left: pl.DataFrame,
    right: pl.DataFrame,
    *,
    on: Sequence[str],
    left_time: str,
    right_time: str,
    before: int,
    after: int,
) -> MatchingRows:
    """All pairs of rows with equal keys and ``left − before ≤ right ≤ left + after``.

    A null in any key column matches nothing. Without key columns only the times are compared. Times and
    bounds must be within ±2**62.

    >>> left = pl.DataFrame({"k": ["a", "b"], "ts": [10, 10]})
    >>> right = pl.DataFrame({"k": ["a", "a", "b"], "ts": [8, 13, 14]})
    >>> rows = matching_rows(left, right, on=["k"], left_time="ts", right_time="ts", before=2, after=3)
    >>> [[numbers.to_list() for numbers in piece] for piece in rows.pieces(100)]
    [[[0, 0], [0, 1]]]
    """
    nothing = pl.Series(dtype=pl.UInt32)
    if left.is_empty() or right.is_empty():
        return MatchingRows(nothing, nothing, nothing, nothing)
    keys = [f"key{number}" for number in range(len(on))] or ["key"]
    wanted = _keyed(left, on, left_time)
    offered = _keyed(right, on, right_time)
    codes = offered.select(keys).unique().with_row_index("code").with_columns(pl.col("code").cast(pl.Int64))
    wanted, offered = join_equal(wanted, codes, keys), join_equal(offered, codes, keys)
    if wanted.is_empty() or offered.is_empty():
        return MatchingRows(nothing, nothing, nothing, nothing)

    low, high, times = wanted["time"] - before, wanted["time"] + after, offered["time"]
    first, last = time_range(times)
    width = last - first + 1
    if width * len(codes) >= LARGEST_NUMBER:
        # The times are too far apart to share a number with the key: use their ranks instead.
        ordered = times.sort()
        low = ordered.search_sorted(low, side="left").cast(pl.Int64)
        high = ordered.search_sorted(high, side="right").cast(pl.Int64) - 1
        times = ordered.search_sorted(times, side="left").cast(pl.Int64)
        first, width = 0, len(ordered)

    base = wanted["code"] * width
    numbers = pl.DataFrame({"number": offered["code"] * width + (times - first), "row": offered["row"]})
    numbers = numbers.sort("number")
    start = numbers["number"].search_sorted(base + (low - first).clip(0, width), side="left")
    stop = numbers["number"].search_sorted(base + (high - first + 1).clip(0, width), side="left")
    slices = pl.DataFrame({"left": wanted["row"], "start": start, "stop": stop})
    slices = slices.filter(pl.col("stop") > pl.col("start"))
    return MatchingRows(slices["left"], slices["start"], slices["stop"], numbers["row"])


def time_range(times: pl.Series) -> tuple[int, int]:
    """The lowest and highest time of a series that is not empty.

    >>> time_range(pl.Series([3, 1, 2]))
    (1, 3)
    """
    low, high = times.to_frame("time").select(low=pl.col("time").min(), high=pl.col("time").max()).row(0)
    return low, high


def _keyed(frame: pl.DataFrame, on: Sequence[str], time: str) -> pl.DataFrame:
    """Row number, key columns under internal names, and time."""
    keys = [pl.col(name).alias(f"key{number}") for number, name in enumerate(on)] or [pl.lit(0).alias("key")]
    return frame.select(*keys, pl.col(time).alias("time")).with_row_index("row")
