"""A watermark that follows the events and, between them, the clock (G1)."""

from __future__ import annotations

from typing import Any

import pytest

from slackwater.errors import InvalidArgument
from slackwater.progress.generator import WatermarkGenerator
from slackwater.progress.values import IDLE, Watermark
from slackwater.progress.watermark_policies import Lag, LagThenClock, lag


def generator(**options: Any) -> WatermarkGenerator:
    return WatermarkGenerator(LagThenClock(5), partitions=["a"], now=0, **options)


def test_it_advances_with_the_clock_from_the_highest_event() -> None:
    one = generator()
    assert one.tick(now=10) == (), "without an event there is nothing to continue from"
    assert one.observe("a", 1_000, now=10) == (Watermark(995),)
    assert one.observe("a", 990, now=12) == (), "the clock does not count in the step of an event"
    assert one.tick(now=13) == (Watermark(998),)


def test_an_event_is_not_late_by_its_own_arrival() -> None:
    one = generator()
    one.observe("a", 1_000, now=0)
    assert one.observe("a", 1_000, now=900) == ()
    assert one.current == 995


def test_it_does_not_go_back_when_events_continue_where_they_stopped() -> None:
    one = generator()
    one.observe("a", 1_000, now=0)
    one.tick(now=50)
    assert one.current == 1_045
    assert one.observe("a", 1_001, now=50) == ()
    assert one.tick(now=99) == (), "1001 - 5 + 49 is not above 1045"
    assert one.tick(now=100) == (Watermark(1_046),)


def test_the_time_in_which_a_partition_is_idle_does_not_count() -> None:
    one = generator(idle_after=10)
    one.observe("a", 1_000, now=0)
    assert one.tick(now=9) == (Watermark(1_004),)
    assert one.tick(now=10) == (IDLE,), "its watermark does not advance from the moment at which it is idle"
    one.tick(now=500)
    one.hear("a", now=500)
    assert one.tick(now=503) == (Watermark(1_007),)


def test_the_time_of_a_restart_does_not_count() -> None:
    one = generator()
    one.observe("a", 1_000, now=0)
    one.tick(now=3)
    one = generator().load(one.save())
    one.resume(now=900)
    assert one.tick(now=902) == (Watermark(1_000),)


def test_a_query_that_followed_events_alone_continues_from_its_watermark() -> None:
    before = WatermarkGenerator(Lag(5), partitions=["a"], now=0)
    before.observe("a", 1_000, now=0)
    assert generator().load(before.save()).tick(now=3) == (Watermark(998),)


def test_another_word_for_between_raises() -> None:
    with pytest.raises(InvalidArgument, match="between = 'events': is not a valid choice; use \"clock\""):
        lag("5 seconds", between="events")  # type: ignore[arg-type]  # the mistake that is tested
