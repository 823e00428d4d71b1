"""Progress reports of a running query: where its watermark is, and what holds it back.

Each bucket of an operator reports with every batch. The reports are an observed metric of the query, so they
need no extra action and arrive with Spark's own progress events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import msgspec

from slackwater import _notebook_html as notebook
from slackwater._time_text import instant_text
from slackwater.errors import InvalidArgument
from slackwater.monitoring.origins import OriginSummary
from slackwater.monitoring.query_state import LateRow, OpenWindows, PolicyLag, WindowPanes
from slackwater.progress.delays import DelayHistogram
from slackwater.spark.monitor.dead_letter_counts import dead_letter_counts
from slackwater.time import END_OF_TIME, format_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

METRIC: Final = "slackwater"
_REPORTS: Final = "reports"
"""The column of the metric: a list of the reports of all buckets."""
_OUTPUTS: Final = count()


class KeyReport(msgspec.Struct, frozen=True):
    """The progress of one of several watermark keys.

    >>> import slackwater as sw
    >>> sw.KeyReport("shipped", 5, "watermark …", None, None, "slowest").key
    'shipped'
    """

    key: str
    watermark: int | None
    why: str
    held_by: str | None
    since: int | None
    reason: str


class InputReport(msgspec.Struct, frozen=True):
    """The progress of one of several inputs of an operator.

    >>> import slackwater as sw
    >>> sw.InputReport("input 'orders'", None, False, "watermark unknown", None, None, "never spoke").idle
    False
    """

    name: str
    """The name given to `stream`, or the position of the input."""
    watermark: int | None
    idle: bool
    why: str
    held_by: str | None
    since: int | None
    reason: str


class BufferReport(msgspec.Struct, frozen=True):
    """The size of a buffer of rows, such as the left side of a join.

    >>> print(BufferReport(3, 2048))
    3 rows (2048 bytes)
    """

    rows: int
    bytes: int

    def __str__(self) -> str:
        return f"{self.rows} rows ({self.bytes} bytes)"


class BucketReport(msgspec.Struct, frozen=True):
    """The progress of one bucket after a batch.

    >>> import slackwater as sw
    >>> sw.BucketReport(0, 20, 5, "watermark …", None, None, "slowest", 3, False, {"on_time": 7}).open_windows
    3
    """

    bucket: int
    now: int
    watermark: int | None
    why: str
    """One line of text: where the watermark is, what holds it back, since when and why."""
    held_by: str | None
    since: int | None
    reason: str
    open_windows: int
    ended: bool
    totals: dict[str, int]
    """Counters since the query was first started: panes by timing, retractions, rows dropped as late or
    closed, keys whose state has expired, and, over all buckets, rows that were invalid or too far in the
    future, repeated buffers, and rows that got the result of a fallback of `map_async`."""
    keys: tuple[KeyReport, ...] = ()
    """The progress of each watermark key, if the stream has several event times."""
    inputs: tuple[InputReport, ...] = ()
    """The progress of each input, if there are several: a union, a join or a cogroup."""
    waiting: int | None = None
    """The end of the earliest window that still owes a pane; None if there is none."""
    buffers: dict[str, BufferReport] = {}
    """The buffered rows by name: the sides of a join, or the keys that a deduplication remembers."""
    origins: OriginSummary = OriginSummary()
    """The origins of the sources; only in the report of one bucket, because all have the same."""
    windows: tuple[OpenWindows, ...] = ()
    """The open windows of the bucket by end, the earliest 50."""
    windows_left_out: int = 0
    """How many open windows are not in ``windows``."""
    panes: tuple[WindowPanes, ...] = ()
    """The panes of this batch by the end of their window, for at most 50 ends."""
    late_rows: tuple[LateRow, ...] = ()
    """At most 10 of the rows that were dropped in this batch."""
    forwarded: dict[str, int] = {}
    """The watermarks of the rows that the bucket has emitted, after all holds, by watermark key."""
    delays: dict[str, DelayHistogram] = {}
    """By how much the rows of this batch were behind, by origin; only in the report of one bucket."""
    policy_lags: tuple[PolicyLag, ...] = ()
    """The lags of the watermark policies of the sources; only in the report of one bucket."""


class OperatorReport(msgspec.Struct, frozen=True):
    """The progress of one operator of a query: its buckets, and values derived from them.

    >>> import slackwater as sw
    >>> bucket = sw.BucketReport(
    ...     0, 20, None, "watermark unknown: there is no input yet", None, None, "", 0, False, {}
    ... )
    >>> sw.OperatorReport((bucket,)).watermark is None
    True
    """

    buckets: tuple[BucketReport, ...]
    id: str = "0"
    """``0`` for the operator whose rows leave the query, ``0.1`` for the one before its second input."""

    @property
    def slowest(self) -> BucketReport:
        """The bucket that is furthest behind, or the first of several."""
        unknown = [bucket for bucket in self.buckets if bucket.watermark is None]
        return unknown[0] if unknown else min(self.buckets, key=lambda bucket: bucket.watermark or 0)

    @property
    def watermark(self) -> int | None:
        """The watermark of the slowest bucket; None while it is unknown."""
        return self.slowest.watermark

    @property
    def lag(self) -> int | None:
        """The distance of the watermark to the clock in microseconds; None if it is unknown or has ended."""
        at = self.watermark
        return None if at is None or at == END_OF_TIME else self.slowest.now - at

    @property
    def open_windows(self) -> int:
        """The number of windows that may still change, over all buckets."""
        return sum(bucket.open_windows for bucket in self.buckets)

    @property
    def buffers(self) -> dict[str, BufferReport]:
        """The rows that joins and deduplications have buffered, over all buckets: a silent side's growth."""
        sizes: dict[str, BufferReport] = {}
        for bucket in self.buckets:
            for name, size in bucket.buffers.items():
                known = sizes.get(name, BufferReport(0, 0))
                sizes[name] = BufferReport(known.rows + size.rows, known.bytes + size.bytes)
        return sizes

    @property
    def totals(self) -> dict[str, int]:
        """The counters since the query was first started, over all buckets."""
        first = self.buckets[0].totals
        totals = {name: sum(bucket.totals[name] for bucket in self.buckets) for name in first}
        # Every bucket counts these over all buckets.
        counted_by_all = ("invalid", "ahead", "duplicates", "fallbacks")
        return totals | {name: first[name] for name in counted_by_all if name in first}

    @property
    def keys(self) -> dict[str, KeyReport]:
        """The progress of each of several watermark keys, from the bucket that is furthest behind."""
        slowest: dict[str, KeyReport] = {}
        for report in (report for bucket in self.buckets for report in bucket.keys):
            known = slowest.setdefault(report.key, report)
            if known.watermark is not None and (
                report.watermark is None or report.watermark < known.watermark
            ):
                slowest[report.key] = report
        return slowest

    @property
    def origins(self) -> OriginSummary:
        """The origins of the sources: their states and watermarks."""
        return max((bucket.origins for bucket in self.buckets), key=lambda found: len(found.listed))

    @property
    def inputs(self) -> dict[str, InputReport]:
        """The progress of each of several inputs, from the bucket that is furthest behind."""
        return {report.name: report for report in self.slowest.inputs}

    def __str__(self) -> str:
        lag = "" if self.lag is None else f"{format_duration(self.lag)} behind the clock, "
        counted = (f", {name.replace('_', ' ')} {value}" for name, value in self.totals.items() if value)
        keys = "".join(f"\n  {report.why}" for report in self.keys.values())
        keys += "".join(f"\n  {name}: {report.why}" for name, report in self.inputs.items())
        held = ", ".join(f"{name} {size}" for name, size in self.buffers.items())
        state = f"buffered: {held}" if held else f"{self.open_windows} open windows"
        return f"{self.slowest.why}\n  {lag}{state}{''.join(counted)}{keys}"

    __repr__ = __str__  # what a terminal shows

    def html_parts(self) -> list[notebook.Html]:
        """The explanation, the counters, and the origins on the event-time axis, for notebooks."""
        lag = "" if self.lag is None else f"{format_duration(self.lag)} behind the clock, "
        counted = (f", {name.replace('_', ' ')} {value}" for name, value in self.totals.items() if value)
        buffered = "".join(f", {name}: {size}" for name, size in self.buffers.items())
        parts = [
            notebook.sentence(self.slowest.why, strong=True),
            notebook.sentence(f"{lag}{self.open_windows} open windows{buffered}{''.join(counted)}"),
        ]
        levels: list[tuple[str, KeyReport | InputReport]] = [*self.keys.items(), *self.inputs.items()]
        if levels:
            rows = (
                (name, instant_text(level.watermark), level.held_by or level.reason) for name, level in levels
            )
            parts.append(notebook.table(["event time or input", "watermark", "held by"], rows))
        if listed := self.origins.listed:
            counts = ", ".join(f"{count} {state}" for state, count in self.origins.counts.items())
            parts.append(notebook.sentence(f"origins: {counts}"))
            spans = [notebook.TimeSpan(one.name, one.watermark, None, one.status) for one in listed]
            parts.append(
                notebook.timeline(spans, [("watermark", self.watermark), ("clock", self.slowest.now)])
            )
            left = max(0, len(listed) - notebook.MOST_ROWS) + self.origins.left_out
            if left:
                parts.append(notebook.sentence(f"… and {left} more origins, further ahead"))
        return parts

    def _repr_html_(self) -> str:
        """What notebooks show."""
        return notebook.fragment(*self.html_parts())


