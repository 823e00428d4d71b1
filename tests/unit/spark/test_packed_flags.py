"""Packed flags without a JVM: every combination of values comes back, and a value out of range raises."""

from __future__ import annotations

from itertools import product

import polars as pl
import pytest
from pyspark.sql.types import BooleanType, LongType, StringType

from slackwater.spark.wire.packed_flags import Flag, PackedFlags
from slackwater.spark.wire.pane_schema import pane_codec, pane_schema

FLAGS = PackedFlags(
    (
        Flag("timing", StringType(), ("EARLY", "ON_TIME", "LATE")),
        Flag("is_last", BooleanType(), (False, True)),
        Flag("index", LongType(), (0, 1)),
    )
)


def unpacked(flags: PackedFlags, number: int) -> dict[str, object]:
    """The arithmetic of `PackedFlags.unpack`, which Spark does in the JVM."""
    digits = {flag.name: number // flags.weight(flag.name) % flag.radix for flag in flags.flags}
    return {flag.name: (None, *flag.values)[digits[flag.name]] for flag in flags.flags}


def packed(flags: PackedFlags, rows: pl.DataFrame) -> list[int]:
    return rows.select(flags.pack(rows.columns)).to_series().to_list()


def test_every_combination_comes_back() -> None:
    combinations = [
        dict(zip((flag.name for flag in FLAGS.flags), values, strict=True))
        for values in product(*((None, *flag.values) for flag in FLAGS.flags))
    ]
    numbers = packed(FLAGS, pl.DataFrame(combinations, infer_schema_length=None))
    assert [unpacked(FLAGS, number) for number in numbers] == combinations
    assert sorted(numbers) == list(range(4 * 3 * 3)), "no number is unused or used twice"


def test_a_missing_column_is_null() -> None:
    (number,) = packed(FLAGS, pl.DataFrame({"is_last": [True]}))
    assert unpacked(FLAGS, number) == {"timing": None, "is_last": True, "index": None}


@pytest.mark.parametrize("bad", [{"timing": ["NEVER"]}, {"index": [2]}])
def test_an_unknown_value_raises_instead_of_becoming_null(bad: dict[str, list[object]]) -> None:
    with pytest.raises(pl.exceptions.InvalidOperationError):
        packed(FLAGS, pl.DataFrame(bad))


def test_the_flags_of_panes_fit_in_32_bits() -> None:
    codec = pane_codec(pane_schema([], {}), fires_once=True, window_length=None)
    assert codec is not None
    last = codec.flags.flags[-1]
    assert codec.flags.weight(last.name) * last.radix < 2**31


def test_pane_numbers_of_windows_that_fire_once_are_limited() -> None:
    """A window has later numbers only if it emitted panes before the query was changed to fire once."""
    codec = pane_codec(pane_schema([], {}), fires_once=True, window_length=None)
    assert codec is not None
    bounds = {"window_start": [0, 0, 0], "window_end": [1, 1, 1]}
    assert len(codec.encode(0, "{}", pl.DataFrame({"index": [0, None, 255], **bounds}))) == 4
    with pytest.raises(pl.exceptions.InvalidOperationError):
        codec.encode(0, "{}", pl.DataFrame({"index": [0, 1, 256], **bounds}))


def test_an_unknown_timing_raises() -> None:
    codec = pane_codec(pane_schema([], {}), fires_once=False, window_length=None)
    assert codec is not None
    with pytest.raises(pl.exceptions.InvalidOperationError, match="NEVER"):
        codec.encode(0, "{}", pl.DataFrame({"timing": ["NEVER"], "window_start": [0], "window_end": [1]}))
