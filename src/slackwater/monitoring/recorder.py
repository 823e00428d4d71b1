"""Records the events of queries in a store, in a thread of its own.

The thread that reports an event only appends it to a bounded queue. If the store is gone, locked, full or
slow, events are dropped and counted; a query is never slowed down, blocked or failed.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Self

from sqlalchemy.engine import Connection

from slackwater.errors import InvalidArgument, SlackwaterError
from slackwater.metadata.store import MetadataStore, open_store
from slackwater.monitoring.events import KEPT_ROWS, Event
from slackwater.monitoring.record_tables import RecordTables, remove_old
from slackwater.sql.database import database_url, redacted_url
from slackwater.time import DAY, SECOND, DurationLike, check_int64, duration

KEEP: Final = 7 * DAY
"""How long history is kept by default."""
_CAPACITY: Final = 1_000
_PAUSE_SECONDS: Final = 0.5
"""The least time between two transactions: the events of busy queries are written together."""
_RETRY_SECONDS: Final = 5.0
"""How long a store that failed is left alone; events that arrive in the meantime are queued."""
_BUSY_SECONDS: Final = 1.0
"""How long a transaction waits for another writer of a SQLite file."""
_CLOSE_SECONDS: Final = 5.0
_RETENTION_INTERVAL: Final = 300 * SECOND

_log: Final = logging.getLogger(__name__)


class Recorder:
    """Writes events to a store until it is closed.

    Args:
        url: The database URL of the store, which is created if there is none.
        keep: How long history is kept; a `timedelta` or text such as ``"7 days"``.
        rows: How many rows of history each table keeps.
        capacity: How many events may wait; the oldest are dropped.
        pause: The least number of seconds between two transactions.
        clock: Returns the current time in microseconds; by default the clock of the store, with which
            readers compare it.

    Raises:
        InvalidArgument: The URL or a number is invalid. A store that cannot be reached is not an error.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.monitoring.events import RunStarted
    >>> from slackwater.monitoring.monitor import open_monitor
    >>> with TemporaryDirectory() as folder:
    ...     with Recorder(f"sqlite:///{folder}/store.db") as recorder:
    ...         recorder.record(RunStarted("5f…", "1a…", "orders", 0))
    ...     with open_monitor(f"sqlite:///{folder}/store.db") as monitor:
    ...         [query.title for query in monitor.queries()]
    ['orders']
    """

    def __init__(
        self,
        url: str,
        *,
        keep: DurationLike | None = None,
        rows: int = KEPT_ROWS,
        capacity: int = _CAPACITY,
        pause: float = _PAUSE_SECONDS,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self.url = database_url(url)
        self._keep = KEEP if keep is None else duration(keep, name="keep")
        self._rows = _positive(rows, "rows")
        self._capacity = _positive(capacity, "capacity")
        self._pause = pause
        self._clock = clock
        self._tables = RecordTables()
        self._store: MetadataStore | None = None
        self._waiting: deque[Event] = deque()
        self._changed = threading.Condition()
        self._lost = 0
        self._writing = False
        self._closing = threading.Event()
        self._logged = False
        self._cleaned = 0
        self._cpu_seconds = 0.0
        self._thread = threading.Thread(target=self._run, name="slackwater-recorder", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    @property
    def lost(self) -> int:
        """The number of events that were dropped."""
        return self._lost

    @property
    def cpu_seconds(self) -> float:
        """The CPU time that writing has taken so far."""
        return self._cpu_seconds

    def record(self, event: Event) -> None:
        """Queue an event; returns at once, and never raises."""
        with self._changed:
            if self._closing.is_set():
                self._lost += 1
                return
            if len(self._waiting) == self._capacity:
                self._waiting.popleft()
                self._lost += 1
            self._waiting.append(event)
            self._changed.notify_all()

    def flush(self, timeout: float = _CLOSE_SECONDS) -> bool:
        """Wait until everything queued was written or dropped; returns whether that was within the time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._writing, timeout)

    def close(self, timeout: float = _CLOSE_SECONDS) -> None:
        """Write what is queued, and stop; what cannot be written within the time is dropped."""
        with self._changed:
            self._closing.set()
            self._changed.notify_all()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)
        atexit.unregister(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # ---- the thread

    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._waiting or self._closing.is_set())
                    events = list(self._waiting)
                    self._waiting.clear()
                    self._writing = bool(events)
                if events:
                    pause = self._pause if self._write(events) else _RETRY_SECONDS
                    self._cpu_seconds = time.thread_time()
                    with self._changed:
                        self._writing = False
                        self._changed.notify_all()
                    self._closing.wait(pause)
                elif self._closing.is_set():
                    return
        finally:
            if self._store is not None:
                self._store.close()

    def _write(self, events: list[Event]) -> bool:
        """Write some events in one transaction; if that fails, count them as lost."""
        try:
            if self._store is None:
                self._store = open_store(self.url, create=True, clock=self._clock, busy_seconds=_BUSY_SECONDS)
            store = self._store
            attempts = 0

            def write(connection: Connection) -> int:
                nonlocal attempts
                attempts += 1
                if attempts > 1:  # the attempt before was rolled back
                    self._tables.forget()
                now = store.now(connection)
                self._tables.write(connection, events, now=now, lost=self._lost)
                return now

            now = store.write(write)
            if now >= self._cleaned + _RETENTION_INTERVAL or now < self._cleaned:
                self._cleaned = now
                store.write(
                    lambda connection: remove_old(connection, before=now - self._keep, rows=self._rows)
                )
        except Exception as error:  # whatever happens to telemetry must not reach a query
            self._lost += len(events)
            self._tables.forget()
            if self._store is not None:
                self._store.close()
                self._store = None
            if not self._logged:
                self._logged = True
                reason = str(error) if isinstance(error, SlackwaterError) else repr(error)
                _log.warning(
                    "telemetry is not recorded in %s and its reports are dropped until it works again: %s",
                    redacted_url(self.url), reason,
                )  # fmt: skip
            return False
        self._logged = False
        return True


def _positive(value: int, name: str) -> int:
    if check_int64(value, name) < 1:
        raise InvalidArgument(name, value, "must be at least 1", fix="omit it for the default")
    return value
