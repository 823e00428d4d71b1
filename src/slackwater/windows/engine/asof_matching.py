"""Matching rows with the row that is closest in time, by the rules of Polars' ``join_asof``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from slackwater.windows.asof_spec import AsofDirection

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
    if left.is_empty() or right.is_empty():
        return pl.Series(values=[None] * left.height, dtype=pl.UInt32)
    keys = [f"key{number}" for number in range(len(on))] or ["key"]
    wanted = _keyed(left, on, left_time).with_row_index("left")
    offered = _keyed(right, on, right_time, ARRIVAL).with_row_index("right")
    codes = offered.select(keys).unique().with_row_index("code")
    wanted = wanted.join(codes, on=keys).select("left", "code", "time").sort("time")
    offered = offered.join(codes, on=keys).sort("time", ARRIVAL).select("right", "code", "time")
    found = wanted.join_asof(
        offered, on="time", by="code", strategy=direction, tolerance=tolerance, check_sortedness=False
    )
    numbers = pl.Series(values=[None], dtype=pl.UInt32).new_from_index(0, left.height)
    return numbers.scatter(found["left"], found["right"])


def _keyed(frame: pl.DataFrame, on: Sequence[str], time: str, *more: str) -> pl.DataFrame:
    keys = [pl.col(name).alias(f"key{number}") for number, name in enumerate(on)] or [pl.lit(0).alias("key")]
    return frame.select(*keys, pl.col(time).alias("time"), *more)
