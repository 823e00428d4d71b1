"""Origin numbers of a pipeline (rule S11 of docs/spec/progress.md).

Sources and stateful operators are origins. When a pipeline is built they are numbered from 1, bottom-up in
plan order, so that the same pipeline always gets the same numbers. A partition, device or segment inside a
source is a name under its number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from html import escape

from slackwater.errors import InvalidArgument


class Kind(Enum):
    """The kind of a plan node. Sources and stateful operators are origins, stateless stages are not."""

    SOURCE = "source"
    STATEFUL = "stateful"
    STATELESS = "stateless"


@dataclass(frozen=True, slots=True, eq=False)
class PlanNode:
    """One step of a pipeline. Nodes are compared by identity.

    Args:
        name: The name that `PipelinePlan.explain` shows.
        kind: Whether the step is a source, stateful or stateless.
        inputs: The steps before it. Empty for a source, and only for a source.
        details: Lines that `PipelinePlan.explain` shows below the name.

    >>> import slackwater as sw
    >>> sw.PlanNode("bids", sw.Kind.SOURCE).name
    'bids'
    """

    name: str
    kind: Kind
    inputs: tuple[PlanNode, ...] = ()
    details: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind is Kind.SOURCE and self.inputs:
            raise InvalidArgument(
                "inputs", self.name, "is a source and has inputs", fix="make it stateless or stateful"
            )
        if self.kind is not Kind.SOURCE and not self.inputs:
            raise InvalidArgument(
                "inputs", self.name, f"is {self.kind.value} and has no input", fix="add an input"
            )


class PipelinePlan:
    """A pipeline from its sources to one result, with numbered origins.

    Its text is an indented tree, which a notebook shows as an HTML list.

    Args:
        result: The last step.

    >>> import slackwater as sw
    >>> bids, asks = sw.PlanNode("bids", sw.Kind.SOURCE), sw.PlanNode("asks", sw.Kind.SOURCE)
    >>> cheap = sw.PlanNode("cheap", sw.Kind.STATELESS, (asks,))
    >>> plan = sw.PipelinePlan(sw.PlanNode("join", sw.Kind.STATEFUL, (bids, cheap)))
    >>> print(plan)
    origin 3  join (stateful)
      origin 1  bids (source)
      -         cheap (stateless)
        origin 2  asks (source)
    """

    __slots__ = ("_numbers", "result")

    def __init__(self, result: PlanNode) -> None:
        self.result = result
        self._numbers: dict[PlanNode, int] = {}
        for node in _bottom_up(result):
            if node.kind is not Kind.STATELESS:
                self._numbers[node] = len(self._numbers) + 1

    def origin(self, node: PlanNode, inner: str | int | None = None) -> str:
        """Return the name of an origin: its number, followed by the partition, device or segment inside it.

        Args:
            node: A source or stateful operator of this pipeline.
            inner: The partition, device or segment inside the source.

        >>> import slackwater as sw
        >>> bids = sw.PlanNode("bids", sw.Kind.SOURCE)
        >>> sw.PipelinePlan(bids).origin(bids, "partition-3")
        '1/partition-3'
        """
        number = self.number(node)
        return str(number) if inner is None else f"{number}/{inner}"

    def number(self, node: PlanNode) -> int:
        """Return the origin number of a source or stateful operator of this pipeline.

        Args:
            node: The source or operator.
        """
        number = self._numbers.get(node)
        if number is None:
            raise InvalidArgument(
                "node",
                node.name,
                "is not an origin of this pipeline",
                fix="pass a source or operator",
            )
        return number

    @property
    def origins(self) -> dict[int, PlanNode]:
        """The origins by number, ascending."""
        return {number: node for node, number in self._numbers.items()}

    def explain(self) -> str:
        """Return the plan as an indented tree with origin numbers; a shared step is expanded once."""
        lines: list[str] = []
        for node, depth, again in self._top_down():
            label = f"origin {self._numbers[node]}" if node in self._numbers else "-       "
            indent = "  " * depth
            lines.append(f"{indent}{label}  {node.name} ({node.kind.value}){', see above' if again else ''}")
            lines += [] if again else [f"{indent}{' ' * len(label)}  {detail}" for detail in node.details]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.explain()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The plan as a nested HTML list, for notebooks: static and escaped.

        >>> PipelinePlan(PlanNode("<bids>", Kind.SOURCE, details=("lag 5 seconds",)))._repr_html_()
        '<ul><li><b>origin 1</b> &lt;bids&gt; (source)<br><small>lag 5 seconds</small></li></ul>'
        """
        parts: list[str] = []
        open_lists = 0
        for node, depth, again in self._top_down():
            parts += ["</li></ul>"] * (open_lists - depth - 1)
            parts.append("<ul><li>" if depth >= open_lists else "</li><li>")
            open_lists = depth + 1
            number = f"<b>origin {self._numbers[node]}</b> " if node in self._numbers else ""
            above = ", see above" if again else ""
            parts.append(f"{number}{escape(node.name)} ({node.kind.value}){above}")
            details = "" if again else "<br>".join(map(escape, node.details))
            parts.append(f"<br><small>{details}</small>" if details else "")
        return "".join([*parts, "</li></ul>" * open_lists])

    def _top_down(self) -> Iterator[tuple[PlanNode, int, bool]]:
        """Yield each node with its depth, and whether it was expanded before. Without recursion."""
        shown: set[PlanNode] = set()
        stack: list[tuple[PlanNode, int]] = [(self.result, 0)]
        while stack:
            node, depth = stack.pop()
            yield node, depth, node in shown and bool(node.inputs)
            if node not in shown:
                shown.add(node)
                stack += [(below, depth + 1) for below in reversed(node.inputs)]


def _bottom_up(result: PlanNode) -> Iterator[PlanNode]:
    """Yield every node once, after its inputs. Without recursion, because plans can be deep."""
    entered: set[PlanNode] = set()
    stack = [(result, False)]
    while stack:
        node, inputs_done = stack.pop()
        if inputs_done:
            yield node
        elif node not in entered:
            entered.add(node)
            stack.append((node, True))
            stack += [(below, False) for below in reversed(node.inputs)]
