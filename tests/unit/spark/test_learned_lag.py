"""A learned lag in buckets: every bucket learns the same from the same batches, and again after a failure."""

from __future__ import annotations

import copy
from random import Random

import polars as pl
import pytest

from slackwater import windows
from slackwater.progress.watermark_policies import Lag, Learned
from slackwater.spark.monitor.reports import BucketReport
from slackwater.spark.runtime.bucket import OperatorPlan
from slackwater.spark.runtime.keyed_progress import TimesProgress, TimesRules
from slackwater.spark.runtime.source_progress import SourceProgress, SourceRules
from slackwater.spark.wire.buffers import Observation, Peak
from slackwater.spark.wire.wire_columns import ORIGIN, TIME
from slackwater.time import SECOND
from tests.support.windowed import Options
from tests.unit.spark.bucket_stages import BUCKETS, Stage, host, shipped, ticks

POLICY = Learned(0.9, initial=60 * SECOND)


def stage(policy: Learned | Lag = POLICY) -> Stage:
    operator = host(Options(windows.Fixed(10 * SECOND)))
    return Stage(OperatorPlan((SourceRules(policy),), operator, reporter=BUCKETS[0]))


def batch(number: int, seed: int = 0) -> pl.DataFrame:
    """Fifty rows of two origins in ten seconds; one in ten is up to twenty seconds behind."""
    random = Random(1_000 * seed + number)
    rows = [
        (
            random.choice("ab"),
            random.choice("xyz"),
            10 * SECOND * number + random.randint(0, 10 * SECOND) - random.choice([0] * 9 + [20]) * SECOND,
            1,
        )
        for _ in range(50)
    ]
    return pl.DataFrame(rows, schema=[ORIGIN, "key", TIME, "value"], orient="row")


def step(of: Stage, number: int, rows: pl.DataFrame) -> list[BucketReport]:
    buffers = shipped(rows, learned=("default",))
    return [output.report for output in of.step([*buffers, *ticks(10 * number * SECOND)])]


def progress(reports: list[BucketReport]) -> list[object]:
    return [(report.watermark, report.why, report.policy_lags, report.totals) for report in reports]


def test_all_buckets_use_the_same_lag_and_one_reports_it() -> None:
    windowed = stage()
    for number in range(11):
        first, *others = step(windowed, number, batch(number))
        assert {report.watermark for report in others} == {first.watermark}
        assert [report.policy_lags for report in others] == [()] * len(others)
    (lag,) = step(windowed, 11, batch(11))[0].policy_lags
    assert (lag.name, lag.coverage) == ("default", 0.9)
    assert 0 < lag.lag <= 22 * SECOND, "the initial minute is over"
    assert lag.since is not None


@pytest.mark.search
def test_the_order_of_rows_and_a_repeated_batch_change_nothing() -> None:
    straight, repeated = stage(), stage()
    for number in range(12):
        rows = batch(number)
        expected = progress(step(straight, number, rows))
        before = copy.deepcopy((repeated.saved, repeated.blobs))
        step(repeated, number, rows.sample(fraction=1, shuffle=True, seed=number))
        repeated.saved, repeated.blobs = before  # the batch failed after the state was computed
        assert progress(step(repeated, number, rows)) == expected


@pytest.mark.search
def test_rows_behind_the_watermark_are_about_as_many_as_the_coverage_allows() -> None:
    windowed, late, rows = stage(), 0, 0
    before: int | None = None
    for number in range(120):
        frame = batch(number, seed=1)
        if number > 20:
            late += frame.filter(pl.col(TIME) < before).height
            rows += frame.height
        before = step(windowed, number, frame)[0].watermark
    assert late / rows <= 0.1


@pytest.mark.search
def test_a_batch_that_spans_a_day_in_order_teaches_no_delay() -> None:
    windowed = stage(Learned(0.9, initial=0))
    lags = []
    for number in range(4):
        times = [86_400 * SECOND * number + 600 * SECOND * index for index in range(1, 144)]
        frame = pl.DataFrame({ORIGIN: "a", "key": "x", TIME: times, "value": 1})
        lags += [lag.lag for lag in step(windowed, number, frame)[0].policy_lags]
    assert lags == [0] * 4


def test_an_origin_whose_latest_time_is_too_far_in_the_future_teaches_nothing_in_that_batch() -> None:
    progress = SourceProgress(SourceRules(Learned(0.9, initial=0), max_ahead=10 * SECOND), now=0)
    progress.advance([Observation("a", [Peak(5 * SECOND, 1)], bins=[0], rows=[1])], now=5 * SECOND)
    wrong = Observation("a", [Peak(900 * SECOND, 1), Peak(6 * SECOND, 1)], bins=[0, 692], rows=[1, 1])
    assert progress.advance([wrong], now=6 * SECOND) == 1
    assert (progress.lags[0].lag, progress.watermark) == (0, 6 * SECOND)


def test_each_event_time_learns_its_own_lag() -> None:
    keys = SourceRules(Learned(0.9, initial=0), key="order"), SourceRules(Lag(5), key="shipped")
    progress = TimesProgress(TimesRules(keys, key="shipped"), now=0)
    for number, at in enumerate((100, 90)):
        seen = [
            Observation("a", [Peak(at * SECOND, 1)], "order", bins=[0], rows=[1]),
            Observation("a", [Peak(at * SECOND, 1)], "shipped"),
        ]
        progress.advance(seen, now=number)
    assert [(lag.name, lag.lag) for lag in progress.lags] == [("shipped", 5), ("order", 10 * SECOND)]


@pytest.mark.parametrize("learned", [(), ("default",)])
def test_only_a_policy_that_learns_sends_the_distribution_of_times(learned: tuple[str, ...]) -> None:
    (bucket, header, _), *_ = shipped(batch(0), learned=learned)
    assert bucket == BUCKETS[0]
    assert all(bool(seen.bins) == bool(learned) for seen in header.observations)
    if learned:
        assert sum(map(sum, (seen.rows for seen in header.observations))) == 25, "every row of the task"
