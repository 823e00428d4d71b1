"""The history of a job in the metadata store: read for a plan, moved up by every success."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sql
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection

from slackwater.errors import InvalidArgument
from slackwater.ingest.ledger.history import History
from slackwater.ingest.plan.planner import WorkUnit
from slackwater.metadata.store import open_store
from slackwater.metadata.store_schema import high_watermarks
from slackwater.sql.database import database, shown


def look_up_history(url: str, job: str, watermark: str) -> History:
    """The history of a job in the store at ``url``, which is left as it is.

    A store that no job was run with yet has none. A file that does not exist is an error, because
    a plan from an empty history looks like a plan to read everything again.

    >>> look_up_history("sqlite:////no/such/file.db", "orders", "system")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: state = 'sqlite:////no/such/file.db': does not exist; correct it, or \
leave it out to plan without history
    """
    address = database(url)
    if address.get_backend_name() == "sqlite" and not Path(str(address.database)).is_file():
        fix = "correct it, or leave it out to plan without history"
        raise InvalidArgument("state", shown(address), "does not exist", fix=fix)
    with open_store(address, upgrade=False) as store:
        return store.read(lambda connection: read_history(connection, job, watermark))


def read_history(connection: Connection, job: str, watermark: str) -> History:
    """The high watermarks of one job and one watermark.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db") as store:
    ...     list(store.read(lambda connection: read_history(connection, "orders", "system")).rows())
    []
    """
    if not sql.inspect(connection).has_table(high_watermarks.name):
        return History()
    columns = high_watermarks.c
    rows = connection.execute(
        sql.select(columns.start, columns.unit, columns.high).where(
            columns.job == job, columns.watermark == watermark
        )
    )
    return History((start, unit, high) for start, unit, high in rows)


def record_success(
    connection: Connection, job: str, watermark: str, work: WorkUnit, high: int | None = None
) -> None:
    """Move the high watermark of a unit up to what was read, never down.

    That is the end of the partition, or ``high`` where the data says how far it goes. It belongs into the
    transaction that records the outcome.

    >>> from slackwater.ingest.plan.units import WHOLE
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db") as store:
    ...     for end in (20, 10):
    ...         work = WorkUnit(0, end, WHOLE, 0)
    ...         store.write(lambda connection: record_success(connection, "orders", "system", work))
    ...     list(store.read(lambda connection: read_history(connection, "orders", "system")).rows())
    [(0, '{}', 20)]
    """
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    reached = work.high if high is None else high
    insert = dialect.insert(high_watermarks).values(
        job=job, watermark=watermark, start=work.start, unit=work.unit.key, high=reached
    )
    connection.execute(
        insert.on_conflict_do_update(
            index_elements=["job", "watermark", "start", "unit"],
            set_={"high": insert.excluded.high},
            where=high_watermarks.c.high < insert.excluded.high,
        )
    )
