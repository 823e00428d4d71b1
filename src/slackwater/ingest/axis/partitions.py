"""The time axis of a job, cut into partitions.

Partitions begin where the axis begins and go on from there, so the k-th of them is always the same one:
its start is its name in the history. Calendar steps are counted from the beginning, not from the step
before, so the 31st of January is followed by the 29th of February and then by the 31st of March.
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
    """A part of a composite: from ``start`` to ``end``, by a kind of its own."""

    kind: Kind
    start: Bound
    end: Bound


@dataclass(frozen=True, slots=True)
class Partitioning:
    """How an axis is cut: by one kind, or by the kinds of its sub-ranges.

    >>> Partitioning("daily")
    Partitioning(kind='daily', parts=())
    """

    kind: Kind | None = "none"
    parts: tuple[SubRange, ...] = ()


@dataclass(frozen=True, slots=True)
class Omission:
    """A stretch of the axis that no partition covers, and why."""

    start: int
    end: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Partitions:
    """The partitions of an axis in order of time, as (start, end), and what is left out between them."""

    ranges: list[tuple[int, int]]
    omissions: tuple[Omission, ...] = ()


def partition(
    partitioning: Partitioning,
    start: int,
    end: int,
    place: tzinfo,
    *,
    now: int,
    partial: bool = True,
    clock: datetime | None = None,
) -> Partitions:
    """Cut ``[start, end)``; an empty axis has no partitions.

    ``clock`` is the time of day at which the axis begins, where clocks leave that out on its first day: days
    then go on from it, and not from the later time at which the first one really begins.

    >>> from slackwater.ingest.axis.timezones import zone
    >>> partition(Partitioning("hourly"), 0, 5 * HOUR // 2, zone("Z"), now=0).ranges
    [(0, 3600000000), (3600000000, 7200000000), (7200000000, 9000000000)]
    """
    if partitioning.kind is not None:
        ranges, tail = _cut(partitioning.kind, start, end, place, clock, partial=partial)
        return Partitions(ranges, tail)
    parts = sorted((part.start.resolve(now, place), number) for number, part in enumerate(partitioning.parts))
    ranges, omissions, reached = [], [], start
    for began, number in parts:
        part = partitioning.parts[number]
        low, high = max(start, began), min(end, part.end.resolve(now, place))
        if low >= high:
            continue
        if low > reached:
            omissions.append(Omission(reached, low, "gap"))
        shown = clock if low > began else part.start.clock(now, place)
        found, tail = _cut(part.kind, low, high, place, shown, partial=partial)
        ranges += found
        omissions += tail
        reached = high
    if reached < end:
        omissions.append(Omission(reached, end, "gap"))
    return Partitions(ranges, tuple(omissions))


def _cut(
    kind: Kind, start: int, end: int, place: tzinfo, clock: datetime | None, *, partial: bool
) -> tuple[list[tuple[int, int]], tuple[Omission, ...]]:
    if start >= end:
        return [], ()
    if kind == "none":
        return [(start, end)], ()
    starts = [start]
    complete = False
    for boundary in _boundaries(kind, start, place, clock):
        if boundary >= end:
            complete = boundary == end
            break
        if boundary > starts[-1]:  # a day that the calendar leaves out ends where it begins
            starts.append(boundary)
    if complete or partial:
        return list(pairwise([*starts, end])), ()
    return list(pairwise(starts)), (Omission(starts[-1], end, "incomplete"),)


def _boundaries(kind: Kind, start: int, place: tzinfo, clock: datetime | None) -> Iterator[int]:
    """The ends of the first, the second, … partition; they stop where the calendar does."""
    if kind == "hourly":
        yield from count(start + HOUR, HOUR)
    local = local_of(start, place) if clock is None else clock
    step = _STEPS[kind]
    for number in count(1):
        try:
            yield instant_of(step(local, number), place)
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
