"""Samples of dropped rows in reports: of every kind of operator, with key columns of any name."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from slackwater import windows
from slackwater.monitoring.query_state import LateRow
from slackwater.progress.watermark_policies import Lag
from slackwater.spark.runtime.bucket import OperatorPlan
from slackwater.spark.runtime.hosts import (
    CogroupHost,
    DeduplicateHost,
    ForwardedKeys,
    Host,
    JoinHost,
    WindowHost,
)
from slackwater.spark.runtime.source_progress import SourceRules
from slackwater.spark.wire.wire_columns import ORIGIN, TIME
from tests.unit.spark.bucket_stages import BUCKETS, Stage, shipped, ticks

NAMES = ["id", "rows", "reason", "watermark", "side", "key", "event_time"]
"""Key columns, some of them with names that samples use themselves."""


def host(kind: str, key: str) -> tuple[Host[Any], int]:
    """An operator of a kind, and the number of its inputs."""
    side = {key: pl.String(), TIME: pl.Int64(), "value": pl.Int64()}
    on: Any = {"on": (key,), "left_time": TIME, "right_time": TIME}
    forwarded = ForwardedKeys("left"), ForwardedKeys("right")
    match kind:
        case "windows":
            spec = windows.WindowSpec(
                window=windows.Fixed(10), accumulations={"n": windows.count()}, event_time=TIME, key=(key,)
            )
            return WindowHost(spec), 1
        case "join":
            join = windows.JoinSpec(before=3, after=9, how="left", **on)
            return JoinHost(join, left=side, right=side, keys=forwarded), 2
        case "asof":
            return JoinHost(windows.AsofSpec(**on), left=side, right=side, keys=forwarded), 2
        case "deduplicate":
            deduplication = windows.DeduplicateSpec(on=(key,), within=5, event_time=TIME)
            return DeduplicateHost(deduplication, schema=side), 1
        case _:
            cogroup = windows.CogroupSpec(
                window=windows.Fixed(10),
                key=(key,),
                left_time=TIME,
                right_time=TIME,
                left=("value",),
                right=("value",),
            )
            return CogroupHost(cogroup), 2


def dropped(kind: str, key: str, *, keeps: bool = True) -> list[LateRow]:
    operator, inputs = host(kind, key)
    sides = (0, 1) if inputs == 2 else ()
    plan = OperatorPlan((SourceRules(Lag(5)),) * inputs, operator, sides=sides, sample_late=keeps)
    stage = Stage(plan)
    early = pl.DataFrame({key: ["a"] * 2, TIME: [5, 60], "value": [1, 1]})
    stage.step([*(each for index in range(inputs) for each in shipped(early, index, key=key)), *ticks(0)])
    late = pl.DataFrame({key: ["a"], TIME: [3], "value": [9]})
    outputs = stage.step([*shipped(late, inputs - 1, key=key), *ticks(1)])
    return [row for output in outputs for row in output.report.late_rows]


@pytest.mark.parametrize("key", NAMES)
@pytest.mark.parametrize("kind", ["windows", "join", "asof", "deduplicate", "cogroup"])
def test_a_late_row_is_sampled_with_its_key(kind: str, key: str) -> None:
    (row,) = dropped(kind, key)
    assert (row.kind, row.values, row.watermark) == ("late", {key: "a"}, 55)
    assert row.side == ("right" if kind in ("join", "asof") else None)
    assert row.lateness == (45 if kind in ("windows", "cogroup") else 52)


@pytest.mark.parametrize("kind", ["join", "cogroup"])
def test_values_are_redacted_by_default(kind: str) -> None:
    (row,) = dropped(kind, "id", keeps=False)
    assert row.values is None


@pytest.mark.parametrize("sampled", [None, ("id",)])
def test_invalid_rows_are_sampled_by_origin(sampled: tuple[str, ...] | None) -> None:
    operator, _ = host("windows", "id")
    stage = Stage(OperatorPlan((SourceRules(Lag(5)),), operator, reporter=BUCKETS[0]))
    schema = {ORIGIN: pl.String, "id": pl.String, TIME: pl.Int64, "value": pl.Int64}
    rows = [("a", "x", None, 1), ("b", "y", 5, 1), ("a", "z", None, 1), ("b", "y", 2**62 + 1, 1)]
    sent = shipped(pl.DataFrame(rows, schema=schema, orient="row"), key="id", sampled=sampled)
    first, *others = [output.report for output in stage.step([*sent, *ticks(0)])]
    assert [report.late_rows for report in others] == [()] * len(others)
    found = [(row.kind, row.origin, row.event_time, row.rows, row.values) for row in first.late_rows]
    # Two map tasks with two rows each.
    key = [None if sampled is None else {"id": name} for name in "xzy"]
    assert found == [
        ("invalid", "a", None, 1, key[0]),
        ("invalid", "a", None, 1, key[1]),
        ("invalid", "b", 2**62 + 1, 1, key[2]),
    ]
    assert first.totals["invalid"] == 3


def test_thousands_of_invalid_rows_are_a_bounded_sample() -> None:
    operator, _ = host("windows", "id")
    stage = Stage(OperatorPlan((SourceRules(Lag(5)),), operator, reporter=BUCKETS[0]))
    names = [f"{number:04}" for number in range(3_000)]
    empty = pl.Series([None] * len(names), dtype=pl.Int64)
    frame = pl.DataFrame({ORIGIN: names, "id": "x" * 500, TIME: empty, "value": empty})
    sent = shipped(frame, key="id", sampled=("id",))
    first, *_ = [output.report for output in stage.step([*sent, *ticks(0)])]
    assert len(first.late_rows) == 10
    assert {len(row.values["id"]) for row in first.late_rows if row.values} == {100}
