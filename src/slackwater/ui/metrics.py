"""Metrics of queries, ingestion and streams in the text format of Prometheus, read from the metadata store.

They are times rather than lags: a time that stands still is visible even if nothing is exported any more. The
number of series is bounded; the most delayed come first.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from slackwater.ingest.ledger.progress_ledger import newest_high_watermarks
from slackwater.metadata.store import MetadataStore
from slackwater.monitoring.monitor import Monitor
from slackwater.monitoring.query_state import OperatorSnapshot, QueryState
from slackwater.progress.delays import DelayHistogram, bound_of
from slackwater.streams.timeline import newest_marks
from slackwater.time import BEGINNING_OF_TIME, END_OF_TIME, MILLISECOND, SECOND

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
MOST_SERIES: Final = 200
"""The most queries, units of a job, and streams that are exported."""
Names = Literal["slackwater", "flink"]
_LONGEST_LABEL: Final = 200
_BOUNDS: Final = (0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 900, 3_600, 21_600, 86_400)
_OUTCOMES: Final = {
    "late": "dropped_late", "closed": "dropped_closed", "invalid": "invalid", "duplicate": "dropped_duplicate"
}  # fmt: skip
_TIMINGS: Final = ("early", "on_time", "late")
_LOWEST_LONG: Final = -(2**63)
_HIGHEST_LONG: Final = 2**63 - 1


@dataclass(frozen=True)
class Family:
    r"""A metric with its samples, each a suffix of the name, labels and a value.

    >>> made = Family("slackwater_open_windows", "gauge", "Open windows.")
    >>> made.add({"query": 'a"b'}, 3)
    >>> print(made.text())
    # HELP slackwater_open_windows Open windows.
    # TYPE slackwater_open_windows gauge
    slackwater_open_windows{query="a\"b"} 3
    """

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    meaning: str
    samples: list[tuple[str, Mapping[str, str], float]] = field(default_factory=list)

    def add(self, labels: Mapping[str, str], value: float, suffix: str = "") -> None:
        """Add a sample."""
        self.samples.append((suffix, labels, value))

    def text(self) -> str:
        """The metric in the text format, without a line end."""
        lines = [f"# HELP {self.name} {self.meaning}", f"# TYPE {self.name} {self.kind}"]
        for suffix, labels, value in self.samples:
            shown = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            lines.append(f"{self.name}{suffix}{{{shown}}} {_number(value)}")
        return "\n".join(lines)


def metrics_text(store: MetadataStore, *, names: Names = "slackwater") -> str:
    """The metrics of a store in the text format of Prometheus.

    Args:
        store: The metadata store.
        names: ``slackwater``, or ``flink`` for the names and units of Apache Flink's Prometheus reporter, so
            that existing dashboards work; those cover queries only.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.metadata.store import open_store
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db", create=True) as store:
    ...     print(metrics_text(store).splitlines()[0])
    # HELP slackwater_watermark_timestamp_seconds Watermark of an operator by event time; +Inf after the end.
    """
    monitor = Monitor(store)
    newest = {query.title: query for query in reversed(monitor.queries()) if query.running}
    running = list(newest.values())[-MOST_SERIES:]
    if names == "flink":
        families = _flink(running)
    else:
        families = [
            *_of_queries(running, lambda query: monitor.delays(query.id).values()),
            _of_ingestion(store),
            _of_streams(store),
        ]
    return "".join(f"{family.text()}\n" for family in families)


def _of_queries(
    queries: Iterable[QueryState], delays: Callable[[QueryState], Iterable[DelayHistogram]]
) -> list[Family]:
    watermark = Family(
        "slackwater_watermark_timestamp_seconds", "gauge",
        "Watermark of an operator by event time; +Inf after the end.",
    )  # fmt: skip
    holder = Family("slackwater_watermark_holder_info", "gauge", "What holds a watermark back; always 1.")
    origins = Family("slackwater_origins", "gauge", "Number of origins by state.")
    late = Family("slackwater_late_rows_total", "counter", "Rows that were dropped, by reason.")
    lateness = Family(
        "slackwater_lateness_seconds", "histogram",
        "Delay of rows behind the fastest event time of their source, kept for days.",
    )  # fmt: skip
    panes = Family("slackwater_panes_total", "counter", "Panes that were emitted, by timing.")
    windows = Family("slackwater_open_windows", "gauge", "Windows that may still change.")
    state = Family("slackwater_state_bytes", "gauge", "Size of the state of a query.")
    for query in queries:
        state.add({"query": query.title}, query.state_bytes)
        for operator in query.operators:
            labels = {"query": query.title, "operator": operator.id}
            for key, at, held_by, reason in _watermarks(operator):
                if at is not None:
                    watermark.add({**labels, "time": key}, _seconds(at))
                if held_by is not None:
                    holder.add({**labels, "time": key, "held_by": held_by, "reason": reason}, 1)
            for status, count in operator.origins.counts.items():
                origins.add({**labels, "state": status}, count)
            for outcome, counter in _OUTCOMES.items():
                late.add({**labels, "outcome": outcome}, operator.totals.get(counter, 0))
            for timing in _TIMINGS:
                panes.add({**labels, "timing": timing}, operator.totals.get(timing, 0))
            windows.add(labels, operator.open_windows)
        _add_histogram(lateness, {"query": query.title}, delays(query))
    return [watermark, holder, origins, late, lateness, panes, windows, state]


def _watermarks(operator: OperatorSnapshot) -> Iterator[tuple[str, int | None, str | None, str]]:
    """(key, watermark, holder, reason) of each event time of an operator."""
    if not operator.keys:
        yield "default", operator.watermark, operator.held_by, operator.reason
    for key in operator.keys:
        yield key.name, key.watermark, key.held_by, key.reason


def _add_histogram(family: Family, labels: Mapping[str, str], histograms: Iterable[DelayHistogram]) -> None:
    whole = DelayHistogram()
    for each in histograms:
        whole.add(each)
    if not whole.rows:
        return
    for bound in _BOUNDS:
        within = sum(rows for number, rows in whole.bins.items() if bound_of(number) <= bound * SECOND)
        family.add({**labels, "le": _number(bound)}, within, "_bucket")
    family.add({**labels, "le": "+Inf"}, whole.rows, "_bucket")
    family.add(labels, sum(bound_of(number) * rows for number, rows in whole.bins.items()) / SECOND, "_sum")
    family.add(labels, whole.rows, "_count")


def _of_ingestion(store: MetadataStore) -> Family:
    family = Family(
        "slackwater_ingest_watermark_timestamp_seconds", "gauge",
        "High watermark of a unit of an ingestion job.",
    )  # fmt: skip
    found = sorted(store.read(newest_high_watermarks).items(), key=lambda item: item[1])
    exported: dict[str, int] = {}
    for (job, unit), high in found:
        exported[job] = exported.get(job, 0) + 1
        if exported[job] <= MOST_SERIES and len(exported) <= MOST_SERIES:
            family.add({"job": job, "unit": "" if unit == "{}" else unit}, _seconds(high))
    return family


def _of_streams(store: MetadataStore) -> Family:
    family = Family(
        "slackwater_stream_mark_timestamp_seconds", "gauge", "Lower bound of the newest mark of a stream."
    )
    found = sorted(store.read(newest_marks).items(), key=lambda item: item[1])
    for name, lower in found[:MOST_SERIES]:
        family.add({"stream": name}, _seconds(lower))
    return family


def _flink(queries: Iterable[QueryState]) -> list[Family]:
    prefix = "flink_taskmanager_job_task_operator"
    incoming = Family(f"{prefix}_currentInputWatermark", "gauge", "Watermark of an operator in milliseconds.")
    outgoing = Family(f"{prefix}_currentOutputWatermark", "gauge", "The watermark that it has emitted.")
    late = Family(f"{prefix}_numLateRecordsDropped", "gauge", "Rows that were dropped as late.")
    for query in queries:
        for operator in query.operators:
            labels = {
                "job_id": query.id, "job_name": query.title, "operator_id": operator.id,
                "operator_name": operator.id, "subtask_index": "0",
            }  # fmt: skip
            inputs = [each.watermark for each in operator.inputs] or [operator.watermark]
            known = [at for at in inputs if at is not None]
            incoming.add(labels, _milliseconds(min(known) if len(known) == len(inputs) else None))
            outgoing.add(labels, _milliseconds(operator.watermark))
            totals = operator.totals
            late.add(labels, totals.get("dropped_late", 0) + totals.get("dropped_closed", 0))
    return [incoming, outgoing, late]


def _milliseconds(at: int | None) -> int:
    """Flink's values for a watermark that is not known yet, and for one after the end."""
    if at is None or at == BEGINNING_OF_TIME:
        return _LOWEST_LONG
    return _HIGHEST_LONG if at == END_OF_TIME else at // MILLISECOND


def _seconds(at: int) -> float:
    return math.inf if at == END_OF_TIME else -math.inf if at == BEGINNING_OF_TIME else at / SECOND


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(value)


def _escaped(text: str) -> str:
    """A label value; a long one ends with its checksum, because two equal series would be an error."""
    short = text
    if len(text) > _LONGEST_LABEL:
        short = f"{text[:_LONGEST_LABEL]}…{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return short.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
