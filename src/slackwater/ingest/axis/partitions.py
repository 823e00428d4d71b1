"""Partitions of the time axis.

Partitions are counted from the start of the axis, so the k-th one is always the same: its start identifies it
in the history. Calendar steps are counted from the start too, not from the previous step, so 31 January is
followed by 29 February and then by 31 March.
"""

from __future__ import annotations

import calendar
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from itertools import count, pairwise
from typing import Final, Literal, get_args

from slackwater.ingest.axis.bounds import Bound
from slackwater.ingest.axis.timezones import instant_of, local_of
from slackwater.time import HOUR

Kind = Literal["none", "hourly", "daily", "weekly", "monthly", "yearly"]
KINDS: Final[tuple[str, ...]] = get_args(Kind)
Reason = Literal["gap", "incomplete"]


@dataclass(frozen=True, slots=True)
class SubRange:
    """A sub-range of a composite partitioning, with its own kind."""

    kind: Kind
    start: Bound
    end: Bound


@dataclass(frozen=True, slots=True)
class Partitioning:
    """How an axis is partitioned: by one kind, or by the kinds of its sub-ranges.

    >>> Partitioning("daily")
    Partitioning(kind='daily', sub_ranges=())
    """

    kind: Kind | None = "none"
    sub_ranges: tuple[SubRange, ...] = ()


@dataclass(frozen=True, slots=True)
class Omission:
    """A range of the axis that no partition covers, with the reason."""

    start: int
    end: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Partitions:
    """The partitions of an axis in time order, as (start, end), and the ranges that they leave out."""

    ranges: list[tuple[int, int]]
    omissions: tuple[Omission, ...] = ()


def partition(
    partitioning: Partitioning,
    start: int,
    end: int,
    tz: tzinfo,
    *,
    now: int,
    partial: bool = True,
    clock: datetime | None = None,
) -> Partitions:
    """Partition ``[start, end)``; an empty axis has no partitions.

    ``clock`` is the wall-clock time at which the axis starts, where that lies in a DST gap of the first day:
    later days start at that time of day, not at the later one at which the first day really starts.

    >>> from slackwater.ingest.axis.timezones import zone
    >>> partition(Partitioning("hourly"), 0, 5 * HOUR // 2, zone("Z"), now=0).ranges
    [(0, 3600000000), (3600000000, 7200000000), (7200000000, 9000000000)]
    """
    if partitioning.kind is not None:
        ranges, tail = _cut(partitioning.kind, start, end, tz, clock, partial=partial)
        return Partitions(ranges, tail)
    sub_ranges = sorted(
        (each.start.resolve(now, tz), number) for number, each in enumerate(partitioning.sub_ranges)
    )
    ranges, omissions, reached = [], [], start
    for began, number in sub_ranges:
        part = partitioning.sub_ranges[number]
        low, high = max(start, began), min(end, part.end.resolve(now, tz))
        if low >= high:
            continue
        if low > reached:
            omissions.append(Omission(reached, low, "gap"))
        shown = clock if low > began else part.start.clock(now, tz)
        found, tail = _cut(part.kind, low, high, tz, shown, partial=partial)
        ranges += found
        omissions += tail
        reached = high
    if reached < end:
        omissions.append(Omission(reached, end, "gap"))
    return Partitions(ranges, tuple(omissions))


def divide(low: int, high: int, count: int) -> list[tuple[int, int]]:
    """Divide ``[low, high)`` into ``count`` parts of equal length; parts without any length are left out.

    >>> divide(0, 10, 3), divide(0, 1, 2)
    ([(0, 3), (3, 6), (6, 10)], [(0, 1)])
    """
    bounds = [low + (high - low) * number // count for number in range(count + 1)]
    return [(start, end) for start, end in pairwise(bounds) if start < end]


def _cut(
    kind: Kind, start: int, end: int, tz: tzinfo, clock: datetime | None, *, partial: bool
) -> tuple[list[tuple[int, int]], tuple[Omission, ...]]:
    if start >= end:
        return [], ()
    if kind == "none":
        return [(start, end)], ()
    starts = [start]
    complete = False
    for boundary in _boundaries(kind, start, tz, clock):
        if boundary >= end:
            complete = boundary == end
            break
        if boundary > starts[-1]:  # a day that the calendar skips is empty
            starts.append(boundary)
    if complete or partial:
        return list(pairwise([*starts, end])), ()
    return list(pairwise(starts)), (Omission(starts[-1], end, "incomplete"),)


def _boundaries(kind: Kind, start: int, tz: tzinfo, clock: datetime | None) -> Iterator[int]:
    """The ends of the first, second, … partition, up to the end of the calendar."""
    if kind == "hourly":
        yield from count(start + HOUR, HOUR)
    local = local_of(start, tz) if clock is None else clock
    step = _STEPS[kind]
    for number in count(1):
        try:
            yield instant_of(step(local, number), tz)
        except (OverflowError, ValueError):  # the year 10000
            return


def _months(local: datetime, number: int) -> datetime:
    years, month = divmod(local.month - 1 + number, 12)
    year = local.year + years
    day = min(local.day, calendar.monthrange(year, month + 1)[1])
    return local.replace(year=year, month=month + 1, day=day)


_STEPS: Final[dict[str, Callable[[datetime, int], datetime]]] = {
    "daily": lambda local, number: local + timedelta(days=number),
    "weekly": lambda local, number: local + timedelta(weeks=number),
    "monthly": _months,
    "yearly": lambda local, number: _months(local, 12 * number),
}
