"""The summary of the saved state of operators other than plain windows."""

from __future__ import annotations

import polars as pl

from slackwater.windows import Fixed, JoinOperator, JoinSpec, MergeOperator
from slackwater.windows.engine.asof_operator import AsofOperator
from slackwater.windows.engine.deduplicate_operator import DeduplicateOperator
from slackwater.windows.engine.state_summary import summarize
from slackwater.windows.spec.asof_spec import AsofSpec
from slackwater.windows.spec.deduplicate_spec import DeduplicateSpec

ROWS = pl.DataFrame({"key": ["a", "b"], "ts": [1, 12]})


def test_a_cogroup_has_the_windows_of_both_sides() -> None:
    merge = MergeOperator(window=Fixed(10), key=("key",), left=(), right=(), left_time="ts", right_time="ts")
    state, _ = merge.step(merge.initial_state(), ROWS, ROWS[:1], {"left": 3, "right": 2})
    summary = summarize(merge.save(state), state.blobs)
    assert (summary.kind, dict(summary.watermarks), summary.keys) == ("cogroup", {"left": 3, "right": 2}, 2)
    assert [(one.start, one.keys) for one in summary.windows] == [(0, 1), (10, 1)]
    assert summary.description.startswith("cogroup key=('key',) left=() right=() fixed(size=10 µs)")


def test_a_join_has_buffered_rows() -> None:
    schema = dict(ROWS.schema)
    join = JoinOperator(JoinSpec(on=("key",), before=5, after=5), left=schema, right=schema)
    state, _ = join.step(join.initial_state(), ROWS, ROWS[:1], {"left": 1})
    summary = summarize(join.save(state), state.blobs)
    assert (summary.kind, summary.buffered, dict(summary.watermarks)) == ("join", 3, {"left": 1})
    assert summary.bytes == len(join.save(state)) + sum(map(len, state.blobs.values()))


def test_an_as_of_join_and_a_deduplication_have_stored_rows() -> None:
    schema = dict(ROWS.schema)
    asof = AsofOperator(AsofSpec(on=("key",)), left=schema, right=schema)
    state, _ = asof.step(asof.initial_state(), None, ROWS)
    summary = summarize(asof.save(state), state.blobs)
    assert (summary.kind, summary.buffered) == ("as-of join", 2)
    unique = DeduplicateOperator(DeduplicateSpec(on=("key",), within=5), schema=schema)
    kept, _ = unique.step(unique.initial_state(), ROWS, {"default": 2})
    summary = summarize(unique.save(kept), kept.blobs)
    assert (summary.kind, summary.buffered) == ("deduplication", 2)
    assert dict(summary.watermarks) == {"default": 2}


def test_state_of_an_operator_that_is_not_known_has_its_size() -> None:
    summary = summarize(b"\x01?abc", {"blob": bytes(10)})
    assert (summary.kind, summary.bytes) == ("unknown", 15)
