"""When a stream grows and shrinks by itself: rates in, segments to seal and their successors out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from slackwater.errors import InvalidArgument
from slackwater.streams.log.segments import KeyRange, Segment, split_range
from slackwater.time import MINUTE, check_int64

_MOST_PARTS: Final = 16
"""Into how many one segment is split at once, however hot it is."""


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """Keep every segment near ``rate`` events a second, and their number between two bounds.

    A segment that takes twice the rate is split; neighbours that together take less than half of it are
    merged. Between the two nothing happens, so that a steady load does not make the stream swing. The rate
    is that of the last ``window``, and a segment is left alone until it is that old.

    >>> ScalingPolicy(rate=1000).minimum
    1
    """

    rate: int
    minimum: int = 1
    maximum: int = 64
    window: int = 2 * MINUTE

    def __post_init__(self) -> None:
        for name in ("rate", "minimum", "maximum", "window"):
            if check_int64(getattr(self, name), name) < 1:
                fix = "give 1 or more"
                raise InvalidArgument(name, getattr(self, name), "must be greater than zero", fix=fix)
        if self.minimum > self.maximum:
            fix = f"give {self.minimum} or more"
            raise InvalidArgument("maximum", self.maximum, "lies below the minimum", fix=fix)


@dataclass(frozen=True, slots=True)
class Scaling:
    """Seal these segments, and put these ranges in their place.

    >>> Scaling((0,), ((0, 4), (4, 8))).seal
    (0,)
    """

    seal: tuple[int, ...]
    ranges: tuple[KeyRange, ...]


def plan_scaling(
    policy: ScalingPolicy, active: Sequence[Segment], rates: Mapping[int, float]
) -> list[Scaling]:
    """What to scale now. ``active`` by key range; ``rates`` in events a second, none for young segments.

    Splits come first: room that is left below the maximum goes to the hottest segments.

    >>> halves = [Segment(0, 0, 0, 4), Segment(1, 0, 4, 8)]
    >>> plan_scaling(ScalingPolicy(rate=100), halves, {0: 250.0, 1: 100.0})
    [Scaling(seal=(0,), ranges=((0, 2), (2, 4)))]
    >>> plan_scaling(ScalingPolicy(rate=100), halves, {0: 30.0, 1: 19.0})
    [Scaling(seal=(0, 1), ranges=((0, 8),))]
    >>> plan_scaling(ScalingPolicy(rate=100), halves, {0: 30.0, 1: 20.0})
    []
    """
    splits = _splits(policy, active, rates)
    return splits or _merges(policy, active, rates)


def _splits(policy: ScalingPolicy, active: Sequence[Segment], rates: Mapping[int, float]) -> list[Scaling]:
    room = policy.maximum - len(active)
    found: list[Scaling] = []
    for segment in sorted(active, key=lambda segment: -rates.get(segment.id, 0)):
        rate = rates.get(segment.id, 0)
        parts = min(int(rate // policy.rate), _MOST_PARTS, room + 1, segment.high - segment.low)
        if rate >= 2 * policy.rate and parts > 1:
            found.append(Scaling((segment.id,), tuple(split_range((segment.low, segment.high), parts))))
            room -= parts - 1
    return found


def _merges(policy: ScalingPolicy, active: Sequence[Segment], rates: Mapping[int, float]) -> list[Scaling]:
    spare = len(active) - policy.minimum
    found: list[Scaling] = []
    place = 0
    while place + 1 < len(active) and spare > 0:
        left, right = active[place], active[place + 1]
        known = left.id in rates and right.id in rates
        if known and rates[left.id] + rates[right.id] < policy.rate / 2:
            found.append(Scaling((left.id, right.id), ((left.low, right.high),)))
            spare -= 1
            place += 1
        place += 1
    return found
