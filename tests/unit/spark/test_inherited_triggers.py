"""Operators over panes inherit the trigger: early results pass through a chain, and nothing counts twice."""

from __future__ import annotations

from typing import Any

import slackwater as sw
from slackwater.spark.api.panes import Panes
from slackwater.spark.in_process.scripted_rows import ScriptedRows
from slackwater.testing import T, TestStream, assert_rows
from slackwater.windows.triggers import CONTINUED_TRIGGER, DEFAULT_TRIGGER

STREAM = (
    TestStream()
    .add("key | ts[s] | value \n a | 1 | 1 \n b | 2 | 2")
    .add("key | ts[s] | value \n a | 3 | 4")
    .add("key | ts[s] | value \n b | 14 | 8")
    .add("key | ts[s] | value \n c | 35 | 16")
    .end()
)
ROWS: Any = ScriptedRows("df", dict(T("key | ts | value \n a | 1 | 1").schema))


def sums(df: Any) -> Panes:
    return (
        sw.stream(df, event_time="ts", watermark=sw.lag("0 seconds"))
        .key_by("key")
        .window(sw.fixed("10 seconds"))
        .trigger(sw.after_watermark(early=sw.every(count=1), late=sw.every(count=1)))
        .accumulating_and_retracting()
        .agg(total=sw.sum("value"))
    )


def totals(df: Any) -> Panes:
    return sums(df).window(sw.fixed("20 seconds")).agg(keys=sw.count(), total=sw.sum("total"))


def best(df: Any) -> Panes:
    return totals(df).window(sw.fixed("40 seconds")).agg(sums=sw.count(), best=sw.max("total"))


def test_early_results_pass_through_a_chain() -> None:
    run = STREAM.run(totals)
    # The batch that completes a window brings its panes first, and then the watermark.
    assert [sorted(step.rows.select("total").to_series()) for step in run.steps] == [
        [3], [7], [15], [15, 15, 16], [16, 16],
    ]  # fmt: skip
    assert_rows(
        run.panes.filter(timing="ON_TIME"),
        T("""
            window_start[s] | keys | total
            0               | 3    | 15
            20              | 1    | 16
        """),
    )


def test_no_early_result_counts_twice_in_a_longer_chain() -> None:
    run = STREAM.run(best)
    assert run.panes.filter(timing="ON_TIME").select("sums", "best").rows() == [(2, 16)]
    assert run.steps[2].rows.select("sums", "best").rows() == [(1, 15)]
    assert not run.panes["retraction"].any()  # the last operator has the default mode


def test_steps_and_operators_without_windows_pass_early_panes_on() -> None:
    early = sums(ROWS)
    filtered = early.filter("total > 1").key_by("key").window(sw.fixed("1 minute"))
    assert filtered.strategy.trigger == CONTINUED_TRIGGER
    unique = early.deduplicate(on=["key"], within="1 minute").window(sw.fixed("1 minute"))
    assert unique.strategy.trigger == CONTINUED_TRIGGER
    plain = sw.stream(ROWS, event_time="ts", watermark=sw.lag("0 seconds")).key_by("key")
    assert plain.union(early).window(sw.fixed("1 minute")).strategy.trigger == CONTINUED_TRIGGER
    windowed = plain.window(sw.fixed("1 minute"))
    assert windowed.strategy.trigger == DEFAULT_TRIGGER
    both = windowed.cogroup(early.key_by("key"), left=["value"], right=["total"])
    assert both.dataflow.spec.trigger == CONTINUED_TRIGGER


def test_a_trigger_or_a_mode_that_is_set_is_not_replaced() -> None:
    early = sums(ROWS)
    chosen = early.window(sw.fixed("1 minute")).trigger(sw.after_watermark(late=sw.every(count=1)))
    on_time = chosen.agg(keys=sw.count())
    assert on_time.dataflow.spec.trigger == DEFAULT_TRIGGER
    assert on_time.window(sw.fixed("1 hour")).strategy.trigger == DEFAULT_TRIGGER
    assert not on_time.elements().retracts
    assert totals(ROWS).elements().retracts
    accumulating = early.window(sw.fixed("1 minute")).accumulating().agg(n=sw.count())
    assert not accumulating.elements().retracts


def test_explain_shows_an_inherited_trigger() -> None:
    plan = str(totals(ROWS).explain())
    assert plan.count("late=repeatedly(after_count(1))), inherited") == 1
    assert "inherited" not in str(sums(ROWS).explain())
