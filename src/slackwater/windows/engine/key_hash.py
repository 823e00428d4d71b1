"""The parts that the keys of large frames are divided into, by a hash of the key.

The hash only has to be the same while a process runs: `hash_check` detects state that was divided by another
one, such as that of another Polars version or processor, and such state is divided again when it is loaded.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import polars as pl

from slackwater.windows.operator_columns import is_key_column

PART: Final = "part"
"""The number of the part of a key."""
_NAN: Final = 1.5e300
_FACTOR: Final = 0x9E3779B97F4A7C15


def can_divide(frame: pl.DataFrame) -> bool:
    """Whether the keys of a frame can be hashed.

    >>> can_divide(pl.DataFrame({"key:0": [1], "n": [[2]]})), can_divide(pl.DataFrame({"key:0": [[1]]}))
    (True, False)
    """
    return all(_comparable(name, frame.schema[name]) is not None for name in _keys(frame))


def with_part(frame: pl.DataFrame, parts: int) -> pl.DataFrame:
    """A frame with the number of the part of each key; equal keys of any type are in the same part.

    >>> frames = pl.DataFrame({"key:0": [3, None]}), pl.DataFrame({"key:0": [3.0, None]})
    >>> with_part(frames[0], 64)[PART].equals(with_part(frames[1], 64)[PART])
    True
    """
    combined = pl.lit(0, pl.UInt64)
    for name in _keys(frame):
        comparable = _comparable(name, frame.schema[name])
        if comparable is None:
            raise AssertionError(f"{name} has type {frame.schema[name]}, which cannot be divided")
        hashed = pl.when(pl.col(name).is_not_null()).then(comparable.hash()).otherwise(1)
        combined = combined * _FACTOR + hashed
    return frame.with_columns((combined // 2**32 % parts).cast(pl.UInt32).alias(PART))


@cache
def hash_check() -> int:
    """A number that changes with the hash."""
    probe = pl.DataFrame({"key:0": [1.5, -7.0], "key:1": ["a", "key"], "key:2": [b"a", b"key"]})
    first, second = with_part(probe, 2**31)[PART]
    return int(first) * 2**31 + int(second)


def _keys(frame: pl.DataFrame) -> list[str]:
    return [name for name in frame.columns if is_key_column(name)]


def _comparable(name: str, dtype: pl.DataType) -> pl.Expr | None:
    """The values of a key column in a type in which equal keys of different types are equal; or None."""
    column = pl.col(name)
    if dtype == pl.Null or isinstance(dtype, (pl.String, pl.Categorical, pl.Enum)):
        return column.cast(pl.String)
    if dtype == pl.Binary:
        return column
    if dtype.is_temporal():
        column = column.to_physical()
    elif not dtype.is_numeric() and dtype != pl.Boolean:
        return None
    return (column.cast(pl.Float64) + 0.0).fill_nan(_NAN)  # -0.0 equals 0.0
