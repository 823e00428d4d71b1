"""Commit intents: exactly-once appends to targets that cannot replace rows.

Such a target numbers its commits. Before each commit the number is recorded as an intent; the success of the
unit removes it. A run that finds intents of a dead run asks the target for its last commit number: units up
to that number were committed and count as successes, and the other intents are discarded.
"""

from __future__ import annotations

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from slackwater.ingest.ledger.progress_ledger import record_success
from slackwater.ingest.plan.planner import WorkUnit
from slackwater.ingest.units import Unit
from slackwater.metadata.store_schema import intents


def intend(connection: Connection, job: str, watermark: str, work: WorkUnit, number: int) -> None:
    """Record that a unit is about to be committed under the next commit number of the target.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.ingest.units import WHOLE
    >>> from slackwater.metadata.store import open_store
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db", create=True) as store:
    ...     work = WorkUnit(0, 10, WHOLE, 0)
    ...     store.write(lambda connection: intend(connection, "orders", "system", work, 1))
    """
    mine = (intents.c.job == job, intents.c.watermark == watermark)
    same = sql.and_(intents.c.start == work.start, intents.c.unit == work.unit.key)
    # the target has not reached this number, so an earlier intent with it was not committed
    connection.execute(intents.delete().where(*mine, sql.or_(intents.c.number >= number, same)))
    entry = {"job": job, "watermark": watermark, "start": work.start, "unit": work.unit.key}
    connection.execute(intents.insert().values(number=number, high=work.high, **entry))


def settle(connection: Connection, job: str, watermark: str, last: int) -> None:
    """Record the commits of a dead run up to number ``last`` as successes, and discard all intents.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.ingest.ledger.progress_ledger import read_history
    >>> from slackwater.ingest.units import WHOLE
    >>> from slackwater.metadata.store import open_store
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db", create=True) as store:
    ...     for number, work in ((1, WorkUnit(0, 10, WHOLE, 0)), (2, WorkUnit(10, 20, WHOLE, 10))):
    ...         store.write(lambda connection: intend(connection, "orders", "system", work, number))
    ...     store.write(lambda connection: settle(connection, "orders", "system", 1))
    ...     list(store.read(lambda connection: read_history(connection, "orders", "system")).rows())
    [(0, '{}', 10)]
    """
    mine = (intents.c.job == job, intents.c.watermark == watermark)
    for row in connection.execute(sql.select(intents).where(*mine, intents.c.number <= last)).all():
        work = WorkUnit(row.start, row.high, Unit((), row.unit), row.start)
        record_success(connection, job, watermark, work)
    connection.execute(intents.delete().where(*mine))


def forget(connection: Connection, job: str, watermark: str, unit: str | None, start: int | None) -> None:
    """Remove intents: of one unit, of one partition, or all.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.metadata.store import open_store
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db", create=True) as store:
    ...     store.write(lambda connection: forget(connection, "orders", "system", None, None))
    """
    chosen = [intents.c.job == job, intents.c.watermark == watermark]
    chosen += [] if unit is None else [intents.c.unit == unit]
    chosen += [] if start is None else [intents.c.start == start]
    connection.execute(intents.delete().where(*chosen))
