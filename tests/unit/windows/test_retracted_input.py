"""Operators whose input contains retractions: what they keep, and what they emit when elements are gone."""

from __future__ import annotations

import json
import random
from base64 import b64decode
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from slackwater import windows
from slackwater.errors import InvalidArgument
from slackwater.time import END_OF_TIME
from slackwater.windows import ColumnarAccumulation, WindowedOperator
from slackwater.windows.accumulations.applied import Applied
from slackwater.windows.engine.blobs import decode, encode
from slackwater.windows.operator_columns import REMAINING
from tests.support.sampling import sampled

SAVED = Path(__file__).parent / "saved"
EVERY_ELEMENT = windows.after_watermark(early=windows.every(count=1), late=windows.every(count=1))
Row = tuple[int, Any, bool]
"""The event time, the value, and whether it is a retraction."""


def operator(**settings: Any) -> WindowedOperator:
    given = {
        "window": windows.Fixed(10),
        "key": ("key",),
        "accumulations": {"n": windows.count(), "best": windows.max("value")},
        "trigger": EVERY_ELEMENT,
        "mode": "accumulating_and_retracting",
        "allowed_lateness": None,
        "event_time": "ts",
        "retractions": "gone",
    }
    return WindowedOperator(**(given | settings))


def batch(*rows: Row, key: str = "a") -> pl.DataFrame:
    frame = pl.DataFrame(rows, schema=["ts", "value", "gone"], orient="row")
    return frame.select(pl.lit(key).alias("key"), "ts", "value", pl.col("gone").cast(pl.Boolean))


def play(tested: WindowedOperator, *batches: pl.DataFrame, watermark: int | None = None) -> list[list[Any]]:
    """The panes of each step as (start, end, values…, retraction)."""
    state = tested.initial_state()
    names = ["window_start", "window_end", *tested.spec.accumulations, "retraction"]
    panes: list[list[Any]] = []
    watermarks = {} if watermark is None else {"default": watermark}
    for each in batches:
        state, output = tested.step(state, each, watermarks)
        state = tested.load(tested.save(state), dict(state.blobs))
        panes.append(output.panes.select(names).rows())
    return panes


SELECTIONS: list[tuple[ColumnarAccumulation, Any, Any]] = [
    (windows.max("value"), 9, 7),
    (windows.min("value"), 2, 2),
    (windows.first("value"), 9, 7),
    (windows.last("value"), 2, 2),
    (windows.max_by("ts", "value"), 1, 2),
    (windows.top_n("value", 2), [9, 7], [7, 7]),
    (windows.collect("value", ordered=True), [9, 7, 7, 2], [7, 7, 2]),
    (windows.collect_set("value"), [2, 7, 9], [2, 7]),
    (windows.sort("value"), [2, 7, 7, 9], [2, 7, 7]),
    (windows.count_distinct("value"), 3, 2),
    (windows.sum_distinct("value"), 18, 9),
    (
        windows.top_n_by_key("value", key="ts", n=2),
        [{"value": 9, "key": 1}, {"value": 7, "key": 2}],
        [{"value": 7, "key": 2}, {"value": 2, "key": 3}],
    ),
    (
        Applied(
            lambda key, window, rows: [{"all": repr(rows["value"].to_list())}],
            ("value",),
            {"all": pl.String()},
        ),
        [{"all": "[9, 7, 7, 2]"}],
        [{"all": "[7, 7, 2]"}],
    ),
]


@pytest.mark.parametrize(
    ("tested", "before", "after"), SELECTIONS, ids=lambda case: getattr(case, "name", "")
)
def test_a_selection_goes_back_to_the_values_that_remain(
    tested: ColumnarAccumulation, before: Any, after: Any
) -> None:
    steps = (
        batch((1, 9, False), (2, 7, False), (2, 7, False), (3, 2, False)),
        batch((1, 9, True)),
    )
    first, second = play(operator(accumulations={"x": tested}), *steps)
    assert first == [(0, 10, before, False)]
    assert second == [(0, 10, before, True), (0, 10, after, False)]


def test_input_columns_may_have_any_name() -> None:
    tested = operator(accumulations={"x": windows.max("count"), "y": windows.first("time")})
    rows = batch((1, 9, False), (1, 9, True), (2, 3, False)).with_columns(count="value", time="value")
    assert play(tested, rows) == [[(0, 10, 3, 3, False)]]


