"""More lateness after a restart: what was freed stays freed, and rows for it are dropped and counted."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from slackwater.windows import (
    AsofOperator,
    AsofSpec,
    DeduplicateOperator,
    DeduplicateSpec,
    Fixed,
    JoinOperator,
    JoinSpec,
    MergeOperator,
)

TIMES = {"k": pl.Int64, "ts": pl.Int64}


def rows(*times: int) -> pl.DataFrame:
    return pl.DataFrame({"k": [1] * len(times), "ts": list(times)}, schema=TIMES)


@pytest.mark.parametrize("lateness", [1_000, None])
def test_a_join_does_not_take_rows_whose_matches_are_gone(lateness: int | None) -> None:
    def join(lateness: int | None) -> JoinOperator:
        spec = JoinSpec(
            on=("k",), before=0, after=5, how="left", left_lateness=lateness, right_lateness=lateness
        )
        return JoinOperator(spec, left=TIMES, right=TIMES)

    before, after = join(0), join(lateness)
    state, output = before.step(before.initial_state(), rows(10), None, {"left": 100, "right": 100})
    assert output.rows.height == 1, "padded"
    state = after.load(before.save(state), state.blobs)
    _, output = after.step(state, None, rows(12))
    assert output.rows.is_empty()
    assert output.dropped == {"left": 0, "right": 1}


def test_an_asof_join_does_not_take_rows_behind_its_earlier_watermark() -> None:
    def join(lateness: int) -> AsofOperator:
        spec = AsofSpec(on=("k",), left_lateness=lateness, right_lateness=lateness)
        return AsofOperator(spec, left=TIMES, right=TIMES)

    before, after = join(0), join(1_000)
    state, _ = before.step(before.initial_state(), rows(10), rows(8), {"left": 100, "right": 100})
    state = after.load(before.save(state), state.blobs)
    _, output = after.step(state, rows(11), rows(9))
    assert output.dropped == {"left": 1, "right": 1}


def test_a_deduplication_does_not_pass_a_row_that_it_has_forgotten() -> None:
    def operator(lateness: int) -> DeduplicateOperator:
        spec = DeduplicateSpec(on=("k",), within=5, lateness=lateness)
        return DeduplicateOperator(spec, schema=TIMES)

    before, after = operator(0), operator(1_000)
    state, _ = before.step(before.initial_state(), rows(10), {"default": 100})
    state = after.load(before.save(state), state.blobs)
    _, output = after.step(state, rows(10))
    assert (output.rows.height, output.dropped) == (0, 1)


def test_a_cogroup_does_not_open_a_purged_window() -> None:
    def merge(lateness: int) -> MergeOperator:
        settings: dict[str, Any] = {"window": Fixed(10), "key": ("k",), "left": (), "right": ()}
        return MergeOperator(**settings, left_time="ts", right_time="ts", allowed_lateness=lateness)

    before, after = merge(0), merge(1_000)
    state, _ = before.step(before.initial_state(), rows(3), rows(4), {"left": 100, "right": 100})
    state = after.load(before.save(state), state.blobs)
    _, output = after.step(state, rows(5), rows(6))
    assert (output.panes.height, output.dropped_late) == (0, 2)