class QueryReport(msgspec.Struct, frozen=True):
    """The progress of a query: its operators, the last one first, and the size of its state.

    >>> import slackwater as sw
    >>> bucket = BucketReport(0, 20_000_000, 5_000_000, "watermark 1970-01-01T00:00:05Z: held back by \
partition 'b' (slowest, at 1970-01-01T00:00:05Z)", "partition 'b'", None, "slowest", 3, False, {"late": 1})
    >>> report = sw.QueryReport((sw.OperatorReport((bucket,)),), state_bytes=2048)
    >>> print(report)
    watermark 1970-01-01T00:00:05Z: held back by partition 'b' (slowest, at 1970-01-01T00:00:05Z)
      15 s behind the clock, 3 open windows, late 1
    2048 bytes of state
    """

    operators: tuple[OperatorReport, ...]
    state_bytes: int
    dead_letters: int = 0
    """The rows that `upsert_to` stored as dead letters since the query was first started; always 0 over Spark
    Connect, where only the database knows it."""

    def __str__(self) -> str:
        stored = f", dead letters {self.dead_letters}" if self.dead_letters else ""
        return "\n".join([*map(str, self.operators), f"{self.state_bytes} bytes of state{stored}"])

    __repr__ = __str__  # what a terminal shows

    def _repr_html_(self) -> str:
        """What notebooks show: the operators, the last one first."""
        parts: list[notebook.Html] = []
        for operator in self.operators:
            if len(self.operators) > 1:
                parts.append(notebook.sentence(f"operator {operator.id}"))
            parts += operator.html_parts()
        stored = f", dead letters {self.dead_letters}" if self.dead_letters else ""
        parts.append(notebook.sentence(f"{self.state_bytes} bytes of state{stored}"))
        return notebook.fragment(*parts)


