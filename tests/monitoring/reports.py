"""Events of made-up queries."""

from __future__ import annotations

from typing import Any

from slackwater.monitoring.events import BatchFinished, OperatorChanges, RunStarted
from slackwater.monitoring.query_state import OperatorSnapshot, WatermarkState
from slackwater.time import SECOND

STARTED = RunStarted("q1", "r1", "orders", 0)


def operator(now: int, watermark: int | None, held_by: str | None = "partition 'b'", **others: Any) -> Any:
    """An operator at a number of seconds."""
    at = None if watermark is None else watermark * SECOND
    reason = others.pop("reason", "slowest")
    defaults = {
        "id": "0", "now": now * SECOND, "watermark": at, "reason": reason, "held_by": held_by,
        "keys": (WatermarkState("default", at, reason, held_by),),
    }  # fmt: skip
    return OperatorSnapshot(**(defaults | others))


def batch(
    number: int, *operators: OperatorSnapshot, query: str = "q1", run: str = "r1", **changes: Any
) -> Any:
    """A batch of a query; ``changes`` are those of operator 0."""
    return BatchFinished(
        query, run, "orders", operators[0].now, number, SECOND // 4, 10, 2048, operators,
        {"0": OperatorChanges(**changes)} if changes else {},
    )  # fmt: skip
