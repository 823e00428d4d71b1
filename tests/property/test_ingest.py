"""The planner against its reference model, and its guarantees over any history of runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import example, given, settings
from hypothesis import strategies as st

from slackwater.ingest import History, Plan, WorkUnit, parse_job, plan
from slackwater.ingest.axis.partitions import KINDS, Kind, Partitioning, partition
from slackwater.ingest.units import unit_of
from slackwater.time import instant, to_datetime
from tests.model.ingest import PlannerModel, Read, Rules, cut

ZONES = (
    *("UTC", "America/Los_Angeles", "Europe/Berlin", "Asia/Kathmandu"),
    *("Pacific/Apia", "Australia/Lord_Howe", "America/Sao_Paulo", "America/Havana"),
)
"""Among them a day left out, half an hour of summer time, and midnights that are left out or come twice."""
BEGIN = datetime(2020, 3, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
UNITS = ("a", "b", "c")
TIMEZONES = ("UTC", "America/Los_Angeles", "America/Havana", "Pacific/Apia")
"""Whole hours from UTC; clocks change on the 8th in two of them, in one of these at midnight."""
SIMPLE = ("none", "hourly", "daily", "weekly")
SPLIT = (
    '{"weekly": ["2020-03-01", "2020-03-08"], "hourly": ["2020-03-08", "2020-03-09"], '
    '"daily": ["2020-03-09", "-"]}'
)
"""Sub-ranges without a gap between them, in the job's timezone; what is before them is left out."""


# ---- partitions


def midnight(moment: datetime, timezone: ZoneInfo) -> datetime:
    local = moment.astimezone(timezone).replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    return local.astimezone(UTC)


@given(
    kind=st.sampled_from(KINDS),
    zone=st.sampled_from(ZONES),
    start=st.datetimes(datetime(2005, 1, 1), datetime(2021, 1, 1)),  # noqa: DTZ001 - a strategy takes no zone
    minutes=st.one_of(st.integers(1, 60 * 48), st.integers(1, 60 * 24 * 900)),
    on_a_day=st.booleans(),
    partial=st.booleans(),
)
@settings(max_examples=3 * settings().max_examples)
def test_partitions_are_those_of_the_model(
    kind: Kind, zone: str, start: datetime, minutes: int, on_a_day: bool, partial: bool
) -> None:
    low = start.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    if on_a_day:
        low = midnight(low, ZoneInfo(zone))
    high = low + timedelta(minutes=min(minutes, 60 * 24 * 40) if kind == "hourly" else minutes)
    wanted = cut(kind, low, high, ZoneInfo(zone), partial=partial)
    got = partition(Partitioning(kind), instant(low), instant(high), ZoneInfo(zone), now=0, partial=partial)
    assert [(to_datetime(one), to_datetime(other)) for one, other in got.ranges] == wanted
    left = [(to_datetime(each.start), to_datetime(each.end)) for each in got.omissions]
    covered = sorted(wanted + left)
    assert [covered[0][0], covered[-1][1]] == [low, high]
    assert all(one[1] == other[0] for one, other in pairwise(covered))


# ---- plans


@dataclass(frozen=True)
class Run:
    """One run of a job, with the configuration it finds."""

    hours: int
    """When, counted from the beginning; clocks may go back."""
    kind: str
    start: int
    end: int | None
    units: tuple[str, ...]
    grace: int
    abstinent: int
    mode: str
    cap: int | None
    partial: bool
    timezone: str
    failed: frozenset[int]

    @property
    def now(self) -> datetime:
        return BEGIN + self.hours * HOUR

    def keys(self) -> dict[str, Any]:
        to = "P0DT0H" if self.end is None else f"{BEGIN + self.end * HOUR:%Y-%m-%d %H:%M:%S}Z"
        begin = f"{BEGIN + self.start * HOUR:%Y-%m-%d %H:%M:%S}Z"
        return {
            "ms.watermark": [
                {"name": "system", "type": "datetime", "range": {"from": begin, "to": to}},
                {"name": "id", "type": "unit", "units": list(self.units)},
            ],
            "ms.timezone": self.timezone,
            "ms.work.unit.partition": self.kind,
            "ms.work.unit.partial.partition": self.partial,
            "ms.grace.period": f"PT{self.grace}H",
            "ms.abstinent.period": f"PT{self.abstinent}H",
            "ms.abstinent.mode": self.mode,
            "ms.work.unit.parallelism.max": -1 if self.cap is None else self.cap,
        }

    def rules(self) -> Rules:
        return Rules(
            self.grace * HOUR, self.abstinent * HOUR, "wait" if self.mode == "wait" else "reduce", self.cap
        )

    @property
    def to(self) -> datetime:
        return self.now if self.end is None else BEGIN + self.end * HOUR


