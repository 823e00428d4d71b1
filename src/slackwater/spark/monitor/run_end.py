"""Reports to the clocks of a session when the sources of their queries are exhausted."""

from __future__ import annotations

import json
from tempfile import TemporaryDirectory
from typing import Final
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    SourceProgress,
    StreamingQueryListener,
)

from slackwater.spark.wire.clock_source import is_tick
from slackwater.spark.wire.end_signals import EndSignals


class RunEndListener(StreamingQueryListener):
    """Reports every batch of the session's queries to the clocks that have asked for it."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="slackwater-", ignore_cleanup_errors=True)
        self.signals = EndSignals(self._folder.name)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing to do."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Report a batch to each clock of the query."""
        clocks = [source for source in event.progress.sources if is_tick(source.endOffset)]
        quiet = is_quiet([source for source in event.progress.sources if source not in clocks])
        for clock in clocks:
            offset = json.loads(clock.endOffset)
            self.signals.report(offset["run"], tick=offset["tick"], quiet=quiet)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing to do."""


def is_quiet(sources: list[SourceProgress]) -> bool:
    """Whether no source had anything new in a batch.

    Offsets are compared and not rows: rows that a filter drops before `stream` are not the end of a source.

    >>> is_quiet([])
    True
    """
    return all(source.startOffset == source.endOffset for source in sources)


_listeners: Final[WeakKeyDictionary[SparkSession, RunEndListener]] = WeakKeyDictionary()


def end_signals_of(spark: SparkSession) -> EndSignals:
    """The signals for the clocks of a session; the first call starts to listen to its queries.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> end_signals_of(spark) == end_signals_of(spark)
    True
    """
    listener = _listeners.get(spark)
    if listener is None:
        listener = _listeners[spark] = RunEndListener()
        spark.streams.addListener(listener)
    return listener.signals
