"""Names of the columns that accumulations and the engine use inside an operator.

Every internal column has a prefix or a reserved name, so that it cannot collide with a column of the user:
keys are ``key:0``, ``key:1``, …, inputs ``in:price``, partials ``part:total:sum``, values of panes
``value:total``. The names are part of the saved state: see `docs/reference/window-state.md`.
"""

from __future__ import annotations

from typing import Final

TIME: Final = "time"
"""The event time of an element."""
WEIGHT: Final = "weight"
"""+1 for an element, -1 for a retraction; only in operators whose input contains retractions."""
GAP: Final = "gap"
"""The session gap of an element; only if each element has its own."""
START: Final = "start"
"""The start of a window or slice."""
END: Final = "end"
"""The end of a window."""
ADDED: Final = "added"
"""The number of elements that this batch adds."""
STAMP: Final = "stamp"
"""The output timestamp of the elements since the last firing; null for the end of the window."""
LATEST: Final = "latest"
"""The latest event time of a key; only in a global window with a ttl."""
NEW: Final = "new"
"""The number of elements since the last firing."""
FIRST: Final = "first"
"""The processing time at which the first element since the last firing arrived."""
FRESH: Final = "fresh"
"""Whether an element since the last firing arrived before the window was complete."""
INDEX: Final = "index"
"""The index of the next pane."""
ON_TIME: Final = "on_time"
"""The number of emitted panes that were not early."""
CLOSED: Final = "closed"
"""Whether the trigger has finished."""
FIRED: Final = "fired"
"""The step of the last firing; partials of later steps are new."""
REMAINING: Final = "part:remaining"
"""The number of elements minus that of retractions; only in operators whose input contains retractions."""
SEQUENCE: Final = "sequence"
"""The step in which a partial was added."""
ROW: Final = "row"
"""The number of an element in its batch, or of a row in a firing decision."""


def key_column(number: int) -> str:
    """The internal name of a key column.

    >>> key_column(0)
    'key:0'
    """
    return f"key:{number}"


def is_key_column(name: str) -> bool:
    """Whether a column of a frame inside an operator is a key column.

    >>> is_key_column("key:0"), is_key_column("in:key:0")
    (True, False)
    """
    return name.startswith("key:")


def input_column(name: str) -> str:
    """The internal name of an input column.

    >>> input_column("price")
    'in:price'
    """
    return f"in:{name}"


def value_column(accumulation: str) -> str:
    """The internal name of the column with the output of an accumulation.

    >>> value_column("total")
    'value:total'
    """
    return f"value:{accumulation}"


def missed_column(accumulation: str) -> str:
    """The internal name of the column that marks partials with elements that an accumulation has not seen.

    It exists after an accumulation was added to a running query, while partials from before that are stored.

    >>> missed_column("total")
    'part:total:missed'
    """
    return f"part:{accumulation}:missed"
