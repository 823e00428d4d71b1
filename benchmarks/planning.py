"""The planner: pairs of partition and unit a second, and whether time and memory stay linear.

Before anything is timed, plans are compared with the formula of the selection, written down pair by pair.
"""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

from benchmarks.report import Report, timed
from slackwater.ingest import History, Job, parse_job, plan
from slackwater.time import DAY, HOUR, instant

SIZES = ((100, 1_000), (1_000, 1_000), (1_000, 10), (40_000, 25))
"""Partitions and units; the last two are hourly."""
AIM = 3.0
"""Seconds that a million pairs may take."""
FLAT = 1.6
"""Between a tenth and all of the pairs, a pair may cost this much more; cold caches are in it."""
START = instant("2015-01-01T00:00:00Z")


def job(partitions: int, units: int, **keys: Any) -> tuple[Job, int]:
    """A job with so many partitions and units, and the now at which it has them."""
    size, kind = (HOUR, "hourly") if partitions > 1_000 else (DAY, "daily")
    axis = {"name": "system", "type": "datetime", "range": {"from": "2015-01-01", "to": "-"}}
    listed = {"name": "id", "type": "unit", "units": [f"unit-{number:05}" for number in range(units)]}
    made = parse_job({"ms.watermark": [axis, listed], "ms.work.unit.partition": kind, **keys}, environment={})
    return made, START + partitions * size


def read_to_the_end(made: Job, now: int) -> History:
    """A history in which everything up to ``now`` succeeded."""
    return History((work.start, work.unit.key, work.high) for work in plan(made, History(), now).units)


def run(report: Report) -> None:
    """All sections."""
    _check_equality()
    section = report.section(
        "Planning: pairs of partition and unit",
        "One call of `plan` on one core, history in memory: nothing read yet, everything read, and "
        "everything read with a grace period that takes in a third of it. CPU seconds, the best of three.",
        ["pairs", "partitions", "units", "new", "all read", "a third again", "peak memory, new"],
    )
    costs: dict[tuple[int, int], float] = {}
    for partitions, units in SIZES:
        made, now = job(partitions, units)
        again, _ = job(partitions, units, **{"ms.grace.period": f"PT{(now - START) // HOUR // 3}H"})
        history = read_to_the_end(made, now)
        new = timed(lambda made=made, now=now: plan(made, History(), now))  # type: ignore[misc]  # mypy knows no default in a lambda
        read = timed(lambda made=made, now=now, history=history: plan(made, history, now))  # type: ignore[misc]
        third = timed(lambda made=again, now=now, history=history: plan(made, history, now))  # type: ignore[misc]
        slowest = max(new.undisturbed, read.undisturbed, third.undisturbed)
        costs[partitions, units] = slowest / (partitions * units)
        seconds = [f"{timing.undisturbed:.2f} s" for timing in (new, read, third)]
        section.row(partitions * units, partitions, units, *seconds, f"{_peak(made, now) / 1e6:.0f} MB")
        if partitions * units == 1_000_000:
            met = "met" if slowest < AIM else "MISSED"
            section.verdict(
                f"a million pairs ({partitions:,} × {units:,}) in {slowest:.2f} s (aim: {AIM} s): {met}"
            )
    ratio = costs[1_000, 1_000] / costs[100, 1_000]
    flat = "met" if ratio < FLAT else "MISSED"
    section.verdict(f"cost of a pair, ten times as many of them: {ratio:.2f} times ({flat})")
    report.show(section)


def _peak(made: Job, now: int) -> int:
    tracemalloc.start()
    plan(made, History(), now)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def _check_equality() -> None:
    """Plans over a history with holes are those of the formula."""
    rng = random.Random(11)
    for grace, abstinent in ((0, 0), (3, 0), (0, 2), (4, 1)):
        made, now = job(60, 20, **{"ms.grace.period.days": grace, "ms.abstinent.period.days": abstinent})
        pairs = [(work.start, work.end, work.unit.key) for work in plan(made, History(), now).units]
        rows = [
            (start, key, end - rng.choice((0, 0, HOUR))) for start, end, key in pairs if rng.random() < 0.8
        ]
        highs = {(start, key): high for start, key, high in rows}
        overall = max(highs.values()) - grace * DAY
        wanted = []
        for start, end, key in pairs:
            high = highs.get((start, key))
            own = None if high is None else high - grace * DAY + abstinent * DAY
            if own is None or high is None:
                wanted.append((start, start, key))
            elif end > own and (end > overall or high < end):
                wanted.append((start, max(start, own), key))
        got = [(work.start, work.low, work.unit.key) for work in plan(made, History(rows), now).units]
        assert got == wanted
