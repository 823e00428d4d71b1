"""Partitions and plans, slowly: boundaries by trying offsets, high watermarks by asking all runs so far.

Shares nothing with the planner but the form of its answers. Everything is recomputed from what was asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Range = tuple[datetime, datetime]


def at_wall_clock(local: datetime, place: ZoneInfo) -> datetime:
    """When clocks show ``local``: the first time they do; if they never do, counted on from before."""
    around = [local.replace(tzinfo=UTC) + timedelta(days=days) for days in (-2, -1, 1, 2)]
    offsets = [moment.astimezone(place).utcoffset() for moment in around]
    candidates = [local.replace(tzinfo=UTC) - offset for offset in offsets if offset is not None]
    hits = [each for each in candidates if each.astimezone(place).replace(tzinfo=None) == local]
    return min(hits) if hits else candidates[0]


def later(local: datetime, kind: str, number: int) -> datetime:
    """The wall-clock time ``number`` steps after ``local``: the last day of a month that is too short."""
    if kind == "daily":
        return local + timedelta(days=number)
    if kind == "weekly":
        return local + timedelta(days=7 * number)
    months = local.year * 12 + local.month - 1 + (number if kind == "monthly" else 12 * number)
    for day in range(local.day, 27, -1):
        try:
            return local.replace(year=months // 12, month=months % 12 + 1, day=day)
        except ValueError:
            continue
    return local.replace(year=months // 12, month=months % 12 + 1)


def cut(kind: str, start: datetime, end: datetime, place: ZoneInfo, *, partial: bool) -> list[Range]:
    """The partitions of one kind from ``start`` to ``end``."""
    found: list[Range] = []
    number, low = 1, start
    while low < end:
        if kind == "none":
            return [(start, end)]
        if kind == "hourly":
            high = start + timedelta(hours=number)
        else:
            high = at_wall_clock(later(start.astimezone(place).replace(tzinfo=None), kind, number), place)
        number += 1
        if high <= low:
            continue
        if high <= end or partial:
            found.append((low, min(high, end)))
        low = high
    return found


@dataclass
class Done:
    """One success: the partition, the unit, how far."""

    start: datetime
    unit: str
    high: datetime


@dataclass(frozen=True)
class Rules:
    """The periods and limits under which a run is planned."""

    grace: timedelta = timedelta()
    abstinent: timedelta = timedelta()
    mode: Literal["reduce", "wait"] = "reduce"
    cap: int | None = None
    backfill: bool = False


@dataclass
class PlannerModel:
    """Every success so far; each question is answered from all of them."""

    done: list[Done] = field(default_factory=list)

    def high(self, start: datetime, unit: str) -> datetime | None:
        return max(
            (each.high for each in self.done if (each.start, each.unit) == (start, unit)), default=None
        )

    def plan(
        self, partitions: Sequence[Range], units: Sequence[str], rules: Rules, reached: datetime
    ) -> list[tuple[datetime, datetime, datetime, str]]:
        """Start of the partition, low, high and unit of everything that runs."""
        runs = []
        for start, end in partitions:
            for unit in units:
                low = self.low(start, end, unit, rules, reached)
                if low is not None:
                    runs.append((start, low, end, unit))
        return runs if rules.cap is None else runs[: rules.cap]

    def low(
        self, start: datetime, end: datetime, unit: str, rules: Rules, reached: datetime
    ) -> datetime | None:
        """Where the unit begins to read; None if it does not run."""
        high = None if rules.backfill else self.high(start, unit)
        if high is None:
            return start
        overall = max(each.high for each in self.done) - rules.grace
        own = high - rules.grace + rules.abstinent
        ended = end > own
        if rules.mode == "wait" and high < end and reached > own:
            ended = True
        if not ended or not (end > overall or high < end):
            return None
        return max(start, min(own, high) if rules.mode == "wait" else own)
