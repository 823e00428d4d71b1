"""Migrations of the metadata store, run by Alembic.

A released migration never changes. It is written out in full and does not use `store_schema`, which does
change.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

import sqlalchemy as sql
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy.engine import Connection

_TURN: Final = threading.Lock()
"""Alembic keeps the running migration in a global variable, so only one may run at a time."""


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def known() -> list[str]:
    """The schema versions that this release supports, oldest first.

    >>> known()[0]
    '0001'
    """
    return [script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()][::-1]


def upgrade(connection: Connection, to: str = "head") -> None:
    """Upgrade the tables of a store in the transaction of ``connection``.

    >>> from slackwater.sql.database import database_url, create_engine
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with create_engine(database_url(f"sqlite:///{folder}/store.db")).begin() as connection:
    ...         upgrade(connection)
    ...         sql.inspect(connection).has_table("slackwater_leases")
    True
    """
    if connection.dialect.name == "postgresql":
        # serialize processes that open a new store at the same time; the second finds nothing to do
        number = sql.func.hashtextextended("slackwater migrations", 0)
        connection.execute(sql.select(sql.func.pg_advisory_xact_lock(number)))
    config = _config()
    config.attributes["connection"] = connection
    with _TURN:
        command.upgrade(config, to)
