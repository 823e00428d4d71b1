"""Runs of a job in the metadata store: the outcomes of each run, and the history of runs.

Everything a run records is recorded in a transaction that checks the lease of the job: a run that was
replaced cannot change a high watermark.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from slackwater.ingest.ledger.intents import forget, intend
from slackwater.ingest.ledger.job_lease import JobLease
from slackwater.ingest.ledger.job_ledger import forget_identity
from slackwater.ingest.ledger.progress_ledger import record_failed_read, record_success
from slackwater.ingest.plan.planner import WorkUnit
from slackwater.metadata.store import MetadataStore
from slackwater.metadata.store_schema import high_watermarks, outcomes, runs
from slackwater.time import now as wall_clock

RunState = Literal["running", "succeeded", "failed", "interrupted"]
OUTCOMES: Final = ("succeeded", "failed", "interrupted")
"""The states in which a unit can end."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one unit: its range, amounts and times, and its error if it failed.

    >>> Outcome(0, 0, "{}", 0, 10, "succeeded", 3, 120, 5, 7).error is None
    True
    """

    number: int
    start: int
    unit: str
    low: int
    high: int
    state: Literal["succeeded", "failed", "interrupted"]
    rows: int
    bytes: int
    started_at: int
    ended_at: int
    error: str | None = None
    drift: str | None = None
    """How the columns that were read differed from those of the target; None if they did not."""
    without_time: int | None = None
    """Number of rows left out because their time is null; None if the source selects rows by time."""
    rejected: int = 0
    """Number of rows that the target cannot store, which were stored as dead letters."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run in the metadata store, with the number of its units by outcome and the rows that they wrote.

    >>> RunRecord("a", "orders", "system", 5, None, "running").ended_at is None
    True
    """

    id: str
    job: str
    watermark: str
    started_at: int
    ended_at: int | None
    state: RunState
    succeeded: int = 0
    failed: int = 0
    interrupted: int = 0
    rows: int = 0
    rejected: int = 0


class Run:
    """One run of a job, recorded at its start, for every unit, and at its end.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.ingest.units import WHOLE
    >>> from slackwater.metadata.store import open_store
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db", create=True) as store:
    ...     with JobLease(store, "orders") as lease:
    ...         run = Run(store, lease, "system")
    ...         run.record(WorkUnit(0, 10, WHOLE, 0), Outcome(0, 0, "{}", 0, 10, "succeeded", 3, 120, 5, 7))
    ...         run.end("succeeded")
    ...     [(each.state, len(outcomes_of(store, each.id))) for each in list_runs(store, "orders")]
    [('succeeded', 1)]
    """

    def __init__(
        self,
        store: MetadataStore,
        lease: JobLease,
        watermark: str,
        *,
        clock: Callable[[], int] = wall_clock,
    ) -> None:
        self.id = uuid.uuid4().hex
        self._store = store
        self._lease = lease
        self._watermark = watermark
        self._clock = clock
        left = runs.update().where(runs.c.job == lease.job, runs.c.state == "running")
        entry = {"job": lease.job, "watermark": watermark, "started_at": clock(), "state": "running"}

        def work(connection: Connection) -> None:
            lease.check(connection)
            connection.execute(left.values(state="interrupted"))
            connection.execute(runs.insert().values(id=self.id, **entry))

        store.write(work)

    def check(self) -> None:
        """Raise `RunReplaced` if another run has taken over."""
        self._store.read(self._lease.check)

    def begin(self, work: WorkUnit) -> None:
        """Record that a read starts; it counts as failed until it succeeds, even after a crash."""

        def kept(connection: Connection) -> None:
            self._lease.check(connection)
            record_failed_read(connection, self._lease.job, self._watermark, work)

        self._store.write(kept, repeatable=True)

    def intend(self, work: WorkUnit, number: int) -> None:
        """Record that a unit is about to be appended under a commit number."""

        def kept(connection: Connection) -> None:
            self._lease.check(connection)
            intend(connection, self._lease.job, self._watermark, work, number)

        self._store.write(kept, repeatable=True)

    def record(self, work: WorkUnit, outcome: Outcome, high: int | None = None) -> None:
        """Record an outcome, and in the same transaction the high watermark or the failed read.

        A success raises the high watermark to ``high``, by default the end of the partition, and clears the
        failed reads of the unit. Any other outcome records its low as the start of a failed read. Recording
        the same outcome twice has no further effect.
        """

        def kept(connection: Connection) -> None:
            self._lease.check(connection)
            same = (outcomes.c.run == self.id, outcomes.c.number == outcome.number)
            connection.execute(outcomes.delete().where(*same))
            connection.execute(outcomes.insert().values(run=self.id, **asdict(outcome)))
            if outcome.state == "succeeded":
                record_success(connection, self._lease.job, self._watermark, work, high)
                forget(connection, self._lease.job, self._watermark, work.unit.key, work.start)
            else:
                record_failed_read(connection, self._lease.job, self._watermark, work)

        self._store.write(kept, repeatable=True)

    def end(self, state: RunState) -> None:
        """Record how the run ended."""
        ended = runs.update().where(runs.c.id == self.id).values(state=state, ended_at=self._clock())
        self._store.write(lambda connection: connection.execute(ended), repeatable=True)


# ---- history of runs


def list_runs(store: MetadataStore, job: str, *, limit: int = 20) -> list[RunRecord]:
    """The newest runs of a job, newest first.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.metadata.store import open_store
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db", create=True) as store:
    ...     list_runs(store, "orders")
    []
    """
    query = _records().where(runs.c.job == job).order_by(runs.c.started_at.desc(), runs.c.id)
    found = store.read(lambda connection: connection.execute(query.limit(limit)).all())
    return [RunRecord(*row) for row in found]


def find_run(store: MetadataStore, job: str, run: str) -> RunRecord | None:
    """The run of a job with an id; None if there is none.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.metadata.store import open_store
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db", create=True) as store:
    ...     find_run(store, "orders", "no such run") is None
    True
    """
    query = _records().where(runs.c.job == job, runs.c.id == run)
    found = store.read(lambda connection: connection.execute(query).first())
    return None if found is None else RunRecord(*found)


def _records() -> sql.Select[Any]:
    """The columns of a `RunRecord`."""
    ended = [sql.func.count().filter(outcomes.c.state == state) for state in OUTCOMES]
    sums = [
        sql.cast(sql.func.coalesce(sql.func.sum(each), 0), sql.BigInteger)
        for each in (outcomes.c.rows, outcomes.c.rejected)
    ]
    counts = [
        sql.select(each).where(outcomes.c.run == runs.c.id).correlate(runs).scalar_subquery()
        for each in (*ended, *sums)
    ]
    return sql.select(*runs.c, *counts)


def outcomes_of(store: MetadataStore, run: str) -> list[Outcome]:
    """The outcomes of a run in plan order.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.metadata.store import open_store
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db", create=True) as store:
    ...     outcomes_of(store, "no such run")
    []
    """
    columns = [column for column in outcomes.c if column.name != "run"]
    query = sql.select(*columns).where(outcomes.c.run == run).order_by(outcomes.c.number)
    return [Outcome(*row) for row in store.read(lambda connection: connection.execute(query).all())]


def prune_runs(store: MetadataStore, job: str, *, before: int) -> int:
    """Delete the runs that ended before an instant, with their outcomes, and return their number.

    High watermarks and failed reads stay.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.metadata.store import open_store
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db", create=True) as store:
    ...     prune_runs(store, "orders", before=0)
    0
    """
    old = (runs.c.job == job, runs.c.state != "running", runs.c.started_at < before)
    gone = runs.delete().where(*old, sql.func.coalesce(runs.c.ended_at, runs.c.started_at) < before)
    return store.write(lambda connection: connection.execute(gone).rowcount)


def reset_history(
    store: MetadataStore, job: str, watermark: str, *, unit: str | None = None, since: int | None = None
) -> int:
    """Delete or lower high watermarks, so that the next run reads again, and return how many changed.

    Args:
        store: The metadata store.
        job: The name of the job.
        watermark: The name of its watermark.
        unit: The key of the only unit to reset; by default all units.
        since: Keep what was read before this instant; by default nothing is kept.

    Raises:
        AlreadyRunning: The job is running.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.ingest.units import WHOLE
    >>> from slackwater.metadata.store import open_store
    >>> from slackwater.ingest.ledger.progress_ledger import read_history
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db", create=True) as store:
    ...     for work in (WorkUnit(0, 20, WHOLE, 0), WorkUnit(20, 40, WHOLE, 20)):
    ...         store.write(lambda connection: record_success(connection, "orders", "system", work))
    ...     print(reset_history(store, "orders", "system", since=15))
    ...     list(store.read(lambda connection: read_history(connection, "orders", "system")).rows())
    2
    [(0, '{}', 15)]
    """
    table = high_watermarks
    chosen = [table.c.job == job, table.c.watermark == watermark]
    if unit is not None:
        chosen.append(table.c.unit == unit)

    def work(connection: Connection) -> int:
        lease.check(connection)
        forget(connection, job, watermark, unit, None)
        if unit is None and since is None:
            forget_identity(connection, job)
        if since is None:
            return connection.execute(table.delete().where(*chosen)).rowcount
        gone = connection.execute(table.delete().where(*chosen, table.c.start >= since)).rowcount
        lowered = table.update().where(*chosen, table.c.high > since).values(high=since)
        return gone + connection.execute(lowered).rowcount

    with JobLease(store, job) as lease:
        return store.write(work)
