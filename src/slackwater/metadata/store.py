"""Opens the metadata store and runs transactions in it.

Work on the store is a function of a connection. It runs in one transaction, and is retried after a lock
timeout, a deadlock or a lost connection, and while the database refuses connections for a moment. SQLite
takes its write lock at the start of a transaction, so there is one writer at a time; on PostgreSQL the work
locks the rows that it depends on.

The store also has a clock, `MetadataStore.now`. Processes that share a store compare times of this clock
only, because the clocks of their hosts may differ.
"""

from __future__ import annotations

import os
import random
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar

import sqlalchemy as sql
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import DatabaseError, DBAPIError, OperationalError

from slackwater.errors import StoreUnavailable, StoreUnreachable, UnknownSchemaVersion, UnknownStore
from slackwater.metadata import store_schema as schema
from slackwater.metadata.store_file import StoreFile
from slackwater.sql.database import READ_ONLY, create_engine, database_url, redacted_url
from slackwater.time import now as wall_clock

Result = TypeVar("Result")

_ATTEMPTS: Final = 12
_FIRST_PAUSE: Final = 0.005
_LONGEST_PAUSE: Final = 1.0
_BUSY_SECONDS: Final = 30
_OUTAGE_SECONDS: Final = 5.0
"""How long an open store waits for a database that refuses connections, as during a restart."""
_CONFLICTS: Final = {"40001", "40P01", "55P03"}
"""PostgreSQL error codes of a transaction that was rolled back because of another one."""
_FORBIDDEN: Final = {"42501", "3F000"}
"""PostgreSQL error codes of a user without the privilege, or without a schema to create tables in."""
_SQLITE_BUSY: Final = {5, 6}
_SERVER_TIME: Final = sql.text("SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)")