def runs(**fixed: Any) -> st.SearchStrategy[list[Run]]:
    """Any sequence of runs; what is given here is the same in all of them."""
    varying: dict[str, st.SearchStrategy[Any]] = {
        "hours": st.integers(0, 24 * 20),
        "kind": st.sampled_from([*SIMPLE, "monthly", SPLIT]),
        "start": st.integers(0, 30),
        "end": st.none() | st.integers(0, 24 * 20),
        "units": st.lists(st.sampled_from(UNITS), min_size=1, unique=True).map(tuple),
        "grace": st.sampled_from([0, 0, 1, 5, 24, 80]),
        "abstinent": st.sampled_from([0, 0, 1, 5, 30, 80]),
        "mode": st.sampled_from(["reduce", "wait"]),
        "cap": st.none() | st.integers(1, 5),
        "partial": st.booleans(),
        "timezone": st.sampled_from(TIMEZONES),
        "failed": st.frozensets(st.integers(0, 6)),
    }
    shared = {name: strategy for name, strategy in fixed.items() if name in varying}
    return st.fixed_dictionaries(shared).flatmap(
        lambda same: st.lists(
            st.builds(Run, **{**varying, **{name: st.just(value) for name, value in same.items()}}),
            min_size=1,
            max_size=8,
        )
    )


Failure = tuple[str, int, int, int]
"""A read that failed: unit, partition start, and the hours of its range."""


@dataclass
class World:
    """Runs a job again and again, and counts how often every hour of every unit was read."""

    history: History = field(default_factory=History)
    read: Counter[tuple[str, int]] = field(default_factory=Counter)
    shown: set[tuple[str, int]] = field(default_factory=set)
    """The hours that a plan showed as left out."""
    owed: set[Failure] = field(default_factory=set)
    """Reads that failed and that no later read of the unit has covered."""

    def run(self, each: Run) -> Plan:
        made = plan(parse_job(each.keys(), environment={}), self.history, instant(each.now))
        for skipped in made.skipped:
            if (lost := skipped.left_out) is not None:
                self.shown |= hours(skipped.unit.as_dict()["id"], lost.start, lost.end)
        for index, work in enumerate(made.units):
            name = str(work.unit.as_dict()["id"])
            if work.left_out is not None:
                self.shown |= hours(name, work.left_out.start, work.left_out.end)
            if index in each.failed:
                self.history.failed(work.start, work.unit.key, work.low)
                self.owed.add((name, work.start, hour_of(work.low), hour_of(work.high)))
            else:
                self.read.update(hours(name, work.low, work.high))
                self.history.succeeded(work.start, work.unit.key, work.high)
                covered = (hour_of(work.low), hour_of(work.high))
                self.owed = {
                    one
                    for one in self.owed
                    if one[:2] != (name, work.start) or one[2] < covered[0] or one[3] > covered[1]
                }
        return made


def hour_of(at: int) -> int:
    return (to_datetime(at) - BEGIN) // HOUR


def hours(unit: str | None, low: int, high: int) -> set[tuple[str, int]]:
    return {(str(unit), hour) for hour in range(hour_of(low), hour_of(high))}


@given(runs(start=st.integers(0, 30), kind=st.sampled_from([*SIMPLE, "monthly"])))
def test_plans_are_those_of_the_model(sequence: list[Run]) -> None:
    model, world = PlannerModel(), World()
    for each in sequence:
        begin, timezone = BEGIN + each.start * HOUR, ZoneInfo(each.timezone)
        partitions = cut(each.kind, begin, each.to, timezone, partial=each.partial)
        wanted = model.plan(partitions, each.units, each.rules(), each.now)
        made = world.run(each)
        assert [_row(work) for work in made.units] == wanted
        ran = {(work.start, work.unit.key) for work in made.units}
        rest = {(unit.start, unit.unit.key) for unit in made.skipped}
        everything = {
            (instant(start), unit_of({"id": unit}).key) for start, _ in partitions for unit in each.units
        }
        assert ran | rest == everything
        assert not ran & rest
        model.reads += [
            Read(start, unit, low, high, index not in each.failed)
            for index, (start, low, high, unit) in enumerate(wanted)
        ]


