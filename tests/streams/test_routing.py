"""Routing: the point of a key never changes, and a column gives the same points as single keys."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import InvalidArgument
from slackwater.streams.segments.epochs import KEY_SPACE, Epochs, Segment
from slackwater.streams.segments.routing import Routing, point_of, points_of

WORD = (1 << 64) - 1


def hashed(key: bytes) -> int:
    """The definition of the hash, one key and one step at a time."""
    value = len(key) * 0x9E3779B97F4A7C15 & WORD
    for start in range(0, len(key), 8):
        word = int.from_bytes(key[start : start + 8], "little")
        mixed = value ^ (word * 0xC2B2AE3D27D4EB4F & WORD)
        value = ((mixed << 29 | mixed >> 35) & WORD) * 0x165667B19E3779F9 & WORD
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        value ^= value >> 33
        value = value * factor & WORD
    return (value ^ value >> 33) >> 2


@given(st.lists(st.binary(max_size=40)))
def test_a_column_of_keys_follows_the_definition(keys: list[bytes]) -> None:
    assert points_of(pa.array(keys, pa.binary())).tolist() == [hashed(key) for key in keys]


@given(st.lists(st.text(max_size=20), min_size=1), st.integers(0, 5))
def test_text_slices_chunks_and_dictionaries_hash_as_their_bytes(keys: list[str], cut: int) -> None:
    expected = [hashed(key.encode()) for key in keys]
    column = pa.array(keys)
    assert points_of(column).tolist() == points_of(keys).tolist() == expected
    assert points_of(column.slice(cut)).tolist() == expected[cut:]
    assert points_of(pa.chunked_array([column.slice(0, cut), column.slice(cut)])).tolist() == expected
    assert points_of(column.dictionary_encode()).tolist() == expected


@pytest.mark.parametrize(
    ("key", "point"),
    [
        ("", 0),
        ("a", 2_256_146_952_981_368_105),
        ("auction 7", 2_919_574_293_388_432_838),
        ("x" * 100, 857_686_474_711_655_988),
    ],
)
def test_points_never_change(key: str, point: int) -> None:
    assert point_of(key) == point


def test_keys_spread_evenly() -> None:
    points = points_of([f"auction-{number}" for number in range(80_000)])
    counts, _ = np.histogram(points, bins=16, range=(0, KEY_SPACE))
    assert counts.min() > 4_600
    assert counts.max() < 5_400


def test_events_without_a_key_stay_together() -> None:
    points = points_of(pa.array([None, "a", None]))
    assert points[0] == points[2]
    assert points[1] == point_of("a")


def test_a_boundary_belongs_to_the_segment_that_starts_there() -> None:
    half = KEY_SPACE // 2
    routing = Routing(Epochs([[Segment(0, 0, 0, half), Segment(1, 0, half, KEY_SPACE)]]))
    points = np.array([0, half - 1, half, KEY_SPACE - 1])
    assert routing.segments(points).tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("keys", [[1.5], ["a", 1], pa.array([True])])
def test_an_invalid_key_is_rejected(keys: list[object]) -> None:
    with pytest.raises(InvalidArgument, match=r"give a string or bytes|give only strings, or only bytes"):
        points_of(keys)