class MetadataStore:
    """An open metadata store; safe to use from several threads. Made by `open_store`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db", create=True) as store:
    ...     store.read(lambda connection: connection.execute(sql.select(schema.leases)).all())
    []
    """

    def __init__(self, url: URL, engine: Engine, *, clock: Callable[[], int] | None = None) -> None:
        self.url = url
        self._engine = engine
        self._reading = engine.execution_options(**{READ_ONLY: True})
        self._clock = clock
        self._file: StoreFile | None = None
        self._outage_seconds = 0.0

    def established(self) -> None:
        """Note that the store was opened: from now on outages are waited for, and its file must stay."""
        self._outage_seconds = _OUTAGE_SECONDS
        if self.is_embedded:
            self._file = self.read(lambda connection: StoreFile.of(self.url, connection))

    @property
    def is_embedded(self) -> bool:
        """Whether the store is a local SQLite file."""
        return self.url.get_backend_name() == "sqlite"

    def now(self, connection: Connection | None = None) -> int:
        """The time of the store's clock: that of the database server, or of this host for SQLite.

        Args:
            connection: Connection with an open transaction; without it the server is asked in a new one.

        Returns:
            Microseconds since 1970-01-01T00:00:00Z.
        """
        if self._clock is not None:
            return self._clock()
        if self.is_embedded:
            return wall_clock()
        if connection is None:
            return self.read(self.now)
        at: int = connection.execute(_SERVER_TIME).scalar_one()
        return at

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
            StoreReplaced: The file of a SQLite store was removed or replaced.
        """
        return self._run(self._engine, work, repeat_lost=repeatable)

    def _run(self, engine: Engine, work: Callable[[Connection], Result], *, repeat_lost: bool) -> Result:
        pause, attempt = _FIRST_PAUSE, 0
        deadline = time.monotonic() + self._outage_seconds
        while True:
            attempt += 1
            is_connected = False
            try:
                if self._file is not None:
                    self._file.check()
                with engine.connect() as connection:
                    is_connected = True
                    with connection.begin():
                        if self._file is not None and engine is self._engine:
                            self._file.check_id(connection)
                        result = work(connection)
            except DBAPIError as error:
                # without a connection nothing was executed, so any work can be repeated
                unreachable = not self.is_embedded and (not is_connected or _is_lost(error))
                if unreachable and (not is_connected or repeat_lost):
                    again = time.monotonic() < deadline or (is_connected and attempt < _ATTEMPTS)
                else:
                    again = _is_conflict(error) and attempt < _ATTEMPTS
                if not again:
                    raise self._failure(error, unreachable=unreachable) from None
            else:
                if self._file is not None and engine is self._engine:
                    # what was committed to a file without a name is lost
                    self._file.check()
                return result
            time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - only spreads the attempts
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _failure(self, error: DBAPIError, *, unreachable: bool) -> Exception:
        if unreachable:
            return StoreUnreachable(redacted_url(self.url), _reason(error))
        # a file that is not a database raises a plain DatabaseError
        expected = _is_conflict(error) or _is_forbidden(error)
        if expected or type(error) in {OperationalError, DatabaseError}:
            return StoreUnavailable(redacted_url(self.url), _reason(error))
        return error

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


def open_store(
    url: str | URL,
    *,
    create: bool = False,
    upgrade: bool = True,
    clock: Callable[[], int] | None = None,
    busy_seconds: float = _BUSY_SECONDS,
) -> MetadataStore:
    """Open a metadata store, and upgrade its tables.

    Args:
        url: Database URL, such as ``sqlite:///shop.db`` or ``postgresql://user@host/database``.
        create: Whether to create the store if there is none. Without it nothing is created, so a wrong
            address does not go unnoticed.
        upgrade: Whether to upgrade the tables; without it they may be of an older version, or missing.
        clock: Returns the time of the store in microseconds; by default the clock of the database.
        busy_seconds: How long an attempt waits for the lock of a SQLite file.

    Returns:
        The store. Close it, or use it in a ``with`` block.

    Raises:
        UnknownStore: There is no store at this address.
        StoreUnavailable: The database cannot be reached.
        UnknownSchemaVersion: The store was made by a newer release.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with open_store(f"sqlite:///{folder}/store.db", create=True) as store:
    ...         store.is_embedded
    True
    """
    address = database_url(url)
    if address.get_backend_name() == "sqlite":
        path = Path(str(address.database))
        if create:
            _create_file(path, address)
        elif not path.exists():
            raise UnknownStore(redacted_url(address))
    store = MetadataStore(address, _engine(address, busy_seconds), clock=clock)
    try:
        found = store.read(schema_version)
        if found is None and upgrade and not create:
            raise UnknownStore(redacted_url(address))
        if found != schema.NEWEST:
            from slackwater.metadata import migrations

            if found is not None and found not in migrations.known():
                raise UnknownSchemaVersion(redacted_url(address), found, migrations.known())
            if upgrade:
                store.write(migrations.upgrade)
        store.established()
    except BaseException:
        store.close()
        raise
    return store


def schema_version(connection: Connection) -> str | None:
    """The schema version of the database; None if it has no metadata store.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db", create=True) as store:
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


def _engine(url: URL, busy_seconds: float) -> Engine:
    if url.get_backend_name() != "sqlite":
        return create_engine(url, pool_pre_ping=True, pool_size=5, max_overflow=20)
    engine = create_engine(url, connect_args={"timeout": busy_seconds})

    def open_existing(_: object, __: object, arguments: list[Any], options: dict[str, Any]) -> None:
        # a file that has disappeared must not be created again, empty
        arguments[0] = f"{Path(arguments[0]).as_uri()}?mode=rw"
        options["uri"] = True

    def prepare(connection: Any, _: object) -> None:
        for setting in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
            connection.execute(f"PRAGMA {setting}").close()

    sql.event.listen(engine, "do_connect", open_existing)
    sql.event.listen(engine, "connect", prepare)
    return engine


def _create_file(path: Path, url: URL) -> None:
    """Create an empty database file for its owner only, unless there is one."""
    if path.exists():
        return
    # created under another name: closing a file in use would release SQLite's locks on it
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            os.link(draft, path)
        except FileExistsError:
            pass  # another process was faster
        finally:
            draft.unlink()
    except OSError as error:
        reason = f"unable to open database file: {error.strerror}"
        raise StoreUnavailable(redacted_url(url), reason) from None


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