def test_collected_values_keep_their_number() -> None:
    steps = batch((1, 9, False), (1, 9, False), (2, 7, False)), batch((1, 9, True))
    _, (_, (*_, values, _)) = play(operator(accumulations={"x": windows.collect("value")}), *steps)
    assert sorted(values) == [7, 9]


def test_a_window_whose_elements_were_all_retracted_has_no_pane() -> None:
    steps = batch((1, 9, False)), batch((1, 9, True)), batch((4, 5, False))
    assert play(operator(), *steps) == [
        [(0, 10, 1, 9, False)],
        [(0, 10, 1, 9, True)],
        [(0, 10, 1, 5, False)],
    ]


@pytest.mark.parametrize("closing", ["always", "if_non_empty"])
@pytest.mark.parametrize("mode", ["accumulating", "accumulating_and_retracting"])
def test_a_window_that_lost_all_elements_before_it_fired_emits_nothing(mode: str, closing: str) -> None:
    tested = operator(trigger=windows.DEFAULT_TRIGGER, mode=mode, closing=closing, allowed_lateness=0)
    assert play(tested, batch((1, 9, False), (1, 9, True)), watermark=END_OF_TIME) == [[]]


def test_an_emitted_accumulating_pane_is_replaced_by_an_empty_one() -> None:
    steps = batch((1, 9, False)), batch((1, 9, True))
    assert play(operator(mode="accumulating"), *steps) == [[(0, 10, 1, 9, False)], [(0, 10, 0, None, False)]]


def test_the_pane_index_continues_after_a_retraction_without_a_replacement() -> None:
    tested = operator()
    state = tested.initial_state()
    found: list[Any] = []
    for rows in (batch((1, 9, False)), batch((1, 9, True)), batch((4, 5, False))):
        state, output = tested.step(state, rows)
        found += output.panes.select("index", "retraction").rows()
    assert found == [(0, False), (0, True), (1, False)]


def test_a_retraction_splits_a_session() -> None:
    tested = operator(window=windows.Sessions(5))
    steps = batch((1, 1, False), (4, 2, False), (8, 3, False)), batch((4, 2, True))
    first, second = play(tested, *steps)
    assert first == [(1, 13, 3, 3, False)]
    assert second == [(1, 13, 3, 3, True), (1, 6, 1, 1, False), (8, 13, 1, 3, False)]


def test_a_shortened_session_is_purged_at_once_if_it_is_past_its_lateness() -> None:
    tested = operator(
        window=windows.Sessions(5),
        trigger=windows.after_watermark(late=windows.every(count=9)),
        allowed_lateness=3,
    )
    state = tested.initial_state()
    state, _ = tested.step(state, batch((1, 1, False), (5, 2, False)), {"default": 11})
    state, output = tested.step(state, batch((5, 2, True)), {"default": 11})
    panes = output.panes.select("window_start", "window_end", "n", "retraction", "is_last").rows()
    assert panes == [(1, 10, 2, True, False), (1, 6, 1, False, True)]
    assert state.open_windows == 0


@pytest.mark.search
def test_cancelled_elements_are_not_stored() -> None:
    tested = operator(accumulations={"best": windows.max("value")})
    state = tested.initial_state()
    sizes: list[pl.DataFrame] = []
    for number in range(30):
        state, _ = tested.step(state, batch((1, number, False), (1, number - 1, number > 0)))
        sizes = [
            decode(blob, "blob").select(pl.col("^part:best:counted:count$").list.len())
            for blob in state.blobs.values()
        ]
    assert sum(int(size.sum().item()) for size in sizes if size.width) <= 2 * 8


NAN = float("nan")
HALF = Decimal("0.5")
NEW_YEAR, EVE = date(2024, 1, 1), date(2024, 12, 31)


