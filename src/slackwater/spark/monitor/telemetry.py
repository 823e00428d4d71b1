"""What the queries of a session have reported, batch by batch: for pages, plots and alarms.

`why` asks a query for its last report. A listener hears of every batch of every query, also of those that
somebody else started and those that are over, and keeps the last of them.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self
from uuid import UUID

import msgspec
from pyspark.sql.streaming.listener import StreamingQueryListener

from slackwater.errors import InvalidArgument
from slackwater.spark.monitor.reports import QueryReport, reported
from slackwater.spark.wire.clock_source import is_tick
from slackwater.time import check_int64, instant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )
    from pyspark.sql.streaming.query import StreamingQuery

_MILLISECOND: Final = 1_000


class BatchReport(msgspec.Struct, frozen=True):
    """One micro-batch of a query.

    >>> BatchReport(7, 0, 250_000, 10, QueryReport((), 0)).number
    7
    """

    number: int
    at: int
    """When it began."""
    duration: int
    """How long it took, in microseconds."""
    rows: int
    """How many rows came in; the ticks of the clock are none."""
    report: QueryReport


class QueryHistory(msgspec.Struct, frozen=True):
    """What is known of a query: the last batches, of all its runs that were listened to.

    >>> history = QueryHistory("5f…", "bids", run="1a…", started=0, running=True, error=None, batches=())
    >>> history.last is None
    True
    """

    id: str
    """The same over restarts from one checkpoint."""
    name: str | None
    run: str
    """Another one after each restart."""
    started: int
    running: bool
    error: str | None
    """Why the last run ended, if it failed."""
    batches: tuple[BatchReport, ...]
    """Those in which an operator reported, the oldest first."""

    @property
    def last(self) -> BatchReport | None:
        """The last batch, None before the first."""
        return self.batches[-1] if self.batches else None


@dataclass
class _Query:
    """A query while it is listened to."""

    id: str
    name: str | None
    run: str
    started: int
    batches: deque[BatchReport]
    running: bool = True
    error: str | None = None

    def history(self) -> QueryHistory:
        return QueryHistory(
            self.id, self.name, self.run, self.started, self.running, self.error, tuple(self.batches)
        )


class Telemetry(StreamingQueryListener):
    """Keeps the last batches of each query of a session; made by `telemetry`. Any thread may ask it.

    >>> Telemetry(batches=10, queries=3).queries()
    ()
    """

    def __init__(self, *, batches: int, queries: int) -> None:
        for name, value in (("batches", batches), ("queries", queries)):
            if check_int64(value, name) < 1:
                raise InvalidArgument(name, value, "must be at least 1", fix="leave it out for 100")
        self._most_batches = batches
        self._most_queries = queries
        self._lock = threading.Lock()
        self._queries: dict[str, _Query] = {}
        self._session: SparkSession | None = None

    def queries(self) -> tuple[QueryHistory, ...]:
        """All queries, the one that spoke last at the end."""
        with self._lock:
            return tuple(query.history() for query in self._queries.values())

    def query(self, query: StreamingQuery | str) -> QueryHistory:
        """One query, by what `start` returned, by its id or by its name."""
        wanted = query if isinstance(query, str) else str(query.id)
        with self._lock:
            named = [known for known in self._queries.values() if wanted in (known.id, known.name)]
            if named:
                return named[-1].history()
        raise InvalidArgument(
            "query", wanted, "was not heard of", fix="make the telemetry before the query is started"
        )

    def close(self) -> None:
        """Stop listening; what was heard stays."""
        if self._session is not None:
            self._session.streams.removeListener(self)
            self._session = None

    def listen(self, spark: SparkSession) -> Self:
        """Hear of the queries of a session from now on."""
        spark.streams.addListener(self)
        self._session = spark
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """A query starts, or starts again."""
        with self._lock:
            self._run(event.id, event.runId, event.name, event.timestamp)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """A query has finished a batch."""
        progress = event.progress
        report = reported(progress)
        with self._lock:
            query = self._run(progress.id, progress.runId, progress.name, progress.timestamp)
            if report is not None:
                query.batches.append(_batch(progress, report))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """A query is over."""
        with self._lock:
            query = self._queries.get(str(event.id))
            if query is not None and query.run == str(event.runId):
                query.running = False
                query.error = event.exception.splitlines()[0] if event.exception else None

    def _run(self, query: UUID, run: UUID, name: str | None, timestamp: str) -> _Query:
        """The run of a query, also of one that was started before somebody listened."""
        known = self._queries.pop(str(query), None)
        if known is None or known.run != str(run):
            batches = deque(() if known is None else known.batches, self._most_batches)
            known = _Query(str(query), name, str(run), instant(timestamp), batches)
        self._queries[known.id] = known
        self._forget()
        return known

    def _forget(self) -> None:
        """Of queries that are over, only the latest are kept; running ones are all kept."""
        over = [query.id for query in self._queries.values() if not query.running]
        for gone in over[: max(0, len(self._queries) - self._most_queries)]:
            del self._queries[gone]


def _batch(progress: StreamingQueryProgress, report: QueryReport) -> BatchReport:
    rows = [source.numInputRows or 0 for source in progress.sources if not is_tick(source.endOffset)]
    return BatchReport(
        number=progress.batchId,
        at=instant(progress.timestamp),
        duration=progress.batchDuration * _MILLISECOND,
        rows=sum(rows),
        report=report,
    )


def telemetry(spark: SparkSession, *, batches: int = 100, queries: int = 100) -> Telemetry:
    """Listens to the queries of a session, and keeps the last ``batches`` of each.

    Ask it from any thread: `Telemetry.queries`, and `Telemetry.query` for one. Of queries that are over,
    it keeps no more than ``queries``. It listens until it is closed; use it in ``with``, or call `close`.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> with telemetry(spark) as heard:
    ...     heard.queries()
    ()
    """
    return Telemetry(batches=batches, queries=queries).listen(spark)
