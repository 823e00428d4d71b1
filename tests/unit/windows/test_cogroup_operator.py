"""Cogroup and join in windows: the minimum of both watermarks counts, and each pair is emitted once."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import polars as pl
import pytest

from slackwater.errors import IncompatibleState, InvalidArgument, WatermarkRegression
from slackwater.time import END_OF_TIME
from slackwater.windows import (
    AfterCount,
    AfterWatermark,
    Fixed,
    Inherited,
    MergeOperator,
    Sessions,
    Sliding,
    Window,
)
from tests.support.sampling import sampled

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
MATCHES = [(1, 10, 11, "x"), (1, 20, 11, "x")]
LONELY_LEFT = [(2, 30, None, None), (None, 40, None, None)]
LONELY_RIGHT = [(3, None, 33, "y"), (None, None, 44, "z")]


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
    assert rows[None] == ([{"price": 40}], [{"price": 44, "name": "z"}])


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
@pytest.mark.parametrize("mode", ["discarding", "accumulating", "accumulating_and_retracting"])
def test_null_in_any_part_of_the_key_matches_nothing(how: str, mode: str) -> None:
    merge = make(how, key=("id", "place"), mode=mode, trigger=EARLY, allow_data_loss=True)
    left = bids((1, 1, 10), (1, 2, 20)).with_columns(place=pl.Series([None, "a"]))
    right = asks((1, 3, 11, "x"), (1, 4, 22, "y")).with_columns(place=pl.Series([None, "a"]))
    state, _ = merge.step(merge.initial_state(), left, None, {})
    state, output = merge.step(state, None, right, {})
    results = output.panes.filter(~pl.col("retraction"))
    if mode == "discarding":  # rows without a match are in the last pane
        _, output = merge.step(state, watermarks={"left": 10, "right": 10})
        results = pl.concat([results, output.panes], how="vertical_relaxed")
    alone: list[tuple[Any, ...]] = [(None, 10, None)] if how in {"left", "full"} else []
    alone += [(None, None, 11)] if how in {"right", "full"} else []
    got = results.select("place", "price", "price_right").rows()
    assert sorted(got, key=str) == sorted([("a", 20, 22), *alone], key=str)


def test_windows_wait_for_both_watermarks_and_use_the_minimum() -> None:
    merge = make("inner")
    state, output = merge.step(merge.initial_state(), LEFT, RIGHT, {"left": 100})
    assert (output.panes.height, output.watermarks) == (0, {})
    state, output = merge.step(state, watermarks={"right": 9})
    assert (output.panes.height, output.watermarks) == (0, {"default": 9})
    state, output = merge.step(state, watermarks={"right": 10})
    assert (output.panes.height, output.watermarks) == (2, {"default": 10})
    with pytest.raises(WatermarkRegression, match="the right side of the merge"):
        merge.step(state, watermarks={"right": 5})


@pytest.mark.parametrize(
    ("watermarks", "message"),
    [
        ({"left": 5.0}, r"watermarks\['left'\] = 5.0: is a float"),
        ({"right": "5"}, r"watermarks\['right'\] = '5': is a str"),
        ({"left": None}, r"watermarks\['left'\] = None: is a NoneType"),
        ({"left": 2**63}, "does not fit into 64 bits"),
        ({"lft": 5}, "'lft': is not a side of a merge"),
    ],
)
def test_an_invalid_watermark_raises_and_changes_nothing(watermarks: Any, message: str) -> None:
    merge = make("inner")
    state, _ = merge.step(merge.initial_state(), LEFT, RIGHT, {"left": 3, "right": 3})
    saved = merge.save(state)
    with pytest.raises(InvalidArgument, match=message):
        merge.step(state, LEFT, RIGHT, watermarks)
    assert merge.save(state) == saved


def test_a_batch_of_one_side_only_is_valid() -> None:
    merge = make("full")
    state, output = merge.step(merge.initial_state(), None, RIGHT, {"left": 10, "right": 10})
    assert output.panes.select("id", "name").height == 3
    state, output = merge.step(state, bids((5, 11, 1)), None, {"left": 20, "right": 20})
    assert output.panes.select("id", "price").rows() == [(5, 1)]


@pytest.mark.parametrize("window", [Fixed(10), Sliding(10, 5), Sessions(4)])
@pytest.mark.parametrize("seed", sampled(range(6), keep=[0, 1]))
def test_discarding_mode_emits_each_matching_pair_once(window: Window, seed: int) -> None:
    rng = Random(seed)
    merge = make(
        "inner", window=window, trigger=EARLY, mode="discarding", allowed_lateness=1_000, allow_data_loss=True
    )
    state = merge.initial_state()
    left = [(rng.randrange(2), rng.randrange(20), number) for number in range(12)]
    right = [(rng.randrange(2), rng.randrange(20), 100 + number, "n") for number in range(12)]
    seen: list[tuple[Any, ...]] = []
    for start in range(0, 12, 3):
        state, output = merge.step(state, bids(*left[start : start + 3]), asks(*right[start : start + 3]), {})
        seen += output.panes.select("window_start", "price", "price_right").rows()
        assert not output.panes["retraction"].any()
        state = merge.load(merge.save(state), dict(state.blobs))
    state, output = merge.step(state, watermarks={"left": END_OF_TIME, "right": END_OF_TIME})
    seen += output.panes.select("window_start", "price", "price_right").rows()
    if isinstance(window, Sessions) and isinstance(window.gap, int):  # emitted before sessions merge
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


def test_a_pair_is_emitted_once_in_each_window() -> None:
    """Of two windows that share a pair, one fires it first while the other fires again for a late row."""
    merge = make("inner", window=Sliding(10, 5), mode="discarding", allowed_lateness=100)
    state, output = merge.step(
        merge.initial_state(), bids((1, 7, 70)), asks((1, 8, 80, "n")), {"left": 10, "right": 10}
    )
    columns = ("window_start", "price", "price_right", "timing")
    assert output.panes.select(columns).rows() == [(0, 70, 80, "ON_TIME")]
    state, output = merge.step(state, bids((1, 3, 30)), None, {"left": 15, "right": 15})
    assert sorted(output.panes.select(columns).rows()) == [(0, 30, 80, "LATE"), (5, 70, 80, "ON_TIME")]


def test_watermarks_of_both_sides_are_saved() -> None:
    merge = make("inner")
    for side in ("left", "right"):
        state, _ = merge.step(merge.initial_state(), watermarks={side: 7})
        state = merge.load(merge.save(state), dict(state.blobs))
        assert state.watermarks == {side: 7}


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


def test_retracting_mode_retracts_pairs() -> None:
    merge = make("left", trigger=EARLY, mode="accumulating_and_retracting", allow_data_loss=True)
    state, output = merge.step(merge.initial_state(), bids((1, 1, 10)), None, {})
    assert output.panes.select("price", "name", "retraction").rows() == [(10, None, False)]
    state, output = merge.step(state, None, asks((1, 2, 11, "x")), {})
    assert output.panes.select("price", "name", "retraction").rows() == [(10, None, True), (10, "x", False)]


INNER_NAMES = (
    "block", "left", "right", "number", "left_number", "right_number", "side", "event_time", "reason",
    "left:price", "carried:price", "merge:left", "merge:right", "merge:time", "merge:side", "merge:block",
    "merge:pane", "merge:key:0", "merge:number:left", "merge:number:right",
)  # fmt: skip


@pytest.mark.parametrize("name", sampled(INNER_NAMES, keep=INNER_NAMES[::4]))
def test_column_names_of_users_do_not_collide_with_internal_ones(name: str) -> None:
    """In each place a column can have: the key, and what either side carries."""
    for how in ("full", "cogroup"):
        for place in ("key", "left", "right"):
            if how == "cogroup" and place == "key" and name in {"left", "right"}:
                continue  # refused: the lists have these names
            places = {"key": "id", "left": "price", "right": "cost"} | {place: name}
            merge = make(how, **places, mode="discarding", trigger=EARLY, allow_data_loss=True)
            left = pl.DataFrame({places["key"]: [7], "ts": [1], places["left"]: [5]})
            right = pl.DataFrame({places["key"]: [7], "at": [2], places["right"]: [6]})
            state, _ = merge.step(merge.initial_state(), left, None, {})
            _, output = merge.step(state, None, right, {})
            result = output.panes.filter(~pl.col("retraction")).row(0, named=True)
            assert result[places["key"]] == 7
            if how == "cogroup":
                assert (result["left"], result["right"]) == ([], [{places["right"]: 6}])
            else:
                assert (result[places["left"]], result[places["right"]]) == (5, 6)


def test_a_single_column_may_be_given_as_a_string() -> None:
    merge = make("inner", key="id", left="price", right="name")
    _, output = merge.step(merge.initial_state(), LEFT, RIGHT, {"left": 10, "right": 10})
    assert sorted(output.panes.select("id", "price", "name").rows()) == [(1, 10, "x"), (1, 20, "x")]


def test_a_cogroup_without_carried_columns_counts_rows() -> None:
    merge = make("cogroup", left=(), right=())
    _, output = merge.step(merge.initial_state(), LEFT, RIGHT, {"left": 10, "right": 10})
    rows = {row["id"]: (row["left"], row["right"]) for row in output.panes.iter_rows(named=True)}
    assert rows[1] == ([{}, {}], [{}])


def test_a_cogroup_has_the_columns_of_a_side_without_rows() -> None:
    merge = make("cogroup")
    _, output = merge.step(merge.initial_state(), LEFT, None, {"left": 10, "right": 10})
    assert output.panes["right"].to_list() == [[], [], []]
    assert output.panes.schema["right"] == pl.List(pl.Struct({"price": pl.Null, "name": pl.Null}))


@pytest.mark.parametrize(
    ("how", "carried"),
    [
        (
            "inner",
            [
                {"price": 10, "price_right": None, "name": None},
                {"price": None, "price_right": 11, "name": "x"},
            ],
        ),
        (
            "cogroup",
            [{"left": {"price": 10}, "right": None}, {"left": None, "right": {"price": 11, "name": "x"}}],
        ),
    ],
)
def test_late_rows_have_their_carried_columns_and_side(how: str, carried: list[dict[str, Any]]) -> None:
    merge = make(how, late="emit")
    state, _ = merge.step(merge.initial_state(), watermarks={"left": 10, "right": 10})
    state, output = merge.step(state, LEFT.head(1), RIGHT.head(1), {})
    assert output.late is not None
    drop = {"reason": "late", "window_start": 0, "window_end": 10}
    assert output.late.to_dicts() == [
        {"id": 1, "event_time": 1, "side": "left"} | carried[0] | drop,
        {"id": 1, "event_time": 5, "side": "right"} | carried[1] | drop,
    ]


@pytest.mark.parametrize("name", ["event_time", "side", "reason"])
def test_names_of_late_row_columns_raise_if_late_rows_are_emitted(name: str) -> None:
    for how in ("inner", "cogroup"):
        make(how, key=(name,))
        with pytest.raises(InvalidArgument, match=f"key = '{name}': is used twice in the late rows"):
            make(how, key=(name,), late="emit")
    with pytest.raises(InvalidArgument, match=f"left = '{name}': is used twice in the late rows"):
        make("inner", left=(name,), late="emit")
    make("cogroup", left=(name,), late="emit")
    merge = make("inner", right=(name,), late="emit")
    _, output = merge.step(merge.initial_state())
    assert f"{name}_right" in output.panes.columns


@pytest.mark.parametrize("how", ["cogroup", "inner", "full"])
def test_only_updated_raises_in_discarding_mode(how: str) -> None:
    with pytest.raises(InvalidArgument, match="cannot compare discarding panes, because each"):
        make(how, mode="discarding", only_updated=True)
    make(how, mode="accumulating_and_retracting", only_updated=True)


def test_invalid_settings_raise() -> None:
    with pytest.raises(InvalidArgument, match="use one of cogroup, inner, left, right, full"):
        make("outer")
    with pytest.raises(InvalidArgument, match="is used twice in the pairs"):
        make("inner", right=("price", "price_right", "price"))
    with pytest.raises(InvalidArgument, match="left = 'index': is used twice in the pairs"):
        make("inner", left=("index",))
    with pytest.raises(InvalidArgument, match="left = 'price': is used twice in the rows"):
        make("cogroup", left=("price", "price"))
    with pytest.raises(InvalidArgument, match="key = 'left': is used twice in the panes"):
        make("cogroup", key=("left",))
    with pytest.raises(InvalidArgument, match="key = 'id': is used twice in the panes"):
        make("inner", key=("id", "id"))
    merge = make("inner")
    with pytest.raises(InvalidArgument, match="has no column 'at'"):
        merge.step(merge.initial_state(), None, LEFT, {})


def test_inherited_windows_raise() -> None:
    with pytest.raises(InvalidArgument, match="the two inputs have no common windows"):
        make("inner", window=Inherited())


@pytest.mark.parametrize("other", [{"how": "full"}, {"left": ("other",)}, {"right": ("price",)}])
def test_state_of_another_merge_raises(other: dict[str, Any]) -> None:
    inner = make("inner")
    state = inner.initial_state()
    with pytest.raises(IncompatibleState, match="the cogroup was"):
        make(**{"how": "inner", **other}).load(inner.save(state), state.windows.blobs)


def test_an_idle_side_is_left_out_of_the_watermark() -> None:
    merge = make("cogroup")
    state, output = merge.step(merge.initial_state(), LEFT, RIGHT, {"left": 3, "right": 12})
    assert (output.panes.height, output.waiting) == (0, 10)
    state, output = merge.step(state, idle=("left",))
    assert (output.panes.height, dict(output.watermarks)) == (4, {"default": 12})
    state, output = merge.step(state, watermarks={"left": 4})
    assert dict(output.watermarks) == {}, "a side that is active again does not take the watermark back"


def test_a_side_that_never_spoke_and_is_idle_does_not_block() -> None:
    merge = make("cogroup")
    state, output = merge.step(merge.initial_state(), LEFT, None, {"left": 10})
    assert output.panes.height == 0
    _, output = merge.step(state, idle=("right",))
    assert output.panes.height == 3


def test_if_both_sides_are_idle_the_higher_watermark_counts() -> None:
    merge = make("cogroup")
    state, _ = merge.step(merge.initial_state(), LEFT, RIGHT, {"left": 3, "right": 11})
    _, output = merge.step(state, idle=("left", "right"))
    assert dict(output.watermarks) == {"default": 11}


@pytest.mark.parametrize("how", ["left", "right", "full"])
def test_a_discarding_join_pads_a_row_only_when_no_match_can_come(how: str) -> None:
    merge = make(how, trigger=EARLY, mode="discarding", allowed_lateness=5)
    state = merge.initial_state()
    emitted: list[tuple[Any, ...]] = []
    inputs: list[tuple[Any, ...]] = [
        (bids((1, 1, 5), (2, 2, 6)), asks((3, 3, 8, "z")), 0),
        (None, asks((1, 4, 7, "x")), 10),
        (bids((3, 5, 9)), None, 14),
        (None, None, 15),
    ]
    for left, right, watermark in inputs:
        state, output = merge.step(state, left, right, dict.fromkeys(("left", "right"), watermark))
        rows = output.panes.select("id", "price", "price_right", "timing", "is_last").rows()
        emitted += sorted(rows)
    matches = [(1, 5, 7, "EARLY", False), (3, 9, 8, "LATE", False)]
    lonely = [] if how == "right" else [(2, 6, None, "LATE", True)]
    assert emitted == [*matches, *lonely]


# ---- input with retractions


def retracting_rows(random: Random, columns: tuple[str, ...]) -> list[pl.DataFrame]:
    """Batches of rows of one side, some of which take an earlier row back."""
    remaining: list[tuple[int | None, int, int]] = []
    batches: list[pl.DataFrame] = []
    for _ in range(4):
        rows: list[tuple[Any, ...]] = []
        for _ in range(random.randint(0, 4)):
            row = random.choice([1, 2, None]), random.randint(0, 19), random.randint(1, 3)
            remaining.append(row)
            rows.append((*row, False))
            if random.random() < 0.5:
                rows.append((*remaining.pop(random.randrange(len(remaining))), True))
        schema = dict.fromkeys(columns, pl.Int64) | {"gone": pl.Boolean}
        batches.append(pl.DataFrame(rows, schema=schema, orient="row"))
    return batches


def remaining_rows(batches: list[pl.DataFrame]) -> pl.DataFrame:
    """The rows of all batches that were not taken back."""
    rows = pl.concat(batches)
    counts = rows.group_by(pl.exclude("gone")).agg((1 - 2 * pl.col("gone").cast(pl.Int64)).sum().alias("n"))
    counts = counts.filter(pl.col("n") > 0)
    return counts.select(pl.exclude("n").repeat_by("n").explode())


def folded(panes: list[pl.DataFrame]) -> list[str]:
    """The rows of all panes without those that were retracted."""
    rows: list[str] = []
    retracted: list[str] = []
    for frame in panes:
        for row in frame.iter_rows(named=True):
            values = {name: row[name] for name in frame.columns[: frame.columns.index("timing")]}
            for side in ("left", "right"):
                if isinstance(values.get(side), list):
                    values[side] = sorted(values[side], key=repr)
            (retracted if row["retraction"] else rows).append(repr(values))
    for gone in retracted:
        rows.remove(gone)
    return sorted(rows)


@pytest.mark.parametrize(
    "how", sampled(["cogroup", "inner", "left", "right", "full"], keep=["cogroup", "full"], check=["full"])
)
@pytest.mark.parametrize("window", [Fixed(10), Sliding(10, 5), Sessions(4)], ids=str)
@pytest.mark.parametrize("seed", sampled(range(3), keep=[0]))
def test_folded_panes_over_retractions_equal_those_over_the_remaining_rows(
    how: str, window: Window, seed: int
) -> None:
    random = Random(seed)
    sides = retracting_rows(random, ("id", "ts", "price")), retracting_rows(random, ("id", "at", "price"))
    settings = {"window": window, "right": ("price",), "allowed_lateness": None}
    merge = make(how, **settings, trigger=EARLY, mode="accumulating_and_retracting", retractions="gone")
    state = merge.initial_state()
    panes: list[pl.DataFrame] = []
    for left, right in zip(*sides, strict=True):
        state, output = merge.step(state, left, right)
        state = merge.load(merge.save(state), dict(state.blobs))
        panes.append(output.panes)
    _, output = merge.step(state, watermarks=dict.fromkeys(("left", "right"), END_OF_TIME))
    plain = make(how, **settings)
    left, right = map(remaining_rows, sides)
    _, expected = plain.step(
        plain.initial_state(), left, right, dict.fromkeys(("left", "right"), END_OF_TIME)
    )
    assert folded([*panes, output.panes]) == folded([expected.panes])


def test_a_side_without_the_retraction_column_retracts_nothing() -> None:
    merge = make("cogroup", retractions="gone", right=("price",))
    left = bids((1, 1, 10)).with_columns(gone=False)
    right = asks((1, 2, 11, "x"))
    _, output = merge.step(merge.initial_state(), left, right, {"left": 10, "right": 10})
    assert output.panes.select("left", "right").rows() == [([{"price": 10}], [{"price": 11}])]


def test_a_discarding_cogroup_cannot_process_retractions() -> None:
    with pytest.raises(InvalidArgument, match="a row of an earlier pane"):
        make("inner", retractions="gone", mode="discarding")
