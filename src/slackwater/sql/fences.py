"""Fencing tokens in a target database: a writer that was replaced cannot change rows any more.

Every writer that takes over the work of an owner has a higher token than those before it. The highest token
is recorded in the database of the target table, in the transaction that changes the table, so a writer that
was suspended past its lease finds a higher token than its own.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sql
from sqlalchemy.engine import Connection

_FENCES: Final = sql.Table(
    "slackwater_fences",
    sql.MetaData(),
    sql.Column("owner", sql.Text, primary_key=True),
    sql.Column("target", sql.Text, primary_key=True),
    sql.Column("token", sql.BigInteger, nullable=False),
)


def pass_fence(connection: Connection, owner: str, target: str, token: int) -> bool:
    """Record a token as the highest one until the transaction ends; return False if there is a higher one.

    Args:
        connection: A connection to the database of the target, in a transaction.
        owner: The name of the work, such as a job.
        target: The table that is written.
        token: The token of the writer.

    >>> with sql.create_engine("sqlite://").begin() as connection:
    ...     [pass_fence(connection, "orders", "copied", token) for token in (5, 7, 7, 5)]
    [True, True, True, False]
    """
    _create_table(connection)
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert
    else:
        from sqlalchemy.dialects.sqlite import insert  # type: ignore[assignment]
    row = insert(_FENCES).values(owner=owner, target=target, token=token)
    passed = row.on_conflict_do_update(
        index_elements=["owner", "target"],
        set_={"token": row.excluded.token},
        where=_FENCES.c.token <= row.excluded.token,
    )
    return connection.execute(passed.returning(_FENCES.c.token)).first() is not None


def _create_table(connection: Connection) -> None:
    if sql.inspect(connection).has_table(_FENCES.name):
        return
    if connection.dialect.name == "postgresql":  # two transactions may find that the table is missing
        number = sql.func.hashtextextended("slackwater fences", 0)
        connection.execute(sql.select(sql.func.pg_advisory_xact_lock(number)))
    _FENCES.create(connection, checkfirst=True)
