"""Scenarios that several test modules run, and their comparison with the reference model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from slackwater import windows
from slackwater.progress.watermark_policies import Lag
from slackwater.time import SECOND
from slackwater.windows.assigners import GLOBAL_BOUNDS
from tests.model.windows import Drop
from tests.spark.running import Batch, Scenario, of_kind, panes_of
from tests.support.windowed import Observed, Options, blocks

LAG = 5
EARLY_AND_LATE = windows.after_watermark(early=windows.every(count=2), late=windows.every(count=1))


def following(batches: Iterable[Sequence[tuple[Any, ...]]], lag: int = LAG) -> list[Batch]:
    """Batches ten seconds apart on the clock, with the watermark that their rows give."""
    highest: dict[str, int] = {}
    made: list[Batch] = []
    for number, rows in enumerate(batches):
        for _, second, _, origin in ((*row, "only")[:4] for row in rows):
            if second is not None:
                highest[origin] = max(second, highest.get(origin, second))
        made.append(Batch(rows, 1000 + 10 * number, min(highest.values()) - lag if highest else None))
    return made


SCENARIOS = {
    "fixed": Scenario(
        Options(windows.Fixed(10 * SECOND)),
        following(
            [
                [("a", 1, 1), ("b", 3, 2), ("a", 9, 3), ("c", -4, 4)],
                [("a", 12, 5), ("b", 8, 6), ("a", 16, 7), ("c", -7, 8)],
                [("a", 4, 9), ("b", 21, 10), ("c", 35, 11)],
                [("a", 29, 12), ("c", 22, 13), ("b", 50, 14)],
            ]
        ),
        Lag(LAG * SECOND),
    ),
    "sliding": Scenario(
        Options(windows.Sliding(10 * SECOND, 4 * SECOND), allowed_lateness=6 * SECOND),
        following(
            [
                [("a", 1, 1), ("b", 3, 2), ("a", 9, 3)],
                [("a", 12, 5), ("b", 8, 6), ("a", 16, 7), ("c", 2, 8)],
                [("a", 4, 9), ("b", 21, 10), ("c", 33, 11)],
                [("a", 27, 12), ("c", 20, 13)],
            ]
        ),
        Lag(LAG * SECOND),
    ),
    "sessions that merge and take back": Scenario(
        Options(
            windows.Sessions(5 * SECOND),
            EARLY_AND_LATE,
            mode="accumulating_and_retracting",
            allowed_lateness=30 * SECOND,
        ),
        following(
            [
                [("a", 1, 1), ("a", 3, 2), ("b", 2, 3), ("b", 7, 4)],
                [("a", 11, 5), ("a", 12, 6), ("b", 30, 7)],
                [("a", 7, 8), ("b", 26, 9), ("b", 5, 10)],
                [("b", 70, 11), ("a", 68, 12)],
            ]
        ),
        Lag(LAG * SECOND),
    ),
    "early, on time, late, retracting": Scenario(
        Options(
            windows.Fixed(10 * SECOND),
            EARLY_AND_LATE,
            mode="accumulating_and_retracting",
            allowed_lateness=20 * SECOND,
            closing="always",
        ),
        following(
            [
                [("a", 1, 1), ("a", 2, 2), ("b", 3, 3)],
                [("a", 4, 4), ("b", 9, 5), ("b", 14, 6)],
                [("a", 18, 7), ("a", 6, 8)],
                [("a", 5, 9), ("b", 7, 10), ("b", 24, 11)],
                [("a", 3, 12), ("c", 60, 13)],
            ]
        ),
        Lag(LAG * SECOND),
    ),
    "discarding by the clock": Scenario(
        Options(
            windows.Fixed(20 * SECOND),
            windows.after_watermark(early=windows.every(duration="12 seconds"), late=windows.every(count=1)),
            mode="discarding",
            allowed_lateness=10 * SECOND,
        ),
        following(
            [
                [("a", 1, 1), ("b", 2, 2)],
                [("a", 4, 4)],
                [("b", 8, 7), ("a", 16, 8)],
                [("a", 5, 9), ("b", 27, 10)],
                [("a", 3, 12), ("c", 33, 13)],
            ]
        ),
        Lag(LAG * SECOND),
    ),
    "keys that expire": Scenario(
        Options(
            windows.Global(ttl=8 * SECOND),
            windows.every(count=2),
            mode="accumulating_and_retracting",
            allowed_lateness=2 * SECOND,
        ),
        following(
            [
                [("a", 1, 1), ("a", 2, 2), ("b", 3, 3)],
                [("a", 12, 4), ("b", 9, 5), ("c", 18, 6)],
                [("b", 3, 7), ("b", 20, 8), ("c", 26, 9)],
                [("a", 27, 10), ("b", 31, 11), ("c", 60, 12)],
                [("a", 61, 13), ("a", 62, 14)],
            ]
        ),
        Lag(LAG * SECOND),
    ),
    "two origins, one behind": Scenario(
        Options(windows.Fixed(10 * SECOND)),
        following(
            [
                [("a", 61, 1, "fast"), ("a", 1, 2, "slow")],
                [("b", 72, 3, "fast"), ("a", 12, 4, "slow")],
                [("a", 83, 5, "fast")],
                [("a", 23, 6, "slow"), ("c", 18, 7, "slow")],
            ],
            lag=0,
        ),
        stream_options={"origin": "origin"},
    ),
    "rows without a time, keys without a value": Scenario(
        Options(windows.Fixed(10 * SECOND)),
        following(
            [
                [("a", 1, 1), (None, 2, 2), ("b", None, 3)],
                [(None, None, 4), ("a", 14, None), (None, 16, 5)],
                [("a", None, 6)],
            ]
        ),
        Lag(LAG * SECOND),
    ),
}


def _start(drop: Drop) -> int | None:
    """The start of the window for which a row was dropped; on Spark a global window has none."""
    return None if drop.window is None or drop.window == GLOBAL_BOUNDS else drop.window[0]


def check(rows: list[list[Any]], model: list[Observed], scenario: Scenario) -> None:
    assert len(rows) == len(model)
    for number, (batch, said) in enumerate(zip(rows, model, strict=True)):
        panes = panes_of(batch, scenario.options)
        found = sorted(((sorted(map(repr, old)), repr(new)) for old, new in blocks(panes)))
        plain = [replace(pane, timestamp=0) for pane in said.panes]
        wanted = sorted(((sorted(map(repr, old)), repr(new)) for old, new in blocks(plain)))
        assert found == wanted, f"batch {number}"
        late = [(drop.row["key"], _start(drop), [drop.row["value"]]) for drop in said.drops]
        assert of_kind(batch, "late") == sorted(late, key=repr), f"batch {number}"


def invalid(batches: Sequence[Batch]) -> list[Any]:
    rows = [(row[0], None, [row[2]]) for batch in batches for row in batch.elements if row[1] is None]
    return sorted(rows, key=repr)
