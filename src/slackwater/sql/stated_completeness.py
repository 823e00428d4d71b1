"""The time up to which a job has read everything, in the database of the table that it writes.

It is recorded in the transaction that changes the table, so a time is never read without its rows.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from slackwater.sql.highest_numbers import numbers_table, record_highest

_COMPLETENESS: Final = numbers_table("slackwater_completeness", "complete_until")


def state_completeness(connection: Connection, owner: str, target: str, until: int) -> None:
    """State that a table is complete up to a time; the time never goes back.

    Args:
        connection: A connection to the database of the table, in the transaction that writes the rows.
        owner: The identity under which the statement is made, as ``ingest:JOB``.
        target: The table, as ``schema.table`` or ``table``.
        until: The time in microseconds.

    >>> with sql.create_engine("sqlite://").begin() as connection:
    ...     for until in (5, 7, 6):
    ...         state_completeness(connection, "ingest:orders", "copied", until)
    ...     stated_completeness(connection, "copied")
    {'ingest:orders': 7}
    """
    record_highest(connection, _COMPLETENESS, owner, target, until)


def withdraw_completeness(connection: Connection, target: str) -> None:
    """Remove what was stated about a table of this name that does not exist any more.

    >>> with sql.create_engine("sqlite://").begin() as connection:
    ...     state_completeness(connection, "ingest:orders", "copied", 5)
    ...     withdraw_completeness(connection, "copied")
    ...     stated_completeness(connection, "copied")
    {}
    """
    if sql.inspect(connection).has_table(_COMPLETENESS.name):
        connection.execute(sql.delete(_COMPLETENESS).where(_COMPLETENESS.c.target == target))


def stated_completeness(connection: Connection, target: str) -> dict[str, int]:
    """The times that were stated about a table, by owner.

    >>> with sql.create_engine("sqlite://").begin() as connection:
    ...     stated_completeness(connection, "copied")
    {}
    """
    if not sql.inspect(connection).has_table(_COMPLETENESS.name):
        return {}
    columns = _COMPLETENESS.c
    wanted = sql.select(columns.owner, columns.complete_until).where(columns.target == target)
    return {row.owner: row.complete_until for row in connection.execute(wanted)}
