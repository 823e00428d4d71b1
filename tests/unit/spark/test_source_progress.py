"""The watermark of a source, batch by batch: slow, declared and idle origins, restarts and the clock."""

from __future__ import annotations

import pytest

from slackwater.errors import InvalidDuration, UnknownSource
from slackwater.progress.watermark_policies import Clock, Lag
from slackwater.spark.runtime.source_progress import SourceProgress, SourceRules
from slackwater.spark.wire.buffers import Observation, Peak


def seen(**peaks: int) -> list[Observation]:
    return [Observation(origin, [Peak(time, 1)]) for origin, time in peaks.items()]


def test_the_slowest_origin_holds_the_watermark() -> None:
    progress = SourceProgress(SourceRules(Lag(5)), now=0)
    progress.advance(seen(a=100, b=20), now=0)
    assert progress.watermark == 15
    progress.advance(seen(a=200), now=1)
    assert progress.watermark == 15
    progress.advance(seen(b=120), now=2)
    assert progress.watermark == 115


def test_several_tasks_may_see_one_origin() -> None:
    progress = SourceProgress(SourceRules(Lag(0)), now=0)
    progress.advance([*seen(a=10), *seen(a=30), *seen(a=20)], now=0)
    assert progress.watermark == 30


def test_a_declared_origin_without_rows_is_waited_for() -> None:
    progress = SourceProgress(SourceRules(Lag(0), origins=("a", "b")), now=0)
    progress.advance(seen(a=10), now=0)
    assert progress.watermark is None
    assert progress.why().held_by == "partition 'b'"
    progress.advance(seen(b=7), now=1)
    assert progress.watermark == 7


def test_an_undeclared_origin_raises() -> None:
    progress = SourceProgress(SourceRules(Lag(0), origins=("a",)), now=0)
    with pytest.raises(UnknownSource, match="'b'"):
        progress.advance(seen(b=7), now=0)


def test_an_origin_is_idle_after_exactly_idle_after() -> None:
    progress = SourceProgress(SourceRules(Lag(0), idle_after=10), now=0)
    progress.advance(seen(a=10, b=5), now=0)
    for now in (4, 8, 9):
        progress.advance(seen(a=10 + now), now=now)
        assert progress.watermark == 5
    progress.advance(seen(a=20), now=10)
    assert progress.watermark == 20


def test_a_slow_batch_makes_no_origin_idle() -> None:
    progress = SourceProgress(SourceRules(Lag(0), idle_after=10), now=0)
    progress.advance(seen(a=10, b=5), now=0)
    progress.advance(seen(a=20), now=500)
    assert progress.watermark == 5
    progress.advance(seen(b=15), now=501)
    assert progress.watermark == 15


def test_all_active_origins_count_before_any_becomes_idle() -> None:
    progress = SourceProgress(SourceRules(Lag(0), idle_after=10), now=0)
    progress.advance(seen(a=10, b=5), now=0)
    progress.advance([], now=5)
    progress.advance([], now=9)
    progress.advance(seen(a=50, b=6), now=60)
    assert progress.watermark == 6


def test_the_time_of_a_restart_does_not_count_towards_idle_after() -> None:
    rules = SourceRules(Lag(0), idle_after=10)
    progress = SourceProgress(rules, now=0)
    progress.advance(seen(a=10, b=5), now=0)
    progress.advance(seen(a=11), now=4)
    progress = SourceProgress.load(rules, progress.save(), now=4)
    progress.advance(seen(a=12), now=1_000, restarted=True)
    assert progress.watermark == 5
    progress.advance(seen(a=13), now=1_005)
    assert progress.watermark == 5, "b has been silent for 4 before and 5 after the restart"
    progress.advance(seen(a=14), now=1_006)
    assert progress.watermark == 14


def test_the_watermark_survives_a_restart_without_new_rows() -> None:
    rules = SourceRules(Lag(0))
    progress = SourceProgress(rules, now=0)
    progress.advance(seen(a=10, b=20), now=0)
    progress = SourceProgress.load(rules, progress.save(), now=0)
    progress.advance(seen(a=30), now=1, restarted=True)
    assert progress.watermark == 20


def test_an_idle_origin_that_sends_again_is_waited_for() -> None:
    progress = SourceProgress(SourceRules(Lag(0), idle_after=10), now=0)
    progress.advance(seen(a=10, b=5), now=0)
    for now in (5, 10):
        progress.advance(seen(a=100), now=now)
    assert progress.watermark == 100
    progress.advance(seen(a=200, b=150), now=11)
    assert progress.watermark == 150


