"""Database addresses and engines: SQLite in a file, PostgreSQL on a server.

One place decides which addresses are accepted, how an address is shown without its password, and when a
transaction begins.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sql
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import NullPool

from slackwater._extras import naming_extras
from slackwater.errors import InvalidArgument

DRIVERS: Final = {"postgresql": "postgresql+psycopg", "sqlite": "sqlite+pysqlite"}
_CREDENTIAL: Final = re.compile(r"(?i)pass|pwd|secret|token|credential|key")
READ_ONLY: Final = "slackwater_read_only"
"""Execution option of an engine whose transactions only read, so that SQLite need not lock out writers."""


def database_url(url: str | URL) -> URL:
    """Parse the address of a writable database, or a reference to it, and set the driver.

    Raises:
        InvalidArgument: the address cannot be parsed, is neither PostgreSQL nor SQLite, or names a SQLite
            database in memory; or the reference leads nowhere.

    >>> database_url("postgresql://app:secret@db.example/shop")
    postgresql+psycopg://app:***@db.example/shop
    >>> database_url("mysql://app:secret@db.example/shop")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: url = 'mysql://app@db.example/shop': is neither PostgreSQL nor \
SQLite; write it like postgresql://user:password@host/database or sqlite:////folder/file.db
    """
    fix = "write it like postgresql://user:password@host/database or sqlite:////folder/file.db"
    try:
        parsed = make_url(resolved_address(url) if isinstance(url, str) else url)
        backend = parsed.get_backend_name()
    except (ArgumentError, ValueError):
        # an address that cannot be parsed may still contain a password, so it is not shown
        raise InvalidArgument("url", "…", "cannot be parsed", fix=fix) from None
    if backend not in DRIVERS:
        raise InvalidArgument("url", redacted_url(parsed), "is neither PostgreSQL nor SQLite", fix=fix)
    if backend == "sqlite":
        if not parsed.database or parsed.database == ":memory:":
            reason = "is an in-memory database, which is lost when the process ends"
            raise InvalidArgument(
                "url", redacted_url(parsed), reason, fix="name a file: sqlite:////folder/file.db"
            )
        # commits may run in a process with another working directory
        parsed = parsed.set(database=str(Path(parsed.database).absolute()))
    return parsed.set(drivername=DRIVERS[backend])


def resolved_address(text: str) -> str:
    """Look up an address that is given by reference: ``env:NAME`` or ``file:PATH``.

    A reference keeps the password out of code, query plans and logs. Other text is returned as it is.

    Raises:
        InvalidArgument: the environment variable is not set, or the file cannot be read.

    >>> resolved_address("sqlite:////data/a.db")
    'sqlite:////data/a.db'
    >>> resolved_address("env:NO_SUCH_STORE")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: url = 'env:NO_SUCH_STORE': the environment variable is not set; set \
it to the address of the database
    """
    kind, _, name = text.partition(":")
    if kind == "env":
        if not (found := os.environ.get(name)):
            raise InvalidArgument(
                "url", text, "the environment variable is not set",
                fix="set it to the address of the database",
            )  # fmt: skip
        return found
    if kind == "file":
        try:
            return Path(name).expanduser().read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidArgument(
                "url", text, f"the file cannot be read ({type(error).__name__})",
                fix="write the address of the database to this file",
            ) from None  # fmt: skip
    return text


def has_password(text: str) -> bool:
    """Whether an address contains a credential, also as an option such as ``?password=…``.

    >>> (
    ...     has_password("postgresql://app:secret@db/shop"),
    ...     has_password("postgresql://app@db/shop?sslmode=disable"),
    ... )
    (True, False)
    """
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        return "@" in text or "password" in text.lower()
    return url.password is not None or any(_CREDENTIAL.search(name) for name in url.query)


def redacted_url(url: URL) -> str:
    """Format an address for messages: without the password, and without options, which may contain one.

    >>> redacted_url(make_url("postgresql://app:secret@db.example:5432/shop?password=secret"))
    'postgresql://app@db.example:5432/shop'
    """
    return str(url.set(drivername=url.get_backend_name(), query={})._replace(password=None))


def create_engine(url: URL, **options: Any) -> Engine:
    """Create an engine that never logs parameters and begins transactions explicitly.

    >>> create_engine(database_url("sqlite:////dev/null")).hide_parameters
    True
    """
    embedded = url.get_backend_name() == "sqlite"
    if embedded:
        options["connect_args"] = {"timeout": 60, **options.get("connect_args", {})}
    with naming_extras():
        engine = sql.create_engine(url, hide_parameters=True, **options)
    if embedded:
        # pysqlite would begin only at the first write, when the rows read before may have changed
        sql.event.listen(
            engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None)
        )
        sql.event.listen(engine, "begin", _begin)
        engine.update_execution_options(compiled_cache=_COMPILED)
    return engine


class _CompiledStatements(dict[Any, Any]):
    """The compiled statements of all SQLite engines of this process.

    An engine has a cache of its own by default. Many engines are used for one transaction only, and compiling
    a statement takes longer than executing it. The key of SQLAlchemy begins with the dialect object of the
    engine; here it begins with the settings of the dialect that decide how a statement is compiled.
    """

    _MOST: Final = 1000

    def get(self, key: tuple[Any, ...], default: Any = None) -> Any:
        """Look up the compiled form of a statement."""
        return super().get(self._shared(key), default)

    def __setitem__(self, key: tuple[Any, ...], compiled: Any) -> None:
        if len(self) >= self._MOST:
            self.clear()
        super().__setitem__(self._shared(key), compiled)

    def _shared(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        dialect, *statement = key
        return type(dialect), dialect.compiler_linting, *statement


_COMPILED: Final = _CompiledStatements()


@contextmanager
def temporary_engine(url: URL, *, read_only: bool = False) -> Iterator[Engine]:
    """Provide an engine without a pool for one piece of work; its connections end with the block.

    >>> with temporary_engine(database_url("sqlite:////dev/null")) as engine:
    ...     engine.hide_parameters
    True
    """
    # a merge matches rows whose whole key is null without naming the source's columns, which the linter
    # would report as a missing join condition
    engine = create_engine(url, poolclass=NullPool, enable_from_linting=False)
    try:
        yield engine.execution_options(**{READ_ONLY: read_only})
    finally:
        engine.dispose()


def _begin(connection: Connection) -> None:
    reads = connection.get_execution_options().get(READ_ONLY, False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")
