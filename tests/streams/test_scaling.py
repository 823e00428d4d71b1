"""Scaling at its bounds, and retention cuts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import InvalidArgument
from slackwater.streams.maintenance.retention import retention_cut
from slackwater.streams.maintenance.scaling import ScalingAction, plan_scaling
from slackwater.streams.segments.cuts import Standing, check_cut, compare, stream_cut
from slackwater.streams.segments.epochs import Segment
from slackwater.streams.segments.positions import Position
from slackwater.streams.settings import ScalingPolicy
from tests.model.streams import POINTS, entries_at
from tests.strategies.streams import histories, positions

QUARTERS = [Segment(number, 0, 4 * number, 4 * number + 4) for number in range(4)]


@pytest.mark.parametrize(
    ("rate", "parts"), [(199.9, 1), (200.0, 2), (299.9, 2), (300.0, 3), (450.0, 4), (9000.0, 4)]
)
def test_a_segment_is_split_from_twice_the_rate(rate: float, parts: int) -> None:
    """A segment is split into as many as bring each near the rate; range and maximum allow at most four."""
    policy = ScalingPolicy(rate=100, maximum=7)
    planned = plan_scaling(policy, QUARTERS, {0: rate, 1: 90.0, 2: 90.0, 3: 90.0})
    assert sum(len(scaling.ranges) for scaling in planned) == (parts if parts > 1 else 0)


def test_segments_with_the_highest_rate_are_split_first() -> None:
    policy = ScalingPolicy(rate=100, maximum=5)
    [only] = plan_scaling(policy, QUARTERS, {0: 220.0, 1: 900.0, 2: 230.0, 3: 100.0})
    assert only == ScalingAction((1,), ((4, 6), (6, 8)))


def test_neighbours_are_merged_below_half_the_rate_down_to_the_minimum() -> None:
    rates = {0: 20.0, 1: 29.0, 2: 20.0, 3: 29.0}
    assert [s.seal for s in plan_scaling(ScalingPolicy(rate=100), QUARTERS, rates)] == [(0, 1), (2, 3)]
    assert [s.seal for s in plan_scaling(ScalingPolicy(rate=100, minimum=3), QUARTERS, rates)] == [(0, 1)]
    at_half = {0: 20.0, 1: 30.0, 2: 20.0, 3: 30.0}
    assert plan_scaling(ScalingPolicy(rate=100), QUARTERS, at_half) == []


def test_a_young_segment_is_not_scaled() -> None:
    assert plan_scaling(ScalingPolicy(rate=100), QUARTERS, {0: 1.0, 2: 1.0}) == []


@pytest.mark.parametrize(
    "wrong", [{"rate": 0}, {"rate": 5, "minimum": 0}, {"rate": 5, "minimum": 3, "maximum": 2}]
)
def test_an_invalid_policy_is_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        ScalingPolicy(**wrong)


@given(st.data())
def test_a_retention_cut_is_between_the_head_and_the_kept_events(data: st.DataObject) -> None:
    epochs = data.draw(histories())
    lengths = {identity: data.draw(st.integers(0, 5)) for identity in epochs.segments}
    kept_from = {
        identity: data.draw(st.integers(0, length - 1))
        for identity, length in lengths.items()
        if length and data.draw(st.booleans())
    }
    start = stream_cut(epochs, data.draw(st.lists(positions(epochs), max_size=2)))
    head = Position.of({identity: min(offset, lengths[identity]) for identity, offset in start.items()})
    cut = retention_cut(epochs, head, kept_from, lengths)
    check_cut(epochs, cut)
    assert compare(cut, head, epochs.segments) is Standing.PASSED
    for key_point in POINTS:
        [(identity, offset)] = entries_at(epochs, cut, key_point)
        [at_head] = entries_at(epochs, head, key_point)
        for kept, kept_offset in kept_from.items():
            segment = epochs.segment(kept)
            if segment.low <= key_point < segment.high and (kept, kept_offset) > at_head:
                assert (identity, offset) <= (kept, kept_offset), "what is to be kept was cut off"
