"""What a listener reports to a recorder: the start of a run, its batches, and its end."""

from __future__ import annotations

from typing import Final

import msgspec

from slackwater.monitoring.query_state import LateRow, OperatorSnapshot, WindowPanes
from slackwater.progress.delays import DelayHistogram

KEPT_ROWS: Final = 100_000
"""How many rows of history each table of a store keeps by default."""


class OperatorChanges(msgspec.Struct, frozen=True, omit_defaults=True):
    """What happened in an operator during one batch.

    >>> OperatorChanges(panes=(WindowPanes(end=20, on_time=3),)).late_rows
    ()
    """

    panes: tuple[WindowPanes, ...] = ()
    delays: dict[str, DelayHistogram] = {}
    """By origin."""
    late_rows: tuple[LateRow, ...] = ()


class RunStarted(msgspec.Struct, frozen=True):
    """A query was started.

    >>> RunStarted("5f…", "1a…", "orders", 0).name
    'orders'
    """

    query: str
    run: str
    name: str | None
    at: int


class BatchFinished(msgspec.Struct, frozen=True):
    """A batch of a query has finished.

    >>> BatchFinished("5f…", "1a…", "orders", 0, 7, 250_000, 10, 2048, ()).number
    7
    """

    query: str
    run: str
    name: str | None
    at: int
    """When the batch started."""
    number: int
    duration: int
    rows: int
    state_bytes: int
    operators: tuple[OperatorSnapshot, ...]
    changes: dict[str, OperatorChanges] = {}
    """By the id of the operator."""


class RunEnded(msgspec.Struct, frozen=True):
    """A run of a query has ended.

    >>> RunEnded("5f…", "1a…", 0).error is None
    True
    """

    query: str
    run: str
    at: int
    error: str | None = None


Event = RunStarted | BatchFinished | RunEnded
