"""The planner: which ranges of which units one run has to read.

`plan` is a pure function of the job, its history and the current time. It reads nothing and asks no clock.
Every decision carries its reason, including the decision not to run a unit, so a plan explains itself.

For a unit p of a partition, H is its last good high watermark, D the lowest low of the reads that failed
since its last success, G the grace period and A the abstinent period:

    overall = max of all H − G
    own     = H − G + A
    run p   iff  p is new,  or  D exists,  or  end > own  and  (end > overall  or  H < end)
    low     = start if p is new, else max(start, min(own, D));   high = end

The rules are section Selection of ``docs/spec/ingest.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from slackwater.errors import InvalidInstant
from slackwater.ingest.axis.bounds import Ago, Precision
from slackwater.ingest.axis.partitions import Omission, partition
from slackwater.ingest.job_errors import InvalidJob, Problem, TooFewUnits
from slackwater.ingest.jobfile.job import Job
from slackwater.ingest.plan.history import History
from slackwater.ingest.plan.overlaps import Overlap, overlaps_of
from slackwater.ingest.units import Unit
from slackwater.time import DAY, HOUR, MINUTE, SECOND, Range, check_int64, format_instant

RunReason = Literal["new", "owed", "unread", "grace"]
SkipReason = Literal["read", "cut-off", "abstinent", "left-out", "parallelism", "not-failed"]
_KEY: Final = "ms.watermark"
_STEPS: Final[dict[Precision, int]] = {"day": DAY + HOUR, "hour": HOUR, "minute": MINUTE}
"""How far a bound that follows the clock moves at a time, at most; a day may have 25 hours."""
RUN_REASONS: Final[dict[RunReason, str]] = {
    "new": "never read successfully",
    "owed": "a read failed after its last success: read again from where that read began",
    "unread": "not read to its end yet",
    "grace": "read to its end, and within the grace period: read again for late rows",
}
"""Why a unit runs, in words."""
SKIP_REASONS: Final[dict[SkipReason, str]] = {
    "read": "read to its end",
    "cut-off": "read to its end, and behind the overall cut-off",
    "abstinent": "within the abstinent period of its last success",
    "left-out": "ends within the abstinent period of its last success: the unread rest is never read",
    "parallelism": "more units than ms.work.unit.parallelism.max",
    "not-failed": "its last read did not fail, and the run is limited to failed units",
}
"""Why a unit does not run, in words."""


class WorkUnit(NamedTuple):
    """One range of one unit to extract: ``[low, high)`` of the partition ``[start, end)``.

    >>> from slackwater.ingest import WHOLE, WorkUnit
    >>> work = WorkUnit(0, 20, WHOLE, 15, 10, 15)
    >>> work.high, work.left_out, work.reason
    (20, Range(start=10, end=15), 'unread')
    """

    start: int
    end: int
    unit: Unit
    low: int
    previous: int | None = None
    """Its high watermark, H; None if it is new."""
    own: int | None = None
    """Its own cut-off; None if it is new."""
    owed: int | None = None
    """Where the lowest read began that failed since its last success, D; None if it is new or none failed."""

    @property
    def high(self) -> int:
        """Its high watermark after a success."""
        return self.end

    @property
    def reason(self) -> RunReason:
        """Why it runs, as a key of `RUN_REASONS`."""
        if self.previous is None:
            return "new"
        if self.owed is not None:
            return "owed"
        return "unread" if self.previous < self.end else "grace"

    @property
    def left_out(self) -> Range | None:
        """The range after the last success that the abstinent period leaves unread; None if there is none."""
        if self.previous is None or self.previous >= self.low or self.low == self.start:
            return None
        return Range(max(self.start, self.previous), self.low)


class SkippedUnit(NamedTuple):
    """A unit of a partition that does not run, with the reason and its own cut-off.

    >>> from slackwater.ingest import SkippedUnit, WHOLE
    >>> SkippedUnit(0, 20, WHOLE, 15, 25, "abstinent").unread
    Range(start=15, end=20)
    """

    start: int
    end: int
    unit: Unit
    previous: int | None
    own: int | None
    reason: SkipReason
    left_out: Range | None = None
    """The range after the last success that the abstinent period leaves unread; None if there is none."""

    @property
    def unread(self) -> Range | None:
        """The range that was not read yet; None if the unit was read to its end."""
        low = self.start if self.previous is None else max(self.start, self.previous)
        return Range(low, self.end) if low < self.end else None


@dataclass(frozen=True)
class Plan:
    """The units that a run reads, in the order in which they start, and those that it skips, with reasons.

    >>> from slackwater.ingest import History, parse_job, plan
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
    """Microseconds between the starts of two units."""
    overlaps: tuple[Overlap, ...] = ()
    """Partitions whose rows would be in the target twice; a plan that has any is not run."""
    doubts: tuple[str, ...] = ()
    """What is valid in the time axis of the job, but probably not intended."""
    never_read: int | None = None
    """Where the first range begins that units have skipped before ``start``, which no run reads any more."""

    def not_before(self, index: int) -> int:
        """The instant before which the unit with this index must not start.

        Args:
            index: The index of the unit in the plan, from 0.

        >>> from slackwater.ingest import Plan
        >>> Plan("j", "system", 100, 0, 9, [], [], (), None, pacing=SECOND).not_before(2)
        2000100
        """
        return self.now + index * self.pacing

    def _repr_html_(self) -> str:
        """What notebooks show: what the run does with each time range, and why."""
        from slackwater.ingest.plan.plan_report import plan_html  # imports this module

        return plan_html(self)


