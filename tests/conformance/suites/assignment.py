"""Which windows an element belongs to: as the model assigns them, and as the operator emits them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from typing import Final

from slackwater import windows
from slackwater.time import BEGINNING_OF_TIME, END_OF_TIME
from tests.conformance import expressions
from tests.conformance.framework import BrokenCase, Case, Fields, equal
from tests.model.windows import Bounds, assign, merge_windows
from tests.support.windowed import OperatorSubject, Options

FIELDS: Final = Fields(required={"window", "timestamps"}, optional={"windows", "merged"})
WINDOWS: Final[Mapping[str, Callable[..., windows.Window]]] = {
    "fixed": windows.Fixed,
    "sliding": windows.Sliding,
    "sessions": windows.Sessions,
    "global_": windows.Global,
}
SHUFFLES: Final = 8
"""The number of random arrival orders tried for sessions, after the given, reversed and sorted orders."""


def run_model(case: Case) -> None:
    """The model's own assignment and merging."""
    window = _window(case)
    for at, expected in case.get("windows", {}).items():
        equal(f"windows of {at}", _bounds(expected), assign(window, at, {}))
    if "merged" in case:
        equal(
            "merged",
            _bounds(case["merged"]),
            merge_windows(assign(window, at, {})[0] for at in case["timestamps"]),
        )


def run_operator(case: Case) -> None:
    """The windows in which the operator emits, element by element and for any order of arrival."""
    window = _window(case)
    alone = case.get("windows", {})
    for (at, expected), found in zip(alone.items(), _emitted(window, [[at] for at in alone]), strict=True):
        equal(f"windows of {at}", _bounds(expected), found)
    if "merged" in case:
        orders = _orders(case["timestamps"])
        for size in (1, len(orders[0])):
            for order, found in zip(orders, _emitted(window, orders, size), strict=True):
                what = f"merged, arriving as {order} in batches of {size}"
                equal(what, _bounds(case["merged"]), found)


SUBJECTS: Final[Mapping[str, Callable[[Case], None]]] = {"model": run_model, "operator": run_operator}


def _window(case: Case) -> windows.Window:
    if not case.keys() & {"windows", "merged"}:
        raise BrokenCase("a case has `windows` or `merged`")
    if not set(case.get("windows", {})) <= set(case["timestamps"]):
        raise BrokenCase("`windows` names a timestamp that is not in `timestamps`")
    text = str(case["window"]).replace("global(", "global_(")  # `global` is a keyword of Python
    window: windows.Window = expressions.evaluate(text, WINDOWS)
    return window


def _orders(timestamps: list[int]) -> list[list[int]]:
    shuffle = random.Random(len(timestamps)).sample
    orders = [timestamps, timestamps[::-1], sorted(timestamps)]
    orders += [shuffle(timestamps, len(timestamps)) for _ in range(SHUFFLES)]
    return [list(order) for order in dict.fromkeys(map(tuple, orders))]


def _bounds(pairs: list[list[float | None]]) -> list[Bounds]:
    """Windows as integers; the ends of time are written as infinities, or not at all."""
    return [(_bound(start, BEGINNING_OF_TIME), _bound(end, END_OF_TIME)) for start, end in pairs]


def _bound(value: float | None, end_of_time: int) -> int:
    return end_of_time if value is None or math.isinf(value) else int(value)


def _emitted(window: windows.Window, orders: list[list[int]], size: int = 1) -> list[list[Bounds]]:
    """The windows in which the timestamps of each order are emitted; each order has a key of its own."""
    subject = OperatorSubject(Options(window, accumulations=("count",)))
    for first in range(0, max(map(len, orders), default=0), size):
        batch = [(key, at) for key, order in enumerate(orders) for at in order[first : first + size]]
        subject.step([{"key": str(key), "ts": at, "value": 1} for key, at in batch], None, 0)
    panes = subject.step([], END_OF_TIME, 0).panes
    keys = [(str(key),) for key in range(len(orders))]
    return [sorted((pane.start, pane.end) for pane in panes if pane.key == key) for key in keys]
