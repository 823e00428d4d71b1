"""The time-bounded join: exact bounds of its rules, invalid arguments, and which state it accesses."""

from __future__ import annotations

import json
import zlib
from base64 import b64decode
from pathlib import Path

import polars as pl
import pytest

from slackwater.errors import (
    CorruptState,
    IncompatibleState,
    InvalidArgument,
    UnsupportedStateVersion,
    WatermarkRegression,
)
from slackwater.time import BEGINNING_OF_TIME, END_OF_TIME
from slackwater.windows.engine.join_operator import JoinOperator
from slackwater.windows.spec.join_spec import JoinSpec
from tests.support.recording_store import RecordingStore

SCHEMA = {"k": pl.String, "ts": pl.Int64, "name": pl.String}


def rows(*triples: tuple[str | None, int, str]) -> pl.DataFrame:
    return pl.DataFrame(triples, schema=SCHEMA, orient="row")


def operator(
    how: str = "inner", before: int = 1, after: int = 1, *, late: str = "count", chunk_rows: int = 65_536
) -> JoinOperator:
    join = JoinSpec(on=("k",), before=before, after=after, how=how, late=late)  # type: ignore[arg-type]
    return JoinOperator(join, left=SCHEMA, right=SCHEMA, chunk_rows=chunk_rows)


# ---- the result


def test_output_has_keys_once_and_suffixes_for_columns_of_both_sides() -> None:
    join = JoinSpec(on=("k",), before=0, after=5, how="full", right_time="paid_at")
    joined = JoinOperator(
        join,
        left={"k": pl.String, "ts": pl.Int64, "note": pl.String},
        right={"paid_at": pl.Int64, "note": pl.Boolean, "k": pl.String},
    )
    assert dict(joined.output_schema) == {
        "k": pl.String, "ts": pl.Int64, "note_left": pl.String, "paid_at": pl.Int64, "note_right": pl.Boolean
    }  # fmt: skip
    state, _ = joined.step(
        joined.initial_state(), right=pl.DataFrame({"paid_at": [3], "note": [True], "k": ["x"]})
    )
    _, output = joined.step(state, watermarks={"left": END_OF_TIME})
    assert output.rows.rows() == [("x", None, None, 3, True)]
    assert output.rows.schema == joined.output_schema


def test_columns_of_a_batch_may_be_in_any_order() -> None:
    joined = operator()
    reordered = rows(("x", 1, "r1")).select("name", "ts", "k")
    _, output = joined.step(joined.initial_state(), rows(("x", 1, "l1")), reordered)
    assert output.rows.rows() == [("x", 1, "l1", 1, "r1")]


def test_rows_of_one_step_are_paired_once() -> None:
    joined = operator()
    left, right = rows(("x", 1, "l1"), ("x", 2, "l2")), rows(("x", 1, "r1"), ("x", 3, "r3"))
    state, output = joined.step(joined.initial_state(), left, right)
    assert sorted(output.rows.select("name_left", "name_right").rows()) == [
        ("l1", "r1"), ("l2", "r1"), ("l2", "r3")
    ]  # fmt: skip
    _, output = joined.step(state, rows(("x", 2, "l2b")))
    assert sorted(output.rows["name_right"]) == ["r1", "r3"]


def test_without_key_columns_only_times_are_compared() -> None:
    joined = JoinOperator(JoinSpec(on=(), before=0, after=0), left={"ts": pl.Int64}, right={"ts": pl.Int64})
    left, right = pl.DataFrame({"ts": [1, 2, 3]}), pl.DataFrame({"ts": [2, 3, 4]})
    _, output = joined.step(joined.initial_state(), left, right)
    assert output.rows.rows() == [(2, 2), (3, 3)]


def test_null_key_matches_nothing_and_is_padded_when_removed() -> None:
    joined = operator("full")
    state, output = joined.step(joined.initial_state(), rows((None, 1, "l")), rows((None, 1, "r")))
    assert output.rows.is_empty()
    assert joined.buffered(state) == {"left": 1, "right": 1}
    _, output = joined.step(state, watermarks={"left": END_OF_TIME, "right": END_OF_TIME})
    assert set(output.rows.select("name_left", "name_right").rows()) == {("l", None), (None, "r")}


