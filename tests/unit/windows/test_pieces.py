"""Joins emit the pairs of a frequent key in pieces, so that their number does not determine the memory."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import polars as pl
import pytest

from slackwater.windows import Fixed, JoinOperator, JoinSpec, MergeOperator, every
from slackwater.windows.engine.pieces import Pieces, bounded_pieces
from tests.support.sampling import sampled

SIDE = {"key": pl.String, "ts": pl.Int64, "n": pl.Int64}
MARKS = {"left": 100, "right": 100}


def side(count: int, key: str = "hot") -> pl.DataFrame:
    return pl.DataFrame({"key": [key] * count, "ts": [5] * count, "n": range(count)}, schema=SIDE)


@pytest.mark.parametrize("condition", [None, pl.col("n_left") != pl.col("n_right")])
@pytest.mark.parametrize("how", ["inner", "left", "full"])
def test_a_join_emits_the_pairs_of_a_frequent_key_in_pieces(how: Any, condition: pl.Expr | None) -> None:
    spec = JoinSpec(on=("key",), before=0, after=0, how=how, condition=condition)
    operator = JoinOperator(spec, left=SIDE, right=SIDE, piece_rows=100)
    rows = pl.concat([side(40), side(2, "cold")])
    state, _ = operator.step(operator.initial_state(), rows)
    emitted = Pieces(operator.pieces(state, None, rows.filter(key="hot")))
    pieces = list(emitted)
    assert max(piece.height for piece in pieces) <= 100
    pairs = pl.concat(pieces).select("n_left", "n_right")
    wanted = {(left, right) for left in range(40) for right in range(40)}
    if condition is not None:
        wanted -= {(n, n) for n in range(40)}
    assert (pairs.height, set(pairs.rows())) == (len(wanted), wanted)
    state, _ = emitted.result
    _, output = operator.step(state, watermarks=MARKS)
    assert output.rows.height == {"inner": 0, "left": 2, "full": 2}[how]


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_a_semi_or_anti_join_of_a_frequent_key_builds_no_pairs(
    how: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = JoinOperator(JoinSpec(on=("key",), before=0, after=0, how=how), left=SIDE, right=SIDE)
    monkeypatch.setattr(operator._columns, "pairs", None)
    rows = pl.concat([side(40), side(2, "cold")])
    _, output = operator.step(operator.initial_state(), rows, side(40), MARKS)
    assert output.rows.height == {"semi": 40, "anti": 2}[how]


def test_a_row_that_matches_more_rows_than_a_piece_has_is_divided() -> None:
    operator = JoinOperator(JoinSpec(on=("key",), before=0, after=0), left=SIDE, right=SIDE, piece_rows=7)
    pieces = list(operator.pieces(operator.initial_state(), side(1), side(20)))
    assert [piece.height for piece in pieces] == [7, 7, 6]
    assert pl.concat(pieces)["n_right"].to_list() == list(range(20))


@pytest.mark.parametrize("mode", ["discarding", "accumulating"])
@pytest.mark.parametrize(
    "how", sampled(["inner", "left", "right", "full"], keep=["inner", "full"], check=["full"])
)
def test_a_join_in_windows_emits_the_pairs_of_a_frequent_key_in_pieces(how: Any, mode: Any) -> None:
    def outputs(piece_rows: int) -> list[list[pl.DataFrame]]:
        operator = MergeOperator(
            window=Fixed(10),
            key=("key",),
            left=("n",),
            right=("n",),
            left_time="ts",
            right_time="ts",
            how=how,
            mode=mode,
            trigger=every(count=1),
            piece_rows=piece_rows,
        )
        state = operator.initial_state()
        found = []
        for left, right in ((side(9), side(7)), (side(4), side(1, "cold")), (side(1, "cool"), side(5))):
            emitted = Pieces(operator.pieces(state, left, right))
            found.append(list(emitted))
            state, _ = emitted.result
        emitted = Pieces(operator.pieces(state, watermarks=MARKS))
        return [*found, list(emitted)]

    whole, divided = outputs(10**6), outputs(10)
    assert max(piece.height for pieces in divided for piece in pieces) <= 10
    assert any(pieces[0].height > 10 for pieces in whole)
    for one, several in zip(whole, divided, strict=True):
        assert sum(piece.height for piece in one) == sum(piece.height for piece in several)
        if one:
            order = ["key", "n", "n_right", "index"]
            assert pl.concat(several).sort(order).equals(pl.concat(one).sort(order), null_equal=True)


def test_pieces_are_bounded_by_rows_and_by_bytes_and_small_frames_are_combined() -> None:
    numbers = [pl.DataFrame({"n": range(start, start + 10)}) for start in range(0, 100, 10)]
    assert [piece.height for piece in bounded_pieces(numbers, rows=40)] == [40, 40, 20]
    assert [piece.height for piece in bounded_pieces(numbers, size=8 * 30)] == [30, 30, 30, 10]
    wide = pl.DataFrame({"text": ["x" * 1000] * 10})
    assert [piece.height for piece in bounded_pieces([wide], size=500)] == [1] * 10
    mixed = list(bounded_pieces([*numbers, wide], rows=1000, size=10_000))
    assert sum(piece.height for piece in mixed) == 110
    assert all(piece.estimated_size() <= 11_000 for piece in mixed)
    assert list(bounded_pieces([])) == []


PEAK = """
import resource, sys
import polars as pl
from slackwater.windows import Fixed, JoinOperator, JoinSpec, MergeOperator

rows = pl.DataFrame({"key": ["hot"] * 2500, "ts": [5] * 2500, "n": range(2500), "m": range(2500)})
if sys.argv[1] == "join":
    operator = JoinOperator(JoinSpec(on=("key",), before=0, after=0), left=rows.schema, right=rows.schema)
    pieces = operator.pieces(operator.initial_state(), rows, rows)
else:
    operator = MergeOperator(
        window=Fixed(10), key=("key",), left=("n", "m"), right=("n", "m"), left_time="ts", right_time="ts",
        how="inner",
    )
    pieces = operator.pieces(operator.initial_state(), rows, rows, {"left": 20, "right": 20})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
count = sum(piece.height for piece in pieces)
print(count, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.proof
@pytest.mark.parametrize("kind", ["join", "window"])
def test_six_million_pairs_of_one_key_take_less_than_200_mb(kind: str) -> None:
    environment = {**os.environ, "POLARS_MAX_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, "-c", PEAK, kind], env=environment, capture_output=True, text=True, check=True
    )
    pairs, megabytes = map(int, run.stdout.split())
    assert pairs == 2500 * 2500
    assert megabytes < 200