def metric_name() -> str:
    """A new name for the observed metric of an output of a query.

    Names ascend in the order in which a program makes its outputs. Operators are numbered in the order of
    their names, so an operator has the same id after a restart of the program.

    >>> first, second = metric_name(), metric_name()
    >>> first < second, first.startswith(METRIC)
    (True, True)
    """
    return f"{METRIC}_{next(_OUTPUTS):08x}"


def observed(emitted: DataFrame, name: str) -> DataFrame:
    """The same rows, with the reports of all buckets as an observed metric called ``name``.

    Spark evaluates the metric for every row, so it is one column for any number of buckets.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> observed(spark.sql("select 1 as bucket, 'fine' as report"), METRIC).collect()
    [Row(bucket=1, report='fine')]
    """
    from pyspark.sql import functions as sql

    return emitted.observe(name, sql.collect_list("report").alias(_REPORTS))


def why(query: StreamingQuery) -> QueryReport:
    """Report where the watermark of a query is and what holds it back, as of its last batch.

    Args:
        query: The query that ``writeStream.start()`` returned, also over Spark Connect.

    Returns:
        The report. ``print(why(query))`` shows it as text; its operators have all values as attributes.

    Raises:
        InvalidArgument: ``query`` is not a streaming query, or no operator has reported yet.

    >>> import slackwater as sw
    >>> sw.why(None)
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: query = None: is not a streaming query; pass the result of start()
    """
    from slackwater.spark.internals import (
        is_streaming_query,  # imports Spark, which reading reports does not need
    )

    if not is_streaming_query(query):
        raise InvalidArgument("query", query, "is not a streaming query", fix="pass the result of start()")
    for progress in reversed(query.recentProgress):
        report = reported(progress)
        if report is not None:
            return report
    raise InvalidArgument(
        "query",
        query.name or str(query.id),
        "has not reported anything yet",
        fix="wait for its first batch, and check that it writes a DataFrame of panes or joined rows",
    )


