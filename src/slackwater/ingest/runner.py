"""The runner: executes the units of a plan concurrently, records an outcome for each, and returns a report.

Reading and writing a unit is the job of an `Extract` function, so nothing here depends on Spark. A unit that
fails does not stop the others. A unit whose process dies has no outcome, and is planned again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal, Protocol, runtime_checkable

from sqlalchemy.engine import Connection

from slackwater.errors import SlackwaterError
from slackwater.ingest.job_errors import OverlappingPartitions, RunReplaced, TooFewRecords
from slackwater.ingest.jobfile.job import Job
from slackwater.ingest.jobfile.job_secrets import redact
from slackwater.ingest.ledger.intents import settle
from slackwater.ingest.ledger.job_lease import JobLease
from slackwater.ingest.ledger.job_ledger import check_identity, record_identity
from slackwater.ingest.ledger.progress_ledger import read_history
from slackwater.ingest.ledger.run_ledger import Outcome, Run
from slackwater.ingest.plan.planner import Plan, WorkUnit, plan
from slackwater.ingest.tracebacks import innermost_cause
from slackwater.metadata.store import MetadataStore
from slackwater.time import SECOND
from slackwater.time import now as wall_clock

_LONGEST_ERROR: Final = 2000


class Amount(Protocol):
    """What a unit wrote."""

    @property
    def rows(self) -> int:
        """Number of records."""

    @property
    def bytes(self) -> int:
        """Size in bytes."""

    @property
    def highest(self) -> int | None:
        """Highest value of the watermark column; None without rows or without such a column."""

    @property
    def drift(self) -> str | None:
        """How the columns that were read differ from those of the target; None if they do not."""

    @property
    def without_time(self) -> int | None:
        """Number of records left out because their time is null; None if the source selects rows by time."""

    @property
    def rejected(self) -> int:
        """Number of records that the target cannot store, which were stored as dead letters."""


class Approve(Protocol):
    """Called by an extraction right before it changes the target; an exception leaves the target as it is."""

    def __call__(self, amount: Any, number: int | None = None) -> None:
        """Approve or raise; ``number`` is the commit number of a target that appends."""


class Extract(Protocol):
    """Reads and writes a unit."""

    def __call__(self, work: WorkUnit, approve: Approve, /) -> Amount:
        """Read the range of a unit and write it to the target; calls ``approve`` before it changes that."""


@runtime_checkable
class Appending(Protocol):
    """An extraction whose target may be append-only, with numbered commits."""

    def last_number(self) -> int | None:
        """The number of the last commit; None if the target can replace rows."""

    def expect(self, made: Plan) -> None:
        """Receive the whole plan, including the units that this run does not execute."""


@runtime_checkable
class Fenced(Protocol):
    """An extraction whose target rejects runs that were replaced by a newer one."""

    def fence(self, token: int) -> None:
        """Receive the fencing token of the run, which is higher than those of all earlier runs."""


class Watcher:
    """Callbacks for the events of a run; these do nothing."""

    def planned(self, made: Plan) -> None:
        """The plan is made."""

    def started(self, number: int, work: WorkUnit) -> None:
        """A unit starts."""

    def ended(self, number: int, work: WorkUnit, outcome: Outcome) -> None:
        """A unit has ended and its outcome is recorded."""


class Watchers(Watcher):
    """Passes the events of a run on to several watchers.

    >>> Watchers([Watcher(), Watcher()]).planned(Plan("orders", "system", 20, 0, 20, [], [], (), None))
    """

    def __init__(self, several: Sequence[Watcher]) -> None:
        self._several = tuple(several)

    def planned(self, made: Plan) -> None:
        """The plan is made."""
        for one in self._several:
            one.planned(made)

    def started(self, number: int, work: WorkUnit) -> None:
        """A unit starts."""
        for one in self._several:
            one.started(number, work)

    def ended(self, number: int, work: WorkUnit, outcome: Outcome) -> None:
        """A unit has ended and its outcome is recorded."""
        for one in self._several:
            one.ended(number, work, outcome)


class Stopped(SlackwaterError):
    """The run was stopped before this unit changed the target."""

    def __init__(self) -> None:
        super().__init__("the run was stopped before this unit was written; run the job again to read it")


@dataclass(frozen=True)
class Report:
    """The result of a run: its plan, and an outcome for each unit that started."""

    run: str
    plan: Plan
    outcomes: tuple[Outcome, ...]

    @property
    def succeeded(self) -> bool:
        """Whether all units succeeded."""
        return not self.not_begun and all(outcome.state == "succeeded" for outcome in self.outcomes)

    @property
    def not_begun(self) -> int:
        """Number of units that did not start because the run was stopped."""
        return len(self.plan.units) - len(self.outcomes)


def run_job(
    job: Job,
    store: MetadataStore,
    extract: Extract,
    *,
    now: int | None = None,
    only_failed: bool = False,
    max_units: int | None = None,
    watcher: Watcher | None = None,
    clock: Callable[[], int] = wall_clock,
    stop: threading.Event | None = None,
) -> Report:
    """Plan a job from its history in ``store`` and execute the plan.

    Args:
        job: The job.
        store: The metadata store that holds the history of the job.
        extract: Reads and writes one unit.
        now: The time for which the run is planned; by default the current time.
        only_failed: Run only units whose last read failed, was stopped or was killed.
        max_units: Run at most this many units.
        watcher: Receives the events of the run.
        clock: Returns the current time in microseconds.
        stop: Once it is set no further unit starts, and units that are running do not change the target.

    Returns:
        The plan and the outcome of each unit.

    Raises:
        AlreadyRunning: Another process runs the job.
        JobChanged: The history belongs to a job of the same name with another source or target.
        OverlappingPartitions: The run would write rows twice, because the job has no time column and its
            partitions have changed.
        RunReplaced: Another run took over because this one stood still for too long.
        TooFewUnits: The plan has fewer units than ``ms.work.unit.min.units``.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.ingest.jobfile.job import parse_job
    >>> from slackwater.metadata.store import open_store
    >>> @dataclass
    ... class Read:
    ...     rows: int = 3
    ...     bytes: int = 120
    ...     highest: int | None = None
    ...     drift: str | None = None
    ...     without_time: int | None = None
    ...     rejected: int = 0
    >>> def extract(work, approve):
    ...     approve(Read())
    ...     return Read()
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db", create=True) as store:
    ...     report = run_job(parse_job({}), store, extract)
    >>> [(outcome.state, outcome.rows) for outcome in report.outcomes]
    [('succeeded', 3)]
    """
    name, watermark = job.settings.name, job.settings.axis.name
    listener = watcher or Watcher()
    with JobLease(store, name, clock=clock) as lease:
        store.read(lambda connection: check_identity(connection, job))
        if isinstance(extract, Fenced):
            extract.fence(lease.token)
        _settle(store, lease, extract, watermark)
        history = store.read(lambda connection: read_history(connection, name, watermark))
        planned_at = clock() if now is None else now
        made = plan(job, history, planned_at)
        if made.overlaps:
            raise OverlappingPartitions(made.overlaps)
        _record_identity(store, lease, job)
        if isinstance(extract, Appending):
            extract.expect(made)
        if only_failed:
            made = plan(job, history, planned_at, only_failed=True)
        made = first_units(made, max_units)
        listener.planned(made)
        run = Run(store, lease, watermark, clock=clock)
        stopped = stop or threading.Event()
        run_unit = _UnitRunner(job, run, extract, listener, clock, made.pacing, time.monotonic(), stopped)
        with ThreadPoolExecutor(job.settings.run_concurrency) as pool:
            outcomes = list(pool.map(run_unit, range(len(made.units)), made.units))
        report = Report(run.id, made, tuple(outcome for outcome in outcomes if outcome is not None))
        was_stopped = report.not_begun or any(outcome.state == "interrupted" for outcome in report.outcomes)
        run.end("interrupted" if was_stopped else "succeeded" if report.succeeded else "failed")
    return report


def first_units(made: Plan, most: int | None) -> Plan:
    """A plan with at most the first ``most`` units; None keeps all of them.

    >>> from slackwater.ingest.units import WHOLE
    >>> units = [WorkUnit(0, 10, WHOLE, 0), WorkUnit(10, 20, WHOLE, 10)]
    >>> made = Plan("orders", "system", 20, 0, 20, units, [], (), None)
    >>> [work.start for work in first_units(made, 1).units]
    [0]
    """
    return replace(made, units=made.units[:most])


def _settle(store: MetadataStore, lease: JobLease, extract: Extract, watermark: str) -> None:
    """Record the commits of a run that died as successes, before anything is planned."""
    last = extract.last_number() if isinstance(extract, Appending) else None

    def work(connection: Connection) -> None:
        lease.check(connection)
        settle(connection, lease.job, watermark, last or 0)

    store.write(work)


def _record_identity(store: MetadataStore, lease: JobLease, job: Job) -> None:
    def work(connection: Connection) -> None:
        lease.check(connection)
        record_identity(connection, job)

    store.write(work, repeatable=True)


@dataclass(frozen=True)
class _UnitRunner:
    """Runs one unit: waits for its start time, extracts it, and records its outcome."""

    job: Job
    run: Run
    extract: Extract
    watcher: Watcher
    clock: Callable[[], int]
    pacing: int
    began: float
    stop: threading.Event

    def __call__(self, number: int, work: WorkUnit) -> Outcome | None:
        if self.stop.wait(max(0.0, self.began + number * self.pacing / SECOND - time.monotonic())):
            return None
        self.run.begin(work)
        self.watcher.started(number, work)
        started = self.clock()
        identity = (number, work.start, work.unit.key, work.low, work.high)
        try:
            amount = self.extract(work, partial(self._approve, work))
        except RunReplaced:
            raise
        except Exception as error:  # any error of a unit: the other units go on
            state: Literal["interrupted", "failed"] = "interrupted" if self.stop.is_set() else "failed"
            text = error_text(error, self.job)
            outcome = Outcome(*identity, state, 0, 0, started, self.clock(), text)
            self.run.record(work, outcome)
        else:
            outcome = Outcome(
                *(*identity, "succeeded", amount.rows, amount.bytes, started, self.clock()),
                drift=amount.drift,
                without_time=amount.without_time,
                rejected=amount.rejected,
            )
            self.run.record(work, outcome, self._high(work, amount))
        self.watcher.ended(number, work, outcome)
        return outcome

    def _approve(self, work: WorkUnit, amount: Amount, number: int | None = None) -> None:
        wanted = self.job.settings.min_records
        if amount.rows < wanted:
            raise TooFewRecords(amount.rows, wanted)
        if self.stop.is_set():
            raise Stopped
        if number is None:
            self.run.check()
        else:
            self.run.intend(work, number)

    def _high(self, work: WorkUnit, amount: Amount) -> int:
        """The new high watermark: the end, or the highest value of the watermark column up to the end."""
        if self.job.settings.watermark_column is None:
            return work.high
        return work.low if amount.highest is None else min(work.high, amount.highest)


def error_text(error: Exception, job: Job) -> str:
    r"""The innermost cause of an error of a unit, without the secrets of the job, as it is recorded.

    >>> from slackwater.ingest.jobfile.job import parse_job
    >>> job = parse_job({"ms.source.jdbc.password": "hunter-22"})
    >>> error_text(RuntimeError("calling o1.x\n: a.SQLError: login failed: hunter-22"), job)
    'SQLError: login failed: …'
    """
    return redact(innermost_cause(error), job)[:_LONGEST_ERROR]  # cut last, so no part of a secret is left
