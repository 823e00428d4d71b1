"""Reports to the clocks of a session when the sources of their queries are exhausted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import Final
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from slackwater.spark.internals import listen_to_offsets
from slackwater.spark.wire.clock_source import is_tick
from slackwater.spark.wire.end_signals import EndSignals


class RunEndReports:
    """Reports every batch of the session's queries to the clocks that have asked for it."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="slackwater-", ignore_cleanup_errors=True)
        self.signals = EndSignals(self._folder.name)

    def on_offsets(self, offsets: Sequence[tuple[str | None, str | None]]) -> None:
        """Report a batch to each clock of its query, given the start and the end offset of every source."""
        ticks = [json.loads(end) for _, end in offsets if end is not None and is_tick(end)]
        quiet = is_quiet([(start, end) for start, end in offsets if not is_tick(end)])
        for tick in ticks:
            self.signals.report(tick["run"], tick=tick["tick"], quiet=quiet)


def is_quiet(offsets: Sequence[tuple[str | None, str | None]]) -> bool:
    """Whether no source had anything new in a batch, by their start and end offsets.

    Offsets are compared and not rows: rows that a filter drops before `stream` are not the end of a source.

    >>> is_quiet([("5", "5")]), is_quiet([("5", "5"), (None, "5")])
    (True, False)
    """
    return all(start == end for start, end in offsets)


_reports: Final[WeakKeyDictionary[SparkSession, RunEndReports]] = WeakKeyDictionary()


def end_signals_of(spark: SparkSession) -> EndSignals:
    """The signals for the clocks of a session; the first call starts to listen to its queries.

    Not for Spark Connect, whose clocks run on another machine.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> end_signals_of(spark) == end_signals_of(spark)
    True
    """
    reports = _reports.get(spark)
    if reports is None:
        reports = _reports[spark] = RunEndReports()
        listen_to_offsets(spark, reports.on_offsets)
    return reports.signals
