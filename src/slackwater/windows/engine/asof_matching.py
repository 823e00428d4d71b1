"""Matching rows with the row that is closest in time, by the rules of Polars' ``join_asof``.

Key and time are combined to one sortable number, and the match of a row is found by binary search. With many
keys this is several times as fast as ``join_asof``, which searches each key separately.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from slackwater.windows.engine.frames import join_equal
from slackwater.windows.engine.join_matching import LARGEST_NUMBER, time_range
from slackwater.windows.spec.asof_spec import AsofDirection

ARRIVAL: Final = "arrival:"
"""The column of right rows that numbers them in order of arrival."""


def closest_rows(
    left: pl.DataFrame,
    right: pl.DataFrame,
    *,
    on: Sequence[str],
    left_time: str,
    right_time: str,
    direction: AsofDirection,
    tolerance: int | None,
) -> pl.Series:
    """For each left row, the number of the right row that matches it, or null.

    A null in any key column matches nothing. Right rows with the same key and time count in order of their
    column `ARRIVAL`: backward and nearest select the last, forward the first.

    >>> left = pl.DataFrame({"k": ["a", "b"], "ts": [10, 10]})
    >>> right = pl.DataFrame({"k": ["a", "a", "a"], "ts": [12, 9, 9], ARRIVAL: [0, 1, 2]})
    >>> arguments = {"on": ["k"], "left_time": "ts", "right_time": "ts", "tolerance": None}
    >>> closest_rows(left, right, direction="backward", **arguments).to_list()
    [2, None]
    >>> closest_rows(left, right, direction="forward", **arguments).to_list()
    [0, None]
    """
    nothing = pl.Series(values=[None], dtype=pl.UInt32).new_from_index(0, left.height)
    if left.is_empty() or right.is_empty():
        return nothing
    keys = [f"key{number}" for number in range(len(on))] or ["key"]
    wanted = _keyed(left, on, left_time).with_row_index("row")
    offered = _keyed(right, on, right_time, ARRIVAL).with_row_index("row")
    codes = wanted.select(keys).unique().with_row_index("code").with_columns(pl.col("code").cast(pl.Int64))
    offered, wanted = join_equal(offered, codes, keys), join_equal(wanted, codes, keys)
    if wanted.is_empty() or offered.is_empty():
        return nothing
    wanted, offered = _numbered(wanted, offered, len(codes))
    offered = offered.sort("number", ARRIVAL)
    found = _found(wanted, offered, direction)
    if tolerance is not None:
        distance = (offered["time"].gather(found) - wanted["time"]).abs()
        found = _only(found, distance <= tolerance)
    return nothing.scatter(wanted["row"], offered["row"].gather(found))


def _numbered(wanted: pl.DataFrame, offered: pl.DataFrame, codes: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Both frames with key and time combined to one number, in whose order rows of a key are adjacent."""
    times = pl.concat([wanted["time"], offered["time"]])
    first, last = time_range(times)
    width = last - first + 1
    at = pl.col("time") - first
    if width * codes >= LARGEST_NUMBER:
        # The times are too far apart to share a number with the key: use their ranks instead.
        ordered = times.unique().sort()
        at, width = pl.lit(ordered).search_sorted(pl.col("time")).cast(pl.Int64), len(ordered)
    number = (pl.col("code") * width + at).alias("number")
    return wanted.with_columns(number), offered.with_columns(number)


def _found(wanted: pl.DataFrame, offered: pl.DataFrame, direction: AsofDirection) -> pl.Series:
    """The position in ``offered`` of the match of each row; null without one."""
    numbers = offered["number"]
    total = len(numbers)

    def in_key(position: pl.Series) -> pl.Series:
        """The positions that are rows of the wanted key."""
        row = position.clip(0, total - 1).cast(pl.UInt32)
        return _only(row, (position == row) & (offered["code"].gather(row) == wanted["code"]))

    back = in_key(numbers.search_sorted(wanted["number"], side="right").cast(pl.Int64) - 1)
    if direction == "backward":
        return back
    ahead = in_key(numbers.search_sorted(wanted["number"], side="left").cast(pl.Int64))
    if direction == "forward":
        return ahead
    # Of rows at the same time, the last to arrive.
    after = numbers.search_sorted(numbers.gather(ahead.fill_null(0)), side="right").cast(pl.Int64) - 1
    ahead = _only(after.cast(pl.UInt32), ahead.is_not_null())
    earlier = wanted["time"] - offered["time"].gather(back)
    later = offered["time"].gather(ahead) - wanted["time"]
    return ahead.zip_with((later <= earlier).fill_null(back.is_null()), back)


def _only(positions: pl.Series, wanted: pl.Series) -> pl.Series:
    """The positions, and null where one is not wanted."""
    return pl.select(pl.when(wanted).then(positions)).to_series()


def _keyed(frame: pl.DataFrame, on: Sequence[str], time: str, *more: str) -> pl.DataFrame:
    keys = [pl.col(name).alias(f"key{number}") for number, name in enumerate(on)] or [pl.lit(0).alias("key")]
    return frame.select(*keys, pl.col(time).alias("time"), *more)
