"""Merging one batch of panes into a table exactly once: the SQL part of an upsert.

A batch is *staged* (bulk-loaded) and then *merged*. One transaction locks the target, looks up in the ledger
whether the batch was applied before, merges with a handful of statements, however many rows there are, and
records the batch. If the process is killed, either all of that happened or none of it, and the batch can be
submitted again.

For each key and window the pane with the highest index decides (of several rows with that index, the last
one): a result is written, a retraction deletes the row.

Rows that the table cannot store are found before they are staged. What only the database can find, such as a
violated constraint, is searched for by bisection, and only after a merge has failed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl
import polars.selectors as cs
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sql
from sqlalchemy.engine import Connection
from sqlalchemy.schema import CreateTable

from slackwater._suggestions import available
from slackwater._utf8 import split_unreadable
from slackwater.errors import InvalidArgument
from slackwater.progress.completeness import Completeness
from slackwater.sql.commit_owner import BATCH_JOB, Claim, CommitOwner, Committer, claim
from slackwater.sql.dead_letters import (
    REJECTIONS,
    RowsRejected,
    find_rejected,
    record_dead_letters,
    split_rejected,
)
from slackwater.sql.letters import as_letters
from slackwater.sql.merge import delete_matching, insert_missing, latest_rows, lock_table
from slackwater.sql.pane_table import WINDOW_COLUMNS, PaneColumn, PaneTable
from slackwater.sql.pane_targets import StaleBatch
from slackwater.sql.staging_table import (
    check_row_count,
    deserialize_batches,
    is_embedded,
    load_batches,
    serialize_batches,
)

PANE_INDEX: Final = "pane_index"
RETRACTION: Final = "retraction"
UNKNOWN: Final = Completeness()
FAILURE_COLUMNS: Final = ("event:failure", "event:failed_row")
"""The reason and the content of rows that failed before they became panes."""


@dataclass(frozen=True, slots=True)
class Merged:
    """The result of a merge: whether the batch was new, and how many rows became dead letters, in all too.

    >>> Merged(fresh=True, rejected=0).fresh
    True
    """

    fresh: bool
    rejected: int
    rejected_before: int = 0

    @property
    def total_rejected(self) -> int:
        """The number of dead letters of the query since it was first started."""
        return self.rejected + self.rejected_before


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
    letters: bytes | None = None
    """The dead letters of the task, serialized; None if there are none."""


def stage_panes(
    connection: Connection, target: PaneTable, batches: Iterable[pa.RecordBatch], identity: str
) -> StagedPanes:
    """Bulk-load rows into the staging table; the target does not change until `merge_panes`.

    Args:
        connection: a connection with an open transaction.
        target: the table that the rows are meant for.
        batches: rows with the target's columns, ``pane_index`` and ``retraction``. They may have two more,
            `FAILURE_COLUMNS`: rows in which these are not null are dead letters.
        identity: the query that the rows belong to.

    Raises:
        RowsRejected: the table cannot store some rows, and dead letters were not asked for.
    """
    if is_embedded(target.url):
        connection.execute(CreateTable(target.staging, if_not_exists=True))
    attempt = uuid.uuid4().hex
    rows, nulls, retracts = 0, set[int](), False
    letters: list[pl.DataFrame] = []

    def staged() -> Iterator[pa.RecordBatch]:
        nonlocal rows, retracts
        for batch in batches:
            panes = _without_unreadable(_without_failed(batch, letters), target, letters)
            accepted = _accepted(_checked(_frame(panes, target), target), target, letters)
            frame = _with_bookkeeping(accepted, target, identity, attempt, rows)
            rows += len(frame)
            nulls.update(frame["nulls"].unique())
            retracts |= bool(frame[RETRACTION].any())
            yield from _as_batches(frame)

    load_batches(connection, target.staging, staged())
    rejected = (batch for frame in letters for batch in _as_batches(frame))
    return StagedPanes(attempt, rows, frozenset(nulls), retracts, serialize_batches(rejected))


def merge_panes(
    connection: Connection,
    target: PaneTable,
    staged: Sequence[StagedPanes],
    identity: str,
    batch: int | None,
    committer: Committer | None = None,
    completeness: Completeness = UNKNOWN,
) -> Merged:
    """Merge staged rows into the target, unless the ledger shows that the batch was applied before.

    Args:
        connection: a connection with an open transaction, which makes the merge atomic.
        target: the table that is updated.
        staged: what `stage_panes` returned for every task of the batch.
        identity: the query that the batch belongs to.
        batch: the number of the batch; without one the ledger is neither read nor written.
        committer: the query and the run that commit, which must own the identity. None: not checked.
        completeness: what the ledger states about the table once the batch is merged.

    Returns:
        Whether the batch was merged now, and not before, and the number of dead letters.

    Raises:
        IdentityInUse: the identity belongs to another query, or to a newer run of this one.
        StaleBatch: a later batch of the query was applied before, or one with the same number and another
            completeness.
        RowsRejected: the database rejected rows, more than dead letters are made of.
        StagedRowsLost: the database lost staged rows.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.sql.database import database_url, temporary_engine
    >>> panes = pa.record_batch(
    ...     {"auction": [1, 1], "bids": [4, 5], "pane_index": [0, 1], "retraction": [False, False]}
    ... )
    >>> with TemporaryDirectory() as folder:
    ...     url = database_url(f"sqlite:///{folder}/example.db")
    ...     key, values = (PaneColumn("auction", "long"),), (PaneColumn("bids", "long"),)
    ...     target = PaneTable(url, "totals", key, values, windows=False)
    ...     target = target.prepare(create=True)
    ...     with temporary_engine(url) as engine, engine.begin() as connection:
    ...         for _ in range(2):
    ...             staged = stage_panes(connection, target, [panes], "query")
    ...             print(merge_panes(connection, target, [staged], "query", 0).fresh)
    ...         connection.exec_driver_sql("SELECT * FROM totals").all()
    True
    False
    [(1, 5)]
    """
    lock_table(connection, target.name)
    if batch is not None and committer is not None and committer.query != BATCH_JOB:
        _rename_entry(connection, target, identity, committer.query)
    entry = None if batch is None else _ledger_entry(connection, target, identity)
    admitted = None if batch is None else _claim(target, identity, committer, entry)
    applied = None if entry is None or (admitted and admitted.numbered_anew) else entry.batch
    if batch is not None and applied is not None and batch < applied:
        raise StaleBatch(target.name, identity, batch, applied)
    if entry is not None and batch == applied and completeness.contradicts(entry.completeness):
        raise StaleBatch(target.name, identity, entry.batch, entry.batch)
    fresh = applied is None or batch != applied
    rejected = _merge_staged(connection, target, staged, identity, batch) if fresh else 0
    if batch is not None:
        recorded = _Recorded(identity, batch, completeness, rejected)
        _record_batch(connection, target, recorded, entry, admitted)
    # also removes the rows of failed or killed tasks: a query has one run at a time, and this is it
    discard_staged(connection, target, identity)
    return Merged(fresh, rejected, entry.rejected if entry else 0)


def _merge_staged(
    connection: Connection,
    target: PaneTable,
    staged: Sequence[StagedPanes],
    identity: str,
    batch: int | None,
) -> int:
    """Merge staged rows and record the dead letters; returns their number."""
    staging = target.staging
    attempts = [task.attempt for task in staged]
    chosen = sql.and_(staging.c.identity == identity, staging.c.attempt.in_(attempts))
    check_row_count(connection, target.name, staging, chosen, sum(task.rows for task in staged))
    retracts = any(task.retracts for task in staged)
    letters = [
        pl.DataFrame(pl.from_arrow(found)) for task in staged for found in deserialize_batches(task.letters)
    ]
    for nulls in sorted(frozenset[int]().union(*(task.nulls for task in staged))):
        rows = sql.and_(chosen, staging.c.nulls == nulls)
        current = _folded_deltas(target, rows) if target.fold else _latest_panes(target, rows)
        if target.on_error == "fail":
            _merge_rows(connection, target, current, nulls, retracts)
        elif (found := _merge_accepted(connection, target, current, nulls, retracts)) is not None:
            letters.append(found)
    for some in letters:
        record_dead_letters(connection, some, target=target.name, identity=identity, batch=batch)
    return sum(len(some) for some in letters)


def discard_staged(connection: Connection, target: PaneTable, identity: str) -> None:
    """Delete the rows that were staged under ``identity`` and not merged."""
    connection.execute(sql.delete(target.staging).where(target.staging.c.identity == identity))


# ---- statements


def _merge_rows(
    connection: Connection, target: PaneTable, current: sql.Subquery, nulls: int, retracts: bool
) -> None:
    """Merge rows, one for each key and window, in all of which the same key columns are null."""
    table = target.table
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


def _merge_accepted(
    connection: Connection, target: PaneTable, current: sql.Subquery, nulls: int, retracts: bool
) -> pl.DataFrame | None:
    """Merge the rows that the database accepts; returns the others as dead letters, None if there are none.

    The rows are numbered, so that ranges of them can be merged separately: there is one for each key and
    window, so their order does not matter.
    """
    try:
        with connection.begin_nested():
            _merge_rows(connection, target, current, nulls, retracts)
    except REJECTIONS:
        numbered = _numbered(target)
        numbered.create(connection)
        selected = sql.select(sql.func.row_number().over(), *current.c)
        connection.execute(sql.insert(numbered).from_select(["number", *current.c.keys()], selected))
    else:
        return None

    def merge(first: int, last: int) -> None:
        part = sql.select(numbered).where(numbered.c.number.between(first, last)).subquery("part")
        _merge_rows(connection, target, part, nulls, retracts)

    count = connection.execute(sql.select(sql.func.count()).select_from(numbered)).scalar_one()
    reasons = find_rejected(connection, merge, count, target.name)
    shown = [numbered.c[f"c{index}"].label(column.name) for index, column in enumerate(target.columns)]
    found = sql.select(numbered.c.number, *shown).where(numbered.c.number.in_(list(reasons)))
    rows = pl.DataFrame(
        [tuple(row) for row in connection.execute(found.order_by(numbered.c.number))],
        schema=["number", *(column.name for column in target.columns)],
        orient="row",
        infer_schema_length=None,
    )
    numbered.drop(connection)
    given = pl.Series([reasons[number] for number in rows["number"]])
    return as_letters(rows.drop("number"), given)


def _numbered(target: PaneTable) -> sql.Table:
    columns = (sql.Column(f"c{index}", column.type) for index, column in enumerate(target.columns))
    return sql.Table(
        "slackwater_searched",
        sql.MetaData(),
        sql.Column("number", sql.BigInteger, primary_key=True, autoincrement=False),
        *columns,
        sql.Column(RETRACTION, sql.Boolean),
        prefixes=["TEMPORARY"],
    )


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


def _new_value(target: PaneTable, column: PaneColumn, new: Any) -> Any:
    """The value of a row after an update: the new one, or the old one folded with the new one."""
    old = target.table.c[column.name]
    how = target.fold.get(column.name)
    if how is None:
        return new
    if how == "sum":
        return sql.case((old.is_(None), new), (new.is_(None), old), else_=old + new)
    better = new < old if how == "min" else new > old
    return sql.case((sql.or_(old.is_(None), better), new), else_=old)


@dataclass(frozen=True, slots=True)
class _LedgerEntry:
    """What the ledger records for an identity: the last batch, its owner and statement, the dead letters."""

    batch: int
    owner: CommitOwner
    rejected: int
    completeness: Completeness


def _ledger_entry(connection: Connection, target: PaneTable, identity: str) -> _LedgerEntry | None:
    row = connection.execute(sql.select(target.ledger).where(_is_entry(target, identity))).one_or_none()
    if row is None:
        return None
    stated = Completeness(row.complete_until, row.final_until)
    return _LedgerEntry(row.batch, CommitOwner.of(row.query, row.runs), row.rejected or 0, stated)


def _rename_entry(connection: Connection, target: PaneTable, identity: str, query: str) -> None:
    """Give the entry of a query another identity, if its ``identity=`` was changed.

    Without it, the batch that is repeated after the change would be merged again.
    """
    columns = target.ledger.c
    if connection.execute(sql.select(columns.batch).where(_is_entry(target, identity))).first() is not None:
        return
    own = sql.select(columns.identity).where(columns.target == target.name, columns.query == query)
    former = connection.execute(own.order_by(columns.batch.desc()).limit(1)).scalar()
    if former is not None:
        renamed = sql.update(target.ledger).where(_is_entry(target, former)).values(identity=identity)
        connection.execute(renamed)
        discard_staged(connection, target, former)


def _claim(
    target: PaneTable, identity: str, committer: Committer | None, entry: _LedgerEntry | None
) -> Claim | None:
    if committer is None:
        return None
    return claim(
        None if entry is None else entry.owner,
        committer,
        subject=f"identity {identity!r} of table {target.name}",
        another="pass another identity=",
    )


@dataclass(frozen=True, slots=True)
class _Recorded:
    """What is recorded with a batch."""

    identity: str
    batch: int
    completeness: Completeness
    rejected: int


def _record_batch(
    connection: Connection,
    target: PaneTable,
    recorded: _Recorded,
    entry: _LedgerEntry | None,
    admitted: Claim | None,
) -> None:
    values: dict[str, Any] = {
        "batch": recorded.batch,
        "rejected": recorded.rejected + (entry.rejected if entry else 0),
        "complete_until": recorded.completeness.complete_until,
        "final_until": recorded.completeness.final_until,
    }
    if admitted is not None:
        values |= {"query": admitted.owner.query, "runs": admitted.owner.runs_text}
    identity = recorded.identity
    if entry is not None:
        connection.execute(sql.update(target.ledger).where(_is_entry(target, identity)).values(values))
    else:
        connection.execute(sql.insert(target.ledger).values(target=target.name, identity=identity, **values))


def _is_entry(target: PaneTable, identity: str) -> sql.ColumnElement[bool]:
    return sql.and_(target.ledger.c.target == target.name, target.ledger.c.identity == identity)


# ---- rows


def _frame(batch: pa.RecordBatch, target: PaneTable) -> pl.DataFrame:
    frame = pl.DataFrame(pl.from_arrow(batch))
    expected = [*(column.name for column in target.columns), PANE_INDEX, RETRACTION]
    if missing := [name for name in expected if name not in frame.columns]:
        raise InvalidArgument(
            "column", missing[0], "not found in the rows", fix=available(missing[0], frame.columns)
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


def _without_failed(batch: pa.RecordBatch, letters: list[pl.DataFrame]) -> pa.RecordBatch:
    """The rows without those that failed before they became panes, which are added to ``letters``."""
    reason, content = FAILURE_COLUMNS
    if reason not in batch.schema.names:
        return batch
    failed = batch.column(reason).is_valid()
    if pc.any(failed).as_py():
        found = pl.DataFrame(batch.select(FAILURE_COLUMNS).filter(failed))
        letters.append(found.rename({reason: "reason", content: "content"}))
        batch = batch.filter(pc.invert(failed))
    return batch.drop_columns(list(FAILURE_COLUMNS))


def _without_unreadable(
    batch: pa.RecordBatch, target: PaneTable, letters: list[pl.DataFrame]
) -> pa.RecordBatch:
    """The rows whose text is UTF-8; the others are added to ``letters``, or raise."""
    accepted, rejected, reasons = split_unreadable(batch)
    if reasons:
        if target.on_error == "fail":
            raise RowsRejected(target.name, len(reasons), reasons[0])
        letters.append(as_letters(pl.DataFrame(rejected), pl.Series(reasons)))
    return accepted


def _accepted(frame: pl.DataFrame, target: PaneTable, letters: list[pl.DataFrame]) -> pl.DataFrame:
    """The rows that the table can store; the others are added to ``letters``, or raise."""
    accepted, rejected = split_rejected(frame, target.limits, target.url.get_backend_name())
    if rejected is not None:
        if target.on_error == "fail":
            raise RowsRejected(target.name, len(rejected), rejected["reason"][0])
        letters.append(rejected)
    if is_embedded(target.url):
        accepted = accepted.with_columns(cs.float().fill_nan(None))  # SQLite stores NaN as null
    return accepted


def _as_batches(frame: pl.DataFrame) -> list[pa.RecordBatch]:
    batches: list[pa.RecordBatch] = frame.to_arrow(compat_level=pl.CompatLevel.oldest()).to_batches()
    return batches


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
