"""Random pipelines: up to some number of operators, composed at random, and the rows of their feeds."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import strategies as st

from slackwater import windows
from slackwater.spark.wire.columns import TIME
from tests.model.windows import Row
from tests.strategies.windows import HypothesisSource, Source
from tests.support.pipelines import (
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
    lateness,
    retracts,
)

INFINITE = 10**9
RETRACTING = "accumulating_and_retracting"
TRIGGERS = (
    windows.DEFAULT_TRIGGER,
    windows.after_watermark(early=windows.every(count=1), late=windows.every(count=1)),
    windows.after_watermark(early=windows.every(count=2), late=windows.every(count=2)),
    windows.every(count=2),
    windows.after_watermark(
        early=windows.Repeatedly(windows.AfterProcessingTime(3)), late=windows.every(count=1)
    ),
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
    batches = tuple(builder.batch(number) for number in range(source.integer(1, limits.batches)))
    return Case(last, batches, source.chance(50))


def adds_up(node: Node, *, last: bool = True) -> bool:
    """Whether the panes of every operator add up to the batch result, and none is late for the next one."""
    if isinstance(node, Feed):
        return True
    if isinstance(node, Stateless):
        return adds_up(node.input, last=last)
    if isinstance(node, Deduplicated):
        return retracts(node.input) and adds_up(node.input, last=False)
    if isinstance(node, Joined):
        return all(adds_up(each, last=False) for each in node.inputs)
    starts = [base(each) for each in node.inputs]
    longest = max(INFINITE if (each := lateness(one)) is None else each for one in node.inputs)
    fires_once = node.lateness == 0 and node.trigger == windows.DEFAULT_TRIGGER
    inherits = isinstance(node.window, windows.Inherited)
    return (
        (last or node.mode == RETRACTING or fires_once)
        and (INFINITE if node.lateness is None else node.lateness) >= longest
        and not (inherits and any(isinstance(start, Feed | Joined | Deduplicated) for start in starts))
        and all(adds_up(each, last=False) for each in node.inputs)
    )


class _Builder:
    def __init__(self, source: Source, limits: Limits) -> None:
        self.source = source
        self.limits = limits
        self.feeds: list[Feed] = []

    def node(self, operators: int) -> Node:
        """A node with at most so many operators."""
        if operators == 0:
            lag, idle_after = self.source.choose([0, 2, 6]), self.source.choose([None, None, 4])
            feed = Feed(f"feed {len(self.feeds)}", lag, idle_after)
            self.feeds.append(feed)
            node: Node = feed
        else:
            node = self.operator(operators)
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
        kind = self.source.choose(["window", "window", "window", "union", "cogroup", "join"])
        if self.limits.chains or kind == "window":
            node = self.node(operators - 1)
            if retracts(node) and not self.limits.chains and self.source.chance(25):
                return Deduplicated(node, self.source.integer(0, 8))
            return self._windowed((node,), last=last)
        others = self.source.integer(0, min(operators - 1, 1))
        inputs = self.node(operators - 1 - others), self.node(others)
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
            *(["inherited"] if panes else []),
            *(["global"] if last else []),
        ]
        values = ["sum", "count", "max", "min", "count_distinct", "sum_distinct"]
        node = Windowed(
            inputs,
            window=self._window(self.source.choose(kinds)),
            value=self.source.choose([*values, *(["first", "last"] if signed else [])]),
        )
        if not isinstance(node.window, windows.Sessions):
            node = replace(node, keyed=self.source.chance(75))
        return replace(node, **self._settings(node, last=last))  # type: ignore[arg-type]

    def _cogrouped(self, inputs: tuple[Node, Node], *, last: bool) -> Cogrouped:
        window = self._window(self.source.choose(["fixed", "sliding", "sessions"]))
        node = Cogrouped(*inputs, window=window, how=self.source.choose(["inner", "left", "right", "full"]))
        return replace(node, **self._settings(node, last=last))  # type: ignore[arg-type]

    def _joined(self, inputs: tuple[Node, Node]) -> Joined:
        if self.source.chance(40):
            direction = self.source.choose(["backward", "forward", "nearest"])
            tolerance, how = self.source.integer(0, 8), self.source.choose(["left", "inner"])
            return LookedUp(*inputs, tolerance, tolerance, how, direction)
        before = self.source.integer(-3, 8)
        after = self.source.integer(max(-before, -3), 8)
        how = self.source.choose(["inner", "left", "right", "full", "semi", "anti"])
        return Joined(*inputs, before, after, how)

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
            "trigger": self.source.choose(TRIGGERS),
        }

    def _lateness(self, node: Windowed | Cogrouped) -> int | None:
        """At least the lateness of the operators before it."""
        before = [lateness(each) for each in node.inputs]
        least = None if None in before else max(each for each in before if each is not None)
        more = self.source.choose([0, 0, 3, 10, None])
        return None if least is None or more is None else least + more

    def _window(self, kind: str) -> windows.Window:
        match kind:
            case "fixed":
                return windows.Fixed(self.source.integer(1, 12), self.source.integer(-3, 3))
            case "sliding":
                size = self.source.integer(1, 12)
                return windows.Sliding(size, self.source.integer(1, size))
            case "sessions":
                return windows.Sessions(self.source.integer(1, 8))
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
            TIME: 6 * number + self.source.integer(-9, 9),
        }
