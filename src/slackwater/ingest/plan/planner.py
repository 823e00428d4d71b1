"""Which ranges of which units are missing: the plan of one run.

A pure function of the job, of what succeeded before, and of now. It reads nothing, asks no clock, and
keeps what it decided against together with the reason, so that a plan explains itself.

For a unit p of a partition, H is its last good high watermark, G the grace and A the abstinent period:

    overall = max of all H − G
    own     = H − G + A
    run p   iff  p is new,  or  end > own  and  (end > overall  or  H < end)
    low     = start if p is new, else max(start, own);   high = end
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from slackwater.errors import InvalidInstant
from slackwater.ingest.job_errors import InvalidJob, Problem, TooFewUnits
from slackwater.ingest.jobfile.bounds import Ago, Form
from slackwater.ingest.jobfile.job import Job
from slackwater.ingest.ledger.history import History
from slackwater.ingest.plan.partitions import Omission, partition
from slackwater.ingest.plan.units import Unit
from slackwater.time import SECOND, Range, check_int64

SkipReason = Literal["read", "cut-off", "abstinent", "left-out", "parallelism"]
_KEY: Final = "ms.watermark"
SKIP_REASONS: Final[dict[SkipReason, str]] = {
    "read": "read to its end",
    "cut-off": "read to its end, and behind the overall cut-off",
    "abstinent": "within the abstinent period of its last success",
    "left-out": "ends within the abstinent period of its last success: what is unread stays unread",
    "parallelism": "more units than ms.work.unit.parallelism.max",
}
"""Why a unit is not run, in words."""


class WorkUnit(NamedTuple):
    """One range of one unit to extract: ``[low, high)`` of the partition ``[start, end)``.

    >>> from slackwater.ingest.plan.units import WHOLE
    >>> work = WorkUnit(0, 20, WHOLE, 15, 10, 15)
    >>> work.high, work.left_out
    (20, Range(start=10, end=15))
    """

    start: int
    end: int
    unit: Unit
    low: int
    previous: int | None = None
    own: int | None = None

    @property
    def high(self) -> int:
        """What its high watermark becomes when it succeeds."""
        return self.end

    @property
    def left_out(self) -> Range | None:
        """What lies between the last success and this range because of the abstinent period, if anything."""
        if self.previous is None or self.previous >= self.low or self.low == self.start:
            return None
        return Range(max(self.start, self.previous), self.low)


class SkippedUnit(NamedTuple):
    """A unit of a partition that does not run, why, and its own cut-off.

    >>> from slackwater.ingest.plan.units import WHOLE
    >>> SkippedUnit(0, 20, WHOLE, 15, 25, "abstinent").unread
    Range(start=15, end=20)
    """

    start: int
    end: int
    unit: Unit
    previous: int | None
    own: int | None
    reason: SkipReason

    @property
    def unread(self) -> Range | None:
        """What of it was not read yet; None if it was read to its end."""
        low = self.start if self.previous is None else max(self.start, self.previous)
        return Range(low, self.end) if low < self.end else None


@dataclass(frozen=True)
class Plan:
    """What a run would do: the units in the order in which they start, and what is left out and why.

    >>> from slackwater.ingest.jobfile.job import parse_job
    >>> made = plan(parse_job({}), History(), 1_577_836_800_000_000)
    >>> made.watermark, len(made.units), made.skipped, made.overall
    ('system', 1, [], None)
    """

    job: str
    watermark: str
    now: int
    start: int
    end: int
    units: Sequence[WorkUnit]
    skipped: Sequence[SkippedUnit]
    omissions: tuple[Omission, ...]
    overall: int | None
    """The overall cut-off; None without history."""
    pacing: int = 0

    def not_before(self, index: int) -> int:
        """The instant before which the unit with this index must not start.

        >>> Plan("j", "system", 100, 0, 9, [], [], (), None, pacing=SECOND).not_before(2)
        2000100
        """
        return self.now + index * self.pacing


def plan(job: Job, history: History, now: int) -> Plan:
    """Plan a run of ``job`` after what ``history`` says, at ``now``.

    >>> from slackwater.ingest.jobfile.job import parse_job
    >>> from slackwater.time import format_instant, instant
    >>> axis = {"name": "system", "type": "datetime", "range": {"from": "2020-01-01", "to": "P0D"}}
    >>> job = parse_job({"ms.watermark": [axis], "ms.grace.period.days": 3})
    >>> history = History([(instant("2020-01-01T00:00:00Z"), "{}", instant("2020-01-15T00:00:00Z"))])
    >>> [work] = plan(job, history, instant("2020-01-16T09:30:00Z")).units
    >>> format_instant(work.low), format_instant(work.high)
    ('2020-01-12T00:00:00Z', '2020-01-16T00:00:00Z')
    """
    settings = job.settings
    now = check_int64(now, "now")
    start, end = _axis(job, now)
    try:
        cut = partition(
            settings.partition,
            start,
            end,
            settings.timezone,
            now=now,
            partial=settings.partial_partition,
            clock=settings.axis.start.clock(now, settings.timezone, _forced_form(job)),
        )
    except InvalidInstant as error:
        raise _beyond_the_calendar(error) from None
    known = History() if settings.backfill else history
    overall = None if known.newest is None else known.newest - settings.grace
    selection = _Selection(job, known, overall, now, end)
    for began, ended in cut.ranges:
        selection.add(began, ended)
    limit = settings.most_units
    units, skipped = selection.units, selection.skipped
    if limit is not None and len(units) > limit:
        skipped += [
            SkippedUnit(work.start, work.end, work.unit, work.previous, work.own, "parallelism")
            for work in units[limit:]
        ]
        del units[limit:]
    if len(units) < settings.min_units:
        raise TooFewUnits(len(units), settings.min_units)
    return Plan(
        job=settings.name,
        watermark=settings.axis.name,
        now=now,
        start=start,
        end=max(start, end),
        units=units,
        skipped=skipped,
        omissions=cut.omissions,
        overall=overall,
        pacing=settings.pacing_seconds * SECOND,
    )


class _Selection:
    """Goes through the partitions, oldest first, and through the units of each in their order."""

    def __init__(self, job: Job, history: History, overall: int | None, now: int, end: int) -> None:
        settings = job.settings
        self.units: list[WorkUnit] = []
        self.skipped: list[SkippedUnit] = []
        self._members = [(unit.key, unit) for unit in job.units]
        self._history = history
        self._overall = overall
        self._grace = settings.grace
        self._shift = settings.abstinent - settings.grace
        self._waits = settings.abstinent_mode == "wait"
        self._reached = end if isinstance(settings.axis.end, Ago) else now
        """How far time has come: a unit that waits waits for this, so that it does not wait for ever."""
        self._grows = end if isinstance(settings.axis.end, Ago) else None
        """Which end moves on from run to run."""

    def add(self, start: int, end: int) -> None:
        """Decide for every unit of ``[start, end)``."""
        known = self._history.of_partition(start)
        if not known:
            self.units += [WorkUnit(start, end, unit, start) for _, unit in self._members]
            return
        overall, shift, waits = self._overall, self._shift, self._waits
        assert overall is not None  # noqa: S101 - there is history
        units, skipped = self.units.append, self.skipped.append
        for key, unit in self._members:
            high = known.get(key)
            if high is None:
                units(WorkUnit(start, end, unit, start))
                continue
            own = high + shift
            unread = high < end
            runs = end > own or (waits and unread and self._reached > own)
            if runs and (unread or end > overall):
                low = min(own, high) if waits else own
                units(WorkUnit(start, end, unit, max(start, low), high, own))
            else:
                skipped(SkippedUnit(start, end, unit, high, own, self._reason(end, high, runs=runs)))

    def _reason(self, end: int, high: int, *, runs: bool) -> SkipReason:
        if runs:
            return "cut-off"
        if end <= high - self._grace:
            return "read"
        gone = not self._waits and high < end and end != self._grows
        return "left-out" if gone else "abstinent"


def _axis(job: Job, now: int) -> tuple[int, int]:
    axis, place = job.settings.axis, job.settings.timezone
    form = _forced_form(job)
    try:
        start = axis.start.resolve(now, place, form)
    except InvalidInstant as error:
        raise _beyond_the_calendar(error, f"{_item(job)}.range.from") from None
    try:
        return start, axis.end.resolve(now, place, form)
    except InvalidInstant as error:
        raise _beyond_the_calendar(error, f"{_item(job)}.range.to") from None


def _item(job: Job) -> str:
    """Where the axis is written, if it is."""
    items = job.settings.watermark
    return next((f"{_KEY}[{number}]" for number, item in enumerate(items) if item.type == "datetime"), _KEY)


def _forced_form(job: Job) -> Form | None:
    """To what now is floored whatever the text says; None where the form of the text decides."""
    coarse = job.settings.partition.kind in {"weekly", "monthly", "yearly"}
    return None if job.settings.rounding == "form" or coarse else "minute"


def _beyond_the_calendar(error: InvalidInstant, key: str = _KEY) -> InvalidJob:
    return InvalidJob([Problem(key, repr(error.value), error.reason, error.fix or "")])
