"""Addresses of databases, and engines for them: SQLite in a file, PostgreSQL on a server.

Whoever keeps something in a database needs the same few decisions: which addresses are accepted, how one
is shown without its password, and when a transaction begins. They are made here, once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import sqlalchemy as sql
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError

from slackwater.errors import InvalidArgument

DRIVERS: Final = {"postgresql": "postgresql+psycopg", "sqlite": "sqlite+pysqlite"}
READ_ONLY: Final = "slackwater_read_only"
"""An execution option: transactions of this engine read only, so SQLite need not keep writers out."""


def database(url: str | URL) -> URL:
    """The address of a database that can be written to, with the driver that is used.

    >>> database("postgresql://app:secret@db.example/shop")
    postgresql+psycopg://app:***@db.example/shop
    >>> database("mysql://app:secret@db.example/shop")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: url = 'mysql://app@db.example/shop': is neither PostgreSQL nor \
SQLite; write it like postgresql://user:password@host/database or sqlite:////folder/file.db
    """
    fix = "write it like postgresql://user:password@host/database or sqlite:////folder/file.db"
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
    except (ArgumentError, ValueError):
        # what cannot be read may still hold a password
        raise InvalidArgument("url", "…", "cannot be read", fix=fix) from None
    if backend not in DRIVERS:
        raise InvalidArgument("url", shown(parsed), "is neither PostgreSQL nor SQLite", fix=fix)
    if backend == "sqlite":
        if not parsed.database or parsed.database == ":memory:":
            reason = "is a database in memory, which ends with its process"
            raise InvalidArgument("url", shown(parsed), reason, fix="name a file: sqlite:////folder/file.db")
        # batches are committed in a process with a folder of its own
        parsed = parsed.set(database=str(Path(parsed.database).absolute()))
    return parsed.set(drivername=DRIVERS[backend])


def shown(url: URL) -> str:
    """The address as it may be shown: without password and options, which may hold one.

    >>> shown(make_url("postgresql://app:secret@db.example:5432/shop?password=secret"))
    'postgresql://app@db.example:5432/shop'
    """
    return str(url.set(drivername=url.get_backend_name(), query={})._replace(password=None))


def engine_of(url: URL, **options: Any) -> Engine:
    """An engine that never shows a parameter, and whose transactions begin when they say so.

    >>> engine_of(database("sqlite:////dev/null")).hide_parameters
    True
    """
    embedded = url.get_backend_name() == "sqlite"
    if embedded:
        options["connect_args"] = {"timeout": 60, **options.get("connect_args", {})}
    try:
        engine = sql.create_engine(url, hide_parameters=True, **options)
    except ModuleNotFoundError as missing:
        reason = f"needs {missing.name}, which is not installed"
        raise InvalidArgument("url", shown(url), reason, fix='install "slackwater[postgres]"') from None
    if embedded:
        # the driver would begin only at the first write, after what was read could have changed
        sql.event.listen(
            engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None)
        )
        sql.event.listen(engine, "begin", _begin)
    return engine


def _begin(connection: Connection) -> None:
    reads = connection.get_execution_options().get(READ_ONLY, False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")