@pytest.mark.parametrize(
    ("rows", "low", "high"),
    [
        pytest.param([(5, False), (9, False), (9, True)], 5, 5, id="the highest is gone"),
        pytest.param([(5, False), (9, False), (5, True)], 9, 9, id="the lowest is gone"),
        pytest.param([(5, False), (9, False), (7, False), (7, True)], 5, 9, id="one between is gone"),
        pytest.param([(9, False), (9, False), (9, True), (5, False)], 5, 9, id="one of two equal ones"),
        pytest.param([(9, True), (5, False), (9, False)], 5, 5, id="retracted before it arrives"),
        pytest.param([(9, True), (5, False)], 5, 5, id="retracted and not arrived yet"),
        pytest.param([(None, False), (None, True), (5, False)], 5, 5, id="a null is gone"),
        pytest.param([(5, False), (5, True), (None, False)], None, None, id="only a null remains"),
        pytest.param([(NAN, False), (5.5, False), (5.5, True), (3.5, False)], 3.5, NAN, id="NaN remains"),
        pytest.param([(NAN, False), (NAN, True), (5.5, False)], 5.5, 5.5, id="NaN is gone"),
        pytest.param([(-0.0, False), (0.0, True), (-3.0, False)], -3.0, -3.0, id="minus zero equals zero"),
        pytest.param([("b", False), ("ä", False), ("ä", True)], "b", "b", id="text"),
        pytest.param([(True, False), (False, False), (True, True)], False, False, id="booleans"),
        pytest.param([(HALF, False), (2 * HALF, False), (2 * HALF, True)], HALF, HALF, id="decimals"),
        pytest.param([(HALF, False), (HALF, True), (None, False)], None, None, id="no decimal remains"),
        pytest.param([(NEW_YEAR, False), (EVE, False), (EVE, True)], NEW_YEAR, NEW_YEAR, id="dates"),
    ],
)
@pytest.mark.parametrize("batches", sampled([1, 2, 20], keep=[1, 2, 20], check=[1, 2]))
def test_the_extremes_are_those_of_the_values_that_remain(
    rows: list[tuple[Any, bool]], low: Any, high: Any, batches: int
) -> None:
    """In 20 batches the partials are compacted, some of them empty."""
    tested = operator(
        accumulations={"low": windows.min("value"), "high": windows.max("value")},
        trigger=windows.DEFAULT_TRIGGER,
        allowed_lateness=0,
    )
    state = tested.initial_state()
    size = -(-len(rows) // batches)
    kind = pl.Series([value for value, _ in rows]).dtype
    for start in range(0, batches * size, size):
        made = batch(*((1, value, gone) for value, gone in rows[start : start + size]), (2, None, False))
        state, _ = tested.step(state, made.with_columns(pl.col("value").cast(kind)))
        state = tested.load(tested.save(state), dict(state.blobs))
    state, output = tested.step(state, None, {"default": 10})
    assert repr(output.panes.select("low", "high").rows()) == repr([(low, high)])


def test_an_operator_without_retractions_stores_what_it_did() -> None:
    tested = operator(retractions=None, trigger=windows.DEFAULT_TRIGGER)
    state, _ = tested.step(tested.initial_state(), batch((1, 9, False)))
    (blob,) = state.blobs.values()
    assert decode(blob, "blob").columns == ["key:0", "added", "part:n:n", "part:best:value"]


@pytest.mark.parametrize("window", [windows.Fixed(10), windows.Sessions(5)])
def test_state_of_a_release_that_did_not_count_the_remaining_elements_is_loaded(
    window: windows.Window,
) -> None:
    tested = operator(window=window, accumulations={"n": windows.count()})
    state, _ = tested.step(tested.initial_state(), batch((1, 1, False), (2, 2, False)))
    old = {
        name: encode(
            frame.drop(REMAINING, *(each for each in frame.columns if "counted" in each), strict=False)
        )
        for name, frame in ((name, decode(blob, "blob")) for name, blob in state.blobs.items())
    }
    state = tested.load(tested.save(state), old)
    state, output = tested.step(state, batch((1, 1, True), (3, 3, False), (4, 4, False)))
    assert output.panes["n"].to_list()[-1] == 3


@pytest.mark.parametrize(
    ("tested", "alternative"),
    [
        (windows.approx_count_distinct("value"), "use count_distinct"),
        (windows.approx_quantile("value", 0.5), "use sort"),
    ],
    ids=lambda case: getattr(case, "name", ""),
)
def test_an_accumulation_that_cannot_take_elements_back_names_the_alternative(
    tested: ColumnarAccumulation, alternative: str
) -> None:
    with pytest.raises(InvalidArgument, match=f"cannot subtract elements.*{alternative}"):
        operator(accumulations={"x": tested})


class Highest(windows.Accumulation):
    """The highest value, without a way to subtract one."""

    column = "value"
    dtype = pl.Int64()

    def empty(self) -> int:
        return 0

    def add_value(self, accumulator: int, value: int) -> int:
        return max(accumulator, value)

    def merge_accumulators(self, left: int, right: int) -> int:
        return max(left, right)

    def value(self, accumulator: int) -> int:
        return accumulator


def concatenated(left: str, right: int) -> str:
    return f"{left}{right}"


@pytest.mark.parametrize("window", [windows.Fixed(10), windows.Sliding(10, 5), windows.Sessions(10)])
@pytest.mark.parametrize(
    ("tested", "before", "after"),
    [
        (windows.reduce("value", max, dtype=pl.Int64()), 7, 5),
        (windows.fold("value", "", concatenated, combine=str.__add__, dtype=pl.String()), "375", "35"),
        (windows.fold("value", 0, max, combine=max, dtype=pl.Int64(), ordered=False), 7, 5),
        (Highest(), 7, 5),
    ],
    ids=lambda case: getattr(case, "name", repr(case)),
)
def test_a_python_function_without_an_inverse_is_computed_from_the_elements_that_remain(
    window: windows.Window, tested: ColumnarAccumulation, before: object, after: object
) -> None:
    folds = operator(window=window, accumulations={"x": tested})
    state, first = folds.step(
        folds.initial_state(), batch((8, 5, False), (6, 3, False), (7, 7, False), (9, None, False))
    )
    state = folds.load(folds.save(state), state.blobs)
    _, second = folds.step(state, batch((7, 7, True)))
    latest = [
        panes.filter(~pl.col("retraction")).sort("window_start") for panes in (first.panes, second.panes)
    ]
    assert [panes["x"].to_list()[0] for panes in latest] == [before, after]


def test_a_python_function_of_no_remaining_elements_has_its_empty_value() -> None:
    reduced = operator(
        accumulations={"x": windows.reduce("value", max, dtype=pl.Int64())}, mode="accumulating"
    )
    state, _ = reduced.step(reduced.initial_state(), batch((1, 5, False)))
    _, output = reduced.step(state, batch((1, 5, True)))
    assert output.panes["x"].to_list() == [None]


def test_a_selection_cannot_take_elements_back_in_discarding_mode() -> None:
    with pytest.raises(InvalidArgument, match="an element of an earlier pane"):
        operator(mode="discarding")


@pytest.mark.parametrize(
    ("tested", "values", "expected"),
    [
        (windows.any("value"), [True, False], False),
        (windows.all("value"), [False, True], True),
        (windows.any("value"), [True], None),
        (windows.all("value"), [False], None),
        (windows.mean("value"), [3], None),
        (windows.variance("value"), [3, 5], None),
        (windows.stddev("value"), [3, 5, 5], pytest.approx(0, abs=1e-6)),
        (windows.sum("value"), [3], None),
        (windows.count("value"), [3], 0),
    ],
    ids=lambda case: getattr(case, "name", repr(case)),
)
def test_the_first_of_several_values_is_subtracted(
    tested: ColumnarAccumulation, values: list[Any], expected: Any
) -> None:
    """A row without a value keeps the window from being empty."""
    rows = [(1, value, False) for value in values] + [(1, None, False)]
    _, (_, (*_, found, _)) = play(
        operator(accumulations={"x": tested}), batch(*rows), batch((1, values[0], True))
    )
    assert found == expected


# ---- lists of narrow integers


BIDS = {"key": pl.String, "price": pl.Int64, "bidder": pl.String, "ts": pl.Int64, "back": pl.Boolean}


def bids(*rows: tuple[str, int | None, str, int, bool], **types: Any) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema={**BIDS, **types}, orient="row")


