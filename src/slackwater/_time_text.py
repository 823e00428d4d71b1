"""Text form of instants, for errors and explanations.

A module of its own because `slackwater.errors` uses it and `slackwater.time` imports the errors.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
LOWEST: Final = -(2**63)
HIGHEST: Final = 2**63 - 1


def instant_text(value: int | None) -> str:
    """Format an instant as ISO 8601 in UTC, or as a word for None and for the bounds of 64-bit time.

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
