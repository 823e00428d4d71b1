"""The histogram of delays: its size, its error, and that it is combined in any order (decision 0017)."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.progress.delays import DelayHistogram
from slackwater.time import DAY, MILLISECOND

YEARS_80 = 80 * 365 * DAY
DELAYS = st.one_of(st.integers(-5, 5_000), st.integers(0, YEARS_80), st.just(2**62))
SEVERAL = st.lists(DELAYS, min_size=1, max_size=60)


def exact_quantile(delays: list[int], share: float) -> int:
    """The smallest delay that at least this share of the rows does not exceed."""
    ordered = sorted(max(0, delay) for delay in delays)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@given(SEVERAL, st.sampled_from([0.0, 0.5, 0.9, 0.99, 0.999, 1.0]))
def test_a_lag_is_at_most_a_tenth_above_the_exact_one(delays: list[int], share: float) -> None:
    delays = [min(delay, YEARS_80) for delay in delays]
    exact = exact_quantile(delays, share)
    found = DelayHistogram.of(delays).quantile(share)
    assert exact - MILLISECOND <= found <= max(1.1 * exact + 1, MILLISECOND)


@given(SEVERAL, DELAYS)
def test_the_rows_within_a_lag_are_those_within_it_or_a_tenth_more(delays: list[int], lag: int) -> None:
    lag = max(MILLISECOND, lag)
    within = round(DelayHistogram.of(delays).share_within(lag) * len(delays))
    assert within >= sum(delay <= lag for delay in delays)
    if lag <= YEARS_80:
        assert within <= sum(delay <= 1.1 * lag + 1 for delay in delays)


@given(st.lists(SEVERAL, min_size=1, max_size=6))
def test_order_and_grouping_of_combining_do_not_matter(parts: list[list[int]]) -> None:
    whole = DelayHistogram.of([delay for part in parts for delay in part])
    forwards, backwards = DelayHistogram({}), DelayHistogram({})
    for part in parts:
        forwards.add(DelayHistogram.of(part))
    for part in reversed(parts):
        backwards.add(DelayHistogram.of(part[::-1]))
    assert forwards == backwards == whole


@pytest.mark.parametrize("rows", [1, 2**40])
def test_the_size_is_bounded_whatever_the_delays_are(rows: int) -> None:
    histogram = DelayHistogram({})
    for exponent in range(6_400):
        histogram.count(int(2 ** (exponent / 100)), rows)
    assert len(histogram.bins) <= 301
    assert len(msgspec.json.encode(histogram)) < 301 * 24
