"""Names of the columns that Slackwater adds to the rows of a user.

They contain a colon, so that they rarely collide with the names of a user's columns; `is_reserved` finds the
names that do.
"""

from __future__ import annotations

from typing import Final

TIME: Final = "event:time"
"""The event time in microseconds, null if the row has none."""
ORIGIN: Final = "event:origin"
BUCKET_INDEX: Final = "event:bucket"
"""The index of the row's bucket in the list of bucket ids."""
CONTROL: Final = "event:control"
"""The header of a buffer from an upstream operator, in a row of its own; null in rows of data."""
WITNESS: Final = "event:witness"
"""True in a row that was filtered out by an earlier step and only contributes its event time."""
UNREADABLE: Final = "event:unreadable"
"""True in a row with text that is not UTF-8; such a row is invalid."""
FALLBACKS: Final = "event:fallbacks"
"""How many results of a fallback of `map_async` a row stands for; only the first result of a row has any."""
FAILURE: Final = "event:failure"
"""Why an async function failed for a row, which is a witness then; null in all other rows."""
FAILED_ROW: Final = "event:failed_row"
"""The row for which an async function failed, as JSON."""
INVALID_REASON: Final = "event:invalid_reason"
"""Why a row of a numbered record, such as one of Kafka, is invalid; null in all other rows."""
RECORD_POSITION: Final = ("event:topic", "event:partition", "event:offset")
"""The topic, partition and offset of the record of a row, if invalid rows are emitted."""
RETRACTION: Final = "event:retraction"
"""True in a row that takes an earlier one back."""
SESSION_GAP: Final = "session:gap"
"""The session gap of a row in microseconds, if each row has its own."""
REPORT: Final = "event:report"
"""The report of a bucket in a row of its own, for sinks; null in rows of data."""
KIND: Final = "kind"
"""The kind of an output row: a pane or a pair, or a row that was dropped."""
SIDE: Final = "side"
"""The side of a late row of a join."""
WINDOW_BOUNDS: Final = ("window_start", "window_end")
"""The window of a row that comes from an upstream operator."""


_RESERVED: Final = ("event:", "header:", "apply:")


def is_reserved(name: str) -> bool:
    """Whether a user's column must not have this name. Spark ignores case in names.

    >>> is_reserved("Event:Time"), is_reserved("event_time")
    (True, False)
    """
    return name.lower().startswith(_RESERVED)


def time_column(key: str) -> str:
    """The column with the event time of a watermark key that does not drive the operator.

    >>> time_column("shipped")
    'event:time:shipped'
    """
    return f"{TIME}:{key}"


def column_alias(index: int) -> str:
    """A positional alias for a user's column, because Spark reads a dot in a name as a path.

    >>> column_alias(2)
    'column:2'
    """
    return f"column:{index}"