def auction(**settings: Any) -> WindowedOperator:
    given = {
        "window": windows.Fixed(10),
        "key": ("key",),
        "accumulations": {
            "best": windows.max("price"),
            "top": windows.top_n_by_key("price", key="bidder", n=2),
        },
        "event_time": "ts",
        "retractions": "back",
    }
    return WindowedOperator(**(given | settings))


@pytest.mark.parametrize("folds", [False, True])
@pytest.mark.parametrize("price", [pl.Int64, pl.Int32, pl.UInt8, pl.Float64])
def test_values_have_the_type_of_the_input_however_small_they_are(price: Any, folds: bool) -> None:
    """One batch fits into 8 bits, another one does not, and one has no value at all."""
    tested = auction()
    state = tested.initial_state()
    large = 70_000 if price != pl.UInt8 else 200
    for batch in (
        bids(("a", 7, "x", 1, False), ("a", None, "x", 1, False), price=price),
        bids(("a", large, "y", 2, False), price=price),
        bids(
            ("a", large, "y", 2, True), ("b", None, "z", 3, False), ("c", large, "z", 3, False), price=price
        ),
    ):
        if folds:
            halves = [tested.fold(batch[:1]), tested.fold(batch[1:])] if batch.height > 1 else []
            state, _ = tested.step(state, folded=halves or [tested.fold(batch)])
        else:
            state, _ = tested.step(state, batch)
        state = tested.load(tested.save(state), dict(state.blobs))
    _, output = tested.step(state, watermarks={"default": END_OF_TIME})
    panes = output.panes.sort("key")
    assert panes["best"].dtype == price
    assert panes.select("key", "best").rows() == [("a", 7), ("b", None), ("c", large)]
    assert panes["top"].to_list() == [[{"value": 7, "key": "x"}], [], [{"value": large, "key": "z"}]]
    assert panes["top"].dtype.inner.fields[0].dtype == price  # type: ignore[attr-defined]


