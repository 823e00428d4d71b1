"""As-of joins and deduplication in buckets without Spark, and the size of buffers in reports."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import polars as pl
import pytest

from slackwater import windows
from slackwater.progress.watermark_policies import Lag
from slackwater.spark.monitor.reports import OperatorReport
from slackwater.spark.runtime.bucket import BucketOutput, OperatorPlan
from slackwater.spark.runtime.hosts import CogroupHost, DeduplicateHost, ForwardedKeys, JoinHost
from slackwater.spark.runtime.keyed_progress import TimesRules
from slackwater.spark.runtime.source_progress import SourceRules
from slackwater.spark.wire.wire_columns import RETRACTION, TIME, time_column
from slackwater.time import END_OF_TIME
from slackwater.windows.spec.asof_spec import AsofDirection
from tests.model.windows import Row
from tests.unit.spark.bucket_stages import BUCKETS, Stage, random_batches, rows_frame, shipped, ticks

SIDE = {"key": pl.String(), TIME: pl.Int64(), "value": pl.Int64()}


def asof_stage(**options: Any) -> Stage:
    spec = windows.AsofSpec(on=("key",), left_time=TIME, right_time=TIME, **options)
    host = JoinHost(spec, left=SIDE, right=SIDE, keys=(ForwardedKeys("default"), ForwardedKeys("default")))
    return Stage(OperatorPlan((SourceRules(Lag(20)), SourceRules(Lag(20))), host, sides=(0, 1)))


def rows_of(outputs: Sequence[BucketOutput]) -> list[Row]:
    return [row for output in outputs if output.rows is not None for row in output.rows.rows(named=True)]


@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
def test_an_asof_join_over_buckets_equals_polars(direction: AsofDirection) -> None:
    stage = asof_stage(direction=direction, tolerance=6)
    inputs = [random_batches(Random(seed)) for seed in (3, 7)]
    found: list[Row] = []
    for number in range(len(inputs[0])):
        sent = [
            buffer
            for index, batches in enumerate(inputs)
            for buffer in shipped(rows_frame(batches[number]), index)
        ]
        found += rows_of(stage.step([*sent, *ticks(number)]))
    outputs = stage.step(ticks(99, end=True))
    found += rows_of(outputs)
    assert all(output.header.watermarks == {"default": END_OF_TIME} for output in outputs)
    left, right = (rows_frame([row for batch in batches for row in batch]).sort(TIME) for batches in inputs)
    wanted = left.join_asof(
        right.drop_nulls("key"),
        on=TIME,
        by="key",
        strategy=direction,
        tolerance=6,
        coalesce=False,
        check_sortedness=False,
    )
    # Rows with the same key and time are in any order, so only the time of the match is compared.
    columns = [f"{TIME}_left", f"{TIME}_right"]
    assert sorted([(row["key"], *(row[name] for name in columns)) for row in found], key=repr) == sorted(
        wanted.select("key", TIME, f"{TIME}_right").rows(), key=repr
    )
    assert all(not blobs for blobs in stage.blobs.values())


def test_late_rows_of_an_asof_join_are_emitted_with_their_side() -> None:
    stage = asof_stage(late="emit")
    early = rows_frame([{"key": "a", "ts": 60, "value": 2}])
    stage.step([*shipped(early, 0), *shipped(early, 1), *ticks(0)])
    late = rows_frame([{"key": "a", "ts": 3, "value": 9}])
    rows = rows_of(stage.step([*shipped(late, 0), *shipped(late, 1), *ticks(1)]))
    assert [(row["kind"], row["side"], row["value_left"], row["value_right"]) for row in rows] == [
        ("late", "left", 9, None),
        ("late", "right", None, 9),
    ]


@pytest.mark.parametrize("late", ["count", "emit"])
def test_rows_of_a_join_without_an_event_time_are_emitted_with_their_side(late: str) -> None:
    spec = windows.JoinSpec(
        on=("key",), before=0, after=0, left_time=TIME, right_time=TIME,
        late=late,  # type: ignore[arg-type]  # one of the choices
    )  # fmt: skip
    host = JoinHost(
        spec, left=SIDE, right=SIDE, keys=(ForwardedKeys("left"), ForwardedKeys("right")), emits_invalid=True
    )
    stage = Stage(OperatorPlan((SourceRules(Lag(20)), SourceRules(Lag(20))), host, sides=(0, 1)))
    left = rows_frame([{"key": "a", "ts": 60, "value": 1}, {"key": "a", "ts": None, "value": 2}])
    right = rows_frame([{"key": "a", "ts": 60, "value": 3}, {"key": None, "ts": None, "value": 4}])
    sent = [*shipped(left, 0), *shipped(right, 1), *ticks(0)]
    found = rows_of(stage.step(sent))
    columns = "kind", "side", "key", "value_left", "value_right"
    assert sorted((tuple(row[name] for name in columns) for row in found), key=repr) == [
        ("invalid", "left", "a", 2, None),
        ("invalid", "right", None, None, 4),
        ("row", None, "a", 1, 3),
    ]


@pytest.mark.parametrize("how", ["cogroup", "full"])
def test_rows_of_a_cogroup_without_an_event_time_are_emitted(how: str) -> None:
    spec = windows.CogroupSpec(
        window=windows.Fixed(10), key=("key",), left=("value",), right=("value",),
        left_time=TIME, right_time=TIME,
        how=how,  # type: ignore[arg-type]  # one of the choices
    )  # fmt: skip
    stage = Stage(OperatorPlan((SourceRules(Lag(20)), SourceRules(Lag(20))), CogroupHost(spec), sides=(0, 1)))
    left = rows_frame([{"key": "a", "ts": 60, "value": 1}, {"key": "a", "ts": None, "value": 2}])
    sent = shipped(left, 0)
    (row,) = rows_of(stage.step([*sent, *ticks(0)]))
    values: tuple[Any, Any] = ([{"value": 2}], []) if how == "cogroup" else (2, None)
    names = ("left", "right") if how == "cogroup" else ("value", "value_right")
    assert (row["kind"], row["key"], row["window_start"]) == ("invalid", "a", None)
    assert tuple(row[name] for name in names) == values


def test_a_late_retraction_of_a_join_is_emitted_as_one() -> None:
    spec = windows.JoinSpec(
        on=("key",),
        before=0,
        after=0,
        left_time=TIME,
        right_time=TIME,
        late="emit",
        left_retractions=RETRACTION,
    )
    host = JoinHost(
        spec,
        left={**SIDE, RETRACTION: pl.Boolean()},
        right=SIDE,
        keys=(ForwardedKeys("left"), ForwardedKeys("right")),
    )
    stage = Stage(OperatorPlan((SourceRules(Lag(0)), SourceRules(Lag(0))), host, sides=(0, 1)))
    found = []
    for number, at in enumerate((60, 3)):
        rows = rows_frame([{"key": "a", "ts": at, "value": 2}])
        taken_back = rows.with_columns(pl.lit(value=number == 1).alias(RETRACTION))
        found = rows_of(stage.step([*shipped(taken_back, 0), *shipped(rows, 1), *ticks(number)]))
    assert [(row["kind"], row["side"], row["retraction"]) for row in found] == [
        ("late", "left", True),
        ("late", "right", None),
    ]


def test_the_rows_that_a_silent_side_keeps_buffered_show_in_the_report() -> None:
    stage = asof_stage()
    sizes = []
    for number in range(3):
        rows = rows_frame([{"key": "a", "ts": 100 + 10 * number, "value": 2}] * 4)
        report = OperatorReport(
            tuple(output.report for output in stage.step([*shipped(rows, 0), *ticks(number)]))
        )
        sizes.append(report.buffers["left"].rows)
        assert report.buffers["left"].bytes > 0
        assert report.buffers["right"].rows == 0
        assert f"buffered: left {report.buffers['left'].rows} rows (" in str(report)
    assert sizes == [4, 8, 12]


def deduplicate_stage(**options: Any) -> Stage:
    paid = time_column("paid")
    spec = windows.DeduplicateSpec(
        on=("key",), within=10, event_time=TIME, watermark_key="at", further_keys=("paid",), **options
    )
    host = DeduplicateHost(spec, schema={**SIDE, paid: pl.Int64()})
    rules = TimesRules((SourceRules(Lag(0), key="at"), SourceRules(Lag(0), key="paid")), "at")
    return Stage(OperatorPlan((rules,), host))


def sent(*rows: tuple[str, int, int, int]) -> list[Any]:
    paid = time_column("paid")
    frame = pl.DataFrame(rows, schema={**SIDE, paid: pl.Int64()}, orient="row")
    return shipped(frame, times=(("at", TIME), ("paid", paid)), kept=(paid,))


def test_deduplication_passes_the_first_rows_and_forwards_every_watermark_unchanged() -> None:
    stage = deduplicate_stage()
    outputs = stage.step([*sent(("a", 5, 1, 7), ("a", 6, 2, 8), ("b", 9, 3, 4)), *ticks(0)])
    assert sorted(row["value"] for row in rows_of(outputs)) == [1, 3]
    assert [output.header.watermarks for output in outputs] == [{"at": 9, "paid": 8}] * len(BUCKETS)
    outputs = stage.step([*sent(("a", 15, 4, 20), ("a", 16, 5, 20)), *ticks(1)])
    assert [row["value"] for row in rows_of(outputs)] == [5]
    assert [output.header.watermarks for output in outputs] == [{"at": 16, "paid": 20}] * len(BUCKETS)
    outputs = stage.step(ticks(2))
    assert [output.header.watermarks for output in outputs] == [{}] * len(BUCKETS)
    report = OperatorReport(tuple(output.report for output in outputs))
    assert report.totals["dropped_duplicate"] == 2
    assert report.buffers["kept"].rows == 2  # a at 16 and b at 9; a at 5 is forgotten
    outputs = stage.step(ticks(3, end=True))
    assert OperatorReport(tuple(output.report for output in outputs)).buffers["kept"].rows == 0


def test_the_number_of_dropped_duplicates_does_not_decrease() -> None:
    schema = {**SIDE, RETRACTION: pl.Boolean()}
    spec = windows.DeduplicateSpec(on=("key",), within=10, event_time=TIME, retractions=RETRACTION)
    stage = Stage(OperatorPlan((SourceRules(Lag(20)),), DeduplicateHost(spec, schema=schema)))
    totals: list[int] = []
    for number, row in enumerate([("a", 5, 1, False), ("a", 6, 2, False), ("a", 5, 1, True)]):
        buffers = shipped(pl.DataFrame([row], schema=schema, orient="row"))
        reports = [output.report for output in stage.step([*buffers, *ticks(number)])]
        totals.append(OperatorReport(tuple(reports)).totals["dropped_duplicate"])
    assert totals == [0, 1, 1]


def test_late_rows_of_a_deduplication_are_emitted() -> None:
    stage = deduplicate_stage(late="emit")
    first = rows_of(stage.step([*sent(("a", 50, 1, 0)), *ticks(0)]))
    again = rows_of(stage.step([*sent(("b", 49, 2, 0)), *ticks(1)]))
    assert [(row["kind"], row["value"]) for row in (*first, *again)] == [("row", 1), ("late", 2)]
