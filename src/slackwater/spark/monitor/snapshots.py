"""Converts the report of a batch to the event that is recorded in a store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from slackwater.monitoring.events import BatchFinished, OperatorChanges
from slackwater.monitoring.query_state import (
    BufferState,
    OpenWindows,
    OperatorSnapshot,
    WatermarkState,
    WindowPanes,
)
from slackwater.progress.delays import DelayHistogram
from slackwater.progress.values import DEFAULT_KEY
from slackwater.spark.monitor.reports import (
    BucketReport,
    InputReport,
    KeyReport,
    OperatorReport,
    QueryReport,
)
from slackwater.time import BEGINNING_OF_TIME, END_OF_TIME

_MOST_ENDS: Final = 100
"""How many ends of open windows are recorded for an operator."""
_MOST_LATE_ROWS: Final = 20
"""How many dropped rows of a batch are recorded for an operator."""


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
    changes = {operator.id: _changes(operator) for operator in report.operators}
    return BatchFinished(query, run, name, at, number, duration, rows, report.state_bytes, operators, changes)


def operator_states(reports: Sequence[OperatorReport]) -> tuple[OperatorSnapshot, ...]:
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


def _state(report: OperatorReport, inherited_lag: int | None) -> OperatorSnapshot:
    slowest = report.slowest
    waiting = [bucket.waiting for bucket in report.buckets if bucket.waiting is not None]
    driving = KeyReport(
        DEFAULT_KEY, slowest.watermark, slowest.why, slowest.held_by, slowest.since, slowest.reason
    )
    windows, left_out = open_windows(report.buckets)
    return OperatorSnapshot(
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
        origins=report.origins,
        windows=windows,
        windows_left_out=left_out,
        policy_lags=next((bucket.policy_lags for bucket in report.buckets if bucket.policy_lags), ()),
    )


def _changes(report: OperatorReport) -> OperatorChanges:
    """What happened in a batch, over all buckets."""
    panes: dict[int, WindowPanes] = {}
    for one in (panes for bucket in report.buckets for panes in bucket.panes):
        known = panes.get(one.end, WindowPanes(one.end, one.start))
        panes[one.end] = WindowPanes(
            one.end,
            min(known.start, one.start),
            known.early + one.early,
            known.on_time + one.on_time,
            known.late + one.late,
            known.retractions + one.retractions,
        )
    late = tuple(row for bucket in report.buckets for row in bucket.late_rows)
    return OperatorChanges(
        tuple(panes[end] for end in sorted(panes)), _delays(report.buckets), late[:_MOST_LATE_ROWS]
    )


def _delays(buckets: Sequence[BucketReport]) -> dict[str, DelayHistogram]:
    """The delays of the bucket that reports them."""
    return next((bucket.delays for bucket in buckets if bucket.delays), {})


def open_windows(buckets: Sequence[BucketReport]) -> tuple[tuple[OpenWindows, ...], int]:
    """The open windows of all buckets by end, and how many are left out.

    Beyond the last end that a bucket lists, it may have more windows; the others are left out there as well.

    >>> def bucket(*windows, left_out=0):
    ...     totals = {"on_time": 0}
    ...     return BucketReport(
    ...         0, 9, 5, "…", None, None, "", 3, False, totals, windows=windows, windows_left_out=left_out
    ...     )
    >>> few = bucket(OpenWindows(10, 0, keys=2), left_out=1)
    >>> more = bucket(OpenWindows(10, 0, keys=1), OpenWindows(20, 10, keys=1))
    >>> [(group.end, group.windows, group.keys) for group in open_windows([few, more])[0]]
    [(10, 2, 3)]
    >>> open_windows([few, more])[1]
    2
    """
    complete_until = min(
        (
            max((group.end for group in bucket.windows), default=BEGINNING_OF_TIME)
            for bucket in buckets
            if bucket.windows_left_out
        ),
        default=END_OF_TIME,
    )
    left_out = sum(bucket.windows_left_out for bucket in buckets)
    merged: dict[int, OpenWindows] = {}
    for one in (group for bucket in buckets for group in bucket.windows):
        if one.end > complete_until:
            left_out += one.windows
            continue
        known = merged.get(one.end)
        merged[one.end] = one if known is None else _together(known, one)
    ends = sorted(merged)
    left_out += sum(merged[end].windows for end in ends[_MOST_ENDS:])
    return tuple(merged[end] for end in ends[:_MOST_ENDS]), left_out


def _together(known: OpenWindows, one: OpenWindows) -> OpenWindows:
    return OpenWindows(
        end=one.end,
        start=min(known.start, one.start),
        windows=known.windows + one.windows,
        keys=None if known.keys is None or one.keys is None else known.keys + one.keys,
        bytes=None if known.bytes is None or one.bytes is None else known.bytes + one.bytes,
        owes_pane=known.owes_pane or one.owes_pane,
        closes_at=max(known.closes_at, one.closes_at),
    )


def _watermark(name: str, report: KeyReport | InputReport, *, idle: bool = False) -> WatermarkState:
    return WatermarkState(
        name, report.watermark, report.reason, report.held_by, report.since, report.why, idle
    )
