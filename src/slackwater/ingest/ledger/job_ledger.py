"""The identity of jobs in the metadata store: what the job of a name reads and writes."""

from __future__ import annotations

import json
from dataclasses import asdict

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from slackwater.ingest.job_errors import JobChanged
from slackwater.ingest.jobfile.job import Job
from slackwater.ingest.jobfile.job_identity import IdentityPart, changes_between, identity_of
from slackwater.ingest.ledger.job_lease import JobLease
from slackwater.metadata.store import MetadataStore
from slackwater.metadata.store_schema import high_watermarks, jobs


def check_identity(connection: Connection, job: Job) -> None:
    """Raise `JobChanged` if the history under the name of the job belongs to another source or target.

    A job that was never read successfully passes, and so does one without a recorded identity, such as that
    of an earlier release.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.ingest.jobfile.job import parse_job
    >>> from slackwater.ingest.ledger.progress_ledger import record_success
    >>> from slackwater.ingest.plan.planner import WorkUnit
    >>> from slackwater.ingest.units import WHOLE
    >>> from slackwater.metadata.store import open_store
    >>> orders, returns = (
    ...     parse_job({"ms.source.table": name}, name="copy") for name in ("orders", "returns")
    ... )
    >>> work = WorkUnit(0, 10, WHOLE, 0)
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db", create=True) as store:
    ...     with JobLease(store, "copy"):
    ...         store.write(lambda connection: record_identity(connection, orders))
    ...         store.write(lambda connection: record_success(connection, "copy", "system", work))
    ...     try:
    ...         store.read(lambda connection: check_identity(connection, returns))
    ...     except JobChanged as error:
    ...         print(error.changes)
    ("ms.source.table = 'orders' (now 'returns')",)
    """
    name = job.settings.name
    if not sql.inspect(connection).has_table(jobs.name):
        return  # a store of an earlier release that is only read
    read = sql.exists().where(high_watermarks.c.job == name)
    known = connection.execute(sql.select(jobs.c.identity).where(jobs.c.job == name, read)).scalar()
    if known is None:
        return
    recorded = {key: IdentityPart(**part) for key, part in json.loads(known).items()}
    if changes := changes_between(recorded, identity_of(job)):
        raise JobChanged(name, changes)


def record_identity(connection: Connection, job: Job) -> None:
    """Record what a job reads and writes; call this under the lease of the job.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.ingest.jobfile.job import parse_job
    >>> from slackwater.metadata.store import open_store
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db", create=True) as store:
    ...     store.write(lambda connection: record_identity(connection, parse_job({})))
    """
    parts = {key: asdict(part) for key, part in identity_of(job).items()}
    _set(connection, job.settings.name, json.dumps(parts))


def adopt_history(store: MetadataStore, job: Job) -> None:
    """Record that a job whose source or target has changed continues its history.

    Raises:
        AlreadyRunning: The job is running.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.ingest.jobfile.job import parse_job
    >>> from slackwater.metadata.store import open_store
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db", create=True) as store:
    ...     adopt_history(store, parse_job({}))
    """
    with JobLease(store, job.settings.name):
        store.write(lambda connection: record_identity(connection, job))


def forget_identity(connection: Connection, job: str) -> None:
    """Remove the recorded identity of a job; its next run records a new one.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.metadata.store import open_store
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db", create=True) as store:
    ...     store.write(lambda connection: forget_identity(connection, "orders"))
    """
    _set(connection, job, None)


def _set(connection: Connection, job: str, identity: str | None) -> None:
    connection.execute(jobs.update().where(jobs.c.job == job).values(identity=identity))
