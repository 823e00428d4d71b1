"""The policy that follows events one tick later: which events count when, and its saved state."""

from __future__ import annotations

import pytest

from slackwater.errors import InvalidArgument
from slackwater.progress.generator import WatermarkGenerator
from slackwater.progress.watermark_policies import Lag, LagLikeSpark, LagThenClock, lag
from slackwater.spark.runtime.source_progress import SourceProgress, SourceRules
from slackwater.spark.wire.buffers import Observation, Peak

MS = 1_000


def watermarks(*batches: int | None, restart: bool = False) -> list[int | None]:
    """The watermark in milliseconds after micro-batches with these highest event times, or without events."""
    rules = SourceRules(LagLikeSpark(5 * MS))
    progress = SourceProgress(rules, now=0)
    found: list[int | None] = []
    for now, highest in enumerate(batches, start=1):
        observed = [] if highest is None else [Observation("input", [Peak(highest * MS, 1)])]
        progress.advance(observed, now=now)
        found.append(None if progress.watermark is None else progress.watermark // MS)
        if restart:
            progress = SourceProgress.load(rules, progress.save(), now)
    return found


@pytest.mark.parametrize("restart", [False, True])
def test_the_events_of_a_batch_count_after_the_next_batch(restart: bool) -> None:
    assert watermarks(20, 30, 40, restart=restart) == [None, 15, 25]


@pytest.mark.parametrize("restart", [False, True])
def test_a_batch_without_events_counts_those_before_it(restart: bool) -> None:
    assert watermarks(20, None, None, 40, None, restart=restart) == [None, 15, 15, 15, 35]


def test_lower_events_do_not_lower_the_watermark() -> None:
    assert watermarks(20, 10, 30, None) == [None, 15, 15, 25]


def test_event_times_are_rounded_down_to_milliseconds() -> None:
    generator = WatermarkGenerator(LagLikeSpark(0), partitions=["a"], now=0)
    generator.observe("a", -1, now=1)
    generator.tick(now=1)
    generator.tick(now=2)
    assert generator.current == -MS


def test_events_that_wait_count_at_once_under_another_policy() -> None:
    generator = WatermarkGenerator(LagLikeSpark(0), partitions=["a"], now=0)
    generator.observe("a", 7 * MS, now=1)
    for policy in (Lag(0), LagThenClock(0)):
        loaded = WatermarkGenerator(policy, now=1).load(generator.save())
        loaded.tick(now=1)
        assert loaded.current == 7 * MS
    back = WatermarkGenerator(LagLikeSpark(0), now=1).load(generator.save())
    back.tick(now=1)
    assert back.current is None


def test_a_partition_that_is_removed_or_forgotten_leaves_nothing_that_waits() -> None:
    generator = WatermarkGenerator(LagLikeSpark(0), partitions=["a", "b"], now=0, forget_after=5)
    generator.observe("a", 7 * MS, now=1)
    generator.observe("b", 9 * MS, now=4)
    generator.tick(now=6)  # forgets a
    generator.tick(now=7)
    assert generator.partitions == ("b",)
    assert generator.current == 9 * MS


def test_the_clock_cannot_be_combined_with_the_rule_of_spark() -> None:
    with pytest.raises(InvalidArgument, match="between = 'clock': cannot be combined with like_spark=True"):
        lag("5 seconds", between="clock", like_spark=True)
    with pytest.raises(InvalidArgument, match="like_spark = 1: is not a boolean"):
        lag("5 seconds", like_spark=1)  # type: ignore[arg-type]
