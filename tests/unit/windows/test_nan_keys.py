"""NaN is a key like any other: it equals itself, however many rows a batch has."""

from __future__ import annotations

from math import isnan, nan
from typing import Any

import polars as pl
import pytest

from slackwater.errors import InvalidArgument
from slackwater.time import END_OF_TIME
from slackwater.windows import (
    AsofOperator,
    AsofSpec,
    DeduplicateOperator,
    DeduplicateSpec,
    JoinOperator,
    JoinSpec,
)

SCHEMA = {"k": pl.Float64, "ts": pl.Int64, "v": pl.Int64}
END = {"left": END_OF_TIME, "right": END_OF_TIME}


def rows(*keys: float | None) -> pl.DataFrame:
    return pl.DataFrame([(key, 5, 1) for key in keys], schema=SCHEMA, orient="row")


def pairing(name: str) -> Any:
    if name == "join":
        return JoinOperator(JoinSpec(on=("k",), before=5, after=5, how="left"), left=SCHEMA, right=SCHEMA)
    return AsofOperator(AsofSpec(on=("k",)), left=SCHEMA, right=SCHEMA)


@pytest.mark.parametrize("keys", [(nan,), (nan, 1.0), (nan, None)])
@pytest.mark.parametrize("name", ["join", "as-of join"])
def test_rows_with_nan_as_their_key_match(name: str, keys: tuple[float | None, ...]) -> None:
    operator = pairing(name)
    state, first = operator.step(operator.initial_state(), rows(*keys))
    _, second = operator.step(state, right=rows(*keys), watermarks=END)
    found = [*first.rows.rows(named=True), *second.rows.rows(named=True)]
    matched = {str(row["k"]): row["v_right"] for row in found}
    assert matched == {str(key): None if key is None else 1 for key in keys}


@pytest.mark.parametrize("keys", [(nan,), (nan, 1.0), (nan, None)])
def test_a_row_with_nan_as_its_key_is_a_duplicate_of_another(keys: tuple[float | None, ...]) -> None:
    operator = DeduplicateOperator(DeduplicateSpec(on=("k",), within=5), schema=SCHEMA)
    state, first = operator.step(operator.initial_state(), rows(*keys))
    _, second = operator.step(state, rows(nan))
    assert first.rows.height == len(keys)
    assert any(key is not None and isnan(key) for key in first.rows["k"])
    assert (second.rows.height, second.duplicates) == (0, 1)


def test_a_key_column_is_named_once() -> None:
    with pytest.raises(InvalidArgument, match="contains 'k' twice; name it once"):
        DeduplicateSpec(on=("k", "k"), within=5)
    with pytest.raises(InvalidArgument, match="contains 'k' twice; name it once"):
        AsofOperator(AsofSpec(on=("k", "k")), left=SCHEMA, right=SCHEMA)


@pytest.mark.parametrize("suffixes", [None, ("_x",), ("_x", 5), "ab"])
def test_suffixes_are_a_pair_of_strings(suffixes: object) -> None:
    spec = AsofSpec(on=("k",), suffixes=suffixes)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="is not a pair of strings; write suffixes="):
        AsofOperator(spec, left=SCHEMA, right=SCHEMA)
