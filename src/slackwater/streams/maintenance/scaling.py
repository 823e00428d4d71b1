"""Automatic scaling: measures the rates of segments, plans splits and merges, and applies them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sql

from slackwater.errors import InvalidArgument
from slackwater.metadata import store_schema as schema
from slackwater.streams.log.catalog import Stream
from slackwater.streams.log.stream_records import epochs_of
from slackwater.streams.segments.epochs import KeyRange, Segment, split_range
from slackwater.streams.settings import ScalingPolicy
from slackwater.time import SECOND

_logger = logging.getLogger(__name__)
_appends = schema.appends.c

_MAX_PARTS: Final = 16
"""Into how many segments one segment is split at a time, whatever its rate."""


@dataclass(frozen=True, slots=True)
class ScalingAction:
    """Segments to seal, and the key ranges of the segments that replace them.

    >>> ScalingAction((0,), ((0, 4), (4, 8))).seal
    (0,)
    """

    seal: tuple[int, ...]
    ranges: tuple[KeyRange, ...]


def scale_by_rate(stream: Stream, policy: ScalingPolicy) -> list[ScalingAction]:
    """Split and merge segments by their current rates, and return what was done.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     scale_by_rate(streams.create("shop/bids", segments=2), ScalingPolicy(rate=100))
    []
    """
    since = stream.store.now() - policy.window
    states = stream.segments()
    measured = {s.segment.id for s in states if not s.is_sealed and s.created_at <= since}
    query = (
        sql.select(_appends.segment, sql.func.sum(_appends.events))
        .where(_appends.stream == stream.id, _appends.segment.in_(measured), _appends.at > since)
        .group_by(_appends.segment)
    )
    events: dict[int, int] = stream.store.read(
        lambda connection: {segment: int(count) for segment, count in connection.execute(query)}
    )
    rates = {segment: events.get(segment, 0) * SECOND / policy.window for segment in measured}
    done = []
    for action in plan_scaling(policy, epochs_of(states).active, rates):
        try:
            stream.scale(action.seal, action.ranges)
        except InvalidArgument:
            # another process scaled the stream; the next run sees its current segments
            _logger.info("stream %s was scaled by another process", stream.name)
            break
        done.append(action)
    return done


def plan_scaling(
    policy: ScalingPolicy, active: Sequence[Segment], rates: Mapping[int, float]
) -> list[ScalingAction]:
    """Plan splits, or merges if no segment must be split.

    Segments with the highest rate are split first, while there are fewer segments than the maximum.

    Args:
        policy: Target rate and limits.
        active: Active segments, ordered by key range.
        rates: Events per second by segment id; segments that are too young are missing.

    >>> halves = [Segment(0, 0, 0, 4), Segment(1, 0, 4, 8)]
    >>> plan_scaling(ScalingPolicy(rate=100), halves, {0: 250.0, 1: 100.0})
    [ScalingAction(seal=(0,), ranges=((0, 2), (2, 4)))]
    >>> plan_scaling(ScalingPolicy(rate=100), halves, {0: 30.0, 1: 19.0})
    [ScalingAction(seal=(0, 1), ranges=((0, 8),))]
    >>> plan_scaling(ScalingPolicy(rate=100), halves, {0: 30.0, 1: 20.0})
    []
    """
    splits = _splits(policy, active, rates)
    return splits or _merges(policy, active, rates)


def _splits(
    policy: ScalingPolicy, active: Sequence[Segment], rates: Mapping[int, float]
) -> list[ScalingAction]:
    room = policy.maximum - len(active)
    found: list[ScalingAction] = []
    for segment in sorted(active, key=lambda segment: -rates.get(segment.id, 0)):
        rate = rates.get(segment.id, 0)
        parts = min(int(rate // policy.rate), _MAX_PARTS, room + 1, segment.high - segment.low)
        if rate >= 2 * policy.rate and parts > 1:
            found.append(ScalingAction((segment.id,), tuple(split_range((segment.low, segment.high), parts))))
            room -= parts - 1
    return found


def _merges(
    policy: ScalingPolicy, active: Sequence[Segment], rates: Mapping[int, float]
) -> list[ScalingAction]:
    spare = len(active) - policy.minimum
    found: list[ScalingAction] = []
    index = 0
    while index + 1 < len(active) and spare > 0:
        left, right = active[index], active[index + 1]
        known = left.id in rates and right.id in rates
        if known and rates[left.id] + rates[right.id] < policy.rate / 2:
            found.append(ScalingAction((left.id, right.id), ((left.low, right.high),)))
            spare -= 1
            index += 1
        index += 1
    return found
