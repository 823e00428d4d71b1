"""Folding one batch of panes into a table, exactly once: the part of an upsert that is SQL.

A batch is *staged* (loaded in bulk) and then *merged*: one transaction takes the target's lock, asks the
ledger whether the batch was applied before, folds with a handful of statements whatever the number of rows,
and notes the batch. Killed anywhere, either all of that happened or none of it, and the batch may simply be
given again.

What stands after a batch, for each key and window, is decided by the pane with the highest index (of several
rows with that index, by the one that came last): a result is written, a retraction removes the row.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import polars as pl
import polars.selectors as cs
import pyarrow as pa
import pyarrow.csv as arrow_csv
import sqlalchemy as sql
from sqlalchemy.engine import Connection

from slackwater.errors import InvalidArgument, SlackwaterError
from slackwater.sql.pane_tables import WINDOW_COLUMNS, Column, Target, lock

if TYPE_CHECKING:
    import psycopg

PANE_INDEX: Final = "pane_index"
RETRACTION: Final = "retraction"
_BOOKKEEPING: Final = ("identity", "attempt", "position", "nulls", PANE_INDEX, RETRACTION)


class StaleBatch(SlackwaterError):
    """A batch older than the last one applied: the checkpoint does not belong to what the table shows."""

    def __init__(self, table: str, identity: str, batch: int, applied: int) -> None:
        self.table = table
        self.identity = identity
        self.batch = batch
        self.applied = applied
        super().__init__(
            f"batch {batch} of {identity} comes after batch {applied} was already folded into {table}: "
            f"another run of this query is ahead, or its checkpoint was put back; stop the other run, or "
            f"start with a new checkpoint and an empty table"
        )


class StagedRowsLost(SlackwaterError):
    """Rows that were staged are gone, as after a crash of the database; the batch has to be given again."""

    def __init__(self, table: str, expected: int, found: int) -> None:
        self.table = table
        self.expected = expected
        self.found = found
        super().__init__(
            f"{found} of {expected} rows staged for {table} are left, the database may have crashed in "
            f"between; nothing was folded, restart the query"
        )


@dataclass(frozen=True, slots=True)
class Staged:
    """What one task put into the staging table.

    ``nulls`` are the sets of key columns that are null in some row, each as a number whose bits are the
    columns: rows with equal sets can be matched by plain equality, which indexes serve.

    >>> Staged("3f2a", rows=2, nulls=frozenset({0}), retracts=False).rows
    2
    """

    attempt: str
    rows: int
    nulls: frozenset[int]
    retracts: bool


def apply_batch(
    connection: Connection,
    target: Target,
    batches: Iterable[pa.RecordBatch],
    identity: str,
    batch: int | None,
) -> bool:
    """Folds one batch in the transaction of ``connection``; False if it had been applied before.

    ``batches`` have the target's columns, ``pane_index`` and ``retraction``. Without a number the batch is
    not looked up in the ledger.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.sql.database import database
    >>> from slackwater.sql.pane_tables import Column, connected
    >>> with TemporaryDirectory() as folder:
    ...     url = database(f"sqlite:///{folder}/example.db")
    ...     target = Target(
    ...         url, "totals", (Column("auction", "long"),), (Column("bids", "long"),), windows=False
    ...     )
    ...     target.prepare(create=True)
    ...     panes = pa.record_batch(
    ...         {"auction": [1, 1], "bids": [4, 5], "pane_index": [0, 1], "retraction": [False, False]}
    ...     )
    ...     with connected(url) as engine, engine.begin() as connection:
    ...         first = apply_batch(connection, target, [panes], "query", 0)
    ...         again = apply_batch(connection, target, [panes], "query", 0)
    ...         first, again, connection.exec_driver_sql("SELECT * FROM totals").all()
    (True, False, [(1, 5)])
    """
    return merge(connection, target, [stage(connection, target, batches, identity)], identity, batch)


def stage(connection: Connection, target: Target, batches: Iterable[pa.RecordBatch], identity: str) -> Staged:
    """Loads rows in bulk into the staging table; they change nothing until they are merged.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.sql.database import database
    >>> from slackwater.sql.pane_tables import connected
    >>> rows = pa.record_batch({"n": [1, 2], "pane_index": [0, 0], "retraction": [False, False]})
    >>> with TemporaryDirectory() as folder:
    ...     url = database(f"sqlite:///{folder}/a.db")
    ...     target = Target(url, "seen", (Column("n", "long"),), (), windows=False)
    ...     target.prepare(create=True)
    ...     with connected(url) as engine, engine.begin() as connection:
    ...         stage(connection, target, [rows], "query").rows
    2
    """
    if connection.dialect.name == "sqlite":
        connection.execute(sql.schema.CreateTable(target.staging, if_not_exists=True))
    attempt, rows, nulls, retracts = uuid.uuid4().hex, 0, set[int](), False
    for batch in batches:
        frame = _checked(_frame(batch, target), target)
        key = [column.name for column in target.key]
        frame = frame.select(
            pl.lit(identity).alias("identity"),
            pl.lit(attempt).alias("attempt"),
            pl.int_range(rows, rows + pl.len(), dtype=pl.Int64).alias("position"),
            pl.sum_horizontal(
                pl.lit(0, pl.Int32),
                *(pl.col(name).is_null().cast(pl.Int32) * 2**bit for bit, name in enumerate(key)),
            ).alias("nulls"),
            PANE_INDEX,
            RETRACTION,
            *(pl.col(column.name).alias(f"c{place}") for place, column in enumerate(target.columns)),
        )
        rows += len(frame)
        nulls.update(frame["nulls"].unique())
        retracts |= bool(frame[RETRACTION].any())
        if len(frame):
            _load(connection, target.staging, frame)
    return Staged(attempt, rows, frozenset(nulls), retracts)


def merge(
    connection: Connection, target: Target, staged: Sequence[Staged], identity: str, batch: int | None
) -> bool:
    """Folds what was staged, unless the ledger knows the batch, in which case False.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.sql.database import database
    >>> from slackwater.sql.pane_tables import connected
    >>> rows = pa.record_batch({"n": [1, 2], "pane_index": [0, 0], "retraction": [False, False]})
    >>> with TemporaryDirectory() as folder:
    ...     url = database(f"sqlite:///{folder}/a.db")
    ...     target = Target(url, "seen", (Column("n", "long"),), (), windows=False)
    ...     target.prepare(create=True)
    ...     with connected(url) as engine, engine.begin() as connection:
    ...         merge(connection, target, [stage(connection, target, [rows], "query")], "query", 0)
    True
    """
    lock(connection, target.table)
    staging = target.staging
    applied = None if batch is None else _noted(connection, target, identity)
    if batch is not None and applied is not None and batch < applied:
        raise StaleBatch(target.table, identity, batch, applied)
    fresh = applied is None or batch != applied
    if fresh:
        chosen = sql.and_(
            staging.c.identity == identity, staging.c.attempt.in_([one.attempt for one in staged])
        )
        expected = sum(one.rows for one in staged)
        found = connection.execute(sql.select(sql.func.count()).where(chosen)).scalar_one()
        if found != expected:
            raise StagedRowsLost(target.table, expected, found)
        retracts = any(one.retracts for one in staged)
        for nulls in sorted(frozenset[int]().union(*(one.nulls for one in staged))):
            rows = sql.and_(chosen, staging.c.nulls == nulls)
            for statement in _statements(target, rows, nulls, retracts=retracts):
                connection.execute(statement)
        if batch is not None:
            _note(connection, target, identity, batch, known=applied is not None)
    # also what tasks left behind that failed or were killed: there is one run of a query, and this is it
    discard(connection, target, identity)
    return fresh


def discard(connection: Connection, target: Target, identity: str) -> None:
    """Removes what was staged under ``identity`` and not folded.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.sql.database import database
    >>> from slackwater.sql.pane_tables import connected
    >>> rows = pa.record_batch({"n": [1, 2], "pane_index": [0, 0], "retraction": [False, False]})
    >>> with TemporaryDirectory() as folder:
    ...     url = database(f"sqlite:///{folder}/a.db")
    ...     target = Target(url, "seen", (Column("n", "long"),), (), windows=False)
    ...     target.prepare(create=True)
    ...     with connected(url) as engine, engine.begin() as connection:
    ...         staged = stage(connection, target, [rows], "query")
    ...         discard(connection, target, "query")
    ...         merge(connection, target, [staged], "query", 0)
    Traceback (most recent call last):
    slackwater.sql.pane_merge.StagedRowsLost: 0 of 2 rows staged for seen are left, the database may have \
