"""Buckets without Spark, compared with the reference model.

Rows are sent to several buckets, every bucket steps on its own, and its state goes through bytes after every
batch. What all buckets emit together must be what the model emits, batch by batch.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import polars as pl
import pytest

from slackwater import windows
from slackwater.errors import CorruptState
from slackwater.progress.watermark_policies import Lag
from slackwater.spark.runtime.bucket import OperatorPlan
from slackwater.spark.runtime.hosts import WindowHost
from slackwater.spark.runtime.operator_inputs import UpstreamRules
from slackwater.spark.runtime.source_progress import SourceRules
from slackwater.spark.wire.wire_columns import RETRACTION
from slackwater.time import END_OF_TIME
from tests.model.windows import Row
from tests.support.sampling import sampled
from tests.support.windowed import ModelSubject, Observed, Options
from tests.unit.spark.bucket_stages import (
    BUCKETS,
    MODES,
    TRIGGER,
    Follower,
    Stage,
    canonical,
    element,
    emitted,
    host,
    pane_rows,
    random_batches,
    rows_frame,
    shipped,
    ticks,
)


@pytest.mark.parametrize("mode", sampled(MODES, keep=MODES, check=MODES[-1:]))
@pytest.mark.parametrize(
    "window",
    sampled(
        [
            windows.Fixed(10), windows.Sliding(10, 4), windows.Sessions(4), windows.Global(),
            windows.Global(ttl=2),
        ],
        keep=[windows.Sliding(10, 4), windows.Sessions(4), windows.Global(ttl=2)],
    ),
)  # fmt: skip
@pytest.mark.parametrize("seed", sampled(range(3), keep=[1]))
def test_all_buckets_together_equal_the_model(window: windows.Window, mode: str, seed: int) -> None:
    options = Options(window, TRIGGER, ("count", "sum"), mode=mode, allowed_lateness=8)
    stage = Stage(OperatorPlan((SourceRules(Lag(5)),), host(options)))
    model, follower = ModelSubject(options), Follower()
    expired = 0
    for number, rows in enumerate(random_batches(Random(seed))):
        outputs = stage.step([*shipped(rows_frame(rows)), *ticks(number)])
        said = model.step(rows, follower.after(rows), number)
        expired += said.expired
        assert canonical(emitted(outputs, options.key)) == canonical(said.panes)
        assert sum(output.report.totals["dropped_late"] for output in outputs) == model.model.dropped_late
        assert sum(output.report.totals["expired_keys"] for output in outputs) == expired
        assert {output.report.watermark for output in outputs} == {follower.at}
    outputs = stage.step(ticks(100, end=True))
    assert canonical(emitted(outputs, options.key)) == canonical(model.step([], END_OF_TIME, 100).panes)
    assert [output.report.open_windows for output in outputs] == [0, 0, 0]
    assert (expired > 0) == (window == windows.Global(ttl=2))
    assert all(not blobs for blobs in stage.blobs.values()), "an ended stream keeps nothing"


@pytest.mark.parametrize("seed", sampled(range(6), keep=[0, 3], check=[0]))
def test_a_chain_processes_panes_in_the_batch_that_emits_them(seed: int) -> None:
    options = Options(
        windows.Fixed(10), TRIGGER, ("count", "sum"), mode="accumulating_and_retracting", allowed_lateness=8
    )
    totals = replace(options, window=windows.Inherited(), key=(), retractions=True)
    first = Stage(OperatorPlan((SourceRules(Lag(5)),), host(options)))
    second = Stage(OperatorPlan((UpstreamRules(BUCKETS),), host(totals)))
    one, two, follower = ModelSubject(options), ModelSubject(totals), Follower()
    batches: list[list[Row] | None] = [*random_batches(Random(seed)), None]
    for number, rows in enumerate(batches):
        sent = ticks(number, end=True) if rows is None else [*shipped(rows_frame(rows)), *ticks(number)]
        outputs = first.step(sent)
        again = second.step(shipped(pane_rows(outputs), key=None))
        said = one.step(rows or [], END_OF_TIME if rows is None else follower.after(rows), number)
        elements = [element(pane) for pane in said.panes]
        wanted = two.step(elements, said.forwarded, number)
        assert canonical(emitted(again, ())) == canonical(wanted.panes)


@pytest.mark.parametrize("seed", sampled(range(4), keep=[1]))
def test_a_union_follows_the_slower_input(seed: int) -> None:
    options = Options(windows.Fixed(10), TRIGGER, ("count", "sum"), allowed_lateness=8)
    stage = Stage(OperatorPlan((SourceRules(Lag(5)), SourceRules(Lag(5))), host(options)))
    model, followers = ModelSubject(options), (Follower(), Follower())
    sides = random_batches(Random(seed)), random_batches(Random(seed + 100))
    for number, (here, there) in enumerate(zip(*sides, strict=True)):
        sent = [*shipped(rows_frame(here), 0), *shipped(rows_frame(there), 1), *ticks(number)]
        outputs = stage.step(sent)
        marks = followers[0].after(here), followers[1].after(there)
        watermark = None if None in marks else min(mark for mark in marks if mark is not None)
        said: Observed = model.step([*here, *there], watermark, number)
        assert canonical(emitted(outputs, options.key)) == canonical(said.panes)


def test_a_union_excludes_an_idle_input() -> None:
    options = Options(windows.Fixed(10), accumulations=("count", "sum"))
    rules = SourceRules(Lag(0)), SourceRules(Lag(0), idle_after=10)
    stage = Stage(OperatorPlan(rules, host(options)))

    def row(at: int) -> pl.DataFrame:
        return rows_frame([{"key": "a", "ts": at, "value": 1}])

    def watermark(buffers: list[Any]) -> int | None:
        (at,) = {output.report.watermark for output in stage.step(buffers)}
        return at

    assert watermark([*shipped(row(50), 0), *ticks(0)]) is None, (
        "an input that has never sent anything is waited for"
    )
    assert watermark([*shipped(row(7), 1), *ticks(1)]) == 7
    assert watermark([*shipped(row(60), 0), *ticks(5)]) == 7
    assert watermark([*shipped(row(70), 0), *ticks(10)]) == 7
    assert watermark([*shipped(row(80), 0), *ticks(11)]) == 80, "exactly idle_after is idle"
    assert watermark([*shipped(row(90), 0), *shipped(row(85), 1), *ticks(12)]) == 85


def test_the_report_names_the_missing_origin() -> None:
    rules = SourceRules(Lag(0), origins=("input", "other"))
    stage = Stage(OperatorPlan((rules,), host(Options(windows.Fixed(10)))))
    outputs = stage.step([*shipped(rows_frame([{"key": "a", "ts": 5, "value": 1}])), *ticks(7)])
    for output in outputs:
        assert output.report.held_by == "partition 'other'"
        assert output.report.reason == "never spoke"
        assert output.report.watermark is None
        assert output.report.now == 7


def test_rows_without_a_time_are_emitted() -> None:
    stage = Stage(OperatorPlan((SourceRules(Lag(0)),), host(Options(windows.Fixed(10)))))
    frame = rows_frame([{"key": "a", "ts": None, "value": 4}, {"key": "b", "ts": 3, "value": 5}])
    outputs = stage.step([*shipped(frame), *ticks(0)])
    rows = [row for output in outputs if output.rows is not None for row in output.rows.rows(named=True)]
    assert [(row["key"], row["kind"], row["count"], row["sum"], row["window_start"]) for row in rows] == [
        ("a", "invalid", 1, 4, None)
    ]
    assert [output.report.totals["invalid"] for output in outputs] == [1, 1, 1]


def test_a_late_retraction_is_emitted_as_one() -> None:
    signed = host(Options(windows.Fixed(10), accumulations=("count", "sum"), retractions=True))
    late = WindowHost(replace(signed.spec, late="emit"))
    stage = Stage(OperatorPlan((SourceRules(Lag(0)),), late))
    frames = [
        rows_frame([{"key": "a", "ts": at, "value": 4}]).with_columns(pl.lit(at < 50).alias(RETRACTION))
        for at in (50, 3)
    ]
    stage.step([*shipped(frames[0]), *ticks(0)])
    outputs = stage.step([*shipped(frames[1]), *ticks(1)])
    rows = [row for output in outputs if output.rows is not None for row in output.rows.rows(named=True)]
    assert [(row["kind"], row["sum"], row["retraction"]) for row in rows] == [("late", 4, True)]


def test_a_batch_without_a_tick_keeps_the_last_time() -> None:
    stage = Stage(OperatorPlan((SourceRules(Lag(0)),), host(Options(windows.Fixed(10)))))
    stage.step(ticks(70))
    outputs = stage.step(shipped(rows_frame([{"key": "a", "ts": 5, "value": 1}])))
    assert {output.report.now for output in outputs} == {70}


def test_a_first_batch_without_a_tick_raises_because_state_is_lost() -> None:
    stage = Stage(OperatorPlan((SourceRules(Lag(0)),), host(Options(windows.Fixed(10)))))
    with pytest.raises(CorruptState, match="missing"):
        stage.step(shipped(rows_frame([{"key": "a", "ts": 5, "value": 1}])))
