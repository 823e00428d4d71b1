"""What a run is about to append to a target that cannot replace, so that it is appended once.

The target numbers its commits. Before each, the number is put on record here, and with the success of the
unit it is taken off again. A run that finds numbers of one that died asks the target for the last number
that it has: what was committed counts as a success, so it is not read again, and the rest never happened.
"""

from __future__ import annotations

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from slackwater.ingest.ledger.progress_ledger import record_success
from slackwater.ingest.plan.planner import WorkUnit
from slackwater.ingest.units import Unit
from slackwater.metadata.store_schema import intents


def intend(connection: Connection, job: str, watermark: str, work: WorkUnit, number: int) -> None:
    """Put on record that a unit is about to be committed under a number, the next one of the target.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.ingest.units import WHOLE
    >>> from slackwater.metadata.store import open_store
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db") as store:
    ...     work = WorkUnit(0, 10, WHOLE, 0)
    ...     store.write(lambda connection: intend(connection, "orders", "system", work, 1))
    """
    mine = (intents.c.job == job, intents.c.watermark == watermark)
    same = sql.and_(intents.c.start == work.start, intents.c.unit == work.unit.key)
    # the target has not come to this number, so whoever had it before was not committed
    connection.execute(intents.delete().where(*mine, sql.or_(intents.c.number >= number, same)))
    entry = {"job": job, "watermark": watermark, "start": work.start, "unit": work.unit.key}
    connection.execute(intents.insert().values(number=number, high=work.high, **entry))


def settle(connection: Connection, job: str, watermark: str, last: int) -> None:
    """Record what a run that died had committed, up to the number ``last``, and forget the rest.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.ingest.ledger.progress_ledger import read_history
    >>> from slackwater.ingest.units import WHOLE
    >>> from slackwater.metadata.store import open_store
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db") as store:
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
    """Take intents off the record: of one unit, of one partition, or all.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.metadata.store import open_store
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db") as store:
    ...     store.write(lambda connection: forget(connection, "orders", "system", None, None))
    """
    chosen = [intents.c.job == job, intents.c.watermark == watermark]
    chosen += [] if unit is None else [intents.c.unit == unit]
    chosen += [] if start is None else [intents.c.start == start]
    connection.execute(intents.delete().where(*chosen))
