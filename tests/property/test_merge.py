"""The merge operator equals the element-wise model on random scenarios."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from random import Random
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slackwater.time import END_OF_TIME
from slackwater.windows import AfterCount, AfterWatermark, MergeOperator
from slackwater.windows.engine.windowed_operator import WindowOutput
from slackwater.windows.spec.windowing_strategy import PANE_COLUMNS
from tests.model.merge import SIDES, MergeModel, MergeRow, MergeStep
from tests.model.windows import Drop, Pane, Row
from tests.strategies.windows import HypothesisSource, Limits, RandomSource, Scenario, Source, scenario

HOWS = ("inner", "full", "left", "right", "cogroup")
CARRIED = ("number", "value")
LIMITS = Limits(
    kinds=("fixed", "sliding", "sessions", "sessions", "global"), accumulations=("collect",), rows=5, steps=8
)
ONCE = replace(
    LIMITS,
    kinds=("sliding", "sessions"),
    modes=("discarding",),
    trigger=AfterWatermark(early=AfterCount(2), late=AfterCount(1)),
    keys=1,
)
"""Windows in which a pair could be emitted twice, because they share elements or merge."""
SETTINGS = settings(max_examples=settings().max_examples // 3, suppress_health_check=[HealthCheck.too_slow])


@dataclass(frozen=True)
class Step:
    """One step of both sides."""

    rows: dict[str, list[Row]]
    watermarks: dict[str, int]
    now: int
    reload: bool
    idle: tuple[str, ...] = ()


@dataclass(frozen=True)
class Merge:
    """The settings of a merge and its steps."""

    how: str
    made: Scenario
    steps: tuple[Step, ...]


def merge(source: Source, limits: Limits) -> Merge:
    """A scenario of one input, distributed to two.

    The watermarks of the scenario do not go back, so neither do those that a side gets of them.
    """
    made = scenario(source, limits)
    numbers = count()
    steps: list[Step] = []
    for step in made.steps:
        rows: dict[str, list[Row]] = {side: [] for side in SIDES}
        for row in step.rows:
            rows[source.choose(SIDES)].append({**row, "number": next(numbers)})
        moved = (
            SIDES if step.watermark == END_OF_TIME else source.choose([SIDES, SIDES, ("left",), ("right",)])
        )
        watermarks = {} if step.watermark is None else dict.fromkeys(moved, step.watermark)
        quiet = tuple(side for side in SIDES if not rows[side] and not watermarks and source.chance(25))
        steps.append(Step(rows, watermarks, step.now, step.reload, quiet))
    return Merge(source.choose(HOWS), made, tuple(steps))


@st.composite
def merges(draw: st.DrawFn, limits: Limits) -> Merge:
    return merge(HypothesisSource(draw), limits)


def compare(case: Merge) -> None:
    """Run operator and model, and compare every step."""
    options, key = case.made.options, case.made.options.key
    common: dict[str, Any] = {
        "window": options.window,
        "trigger": options.trigger,
        "how": case.how,
        "mode": options.mode,
        "allowed_lateness": options.allowed_lateness,
        "on_time": options.on_time,
        "closing": options.closing,
        "timestamp": options.timestamp,
        "drop_late": options.drop_late,
        "idle": options.idle,
        "only_updated": options.only_updated,
    }
    model = MergeModel(**common)
    operator = MergeOperator(
        **common, key=key, left=CARRIED, right=CARRIED, left_time="ts", right_time="ts", late="emit",
        allow_data_loss=True, piece_rows=1 + len(case.steps) % 4,
    )  # fmt: skip
    state = operator.initial_state()
    schema = {**case.made.schema, "number": pl.Int64}
    for number, step in enumerate(case.steps, 1):
        elements = {
            side: [
                (tuple(row[name] for name in key), row["ts"], {name: row[name] for name in CARRIED})
                for row in rows
            ]
            for side, rows in step.rows.items()
        }
        expected = model.step(elements, step.watermarks, step.now, step.idle)
        left, right = (
            pl.DataFrame(rows, schema=schema) if rows else None
            for rows in (step.rows[side] for side in SIDES)
        )
        state, output = operator.step(state, left, right, step.watermarks, step.now, idle=step.idle)
        assert observed(case.how, key, output) == canonical(expected), f"step {number}"
        if step.reload:
            state = operator.load(operator.save(state), dict(state.blobs))


def canonical(done: MergeStep) -> dict[str, Any]:
    """The parts that must be equal; the order of windows, pairs and retractions of a pane is not defined."""
    retracted = [
        ([replace(row, pane=replace(row.pane, retraction=True)) for row in old], new)
        for old, new in done.blocks
    ]
    return {
        "blocks": sorted((sorted(map(worded, old)), sorted(map(worded, new))) for old, new in retracted),
        "drops": sorted(map(repr, done.drops)),
        "late": sum(drop.reason == "late" for drop in done.drops),
        "closed": sum(drop.reason == "closed" for drop in done.drops),
        "forwarded": done.forwarded,
        "waiting": done.waiting,
    }


def worded(row: MergeRow) -> str:
    return repr(replace(row, pane=replace(row.pane, values={})))


def observed(how: str, key: tuple[str, ...], output: WindowOutput) -> dict[str, Any]:
    """The same for the operator: a block ends with a pane."""
    assert output.panes.columns == [*key, *PANE_COLUMNS[:2], *value_columns(how), *PANE_COLUMNS[2:]]
    rows = [merge_row(how, key, row) for row in output.panes.iter_rows(named=True)]
    blocks: list[tuple[list[MergeRow], list[MergeRow]]] = []
    for before, row in zip([None, *rows], rows, strict=False):
        ended = before is None or (not before.pane.retraction and before.pane != row.pane)
        if ended:
            blocks.append(([], []))
        blocks[-1][0 if row.pane.retraction else 1].append(row)
    late = [] if output.late is None else list(output.late.iter_rows(named=True))
    return {
        "blocks": sorted((sorted(map(worded, old)), sorted(map(worded, new))) for old, new in blocks),
        "drops": sorted(repr(drop_of(how, key, row)) for row in late),
        "late": output.dropped_late,
        "closed": output.dropped_closed,
        "forwarded": output.watermarks.get("default"),
        "waiting": output.waiting,
    }


def value_columns(how: str) -> list[str]:
    return list(SIDES) if how == "cogroup" else [*CARRIED, *(f"{name}_right" for name in CARRIED)]


def side_of_pair(row: Row, side: str) -> Row | None:
    suffix = "_right" if side == "right" else ""
    found = {name: row[f"{name}{suffix}"] for name in CARRIED}
    return None if found["number"] is None else found


def merge_row(how: str, key: tuple[str, ...], row: Row) -> MergeRow:
    pane = Pane(
        key=tuple(row[name] for name in key),
        start=row["window_start"],
        end=row["window_end"],
        values={},
        **{name: row[name] for name in PANE_COLUMNS[2:]},
    )
    if how == "cogroup":
        left, right = (sorted(row[side], key=lambda one: int(one["number"])) for side in SIDES)
        return MergeRow(pane, left, right)
    return MergeRow(pane, side_of_pair(row, "left"), side_of_pair(row, "right"))


def drop_of(how: str, key: tuple[str, ...], row: Row) -> Drop:
    """A late row has its carried columns, and nulls for the other side."""
    sides = {side: row[side] if how == "cogroup" else side_of_pair(row, side) for side in SIDES}
    own = sides.pop(row["side"])
    assert list(sides.values()) == [None]
    bounds = None if row["window_start"] is None else (row["window_start"], row["window_end"])
    came = {
        "side": row["side"],
        "key": tuple(row[name] for name in key),
        "at": row["event_time"],
        "row": own,
    }
    return Drop(came, row["reason"], bounds)


@SETTINGS
@given(merges(LIMITS))
def test_any_merge(case: Merge) -> None:
    compare(case)


@SETTINGS
@given(merges(ONCE))
def test_each_pair_once(case: Merge) -> None:
    compare(case)


@pytest.mark.parametrize("limits", [LIMITS, ONCE], ids=["any", "once"])
def test_seeded_merges(limits: Limits) -> None:
    """Seeded cases of all sizes, because Hypothesis prefers small ones."""
    random = Random(1)
    for number in range(min(15, settings().max_examples * 5 // 8)):
        case = merge(RandomSource(random), limits)
        try:
            compare(case)
        except Exception as error:
            raise AssertionError(f"case {number}: {case}") from error