def plan(job: Job, history: History, now: int, *, only_failed: bool = False) -> Plan:
    """Plan one run of a job.

    Args:
        job: The job, as `load_job` or `parse_job` returns it.
        history: What earlier runs read, and which of their reads failed.
        now: The current time, in microseconds since 1970.
        only_failed: Plan only units whose last read failed: new ones that failed, and owed re-reads.

    Returns:
        The units to read in order, the units that are skipped, and the reason for each.

    Raises:
        InvalidJob: A bound of the watermark lies outside the calendar.
        TooFewUnits: There are fewer units than ``ms.work.unit.min.units``.

    >>> import slackwater as sw
    >>> from slackwater.ingest import History, parse_job, plan
    >>> axis = {"name": "system", "type": "datetime", "range": {"from": "2020-01-01", "to": "P0D"}}
    >>> job = parse_job({"ms.watermark": [axis], "ms.grace.period.days": 3})
    >>> history = History([(sw.instant("2020-01-01T00:00:00Z"), "{}", sw.instant("2020-01-15T00:00:00Z"))])
    >>> [work] = plan(job, history, sw.instant("2020-01-16T09:30:00Z")).units
    >>> sw.format_instant(work.low), sw.format_instant(work.high)
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
            clock=settings.axis.start.clock(now, settings.timezone, _forced_precision(job)),
        )
    except InvalidInstant as error:
        raise _outside_calendar(error) from None
    known = History() if settings.backfill else history
    overall = None if known.newest is None else known.newest - settings.grace
    selection = _Selection(job, known, overall, now, end)
    for began, ended in cut.ranges:
        selection.add(began, ended)
    # a backfill ignores the history, but the target still has the rows
    overlaps = overlaps_of(_identities(selection.units), history) if settings.replaces_partitions else ()
    limit = settings.most_units
    units, skipped = selection.units, selection.skipped
    keys = {work.unit.key for work in units} | {each.unit.key for each in skipped}
    never_read = None
    if settings.watermark_column is None:  # otherwise a unit that has succeeded need not have reached its end
        never_read = history.unread_before(start, keys, gaps=settings.abstinent == 0)
    planned = len(units) if limit is None else min(len(units), limit)
    if planned < settings.min_units:
        raise TooFewUnits(planned, settings.min_units)
    if only_failed:
        failed = {(start, key) for start, key, _ in history.failed_reads()}
        skipped += [
            _skipped(work, "not-failed") for work in units if (work.start, work.unit.key) not in failed
        ]
        units = [work for work in units if (work.start, work.unit.key) in failed]
    if limit is not None:
        skipped += [_skipped(work, "parallelism") for work in units[limit:]]
        del units[limit:]
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
        overlaps=overlaps,
        doubts=tuple(_doubts(job, start, end, cut.ranges)),
        never_read=never_read,
    )


def _identities(units: Iterable[WorkUnit]) -> Iterator[tuple[int, int, Unit]]:
    return ((work.start, work.end, work.unit) for work in units)


def _doubts(job: Job, start: int, end: int, ranges: Sequence[tuple[int, int]]) -> Iterator[str]:
    item = _item(job)
    if start > end:
        bounds = f"'from' ({format_instant(start)}) is after 'to' ({format_instant(end)})"
        yield f"{item}.range: {bounds}, so nothing is read; correct one of them"
    first = job.settings.axis.start
    if not job.settings.replaces_partitions or not isinstance(first, Ago) or not ranges:
        return
    if ranges[0][1] - start > _STEPS[_forced_precision(job) or first.precision]:
        yield (
            f"{item}.range.from: moves with every run, so later runs would write other partitions over the "
            f"same time, and without ms.time.column they are rejected; set ms.time.column, or write a date"
        )


def _skipped(work: WorkUnit, reason: SkipReason) -> SkippedUnit:
    return SkippedUnit(work.start, work.end, work.unit, work.previous, work.own, reason)


class _Selection:
    """Selects units, partition by partition from the oldest on, and within a partition in unit order."""

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
        """The time that ends the waiting of a unit; it moves on even where the end of the axis is fixed."""
        self._grows = end if isinstance(settings.axis.end, Ago) else None
        """The end that moves on from run to run; None if the end of the axis is fixed."""

    def add(self, start: int, end: int) -> None:
        """Decide for every unit of the partition ``[start, end)``."""
        known = self._history.of_partition(start)
        if not known:
            self.units += [WorkUnit(start, end, unit, start) for _, unit in self._members]
            return
        failed = self._history.failed_in_partition(start)
        overall, shift, waits = self._overall, self._shift, self._waits
        assert overall is not None  # noqa: S101 - there is history
        units, skipped = self.units.append, self.skipped.append
        for key, unit in self._members:
            high = known.get(key)
            if high is None:
                units(WorkUnit(start, end, unit, start))
                continue
            own = high + shift
            low = min(own, high) if waits else own
            owed = failed.get(key)
            if owed is not None:
                low = min(low, owed)
            unread = high < end
            rested = end > own or (waits and unread and self._reached > own)
            if (rested and (unread or end > overall)) or (owed is not None and low < end):
                units(WorkUnit(start, end, unit, max(start, low), high, own, owed))
            else:
                reason = self._reason(end, high, rested=rested)
                lost = Range(max(start, high), end) if unread and not waits else None
                skipped(SkippedUnit(start, end, unit, high, own, reason, lost))

    def _reason(self, end: int, high: int, *, rested: bool) -> SkipReason:
        if rested:
            return "cut-off"
        if end <= high - self._grace:
            return "read"
        gone = not self._waits and high < end and end != self._grows
        return "left-out" if gone else "abstinent"


def _axis(job: Job, now: int) -> tuple[int, int]:
    axis, timezone = job.settings.axis, job.settings.timezone
    precision = _forced_precision(job)
    try:
        start = axis.start.resolve(now, timezone, precision)
    except InvalidInstant as error:
        raise _outside_calendar(error, f"{_item(job)}.range.from") from None
    try:
        return start, axis.end.resolve(now, timezone, precision)
    except InvalidInstant as error:
        raise _outside_calendar(error, f"{_item(job)}.range.to") from None


def _item(job: Job) -> str:
    """The key of the datetime item, with its index; without one, the key of all items."""
    items = job.settings.watermark
    return next((f"{_KEY}[{number}]" for number, item in enumerate(items) if item.type == "datetime"), _KEY)


def _forced_precision(job: Job) -> Precision | None:
    """The unit to which now is floored regardless of the text; None if the form of the text decides."""
    coarse = job.settings.partition.kind in {"weekly", "monthly", "yearly"}
    return None if job.settings.rounding == "form" or coarse else "minute"


def _outside_calendar(error: InvalidInstant, key: str = _KEY) -> InvalidJob:
    return InvalidJob([Problem.from_error(error, key=key)])
