"""Metadata stores that must exist: commands that only read the history never create one."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy.engine import Connection

from slackwater.errors import InvalidArgument
from slackwater.ingest.jobfile.job import Job
from slackwater.ingest.ledger.job_ledger import check_identity
from slackwater.ingest.ledger.progress_ledger import read_history
from slackwater.ingest.plan.history import History
from slackwater.metadata.store import MetadataStore, open_store, schema_version
from slackwater.sql.database import database_url, redacted_url


def store_exists(url: str) -> bool:
    """Whether a store exists at an address; a SQLite file in a missing folder is an error.

    >>> store_exists("sqlite:////no-such-store.db")
    False
    """
    address = database_url(url)
    if address.get_backend_name() != "sqlite":
        return True
    file = Path(str(address.database))
    if not file.parent.is_dir():
        reason, fix = "its folder does not exist", "correct it, or create the folder"
        raise InvalidArgument("state", redacted_url(address), reason, fix=fix)
    return file.exists()


def look_up_history(url: str, job: Job, *, must_exist: bool = True) -> History:
    """Read the history of a job from the store at ``url`` without changing or creating the store.

    A store without any run of the job gives an empty history. By default a store that does not exist is an
    error, because a plan from an empty history looks like a plan to read everything again.

    Raises:
        InvalidArgument: The store does not exist.
        JobChanged: The history belongs to a job of the same name with another source or target.

    >>> from slackwater.ingest.jobfile.job import parse_job
    >>> look_up_history("sqlite:////no-such-store.db", parse_job({}))
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: state = 'sqlite:////no-such-store.db': does not exist; correct it, \
or pass --no-history
    """
    if not store_exists(url):
        if must_exist:
            shown, fix = redacted_url(database_url(url)), "correct it, or pass --no-history"
            raise InvalidArgument("state", shown, "does not exist", fix=fix)
        return History()

    def work(connection: Connection) -> History:
        check_identity(connection, job)
        return read_history(connection, job.settings.name, job.settings.axis.name)

    with open_store(url, upgrade=False) as store:
        return store.read(work)


def existing_store(url: str) -> MetadataStore:
    """Open a store that must exist; unlike `open_store` it never creates one.

    >>> existing_store("sqlite:////no-such-store.db")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: state = 'sqlite:////no-such-store.db': does not exist; correct it, \
or run the job first
    """
    fix = "correct it, or run the job first"
    if not store_exists(url):
        raise InvalidArgument("state", redacted_url(database_url(url)), "does not exist", fix=fix)
    with open_store(url, upgrade=False) as store:
        if store.read(schema_version) is None:
            raise InvalidArgument("state", redacted_url(store.url), "is not a metadata store", fix=fix)
    return open_store(url)
