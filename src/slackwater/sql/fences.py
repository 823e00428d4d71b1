"""Fencing tokens in a target database: a writer that was replaced cannot change rows any more.

Every writer that takes over the work of an owner has a higher token than those before it. The highest token
is recorded in the database of the target table, in the transaction that changes the table, so a writer that
was suspended past its lease finds a higher token than its own.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy.engine import Connection

from slackwater.sql.highest_numbers import numbers_table, record_highest

_FENCES: Final = numbers_table("slackwater_fences", "token")


def pass_fence(connection: Connection, owner: str, target: str, token: int) -> bool:
    """Record a token as the highest one until the transaction ends; return False if there is a higher one.

    Args:
        connection: A connection to the database of the target, in a transaction.
        owner: The name of the work, such as a job.
        target: The table that is written.
        token: The token of the writer.

    >>> import sqlalchemy as sql
    >>> with sql.create_engine("sqlite://").begin() as connection:
    ...     [pass_fence(connection, "orders", "copied", token) for token in (5, 7, 7, 5)]
    [True, True, True, False]
    """
    return record_highest(connection, _FENCES, owner, target, token)