@pytest.mark.parametrize(
    ("how", "left", "right"),
    [
        ("inner", 1, 1), ("left", 2, 1), ("right", 1, 2), ("full", 2, 2), ("semi", 1, 1), ("anti", 2, 1),
    ],
)  # fmt: skip
def test_rows_with_a_null_key_are_buffered_only_to_be_padded(how: str, left: int, right: int) -> None:
    join = operator(how)
    batches = rows((None, 1, "a"), ("k", 2, "b")), rows((None, 1, "a"), ("other", 2, "b"))
    state, output = join.step(join.initial_state(), *batches)
    assert [size.rows for size in join.buffer_sizes(state).values()] == [left, right]
    assert output.dropped == {"left": 0, "right": 0}
    state, output = join.step(state, rows((None, 1, "late")), None, {"left": 2})
    assert output.dropped["left"] == 0
    _, output = join.step(state, rows((None, 1, "late")))
    assert output.dropped["left"] == 1, "a late row is counted, whatever its key"


def test_a_hot_key_without_matches_in_time_is_cheap() -> None:
    # 20,000 × 20,000 rows of one key in neighbouring buckets of time, and not one match: comparing
    # the rows of a key with each other would need 400 million comparisons and their memory.
    joined = operator(before=10, after=10)
    left = pl.DataFrame({"k": ["x"] * 20_000, "ts": [0] * 20_000, "name": ["l"] * 20_000})
    right = left.with_columns(ts=pl.lit(11, pl.Int64))
    _, output = joined.step(joined.initial_state(), left, right)
    assert output.rows.is_empty()


def test_times_too_far_apart_for_one_number_still_match() -> None:
    joined = operator(before=0, after=5)
    far = 2**62 - 10
    left = rows(*[(f"k{n}", ts, f"l{n}") for n in range(8) for ts in (-far, far)])
    right = rows(*[(f"k{n}", ts + 5, f"r{n}") for n in range(8) for ts in (-far, far)])
    _, output = joined.step(joined.initial_state(), left, right)
    assert output.rows.height == 16
    assert (output.rows["ts_right"] - output.rows["ts_left"]).unique().to_list() == [5]


# ---- watermarks


def test_lateness_is_determined_by_the_watermark_before_the_step() -> None:
    joined = operator(before=0, after=0)
    state, output = joined.step(joined.initial_state(), rows(("x", 4, "l4")), None, {"left": 5})
    assert output.dropped == {"left": 0, "right": 0}
    _, output = joined.step(state, rows(("x", 4, "again"), ("x", 5, "l5")))
    assert output.dropped == {"left": 1, "right": 0}


def test_late_rows_are_always_counted_and_returned_on_request() -> None:
    for late, delivered in (("count", None), ("emit", [("x", 4, "l4")])):
        joined = operator(late=late)
        state, _ = joined.step(joined.initial_state(), watermarks={"left": 5})
        state, output = joined.step(state, rows(("x", 4, "l4"), ("x", 5, "l5")))
        assert output.dropped == {"left": 1, "right": 0}
        assert (output.late and output.late["left"].rows()) == delivered
        state, _ = joined.step(state, rows(("x", 0, "l0")))
        assert (state.left.late, state.right.late) == (2, 0)


def test_repeated_watermark_changes_nothing() -> None:
    joined = operator()
    state, _ = joined.step(joined.initial_state(), watermarks={"left": 5, "right": 5})
    _, output = joined.step(state, watermarks={"left": 5})
    assert output.watermarks == {}


def test_a_decreasing_watermark_raises_and_changes_nothing() -> None:
    joined = operator()
    blobs: dict[str, bytes] = {}
    state, _ = joined.step(joined.initial_state(blobs), watermarks={"left": 5})
    saved = joined.save(state)
    with pytest.raises(
        WatermarkRegression, match=r"4 .* on the left side of the join is lower than the previous watermark 5"
    ):
        joined.step(state, rows(("x", 9, "l9")), None, {"right": 7, "left": 4})
    assert joined.save(state) == saved
    assert blobs == {}


def test_forwarded_watermark_stays_within_64_bits() -> None:
    joined = operator(before=5, after=5)
    marks = {"left": BEGINNING_OF_TIME, "right": BEGINNING_OF_TIME}
    _, output = joined.step(joined.initial_state(), watermarks=marks)
    assert output.watermarks == marks


def test_the_end_of_both_sides_is_forwarded() -> None:
    joined = operator(before=-3, after=5)
    state, output = joined.step(joined.initial_state(), watermarks={"left": END_OF_TIME})
    assert output.watermarks == {}
    _, output = joined.step(state, watermarks={"right": END_OF_TIME})
    assert output.watermarks == {"left": END_OF_TIME, "right": END_OF_TIME}


