"""Helpers for Polars frames: joins in which null keys match, concatenation, sorting by key and time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

import polars as pl

_SECOND: Final = "join:second"
_CODE: Final = "sort:code"
_INTEGERS: Final = frozenset(
    {pl.Int8(), pl.Int16(), pl.Int32(), pl.Int64(), pl.UInt8(), pl.UInt16(), pl.UInt32(), pl.UInt64()}
)
_PACKED_BITS: Final = 62
"""How many bits a packed key and time may have, so that no step of packing them exceeds 64 bits."""
_ROWS_WORTH_PACKING: Final = 1_000
"""With fewer rows, the extremes of columns are not worth finding."""


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


def sort_by_key(frame: pl.DataFrame, keys: Sequence[str], time: str) -> pl.DataFrame:
    """The rows of each key together, ordered by a time without nulls; those of one time keep their order.

    The order of the keys is not specified, but is the same each time for the same rows. A single key of
    integers or text is packed with the time into one integer if both fit: Polars sorts one column in a third
    of the time that it takes for two.

    >>> frame = pl.DataFrame({"key": [2, 1, 2], "at": [5, 9, 3]})
    >>> sort_by_key(frame, ["key"], "at").rows()
    [(1, 9), (2, 3), (2, 5)]
    """
    if len(keys) == 1 and frame.height >= _ROWS_WORTH_PACKING:
        packed = _packed(_codes(frame[keys[0]]), frame[time])
        if packed is not None:
            return frame.sort(packed, maintain_order=True)
    return frame.sort(*keys, time, maintain_order=True)


def _codes(keys: pl.Series) -> pl.Series:
    """A number for each text, in the order in which they first occur; keys of other types as they are."""
    if keys.dtype != pl.String:
        return keys
    frame = keys.to_frame("key")
    known = frame.unique(maintain_order=True).with_row_index(_CODE)
    return match(frame, known, ["key"], "left")[_CODE]


def _packed(keys: pl.Series, times: pl.Series) -> pl.Series | None:
    """Integers whose order is that of keys and times; None if they do not fit or keys are not integers."""
    if keys.dtype not in _INTEGERS or keys.null_count():
        return None
    columns = pl.DataFrame({"key": keys, "time": times})
    lowest, highest = columns.select(pl.all().min()).row(0), columns.select(pl.all().max()).row(0)
    key_bits, time_bits = ((high - low).bit_length() for low, high in zip(lowest, highest, strict=True))
    if key_bits + time_bits > _PACKED_BITS:
        return None
    # Unsigned integers of 64 bits may exceed Int64, but the difference of two does not here.
    wide = pl.UInt64() if keys.dtype == pl.UInt64 else pl.Int64()
    offset = (pl.col("key").cast(wide) - pl.lit(lowest[0], wide)).cast(pl.Int64)
    packed = offset * 2**time_bits + (pl.col("time") - lowest[1])
    return columns.select(packed.alias("packed")).to_series()
