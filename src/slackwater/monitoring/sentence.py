"""Explains a query in one sentence, the same on the command line, on web pages and in notebooks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from slackwater._time_text import instant_text
from slackwater.monitoring.origins import OriginSummary
from slackwater.monitoring.query_state import OperatorSnapshot, QueryState
from slackwater.time import DAY, END_OF_TIME, SECOND, format_duration

_STALE = 60 * SECOND


def sentence(query: QueryState, now: int) -> str:
    """Where the watermark of a query is, what holds it back since when, and what waits for it.

    Args:
        query: The state of the query.
        now: The current time, to which ages and times of the same day refer.

    >>> operator = OperatorSnapshot(
    ...     "0",
    ...     now=400_000_000,
    ...     watermark=40_000_000,
    ...     reason="slowest",
    ...     held_by="partition 7",
    ...     since=42_000_000,
    ...     lag=360_000_000,
    ...     open_windows=3,
    ... )
    >>> query = QueryState(
    ...     "5f…",
    ...     "orders",
    ...     "1a…",
    ...     started=0,
    ...     updated=400_000_000,
    ...     age=0,
    ...     at=400_000_000,
    ...     operators=(operator,),
    ... )
    >>> sentence(query, now=401_000_000)
    'orders: watermark 00:00:40, 6 min behind; held by partition 7 (slowest) since 00:00:42; 3 windows wait'
    """
    parts = [_progress(query, now)]
    if not query.running:
        end = f"failed: {query.error}" if query.error else "stopped"
        at = "" if query.ended is None else f" at {clock_text(query.ended, now)}"
        parts.append(f"the query {end}" if query.error else f"the query {end}{at}")
    elif query.age > max(_STALE, 3 * (query.duration or 0)):
        parts.append(f"no report for {rough(query.age)}")
    return f"{query.title}: {'; '.join(parts)}"


def _progress(query: QueryState, now: int) -> str:
    operator = query.operator()
    if operator is None:
        return "no operator has reported yet"
    if operator.ended:
        return "the stream has ended"
    if operator.watermark is None:
        head = "watermark unknown"
    else:
        head = f"watermark {clock_text(operator.watermark, now)}"
        if operator.lag is not None:
            head += ", " + (f"{rough(operator.lag)} behind" if operator.lag > 0 else "not behind")
    holder = holder_of(query, operator)
    before = [
        each.origins
        for each in query.operators
        if each.id == holder.id or each.id.startswith(f"{holder.id}.")
    ]
    return "; ".join([head, *_holder(holder, before, now), *_waiting(operator)])


def holder_of(query: QueryState, operator: OperatorSnapshot) -> OperatorSnapshot:
    """The operator whose source holds the watermark back: the slowest one before this, or this one itself."""
    before = operator_that_holds(query, operator)
    return operator if before is None else holder_of(query, before)


_UPSTREAM: Final = re.compile(r"input 'bucket \d+'")


def holder_text(held_by: str | None) -> str | None:
    """What holds a watermark back, for people: a bucket means nothing to them.

    >>> holder_text("input 'bucket 3'"), holder_text("partition '7'")
    ('the operator before it', "partition '7'")
    """
    return None if held_by is None else _UPSTREAM.sub("the operator before it", held_by)


def operator_that_holds(query: QueryState, operator: OperatorSnapshot) -> OperatorSnapshot | None:
    """The operator directly before one that holds it back; None if a source of its own does.

    An operator that reads others only reports which bucket of them it waits for.
    """
    if operator.held_by is None or _UPSTREAM.match(operator.held_by) is None:
        return None
    depth = operator.id.count(".") + 1
    before = [
        each
        for each in query.operators
        if each.id.startswith(f"{operator.id}.") and each.id.count(".") == depth
    ]
    return min(
        before, key=lambda each: (each.watermark is not None, each.watermark or 0, each.id), default=None
    )


def _holder(operator: OperatorSnapshot, origins: Sequence[OriginSummary], now: int) -> list[str]:
    since = "" if operator.since is None else f" since {clock_text(operator.since, now)}"
    if operator.held_by is None:
        return {
            "idle": [f"every input is idle{since}"],
            "done": ["every input is done"],
            "discovery": [f"waiting for origins to be discovered{since}"],
            "never spoke": ["there is no input yet"],
        }.get(operator.reason, [])
    held_by = operator.held_by
    found = [origin for several in origins for origin in several.named(lambda name: _names(held_by, name))]
    if len(found) == 1 and found[0].status in ("silent", "gap"):
        detail = found[0].gap or "silent"
        since = "" if found[0].since is None else f" since {clock_text(found[0].since, now)}"
        return [f"held by {operator.held_by}, {detail}{since}"]
    return [f"held by {operator.held_by} ({operator.reason}){since}"]


def _names(held_by: str, origin: str) -> bool:
    """Whether the text about a holder names an origin."""
    names = [name for name in (repr(origin), origin) if name in held_by]
    texts = [f"{kind} {name}" for kind in ("partition", "origin") for name in names]
    return any(held_by == text or held_by.startswith(f"{text} of ") for text in texts)


def _waiting(operator: OperatorSnapshot) -> list[str]:
    if operator.open_windows:
        one = operator.open_windows == 1
        return [f"{operator.open_windows} {'window waits' if one else 'windows wait'}"]
    rows = sum(buffer.rows for buffer in operator.buffers.values())
    return [f"{rows} buffered rows wait"] if rows and operator.waiting is not None else []


def clock_text(at: int, now: int) -> str:
    """An instant in UTC: only the time of day within 12 hours of ``now``.

    >>> clock_text(40_500_000, now=60_000_000), clock_text(40_500_000, now=10**12)
    ('00:00:40', '1970-01-01T00:00:40Z')
    """
    text = instant_text(at if at == END_OF_TIME else at // SECOND * SECOND)
    return text[11:19] if abs(at - now) < DAY // 2 and text.endswith("Z") else text


def rough(value: int) -> str:
    """A duration with its largest unit only.

    >>> rough(361_000_000), rough(2_300_000), rough(400)
    ('6 min', '2 s', '400 µs')
    """
    return " ".join(format_duration(value).split()[:2])