def test_a_row_beyond_max_ahead_does_not_advance_the_watermark() -> None:
    progress = SourceProgress(SourceRules(Lag(0), max_ahead=10), now=0)
    mixed = Observation("a", [Peak(9_000, 3), Peak(111, 1), Peak(110, 2), Peak(50, 7)])
    assert progress.advance([mixed], now=100) == 4
    assert progress.watermark == 110, "exactly max_ahead is not too far"


def test_an_origin_with_only_future_rows_is_active_and_holds_the_watermark() -> None:
    progress = SourceProgress(SourceRules(Lag(0), max_ahead=10, idle_after=10), now=100)
    progress.advance([*seen(a=90), Observation("b", [Peak(9_000, 3)])], now=100)
    assert progress.watermark is None
    progress.advance([*seen(a=95), *seen(b=60)], now=104)
    assert progress.watermark == 60


def test_a_clock_policy_follows_the_clock_without_rows() -> None:
    progress = SourceProgress(SourceRules(Clock(5)), now=100)
    progress.advance(seen(a=98), now=100)
    assert progress.watermark == 95
    progress.advance([], now=200)
    assert progress.watermark == 195


def test_a_changed_lag_never_lowers_the_watermark() -> None:
    progress = SourceProgress(SourceRules(Lag(0)), now=0)
    progress.advance(seen(a=100), now=0)
    progress = SourceProgress.load(SourceRules(Lag(50)), progress.save(), now=0)
    progress.advance(seen(a=120), now=1)
    assert progress.watermark == 100


def test_the_error_for_an_undeclared_origin_names_the_argument() -> None:
    progress = SourceProgress(SourceRules(Lag(0), origins=("a",)), now=0)
    with pytest.raises(UnknownSource, match=r"unknown origin 'b' \(known: a\); add it to origins="):
        progress.advance([Observation("a", [Peak(1, 1)]), Observation("b", [Peak(1, 1)])], now=0)


# ---- forgotten origins


def test_an_origin_is_forgotten_after_exactly_forget_after() -> None:
    progress = SourceProgress(SourceRules(Lag(0), forget_after=10), now=0)
    progress.advance(seen(a=10, b=5), now=0)
    progress.advance(seen(a=20), now=9)
    assert progress.watermark == 5
    progress.advance(seen(a=30), now=10)
    assert progress.watermark == 30
    assert progress.why().held_by == "partition 'a'"


def test_a_forgotten_origin_that_sends_again_is_new_and_no_watermark_goes_back() -> None:
    progress = SourceProgress(SourceRules(Lag(0), idle_after=4, forget_after=10), now=0)
    progress.advance(seen(a=10, b=5), now=0)
    for now in range(2, 14, 2):
        progress.advance(seen(a=10 * now), now=now)
    assert progress.watermark == 120
    progress.advance(seen(a=130, b=6), now=13)
    assert progress.watermark == 120
    progress.advance(seen(a=140, b=135), now=14)
    assert progress.watermark == 135


def test_the_state_does_not_grow_with_every_origin_that_ever_existed() -> None:
    rules = SourceRules(Lag(0), idle_after=4, forget_after=20)
    progress, sizes = SourceProgress(rules, now=0), []
    for now in range(200):
        progress.advance([Observation(f"device {now}", [Peak(now, 1)]), *seen(a=now)], now=now)
        sizes.append(len(progress.save()))
        progress = SourceProgress.load(rules, progress.save(), now=now)
    assert max(sizes[100:]) <= max(sizes[:30]) * 1.5
    assert progress.watermark is not None
    assert progress.watermark > 190


def test_a_stream_whose_origins_are_all_forgotten_is_idle() -> None:
    progress = SourceProgress(SourceRules(Lag(0), forget_after=10), now=0)
    progress.advance(seen(a=10, b=5), now=0)
    progress.advance([], now=10)
    assert progress.idle
    assert progress.watermark == 10, "the top observed, as for origins that are idle"
    progress.advance(seen(c=40), now=11)
    assert (progress.idle, progress.watermark) == (False, 40)


def test_the_time_of_a_restart_does_not_count_towards_forget_after() -> None:
    rules = SourceRules(Lag(0), forget_after=10)
    progress = SourceProgress(rules, now=0)
    progress.advance(seen(a=10, b=5), now=0)
    progress = SourceProgress.load(rules, progress.save(), now=0)
    progress.advance(seen(a=20), now=1_000, restarted=True)
    assert progress.watermark == 5


@pytest.mark.parametrize("forget_after", [0, 9])
def test_forgetting_needs_a_time_that_is_not_shorter_than_idleness(forget_after: int) -> None:
    with pytest.raises(InvalidDuration, match=r"forget_after = .*not shorter than idle_after"):
        SourceRules(Lag(0), idle_after=10, forget_after=forget_after).generator(0)