def test_one_ended_side_flushes_only_the_other() -> None:
    joined = operator("full", before=100, after=100)
    state, _ = joined.step(joined.initial_state(), rows(("x", 1, "l1")), rows(("y", 1, "r1")))
    state, output = joined.step(state, watermarks={"left": END_OF_TIME})
    assert output.rows.select("name_left", "name_right").rows() == [(None, "r1")]
    assert joined.buffered(state) == {"left": 1, "right": 0}


# ---- state


def test_batch_reads_only_chunks_it_can_match_and_rewrites_none() -> None:
    joined, store = operator("left", before=1, after=1, chunk_rows=10), RecordingStore()
    state = joined.initial_state(store)
    for start in range(0, 50, 10):
        state, _ = joined.step(state, rows(*[("x", start + n, f"l{start + n}") for n in range(10)]))
    assert store.take_calls() == [
        ("write", name) for number in range(5) for name in (f"left-{number}", f"left-{number}-matched")
    ]
    joined.step(state, right=rows(("x", 25, "r25")))
    assert store.take_calls() == [
        ("read", "left-2"),
        ("read", "left-2-matched"),
        ("write", "left-2-matched"),
        ("write", "right-0"),
    ]


def test_a_watermark_drops_chunks_of_an_inner_side_without_reading() -> None:
    joined, store = operator("inner", before=0, after=0, chunk_rows=10), RecordingStore()
    state, _ = joined.step(joined.initial_state(store), rows(*[("x", n, f"l{n}") for n in range(50)]))
    store.take_calls()
    state, _ = joined.step(state, watermarks={"right": 25})
    assert store.take_calls() == [("delete", "left-0"), ("delete", "left-1")]
    assert joined.buffered(state)["left"] == 25


def test_a_few_much_later_rows_do_not_keep_a_chunk() -> None:
    joined, store = operator("inner", before=0, after=0), RecordingStore()
    batch = rows(*[("x", n, f"l{n}") for n in range(1000)], ("x", 1_000_000, "ahead"))
    state, _ = joined.step(joined.initial_state(store), batch)
    full = len(store.blobs["left-0"])
    state, _ = joined.step(state, watermarks={"right": 900})
    assert joined.buffered(state)["left"] == 101
    assert [chunk.rows for chunk in state.left.chunks] == [101]
    assert sum(map(len, store.blobs.values())) < full / 2


@pytest.mark.search
def test_many_small_batches_leave_few_chunks_and_each_row_is_rewritten_rarely() -> None:
    joined, store = operator("full", before=0, after=10_000), RecordingStore()
    state = joined.initial_state(store)
    for n in range(512):
        state, _ = joined.step(state, rows(("x", n, f"l{n}")))
    assert len(state.left.chunks) <= 3 * 8
    written = sum(1 for call, name in store.take_calls() if call == "write" and not name.endswith("matched"))
    assert written <= 512 * 8 / 7 + 8  # one chunk a batch, and one more for every eight of a tier
    assert joined.buffered(state)["left"] == 512


def test_merged_chunks_keep_the_matched_flags() -> None:
    joined = operator("left", before=0, after=0)
    state = joined.initial_state()
    for n in range(8):
        state, _ = joined.step(
            state, rows(("x", n, f"l{n}")), rows(("x", n, f"r{n}")) if n % 3 == 0 else None
        )
    assert [chunk.rows for chunk in state.left.chunks] == [8]
    _, output = joined.step(state, watermarks={"right": END_OF_TIME})
    assert output.rows["name_left"].to_list() == ["l1", "l2", "l4", "l5", "l7"]


def test_state_of_another_join_raises() -> None:
    saved = operator("inner").save(operator("inner").initial_state())
    with pytest.raises(IncompatibleState, match=r"the join was inner join on .* and is now left join"):
        operator("left").load(saved, {})
    assert operator("inner").load(saved, {}).left.chunks == ()


def test_damaged_or_missing_state_raises() -> None:
    joined = operator()
    blobs: dict[str, bytes] = {}
    state, _ = joined.step(joined.initial_state(blobs), rows(("x", 1, "l1")))
    saved = joined.save(state)
    for damaged in (saved[:-1], saved[:10] + b"\x00" + saved[11:], b""):
        with pytest.raises(CorruptState, match="index of a time-bounded join"):
            joined.load(damaged, blobs)
    with pytest.raises(UnsupportedStateVersion, match="version 3"):
        joined.load(_with_version(saved, 3), blobs)

    whole = blobs["left-0"]
    for damaged in (whole[:-1], whole[:20] + bytes((whole[20] ^ 1,)) + whole[21:], b"\x01"):
        blobs["left-0"] = damaged
        with pytest.raises(CorruptState, match="blob left-0 of a time-bounded join"):
            joined.step(joined.load(saved, blobs), right=rows(("x", 1, "r1")))
    blobs["left-0"] = _with_version(whole, 3)
    with pytest.raises(UnsupportedStateVersion, match="version 3"):
        joined.step(joined.load(saved, blobs), right=rows(("x", 1, "r1")))
    del blobs["left-0"]
    with pytest.raises(CorruptState, match="is in the index but not in the store"):
        joined.step(joined.load(saved, blobs), right=rows(("x", 1, "r1")))


