"""Idle inputs and open windows, in buckets without Spark: no accepted row becomes late downstream."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl

from slackwater import windows
from slackwater.progress.watermark_policies import Lag
from slackwater.spark.runtime.bucket import BucketOutput, OperatorPlan
from slackwater.spark.runtime.hosts import CogroupHost
from slackwater.spark.runtime.operator_inputs import UpstreamRules
from slackwater.spark.runtime.source_progress import SourceRules
from slackwater.spark.wire.wire_columns import CONTROL, ORIGIN, TIME
from tests.support.windowed import Options
from tests.unit.spark.bucket_stages import (
    BUCKETS,
    Stage,
    emitted,
    host,
    pane_rows,
    rows_frame,
    shipped,
    ticks,
)

TENS = Options(windows.Fixed(10), accumulations=("count", "sum"))
QUIET = SourceRules(Lag(0), idle_after=10)
BUSY = SourceRules(Lag(0))


def row(at: int, value: int = 1) -> pl.DataFrame:
    return rows_frame([{"key": "a", "ts": at, "value": value}])


class Chain:
    """Windows over a source that becomes idle; their panes and another source in the same windows."""

    def __init__(self, first: Options = TENS) -> None:
        self.first = Stage(OperatorPlan((QUIET,), host(first)))
        total = replace(TENS, key=())
        self.second = Stage(OperatorPlan((UpstreamRules(BUCKETS), BUSY), host(total)))
        self.total = 0
        self.outputs: tuple[list[BucketOutput], list[BucketOutput]] = ([], [])

    def step(self, now: int, quiet: pl.DataFrame | None, busy: pl.DataFrame | None) -> None:
        here = [] if quiet is None else shipped(quiet)
        there = [] if busy is None else shipped(busy.drop("key"), 1, key=None)
        first = self.first.step([*here, *ticks(now)])
        panes: list[Any] = shipped(pane_rows(first).select(TIME, CONTROL, "value"), 0, key=None)
        second = self.second.step([*panes, *there, *ticks(now)])
        self.total += sum(pane.values["sum"] for pane in emitted(second, ()))
        self.outputs = first, second


def test_an_open_window_keeps_an_idle_operator_from_being_overtaken() -> None:
    chain = Chain()
    chain.step(0, row(5), row(1))
    for now in range(4, 44, 4):  # the first source is silent, and idle from 10 on
        chain.step(now, None, row(now))
    chain.step(44, row(45), row(45))
    chain.step(45, row(60), row(60))
    chain.step(46, row(100), row(100))
    assert sum(output.report.totals["dropped_late"] for output in chain.outputs[1]) == 0
    # Two rows at 5 and 45, and one at 60, of the first source; twelve rows of the second before 100.
    assert chain.total == 3 + 13


def test_an_operator_whose_windows_have_fired_forwards_idle() -> None:
    stage = Stage(OperatorPlan((QUIET,), host(TENS)))
    stage.step([*shipped(row(25)), *ticks(0)])
    assert not any(output.header.idle for output in stage.step(ticks(5)))
    idle = stage.step(ticks(10))
    open_windows = [output.report.open_windows for output in idle]
    assert [output.header.idle for output in idle] == [count == 0 for count in open_windows]
    assert sum(open_windows) == 1, "one bucket has an open window, and does not say that it is idle"


def test_idle_close_emits_the_last_window_of_a_quiet_source() -> None:
    chain = Chain(replace(TENS, idle="close"))
    chain.step(0, row(5), row(1))
    for now in range(4, 44, 4):
        chain.step(now, None, row(now))
    assert chain.total == 1 + 11 - 1, "the row at 5, and all but the last of the other source"
    first = chain.outputs[0]
    assert all(output.header.idle for output in first)
    assert max(output.report.watermark or 0 for output in first) == 10, "the watermark in use is reported"
    chain.step(44, row(7), row(50))
    assert sum(output.report.totals["dropped_late"] for output in chain.outputs[0]) == 1


def test_a_closed_window_stays_closed_over_a_restart() -> None:
    stage = Stage(OperatorPlan((QUIET,), host(replace(TENS, idle="close"))))
    stage.step([*shipped(row(5)), *ticks(0)])
    stage.step(ticks(5))
    fired = emitted(stage.step(ticks(10)), ("key",))
    assert [(pane.end, pane.timing, pane.is_last) for pane in fired] == [(10, "ON_TIME", True)]
    outputs = stage.step([*shipped(row(6)), *ticks(20, run=2)])
    assert emitted(outputs, ("key",)) == []
    assert sum(output.report.totals["dropped_late"] for output in outputs) == 1
    assert emitted(stage.step([*shipped(row(30)), *ticks(21, run=2)]), ("key",)) == []


def test_a_cogroup_excludes_an_idle_side() -> None:
    spec = windows.CogroupSpec(
        window=windows.Fixed(10), key="key", left="value", right="value", left_time=TIME, right_time=TIME
    )
    stage = Stage(OperatorPlan((QUIET, BUSY), CogroupHost(spec), sides=(0, 1)))
    stage.step([*shipped(row(5, 1), 0), *shipped(row(6, 2), 1), *ticks(0)])
    assert {output.report.watermark for output in stage.step([*shipped(row(30, 3), 1), *ticks(5)])} == {5}
    outputs = stage.step([*shipped(row(40, 4), 1), *ticks(10)])
    assert {output.report.watermark for output in outputs} == {40}
    panes = [frame for output in outputs if (frame := output.rows) is not None]
    (pane,) = pl.concat(panes).filter(pl.col("window_end") == 10).iter_rows(named=True)
    assert (pane["left"], pane["right"]) == ([{"value": 1}], [{"value": 2}])


def test_why_names_the_idle_input_and_the_window_that_waits() -> None:
    stage = Stage(OperatorPlan((QUIET,), host(TENS), names=("input 'orders'",)))
    stage.step([*shipped(row(5)), *ticks(0)])
    stage.step(ticks(5))
    (text,) = (output.report.why for output in stage.step(ticks(10)) if output.report.open_windows)
    assert text == (
        "watermark 1970-01-01T00:00:00.000005Z: every input is idle since 1970-01-01T00:00:00.000010Z; "
        "the window that ends at 1970-01-01T00:00:00.000010Z waits for input 'orders'"
    )


def test_why_names_the_input_of_a_union_and_reports_each() -> None:
    rules = BUSY, BUSY, SourceRules(Lag(0), origins=("a", "b"))
    stage = Stage(OperatorPlan(rules, host(TENS), names=("input 'orders'", "input 2", "input 3")))
    named = shipped(row(50).with_columns(pl.lit("a").alias(ORIGIN)), 2)
    reports = [output.report for output in stage.step([*shipped(row(5)), *ticks(0)])]
    assert {report.held_by for report in reports} == {"input 2"}
    (report, *_) = (output.report for output in stage.step([*shipped(row(20), 1), *named, *ticks(1)]))
    assert (report.held_by, report.reason) == ("partition 'b' of input 3", "never spoke")
    assert [(one.name, one.watermark) for one in report.inputs] == [
        ("input 'orders'", 5),
        ("input 2", 20),
        ("input 3", None),
    ]


def test_why_reports_the_watermark_in_use_after_an_input_is_active_again() -> None:
    stage = Stage(OperatorPlan((QUIET, BUSY), host(TENS), names=("input 1", "input 2")))
    stage.step([*shipped(row(5)), *shipped(row(6), 1), *ticks(0)])
    stage.step([*shipped(row(30), 1), *ticks(5)])
    stage.step([*shipped(row(40), 1), *ticks(10)])
    (report, *_) = (output.report for output in stage.step([*shipped(row(7)), *ticks(11)]))
    assert (report.watermark, report.held_by) == (40, "input 1")
    assert report.why.startswith("watermark 1970-01-01T00:00:00.000040Z: held back by input 1")
    assert [one.watermark for one in report.inputs] == [7, 40]
