"""Helpers for Polars frames: a join in which null keys match, and concatenation with a common type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

import polars as pl

_SECOND: Final = "join:second"


def match(
    left: pl.DataFrame,
    right: pl.DataFrame,
    columns: Sequence[str],
    how: Literal["inner", "left", "semi", "anti"],
) -> pl.DataFrame:
    """Join two frames on key columns in which null equals null; the order of ``left`` is kept.

    >>> left, right = pl.DataFrame({"key": [None, 1]}), pl.DataFrame({"key": [None], "value": [7]})
    >>> match(left, right, ["key"], "left").to_dicts()
    [{'key': None, 'value': 7}, {'key': 1, 'value': None}]
    """
    # A whole schema takes longer to build than to join two small frames.
    kinds, others = ({name: frame[name].dtype for name in columns} for frame in (left, right))
    if kinds != others:  # a batch whose keys are all null, or have a narrower type
        empty = [pl.DataFrame(schema=each) for each in (kinds, others)]
        common = pl.concat(empty, how="vertical_relaxed").schema
        left, right = left.cast(common), right.cast(common)
    return join_equal(left, right, columns, how, nulls_equal=True, keeps_order=True)


def join_equal(
    left: pl.DataFrame,
    right: pl.DataFrame,
    columns: Sequence[str],
    how: Literal["inner", "left", "semi", "anti"] = "inner",
    *,
    nulls_equal: bool = False,
    keeps_order: bool = False,
) -> pl.DataFrame:
    """Join two frames on key columns in which NaN equals NaN, as it does in a group-by.

    >>> frame = pl.DataFrame({"key": [float("nan")]})
    >>> join_equal(frame, frame, ["key"]).height
    1
    """
    on = list(columns)
    if len(on) == 1 and left[on[0]].dtype.is_float():
        # Polars compares a single key by ==, without NaN, if a frame has only one row.
        second = pl.lit(0, pl.Int8()).alias(_SECOND)
        left, right, on = left.with_columns(second), right.with_columns(second), [*on, _SECOND]
    order: Literal["left", "none"] = "left" if keeps_order else "none"
    joined = left.join(right, on=on, how=how, nulls_equal=nulls_equal, maintain_order=order)
    return joined.drop(_SECOND) if len(on) > len(columns) else joined


def stack(frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Concatenate frames with the same columns, in the widest of their types.

    >>> stack([pl.DataFrame({"a": [1]}), pl.DataFrame({"a": [2]})])["a"].to_list()
    [1, 2]
    """
    several = list(frames)
    if len(several) == 1:
        return several[0]
    names, kinds = several[0].columns, several[0].dtypes
    if all(frame.columns == names and frame.dtypes == kinds for frame in several):
        return pl.concat(several, rechunk=False)
    ordered = [frame if frame.columns == names else frame.select(names) for frame in several]
    return pl.concat(ordered, how="vertical_relaxed", rechunk=False)
