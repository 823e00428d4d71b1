"""Accumulators of Python accumulations in the state: typed values, and never code."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import polars as pl
import pytest

from slackwater.errors import CorruptState, IncompatibleState, InvalidArgument
from slackwater.windows import Accumulation, Fixed, Sessions, Window, WindowedOperator, fold
from slackwater.windows.accumulations import python
from slackwater.windows.accumulations.base import PartialColumns
from slackwater.windows.accumulations.stored_values import load_value, store_value

VALUES = [
    None, True, 0, -(2**63), 2**63 - 1, 2**63, -(10**40), 1.5, float("inf"), "", "ü\0", b"\x00\xff",
    [1, [2.0, None]], (), (1, ("a", b"b")), {1, 2}, frozenset({"a"}), {"a": [1]}, {1: "a", (2, 3): {"b"}}, {},
    Decimal("1.50"), Decimal("-1E+30"), date(1, 1, 1), time(23, 59, 59, 999_999),
    datetime(2024, 2, 29, 1, 2, 3, 4, UTC).replace(tzinfo=None), datetime(2024, 7, 1, tzinfo=UTC),
    datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
    datetime(1969, 12, 31, tzinfo=timezone(timedelta(hours=-5, minutes=30))),
    timedelta(days=-1, microseconds=7), UUID(int=7),
]  # fmt: skip


@dataclass
class Spread:
    low: int
    high: int


class Totals(msgspec.Struct):
    count: int
    total: Decimal


def typed(value: Any) -> Any:
    """The value with the types of all its parts."""
    if isinstance(value, (list, tuple)):
        return type(value), [typed(one) for one in value]
    if isinstance(value, dict):
        return dict, [(typed(key), typed(one)) for key, one in value.items()]
    return type(value), value, getattr(value, "tzinfo", None), getattr(value, "fold", None)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_comes_back_with_its_types(value: Any) -> None:
    assert typed(load_value(store_value(value))) == typed(value)


@pytest.mark.parametrize("value", [object(), Spread(1, 2), [Spread(1, 2)], {"a": {Ellipsis}}, 1j, range(3)])
def test_a_value_of_another_type_is_refused_with_the_way_to_declare_it(value: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"cannot be stored in the state.*accumulator_type="):
        store_value(value)


@pytest.mark.parametrize(
    ("value", "declared"),
    [(Spread(1, 2), Spread), (Totals(1, Decimal("0.1")), Totals), ((1, {2.5}), tuple[int, set[float]])],
)
def test_a_declared_type_comes_back(value: Any, declared: Any) -> None:
    assert load_value(store_value(value, declared), declared) == value


def test_a_value_that_is_not_of_the_declared_type_does_not_get_into_the_state() -> None:
    with pytest.raises(InvalidArgument, match=r"is not a value of accumulator_type="):
        store_value((1, "a"), tuple[int, int])


def test_a_declaration_that_is_not_a_type_is_refused_when_it_is_made() -> None:
    with pytest.raises(InvalidArgument, match="accumulator_type = 7"):
        fold("price", 0, max, combine=max, dtype=pl.Int64(), accumulator_type=7)
    with pytest.raises(InvalidArgument, match=r"accumulator = <class '.*Spread'>: cannot be stored"):
        fold("price", Spread(0, 0), max, combine=max, dtype=pl.Int64())


class Widest(Accumulation):
    column = "price"
    dtype = pl.Int64()
    accumulator_type = Spread

    def empty(self) -> Spread:
        return Spread(2**62, 0)

    def add_value(self, accumulator: Spread, value: int) -> Spread:
        return Spread(min(accumulator.low, value), max(accumulator.high, value))

    def merge_accumulators(self, left: Spread, right: Spread) -> Spread:
        return Spread(min(left.low, right.low), max(left.high, right.high))

    def value(self, accumulator: Spread) -> int:
        return accumulator.high - accumulator.low


class OrderedWidest(Widest):
    ordered = True


def operator(window: Window, accumulation: Accumulation) -> WindowedOperator:
    return WindowedOperator(
        window=window, accumulations={"spread": accumulation}, key=("key",), event_time="ts"
    )


def rows(*times_and_prices: tuple[int, int]) -> pl.DataFrame:
    schema = {"ts": pl.Int64, "price": pl.Int64}
    return pl.DataFrame(list(times_and_prices), schema=schema, orient="row").with_columns(key=pl.lit(1))


@pytest.mark.parametrize("accumulation", [Widest(), OrderedWidest()], ids=["unordered", "ordered"])
@pytest.mark.parametrize("window", [Fixed(20), Sessions(10)], ids=["fixed", "sessions"])
def test_a_declared_accumulator_survives_restarts(window: Window, accumulation: Accumulation) -> None:
    made = operator(window, accumulation)
    state = made.initial_state()
    for each in [(1, 5), (4, 9), (6, 2)]:
        state, _ = made.step(state, rows(each))
        state = made.load(made.save(state), state.blobs)
    _, output = made.step(state, None, {"default": 1000})
    assert output.panes["spread"].to_list() == [7]


class Intruder:
    """Pickled, it runs code when it is loaded."""

    ran = False

    @staticmethod
    def run() -> int:
        Intruder.ran = True
        return 0

    def __reduce__(self) -> tuple[Any, ...]:
        return Intruder.run, ()


@pytest.mark.parametrize("window", [Fixed(20), Sessions(10)], ids=["fixed", "sessions"])
def test_a_pickled_accumulator_of_an_earlier_release_is_refused_and_never_loaded(
    window: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = operator(window, Widest())
    with monkeypatch.context() as earlier:
        earlier.setattr(python, "_STORED", "accumulator")
        earlier.setattr(Widest, "_store", lambda self, value: pickle.dumps(Intruder()))
        state, _ = made.step(made.initial_state(), rows((1, 5)))
        saved = made.save(state)
    with pytest.raises(
        IncompatibleState, match=r"pickled by an earlier release.*start with a new checkpoint"
    ):
        made.load(saved, state.blobs)
    assert not Intruder.ran


def test_bytes_that_are_not_a_stored_value_are_refused_and_never_loaded() -> None:
    with pytest.raises(CorruptState, match="accumulation widest"):
        Widest().load(pickle.dumps(Intruder()))
    assert not Intruder.ran


def test_state_of_another_declared_type_is_refused() -> None:
    partials = PartialColumns("spread", retractable=False)
    frame = pl.DataFrame({"in:price": [1], "time": [1]}).select(Widest().add(partials))
    changed = type("Changed", (Widest,), {"accumulator_type": Totals})()
    with pytest.raises(IncompatibleState, match="accumulator_type"):
        changed.load(frame.item())
