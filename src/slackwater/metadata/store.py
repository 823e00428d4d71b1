"""Opens the metadata store and runs transactions in it.

Work on the store is a function of a connection. It runs in one transaction, and is retried after a lock
timeout, a deadlock or a lost connection. SQLite takes its write lock at the start of a transaction, so there
is one writer at a time; on PostgreSQL the work locks the rows that it depends on.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, TypeVar

import sqlalchemy as sql
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import DatabaseError, DBAPIError, OperationalError

from slackwater.errors import StoreUnavailable, UnknownSchemaVersion
from slackwater.metadata import store_schema as schema
from slackwater.sql.database import READ_ONLY, create_engine, database_url, redacted_url

Result = TypeVar("Result")

_ATTEMPTS: Final = 12
_FIRST_PAUSE: Final = 0.005
_LONGEST_PAUSE: Final = 1.0
_BUSY_SECONDS: Final = 30
_CONFLICTS: Final = {"40001", "40P01", "55P03"}
"""PostgreSQL error codes of a transaction that was rolled back because of another one."""
_FORBIDDEN: Final = {"42501", "3F000"}
"""PostgreSQL error codes of a user without the privilege, or without a schema to create tables in."""
_SQLITE_BUSY: Final = {5, 6}


class MetadataStore:
    """An open metadata store; safe to use from several threads.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db") as store:
    ...     store.read(lambda connection: connection.execute(sql.select(schema.leases)).all())
    []
    """

    def __init__(self, url: URL, engine: Engine) -> None:
        self.url = url
        self._engine = engine
        self._reading = engine.execution_options(**{READ_ONLY: True})

    @property
    def is_embedded(self) -> bool:
        """Whether the store is a local SQLite file."""
        return self.url.get_backend_name() == "sqlite"

    def read(self, work: Callable[[Connection], Result]) -> Result:
        """Run read-only work in a transaction and return its result."""
        return self._run(self._reading, work, repeat_lost=True)

    def write(self, work: Callable[[Connection], Result], *, repeatable: bool = False) -> Result:
        """Run work in a transaction, commit it, and return its result; an exception rolls it back.

        Args:
            work: Function of a connection. It may be called several times.
            repeatable: Whether the work may run again after a lost connection, although it may have been
                committed: it must then recognize that and do nothing.

        Raises:
            StoreUnavailable: The database cannot be reached, or the connection was lost and the work is not
                repeatable.
        """
        return self._run(self._engine, work, repeat_lost=repeatable)

    def _run(self, engine: Engine, work: Callable[[Connection], Result], *, repeat_lost: bool) -> Result:
        pause = _FIRST_PAUSE
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with engine.begin() as connection:
                    return work(connection)
            except DBAPIError as error:
                again = _is_conflict(error) or (repeat_lost and _is_lost(error))
                if not again or attempt == _ATTEMPTS:
                    # a file that is not a database raises a plain DatabaseError
                    if again or _is_forbidden(error) or type(error) in {OperationalError, DatabaseError}:
                        raise StoreUnavailable(redacted_url(self.url), _reason(error)) from None
                    raise
            time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - only spreads the attempts
            pause = min(pause * 2, _LONGEST_PAUSE)
        raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        """Close the connections; using the store again opens new ones."""
        self._engine.dispose()

    def __enter__(self) -> MetadataStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"MetadataStore({redacted_url(self.url)!r})"


def open_store(url: str | URL, *, upgrade: bool = True) -> MetadataStore:
    """Open a metadata store, and create or upgrade its tables.

    Args:
        url: Database URL, such as ``sqlite:///shop.db`` or ``postgresql://user@host/database``.
        upgrade: Whether to create or upgrade tables; without it they may be of an older version, or missing.

    Returns:
        The store. Close it, or use it in a ``with`` block.

    Raises:
        StoreUnavailable: The database cannot be reached.
        UnknownSchemaVersion: The store was made by a newer release.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db") as store:
    ...     store.is_embedded
    True
    """
    address = database_url(url)
    store = MetadataStore(address, _engine(address))
    try:
        found = store.read(schema_version)
        if found != schema.NEWEST:
            from slackwater.metadata import migrations

            if found is not None and found not in migrations.known():
                raise UnknownSchemaVersion(redacted_url(address), found, migrations.known())
            if upgrade:
                store.write(migrations.upgrade)
    except BaseException:
        store.close()
        raise
    return store


def schema_version(connection: Connection) -> str | None:
    """The schema version of the database; None if it has no metadata store.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db") as store:
    ...     store.read(schema_version) == schema.NEWEST
    True
    """
    if not sql.inspect(connection).has_table(schema.VERSION_TABLE):
        return None
    version = sql.table(schema.VERSION_TABLE, sql.column("version_num"))
    found: str | None = connection.execute(sql.select(version.c.version_num)).scalar()
    return found


def insert_of(connection: Connection) -> Callable[[sql.Table], Any]:
    """The ``INSERT`` of the connection's dialect, which supports ``ON CONFLICT``."""
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert as postgres_insert

        return postgres_insert
    from sqlalchemy.dialects.sqlite import insert

    return insert


def _engine(url: URL) -> Engine:
    if url.get_backend_name() != "sqlite":
        return create_engine(url, pool_pre_ping=True, pool_size=5, max_overflow=20)
    engine = create_engine(url, connect_args={"timeout": _BUSY_SECONDS})

    def prepare(connection: Any, _: object) -> None:
        for setting in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
            connection.execute(f"PRAGMA {setting}").close()

    sql.event.listen(engine, "connect", prepare)
    return engine


def _is_conflict(error: DBAPIError) -> bool:
    code = getattr(error.orig, "sqlite_errorcode", None)
    if code is not None:
        return code & 0xFF in _SQLITE_BUSY
    return getattr(error.orig, "sqlstate", None) in _CONFLICTS


def _is_forbidden(error: DBAPIError) -> bool:
    return getattr(error.orig, "sqlstate", None) in _FORBIDDEN


def _is_lost(error: DBAPIError) -> bool:
    state = getattr(error.orig, "sqlstate", None)
    closed = isinstance(state, str) and (state.startswith("08") or state in {"57P01", "57P02", "57P03"})
    return error.connection_invalidated or closed


def _reason(error: DBAPIError) -> str:
    # only the first line: the rest may contain the statement
    lines = str(error.orig).strip().splitlines()
    return lines[0] if lines else type(error.orig).__name__
