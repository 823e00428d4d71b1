"""The calendar of a job: what has become of each unit in each partition, and what a run would do about it.

With the job file the state of a cell is that of the plan; without it, only what the ledger records is known:
which partitions were read, and which reads failed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from slackwater.ingest.ledger.progress_ledger import read_history
from slackwater.ingest.plan.history import History
from slackwater.ingest.plan.planner import RUN_REASONS, SKIP_REASONS, Plan, SkippedUnit, WorkUnit
from slackwater.metadata.store_schema import high_watermarks, outcomes, runs

CellState = Literal["done", "owed", "failed", "waiting", "left out", "grace"]
CELL_STATES: Final[dict[CellState, str]] = {
    "done": "read to its end",
    "owed": "the next run reads it",
    "failed": "its last read failed; the next run repeats it",
    "waiting": "not due yet, or left to a later run",
    "left out": "never read",
    "grace": "read to its end; the next run reads it again for late rows",
}
"""The states of a cell, in words."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The last attempt to read a unit of a partition, and the number of all attempts.

    >>> Attempt("a1", "failed", 3, 0, 0, 5, 7, 10, "timeout").attempts
    3
    """

    run: str
    state: str
    attempts: int
    rows: int
    bytes: int
    started_at: int
    ended_at: int
    high: int
    error: str | None


@dataclass(frozen=True, slots=True)
class CalendarCell:
    """One unit in one partition.

    >>> CalendarCell("{}", 0, 10, "done", "read to its end", None, None, 10, None).low is None
    True
    """

    unit: str
    """Its values as JSON; ``{}`` for the only unit of a job."""
    start: int
    end: int
    state: CellState
    reason: str
    low: int | None
    """Where the next read begins; None if the next run does not read it."""
    high: int | None
    high_watermark: int | None
    """Up to where it was read; None if no read has succeeded."""
    last: Attempt | None
    """None if no attempt is recorded, for example because its run was pruned."""


def recorded_jobs(connection: Connection) -> dict[str, list[str]]:
    """The jobs of a store, each with the names of its watermarks.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.metadata.store import open_store
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db", create=True) as store:
    ...     store.read(recorded_jobs)
    {}
    """
    known = sql.union(
        sql.select(runs.c.job, runs.c.watermark),
        sql.select(high_watermarks.c.job, high_watermarks.c.watermark),
    )
    found: dict[str, list[str]] = {}
    for job, watermark in sorted(tuple(row) for row in connection.execute(known)):
        found.setdefault(job, []).append(watermark)
    return found


def last_attempts(connection: Connection, job: str, watermark: str) -> dict[tuple[int, str], Attempt]:
    """The last attempt of each unit of each partition, by the start of the partition and the unit key.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.metadata.store import open_store
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db", create=True) as store:
    ...     store.read(lambda connection: last_attempts(connection, "orders", "system"))
    {}
    """
    columns = outcomes.c
    same: dict[str, Any] = {"partition_by": (columns.start, columns.unit)}
    number = (
        sql.func.row_number().over(**same, order_by=(columns.started_at.desc(), columns.run)).label("rank")
    )
    ranked = (
        sql.select(columns.start, columns.unit, columns.run, columns.state,
            sql.func.count().over(**same).label("attempts"), columns.rows, columns.bytes, columns.started_at,
            columns.ended_at, columns.high, columns.error, number)
        .join(runs, runs.c.id == columns.run)
        .where(runs.c.job == job, runs.c.watermark == watermark)
        .subquery()
    )  # fmt: skip
    newest = sql.select(*(column for column in ranked.c if column.name != "rank")).where(ranked.c.rank == 1)
    return {(start, unit): Attempt(*rest) for start, unit, *rest in connection.execute(newest)}


def planned_cells(
    plan: Plan, history: History, attempts: dict[tuple[int, str], Attempt]
) -> Iterator[CalendarCell]:
    """The cells of a plan, those that would run first.

    Args:
        plan: What the next run would do.
        history: The history from which it was planned.
        attempts: The last attempts, as `last_attempts` returns them.

    >>> from slackwater.ingest.units import WHOLE
    >>> made = Plan("j", "system", 20, 0, 20, [WorkUnit(0, 20, WHOLE, 0)], [], (), None)
    >>> [(cell.state, cell.low) for cell in planned_cells(made, History(), {})]
    [('owed', 0)]
    """
    failed = {(start, key) for start, key, _ in history.failed_reads()}
    for work in plan.units:
        key = work.start, work.unit.key
        yield _of_work(work, attempts.get(key), has_failed=key in failed)
    for unit in plan.skipped:
        key = unit.start, unit.unit.key
        yield _of_skipped(unit, attempts.get(key), has_failed=key in failed)


def recorded_cells(connection: Connection, job: str, watermark: str) -> Iterator[CalendarCell]:
    """The cells of a job without its job file: what was read, and what failed.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.ingest.ledger.progress_ledger import record_success
    >>> from slackwater.ingest.units import WHOLE
    >>> from slackwater.metadata.store import open_store
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db", create=True) as store:
    ...     work = WorkUnit(0, 10, WHOLE, 0)
    ...     store.write(lambda connection: record_success(connection, "orders", "system", work))
    ...     cells = store.read(lambda connection: list(recorded_cells(connection, "orders", "system")))
    >>> [(cell.start, cell.end, cell.state) for cell in cells]
    [(0, 10, 'done')]
    """
    history = read_history(connection, job, watermark)
    attempts = last_attempts(connection, job, watermark)
    highs = {(start, unit): high for start, unit, high in history.rows()}
    lows = {(start, unit): low for start, unit, low in history.failed_reads()}
    for key in sorted({*highs, *lows}):
        start, unit = key
        last, high, low = attempts.get(key), highs.get(key), lows.get(key)
        end = max(start, high or start, start if last is None else last.high)
        state: CellState = "done" if low is None else "failed"
        yield CalendarCell(unit, start, end, state, CELL_STATES[state], low, None, high, last)


def _of_work(work: WorkUnit, last: Attempt | None, *, has_failed: bool) -> CalendarCell:
    state: CellState = "failed" if has_failed else "grace" if work.reason == "grace" else "owed"
    return CalendarCell(
        work.unit.key, work.start, work.end, state, RUN_REASONS[work.reason], work.low, work.high,
        work.previous, last,
    )  # fmt: skip


def _of_skipped(unit: SkippedUnit, last: Attempt | None, *, has_failed: bool) -> CalendarCell:
    state: CellState = "waiting"
    if has_failed:
        state = "failed"
    elif unit.reason == "left-out" or unit.left_out is not None:
        state = "left out"
    elif unit.reason in {"read", "cut-off"} or unit.unread is None:
        state = "done"
    return CalendarCell(
        unit.unit.key, unit.start, unit.end, state, SKIP_REASONS[unit.reason], None, None, unit.previous, last
    )
