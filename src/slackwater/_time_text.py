"""How a point in time is worded, for errors and explanations alike.

Apart from `slackwater.time`, which builds on the errors, so that errors can use it too.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
LOWEST: Final = -(2**63)
HIGHEST: Final = 2**63 - 1


def instant_text(value: int | None) -> str:
    """An instant as people read it; also for the ends of time and for none.

    >>> instant_text(10_500_000), instant_text(2**63 - 1), instant_text(None)
    ('1970-01-01T00:00:10.500000Z', 'end of time', 'unknown')
    """
    if value is None:
        return "unknown"
    if value == HIGHEST:
        return "end of time"
    if value == LOWEST:
        return "beginning of time"
    try:
        return (EPOCH + timedelta(microseconds=value)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return f"{value} µs"
