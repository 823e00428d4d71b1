"""Random pipelines: up to some number of operators, composed at random, and the rows of their feeds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from hypothesis import strategies as st

from slackwater import windows
from slackwater.spark.wire.wire_columns import TIME
from slackwater.time import instant
from tests.model.windows import Row
from tests.strategies.windows import CALENDAR_TICK, CALENDARS, HypothesisSource, Source
from tests.support.pipeline_nodes import (
    GAP,
    Called,
    Cogrouped,
    Deduplicated,
    Feed,
    Filtered,
    Joined,
    LookedUp,
    Mapped,
    Node,
    Operator,
    Rekeyed,
    Stateless,
    Windowed,
    base,
    is_stamped,
    lateness,
    retracts,
)

INFINITE = 10**18
RETRACTING = "accumulating_and_retracting"
N = TypeVar("N", bound=Node)
KINDS = ("window", "window", "window", "union", "cogroup", "join", "join")
UNKNOWN_TIMES = ("sum", "count")
"""The accumulations whose sum over all windows does not depend on the event times of the elements."""


def triggers(tick: int) -> tuple[windows.Trigger, ...]:
    """Triggers that lose nothing; ``tick`` is the unit of event time."""
    by_event_time = windows.Repeatedly(windows.AfterEventTime(3 * tick))
    by_clock = windows.Repeatedly(windows.AfterProcessingTime(3))
    return (
        windows.DEFAULT_TRIGGER,
        windows.after_watermark(early=windows.every(count=1), late=windows.every(count=1)),
        windows.after_watermark(early=windows.every(count=2), late=windows.every(count=2)),
        windows.every(count=2),
        windows.after_watermark(early=by_clock, late=windows.every(count=1)),
        windows.after_watermark(early=by_event_time, late=windows.every(count=1)),
    )


@dataclass(frozen=True)
class Case:
    """A pipeline, and the rows of its feeds in each micro-batch."""

    last: Operator
    batches: tuple[dict[str, tuple[Row, ...]], ...]
    folds: bool


@dataclass(frozen=True)
class Limits:
    """The largest case."""

    operators: int = 4
    batches: int = 4
    least_batches: int = 1
    rows: int = 6
    """The rows of a feed in a micro-batch."""
    chains: bool = False
    """Whether every operator is a window over the one before it."""


@st.composite
def cases(draw: st.DrawFn, limits: Limits = Limits()) -> Case:  # noqa: B008 - frozen
    """Cases that Hypothesis draws."""
    return case(HypothesisSource(draw), limits)


def case(source: Source, limits: Limits = Limits()) -> Case:  # noqa: B008 - frozen
    """A case within the limits."""
    builder = _Builder(source, limits)
    last = builder.operator(source.integer(1, limits.operators), last=True)
    batches = tuple(
        builder.batch(number) for number in range(source.integer(limits.least_batches, limits.batches))
    )
    return Case(last, batches, source.chance(50))


def family(source: Source, limits: Limits, size: int) -> list[Case]:
    """Cases with different last operators over the same inputs, which get the same rows."""
    builder = _Builder(source, limits)
    operators = source.integer(1, limits.operators)
    others = source.integer(0, min(operators - 1, 1))
    inputs = builder.node(operators - 1 - others), builder.node(others)
    lasts: dict[Operator, None] = {}
    while len(lasts) < size:
        lasts[builder.last(inputs)] = None
    batches = tuple(
        builder.batch(number) for number in range(source.integer(limits.least_batches, limits.batches))
    )
    folds = source.chance(50)
    return [Case(last, batches, folds) for last in lasts]


def adds_up(node: Node, *, last: bool = True) -> bool:
    """Whether the panes of every operator add up to the batch result, and none is late for the next one."""
    if isinstance(node, Feed):
        return True
    if isinstance(node, Stateless):
        return adds_up(node.input, last=last)
    if isinstance(node, Deduplicated):
        ordered = isinstance(base(node.input), Feed) or retracts(node.input)
        return ordered and not is_stamped(node.input) and adds_up(node.input, last=False)
    if isinstance(node, Joined):
        timed = not any(map(is_stamped, node.inputs))
        return timed and all(adds_up(each, last=False) for each in node.inputs)
    starts = [base(each) for each in node.inputs]
    longest = max(INFINITE if (each := lateness(one)) is None else each for one in node.inputs)
    fires_once = node.lateness == 0 and node.trigger == windows.DEFAULT_TRIGGER
    inherits = isinstance(node.window, windows.Inherited)
    return (
        (last or node.mode == RETRACTING or fires_once)
        and (INFINITE if node.lateness is None else node.lateness) >= longest
        and not (inherits and any(isinstance(start, Feed | Joined | Deduplicated) for start in starts))
        and (_is_timed(node) or (last and _sums_up(node)))
        and not (_gap_column(node) and any(map(retracts, node.inputs)))
        and all(adds_up(each, last=False) for each in node.inputs)
    )


def _is_timed(node: Windowed | Cogrouped) -> bool:
    """Whether windows and values do not depend on the arrival of the elements of an operator before it."""
    keeps = isinstance(node.window, windows.Inherited | windows.Global)
    reads_times = isinstance(node, Cogrouped) or node.value in ("first", "last")
    return not any(map(is_stamped, node.inputs)) or (keeps and not reads_times)


def _sums_up(node: Windowed | Cogrouped) -> bool:
    """Whether each element is in one window, so that the sum over all windows is known."""
    is_sum = isinstance(node, Windowed) and node.value in UNKNOWN_TIMES
    return is_sum and isinstance(node.window, windows.Fixed | windows.Calendar)


def _gap_column(node: Windowed | Cogrouped) -> str | None:
    return node.window.column if isinstance(node.window, windows.Sessions) else None


class _Builder:
    def __init__(self, source: Source, limits: Limits) -> None:
        self.source = source
        self.limits = limits
        self.feeds: list[Feed] = []
        self.tick, self.origin = 1, 0
        self.calendar: windows.Calendar | None = None
        if source.chance(15):
            unit, count, timezone, begin, *firsts = source.choose(CALENDARS)
            self.calendar = windows.Calendar(unit, count, timezone, *firsts)
            self.tick, self.origin = CALENDAR_TICK, instant(begin)

    def ticks(self, low: int, high: int) -> int:
        """A duration in event time."""
        return self.tick * self.source.integer(low, high)

    def node(self, operators: int) -> Node:
        """A node with at most so many operators."""
        if operators == 0:
            lag, idle_after = self.source.choose([0, 2, 6]), self.source.choose([None, None, 4])
            feed = Feed(f"feed {len(self.feeds)}", lag * self.tick, idle_after)
            self.feeds.append(feed)
            node: Node = feed
        else:
            node = self.operator(operators)
        return self._steps(node)

    def _steps(self, node: Node) -> Node:
        """The node with up to two stateless steps."""
        for _ in range(self.source.choose([0, 0, 1, 2])):
            step = self.source.choose(["filter", "map", "rekey", "call"])
            if step == "filter":
                node = Filtered(node, self.source.integer(2, 4))
            elif step == "map":
                node = Mapped(node, self.source.choose([-1, 2, 3]))
            elif step == "call":
                node = Called(node, self.source.integer(2, 3))
            else:
                node = Rekeyed(node, self.source.integer(1, 3))
        return node

    def operator(self, operators: int, *, last: bool = False) -> Operator:
        """An operator with at most so many operators in total."""
        kind = self.source.choose([*KINDS, *(["deduplicate"] if operators == 1 else [])])
        if self.limits.chains or kind == "window":
            return self._over_one("window", self.node(operators - 1), last=last)
        if kind == "deduplicate":
            return self._over_one(kind, self.node(0), last=last)
        others = self.source.integer(0, min(operators - 1, 1))
        inputs = self.node(operators - 1 - others), self.node(others)
        return self._over_two(kind, inputs, last=last)

    def last(self, inputs: tuple[Node, Node]) -> Operator:
        """A last operator over one or both of the inputs."""
        first, second = (self._steps(each) if self.source.chance(30) else each for each in inputs)
        single = first if self.source.chance(75) else second
        kind = self.source.choose([*KINDS, *(["deduplicate"] if isinstance(base(single), Feed) else [])])
        if kind in ("window", "deduplicate"):
            return self._over_one(kind, single, last=True)
        return self._over_two(kind, (first, second), last=True)

    def _over_one(self, kind: str, node: Node, *, last: bool) -> Operator:
        if kind == "deduplicate":
            return Deduplicated(node, self.ticks(0, 9))
        if retracts(node) and not self.limits.chains and self.source.chance(25):
            return Deduplicated(node, self.ticks(0, 8))
        return self._windowed((node,), last=last)

    def _over_two(self, kind: str, inputs: tuple[Node, Node], *, last: bool) -> Operator:
        if self.source.chance(50):
            inputs = inputs[1], inputs[0]
        if kind == "join":
            return self._joined(inputs)
        return self._windowed(inputs, last=last) if kind == "union" else self._cogrouped(inputs, last=last)

    def _windowed(self, inputs: tuple[Node, ...], *, last: bool) -> Windowed:
        signed = any(map(retracts, inputs))
        panes = all(isinstance(base(each), Windowed | Cogrouped) for each in inputs)
        kinds = [
            "fixed",
            "sliding",
            "sessions",
            *(["gaps"] if not signed else []),
            *(["inherited"] if panes else []),
            *(["global"] if last else []),
            *(["calendar"] * 3 if self.calendar is not None else []),
        ]
        values = ["sum", "count", "max", "min", "count_distinct", "sum_distinct"]
        node = Windowed(
            inputs,
            window=self._window(self.source.choose(kinds)),
            value=self.source.choose([*values, *(["first", "last"] if signed else [])]),
            tick=self.tick,
        )
        if not isinstance(node.window, windows.Sessions):
            node = replace(node, keyed=self.source.chance(75))
        if self.source.chance(30):
            stamped = replace(node, inputs=tuple(map(self._stamped, inputs)))
            if _is_timed(stamped) or (last and _sums_up(stamped)):
                node = stamped
        if last and self.source.chance(20):
            node = self._stamped(node)
        return replace(node, **self._settings(node, last=last))  # type: ignore[arg-type]

    def _stamped(self, node: N) -> N:
        """The node with another output timestamp of its windows, if it has windows."""
        match node:
            case Filtered() | Mapped() | Rekeyed() | Called():
                return replace(node, input=self._stamped(node.input))
            case Windowed():
                return replace(node, timestamp=self.source.choose(["earliest", "latest"]))
        return node

    def _cogrouped(self, inputs: tuple[Node, Node], *, last: bool) -> Cogrouped:
        window = self._window(self.source.choose(["fixed", "sliding", "sessions"]))
        node = Cogrouped(*inputs, window=window, how=self.source.choose(["inner", "left", "right", "full"]))
        return replace(node, **self._settings(node, last=last))  # type: ignore[arg-type]

    def _joined(self, inputs: tuple[Node, Node]) -> Joined:
        if self.source.chance(40):
            direction = self.source.choose(["backward", "forward", "nearest"])
            tolerance, how = self.ticks(0, 8), self.source.choose(["left", "inner"])
            return LookedUp(*inputs, tolerance, tolerance, how, direction=direction)
        before = self.source.integer(-3, 8)
        after = self.source.integer(max(-before, -3), 8)
        how = self.source.choose(["inner", "left", "right", "full", "semi", "anti"])
        conditional = self.source.chance(30)
        return Joined(*inputs, before * self.tick, after * self.tick, how, conditional)

    def _settings(self, node: Windowed | Cogrouped, *, last: bool) -> dict[str, object]:
        """Lateness, trigger and mode, so that the panes of each operator add up to the truth."""
        lateness = self._lateness(node)
        fires_once = lateness == 0 and self.source.chance(40)
        if fires_once:
            mode = self.source.choose(["accumulating", RETRACTING])
            return {"mode": mode, "lateness": 0}
        modes = [RETRACTING]
        if last and isinstance(node, Windowed) and not isinstance(node.window, windows.Sessions):
            modes.append("accumulating")
        return {
            "mode": self.source.choose(modes),
            "lateness": lateness,
            "trigger": self.source.choose(triggers(self.tick)),
        }

    def _lateness(self, node: Windowed | Cogrouped) -> int | None:
        """At least the lateness of the operators before it."""
        before = [lateness(each) for each in node.inputs]
        least = None if None in before else max(each for each in before if each is not None)
        more = self.source.choose([0, 0, 3, 10, None])
        return None if least is None or more is None else least + more * self.tick

    def _window(self, kind: str) -> windows.Window:
        match kind:
            case "fixed":
                return windows.Fixed(self.ticks(1, 12), self.ticks(-3, 3))
            case "sliding":
                size = self.source.integer(1, 12)
                return windows.Sliding(size * self.tick, self.ticks(1, size))
            case "sessions":
                return windows.Sessions(self.ticks(1, 8))
            case "gaps":
                return windows.Sessions(GAP)
            case "calendar" if self.calendar is not None:
                return self.calendar
            case "inherited":
                return windows.Inherited()
        return windows.Global()

    def batch(self, number: int) -> dict[str, tuple[Row, ...]]:
        """The rows of all feeds in a micro-batch, out of order and some of them far behind."""
        counts = {
            feed: 0 if self.source.chance(25) else self.source.integer(0, self.limits.rows)
            for feed in self.feeds
        }
        return {feed.name: tuple(self._row(number) for _ in range(count)) for feed, count in counts.items()}

    def _row(self, number: int) -> Row:
        return {
            "key": self.source.choose(["a", "b", None]),
            "value": None if self.source.chance(8) else self.source.integer(-3, 6),
            TIME: self.origin + self.tick * (6 * number + self.source.integer(-9, 9)),
        }