def reported(progress: StreamingQueryProgress) -> QueryReport | None:
    """The report in the progress of a batch; None if no operator reported.

    >>> from types import SimpleNamespace
    >>> reported(SimpleNamespace(observedMetrics={}, stateOperators=[])) is None
    True
    """
    operators = operator_reports({name: _values(metric) for name, metric in progress.observedMetrics.items()})
    if not operators:
        return None
    state_bytes = sum(map(_state_bytes, progress.stateOperators))
    return QueryReport(operators, state_bytes, dead_letter_counts().of(str(progress.id)))


def operator_reports(metrics: Mapping[str, Iterable[Any]]) -> tuple[OperatorReport, ...]:
    """The reports of a query's operators, from the values of its observed metrics.

    >>> operator_reports({"rows": [7]})
    ()
    """
    names = sorted(name for name in metrics if name.startswith(METRIC))
    found = (
        OperatorReport(_bucket_reports(metrics[name]), number)
        for name, number in zip(names, _ids(names), strict=True)
    )
    return tuple(one for one in found if one.buckets)


def _bucket_reports(values: Iterable[Sequence[str]]) -> tuple[BucketReport, ...]:
    """The reports of the buckets in the lists of a metric, in order.

    A task that Spark runs again reports again.
    """
    reports = (msgspec.json.decode(text, type=BucketReport) for texts in values for text in texts)
    by_bucket = {report.bucket: report for report in reports}
    return tuple(by_bucket[bucket] for bucket in sorted(by_bucket))


def _ids(names: Sequence[str]) -> list[str]:
    """The ids of operators, given the sorted names of their metrics: that of an input continues the other.

    >>> _ids(["slackwater_ab", "slackwater_ab_0", "slackwater_ab_1_0", "slackwater_cd"])
    ['0', '0.0', '0.1.0', '1']
    """
    roots: list[str] = []
    ids: list[str] = []
    for name in names:
        if not roots or not name.startswith(f"{roots[-1]}_"):
            roots.append(name)
        ids.append(f"{len(roots) - 1}{name.removeprefix(roots[-1]).replace('_', '.')}")
    return ids


def _values(metric: Any) -> Iterable[Any]:
    row = metric.asDict()
    # Over Spark Connect the metric of a query is a row of a schema and a list of values.
    values: Iterable[Any] = row["values"] if {"values", "schema"} == row.keys() else row.values()
    return values


def _state_bytes(operator: Any) -> int:
    return int(operator.customMetrics.get("rocksdbSstFileSize", 0)) + int(operator.memoryUsedBytes)
