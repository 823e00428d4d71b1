"""The history of a job in the metadata store: high watermarks and reads that failed."""

from __future__ import annotations

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from slackwater.ingest.plan.history import History
from slackwater.ingest.plan.planner import WorkUnit
from slackwater.metadata.store import insert_of
from slackwater.metadata.store_schema import failed_reads, high_watermarks

_IDENTITY = ["job", "watermark", "start", "unit"]


def read_history(connection: Connection, job: str, watermark: str) -> History:
    """Read the high watermarks and the failed reads of one job and one watermark.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.metadata.store import open_store
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db", create=True) as store:
    ...     list(store.read(lambda connection: read_history(connection, "orders", "system")).rows())
    []
    """
    highs = _rows(connection, high_watermarks, "high", job, watermark)
    return History(highs, _rows(connection, failed_reads, "low", job, watermark))


def _rows(
    connection: Connection, table: sql.Table, value: str, job: str, watermark: str
) -> list[tuple[int, str, int]]:
    """(partition start, unit key, value) of one job and one watermark; empty if there is no table yet."""
    if not sql.inspect(connection).has_table(table.name):
        return []
    columns = table.c
    query = sql.select(columns.start, columns.unit, columns[value]).where(
        columns.job == job, columns.watermark == watermark
    )
    return [(start, unit, at) for start, unit, at in connection.execute(query)]


def newest_high_watermarks(connection: Connection) -> dict[tuple[str, str], int]:
    """The newest high watermark of each unit, over all partitions, by job and unit key.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.metadata.store import open_store
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db", create=True) as store:
    ...     store.read(newest_high_watermarks)
    {}
    """
    columns = high_watermarks.c
    newest = sql.select(columns.job, columns.unit, sql.func.max(columns.high))
    rows = connection.execute(newest.group_by(columns.job, columns.unit))
    return {(job, unit): high for job, unit, high in rows}


def record_success(
    connection: Connection, job: str, watermark: str, work: WorkUnit, high: int | None = None
) -> None:
    """Raise the high watermark of a unit to what was read, and clear its failed reads.

    The new high watermark is the end of the partition, or ``high`` where the data itself shows how far it
    goes; it is never lowered, and a ``high`` that is not behind the start of the partition leaves it alone.
    Call this in the transaction that records the outcome.

    >>> from slackwater.ingest.units import WHOLE
    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.metadata.store import open_store
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db", create=True) as store:
    ...     for end in (20, 10):
    ...         work = WorkUnit(0, end, WHOLE, 0)
    ...         store.write(lambda connection: record_success(connection, "orders", "system", work))
    ...     list(store.read(lambda connection: read_history(connection, "orders", "system")).rows())
    [(0, '{}', 20)]
    """
    identity = _identity(job, watermark, work)
    connection.execute(sql.delete(failed_reads).filter_by(**identity))
    reached = work.high if high is None else high
    if reached <= work.start:
        return
    insert = insert_of(connection)(high_watermarks).values(**identity, high=reached)
    connection.execute(
        insert.on_conflict_do_update(
            index_elements=_IDENTITY,
            set_={"high": insert.excluded.high},
            where=high_watermarks.c.high < insert.excluded.high,
        )
    )


def record_failed_read(connection: Connection, job: str, watermark: str, work: WorkUnit) -> None:
    """Record that a unit has to be read again from the low of ``work``; the lowest recorded low is kept.

    Call this when a read starts, so that a killed run leaves the record behind, and in the transaction that
    records a failure. `record_success` removes the record.

    >>> from slackwater.ingest.units import WHOLE
    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.metadata.store import open_store
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db", create=True) as store:
    ...     for low in (5, 3, 7):
    ...         work = WorkUnit(0, 20, WHOLE, low)
    ...         store.write(lambda connection: record_failed_read(connection, "orders", "system", work))
    ...     history = store.read(lambda connection: read_history(connection, "orders", "system"))
    >>> list(history.failed_reads())
    [(0, '{}', 3)]
    """
    insert = insert_of(connection)(failed_reads).values(**_identity(job, watermark, work), low=work.low)
    connection.execute(
        insert.on_conflict_do_update(
            index_elements=_IDENTITY,
            set_={"low": insert.excluded.low},
            where=failed_reads.c.low > insert.excluded.low,
        )
    )


def _identity(job: str, watermark: str, work: WorkUnit) -> dict[str, str | int]:
    return {"job": job, "watermark": watermark, "start": work.start, "unit": work.unit.key}
