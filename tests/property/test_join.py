"""The columnar join equals the element-wise model, for any rows and any batching."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.time import END_OF_TIME
from slackwater.windows.engine.join_buffers import JoinState
from slackwater.windows.engine.join_matching import matching_rows
from slackwater.windows.engine.join_operator import JoinOperator, JoinOutput
from slackwater.windows.spec import SIDES, JoinHow, JoinSpec, Side
from tests.model.join import INFINITY, JoinModel, Pair

SCHEMA = {"city": pl.String, "line": pl.Int64, "ts": pl.Int64, "name": pl.String}
FAR = 2**61

times = st.integers(-12, 30)
bounds = st.integers(-6, 12)
keys = st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([1, None]) | st.just(1))


class Arrival(NamedTuple):
    """One step: rows of both sides, then by how much each watermark advances (None: not at all)."""

    left: list[tuple[int, tuple[str | None, int | None]]]
    right: list[tuple[int, tuple[str | None, int | None]]]
    moves: dict[Side, int]

    def rows(self) -> dict[Side, list[tuple[int, tuple[str | None, int | None]]]]:
        """The rows by side."""
        return {"left": self.left, "right": self.right}


class JoinCase(NamedTuple):
    """The settings of a join and its steps."""

    how: JoinHow
    before: int
    after: int
    chunk_rows: int
    arrivals: list[Arrival]
    end: bool


rows = st.lists(st.tuples(times, keys), max_size=6)
arrivals = st.builds(
    Arrival, rows, rows, st.dictionaries(st.sampled_from(SIDES), st.integers(0, 12), max_size=2)
)


@st.composite
def join_cases(draw: st.DrawFn) -> JoinCase:
    """Joins with bounds of any sign, and chunks that are small enough to be split and merged."""
    before = draw(bounds)
    least = draw(st.sampled_from((0, 10)))  # eight small chunks and more are merged
    return JoinCase(
        how=draw(st.sampled_from(("inner", "left", "right", "full"))),
        before=before,
        after=draw(bounds.filter(lambda after: before + after >= 0)),
        chunk_rows=draw(st.sampled_from((1, 2, 4, 1000))),
        arrivals=draw(st.lists(arrivals, min_size=least, max_size=16)),
        end=draw(st.booleans()),
    )


@given(join_cases())
@settings(max_examples=settings().max_examples // 2)
def test_operator_equals_model_with_a_restart_after_every_step(case: JoinCase) -> None:
    check(case)


def check(case: JoinCase) -> None:
    """Run operator and model; every step must agree on rows, drops, watermarks and buffered rows."""
    model = JoinModel(case.how, case.before, case.after)
    join = JoinSpec(on=("city", "line"), before=case.before, after=case.after, how=case.how, late="emit")
    operator = JoinOperator(join, left=SCHEMA, right=SCHEMA, chunk_rows=case.chunk_rows)
    blobs: dict[str, bytes] = {}
    state = operator.initial_state(blobs)
    marks: dict[Side, int] = {"left": -12, "right": -12}
    steps = [*case.arrivals, None] if case.end else case.arrivals

    for number, arrival in enumerate(steps):
        frames: dict[Side, pl.DataFrame | None] = {"left": None, "right": None}
        wanted: list[Pair] = []
        late_before = {side: len(model.late[side]) for side in SIDES}
        forwarded_before = {side: model.forwarded(side) for side in SIDES}
        if arrival is None:
            watermarks: dict[str, int] = dict.fromkeys(SIDES, END_OF_TIME)
        else:
            for side, arrived in arrival.rows().items():
                named = [(*key, ts, f"{side[0]}{number}.{n}") for n, (ts, key) in enumerate(arrived)]
                frames[side] = pl.DataFrame(named, schema=SCHEMA, orient="row") if named else None
                for city, line, ts, name in named:
                    wanted += model.row(side, name, ts, (city, line))
            marks |= {side: marks[side] + move for side, move in arrival.moves.items()}
            watermarks = {side: marks[side] for side in arrival.moves}
        for side in SIDES:
            if (value := watermarks.get(side)) is not None:
                wanted += model.watermark(side, INFINITY if value == END_OF_TIME else value)

        state, output = operator.step(state, frames["left"], frames["right"], watermarks)

        assert pairs(output) == Counter(wanted)
        for side in SIDES:
            new_late = model.late[side][late_before[side] :]
            assert output.dropped[side] == len(new_late)
            assert output.late is not None
            assert output.late[side]["name"].to_list() == new_late
            after = model.forwarded(side)
            moved = after if after != forwarded_before[side] else None
            assert output.watermarks.get(side) == (END_OF_TIME if moved == INFINITY else moved)
        assert operator.buffered(state) == {side: len(model.buffers[side]) for side in SIDES}
        assert set(blobs) == named_by_index(state, join)
        state = operator.load(operator.save(state), blobs)

    assert (state.left.late, state.right.late) == (len(model.late["left"]), len(model.late["right"]))


def pairs(output: JoinOutput) -> Counter[Pair]:
    return Counter(output.rows.select("name_left", "name_right").rows())


def named_by_index(state: JoinState, join: JoinSpec) -> set[str]:
    """The blobs that are in the index; the store must have these and no others."""
    names = set()
    for side, index in (("left", state.left), ("right", state.right)):
        for chunk in index.chunks:
            names.add(f"{side}-{chunk.number}")
            if join.how in (side, "full"):
                names.add(f"{side}-{chunk.number}-matched")
    return names


@given(
    st.lists(st.tuples(st.integers(0, 2), times | st.sampled_from((-FAR, FAR))), max_size=12),
    st.lists(st.tuples(st.integers(0, 2), times | st.sampled_from((-FAR, FAR))), max_size=12),
    st.integers(0, 5) | st.just(FAR),
    st.integers(0, 5) | st.just(FAR),
)
@settings(max_examples=2 * settings().max_examples)
def test_matching_rows_equals_comparing_every_two_rows(
    left: list[tuple[int, int]], right: list[tuple[int, int]], before: int, after: int
) -> None:
    schema = {"k": pl.Int64, "ts": pl.Int64}
    found = matching_rows(
        pl.DataFrame(left, schema=schema, orient="row"),
        pl.DataFrame(right, schema=schema, orient="row"),
        on=["k"],
        left_time="ts",
        right_time="ts",
        before=before,
        after=after,
    )
    assert sorted(zip(*found, strict=True)) == [
        (i, j)
        for i, (left_key, left_time) in enumerate(left)
        for j, (right_key, right_time) in enumerate(right)
        if left_key == right_key and left_time - before <= right_time <= left_time + after
    ]
