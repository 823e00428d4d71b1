"""The columnar join equals the element-wise model, for any rows and any batching."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple, get_args

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.time import END_OF_TIME
from slackwater.windows.engine.join_buffers import JoinState
from slackwater.windows.engine.join_matching import matching_rows
from slackwater.windows.engine.join_operator import JoinOperator, JoinOutput
from slackwater.windows.spec.join_spec import JoinHow, JoinSpec
from slackwater.windows.spec.operator_spec import SIDES, Side
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
    idle: frozenset[Side] = frozenset()

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
    conditional: bool = False
    proceeds: bool = False
    lateness: tuple[int, int] = (0, 0)


rows = st.lists(st.tuples(times, keys), max_size=6)
arrivals = st.builds(
    Arrival,
    rows,
    rows,
    st.dictionaries(st.sampled_from(SIDES), st.integers(0, 12), max_size=2),
    st.frozensets(st.sampled_from(SIDES)),
)


@st.composite
def join_cases(draw: st.DrawFn) -> JoinCase:
    """Joins with bounds of any sign, and chunks that are small enough to be split and merged."""
    before = draw(bounds)
    least = draw(st.sampled_from((0, 10)))  # eight small chunks and more are merged
    return JoinCase(
        how=draw(st.sampled_from(get_args(JoinHow))),
        before=before,
        after=draw(bounds.filter(lambda after: before + after >= 0)),
        chunk_rows=draw(st.sampled_from((1, 2, 4, 1000))),
        arrivals=draw(st.lists(arrivals, min_size=least, max_size=16)),
        end=draw(st.booleans()),
        conditional=draw(st.booleans()),
        proceeds=draw(st.booleans()),
        lateness=draw(st.tuples(st.sampled_from((0, 4)), st.sampled_from((0, 7)))),
    )


@given(join_cases())
@settings(max_examples=settings().max_examples // 2)
def test_operator_equals_model_with_a_restart_after_every_step(case: JoinCase) -> None:
    check(case)


def check(case: JoinCase) -> None:
    """Run operator and model; every step must agree on rows, drops, watermarks and buffered rows."""
    lateness: dict[Side, int] = {"left": case.lateness[0], "right": case.lateness[1]}
    model = JoinModel(case.how, case.before, case.after, case.conditional, case.proceeds, lateness)
    condition = (pl.col("ts_left") + pl.col("ts_right")) % 3 != 0
    join = JoinSpec(
        on=("city", "line"),
        before=case.before,
        after=case.after,
        how=case.how,
        late="emit",
        idle="proceed" if case.proceeds else "hold",
        condition=condition if case.conditional else None,
        left_lateness=case.lateness[0],
        right_lateness=case.lateness[1],
    )
    operator = JoinOperator(
        join, left=SCHEMA, right=SCHEMA, chunk_rows=case.chunk_rows, piece_rows=case.chunk_rows
    )
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
        idle = frozenset() if arrival is None else arrival.idle
        received: dict[Side, float] = {
            side: INFINITY if value == END_OF_TIME else value
            for side in SIDES
            if (value := watermarks.get(side)) is not None
        }
        wanted += model.advance(received, idle)

        state, output = operator.step(state, frames["left"], frames["right"], watermarks, idle=idle)

        assert pairs(output) == Counter(wanted)
        for side in SIDES:
            new_late = model.late[side][late_before[side] :]
            assert output.dropped[side] == len(new_late)
            assert output.late is not None
            assert output.late[side]["name"].to_list() == new_late
            after = model.forwarded(side)
            forwards = side == "left" or not join.selects_left
            moved = after if forwards and after != forwarded_before[side] else None
            assert output.watermarks.get(side) == (END_OF_TIME if moved == INFINITY else moved)
        assert operator.buffered(state) == {side: model.buffered(side) for side in SIDES}
        assert set(blobs) == named_by_index(state, join)
        state = operator.load(operator.save(state), blobs)

    assert (state.left.late, state.right.late) == (len(model.late["left"]), len(model.late["right"]))


def pairs(output: JoinOutput) -> Counter[Pair]:
    if "name_right" not in output.rows.columns:  # a semi or anti join
        return Counter((name, None) for name in output.rows["name"])
    return Counter(output.rows.select("name_left", "name_right").rows())


def named_by_index(state: JoinState, join: JoinSpec) -> set[str]:
    """The blobs that are in the index; the store must have these and no others."""
    names = set()
    for side, index in zip(SIDES, (state.left, state.right), strict=True):
        for chunk in index.chunks:
            names.add(f"{side}-{chunk.number}")
            if join.tracks(side):
                names.add(f"{side}-{chunk.number}-matched")
    return names


@given(
    st.lists(st.tuples(st.integers(0, 2), times | st.sampled_from((-FAR, FAR))), max_size=12),
    st.lists(st.tuples(st.integers(0, 2), times | st.sampled_from((-FAR, FAR))), max_size=12),
    st.integers(0, 5) | st.just(FAR),
    st.integers(0, 5) | st.just(FAR),
    st.integers(1, 5),
)
@settings(max_examples=2 * settings().max_examples)
def test_matching_rows_equals_comparing_every_two_rows(
    left: list[tuple[int, int]], right: list[tuple[int, int]], before: int, after: int, rows: int
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
    pieces = [list(zip(*piece, strict=True)) for piece in found.pieces(rows)]
    assert all(len(piece) == rows for piece in pieces[:-1])
    assert all(1 <= len(piece) <= rows for piece in pieces[-1:])
    assert sorted(pair for piece in pieces for pair in piece) == [
        (i, j)
        for i, (left_key, left_time) in enumerate(left)
        for j, (right_key, right_time) in enumerate(right)
        if left_key == right_key and left_time - before <= right_time <= left_time + after
    ]


class SignedArrival(NamedTuple):
    """One step: new rows, which earlier rows of each side are retracted (by index), and watermark moves."""

    added: dict[Side, list[tuple[int, str, int]]]
    retracted: dict[Side, list[int]]
    moves: dict[Side, int]


signed_rows = st.lists(st.tuples(st.integers(0, 9), st.sampled_from("aab"), st.integers(0, 20)), max_size=4)
signed_arrivals = st.builds(
    SignedArrival,
    st.fixed_dictionaries({"left": signed_rows, "right": signed_rows}),
    st.fixed_dictionaries(
        {"left": st.lists(st.integers(0, 30), max_size=3), "right": st.lists(st.integers(0, 30), max_size=3)}
    ),
    st.dictionaries(st.sampled_from(SIDES), st.integers(0, 3), max_size=2),
)
SIGNED: dict[str, pl.DataType] = {
    "key": pl.String(),
    "ts": pl.Int64(),
    "other": pl.Int64(),
    "tags": pl.List(pl.Int64()),
    "back": pl.Boolean(),
}


@given(
    st.sampled_from(get_args(JoinHow)),
    st.integers(-1, 3),
    st.integers(1, 3),
    st.sampled_from((1, 2, 1000)),
    st.sampled_from(((True, True), (True, False), (False, True))),
    st.lists(signed_arrivals, min_size=3, max_size=10),
)
@settings(max_examples=settings().max_examples // 2)
def test_retractions_fold_to_the_join_of_the_rows_that_remain(
    how: JoinHow,
    before: int,
    after: int,
    chunk_rows: int,
    retracting: tuple[bool, bool],
    steps: list[SignedArrival],
) -> None:
    """Also: no output is ever below a watermark that was forwarded before, by any watermark key."""
    spec = JoinSpec(
        on=("key",),
        before=before,
        after=after,
        how=how,
        left_retractions="back" if retracting[0] else None,
        right_retractions="back" if retracting[1] else None,
        left_keys=(("second", "other"),),
    )
    schemas = {
        side: {name: kind for name, kind in SIGNED.items() if name != "back" or takes}
        for side, takes in zip(SIDES, retracting, strict=True)
    }
    operator = JoinOperator(
        spec,
        left=schemas["left"],
        right=schemas["right"],
        chunk_rows=chunk_rows,
        piece_rows=chunk_rows,
    )
    blobs: dict[str, bytes] = {}
    state = operator.initial_state(blobs)
    marks: dict[Side, int] = {"left": 0, "right": 0}
    second = 0
    used: dict[Side, int | None] = {"left": None, "right": None}
    remaining: dict[Side, list[tuple[int, str, int]]] = {"left": [], "right": []}
    folded: Counter[tuple[object, ...]] = Counter()
    forwarded: dict[str, int] = {}
    for step in [*steps, None]:
        frames: dict[Side, pl.DataFrame] = {}
        for side in SIDES:
            low = used[side]
            rows: list[tuple[tuple[int, str, int], bool]] = []
            for ts, key, other in step.added[side] if step else []:
                row = ts, key, max(other, second)  # not late by the second key
                rows.append((row, False))
                if low is None or row[0] >= low:
                    remaining[side].append(row)
            for number in step.retracted[side] if step and spec.retractions(side) else []:
                alive = [row for row in remaining[side] if low is None or row[0] >= low]
                if alive:
                    row = alive[number % len(alive)]
                    remaining[side].remove(row)
                    rows.append((row, True))
            values = [(key, ts, other, [other], back) for (ts, key, other), back in rows]
            frames[side] = pl.DataFrame(values, schema=SIGNED, orient="row").select(*schemas[side])
        if step is None:
            given: dict[str, int] = dict.fromkeys(SIDES, END_OF_TIME)
            second = END_OF_TIME
        else:
            marks |= {side: marks[side] + move for side, move in step.moves.items()}
            given = {side: marks[side] for side in step.moves}
            second += 2
        state, output = operator.step(
            state, frames["left"], frames["right"], given, key_watermarks={"left": {"second": second}}
        )
        state = operator.load(operator.save(state), blobs)
        for side in SIDES:
            used[side] = given.get(side, used[side])
        assert_above(output, forwarded, spec)
        forwarded |= {str(side): at for side, at in output.watermarks.items()}
        forwarded |= output.key_watermarks.get("left", {})
        names = [name for name in operator.output_schema if name != "back" and not name.startswith("tags")]
        for *values, back in output.rows.select(*names, "back").rows():
            folded[tuple(values)] += -1 if back else 1
            assert folded[tuple(values)] >= 0
    assert +folded == joined_at_once(spec, remaining)
    assert blobs == {}


def assert_above(output: JoinOutput, forwarded: dict[str, int], spec: JoinSpec) -> None:
    """No row is below the watermarks that were forwarded before."""
    suffix = "" if spec.selects_left else "_left"
    for key, column in (("left", f"ts{suffix}"), ("right", "ts_right"), ("second", f"other{suffix}")):
        if column in output.rows.columns and key in forwarded:
            assert output.rows.filter(pl.col(column) < forwarded[key]).is_empty()


def joined_at_once(
    spec: JoinSpec, rows: dict[Side, list[tuple[int, str, int]]]
) -> Counter[tuple[object, ...]]:
    """The join of all rows, each with each."""
    result: Counter[tuple[object, ...]] = Counter()
    paired: dict[Side, set[int]] = {"left": set(), "right": set()}
    for i, (ts, key, other) in enumerate(rows["left"]):
        for j, (right_ts, right_key, right_other) in enumerate(rows["right"]):
            if key == right_key and ts - spec.before <= right_ts <= ts + spec.after:
                paired["left"].add(i)
                paired["right"].add(j)
                if not spec.selects_left:
                    result[key, ts, other, right_ts, right_other] += 1
    for i, (ts, key, other) in enumerate(rows["left"]):
        if spec.how == ("semi" if i in paired["left"] else "anti"):
            result[key, ts, other] += 1
        if spec.pads("left") and i not in paired["left"]:
            result[key, ts, other, None, None] += 1
    for j, (ts, key, other) in enumerate(rows["right"]):
        if spec.pads("right") and j not in paired["right"]:
            result[key, None, None, ts, other] += 1
    return result
