"""Numbers that only rise, in the database of a target table: one for each owner and table.

A number is recorded in the transaction that changes the table, so both are there or neither is.
"""

from __future__ import annotations

import sqlalchemy as sql
from sqlalchemy.engine import Connection


def numbers_table(name: str, number_column: str) -> sql.Table:
    """Describe a table whose numbers are in the column ``number_column``.

    >>> numbers_table("slackwater_fences", "token").columns.keys()
    ['owner', 'target', 'token']
    """
    return sql.Table(
        name,
        sql.MetaData(),
        sql.Column("owner", sql.Text, primary_key=True),
        sql.Column("target", sql.Text, primary_key=True),
        sql.Column(number_column, sql.BigInteger, nullable=False),
    )


def record_highest(connection: Connection, table: sql.Table, owner: str, target: str, number: int) -> bool:
    """Record a number as the highest one until the transaction ends; return False if there is a higher one.

    Args:
        connection: A connection to the database of the target, in a transaction.
        table: What `numbers_table` returned; it is created if it does not exist.
        owner: Whose number it is, such as a job.
        target: The table that is written.
        number: The number.

    >>> table = numbers_table("slackwater_fences", "token")
    >>> with sql.create_engine("sqlite://").begin() as connection:
    ...     [record_highest(connection, table, "orders", "copied", number) for number in (5, 7, 7, 5)]
    [True, True, True, False]
    """
    _create_table(connection, table)
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert
    else:
        from sqlalchemy.dialects.sqlite import insert  # type: ignore[assignment]
    column = list(table.columns)[-1]
    row = insert(table).values({"owner": owner, "target": target, column.name: number})
    raised = row.on_conflict_do_update(
        index_elements=["owner", "target"],
        set_={column.name: row.excluded[column.name]},
        where=column <= row.excluded[column.name],
    )
    return connection.execute(raised.returning(column)).first() is not None


def _create_table(connection: Connection, table: sql.Table) -> None:
    if sql.inspect(connection).has_table(table.name):
        return
    if connection.dialect.name == "postgresql":  # two transactions may find that the table is missing
        number = sql.func.hashtextextended(table.name, 0)
        connection.execute(sql.select(sql.func.pg_advisory_xact_lock(number)))
    table.create(connection, checkfirst=True)
