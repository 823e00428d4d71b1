"""A warning in the driver's log when a query first leaves rows out, with the reason and the remedy."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

import msgspec
from pyspark.sql.streaming.listener import StreamingQueryListener

from slackwater.spark.internals import is_remote, listen_to_metrics
from slackwater.spark.monitor.reports import METRIC, OperatorReport, operator_reports, reported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

_log: Final = logging.getLogger(__name__)

_REASONS: Final = {
    "dropped_late": (
        "they arrived after the watermark had passed their time and the allowed lateness",
        'use a longer sw.lag(…) as the watermark, or .allowed_lateness(…); late="emit" returns these rows',
    ),
    "dropped_closed": (
        "their window had closed, because its trigger had finished",
        "use a trigger that does not finish, such as sw.repeatedly(…)",
    ),
    "invalid": (
        "they have no usable event time",
        'check the column of event_time; invalid="emit" returns these rows',
    ),
    "failed": (
        "an async function failed for them",
        'on_error="emit" of map_async returns these rows with the reason in the column failure',
    ),
}
"""The counters of rows that are left out: why that happens, and what to change."""


class DropWarnings(StreamingQueryListener):
    """Logs one warning for each query and reason."""

    def __init__(self) -> None:
        self._warned: set[tuple[str, str]] = set()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing to do."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Log a warning if a batch is the first that left rows out for a reason."""
        report = reported(event.progress)
        if report is not None:
            self.check(str(event.progress.id), event.progress.name, report.operators)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing to do: the counters go on after a restart, so the rows were reported."""

    def on_metrics(self, query: str, name: str | None, metrics: Mapping[str, str]) -> None:
        """Do the same, given the observed metrics of a batch as JSON objects; those of others are ignored."""
        ours = {
            metric: msgspec.json.decode(text, type=dict[str, list[str]]).values()
            for metric, text in metrics.items()
            if metric.startswith(METRIC)
        }
        self.check(query, name, operator_reports(ours))

    def check(self, query: str, name: str | None, operators: Sequence[OperatorReport]) -> None:
        """Log a warning for each new reason for which a query has left rows out."""
        for counter, (why, fix) in _REASONS.items():
            rows = sum(operator.totals.get(counter, 0) for operator in operators)
            if rows and (query, counter) not in self._warned:
                self._warned.add((query, counter))
                left_out = "1 row was" if rows == 1 else f"{rows} rows were"
                _log.warning(
                    "query %s: %s left out of the results so far, because %s; %s. sw.why(query) counts them "
                    "from here on.",
                    repr(name or query), left_out, why, fix,
                )  # fmt: skip


_listeners: Final[WeakKeyDictionary[SparkSession, DropWarnings]] = WeakKeyDictionary()


def warn_of_drops(spark: SparkSession) -> None:
    """Log warnings for the queries of a session; further calls do nothing.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> warn_of_drops(spark)
    >>> warn_of_drops(spark)
    """
    if spark in _listeners:
        return
    listener = _listeners[spark] = DropWarnings()
    if is_remote(spark):
        spark.streams.addListener(listener)
    else:
        listen_to_metrics(spark, listener.on_metrics)
