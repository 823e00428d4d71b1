"""Converts the report of a batch to the event that is recorded in a store."""

from __future__ import annotations

from collections.abc import Sequence

from slackwater.monitoring.events import BatchFinished
from slackwater.monitoring.query_state import BufferState, OperatorState, WatermarkState
from slackwater.progress.values import DEFAULT_KEY
from slackwater.spark.monitor.reports import InputReport, KeyReport, OperatorReport, QueryReport


def batch_finished(
    query: str,
    run: str,
    name: str | None,
    report: QueryReport,
    *,
    number: int,
    at: int,
    duration: int,
    rows: int,
) -> BatchFinished:
    """The event of a batch.

    >>> empty = QueryReport((), state_bytes=2048)
    >>> batch_finished("5f…", "1a…", "orders", empty, number=7, at=0, duration=1, rows=10).number
    7
    """
    operators = operator_states(report.operators)
    return BatchFinished(query, run, name, at, number, duration, rows, report.state_bytes, operators)


def operator_states(reports: Sequence[OperatorReport]) -> tuple[OperatorState, ...]:
    """The states of operators, with the lag that each inherits from those before it."""
    lags = {report.id: report.lag for report in reports}
    return tuple(_state(report, _inherited(report.id, lags)) for report in reports)


def _inherited(wanted: str, lags: dict[str, int | None]) -> int | None:
    """The largest lag of the operators directly before one; None if there are none."""
    depth = wanted.count(".") + 1
    before = [
        lag
        for other, lag in lags.items()
        if lag is not None and other.startswith(f"{wanted}.") and other.count(".") == depth
    ]
    return max(before, default=None)


def _state(report: OperatorReport, inherited_lag: int | None) -> OperatorState:
    slowest = report.slowest
    waiting = [bucket.waiting for bucket in report.buckets if bucket.waiting is not None]
    driving = KeyReport(
        DEFAULT_KEY, slowest.watermark, slowest.why, slowest.held_by, slowest.since, slowest.reason
    )
    return OperatorState(
        id=report.id,
        now=slowest.now,
        watermark=slowest.watermark,
        reason=slowest.reason,
        held_by=slowest.held_by,
        since=slowest.since,
        text=slowest.why,
        lag=report.lag,
        inherited_lag=inherited_lag,
        ended=slowest.ended,
        waiting=min(waiting, default=None),
        open_windows=report.open_windows,
        totals=report.totals,
        buffers={name: BufferState(size.rows, size.bytes) for name, size in report.buffers.items()},
        keys=tuple(_watermark(key.key, key) for key in (report.keys.values() or [driving])),
        inputs=tuple(_watermark(name, one, idle=one.idle) for name, one in report.inputs.items()),
    )


def _watermark(name: str, report: KeyReport | InputReport, *, idle: bool = False) -> WatermarkState:
    return WatermarkState(
        name, report.watermark, report.reason, report.held_by, report.since, report.why, idle
    )