crashed in between; nothing was folded, restart the query
    """
    connection.execute(sql.delete(target.staging).where(target.staging.c.identity == identity))


# ---- the statements


def _statements(
    target: Target, chosen: sql.ColumnElement[bool], nulls: int, *, retracts: bool
) -> Iterator[sql.Executable]:
    """What folds the chosen rows, all of which have the same key columns null."""
    table = target.target
    current = _deltas(target, chosen) if target.fold else _last(target, chosen)
    same = sql.and_(
        *(
            table.c[column.name].is_(None)
            if nulls >> bit & 1
            else table.c[column.name] == current.c[f"c{bit}"]
            for bit, column in enumerate(target.identity)
        )
    )
    first_value = len(target.identity)
    values = {
        column.name: _folded(target, column, table, current.c[f"c{place}"])
        for place, column in enumerate(target.values, first_value)
    }
    if retracts:
        yield _delete(target, current, same)
    if values:
        yield sql.update(table).where(same, ~current.c[RETRACTION]).values(values)
    yield sql.insert(table).from_select(
        [column.name for column in target.columns],
        sql.select(*(current.c[f"c{place}"] for place in range(len(target.columns)))).where(
            ~current.c[RETRACTION], ~sql.exists(sql.select(sql.literal(1)).select_from(table).where(same))
        ),
    )


def _last(target: Target, chosen: sql.ColumnElement[bool]) -> sql.Subquery:
    """The row of every key and window that decides."""
    staging = target.staging
    names = [f"c{place}" for place in range(len(target.columns))]
    rank = sql.func.row_number().over(
        partition_by=[staging.c[f"c{place}"] for place in range(len(target.identity))],
        order_by=[staging.c.pane_index.desc(), staging.c.position.desc(), staging.c.attempt],
    )
    ranked = sql.select(*(staging.c[name] for name in names), staging.c.retraction, rank.label("rank"))
    ranks = ranked.where(chosen).subquery("ranked")
    return (
        sql.select(*(ranks.c[name] for name in names), ranks.c.retraction)
        .where(ranks.c.rank == 1)
        .subquery("last")
    )


def _deltas(target: Target, chosen: sql.ColumnElement[bool]) -> sql.Subquery:
    """The deltas of every key and window, folded with each other."""
    staging = target.staging
    identity = [staging.c[f"c{place}"] for place in range(len(target.identity))]
    values = [
        getattr(sql.func, target.fold[column.name])(staging.c[f"c{place}"]).label(f"c{place}")
        for place, column in enumerate(target.values, len(identity))
    ]
    folded = sql.select(*identity, *values, sql.false().label(RETRACTION)).where(chosen)
    return folded.group_by(*identity).subquery("deltas")


def _folded(target: Target, column: Column, table: sql.Table, new: Any) -> Any:
    old = table.c[column.name]
    how = target.fold.get(column.name)
    if how is None:
        return new
    if how == "sum":
        return sql.case((old.is_(None), new), (new.is_(None), old), else_=old + new)
    better = new < old if how == "min" else new > old
    return sql.case((sql.or_(old.is_(None), better), new), else_=old)


def _delete(target: Target, current: sql.Subquery, same: sql.ColumnElement[bool]) -> sql.Delete:
    gone = sql.and_(same, current.c[RETRACTION])
    if target.url.get_backend_name() != "sqlite":
        return sql.delete(target.target).where(gone)
    # SQLite deletes from one table only; by row number it starts from the few rows that go, not from all
    row: sql.ColumnClause[int] = sql.literal_column("rowid")
    of_target: sql.ColumnClause[int] = sql.literal_column(f'"{target.target.name}".rowid')
    return sql.delete(target.target).where(
        row.in_(sql.select(of_target).select_from(current, target.target).where(gone))
    )


def _noted(connection: Connection, target: Target, identity: str) -> int | None:
    ledger = target.ledger
    found = sql.select(ledger.c.batch).where(ledger.c.target == target.table, ledger.c.identity == identity)
    return connection.execute(found).scalar_one_or_none()


def _note(connection: Connection, target: Target, identity: str, batch: int, *, known: bool) -> None:
    ledger = target.ledger
    if known:
        same = sql.and_(ledger.c.target == target.table, ledger.c.identity == identity)
        connection.execute(sql.update(ledger).where(same).values(batch=batch))
    else:
        connection.execute(sql.insert(ledger).values(target=target.table, identity=identity, batch=batch))


# ---- from Arrow to rows of a database


def _frame(batch: pa.RecordBatch, target: Target) -> pl.DataFrame:
    frame = pl.DataFrame(pl.from_arrow(batch))
    if target.url.get_backend_name() == "sqlite":
        frame = frame.with_columns(cs.float().fill_nan(None))  # as it stores them
    expected = [*(column.name for column in target.columns), PANE_INDEX, RETRACTION]
    if missing := [name for name in expected if name not in frame.columns]:
        raise InvalidArgument(
            "column", missing[0], "is not in the rows", fix=f"the rows have {frame.columns}"
        )
    return frame.with_columns(
        pl.col(name).dt.convert_time_zone("UTC")
        for name, type_ in frame.schema.items()
        if isinstance(type_, pl.Datetime) and type_.time_zone is not None
    )


def _checked(frame: pl.DataFrame, target: Target) -> pl.DataFrame:
    """Refuses what would make the table say something that is not true."""
    if target.fold and frame[RETRACTION].any():
        raise InvalidArgument(
            "fold", dict(target.fold), "was given panes that retract: they state totals, not deltas",
            fix="leave fold out, or make the panes discarding",
        )  # fmt: skip
    if target.windows and any(frame[name].null_count() > 0 for name in WINDOW_COLUMNS):
        raise InvalidArgument(
            "window", None, "is null in some rows", fix="pass windows=False to keep one row for each key"
        )
    return frame


def _load(connection: Connection, staging: sql.Table, frame: pl.DataFrame) -> None:
    if connection.dialect.name == "sqlite":
        places = ", ".join("?" * frame.width)
        statement = f"INSERT INTO {staging.name} ({', '.join(frame.columns)}) VALUES ({places})"  # noqa: S608 - our own names
        connection.exec_driver_sql(statement, list(_for_sqlite(frame).iter_rows()))
        return
    table = connection.dialect.identifier_preparer.format_table(staging)
    statement = f"COPY {table} ({', '.join(frame.columns)}) FROM STDIN (FORMAT csv)"
    output = pa.BufferOutputStream()
    # a null is nothing at all and everything else is quoted: how PostgreSQL tells null from empty text
    arrow_csv.write_csv(
        _for_copy(frame).to_arrow(compat_level=pl.CompatLevel.oldest()),
        output,
        arrow_csv.WriteOptions(include_header=False, quoting_style="all_valid"),
    )
    cursor: psycopg.Cursor[tuple[Any, ...]] = connection.connection.cursor()  # type: ignore[assignment]
    with cursor, cursor.copy(statement) as copy:
        copy.write(output.getvalue().to_pybytes())


def _for_copy(frame: pl.DataFrame) -> pl.DataFrame:
    """What CSV has no way of its own for, as the text that PostgreSQL reads."""
    return frame.with_columns(
        pl.format("\\x{}", pl.col(name).bin.encode("hex")).alias(name)
        if type_ == pl.Binary
        else pl.col(name).cast(pl.String)
        for name, type_ in frame.schema.items()
        if type_ == pl.Binary or isinstance(type_, pl.Decimal)
    )


def _for_sqlite(frame: pl.DataFrame) -> pl.DataFrame:
    """Times and decimals as text in the form that SQLAlchemy reads back."""
    changed = []
    for name, type_ in frame.schema.items():
        if isinstance(type_, pl.Datetime):
            changed.append(pl.col(name).dt.strftime("%Y-%m-%d %H:%M:%S%.6f"))
        elif type_ == pl.Date or isinstance(type_, pl.Decimal):
            changed.append(pl.col(name).cast(pl.String))
    return frame.with_columns(changed)
