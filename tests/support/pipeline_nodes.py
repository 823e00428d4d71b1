"""The nodes of pipelines without Spark, which are trees; `tests.support.pipelines` runs them.

`Feed` is a source, `Filtered`, `Mapped`, `Rekeyed` and `Called` are stateless steps, and `Windowed`,
`Cogrouped`, `Joined` and `Deduplicated` are operators with state. All rows have the columns ``key`` and
``value``, so that any node can follow any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from slackwater import windows
from slackwater.spark.runtime.operator_inputs import EITHER

GAP: Final = "gap"
"""The column with the session gap of a row, which is computed from its value."""
CONDITION: Final = "value_left <= value_right"
PRIME: Final = 97
"""The values of rows without duplicates are their event times modulo this number."""


@dataclass(frozen=True)
class Feed:
    """A source: rows that arrive in batches, with a watermark that follows their highest event time."""

    name: str
    lag: int
    idle_after: int | None = None


@dataclass(frozen=True)
class Filtered:
    """The rows whose value is not a multiple of a number."""

    input: Node
    modulus: int


@dataclass(frozen=True)
class Mapped:
    """The rows with a value computed from theirs."""

    input: Node
    factor: int


@dataclass(frozen=True)
class Rekeyed:
    """The rows with a key computed from their value."""

    input: Node
    keys: int


@dataclass(frozen=True)
class Called:
    """The results of an async function: none for multiples of a number, two for other values."""

    input: Node
    modulus: int


@dataclass(frozen=True)
class Windowed:
    """A windowed operator over one or several inputs; ``value`` is the accumulation that gives the value."""

    inputs: tuple[Node, ...]
    window: windows.Window
    value: str
    trigger: windows.Trigger = windows.DEFAULT_TRIGGER
    mode: str = "accumulating"
    lateness: int | None = 0
    keyed: bool = True
    """Whether the window is per key; otherwise the panes have the key ``all``."""
    timestamp: str = "end_of_window"
    tick: int = 1
    """The unit of session gaps that are computed from values."""


@dataclass(frozen=True)
class Cogrouped:
    """Two inputs joined in the same windows; the value of a pair is computed from those of its rows."""

    left: Node
    right: Node
    window: windows.Window
    how: str
    trigger: windows.Trigger = windows.DEFAULT_TRIGGER
    mode: str = "accumulating"
    lateness: int | None = 0

    @property
    def inputs(self) -> tuple[Node, ...]:
        """Both sides."""
        return self.left, self.right


@dataclass(frozen=True)
class Joined:
    """Two inputs joined by time; the value of a pair is computed from those of its rows."""

    left: Node
    right: Node
    before: int
    after: int
    how: str
    conditional: bool = False
    """Whether the left value must not be greater than the right one."""

    @property
    def inputs(self) -> tuple[Node, ...]:
        """Both sides."""
        return self.left, self.right

    @property
    def by(self) -> str:
        """The watermark key that drives the next operator: that of a time which every row has."""
        return {"right": "right", "full": EITHER}.get(self.how, "left")


@dataclass(frozen=True)
class LookedUp(Joined):
    """Each left row with the right row that is closest in time, at most ``after`` away.

    The value is computed from the distance, because rows of a key at the same time arrive in any order.
    """

    direction: str = "backward"


@dataclass(frozen=True)
class Deduplicated:
    """The first row of each key within a time bound.

    Rows of a feed count in order of arrival, those of an input that retracts in order of time.
    The value is computed from the event time, because rows of a key at the same time arrive in any order.
    """

    input: Node
    within: int

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The only input."""
        return (self.input,)


Stateless = Filtered | Mapped | Rekeyed | Called
Operator = Windowed | Cogrouped | Joined | Deduplicated
Node = Feed | Stateless | Operator

ACCUMULATIONS: Final[Mapping[str, windows.ColumnarAccumulation]] = {
    "sum": windows.sum("value"),
    "count": windows.count(),
    "max": windows.max("value"),
    "min": windows.min("value"),
    "first": windows.first("value"),
    "last": windows.last("value"),
    "count_distinct": windows.count_distinct("value"),
    "sum_distinct": windows.sum_distinct("value"),
}


def retracts(node: Node) -> bool:
    """Whether the rows of a node can be retractions."""
    match node:
        case Feed():
            return False
        case Filtered() | Mapped() | Rekeyed() | Called() | Deduplicated():
            return retracts(node.input)
        case LookedUp():
            return retracts(node.left)
        case Windowed() | Cogrouped():
            return node.mode == "accumulating_and_retracting"
        case Joined():
            return any(map(retracts, node.inputs))


def lateness(node: Node) -> int | None:
    """How far the rows of a node may be behind its watermark; None for no limit."""
    start = base(node)
    if isinstance(start, Deduplicated):
        return lateness(start.input)
    return start.lateness if isinstance(start, Windowed | Cogrouped) else 0


def is_stamped(node: Node) -> bool:
    """Whether the event times of the rows depend on when their elements arrived."""
    start = base(node)
    return isinstance(start, Windowed) and start.timestamp != "end_of_window"


def gap_of(value: int | None, tick: int) -> int:
    """The session gap of a row."""
    return tick * (1 + (3 if value is None else abs(value) % 5))


def base(node: Node) -> Feed | Operator:
    """The feed or operator whose rows pass through the stateless steps of a node."""
    return base(node.input) if isinstance(node, Stateless) else node


def drop_late(node: Windowed | Cogrouped) -> str:
    """How an operator drops late rows.

    By window, a session accepts a row that belongs to a session which was purged before.
    """
    return "by_element" if isinstance(node.window, windows.Sessions) else "by_window"


def is_keyed(node: Operator) -> bool:
    """Whether the rows of a key are processed together; otherwise all rows are."""
    return not isinstance(node, Windowed) or node.keyed


def results_of(value: int | None, modulus: int) -> list[int | None]:
    """The values that the function of `Called` returns for a value."""
    if value is None:
        return [None]
    return [] if value % modulus == 0 else [value, value + 20]
