"""Reference model of partitions and plans, slow and simple.

Boundaries are found by trying UTC offsets; high watermarks and failed reads are recomputed from all reads so
far. The model shares nothing with the planner except the form of its results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Range = tuple[datetime, datetime]


def at_wall_clock(local: datetime, zone: ZoneInfo) -> datetime:
    """The first instant at which clocks show ``local``; in a gap, with the offset before it."""
    around = [local.replace(tzinfo=UTC) + timedelta(days=days) for days in (-2, -1, 1, 2)]
    offsets = [moment.astimezone(zone).utcoffset() for moment in around]
    candidates = [local.replace(tzinfo=UTC) - offset for offset in offsets if offset is not None]
    hits = [each for each in candidates if each.astimezone(zone).replace(tzinfo=None) == local]
    return min(hits) if hits else candidates[0]


def later(local: datetime, kind: str, number: int) -> datetime:
    """The wall-clock time ``number`` steps after ``local``; in a month that is too short, its last day."""
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


def cut(kind: str, start: datetime, end: datetime, zone: ZoneInfo, *, partial: bool) -> list[Range]:
    """The partitions of one kind from ``start`` to ``end``."""
    found: list[Range] = []
    number, low = 1, start
    while low < end:
        if kind == "none":
            return [(start, end)]
        if kind == "hourly":
            high = start + timedelta(hours=number)
        else:
            high = at_wall_clock(later(start.astimezone(zone).replace(tzinfo=None), kind, number), zone)
        number += 1
        if high <= low:
            continue
        if high <= end or partial:
            found.append((low, min(high, end)))
        low = high
    return found


@dataclass(frozen=True)
class Read:
    """One read that ended: its partition, its unit, its range, and whether it succeeded."""

    start: datetime
    unit: str
    low: datetime
    high: datetime
    succeeded: bool


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
    """All reads so far, in order; every plan is computed from them."""

    reads: list[Read] = field(default_factory=list)

    def high(self, start: datetime, unit: str) -> datetime | None:
        """H: the highest end of a successful read."""
        good = (each.high for each in self._of(start, unit) if each.succeeded)
        return max(good, default=None)

    def owed(self, start: datetime, unit: str) -> datetime | None:
        """D: the lowest low of the reads that failed since the last success."""
        since: list[datetime] = []
        for each in self._of(start, unit):
            since = [] if each.succeeded else [*since, each.low]
        return min(since, default=None)

    def _of(self, start: datetime, unit: str) -> list[Read]:
        return [each for each in self.reads if (each.start, each.unit) == (start, unit)]

    def plan(
        self, partitions: Sequence[Range], units: Sequence[str], rules: Rules, reached: datetime
    ) -> list[tuple[datetime, datetime, datetime, str]]:
        """Partition start, low, high and unit of everything that runs."""
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
        """The low of the unit; None if it does not run."""
        high = None if rules.backfill else self.high(start, unit)
        if high is None:
            return start
        overall = max(each.high for each in self.reads if each.succeeded) - rules.grace
        own = high - rules.grace + rules.abstinent
        ended = end > own
        if rules.mode == "wait" and high < end and reached > own:
            ended = True
        low = min(own, high) if rules.mode == "wait" else own
        owed = self.owed(start, unit)
        if owed is not None and min(low, owed) < end:
            return max(start, min(low, owed))
        if not ended or not (end > overall or high < end):
            return None
        return max(start, low)
