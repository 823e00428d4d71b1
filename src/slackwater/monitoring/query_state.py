"""The state of a query after a batch: what the store contains, and what consoles and command lines show.

All times are integers of microseconds. All classes can be encoded as JSON with msgspec.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from slackwater.monitoring.origins import OriginSummary
from slackwater.time import END_OF_TIME

LateKind = Literal["late", "closed", "invalid"]
"""Why a row was dropped: too late, its window had closed by its trigger, or no usable event time."""


class WatermarkState(msgspec.Struct, frozen=True, omit_defaults=True):
    """A watermark of an operator or of one of its inputs, and what holds it back.

    >>> WatermarkState("default", 5, "slowest", "partition 'b'").held_by
    "partition 'b'"
    """

    name: str
    """The watermark key, or the name of the input."""
    watermark: int | None
    reason: str
    """``slowest``, ``never spoke``, ``gap``, ``idle``, ``done`` or ``discovery``."""
    held_by: str | None = None
    since: int | None = None
    text: str = ""
    """The explanation in one line."""
    idle: bool = False


class PolicyLag(msgspec.Struct, frozen=True, omit_defaults=True):
    """The lag of the watermark policy of a source.

    >>> PolicyLag("default", 8_000_000, coverage=0.999).lag
    8000000
    """

    name: str
    """The watermark key, with the name of the input if there are several."""
    lag: int
    """In microseconds; of a policy that learns it, the one in use."""
    coverage: float | None = None
    """The share of rows that should not be behind the watermark, if the lag is learned."""
    since: int | None = None
    """When a learned lag was last changed; None if it is still the initial one."""


class BufferState(msgspec.Struct, frozen=True):
    """The size of a buffer of rows, such as the left side of a join.

    >>> BufferState(3, 2048).rows
    3
    """

    rows: int
    bytes: int


class OpenWindows(msgspec.Struct, frozen=True, omit_defaults=True):
    """The open windows that end at the same time.

    >>> OpenWindows(end=20, start=10, keys=3, closes_at=25).closes_at
    25
    """

    end: int
    start: int
    """The earliest start."""
    windows: int = 1
    """The number of windows: those of all buckets, and inherited ones with other starts."""
    keys: int | None = None
    """The number of keys, or more while the aggregates of some are in parts; None if it is not known."""
    bytes: int | None = None
    """Their stored bytes; None if parts of them are only in the state store, which is not read for this."""
    owes_pane: bool = False
    """Whether a pane is still due."""
    closes_at: int = END_OF_TIME
    """The watermark at which they are removed: the end plus the allowed lateness."""


class WindowPanes(msgspec.Struct, frozen=True, omit_defaults=True):
    """The panes that windows with one end emitted in a batch, by timing.

    >>> WindowPanes(end=20, on_time=3).on_time
    3
    """

    end: int
    start: int = 0
    """The earliest start."""
    early: int = 0
    on_time: int = 0
    late: int = 0
    retractions: int = 0


class LateRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A sampled row that was dropped.

    >>> LateRow("late", watermark=30, window_start=0, window_end=10, lateness=20).lateness
    20
    """

    kind: LateKind
    at: int = 0
    """When the batch ran."""
    origin: str | None = None
    """None if the operator does not know it: rows that were aggregated before the shuffle."""
    event_time: int | None = None
    window_start: int | None = None
    window_end: int | None = None
    lateness: int | None = None
    """By how much the watermark had passed the end of its window, or its event time without a window."""
    watermark: int | None = None
    """The watermark before the batch."""
    ahead: str | None = None
    """The slowest origin at that time: all active origins had advanced to the watermark or further."""
    rows: int = 1
    """The number of rows that this sample stands for, if they were aggregated."""
    values: dict[str, str] | None = None
    """The key columns as text; None unless ``sample_late=True``."""
    side: str | None = None
    """``left`` or ``right`` for a row of a join."""


class OperatorSnapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """An operator of a query after a batch.

    >>> OperatorSnapshot("0", now=20, watermark=5, lag=15).lag
    15
    """

    id: str
    """``0`` for the operator whose rows leave the query, ``0.1`` for the one before its second input."""
    now: int
    """The clock of the batch."""
    watermark: int | None
    reason: str = ""
    held_by: str | None = None
    since: int | None = None
    text: str = ""
    """The explanation in one line."""
    lag: int | None = None
    """The distance of the watermark to the clock; None if it is unknown or the stream has ended."""
    inherited_lag: int | None = None
    """The largest lag of the operators before it; None if it reads only sources."""
    ended: bool = False
    waiting: int | None = None
    """The end of the earliest window that owes a pane, or the earliest time of rows that a join holds."""
    open_windows: int = 0
    totals: dict[str, int] = {}
    """Counters since the query was first started: panes by timing, retractions, dropped rows by reason."""
    buffers: dict[str, BufferState] = {}
    keys: tuple[WatermarkState, ...] = ()
    """The watermark of each key; only one if the stream has one event time."""
    inputs: tuple[WatermarkState, ...] = ()
    """The inputs, if there are several."""
    origins: OriginSummary = OriginSummary()
    windows: tuple[OpenWindows, ...] = ()
    """The open windows by end, the earliest first; bounded, and without sessions."""
    windows_left_out: int = 0
    """How many open windows are not in ``windows``."""
    policy_lags: tuple[PolicyLag, ...] = ()
    """The lags of the watermark policies of its sources."""

    @property
    def local_lag(self) -> int | None:
        """The part of the lag that this operator adds to that of the operators before it."""
        if self.lag is None:
            return None
        return self.lag - (self.inherited_lag or 0)


class QueryState(msgspec.Struct, frozen=True, omit_defaults=True):
    """A query with its newest state.

    >>> state = QueryState("5f…", "orders", "1a…", started=0, updated=20, age=3)
    >>> state.title, state.running
    ('orders', True)
    """

    id: str
    """The id of the query, which stays the same over restarts from a checkpoint."""
    name: str | None
    run: str
    started: int
    """When the run started."""
    updated: int
    """When the newest event was written."""
    age: int
    """How long ago that is."""
    running: bool = True
    """Whether the run has not ended; a killed driver leaves it so, with a growing ``age``."""
    ended: int | None = None
    error: str | None = None
    """The error of the last run, if it failed."""
    batch: int | None = None
    """The number of the newest batch in which an operator reported."""
    at: int | None = None
    """When this batch started."""
    duration: int | None = None
    rows: int | None = None
    """The number of its input rows."""
    state_bytes: int = 0
    operators: tuple[OperatorSnapshot, ...] = ()
    """The last operator first."""
    lost: int = 0
    """How many reports could not be written since the writer started."""

    @property
    def title(self) -> str:
        """The name, or the id of a query without one."""
        return self.name or self.id

    def operator(self, wanted: str | None = None) -> OperatorSnapshot | None:
        """The operator with an id, or the last one; None if there is none."""
        found = [operator for operator in self.operators if wanted in (None, operator.id)]
        return found[0] if found else None


class HolderSpan(msgspec.Struct, frozen=True):
    """A time in which the same input or origin held a watermark back for the same reason.

    >>> HolderSpan("0", "default", 0, 60, "partition 'b'", "slowest", None, 5, 5).lasted
    60
    """

    operator: str
    key: str
    at: int
    until: int
    """The last report in which it did."""
    held_by: str | None
    reason: str
    since: int | None
    """Since when by its own account, which may be before ``at``."""
    watermark: int | None
    """The watermark at the beginning."""
    reached: int | None
    """The watermark at the end."""

    @property
    def lasted(self) -> int:
        """The duration."""
        return self.until - self.at


class WatermarkSpan(msgspec.Struct, frozen=True):
    """A stretch of the history of a watermark: it stood still, or advanced by roughly the same rate.

    >>> WatermarkSpan(0, 60, 5, 5).watermark
    5
    """

    at: int
    until: int
    watermark: int
    """Its value at ``at``."""
    reached: int
    """Its value at ``until``."""


class WindowSnapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """The windows of an operator that end at the same time, open or closed.

    >>> WindowSnapshot("0", 20, 10, opened=12, closed=31, on_time=3).is_open
    False
    """

    operator: str
    end: int
    start: int
    opened: int
    """When they were first reported."""
    closed: int | None = None
    """When they were first missing in a report; None while they are open."""
    keys: int | None = None
    bytes: int | None = None
    early: int = 0
    on_time: int = 0
    late: int = 0
    retractions: int = 0
    closes_at: int = END_OF_TIME
    """The watermark at which they are removed."""
    owes_pane: bool = False

    @property
    def is_open(self) -> bool:
        """Whether they may still change."""
        return self.closed is None