def _row(work: WorkUnit) -> tuple[datetime, datetime, datetime, str]:
    return (
        to_datetime(work.start),
        to_datetime(work.low),
        to_datetime(work.high),
        str(work.unit.as_dict()["id"]),
    )


def finish(world: World, last: Run) -> None:
    """Runs without failures and limits until nothing is left, days apart, so that no unit waits any more."""
    for days in range(1, 5):
        later = Run(
            **{**last.__dict__, "hours": 24 * (20 + 4 * days), "end": 24 * 20, "units": UNITS, "cap": None,
               "failed": frozenset(), "partial": True}
        )  # fmt: skip
        world.run(later)


@given(
    runs(
        start=st.just(30),  # in every timezone later than the first of March
        kind=st.sampled_from([*SIMPLE, "monthly", SPLIT]),
        timezone=st.sampled_from(TIMEZONES),
        grace=st.just(0),
        abstinent=st.sampled_from([0, 30]),
        mode=st.just("wait"),
    )
)
def test_without_grace_everything_is_read_exactly_once(sequence: list[Run]) -> None:
    world = World()
    for each in sequence:
        world.run(each)
    finish(world, sequence[-1])
    assert world.read == Counter({(unit, hour): 1 for unit in UNITS for hour in range(30, 24 * 20)})


@given(runs(mode=st.just("wait")))
def test_whatever_is_changed_everything_is_read_at_least_once(sequence: list[Run]) -> None:
    world = World()
    for each in sequence:
        world.run(each)
    last = sequence[-1]
    finish(world, last)
    begin = max(last.start, 30) if last.kind == SPLIT else last.start
    assert {(unit, hour) for unit in UNITS for hour in range(begin, 24 * 20)} <= world.read.keys()


AT_EQUALITY = Run(
    hours=67, kind="daily", start=0, end=None, units=("a",), grace=0, abstinent=5, mode="reduce", cap=None,
    partial=True, timezone="UTC", failed=frozenset(),
)  # fmt: skip
"""The last day is read to hour 67, so its own cut-off is hour 72, where the day ends."""


@given(runs(start=st.just(0), kind=st.sampled_from(SIMPLE), timezone=st.just("UTC"), mode=st.just("reduce")))
@example([AT_EQUALITY])
def test_what_the_abstinent_period_leaves_out_is_shown(sequence: list[Run]) -> None:
    world = World()
    for each in sequence:
        world.run(each)
    finish(world, sequence[-1])
    everything = {(unit, hour) for unit in UNITS for hour in range(24 * 20)}
    assert everything <= world.read.keys() | world.shown


@given(runs())
def test_no_range_goes_back_beyond_grace_or_is_empty(sequence: list[Run]) -> None:
    world = World()
    for each in sequence:
        before = {(start, key): high for start, key, high in world.history.rows()}
        made = world.run(each)
        for work in made.units:
            high = before.get((work.start, work.unit.key))
            assert work.start <= work.low < work.high
            assert high == work.previous
            if high is not None:
                allowed = to_datetime(high) - each.grace * HOUR
                owed = allowed if work.owed is None else to_datetime(work.owed)
                assert to_datetime(work.low) >= min(allowed, owed)


@given(
    runs(
        start=st.just(0),
        kind=st.sampled_from([*SIMPLE, "monthly"]),
        timezone=st.sampled_from(TIMEZONES),
        end=st.none(),
    )
)
def test_every_read_that_failed_is_repeated_over_its_whole_range(sequence: list[Run]) -> None:
    world = World()
    for each in sorted(sequence, key=lambda each: each.hours):
        world.run(each)
    finish(world, sequence[-1])
    assert world.owed == set()


@given(runs())
def test_only_failed_plans_the_units_whose_last_read_failed(sequence: list[Run]) -> None:
    world = World()
    for each in sequence:
        job = parse_job(each.keys(), environment={})
        failed = {(start, key) for start, key, _ in world.history.failed_reads()}
        uncapped = parse_job({**each.keys(), "ms.work.unit.parallelism.max": -1}, environment={})
        wanted = [
            work
            for work in plan(uncapped, world.history, instant(each.now)).units
            if (work.start, work.unit.key) in failed
        ]
        made = plan(job, world.history, instant(each.now), only_failed=True)
        assert made.units == wanted[: each.cap]
        owed = {(work.start, work.unit.key) for work in wanted if work.previous is not None}
        assert owed == {(work.start, work.unit.key) for work in wanted if work.reason == "owed"}
        world.run(each)