def test_integers_are_stored_in_the_smallest_type() -> None:
    tested = auction(accumulations={"best": windows.max("price")})
    state, _ = tested.step(tested.initial_state(), bids(("a", 7, "x", 1, False), ("a", 300, "x", 2, True)))
    (partials,) = (decode(blob, "blob") for blob in state.blobs.values())
    stored = {name: kind for name, kind in partials.schema.items() if "counted" in name}
    assert list(stored.values()) == [pl.List(pl.Int16)]


@pytest.mark.parametrize(
    "price", [0, -1, 2**62 - 1, -(2**62), 2**62, -(2**62) - 1, 2**63 - 1, -(2**63), None]
)
@pytest.mark.parametrize("is_lowest", [False, True])
def test_a_sign_is_stored_with_integers_that_have_room_for_it(price: int | None, is_lowest: bool) -> None:
    """At the last integer with room for a sign, at the first without, and for null."""
    tested = auction(accumulations={"low": windows.min("price"), "high": windows.max("price")})
    other = -(2**63) + 1 if is_lowest else 5
    state = tested.initial_state()
    for rows in (
        [("a", price, "x", 1, False), ("b", price, "x", 1, False), ("b", other, "x", 1, False)],
        [("b", price, "x", 1, True)],
    ):
        state, _ = tested.step(state, bids(*rows))
        state = tested.load(tested.save(state), dict(state.blobs))
    _, output = tested.step(state, watermarks={"default": END_OF_TIME})
    panes = output.panes.sort("key").select("key", "low", "high")
    assert panes.rows() == [("a", price, price), ("b", other, other)]


@pytest.mark.parametrize("seed", range(12))
def test_the_extremes_equal_those_of_the_remaining_integers(seed: int) -> None:
    """Integers of several sizes in random batches, most of them equal to others, and many retracted."""
    chosen = random.Random(seed)
    tested = auction(accumulations={"low": windows.min("price"), "high": windows.max("price")})
    limits = chosen.sample([2, 2**6, 2**14, 2**31, 2**62, 2**63 - 1], 2)
    state, remaining = tested.initial_state(), {key: list[int]() for key in "abc"}
    for _ in range(10):
        rows: list[tuple[str, int, str, int, bool]] = []
        limit = chosen.choice(limits)
        for key in chosen.choices("abc", k=20):
            values = remaining[key]
            if values and chosen.random() < 0.45:
                rows.append((key, values.pop(chosen.randrange(len(values))), "x", 1, True))
            else:
                values.append(chosen.choice([-limit, limit, limit - 1, 0, chosen.randint(-limit, limit)]))
                rows.append((key, values[-1], "x", 1, False))
        state, _ = tested.step(state, bids(*rows))
    _, output = tested.step(state, watermarks={"default": END_OF_TIME})
    expected = [(key, min(values), max(values)) for key, values in remaining.items() if values]
    assert output.panes.sort("key").select("key", "low", "high").rows() == expected


@pytest.mark.parametrize("form", ["wide", "narrow"])
def test_lists_that_an_earlier_release_stored_load(form: str) -> None:
    """Integers of 64 bits, or as few as needed with a list of signs; new elements are merged with them."""
    saved = json.loads((SAVED / f"retractable-{form}.json").read_text("utf-8"))
    tested = auction()
    blobs = {name: b64decode(data) for name, data in saved["blobs"].items()}
    state = tested.load(b64decode(saved["index"]), blobs)
    state, _ = tested.step(state, bids(("b", 70_000, "z", 4, True), ("a", 8, "z", 5, False)))
    _, output = tested.step(state, watermarks={"default": END_OF_TIME})
    panes = output.panes.sort("key")
    assert panes.select("key", "best").rows() == [("a", 8), ("b", 5)]
    assert panes["best"].dtype == pl.Int64
    assert panes["top"].to_list() == [
        [{"value": 8, "key": "z"}, {"value": 7, "key": "x"}],
        [{"value": 5, "key": "x"}],
    ]
