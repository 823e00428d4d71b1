"""Telemetry: the reports of all queries of a session, batch by batch, for dashboards, plots and alerts.

`why` returns the last report of one query. `Telemetry` is a listener that receives the report of every batch
of every query in the session and keeps the most recent ones, also of queries that have ended. With a store it
records them there as well, so that they outlive the process.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self
from uuid import UUID
from weakref import WeakKeyDictionary

import msgspec
from pyspark.sql.streaming.listener import StreamingQueryListener

from slackwater import _notebook_html as notebook
from slackwater._extras import naming_extras
from slackwater._time_text import instant_text
from slackwater.errors import InvalidArgument, MissingExtra
from slackwater.monitoring.events import KEPT_ROWS, RunEnded, RunStarted
from slackwater.spark.monitor.reports import QueryReport, reported
from slackwater.spark.monitor.snapshots import batch_finished
from slackwater.spark.session import monitor_url
from slackwater.spark.wire.clock_source import is_tick
from slackwater.time import SECOND, DurationLike, check_int64, format_duration, instant, now

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )
    from pyspark.sql.streaming.query import StreamingQuery

    from slackwater.monitoring.recorder import Recorder

_MILLISECOND: Final = 1_000
_SHOWN_BATCHES: Final = 10
_log: Final = logging.getLogger(__name__)


class BatchReport(msgspec.Struct, frozen=True):
    """One micro-batch of a query.

    >>> import slackwater as sw
    >>> sw.BatchReport(7, 0, 250_000, 10, sw.QueryReport((), 0)).number
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

    >>> import slackwater as sw
    >>> history = sw.QueryHistory("5f…", "bids", run="1a…", started=0, running=True, error=None, batches=())
    >>> history.last is None
    True
    >>> history
    QueryHistory('bids', running, 0 batches)
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

    def __repr__(self) -> str:
        state = "running" if self.running else "stopped" if self.error is None else f"failed: {self.error}"
        return f"QueryHistory({(self.name or self.id)!r}, {state}, {len(self.batches)} batches)"

    def _repr_html_(self) -> str:
        """What notebooks show: the newest report, and the last batches."""
        title = notebook.sentence(repr(self))
        if self.last is None:
            return notebook.fragment(title)
        rows = [
            (
                batch.number, instant_text(batch.at), format_duration(batch.duration), batch.rows,
                instant_text(batch.report.operators[0].watermark), _lag_text(batch),
                batch.report.operators[0].slowest.held_by,
            )
            for batch in reversed(self.batches[-_SHOWN_BATCHES:])
        ]  # fmt: skip
        header = ["batch", "at", "took", "rows", "watermark", "behind", "held by"]
        more = max(0, len(self.batches) - _SHOWN_BATCHES)
        newest = (part for operator in self.last.report.operators for part in operator.html_parts())
        return notebook.fragment(title, *newest, notebook.table(header, rows, more=more))


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

    >>> import slackwater as sw
    >>> sw.Telemetry(batches=10, queries=3).queries()
    ()
    """

    def __init__(self, *, batches: int, queries: int, recorder: Recorder | None = None) -> None:
        for name, value in (("batches", batches), ("queries", queries)):
            if check_int64(value, name) < 1:
                raise InvalidArgument(name, value, "must be at least 1", fix="omit it for the default, 100")
        self._max_batches = batches
        self._max_queries = queries
        self._lock = threading.Lock()
        self._queries: dict[str, _Query] = {}
        self._session: SparkSession | None = None
        self.recorder = recorder
        """Writes the reports to a store; None without one."""

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

    def _repr_html_(self) -> str:
        """What notebooks show: each query in a row, with its lag over the last batches."""
        histories = self.queries()
        rows = []
        for query in reversed(histories):
            last = query.last
            lags = [batch.report.operators[0].lag for batch in query.batches]
            rows.append(
                (
                    query.name or query.id, "running" if query.running else query.error or "stopped",
                    None if last is None else last.number,
                    "" if last is None else instant_text(last.report.operators[0].watermark),
                    "" if last is None else _lag_text(last),
                    notebook.curve([lag / SECOND for lag in lags if lag is not None], "lag by batch"),
                    None if last is None else last.report.operators[0].slowest.held_by,
                )
            )  # fmt: skip
        header = ["query", "state", "batch", "watermark", "behind", "lag by batch", "held by"]
        return notebook.fragment(notebook.table(header, rows))

    def close(self) -> None:
        """Stop listening; the recorded batches stay available."""
        if self._session is not None:
            self._session.streams.removeListener(self)
            if _recording.get(self._session) is self:
                del _recording[self._session]
            self._session = None
        if self.recorder is not None:
            self.recorder.close()

    def listen(self, spark: SparkSession) -> Self:
        """Start listening to the queries of a session.

        Args:
            spark: The session.
        """
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
            query = self._run(event.id, event.runId, event.name, event.timestamp)
        if self.recorder is not None:
            self.recorder.record(RunStarted(query.id, query.run, query.name, query.started))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Record a batch."""
        progress = event.progress
        report = reported(progress)
        with self._lock:
            query = self._run(progress.id, progress.runId, progress.name, progress.timestamp)
        if report is None:
            return
        batch = _batch(progress, report)
        if self.recorder is not None:
            self.recorder.record(
                batch_finished(
                    query.id, query.run, query.name, batch.report, number=batch.number, at=batch.at,
                    duration=batch.duration, rows=batch.rows,
                )
            )  # fmt: skip
        with self._lock:
            query.batches.append(batch)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Record the end of a run."""
        error = event.exception.splitlines()[0] if event.exception else None
        # Recorded before others see it: a telemetry that is closed after the end has recorded the end.
        if self.recorder is not None:
            self.recorder.record(RunEnded(str(event.id), str(event.runId), now(), error))
        with self._lock:
            query = self._queries.get(str(event.id))
            if query is not None and query.run == str(event.runId):
                query.running = False
                query.error = error

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


def _lag_text(batch: BatchReport) -> str:
    lag = batch.report.operators[0].lag
    return "" if lag is None else format_duration(lag)


def _batch(progress: StreamingQueryProgress, report: QueryReport) -> BatchReport:
    rows = [source.numInputRows or 0 for source in progress.sources if not is_tick(source.endOffset)]
    return BatchReport(
        number=progress.batchId,
        at=instant(progress.timestamp),
        duration=progress.batchDuration * _MILLISECOND,
        rows=sum(rows),
        report=report,
    )


def telemetry(
    spark: SparkSession,
    *,
    batches: int = 100,
    queries: int = 100,
    store: str | None = None,
    keep: DurationLike | None = None,
    rows: int = KEPT_ROWS,
) -> Telemetry:
    """Listen to the queries of a session and keep their recent batches, in memory and in a store.

    Args:
        spark: The session.
        batches: The number of batches to keep in memory for each query.
        queries: The number of queries to keep in memory; running queries are always kept.
        store: The URL of a metadata store, such as ``"sqlite:///slackwater.db"``, to record the reports in;
            by default that of ``session(monitor=…)`` or of the environment variable ``SLACKWATER_STORE``. A
            thread writes to it. Reports that it cannot write are dropped and counted.
        keep: How long the store keeps history; 7 days by default.
        rows: How many rows of history each table of the store keeps.

    Returns:
        The listener, which can be read from any thread with `Telemetry.queries` and `Telemetry.query`. It
        listens until it is closed: use it in a ``with`` statement, or call `Telemetry.close`.

    Raises:
        InvalidArgument: ``batches``, ``queries`` or ``rows`` is less than 1, or ``store`` is not a database
            URL. A store that cannot be reached is not an error.
        MissingExtra: There is a store, and the extra ``sql`` is not installed.

    >>> import slackwater as sw
    >>> spark = sw.session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> with sw.telemetry(spark) as recorded:
    ...     recorded.queries()
    ()
    """
    heard = Telemetry(batches=batches, queries=queries)
    url = store
    if url is None and spark not in _recording:
        url = monitor_url(spark)
    if url is not None:
        with naming_extras():
            from slackwater.monitoring.recorder import Recorder
        heard.recorder = Recorder(url, keep=keep, rows=rows)
        _recording.setdefault(spark, heard)
    return heard.listen(spark)


_recording: Final[WeakKeyDictionary[SparkSession, Telemetry]] = WeakKeyDictionary()
"""The telemetry of each session that records in a store."""


def start_recording(spark: SparkSession) -> None:
    """Record the queries of a session if a store is configured and nothing records them yet.

    The store is that of ``session(monitor=…)``, or the environment variable ``SLACKWATER_STORE``.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> start_recording(spark)  # none is configured
    """
    if spark not in _recording and monitor_url(spark) is not None:
        try:
            telemetry(spark)
        except (InvalidArgument, MissingExtra) as error:  # of the variable: a session checks its argument
            _log.warning("telemetry is not recorded: %s", error)
