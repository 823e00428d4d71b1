"""The summary of a saved bucket, for `sw.state`: windows, keys, bytes, watermarks and origins."""

from __future__ import annotations

import polars as pl

from slackwater import windows
from slackwater.progress.watermark_policies import Lag
from slackwater.spark.checkpoint.bucket_summary import BucketSummary, summarize_bucket
from slackwater.spark.runtime.bucket import OperatorPlan
from slackwater.spark.runtime.keyed_progress import TimesRules
from slackwater.spark.runtime.numbered_progress import NumberedRules
from slackwater.spark.runtime.operator_inputs import InputRules, UpstreamRules
from slackwater.spark.runtime.source_progress import SourceRules
from tests.support.windowed import Options
from tests.unit.spark.bucket_stages import BUCKETS, Stage, host, rows_frame, shipped, ticks


def summaries(stage: Stage) -> list[BucketSummary]:
    return [summarize_bucket(stage.saved[bucket], stage.blobs[bucket]) for bucket in BUCKETS]


def stage_of(window: windows.Window, *rules: InputRules) -> Stage:
    return Stage(OperatorPlan(rules, host(Options(window, allowed_lateness=100))))


def rows(*times: int, keys: int = 20) -> pl.DataFrame:
    return rows_frame([{"key": f"k{key}", "ts": at, "value": 1} for at in times for key in range(keys)])


def test_windows_and_keys_of_all_buckets_add_up() -> None:
    stage = stage_of(windows.Fixed(10), SourceRules(Lag(0)))
    stage.step([*shipped(rows(1, 2, 11)), *ticks(7)])
    stage.step([*shipped(rows(12, keys=25)), *ticks(8)])
    found = summaries(stage)
    for one in found:
        assert one.operator.kind == "window"
        assert one.operator.description.startswith(
            "fixed(size=10 µs) key=(key) accumulating after_watermark("
        )
        assert dict(one.operator.watermarks) == {"default": 12}
        assert (one.clock, one.ended) == (8, False)
        assert [(each.start, each.end, each.windows) for each in one.operator.windows] == [
            (0, 10, 1),
            (10, 20, 1),
        ]
    assert [sum(one.operator.windows[number].keys for one in found) for number in (0, 1)] == [20, 25]
    assert sum(one.operator.keys for one in found) == 25


def test_the_bytes_are_those_of_the_index_and_all_blobs() -> None:
    stage = stage_of(windows.Sliding(20, 10), SourceRules(Lag(0)))
    stage.step([*shipped(rows(1, 12)), *ticks(0)])
    (first, *_) = summaries(stage)
    assert [(each.start, each.end) for each in first.operator.windows] == [(-10, 10), (0, 20), (10, 30)]
    assert first.operator.windows[1].bytes > first.operator.windows[2].bytes, "two slices and one"
    assert first.operator.bytes > first.operator.windows[0].bytes + first.operator.windows[2].bytes


def test_sessions_are_counted_one_by_one() -> None:
    stage = stage_of(windows.Sessions(4), SourceRules(Lag(0)))
    stage.step([*shipped(rows(1, 2, 30)), *ticks(0)])
    stage.step([*shipped(rows(3, keys=5)), *ticks(1)])
    found = summaries(stage)
    assert sum(each.windows for one in found for each in one.operator.windows) == 40
    assert sum(one.operator.keys for one in found) == 20
    assert {each.start for one in found for each in one.operator.windows} == {1}


def test_origins_have_their_own_watermarks() -> None:
    stage = stage_of(windows.Fixed(10), SourceRules(Lag(2), origins=("input", "other")), NumberedRules())
    stage.step([*shipped(rows(1)), *ticks(0)])
    (first, *_) = summaries(stage)
    source, numbered = first.inputs
    assert [(each.name, each.status, each.watermarks) for each in source] == [
        ("input", "active", {"default": -1}),
        ("other", "active", {"default": None}),
    ]
    assert numbered == []
    assert dict(first.operator.watermarks) == {}


def test_several_event_times_and_upstream_buckets_are_listed() -> None:
    times = TimesRules((SourceRules(Lag(0), key="order"), SourceRules(Lag(0), key="paid")), key="order")
    stage = stage_of(windows.Fixed(10), times, UpstreamRules((3, 8)))
    stage.step(ticks(0))
    keyed, upstream = summaries(stage)[0].inputs
    assert keyed == []
    assert [each.name for each in upstream] == ["bucket 3", "bucket 8"]
