"""The statements of a merge: rows of a staging table move into the target table in one transaction.

Both users of this module follow the same order: lock the target, delete the rows that staged rows replace,
insert the staged rows that have no counterpart. Which staged row wins, and which target row it replaces, is
decided by the caller, as conditions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sql
from sqlalchemy.engine import Connection
from sqlalchemy.exc import OperationalError

from slackwater.sql.identifiers import quote_identifier


def lock_table(connection: Connection, table: str) -> None:
    """Wait until no other transaction merges into ``table``, and block others until this one ends.

    SQLite has one writer at a time anyway, so nothing happens there.

    >>> with sql.create_engine("sqlite://").begin() as connection:
    ...     lock_table(connection, "totals")
    """
    if connection.dialect.name == "postgresql":
        number = sql.func.hashtextextended(f"slackwater {table}", 0)
        connection.execute(sql.select(sql.func.pg_advisory_xact_lock(number)))


def latest_rows(
    rows: sql.FromClause,
    columns: Sequence[str],
    *,
    key: Sequence[str],
    newest_first: Sequence[sql.ColumnElement[Any]],
    where: sql.ColumnElement[bool] | None = None,
) -> sql.Subquery:
    """Select one row for each key: the first in the order ``newest_first``.

    >>> row = sql.select(sql.literal_column("1").label("id"), sql.literal_column("5").label("at"))
    >>> newer = sql.select(sql.literal_column("1"), sql.literal_column("7"))
    >>> staged = sql.union_all(row, newer).subquery("staged")
    >>> latest = latest_rows(staged, ["id", "at"], key=["id"], newest_first=[staged.c.at.desc()])
    >>> with sql.create_engine("sqlite://").begin() as connection:
    ...     connection.execute(sql.select(latest)).all()
    [(1, 7)]
    """
    rank = sql.func.row_number().over(
        partition_by=[rows.c[name] for name in key], order_by=list(newest_first) or None
    )
    ranking = sql.select(*(rows.c[name] for name in columns), rank.label("slackwater_row"))
    if where is not None:
        ranking = ranking.where(where)
    ranked = ranking.subquery("slackwater_ranked")
    first = sql.select(*(ranked.c[name] for name in columns)).where(ranked.c.slackwater_row == 1)
    return first.subquery("slackwater_latest")


def delete_matching(
    connection: Connection, table: sql.Table, source: sql.FromClause, condition: sql.ColumnElement[bool]
) -> None:
    """Delete the rows of ``table`` for which some row of ``source`` meets the condition.

    >>> totals = sql.Table("totals", sql.MetaData(), sql.Column("id", sql.BigInteger))
    >>> staged = sql.select(sql.literal(2).label("id")).subquery("staged")
    >>> with sql.create_engine("sqlite://").begin() as connection:
    ...     totals.create(connection)
    ...     _ = connection.execute(sql.insert(totals), [{"id": 1}, {"id": 2}])
    ...     delete_matching(connection, totals, staged, totals.c.id == staged.c.id)
    ...     connection.execute(sql.select(totals)).all()
    [(1,)]
    """
    delete = sql.delete(table)
    if connection.dialect.name != "sqlite":
        connection.execute(delete.where(condition))
        return
    # SQLite deletes from one table only
    if not _has_row_ids(connection, table):
        connection.execute(delete.where(sql.exists().select_from(source).where(condition)))
        return
    # by row id it looks up the few rows that go, instead of testing every row of the table
    row_id: sql.ColumnClause[int] = sql.literal_column(f"{quote_identifier(table.name)}.rowid")
    matched = sql.select(row_id).select_from(source, table).where(condition).correlate(None)
    connection.execute(delete.where(sql.literal_column("rowid", sql.BigInteger).in_(matched)))


def insert_missing(
    connection: Connection,
    table: sql.Table,
    source: sql.FromClause,
    values: Mapping[str, sql.ColumnElement[Any]],
    matching: sql.ColumnElement[bool],
    *,
    where: sql.ColumnElement[bool] | None = None,
) -> None:
    """Insert the rows of ``source`` that match no row of ``table``.

    >>> totals = sql.Table("totals", sql.MetaData(), sql.Column("id", sql.BigInteger))
    >>> staged = sql.select(sql.literal(2).label("id")).subquery("staged")
    >>> with sql.create_engine("sqlite://").begin() as connection:
    ...     totals.create(connection)
    ...     for _ in range(2):
    ...         insert_missing(connection, totals, staged, {"id": staged.c.id}, totals.c.id == staged.c.id)
    ...     connection.execute(sql.select(totals)).all()
    [(2,)]
    """
    counterpart = sql.exists(sql.select(sql.literal(1)).select_from(table).where(matching))
    rows = sql.select(*values.values()).select_from(source).where(~counterpart)
    if where is not None:
        rows = rows.where(where)
    connection.execute(sql.insert(table).from_select(list(values), rows))


def _has_row_ids(connection: Connection, table: sql.Table) -> bool:
    """Whether a table of SQLite has row ids, as all have that were not created WITHOUT ROWID."""
    try:
        connection.execute(sql.select(sql.literal_column("rowid")).select_from(table).limit(0))
    except OperationalError as error:
        # Any other failure may have ended the transaction: what followed would be committed without the rest.
        if "no such column" not in str(error.orig):
            raise
        return False
    return True
