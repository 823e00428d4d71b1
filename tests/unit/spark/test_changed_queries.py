"""A query that was changed between two runs: its sources, its inputs, its buckets and its operator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from slackwater import windows
from slackwater.errors import IncompatibleState, UnknownSource
from slackwater.progress.watermark_policies import Lag
from slackwater.spark.runtime.bucket import OperatorPlan
from slackwater.spark.runtime.keyed_progress import TimesRules
from slackwater.spark.runtime.numbered_progress import NumberedProgress, NumberedRules
from slackwater.spark.runtime.operator_inputs import InputRules, Inputs
from slackwater.spark.runtime.source_progress import SourceRules
from slackwater.spark.wire.buffers import OriginChunk
from slackwater.spark.wire.pane_schema import pane_codec, pane_schema
from tests.support.windowed import Options
from tests.unit.spark.bucket_stages import Stage, host, rows_frame, shipped, ticks

OPTIONS = Options(windows.Fixed(10), accumulations=("count", "sum"))


def plan(*rules: InputRules, **options: Any) -> OperatorPlan:
    return OperatorPlan(rules, host(replace(OPTIONS, **options)))


def row(at: int, key: str = "a") -> pl.DataFrame:
    return rows_frame([{"key": key, "ts": at, "value": 1}])


def started(*rules: InputRules) -> Stage:
    """A query that has processed a row at 50."""
    stage = Stage(plan(*rules))
    stage.step([*shipped(row(50)), *ticks(0)])
    return stage


def watermark(stage: Stage, buffers: list[Any]) -> int | None:
    (at,) = {output.report.watermark for output in stage.step(buffers)}
    return at


def test_a_longer_lag_does_not_move_the_watermark_back() -> None:
    stage = started(SourceRules(Lag(0)))
    stage.plan = plan(SourceRules(Lag(20)))
    assert watermark(stage, ticks(1, run=2)) == 50
    assert watermark(stage, [*shipped(row(60)), *ticks(2, run=2)]) == 50
    assert watermark(stage, [*shipped(row(80)), *ticks(3, run=2)]) == 60


def test_a_shorter_lag_counts_from_the_next_row() -> None:
    stage = started(SourceRules(Lag(20)))
    stage.plan = plan(SourceRules(Lag(5)))
    assert watermark(stage, ticks(1, run=2)) == 30
    assert watermark(stage, [*shipped(row(51)), *ticks(2, run=2)]) == 46


def test_idle_settings_may_change() -> None:
    stage = started(SourceRules(Lag(0), origins=("input", "other")))
    assert watermark(stage, ticks(1)) is None
    stage.plan = plan(SourceRules(Lag(0), origins=("input", "other"), idle_after=10))
    marks = [watermark(stage, [*shipped(row(60)), *ticks(now, run=2)]) for now in (2, 7, 12, 17)]
    assert marks == [None, None, 60, 60]


def test_an_added_origin_is_waited_for() -> None:
    stage = started(SourceRules(Lag(0), origins=("input",)))
    stage.plan = plan(SourceRules(Lag(0), origins=("input", "other")))
    assert watermark(stage, [*shipped(row(60)), *ticks(1, run=2)]) == 50


def test_a_removed_origin_is_not_waited_for() -> None:
    stage = started(SourceRules(Lag(0), origins=("input", "other")))
    assert watermark(stage, ticks(1)) is None
    stage.plan = plan(SourceRules(Lag(0), origins=("input",)))
    assert watermark(stage, [*shipped(row(60)), *ticks(2, run=2)]) == 60


def test_another_number_of_inputs_is_refused() -> None:
    stage = started(SourceRules(Lag(0)), SourceRules(Lag(0)))
    for rules in ((SourceRules(Lag(0)),), (SourceRules(Lag(0)),) * 3):
        stage.plan = plan(*rules)
        with pytest.raises(IncompatibleState, match=rf"number of inputs was 2 and is now {len(rules)}"):
            stage.step(ticks(1))


def union_of(*names: str | None) -> OperatorPlan:
    """A union whose inputs have these names in reports."""
    return replace(plan(*[SourceRules(Lag(0))] * len(names)), names=names)


def test_named_inputs_of_a_union_cannot_change_places() -> None:
    stage = Stage(union_of("input 'orders'", "input 'returns'", "input 3"))
    assert watermark(stage, [*shipped(row(50)), *shipped(row(90), 1), *shipped(row(95), 2), *ticks(0)]) == 50
    stage.plan = union_of("input 'returns'", "input 'orders'", "input 3")
    with pytest.raises(IncompatibleState, match="the position of input 'orders' was 1 and is now 2; the pos"):
        stage.step(ticks(1, run=2))
    stage.plan = union_of("input 'orders'", "input 2", "input 'returns'")
    with pytest.raises(IncompatibleState, match="the position of input 'returns' was 2 and is now 3"):
        stage.step(ticks(1, run=2))


def test_inputs_of_a_union_may_get_other_names() -> None:
    stage = Stage(union_of("input 'orders'", "input 2"))
    stage.step([*shipped(row(50)), *shipped(row(90), 1), *ticks(0)])
    stage.plan = union_of("input 'sales'", "input 'returns'")
    assert watermark(stage, [*shipped(row(60)), *ticks(1, run=2)]) == 60


def test_a_removed_origin_releases_a_union_at_once() -> None:
    both = SourceRules(Lag(0), origins=("input", "other"))
    stage = Stage(plan(both, SourceRules(Lag(0))))
    assert watermark(stage, [*shipped(row(50)), *shipped(row(90), 1), *ticks(0)]) is None
    stage.plan = plan(SourceRules(Lag(0), origins=("input",)), SourceRules(Lag(0)))
    assert watermark(stage, ticks(1, run=2)) == 50


def test_a_removed_origin_of_numbered_buffers_is_not_waited_for() -> None:
    first = OriginChunk("a", 1, 1, True, 50, 0)
    progress = NumberedProgress(NumberedRules(origins=("a", "b")), now=0)
    progress.advance([first], now=0)
    assert progress.watermark is None
    changed = NumberedProgress(NumberedRules(origins=("a",)), 1, progress.save())
    assert changed.watermark == 50
    with pytest.raises(UnknownSource, match="'b'"):
        changed.advance([OriginChunk("b", 1, 1, True, 60, 0)], now=2)
    added = NumberedProgress(NumberedRules(origins=("a", "b")), 3, changed.save())
    added.advance([OriginChunk("a", 2, 1, True, 90, 0), OriginChunk("b", 1, 1, True, 60, 0)], now=4)
    assert added.watermark == 60
    assert added.duplicates == 0


def test_without_a_list_of_origins_new_ones_are_learned_after_a_restart() -> None:
    progress = NumberedProgress(NumberedRules(origins=("a",)), now=0)
    progress.advance([OriginChunk("a", 1, 1, True, 50, 0)], now=0)
    changed = NumberedProgress(NumberedRules(), 1, progress.save())
    changed.advance([OriginChunk("a", 2, 1, True, 90, 0), OriginChunk("b", 1, 1, True, 60, 0)], now=2)
    assert changed.watermark == 60


@pytest.mark.parametrize(
    ("before", "after", "difference"),
    [
        ((0, 1), (0, 0), "the number of sides was 2 and is now 1"),
        ((0, 0, 1), (0, 1, 1), "the number of inputs on the left side was 2 and is now 1"),
        ((0, 1, 1), (0, 0, 1), "the number of inputs on the right side was 2 and is now 1"),
    ],
)
def test_inputs_that_moved_to_another_side_are_refused(
    before: tuple[int, ...], after: tuple[int, ...], difference: str
) -> None:
    rules = [SourceRules(Lag(0))] * len(before)
    saved = Inputs(rules, 0, sides=before).save()
    assert Inputs(rules, 0, saved, sides=before).watermark is None
    with pytest.raises(IncompatibleState, match=difference):
        Inputs(rules, 0, saved, sides=after)


def test_another_kind_of_input_is_refused() -> None:
    stage = started(SourceRules(Lag(0)))
    stage.plan = plan(NumberedRules())
    with pytest.raises(
        IncompatibleState,
        match="input 0 was a source with one event time and is now a source of numbered buffers",
    ):
        stage.step(ticks(1))
    stage.plan = plan(TimesRules((SourceRules(Lag(0), key="order"),), key="order"))
    with pytest.raises(IncompatibleState, match="is now a source with several event times"):
        stage.step(ticks(1))


def test_another_watermark_key_is_refused() -> None:
    stage = started(SourceRules(Lag(0)))
    stage.plan = plan(SourceRules(Lag(0), key="order"))
    with pytest.raises(IncompatibleState, match="watermark key was 'default' and is now 'order'"):
        stage.step(ticks(1))


def test_a_changed_operator_goes_on_with_its_windows() -> None:
    stage = Stage(plan(SourceRules(Lag(0)), trigger=windows.every(count=5)))
    stage.step([*shipped(row(51)), *ticks(0)])
    stage.plan = plan(SourceRules(Lag(0)), trigger=windows.every(count=2))
    outputs = stage.step([*shipped(row(52)), *ticks(1, run=2)])
    panes = [output.rows for output in outputs if output.rows is not None]
    assert [frame["count"].to_list() for frame in panes] == [[2]]


def test_a_window_that_has_fired_keeps_its_numbers_if_it_fires_only_once_from_now_on() -> None:
    """The codec for windows that fire once has room for panes from before the change."""
    stage = Stage(plan(SourceRules(Lag(0)), trigger=windows.every(count=1), allowed_lateness=100))
    for now in range(3):
        stage.step([*shipped(row(51)), *ticks(now)])
    stage.plan = plan(SourceRules(Lag(0)))
    assert stage.plan.host.spec.fires_once
    outputs = stage.step([*shipped(row(70, key="z")), *ticks(3, run=2)])
    (panes,) = (output.rows for output in outputs if output.rows is not None)
    assert panes.select("index", "timing").rows() == [(3, "ON_TIME")]
    codec = pane_codec(pane_schema([], {}), fires_once=True, window_length=None)
    assert codec is not None
    numbered = panes.select("window_start", "window_end", "index", "on_time_index")
    assert len(codec.encode(0, "{}", numbered)) == 2
