"""Two inputs in the same windows: the lower watermark counts, and each matching pair comes once."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import polars as pl
import pytest

from slackwater.errors import InvalidArgument, WatermarkRegression
from slackwater.time import END_OF_TIME
from slackwater.windows import AfterCount, AfterWatermark, Fixed, MergeOperator, Sessions, Sliding, Window

EARLY = AfterWatermark(early=AfterCount(1), late=AfterCount(1))


def make(how: str, **options: Any) -> MergeOperator:
    usual: dict[str, Any] = {
        "window": Fixed(10),
        "key": ("id",),
        "left": ("price",),
        "right": ("price", "name"),
        "how": how,
        "left_time": "ts",
        "right_time": "at",
    }
    return MergeOperator(**(usual | options))


def bids(*rows: tuple[int | None, int, int]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema={"id": pl.Int64, "ts": pl.Int64, "price": pl.Int64}, orient="row")


def asks(*rows: tuple[int | None, int, int, str]) -> pl.DataFrame:
    schema = {"id": pl.Int64, "at": pl.Int64, "price": pl.Int64, "name": pl.String}
    return pl.DataFrame(list(rows), schema=schema, orient="row")


LEFT = bids((1, 1, 10), (1, 2, 20), (2, 3, 30), (None, 4, 40))
RIGHT = asks((1, 5, 11, "x"), (3, 6, 33, "y"), (None, 7, 44, "z"))
MATCHES = [(1, 10, 11, "x"), (1, 20, 11, "x"), (None, 40, 44, "z")]
LONELY_LEFT = [(2, 30, None, None)]
LONELY_RIGHT = [(3, None, 33, "y")]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", MATCHES),
        ("left", MATCHES + LONELY_LEFT),
        ("right", MATCHES + LONELY_RIGHT),
        ("full", MATCHES + LONELY_LEFT + LONELY_RIGHT),
    ],
)
def test_pairs_of_a_key_and_window(how: str, expected: list[tuple[Any, ...]]) -> None:
    merge = make(how)
    _state, output = merge.step(merge.initial_state(), LEFT, RIGHT, {"left": 10, "right": 10})
    got = output.panes.select("id", "price", "price_right", "name").rows()
    assert sorted(got, key=str) == sorted(expected, key=str)
    assert set(output.panes["timing"]) == {"ON_TIME"}


def test_cogroup_gives_both_sides_as_lists() -> None:
    merge = make("cogroup")
    _state, output = merge.step(merge.initial_state(), LEFT, RIGHT, {"left": 10, "right": 10})
    rows = {row["id"]: (row["left"], row["right"]) for row in output.panes.iter_rows(named=True)}
    assert rows[1] == ([{"price": 10}, {"price": 20}], [{"price": 11, "name": "x"}])
    assert rows[2] == ([{"price": 30}], [])
    assert rows[3] == ([], [{"price": 33, "name": "y"}])


def test_nothing_until_both_watermarks_are_known_and_then_the_lower() -> None:
    merge = make("inner")
    state, output = merge.step(merge.initial_state(), LEFT, RIGHT, {"left": 100})
    assert (output.panes.height, output.watermarks) == (0, {})
    state, output = merge.step(state, watermarks={"right": 9})
    assert (output.panes.height, output.watermarks) == (0, {"default": 9})
    state, output = merge.step(state, watermarks={"right": 10})
    assert (output.panes.height, output.watermarks) == (3, {"default": 10})
    with pytest.raises(WatermarkRegression, match="right input"):
        merge.step(state, watermarks={"right": 5})


def test_one_side_alone_is_a_legal_batch() -> None:
    merge = make("full")
    state, output = merge.step(merge.initial_state(), None, RIGHT, {"left": 10, "right": 10})
    assert output.panes.select("id", "name").height == 3
    state, output = merge.step(state, bids((5, 11, 1)), None, {"left": 20, "right": 20})
    assert output.panes.select("id", "price").rows() == [(5, 1)]


@pytest.mark.parametrize("window", [Fixed(10), Sliding(10, 5), Sessions(4)])
@pytest.mark.parametrize("seed", range(6))
def test_in_discarding_mode_each_matching_pair_comes_once(window: Window, seed: int) -> None:
    rng = Random(seed)
    merge = make(
        "inner", window=window, trigger=EARLY, mode="discarding", allowed_lateness=1_000, allow_data_loss=True
    )
    state = merge.initial_state()
    left = [(rng.randrange(2), rng.randrange(20), number) for number in range(12)]
    right = [(rng.randrange(2), rng.randrange(20), 100 + number, "n") for number in range(12)]
    seen: list[tuple[Any, ...]] = []
    for place in range(0, 12, 3):
        state, output = merge.step(state, bids(*left[place : place + 3]), asks(*right[place : place + 3]), {})
        seen += output.panes.select("window_start", "price", "price_right").rows()
        assert not output.panes["retraction"].any()
        state = merge.load(merge.save(state), dict(state.blobs))
    state, output = merge.step(state, watermarks={"left": END_OF_TIME, "right": END_OF_TIME})
    seen += output.panes.select("window_start", "price", "price_right").rows()
    if isinstance(window, Sessions):  # a pair of one session may be emitted before sessions merge
        seen = [(0, *pair[1:]) for pair in seen]
        expected = session_pairs(left, right, window.gap)
    else:
        expected = [
            (bounds[0], one[2], other[2])
            for one, other in product(left, right)
            if one[0] == other[0]
            for bounds in window.windows_at(one[1])  # type: ignore[union-attr]  # fixed or sliding
            if bounds in window.windows_at(other[1])  # type: ignore[union-attr]
        ]
    assert sorted(seen) == sorted(expected)


def session_pairs(left: list[Any], right: list[Any], gap: int) -> list[tuple[int, int, int]]:
    """The pairs in the final sessions."""
    pairs: list[tuple[int, int, int]] = []
    for key in {row[0] for row in left + right}:
        times = sorted({row[1] for row in left + right if row[0] == key})
        starts = [at for before, at in zip([-(10**9), *times], times, strict=False) if at - before >= gap]

        def session(at: int, starts: list[int] = starts) -> int:
            return max(start for start in starts if start <= at)

        pairs += [
            (0, one[2], other[2])
            for one, other in product(left, right)
            if one[0] == other[0] == key and session(one[1]) == session(other[1])
        ]
    return pairs


def test_retracting_mode_takes_pairs_back() -> None:
    merge = make("left", trigger=EARLY, mode="accumulating_and_retracting", allow_data_loss=True)
    state, output = merge.step(merge.initial_state(), bids((1, 1, 10)), None, {})
    assert output.panes.select("price", "name", "retraction").rows() == [(10, None, False)]
    state, output = merge.step(state, None, asks((1, 2, 11, "x")), {})
    assert output.panes.select("price", "name", "retraction").rows() == [(10, None, True), (10, "x", False)]


def test_late_rows_say_their_side() -> None:
    merge = make("inner", late="emit")
    state, _ = merge.step(merge.initial_state(), watermarks={"left": 10, "right": 10})
    state, output = merge.step(state, LEFT.head(1), RIGHT.head(1), {})
    assert output.late is not None
    assert output.late.select("side", "id", "event_time", "reason").rows() == [
        ("left", 1, 1, "late"),
        ("right", 1, 5, "late"),
    ]


def test_what_cannot_work_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="use one of cogroup, inner, left, right, full"):
        make("outer")
    with pytest.raises(InvalidArgument, match="is used twice in the pairs"):
        make("inner", right=("price", "price_right", "price"))
    merge = make("inner")
    with pytest.raises(InvalidArgument, match="has no column 'at'"):
        merge.step(merge.initial_state(), None, LEFT, {})
