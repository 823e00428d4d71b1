"""Blobs: frames are the same after encoding and decoding, whatever the bits that their integers need."""

from __future__ import annotations

import zlib

import polars as pl
import pytest

from slackwater.errors import UnsupportedStateVersion
from slackwater.windows.engine.blobs import decode, encode

ROWS = 1500


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_integers_up_to_the_limits_of_a_type_are_restored(bits: int) -> None:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    values = [low, high, None, *range(ROWS - 3)] if bits > 8 else [low, high, None, *[5] * (ROWS - 3)]
    frame = pl.DataFrame({"n": pl.Series(values, dtype=pl.Int64), "text": ["a"] * ROWS})
    frame = frame.with_columns(pl.col("n").implode().over("n").alias("lists"))
    decoded = decode(encode(frame), "example")
    assert decoded.schema == frame.schema
    assert decoded.equals(frame)


@pytest.mark.parametrize(
    "column",
    [
        pl.Series([None] * ROWS, dtype=pl.Int64),
        pl.Series([None] * ROWS, dtype=pl.List(pl.Int64)),
        pl.Series([[]] * ROWS, dtype=pl.List(pl.Int64)),
        pl.Series([[None, 1], None, []] * (ROWS // 3), dtype=pl.List(pl.Int64)),
        pl.Series([1] * ROWS, dtype=pl.Int8),
        pl.Series([1] * ROWS, dtype=pl.UInt64),
        pl.Series([[1]] * ROWS, dtype=pl.List(pl.Int16)),
    ],
    ids=lambda column: f"{column.dtype} {column[0]}",
)
def test_other_columns_are_restored(column: pl.Series) -> None:
    frame = pl.DataFrame({"int64:n": range(ROWS), "x": column})
    decoded = decode(encode(frame), "example")
    assert decoded.schema == frame.schema
    assert decoded.equals(frame)


def test_small_values_take_fewer_bytes() -> None:
    small, large = (pl.DataFrame({"n": [each * unit % 9973 for each in range(ROWS)]}) for unit in (7, 2**40))
    assert len(encode(small)) < 0.6 * len(encode(large.with_columns(pl.col("n") + 2**40 * pl.col("n"))))


def test_version_1_is_read_and_an_unknown_version_is_refused() -> None:
    small = encode(pl.DataFrame({"n": [1]}))
    assert small[0] == 1
    unknown = bytes([9]) + small[1:-4]
    with pytest.raises(UnsupportedStateVersion):
        decode(unknown + zlib.crc32(unknown).to_bytes(4, "big"), "example")
