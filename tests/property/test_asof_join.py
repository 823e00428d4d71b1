"""The as-of join equals Polars' ``join_asof`` over all rows that were not late, for any batching."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple, get_args

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.time import END_OF_TIME
from slackwater.windows.engine.asof_operator import AsofOperator
from slackwater.windows.spec.asof_spec import AsofDirection, AsofHow, AsofSpec
from slackwater.windows.spec.operator_spec import SIDES, Side

SCHEMA = {"key": pl.String, "ts": pl.Int64, "name": pl.String, "other": pl.Int64}
Rows = list[tuple[int, str | None]]

rows = st.lists(st.tuples(st.integers(-2, 16), st.sampled_from(["a", "b", None])), max_size=5)


class Arrival(NamedTuple):
    """One step: rows of both sides, then by how much each watermark advances, and which sides are idle."""

    left: Rows
    right: Rows
    moves: dict[Side, int]
    idle: frozenset[Side]


arrivals = st.builds(
    Arrival,
    rows,
    rows,
    st.dictionaries(st.sampled_from(SIDES), st.integers(0, 6), max_size=2),
    st.frozensets(st.sampled_from(SIDES)),
)


class AsofCase(NamedTuple):
    """The settings of an as-of join and its steps."""

    direction: AsofDirection
    how: AsofHow
    tolerance: int | None
    keyed: bool
    proceeds: bool
    lateness: int
    chunk_rows: int
    arrivals: list[Arrival]


cases = st.builds(
    AsofCase,
    st.sampled_from(get_args(AsofDirection)),
    st.sampled_from(get_args(AsofHow)),
    st.sampled_from((None, None, 0, 3)),
    st.booleans(),
    st.booleans(),
    st.sampled_from((0, 5)),
    st.sampled_from((1, 2, 4, 1000)),
    st.lists(arrivals, min_size=2, max_size=12),
)


@given(cases)
@settings(max_examples=settings().max_examples // 2)
def test_results_equal_polars_over_the_accepted_rows_with_a_restart_after_every_step(case: AsofCase) -> None:
    spec = AsofSpec(
        on=("key",) if case.keyed else (),
        direction=case.direction,
        how=case.how,
        tolerance=case.tolerance,
        idle="proceed" if case.proceeds else "hold",
        right_lateness=case.lateness,
        left_keys=(("second", "other"),),
        late="emit",
    )
    operator = AsofOperator(spec, left=SCHEMA, right=SCHEMA, chunk_rows=case.chunk_rows)
    blobs: dict[str, bytes] = {}
    state = operator.initial_state(blobs)
    marks: dict[Side, int] = {"left": -2, "right": -2}
    second = -2
    accepted: dict[Side, list[pl.DataFrame]] = {side: [pl.DataFrame(schema=SCHEMA)] for side in SIDES}
    emitted = [operator.output_schema.to_frame()]
    forwarded: dict[str, int] = {}
    for number, arrival in enumerate([*case.arrivals, None]):
        frames: dict[Side, pl.DataFrame] = {}
        watermarks: dict[str, int] = dict.fromkeys(SIDES, END_OF_TIME)
        for side in SIDES:
            arrived = [] if arrival is None else arrival.left if side == "left" else arrival.right
            values = [(key, ts, f"{number}.{n}", max(second, ts)) for n, (ts, key) in enumerate(arrived)]
            frames[side] = pl.DataFrame(values, schema=SCHEMA, orient="row")
        if arrival is not None:
            marks |= {side: marks[side] + move for side, move in arrival.moves.items()}
            watermarks = {side: marks[side] for side in arrival.moves}
        second = END_OF_TIME if arrival is None else second + 2
        state, output = operator.step(
            state,
            frames["left"],
            frames["right"],
            watermarks,
            idle=frozenset() if arrival is None else arrival.idle,
            key_watermarks={"left": {"second": second}},
        )
        state = operator.load(operator.save(state), blobs)
        assert output.late is not None
        for side in SIDES:
            accepted[side].append(frames[side].join(output.late[side], on="name", how="anti"))
            assert output.dropped[side] == output.late[side].height
        emitted.append(output.rows)
        for key, column in (("left", "ts_left"), ("second", "other_left")):
            assert output.rows.filter(pl.col(column) < forwarded.get(key, -(2**62))).is_empty()
        forwarded |= {str(side): at for side, at in output.watermarks.items()}
        forwarded |= output.key_watermarks.get("left", {})
    left, right = (pl.concat(accepted[side]) for side in SIDES)
    assert Counter(pl.concat(emitted).select("name_left", "name_right").rows()) == expected(spec, left, right)
    assert forwarded == {"left": END_OF_TIME, "second": END_OF_TIME}
    assert blobs == {}


@given(cases, st.lists(st.tuples(st.sampled_from(SIDES), st.integers(0, 200)), max_size=40))
@settings(max_examples=settings().max_examples // 2)
def test_retractions_fold_to_polars_over_the_remaining_rows_with_a_restart_after_every_step(
    case: AsofCase, picks: list[tuple[Side, int]]
) -> None:
    """Each step retracts rows that were accepted before, or in the same step."""
    spec = AsofSpec(
        on=("key",) if case.keyed else (),
        direction=case.direction,
        how=case.how,
        tolerance=case.tolerance,
        left_lateness=5 - case.lateness,
        right_lateness=case.lateness,
        left_keys=(("second", "other"),),
        left_retractions="back",
        right_retractions="back",
        late="emit",
    )
    schema = {**SCHEMA, "back": pl.Boolean}
    operator = AsofOperator(spec, left=schema, right=schema, chunk_rows=case.chunk_rows)
    blobs: dict[str, bytes] = {}
    state = operator.initial_state(blobs)
    marks: dict[Side, int] = {"left": -2, "right": -2}
    second = -2
    live: dict[Side, list[tuple[object, ...]]] = {side: [] for side in SIDES}
    emitted: Counter[tuple[object, ...]] = Counter()
    forwarded: dict[str, int] = {}
    per_step = len(picks) // len(case.arrivals)
    for number, arrival in enumerate([*case.arrivals, None]):
        frames: dict[Side, pl.DataFrame] = {}
        watermarks: dict[str, int] = dict.fromkeys(SIDES, END_OF_TIME)
        chosen = picks[number * per_step : (number + 1) * per_step] if arrival is not None else []
        for side in SIDES:
            arrived = [] if arrival is None else arrival.left if side == "left" else arrival.right
            values: list[tuple[object, ...]] = [
                (key, ts, f"{number}.{n}", max(second, ts)) for n, (ts, key) in enumerate(arrived)
            ]
            live[side] += values
            mine = {pick % len(live[side]) for where, pick in chosen if where == side and live[side]}
            retracted = [live[side][index] for index in sorted(mine)]
            frames[side] = pl.DataFrame(
                [(*row, False) for row in values] + [(*row, True) for row in retracted],
                schema=schema,
                orient="row",
            )
        if arrival is not None:
            marks |= {side: marks[side] + move for side, move in arrival.moves.items()}
            watermarks = {side: marks[side] for side in arrival.moves}
        second = END_OF_TIME if arrival is None else second + 2
        state, output = operator.step(
            state, frames["left"], frames["right"], watermarks, key_watermarks={"left": {"second": second}}
        )
        state = operator.load(operator.save(state), blobs)
        assert output.late is not None
        for side in SIDES:
            late = set(output.late[side].select("name", "back").rows())
            gone = set(frames[side].filter("back")["name"]) - {name for name, back in late if back}
            gone |= {name for name, back in late if not back}
            live[side] = [row for row in live[side] if row[2] not in gone]
        for row in output.rows.rows(named=True):
            emitted[row["name_left"], row["name_right"]] += -1 if row["back"] else 1
        for key, column in (("left", "ts_left"), ("second", "other_left")):
            assert output.rows.filter(pl.col(column) < forwarded.get(key, -(2**62))).is_empty()
        forwarded |= {str(side): at for side, at in output.watermarks.items()}
        forwarded |= output.key_watermarks.get("left", {})
    left, right = (pl.DataFrame(live[side], schema=SCHEMA, orient="row") for side in SIDES)
    assert {pair: count for pair, count in emitted.items() if count} == expected(spec, left, right)
    assert forwarded == {"left": END_OF_TIME, "second": END_OF_TIME}
    assert blobs == {}


def expected(spec: AsofSpec, left: pl.DataFrame, right: pl.DataFrame) -> Counter[tuple[object, ...]]:
    """Polars' as-of join; rows with the same time stay in order of arrival."""
    if spec.on:
        right = right.drop_nulls("key")
    joined = left.sort("ts", maintain_order=True).join_asof(
        right.sort("ts", maintain_order=True),
        on="ts",
        by="key" if spec.on else None,
        strategy=spec.direction,
        tolerance=spec.tolerance,
        check_sortedness=False,
    )
    pairs = joined.select("name", "name_right")
    return Counter((pairs if spec.how == "left" else pairs.drop_nulls("name_right")).rows())
