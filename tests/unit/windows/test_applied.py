"""Functions over the rows of a pane: their input, their valid results, and retractions of results."""

from __future__ import annotations

from datetime import datetime
from itertools import count
from typing import Any

import pandas as pd  # type: ignore[import-untyped]  # its stubs are a package of their own
import polars as pl
import pytest

from slackwater import windows
from slackwater.errors import FunctionFailed
from slackwater.time import Range
from slackwater.windows.accumulations.applied import Applied, Frame

ROWS = pl.DataFrame({"key": ["a", "a", "b"], "ts": [7, 3, 4], "value": [70, 30, 40]})
EARLY = windows.after_watermark(early=windows.every(count=1), late=windows.every(count=1))


def operator(function: Any, frame: Frame = "polars", **options: Any) -> windows.WindowedOperator:
    applied = Applied(function, ("value",), {"n": pl.Int64(), "text": pl.String()}, ("key",), frame)
    given = {"window": windows.Fixed(10), "key": ("key",), **options}
    return windows.WindowedOperator(accumulations={"made": applied}, event_time="ts", **given)


def made(operator: windows.WindowedOperator, rows: pl.DataFrame | None = ROWS) -> list[Any]:
    _, output = operator.step(operator.initial_state(), rows, {"default": 10})
    return sorted(output.panes.select("key", "made").rows())


def test_the_function_gets_rows_sorted_by_event_time() -> None:
    seen: list[Any] = []

    def look(key: dict[str, Any], window: Range, rows: pl.DataFrame) -> list[Any]:
        seen.append((key, window, rows["value"].to_list()))
        return []

    assert made(operator(look)) == [("a", []), ("b", [])]
    assert sorted(seen, key=str) == [
        ({"key": "a"}, Range(0, 10), [30, 70]),
        ({"key": "b"}, Range(0, 10), [40]),
    ]


@pytest.mark.parametrize(
    "answer",
    [
        lambda rows: pl.DataFrame({"text": ["x"], "n": [rows.height]}),
        lambda rows: pd.DataFrame({"text": ["x"], "n": [rows.height]}),
        lambda rows: [{"text": "x", "n": rows.height}],
        lambda rows: ({"text": "x", "n": rows.height} for _ in range(1)),
    ],
    ids=["polars", "pandas", "list", "generator"],
)
def test_the_result_may_be_a_frame_or_a_list_of_dictionaries(answer: Any) -> None:
    assert made(operator(lambda key, window, rows: answer(rows))) == [
        ("a", [{"n": 2, "text": "x"}]),
        ("b", [{"n": 1, "text": "x"}]),
    ]


def test_the_function_gets_pandas_on_request() -> None:
    def look(key: dict[str, Any], window: Range, rows: Any) -> list[Any]:
        assert isinstance(rows, pd.DataFrame)
        return [{"n": int(rows["value"].sum()), "text": None}]

    assert made(operator(look, "pandas"))[0] == ("a", [{"n": 100, "text": None}])


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (5, "returned int, not rows"),
        ({"n": 1, "text": "x"}, "returned dict, not rows"),
        ([{"n": 1}], "returned the columns n; return a DataFrame or a list of dictionaries with n, text"),
        ([{"n": "many", "text": "x"}], "row 1, column 'n' of type int64"),
        ([5], "returned a row that is a int; return a DataFrame"),
        (
            [{"n": 1, "text": "x"}, {"n": 1.9, "text": "x"}],
            "a result = 1.9: row 2, column 'n' of type int64: has a fractional part",
        ),
        (
            pl.DataFrame({"n": [1.0, 1.9], "text": ["x", "x"]}),
            "a result = 1.9: row 2, column 'n' of type int64: has a fractional part",
        ),
        (
            pd.DataFrame({"n": [1.0, 1.9], "text": ["x", "x"]}),
            "a result = 1.9: row 2, column 'n' of type int64: has a fractional part",
        ),
    ],
)
def test_an_invalid_result_raises_with_the_reason(answer: Any, message: str) -> None:
    def odd(key: dict[str, Any], window: Range, rows: pl.DataFrame) -> Any:
        return answer

    with pytest.raises(FunctionFailed, match=message):
        made(operator(odd))


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (pl.Float32(), 1e300, "is too large"),
        (pl.Datetime("us", "UTC"), datetime(2024, 1, 31), "has no timezone|cannot be made"),  # noqa: DTZ001
        (pl.Datetime("us", "UTC"), 5, "is a number|cannot be made"),
        (pl.Date(), datetime(2024, 1, 31, 5), "is not a date|cannot be made"),  # noqa: DTZ001
    ],
)
@pytest.mark.parametrize("as_frame", [False, True])
def test_a_result_is_never_cut(kind: pl.DataType, value: object, message: str, as_frame: bool) -> None:
    def cut(key: dict[str, Any], window: Range, rows: pl.DataFrame) -> Any:
        return pl.DataFrame({"made": [value]}) if as_frame else [{"made": value}]

    applied = Applied(cut, ("value",), {"made": kind}, ("key",))
    cutting = windows.WindowedOperator(
        accumulations={"made": applied}, event_time="ts", window=windows.Fixed(10), key=("key",)
    )
    with pytest.raises(FunctionFailed, match=f"column 'made' of type .*({message})"):
        made(cutting)


def test_an_error_in_the_function_names_it_with_key_and_window() -> None:
    def odd(key: dict[str, Any], window: Range, rows: pl.DataFrame) -> Any:
        return b"\xff".decode()

    with pytest.raises(
        FunctionFailed, match=r"odd\(\) failed on key {'key': 'a'} in window .*UnicodeDecodeError"
    ):
        made(operator(odd), ROWS[:1])


def test_a_retraction_contains_the_earlier_result_of_the_function() -> None:
    calls = count()
    once = operator(
        lambda key, window, rows: [{"n": next(calls), "text": "call"}],
        trigger=EARLY,
        mode="accumulating_and_retracting",
        allowed_lateness=100,
    )
    state = once.initial_state()
    state, first = once.step(state, ROWS[:1], {"default": 0})
    state = once.load(once.save(state), dict(state.blobs))
    state, second = once.step(state, ROWS[1:2], {"default": 0})
    (said,) = first.panes["made"].to_list()
    taken_back, now = second.panes.select("retraction", "made").rows()
    assert taken_back == (True, said)
    assert now[1] != said


def test_an_empty_pane_calls_the_function_without_rows() -> None:
    def look(key: dict[str, Any], window: Range, rows: pl.DataFrame) -> list[Any]:
        assert rows.schema == {"value": pl.Int64()}
        return [{"n": rows.height, "text": "x"}]

    always = operator(look, mode="discarding", closing="always", allowed_lateness=5)
    state, _ = always.step(always.initial_state(), ROWS, {"default": 10})
    _, last = always.step(state, None, {"default": 15})
    assert [rows[0]["n"] for rows in last.panes["made"].to_list()] == [0, 0]
