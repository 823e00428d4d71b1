"""The batch truth of a pipeline: the rows that its last operator has over the rows that were accepted.

One node after the other, from lists, as SQL would compute it over complete input.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slackwater import windows
from slackwater.spark.wire.wire_columns import RETRACTION
from tests.model.windows import Bounds, assign, merge_windows
from tests.support.pipeline_nodes import (
    GAP,
    PRIME,
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
    gap_of,
    is_keyed,
    is_stamped,
    results_of,
    retracts,
)
from tests.support.pipelines import Accepted, Pipeline


@dataclass(frozen=True)
class Result:
    """A row of an operator."""

    key: str | None
    value: int | None
    start: int
    end: int
    elements: int = 0
    """How many rows the window has; 0 for a pair. Both bounds of a pair by time are its event time."""

    @property
    def at(self) -> int:
        """The event time."""
        return self.start if self.start == self.end else self.end - 1


Group = tuple[str | None, Bounds]
Element = tuple[int, int | None]
"""The event time and the value."""


def truth(pipeline: Pipeline, node: Operator) -> list[Result]:
    """The rows of an operator over the accepted rows."""
    if isinstance(node, Joined):
        return _joined(pipeline, node)
    if isinstance(node, Deduplicated):
        return _deduplicated(pipeline, node)
    accepted = pipeline.stages[node].accepted
    sides = [_elements(pipeline, node, number, each, accepted) for number, each in enumerate(node.inputs)]
    united = [one for side in sides for one in side]
    groups = _grouped(node.window, united)
    merges = isinstance(node.window, windows.Sessions)
    if isinstance(node, Windowed):
        return [
            Result(key, value_of(node.value, rows), *bounds, len(rows))
            for (key, bounds), (rows,) in _in_groups(groups, [united], sessions=merges).items()
        ]
    results: list[Result] = []
    for (key, bounds), (left, right) in _in_groups(groups, sides, sessions=merges).items():
        pairs = _pairs(node.how, left, right, matches=key is not None)
        results += [Result(key, value, *bounds) for value in pairs]
    return results


def _deduplicated(pipeline: Pipeline, node: Deduplicated) -> list[Result]:
    """The rows that are not too close to a row of their key before them.

    Rows of a feed are in order of arrival, and of time in a micro-batch; other rows are in order of time.
    """
    if _is_feed(node.input):
        accepted = pipeline.stages[node].accepted.get(0, ())
        rows = [(one.key, one.at) for one in sorted(accepted, key=lambda one: (one.step, one.at))]
    else:
        rows = [(one.key, one.at) for one in sorted(rows_of(pipeline, node.input), key=lambda one: one.at)]
    kept: list[tuple[str | None, int]] = []
    for key, at in rows:
        if not any(key == other and abs(at - then) <= node.within for other, then in kept):
            kept.append((key, at))
    return [Result(key, at % PRIME, at, at) for key, at in kept]


def _elements(
    pipeline: Pipeline,
    node: Windowed | Cogrouped | Joined,
    number: int,
    each: Node,
    accepted: Mapping[int, Sequence[Accepted]],
) -> list[Accepted]:
    """The rows of an input, with the windows in which the operator accepted them."""
    if _is_feed(each):
        return [one for one in accepted.get(number, ()) if one.windows or isinstance(node, Joined)]
    rows: list[Accepted] = []
    for one in rows_of(pipeline, each):
        row = {"window_start": one.start, "window_end": one.end}
        row |= {GAP: gap_of(one.value, node.tick)} if isinstance(node, Windowed) else {}
        found = () if isinstance(node, Joined) else tuple(assign(node.window, one.at, row))
        rows.append(Accepted(one.key if is_keyed(node) else None, one.value, one.at, found))
    return rows


def _joined(pipeline: Pipeline, node: Joined) -> list[Result]:
    """The pairs of a join by time, in which a null key matches nothing."""
    accepted = pipeline.stages[node].accepted
    left, right = (
        _elements(pipeline, node, number, each, accepted) for number, each in enumerate(node.inputs)
    )

    if isinstance(node, LookedUp):
        return _looked_up(node, left, right)

    def match(one: Accepted, other: Accepted) -> bool:
        in_range = one.at - node.before <= other.at <= one.at + node.after
        meets = one.value is not None and other.value is not None and one.value <= other.value
        fits = in_range and (meets or not node.conditional)
        return one.key is not None and one.key == other.key and fits

    alone = [[one for one in left if not any(match(one, other) for other in right)]]
    alone.append([other for other in right if not any(match(one, other) for one in left)])
    if node.how in ("semi", "anti"):
        kept = alone[0] if node.how == "anti" else [one for one in left if one not in alone[0]]
        return [Result(one.key, one.value, one.at, one.at) for one in kept]
    pairs: list[tuple[Accepted | None, Accepted | None]] = [
        (one, other) for one in left for other in right if match(one, other)
    ]
    pairs += [(one, None) for one in alone[0] if node.how in ("left", "full")]
    pairs += [(None, other) for other in alone[1] if node.how in ("right", "full")]
    results: list[Result] = []
    for one, other in pairs:
        timed = (other or one) if node.how == "right" else (one or other)
        assert timed is not None
        left_value, right_value = (None if each is None else each.value for each in (one, other))
        value = _pair_value(left_value, right_value)
        results.append(Result(timed.key, value, timed.at, timed.at))
    return results


def _looked_up(node: LookedUp, left: Sequence[Accepted], right: Sequence[Accepted]) -> list[Result]:
    """Each left row with the distance to the closest right row in the direction of the search."""
    results: list[Result] = []
    for one in left:
        distances = [
            other.at - one.at
            for other in right
            if one.key is not None and one.key == other.key and abs(other.at - one.at) <= node.after
        ]
        if node.direction != "nearest":
            distances = [
                each for each in distances if each == 0 or (each > 0) == (node.direction == "forward")
            ]
        closest = min(distances, key=lambda each: (abs(each), -each), default=None)
        if closest is not None or node.how == "left":
            results.append(Result(one.key, _pair_value(one.value, closest), one.at, one.at))
    return results


def _is_feed(node: Node) -> bool:
    return isinstance(node, Feed) or (isinstance(node, Stateless) and _is_feed(node.input))


def rows_of(pipeline: Pipeline, node: Node) -> list[Result]:
    """The rows of a node behind an operator, under the names that the next operator reads."""
    match node:
        case Filtered(inner, modulus):
            return [one for one in rows_of(pipeline, inner) if one.value is None or one.value % modulus]
        case Mapped(inner, factor):
            return [
                Result(one.key, None if one.value is None else one.value * factor + 1, one.start, one.end)
                for one in rows_of(pipeline, inner)
            ]
        case Rekeyed(inner, keys):
            return [
                Result(None if one.value is None else f"r{one.value % keys}", one.value, one.start, one.end)
                for one in rows_of(pipeline, inner)
            ]
        case Called(inner, modulus):
            return [
                Result(one.key, value, one.start, one.end)
                for one in rows_of(pipeline, inner)
                for value in results_of(one.value, modulus)
            ]
        case Windowed() | Cogrouped() | Joined() | Deduplicated():
            rows = truth(pipeline, node)
            if isinstance(node, Windowed) and not node.keyed:
                return [Result("all", one.value, one.start, one.end) for one in rows]
            return rows
    raise TypeError(f"not behind an operator: {node}")


def _grouped(window: windows.Window, rows: Sequence[Accepted]) -> set[Group]:
    """The windows of each key that have a row."""
    if not isinstance(window, windows.Sessions):
        return {(one.key, bounds) for one in rows for bounds in one.windows}
    by_key: defaultdict[str | None, list[Bounds]] = defaultdict(list)
    for one in rows:
        by_key[one.key] += one.windows
    return {(key, bounds) for key, several in by_key.items() for bounds in merge_windows(several)}


def _in_groups(
    groups: set[Group], sides: Sequence[Sequence[Accepted]], *, sessions: bool
) -> dict[Group, tuple[list[Element], ...]]:
    return {
        (key, bounds): tuple(
            [
                (one.at, one.value)
                for one in side
                if one.key == key
                for start, end in one.windows
                if (bounds[0] <= start and end <= bounds[1] if sessions else bounds == (start, end))
            ]
            for side in sides
        )
        for key, bounds in groups
    }


def value_of(name: str, rows: Sequence[Element]) -> int | None:
    """The value of an accumulation; among equal event times the lowest value comes first."""
    values = [value for _, value in rows if value is not None]
    ordered = sorted((at, value) for at, value in rows if value is not None)
    match name:
        case "count":
            return len(rows)
        case "count_distinct":
            return len(set(values))
    if not values:
        return None
    match name:
        case "sum":
            return sum(values)
        case "sum_distinct":
            return sum(set(values))
        case "max":
            return max(values)
        case "min":
            return min(values)
        case "first":
            return ordered[0][1]
    return ordered[-1][1]


def _pair_value(left: int | None, right: int | None) -> int:
    return (50 if left is None else left) * 10 + (7 if right is None else right)


def _pairs(how: str, left: list[Element], right: list[Element], *, matches: bool) -> list[int]:
    value = _pair_value
    pairs = [value(one, other) for _, one in left for _, other in right if matches]
    if how in ("left", "full"):
        pairs += [value(one, None) for _, one in left if not (matches and right)]
    if how in ("right", "full"):
        pairs += [value(None, other) for _, other in right if not (matches and left)]
    return pairs


def folded(panes: Sequence[Mapping[str, Any]], node: Operator) -> Counter[Result]:
    """What a consumer has in the end: results minus retractions, or the last pane of each window."""
    results: Counter[Result] = Counter()
    last: dict[Group, Result] = {}
    for row in panes:
        bounds = row["window_start"], row["window_end"]
        key = row["key"] if is_keyed(node) else None
        result = Result(key, row["value"], *bounds, row.get("elements", 0))
        last[result.key, bounds] = result
        results[result] += -1 if row[RETRACTION] else 1
    if isinstance(node, Windowed) and not retracts(node):
        return Counter(result for result in last.values() if result.elements)
    return Counter({result: count for result, count in results.items() if count})


def comparable(results: Mapping[Result, int], node: Operator) -> Counter[Result]:
    """The results, or the sums over all windows if it depends on arrival in which window a row is."""
    inherits = isinstance(node, Windowed) and isinstance(node.window, windows.Inherited | windows.Global)
    if inherits or not any(map(is_stamped, node.inputs)):
        return Counter(results)
    sums: defaultdict[str | None, list[int]] = defaultdict(lambda: [0, 0])
    for result, count in results.items():
        sums[result.key][0] += count * (result.value or 0)
        sums[result.key][1] += count * result.elements
    return Counter(Result(key, value, 0, 0, elements) for key, (value, elements) in sums.items() if elements)
