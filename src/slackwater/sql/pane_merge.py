"""Merging one batch of panes into a table exactly once: the SQL part of an upsert.

A batch is *staged* (bulk-loaded) and then *merged*. One transaction locks the target, looks up in the ledger
whether the batch was applied before, merges with a handful of statements, however many rows there are, and
records the batch. If the process is killed, either all of that happened or none of it, and the batch can be
submitted again.

For each key and window the pane with the highest index decides (of several rows with that index, the last
one): a result is written, a retraction deletes the row.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl
import polars.selectors as cs
import pyarrow as pa
import sqlalchemy as sql
from sqlalchemy.engine import Connection
from sqlalchemy.schema import CreateTable

from slackwater.errors import InvalidArgument, SlackwaterError
from slackwater.sql.merge import delete_matching, insert_missing, latest_rows, lock_table
from slackwater.sql.pane_table import WINDOW_COLUMNS, Column, PaneTable
from slackwater.sql.staging_table import check_row_count, is_embedded, load_batches

PANE_INDEX: Final = "pane_index"
RETRACTION: Final = "retraction"


class StaleBatch(SlackwaterError):
    """A batch older than the last applied one: the checkpoint does not match the table."""

    def __init__(self, table: str, identity: str, batch: int, applied: int) -> None:
        self.table = table
        self.identity = identity
        self.batch = batch
        self.applied = applied
        super().__init__(
            f"batch {batch} of {identity} is older than batch {applied}, which is already in table {table}: "
            f"another run of this query is ahead, or its checkpoint was restored from a backup; stop the "
            f"other run, or start with a new checkpoint and an empty table"
        )


@dataclass(frozen=True, slots=True)
class StagedPanes:
    """What one task loaded into the staging table.

    ``nulls`` are the sets of key columns that are null in some row, each as a bit mask over the columns. Rows
    with the same mask can be matched by plain equality, which uses indexes.
    """

    attempt: str
    rows: int
    nulls: frozenset[int]
    retracts: bool


def stage_panes(
    connection: Connection, target: PaneTable, batches: Iterable[pa.RecordBatch], identity: str
) -> StagedPanes:
    """Bulk-load rows into the staging table; the target does not change until `merge_panes`.

    Args:
        connection: a connection with an open transaction.
        target: the table that the rows are meant for.
        batches: rows with the target's columns, ``pane_index`` and ``retraction``.
        identity: the query that the rows belong to.
    """
    if is_embedded(target.url):
        connection.execute(CreateTable(target.staging, if_not_exists=True))
    attempt = uuid.uuid4().hex
    rows, nulls, retracts = 0, set[int](), False

    def staged() -> Iterator[pa.RecordBatch]:
        nonlocal rows, retracts
        for batch in batches:
            frame = _with_bookkeeping(
                _checked(_frame(batch, target), target), target, identity, attempt, rows
            )
            rows += len(frame)
            nulls.update(frame["nulls"].unique())
            retracts |= bool(frame[RETRACTION].any())
            yield from frame.to_arrow(compat_level=pl.CompatLevel.oldest()).to_batches()

    load_batches(connection, target.staging, staged())
    return StagedPanes(attempt, rows, frozenset(nulls), retracts)


def merge_panes(
    connection: Connection,
    target: PaneTable,
    staged: Sequence[StagedPanes],
    identity: str,
    batch: int | None,
) -> bool:
    """Merge staged rows into the target, unless the ledger shows that the batch was applied before.

    Args:
        connection: a connection with an open transaction, which makes the merge atomic.
        target: the table that is updated.
        staged: what `stage_panes` returned for every task of the batch.
        identity: the query that the batch belongs to.
        batch: the number of the batch; without one the ledger is neither read nor written.

    Returns:
        False if the batch had been applied before.

    Raises:
        StaleBatch: a later batch of the query was applied before.
        StagedRowsLost: the database lost staged rows.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.sql.database import database_url, temporary_engine
    >>> panes = pa.record_batch(
    ...     {"auction": [1, 1], "bids": [4, 5], "pane_index": [0, 1], "retraction": [False, False]}
    ... )
    >>> with TemporaryDirectory() as folder:
    ...     url = database_url(f"sqlite:///{folder}/example.db")
    ...     key, values = (Column("auction", "long"),), (Column("bids", "long"),)
    ...     target = PaneTable(url, "totals", key, values, windows=False)
    ...     target.prepare(create=True)
    ...     with temporary_engine(url) as engine, engine.begin() as connection:
    ...         for _ in range(2):
    ...             staged = stage_panes(connection, target, [panes], "query")
    ...             print(merge_panes(connection, target, [staged], "query", 0))
    ...         connection.exec_driver_sql("SELECT * FROM totals").all()
    True
    False
    [(1, 5)]
    """
    lock_table(connection, target.name)
    applied = None if batch is None else _applied_batch(connection, target, identity)
    if batch is not None and applied is not None and batch < applied:
        raise StaleBatch(target.name, identity, batch, applied)
    fresh = applied is None or batch != applied
    if fresh:
        staging = target.staging
        attempts = [task.attempt for task in staged]
        chosen = sql.and_(staging.c.identity == identity, staging.c.attempt.in_(attempts))
        check_row_count(connection, target.name, staging, chosen, sum(task.rows for task in staged))
        retracts = any(task.retracts for task in staged)
        for nulls in sorted(frozenset[int]().union(*(task.nulls for task in staged))):
            _merge_rows(connection, target, sql.and_(chosen, staging.c.nulls == nulls), nulls, retracts)
        if batch is not None:
            _record_batch(connection, target, identity, batch, known=applied is not None)
    # also removes the rows of failed or killed tasks: a query has one run at a time, and this is it
    discard_staged(connection, target, identity)
    return fresh


def discard_staged(connection: Connection, target: PaneTable, identity: str) -> None:
    """Delete the rows that were staged under ``identity`` and not merged."""
    connection.execute(sql.delete(target.staging).where(target.staging.c.identity == identity))


# ---- statements


def _merge_rows(
    connection: Connection, target: PaneTable, chosen: sql.ColumnElement[bool], nulls: int, retracts: bool
) -> None:
    """Merge the chosen staged rows, in all of which the same key columns are null."""
    table = target.table
    current = _folded_deltas(target, chosen) if target.fold else _latest_panes(target, chosen)
    same = sql.and_(
        *(
            table.c[column.name].is_(None)
            if nulls >> bit & 1
            else table.c[column.name] == current.c[f"c{bit}"]
            for bit, column in enumerate(target.identity)
        )
    )
    is_result = ~current.c[RETRACTION]
    if retracts:
        delete_matching(connection, table, current, sql.and_(same, current.c[RETRACTION]))
    updated = {
        column.name: _new_value(target, column, current.c[f"c{index}"])
        for index, column in enumerate(target.values, len(target.identity))
    }
    if updated:
        connection.execute(sql.update(table).where(same, is_result).values(updated))
    inserted = {column.name: current.c[f"c{index}"] for index, column in enumerate(target.columns)}
    insert_missing(connection, table, current, inserted, same, where=is_result)


def _latest_panes(target: PaneTable, chosen: sql.ColumnElement[bool]) -> sql.Subquery:
    """Select the deciding row of every key and window."""
    staging = target.staging
    return latest_rows(
        staging,
        [*_staging_names(len(target.columns)), RETRACTION],
        key=_staging_names(len(target.identity)),
        newest_first=[staging.c.pane_index.desc(), staging.c.position.desc(), staging.c.attempt],
        where=chosen,
    )


def _folded_deltas(target: PaneTable, chosen: sql.ColumnElement[bool]) -> sql.Subquery:
    """Combine the deltas of every key and window with each other."""
    staging = target.staging
    identity = [staging.c[name] for name in _staging_names(len(target.identity))]
    values = [
        getattr(sql.func, target.fold[column.name])(staging.c[f"c{index}"]).label(f"c{index}")
        for index, column in enumerate(target.values, len(identity))
    ]
    folded = sql.select(*identity, *values, sql.false().label(RETRACTION)).where(chosen)
    return folded.group_by(*identity).subquery("deltas")


def _staging_names(count: int) -> list[str]:
    return [f"c{index}" for index in range(count)]


def _new_value(target: PaneTable, column: Column, new: Any) -> Any:
    """The value of a row after an update: the new one, or the old one folded with the new one."""
    old = target.table.c[column.name]
    how = target.fold.get(column.name)
    if how is None:
        return new
    if how == "sum":
        return sql.case((old.is_(None), new), (new.is_(None), old), else_=old + new)
    better = new < old if how == "min" else new > old
    return sql.case((sql.or_(old.is_(None), better), new), else_=old)


def _applied_batch(connection: Connection, target: PaneTable, identity: str) -> int | None:
    ledger = target.ledger
    found = sql.select(ledger.c.batch).where(ledger.c.target == target.name, ledger.c.identity == identity)
    return connection.execute(found).scalar_one_or_none()


def _record_batch(
    connection: Connection, target: PaneTable, identity: str, batch: int, *, known: bool
) -> None:
    ledger = target.ledger
    if known:
        same = sql.and_(ledger.c.target == target.name, ledger.c.identity == identity)
        connection.execute(sql.update(ledger).where(same).values(batch=batch))
    else:
        connection.execute(sql.insert(ledger).values(target=target.name, identity=identity, batch=batch))


# ---- rows


def _frame(batch: pa.RecordBatch, target: PaneTable) -> pl.DataFrame:
    frame = pl.DataFrame(pl.from_arrow(batch))
    if is_embedded(target.url):
        frame = frame.with_columns(cs.float().fill_nan(None))  # SQLite stores NaN as null
    expected = [*(column.name for column in target.columns), PANE_INDEX, RETRACTION]
    if missing := [name for name in expected if name not in frame.columns]:
        raise InvalidArgument(
            "column", missing[0], "not found in the rows", fix=f"available: {', '.join(frame.columns)}"
        )
    return frame


def _checked(frame: pl.DataFrame, target: PaneTable) -> pl.DataFrame:
    """Reject rows that would make the table show wrong results."""
    if target.fold and frame[RETRACTION].any():
        raise InvalidArgument(
            "fold", dict(target.fold), "cannot be used with panes that retract: they are totals, not deltas",
            fix="leave fold out, or use .discarding()",
        )  # fmt: skip
    if target.windows and any(frame[name].null_count() > 0 for name in WINDOW_COLUMNS):
        raise InvalidArgument(
            "window", None, "is null in some rows", fix="pass windows=False to keep one row for each key"
        )
    return frame


def _with_bookkeeping(
    frame: pl.DataFrame, target: PaneTable, identity: str, attempt: str, position: int
) -> pl.DataFrame:
    """Shape rows as the staging table stores them; ``position`` is the number of rows before these."""
    null_bits = (
        pl.col(column.name).is_null().cast(pl.Int32) * 2**bit for bit, column in enumerate(target.key)
    )
    return frame.select(
        pl.lit(identity).alias("identity"),
        pl.lit(attempt).alias("attempt"),
        pl.int_range(position, position + pl.len(), dtype=pl.Int64).alias("position"),
        pl.sum_horizontal(pl.lit(0, pl.Int32), *null_bits).alias("nulls"),
        PANE_INDEX,
        RETRACTION,
        *(pl.col(column.name).alias(f"c{index}") for index, column in enumerate(target.columns)),
    )
