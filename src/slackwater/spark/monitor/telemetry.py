"""Telemetry: the reports of all queries of a session, batch by batch, for dashboards, plots and alerts.

`why` returns the last report of one query. `Telemetry` is a listener that receives the report of every batch
of every query in the session and keeps the most recent ones, also of queries that have ended.
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
    """When it started."""
    duration: int
    """How long it took, in microseconds."""
    rows: int
    """The number of input rows, without the ticks of the clock."""
    report: QueryReport


class QueryHistory(msgspec.Struct, frozen=True):
    """The recent batches of a query, over all of its runs that were observed.

    >>> history = QueryHistory("5f…", "bids", run="1a…", started=0, running=True, error=None, batches=())
    >>> history.last is None
    True
    """

    id: str
    """The id of the query, which stays the same over restarts from a checkpoint."""
    name: str | None
    run: str
    """The id of the run, which changes with every restart."""
    started: int
    running: bool
    error: str | None
    """The error of the last run, if it failed."""
    batches: tuple[BatchReport, ...]
    """The batches in which an operator reported, oldest first."""

    @property
    def last(self) -> BatchReport | None:
        """The last batch; None before the first."""
        return self.batches[-1] if self.batches else None


@dataclass
class _Query:
    """The mutable record of a query."""

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
    """Keeps the recent batches of each query of a session; created by `telemetry`. It is thread-safe.

    >>> Telemetry(batches=10, queries=3).queries()
    ()
    """

    def __init__(self, *, batches: int, queries: int) -> None:
        for name, value in (("batches", batches), ("queries", queries)):
            if check_int64(value, name) < 1:
                raise InvalidArgument(name, value, "must be at least 1", fix="omit it for the default, 100")
        self._max_batches = batches
        self._max_queries = queries
        self._lock = threading.Lock()
        self._queries: dict[str, _Query] = {}
        self._session: SparkSession | None = None

    def queries(self) -> tuple[QueryHistory, ...]:
        """All queries, in the order of their last event."""
        with self._lock:
            return tuple(query.history() for query in self._queries.values())

    def query(self, query: StreamingQuery | str) -> QueryHistory:
        """The history of one query.

        Args:
            query: The query that ``start()`` returned, its id, or its name.

        Raises:
            InvalidArgument: No event of this query has been received.
        """
        wanted = query if isinstance(query, str) else str(query.id)
        with self._lock:
            named = [known for known in self._queries.values() if wanted in (known.id, known.name)]
            if named:
                return named[-1].history()
        raise InvalidArgument(
            "query",
            wanted,
            "is unknown: no event of it was received",
            fix="create the telemetry before the query starts",
        )

    def close(self) -> None:
        """Stop listening; the recorded batches stay available."""
        if self._session is not None:
            self._session.streams.removeListener(self)
            self._session = None

    def listen(self, spark: SparkSession) -> Self:
        """Start listening to the queries of a session."""
        spark.streams.addListener(self)
        self._session = spark
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Record the start or restart of a query."""
        with self._lock:
            self._run(event.id, event.runId, event.name, event.timestamp)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Record a batch."""
        progress = event.progress
        report = reported(progress)
        with self._lock:
            query = self._run(progress.id, progress.runId, progress.name, progress.timestamp)
            if report is not None:
                query.batches.append(_batch(progress, report))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Record the end of a run."""
        with self._lock:
            query = self._queries.get(str(event.id))
            if query is not None and query.run == str(event.runId):
                query.running = False
                query.error = event.exception.splitlines()[0] if event.exception else None

    def _run(self, query: UUID, run: UUID, name: str | None, timestamp: str) -> _Query:
        """The record of a run; it is created here for a query that started before `listen`."""
        known = self._queries.pop(str(query), None)
        if known is None or known.run != str(run):
            batches = deque(() if known is None else known.batches, self._max_batches)
            known = _Query(str(query), name, str(run), instant(timestamp), batches)
        self._queries[known.id] = known
        self._remove_old()
        return known

    def _remove_old(self) -> None:
        """Remove the oldest of the queries that have ended; running queries are all kept."""
        ended = [query.id for query in self._queries.values() if not query.running]
        for gone in ended[: max(0, len(self._queries) - self._max_queries)]:
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
    """Listen to the queries of a session and keep their recent batches.

    Args:
        spark: The session.
        batches: The number of batches to keep for each query.
        queries: The number of queries to keep; running queries are always kept.

    Returns:
        The listener, which can be read from any thread with `Telemetry.queries` and `Telemetry.query`. It
        listens until it is closed: use it in a ``with`` statement, or call `Telemetry.close`.

    Raises:
        InvalidArgument: ``batches`` or ``queries`` is less than 1.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> with telemetry(spark) as recorded:
    ...     recorded.queries()
    ()
    """
    return Telemetry(batches=batches, queries=queries).listen(spark)
