"""Fold and reduce process elements in the order of their event times, whatever their micro-batches."""

from __future__ import annotations

from itertools import combinations, cycle, pairwise, permutations, zip_longest
from typing import Any

import polars as pl
import pytest

from slackwater.windows import (
    Accumulation,
    Fixed,
    Fold,
    Reduce,
    Sessions,
    Sliding,
    Window,
    WindowedOperator,
    fold,
    reduce,
)
from slackwater.windows.accumulations.base import PartialColumns
from slackwater.windows.accumulations.python import Elements

ROWS = [(1, "a"), (4, "b"), (6, "c"), (9, "d")]
PLACES = tuple(range(1, len(ROWS)))
BATCHINGS = [cuts for size in range(len(ROWS)) for cuts in combinations(PLACES, size)]
CONCATENATED: dict[str, Accumulation] = {
    "fold": fold("letter", "", lambda text, letter: text + letter, combine=str.__add__, dtype=pl.String()),
    "reduce": reduce("letter", lambda left, right: left + right, dtype=pl.String()),
}


Batches = list[list[tuple[int, str]]]


def final(window: Window, accumulation: Accumulation, batches: Batches) -> Any:
    """The last pane of the window [0, 20) or of the session."""
    (value,) = finals(window, accumulation, [batches])
    return value


def finals(window: Window, accumulation: Accumulation, several: list[Batches]) -> list[Any]:
    """The same for several sequences of batches, each with a key of its own."""
    operator = WindowedOperator(
        window=window, accumulations={"text": accumulation}, key=("key",), event_time="ts"
    )
    state = operator.initial_state()
    schema = {"key": pl.Int64, "ts": pl.Int64, "letter": pl.String}
    for step in zip_longest(*several, fillvalue=[]):
        rows = [(key, *row) for key, batch in enumerate(step) for row in batch]
        state, _ = operator.step(state, pl.DataFrame(rows, schema, orient="row"))
        state = operator.load(operator.save(state), state.blobs)
    _, output = operator.step(state, None, {"default": 1000})
    panes = output.panes.filter(window_end=20 if not isinstance(window, Sessions) else 19).sort("key")
    assert panes["key"].to_list() == list(range(len(several)))
    return panes["text"].to_list()


@pytest.mark.parametrize("name", CONCATENATED)
@pytest.mark.parametrize("window", [Sessions(10), Fixed(20), Sliding(20, 5)])
def test_every_micro_batching_gives_the_same_value(window: Window, name: str) -> None:
    several = [
        [list(order[start:end]) for start, end in pairwise([0, *cuts, len(ROWS)])]
        for order, cuts in zip(permutations(ROWS), cycle(BATCHINGS))
    ]
    found = finals(window, CONCATENATED[name], several)
    wrong = [(batches, text) for batches, text in zip(several, found, strict=True) if text != "abcd"]
    assert wrong == []


@pytest.mark.parametrize("window", [Sessions(10), Fixed(20), Sliding(20, 5)])
def test_equal_event_times_are_in_the_order_of_arrival(window: Window) -> None:
    batches = [[(9, "d"), (1, "a")], [(1, "b")], [(1, "c")]]
    assert final(window, CONCATENATED["fold"], batches) == "abcd"


def test_without_order_only_the_accumulators_are_stored() -> None:
    longest = Fold("letter", "", max, max, pl.String(), ordered=False)
    state = pl.DataFrame({"in:letter": ["b", "a"], "time": [1, 2]}).select(
        longest.add(PartialColumns("text", retractable=False))
    )
    kept = Fold("letter", "", max, max, pl.String())
    ordered = pl.DataFrame({"in:letter": ["b", "a"], "time": [1, 2]}).select(
        kept.add(PartialColumns("text", retractable=False))
    )
    assert longest.load(state.item()) == "b"
    assert kept.load(ordered.item()) == Elements(None, [1, 2], ["b", "a"], None)
    assert final(Sessions(10), longest, [[row] for row in ROWS]) == "d"


@pytest.mark.parametrize("now_ordered", [True, False])
def test_accumulators_that_were_saved_before_come_first(now_ordered: bool) -> None:
    """State of an earlier release, or of a query whose function was commutative until now."""
    before, after = (
        Reduce("letter", lambda left, right: left + right, pl.String(), ordered=ordered)
        for ordered in (not now_ordered, now_ordered)
    )
    partials = PartialColumns("text", retractable=False)
    frames = [
        pl.DataFrame({"in:letter": [letter], "time": [time]}).select(accumulation.add(partials))
        for accumulation, time, letter in ((before, 5, "x"), (after, 1, "y"))
    ]
    merged = pl.concat(frames).select(after.merge(partials))
    assert merged.select(after.output(partials)).item() == "xy"