def _with_version(data: bytes, version: int) -> bytes:
    body = bytes((version,)) + data[1:-4]
    return body + zlib.crc32(body).to_bytes(4, "big")


# ---- what is refused


def test_an_empty_range_of_bounds_raises_and_a_single_instant_does_not() -> None:
    with pytest.raises(InvalidArgument, match="before \\+ after must not be negative"):
        JoinSpec(on=("k",), before=-3, after=2)
    assert JoinSpec(on=("k",), before=-3, after=3).after == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"how": "outer"}, "how = 'outer'.*inner"),
        ({"late": "drop"}, "late = 'drop'.*emit"),
        ({"on": "k"}, "on = 'k': has type str; give a tuple of column names"),
        ({"on": ("k", "ts")}, "contains an event-time column"),
        ({"before": 1.5}, "before = 1.5: is a float"),
        ({"after": 2**62}, "after = .*146,000 years"),
    ],
)
def test_an_invalid_spec_raises(change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        JoinSpec(**({"on": ("k",), "before": 0, "after": 0} | change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("left", "message"),
    [
        ({"ts": pl.Int64}, "has no column 'k'"),
        ({"k": pl.String}, "has no column 'ts'"),
        ({"k": pl.String, "ts": pl.Int32}, "left_time = 'ts': has type Int32"),
        ({"k": pl.Int64, "ts": pl.Int64}, "has type Int64 on the left and String on the right"),
        ({"k": pl.String, "ts": pl.Int64, "ts_left": pl.Int64}, "give two columns the name 'ts_left'"),
    ],
)
def test_an_invalid_schema_raises(left: dict[str, type[pl.DataType]], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        JoinOperator(JoinSpec(on=("k",), before=0, after=0), left=left, right=SCHEMA)


def test_nested_keys_raise() -> None:
    schema = {"k": pl.List(pl.Int64), "ts": pl.Int64()}
    with pytest.raises(InvalidArgument, match="which cannot be a key; use a column that is not nested"):
        JoinOperator(JoinSpec(on=("k",), before=0, after=0), left=schema, right=schema)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (rows(("x", 1, "l")).drop("name"), "does not have the declared schema"),
        (rows(("x", None, "l")), "event time 'ts' is null"),  # type: ignore[arg-type]
        (rows(("x", 2**62, "l")), "more than 146,000 years from 1970"),
        (rows(("x", -(2**62), "l")), "more than 146,000 years from 1970"),
    ],
)
def test_an_invalid_batch_raises(batch: pl.DataFrame, message: str) -> None:
    joined = operator()
    with pytest.raises(InvalidArgument, match=message):
        joined.step(joined.initial_state(), batch)


def test_a_watermark_of_an_unknown_side_raises() -> None:
    joined = operator()
    with pytest.raises(InvalidArgument, match='use "left" or "right"'):
        joined.step(joined.initial_state(), watermarks={"default": 1})


def test_a_chunk_size_below_one_raises() -> None:
    with pytest.raises(InvalidArgument, match="chunk_rows = 0"):
        operator(chunk_rows=0)


def test_state_written_by_version_1_loads() -> None:
    # Left 10 matched right 9; left 11, left 30 and the null key did not; one left row was late.
    saved = json.loads((Path(__file__).parent / "saved" / "join-1.json").read_text("utf-8"))
    blobs = {name: b64decode(blob) for name, blob in saved["blobs"].items()}
    joined = operator("full", before=2, after=3, chunk_rows=2)
    state = joined.load(b64decode(saved["index"]), blobs)
    assert (state.left.watermark, state.right.watermark, state.left.late) == (10, 8, 1)
    assert joined.buffered(state) == {"left": 3, "right": 2}
    state, output = joined.step(state, right=rows(("y", 14, "r14")))
    assert output.rows.rows() == [("y", 11, "l11", 14, "r14")]
    _, output = joined.step(state, watermarks={"left": END_OF_TIME, "right": END_OF_TIME})
    assert set(output.rows.select("name_left", "name_right").rows()) == {("l30", None), (None, "rnull")}
