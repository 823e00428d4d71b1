"""Frames come back from bytes as they were, and integers take the bytes that their range needs."""

from __future__ import annotations

import io
import zlib
from datetime import UTC, datetime

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import CorruptState
from slackwater.windows.engine.blobs import VERSION, decode
from slackwater.windows.engine.frame_bytes import read_frame, write_frame

LOWEST, HIGHEST = -(2**63), 2**63 - 1
MANY = 2_000
"""Frames with at least so many rows have narrow columns."""
TIMES = [
    pl.Datetime("us", "UTC"),
    pl.Datetime("us"),
    pl.Datetime("ns", "Europe/Berlin"),
    pl.Datetime("ms", "America/New_York"),
]


def stored_type(data: bytes) -> pl.DataType:
    """The type in which the only column of a frame is written."""
    start = 4 + int.from_bytes(data[:4], "big")
    (kind,) = pl.read_ipc_stream(io.BytesIO(data[start:])).dtypes
    return kind


def same(frame: pl.DataFrame) -> bytes:
    """The bytes of a frame, which are read again."""
    written = write_frame(frame)
    read = read_frame(written)
    assert read.equals(frame)
    assert read.schema == frame.schema
    return written


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        (pl.UInt8(), 7, 7),
        (pl.UInt8(), 0, 255),
        (pl.UInt16(), 0, 256),
        (pl.UInt16(), -40_000, 25_535),
        (pl.UInt32(), -40_000, 25_536),
        (pl.UInt32(), LOWEST, LOWEST + 2**32 - 1),
        (pl.UInt32(), HIGHEST - 2**32 + 1, HIGHEST),
        (pl.Int64(), 0, 2**32),
        (pl.Int64(), LOWEST, HIGHEST),
    ],
)
def test_integers_take_the_bytes_of_their_range(kind: pl.DataType, low: int, high: int) -> None:
    values = [high, None, low] * MANY
    assert stored_type(same(pl.DataFrame({"value": pl.Series(values, dtype=pl.Int64)}))) == kind


@pytest.mark.parametrize("kind", TIMES, ids=str)
def test_times_keep_their_unit_and_zone(kind: pl.Datetime) -> None:
    times = pl.Series("at", range(1_700_000_000_000, 1_700_000_000_000 + MANY)).cast(kind)
    assert stored_type(same(times.to_frame())) == pl.UInt16


@pytest.mark.parametrize(("rows", "kind"), [(MANY - 1, pl.Int64), (MANY, pl.UInt16)])
def test_small_frames_are_written_as_they_are(rows: int, kind: type[pl.DataType]) -> None:
    assert stored_type(same(pl.DataFrame({"value": range(rows)}))) == kind


@pytest.mark.parametrize("rows", [0, 1, MANY - 1, MANY, MANY + 1])
def test_nulls_and_columns_of_other_types_come_back(rows: int) -> None:
    numbers = range(rows)
    same(
        pl.DataFrame(
            {
                "some nulls": [None if number % 3 else number for number in numbers],
                "only nulls": pl.Series([None] * rows, dtype=pl.Int64),
                "no type": pl.Series([None] * rows, dtype=pl.Null),
                "constant": pl.Series([LOWEST] * rows, dtype=pl.Int64),
                "": pl.Series(list(numbers), dtype=pl.Int64),
                "narrow": pl.Series([number % 100 for number in numbers], dtype=pl.Int8),
                "unsigned": pl.Series([2**64 - 1 - number for number in numbers], dtype=pl.UInt64),
                "fraction": [number / 7 for number in numbers],
                "text": [str(number) for number in numbers],
                "list": pl.Series([[number] for number in numbers], dtype=pl.List(pl.Int64)),
                "struct": pl.Series(
                    [{"at": datetime(2024, 5, 1, tzinfo=UTC)} for _ in numbers],
                    dtype=pl.Struct({"at": pl.Datetime("us", "UTC")}),
                ),
                "decimal": pl.Series(list(numbers), dtype=pl.Decimal(38, 2)),
                "date": pl.Series(list(numbers), dtype=pl.Date),
                "duration": pl.Series(list(numbers), dtype=pl.Duration("us")),
            }
        )
    )


def test_a_frame_without_columns_comes_back() -> None:
    same(pl.DataFrame())
    assert read_frame(write_frame(pl.DataFrame(height=MANY))).width == 0


@given(st.lists(st.none() | st.integers(LOWEST, HIGHEST), min_size=1, max_size=6))
def test_any_integers_come_back(values: list[int | None]) -> None:
    same(pl.DataFrame({"value": pl.Series(values * MANY, dtype=pl.Int64)}))


@given(st.binary(max_size=40))
def test_a_blob_of_other_bytes_is_rejected(content: bytes) -> None:
    body = bytes((VERSION,)) + content
    with pytest.raises(CorruptState, match="rows"):
        decode(body + zlib.crc32(body).to_bytes(4, "big"), "rows")
