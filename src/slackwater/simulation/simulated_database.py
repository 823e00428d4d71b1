"""The database of a simulation: a real SQLite file behind a network that fails.

Each statement is a message to the server. Its connection can be lost before the statement, or after the
commit, whose response is then lost; the server can restart, which rolls back open transactions and refuses
connections for a while. Errors look like those of a PostgreSQL server, because that is what can fail so.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from sqlalchemy.engine import Engine
from sqlalchemy.pool import QueuePool

from slackwater.metadata.store import MetadataStore, open_store
from slackwater.simulation.scheduler import Crashed, Scheduler
from slackwater.simulation.thread_objects import SimulatedLock
from slackwater.sql.database import create_engine, database_url

_CHANGE: Final = re.compile(r"\s*(?:INSERT INTO|UPDATE|DELETE FROM) \"?(\w+)")
_READ: Final = re.compile(r"\bFROM \"?(\w+)")
_SETTINGS: Final = ("journal_mode = WAL", "synchronous = OFF", "foreign_keys = ON")


class LostConnection(sqlite3.OperationalError):
    """The connection ended; it is unknown how far the work came."""

    sqlstate = "08006"


class ServerDown(sqlite3.OperationalError):
    """The server is restarting."""

    sqlstate = "57P03"


class Server:
    """The server: one SQLite file, one writer at a time.

    Args:
        scheduler: The scheduler of the simulation.
        path: The SQLite file.
        point: Called before every message with a label; it may interrupt the caller.
        loses: Whether the connection is lost at this message.
        committed: Called after every commit with the tables that it changed.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        path: Path,
        *,
        point: Callable[[str], None],
        loses: Callable[[str], bool],
        committed: Callable[[set[str]], None],
    ) -> None:
        self.path = path
        self.point = point
        self.loses = loses
        self.committed = committed
        self.generation = 0
        self.is_down = False
        self.scheduler = scheduler
        self.write_lock = SimulatedLock(scheduler)
        self.began: Callable[[], None] = lambda: None
        """Called when a transaction begins that only reads; it sees what was committed until then."""

    def connect(self) -> sqlite3.Connection:
        """Open a connection."""
        made = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, factory=_Connection)
        made.server = self
        for setting in _SETTINGS:
            sqlite3.Connection.execute(made, f"PRAGMA {setting}").close()
        return made

    def restart(self) -> None:
        """Roll back all open transactions and end all connections."""
        self.generation += 1


class ServerStore(MetadataStore):
    """A store that is reached through the simulated network."""

    @property
    def is_embedded(self) -> bool:
        """False: connections can be lost, and the clock is that of the server."""
        return False


class _Cursor(sqlite3.Cursor):
    """A cursor whose statements are messages."""

    connection: _Connection

    def execute(self, statement: str, parameters: Any = (), /) -> _Cursor:
        self.connection.send(statement)
        super().execute(statement, parameters)
        return self

    def executemany(self, statement: str, parameters: Iterable[Any], /) -> _Cursor:
        self.connection.send(statement)
        super().executemany(statement, parameters)
        return self


class _Connection(sqlite3.Connection):
    """A connection that can be lost."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.server: Server
        self._generation: int | None = None
        self._changed: set[str] = set()
        self._has_lock = False

    def cursor(self, factory: Any = _Cursor) -> Any:
        return super().cursor(_Cursor)

    def send(self, statement: str) -> None:
        """Deliver a statement, or lose the connection."""
        server = self.server
        if statement.startswith("PRAGMA"):
            return
        verb, table, is_change = _described(statement)
        server.point(f"{verb} {table}")
        self._check(verb)
        if verb == "BEGIN IMMEDIATE":
            server.write_lock.acquire()
            self._has_lock = True
            self._check(verb)
        elif verb == "BEGIN":
            server.began()
        if is_change:
            self._changed.add(table)

    def commit(self) -> None:
        if not self.in_transaction:
            return
        server = self.server
        server.point("COMMIT")
        self._check("COMMIT")
        changed, self._changed = self._changed, set()
        super().commit()
        self._unlock()
        if changed:
            server.scheduler.record(f"committed {sorted(changed)}")
            server.committed(changed)
            if server.loses("response"):
                raise LostConnection("the connection was lost while the commit was confirmed")
            server.point("committed")

    def rollback(self) -> None:
        super().rollback()
        self._changed.clear()
        self._unlock()

    def close(self) -> None:
        super().close()
        self._unlock()

    def _check(self, verb: str) -> None:
        server = self.server
        if server.is_down:
            self.rollback()
            raise ServerDown("the database system is starting up")
        if self._generation is None or not self.in_transaction:
            self._generation = server.generation  # as a pool does that tests its connections
        if self._generation != server.generation:
            self._generation = None
            self.rollback()
            raise LostConnection("the server closed the connection unexpectedly")
        if server.loses(verb):
            self._generation = None
            self.rollback()
            raise LostConnection("the connection was lost")

    def _unlock(self) -> None:
        if self._has_lock:
            self._has_lock = False
            self.server.write_lock.release()


@lru_cache(maxsize=1_000)
def _described(statement: str) -> tuple[str, str, bool]:
    """The verb of a statement, its table, and whether it changes that."""
    if change := _CHANGE.match(statement):
        return statement.split(None, 1)[0], change[1], True
    if statement.startswith("BEGIN"):
        return statement, "", False
    found = _READ.search(statement)
    return statement.split(None, 1)[0], found[1] if found else "", False


class Databases:
    """The engine and the empty store that all seeds of one run share, because making them takes long.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     Databases(Path(folder)).empty.exists()
    True
    """

    def __init__(self, folder: Path) -> None:
        self.empty = folder / "empty.db"
        with open_store(f"sqlite:///{self.empty}", create=True):
            pass
        self.server: Server | None = None
        self.engine: Engine = create_engine(
            database_url("sqlite:////simulated"), creator=self._connect, poolclass=QueuePool, pool_size=0
        )

    def store(self, server: Server) -> MetadataStore:
        """The metadata store as the library sees it: on a server, with the clock of the server."""
        url = database_url(f"sqlite:///{server.path}")
        store = ServerStore(url, self.engine, clock=lambda: server.scheduler.now)
        store.established()
        return store

    def _connect(self) -> sqlite3.Connection:
        if self.server is None:
            raise Crashed
        return self.server.connect()
