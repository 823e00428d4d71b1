"""Lineage of queries: one OpenLineage run for each step of the watermark, with the step as nominal time."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from pyspark.sql.streaming.listener import StreamingQueryListener

from slackwater.errors import InvalidArgument, MissingExtra
from slackwater.ingest.redaction import without_credentials
from slackwater.lineage.datasets import table_dataset
from slackwater.lineage.emitter import LineageEmitter, LineageRun, is_configured, new_run_id
from slackwater.spark.monitor.reports import reported
from slackwater.time import END_OF_TIME, instant, now

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import QueryProgressEvent, QueryStartedEvent, QueryTerminatedEvent


@dataclass
class _Query:
    run: LineageRun
    watermark: int | None = None
    rows: int = 0


@dataclass
class QueryLineage(StreamingQueryListener):
    """A listener that sends the events of the queries of a session; made by `send_lineage`.

    >>> QueryLineage((), ("delta:/data/totals",), "totals", LineageEmitter(None, "shop")).outputs
    ('delta:/data/totals',)
    """

    inputs: Sequence[str]
    outputs: Sequence[str]
    name: str | None
    emitter: LineageEmitter
    spark: SparkSession | None = None
    _queries: dict[str, _Query] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._inputs = tuple(map(table_dataset, self.inputs))
        self._outputs = tuple(map(table_dataset, self.outputs))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening, and send what is left."""
        if self.spark is not None:
            self.spark.streams.removeListener(self)
        self.emitter.close()

    # ---- Spark's listener

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Start the run of a query."""
        with self._lock:
            name = self.name or event.name or f"query-{event.id}"
            found = _Query(LineageRun(name, str(event.runId)))
            self._queries[str(event.runId)] = found
        self.emitter.emit("START", found.run, at=now(), inputs=self._inputs, outputs=self._outputs)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Send a run for the time between the last watermark and the new one."""
        progress = event.progress
        report = reported(progress)
        with self._lock:
            query = self._queries.get(str(progress.runId))
            if query is None or report is None or not report.operators:
                return
            query.rows += progress.numInputRows
            before, after = query.watermark, report.operators[-1].watermark
            if after is None or (before is not None and after <= before):
                return
            began = instant(progress.timestamp)
            high = None if after == END_OF_TIME else after
            low = high if before is None else before
            step = LineageRun(f"{query.run.job}.slice", new_run_id(), low, high, query.run)
            rows, query.rows, query.watermark = query.rows, 0, after
        emit, inputs, outputs = self.emitter.emit, self._inputs, self._outputs
        emit("START", step, at=began, inputs=inputs, outputs=outputs)
        emit("COMPLETE", step, at=now(), inputs=inputs, outputs=outputs, rows=rows)

    def onQueryIdle(self, event: object) -> None:  # noqa: N802 - Spark's name
        """Nothing has happened."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """End the run of a query."""
        with self._lock:
            query = self._queries.pop(str(event.runId), None)
        if query is not None:
            error = None if event.exception is None else without_credentials(str(event.exception))[:2000]
            self.emitter.emit(
                "COMPLETE" if error is None else "FAIL", query.run, at=now(), error=error,
                inputs=self._inputs, outputs=self._outputs,
            )  # fmt: skip


def send_lineage(
    spark: SparkSession, *, inputs: Sequence[str] = (), outputs: Sequence[str] = (), name: str | None = None
) -> QueryLineage:
    """Send OpenLineage events of all queries that the session starts from now on.

    A query is a run that lasts as long as the query. Below it, each step of the watermark of its last
    operator is a run of its own, ``NAME.slice``, whose nominal time begins at the watermark before and ends
    at the new one; the first step after a start has no length, because the watermark before is not known.

    The transport is that of OpenLineage's configuration, such as ``OPENLINEAGE_URL``. Errors of the transport
    are logged once and counted; they never fail a query.

    Args:
        spark: The session.
        inputs: The tables that the queries read, with addresses as in `complete_until`, paths or URLs.
        outputs: The tables that they write.
        name: The name of the job; by default that of the query.

    Returns:
        The listener; close it before the process ends, to send what is left.

    Raises:
        MissingExtra: OpenLineage is configured, and its package is not installed.
        InvalidArgument: OpenLineage is not configured.

    >>> import slackwater as sw
    >>> spark = sw.session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> sw.send_lineage(spark, outputs=["delta:/data/totals"])
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: OPENLINEAGE_URL = None: is not set, and there is no other transport \
for OpenLineage events; set OPENLINEAGE_URL, or OPENLINEAGE_CONFIG to a file with a transport
    """
    if not is_configured():
        raise InvalidArgument(
            "OPENLINEAGE_URL", None, "is not set, and there is no other transport for OpenLineage events",
            fix="set OPENLINEAGE_URL, or OPENLINEAGE_CONFIG to a file with a transport",
        )  # fmt: skip
    emitter = LineageEmitter.from_environment()
    if emitter is None:
        raise MissingExtra("lineage", "openlineage")
    listener = QueryLineage(tuple(inputs), tuple(outputs), name, emitter, spark)
    spark.streams.addListener(listener)
    return listener
