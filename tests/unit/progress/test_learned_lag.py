"""A lag that is learned from delays: how fast, how exact, and the same again after a restart (G1)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import slackwater as sw
from slackwater.errors import InvalidArgument, InvalidDuration
from slackwater.progress.delays import DelayHistogram
from slackwater.progress.generator import WatermarkGenerator
from slackwater.progress.values import Watermark
from slackwater.progress.watermark_policies import Lag, Learned
from slackwater.time import SECOND


def generator(policy: Learned | Lag | None = None, **options: Any) -> WatermarkGenerator:
    policy = policy or Learned(0.9, initial=5 * SECOND)
    return WatermarkGenerator(policy, partitions=["a"], now=0, **options)


def delayed(seed: int, rows: int, longest: int, start: int = 0) -> list[int]:
    """The event times of rows in the order in which they arrive, each up to ``longest`` behind the clock."""
    random = Random(seed)
    return [start + second * SECOND - random.randint(0, longest) for second in range(rows)]


def late_share(one: WatermarkGenerator, times: list[int]) -> float:
    late = 0
    for number, at in enumerate(times):
        late += one.current is not None and at < one.current
        one.observe("a", at, now=number)
    return late / len(times)


@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.99])
def test_the_share_of_rows_behind_the_watermark_is_the_one_that_was_asked_for(coverage: float) -> None:
    one, random = generator(Learned(coverage, initial=0)), Random(7)
    times = [second * SECOND - int(random.expovariate(0.1) * SECOND) for second in range(12_000)]
    late_share(one, times[:6_000])
    share = late_share(one, times[6_000:])
    assert share <= (1 - coverage) * 1.05
    assert share >= (1 - coverage) / 3, "a lag that is much too long is easy"


def test_until_enough_rows_were_seen_the_lag_is_the_initial_one_or_the_longest_delay() -> None:
    one = generator()
    one.observe("a", 100 * SECOND, now=0)
    assert one.current == 95 * SECOND
    for number in range(98):
        one.observe("a", 100 * SECOND, now=number)
    assert (one.lag, one.decisions) == (5 * SECOND, ())
    one.observe("a", 93 * SECOND, now=99)
    assert [(made.lag, made.rows) for made in one.decisions] == [(7 * SECOND, 99)], "the 99th delay: too few"
    one.observe("a", 100 * SECOND, now=100)
    assert (one.lag, one.decisions[-1].rows) == (0, 100), "10 / (1 - 0.9) delays are enough"


def test_a_longer_lag_does_not_take_the_watermark_back_and_a_shorter_one_raises_it() -> None:
    one = generator(Learned(0.9, initial=0))
    one.observe("a", 100 * SECOND, now=0)
    one.observe("a", 60 * SECOND, now=1)
    assert (one.lag, one.current) == (40 * SECOND, 100 * SECOND)
    assert one.observe("a", 130 * SECOND, now=2) == ()
    assert one.observe("a", 141 * SECOND, now=3) == (Watermark(101 * SECOND),)
    for number in range(100):
        one.observe("a", 141 * SECOND, now=number)
    assert (one.lag, one.current) == (0, 141 * SECOND)


def test_it_follows_delays_that_become_shorter_and_longer() -> None:
    one = generator(Learned(0.9, initial=0))
    lags = []
    for round_, longest in enumerate((10, 60, 10)):
        late_share(one, delayed(round_, 4_000, longest * SECOND, start=4_000 * round_ * SECOND))
        lags.append(one.lag / SECOND)
    assert lags[0] < 15
    assert 45 < lags[1] < 65
    assert lags[2] < 15


def test_the_lag_has_a_limit() -> None:
    one = generator(Learned(0.9, initial=0, at_most=3 * SECOND))
    one.observe("a", 100 * SECOND, now=0)
    one.observe("a", 10 * SECOND, now=1)
    assert one.lag == 3 * SECOND


def test_rows_too_far_in_the_future_teach_nothing() -> None:
    one = generator(Learned(0.9, initial=0), max_ahead=10)
    one.observe("a", 100, now=100)
    one.observe("a", 500 * SECOND, now=101)
    one.observe("a", 101, now=102)
    assert (one.lag, one.ahead, one.reached("a")) == (0, 1, 101)


def test_a_partition_that_is_removed_or_forgotten_begins_anew() -> None:
    one = generator(Learned(0.9, initial=0), forget_after=50)
    one.observe("a", 100 * SECOND, now=0)
    one.add("b", now=0)
    one.observe("b", 7 * SECOND, now=40)
    one.tick(now=60)
    assert one.partitions == ("b",)
    assert (one.reached("a"), one.reached("b")) == (None, 7 * SECOND)
    one.observe("b", 6 * SECOND, now=61)
    assert one.lag == SECOND
    one.remove("b", now=62)
    one.add("b", now=62)
    one.observe("b", 0, now=63)
    assert one.lag == SECOND, "what was reached before does not count"


@pytest.mark.parametrize("seed", range(5))
def test_a_restart_at_any_row_changes_no_watermark_and_no_decision(seed: int) -> None:
    times = delayed(seed, 1_500, 30 * SECOND)
    straight = generator()
    expected = [straight.observe("a", at, now=number) for number, at in enumerate(times)]
    restarted, found, random = generator(), [], Random(seed)
    for number, at in enumerate(times):
        if random.random() < 0.1:
            restarted = generator().load(restarted.save())
        found.append(restarted.observe("a", at, now=number))
    assert found == expected
    assert restarted.decisions == straight.decisions
    assert restarted.save() == straight.save()


def test_a_step_that_is_repeated_from_saved_state_decides_the_same() -> None:
    one = generator()
    for number, at in enumerate(delayed(3, 1_000, 30 * SECOND)):
        saved = one.save()
        emitted = one.observe("a", at, now=number)
        again = generator().load(saved)
        assert again.observe("a", at, now=number) == emitted
        assert (again.lag, again.decisions) == (one.lag, one.decisions)


def test_a_batch_is_learned_as_its_rows_are() -> None:
    rows, batch = generator(), generator()
    rows.observe("a", 100 * SECOND, now=0)
    batch.observe("a", 100 * SECOND, now=0)
    behind = [SECOND * number for number in range(0, 60, 3)]
    for delay in behind:
        rows.observe("a", 100 * SECOND - delay, now=1)
    batch.learn(DelayHistogram.of(behind), now=1)
    batch.observe("a", 100 * SECOND, now=1, learns=False)
    assert batch.lag == rows.lag == 57 * SECOND


def test_the_policy_of_a_stopped_query_may_change_to_a_learned_lag_and_back() -> None:
    fixed = generator(Lag(5))
    fixed.observe("a", 100, now=0)
    learning = generator(Learned(0.9, initial=50)).load(fixed.save())
    assert (learning.current, learning.lag, learning.reached("a")) == (95, 50, None)
    assert learning.observe("a", 146, now=1) == (Watermark(96),)
    back = generator(Lag(5)).load(learning.save())
    assert (back.current, back.observe("a", 200, now=2)) == (96, (Watermark(195),))


def test_state_of_version_2_loads() -> None:
    """Written by the release before learned lags, with ``WatermarkGenerator(Lag(3), partitions=["a"])``."""
    saved = bytes.fromhex(VERSION_2)
    assert generator(Lag(3)).load(saved).current == 7
    assert generator(Learned(0.9, initial=4)).load(saved).lag == 4


VERSION_2 = "0247979193a16100019491009100c29195a764656661756c740707910791010100c39090aacb59ab"


@pytest.mark.parametrize("coverage", [0, 1, 1.5, -0.1, True, "0.9", None])
def test_the_coverage_is_a_share_below_one(coverage: Any) -> None:
    with pytest.raises(
        InvalidArgument, match=r"coverage = .*is not a share above 0 and below 1; write 0.999"
    ):
        sw.learned(coverage)


def test_the_limit_is_not_below_the_initial_lag() -> None:
    assert sw.learned(0.9, initial="1 second", at_most="1 second") == Learned(0.9, SECOND, SECOND)
    with pytest.raises(InvalidDuration, match="at_most = 999999: is shorter than initial = 1000000"):
        Learned(0.9, SECOND, SECOND - 1)
    with pytest.raises(InvalidDuration, match="initial"):
        sw.learned(0.9, initial="-1 second")
