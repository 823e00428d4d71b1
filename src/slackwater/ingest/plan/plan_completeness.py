"""Completeness: the time up to which all units of a plan are read, while some of them still run.

A unit that has reached its end does not make up for one that is behind. The complete time is the lowest time
from which any unit still has to read; it advances when the last unit that holds it back has succeeded.
"""

from __future__ import annotations

from collections.abc import Iterator

from slackwater.ingest.plan.planner import Plan
from slackwater.ingest.units import Unit


class PlanCompleteness:
    """The time before which no unit has unread data; it advances as units succeed.

    Re-reads within the grace period hold nothing back, because their range was read before.

    >>> from slackwater.ingest import WHOLE, WorkUnit
    >>> units = [WorkUnit(0, 10, WHOLE, 0), WorkUnit(10, 20, WHOLE, 10)]
    >>> complete = PlanCompleteness(Plan("j", "system", 20, 0, 20, units, [], (), None))
    >>> complete.time_without(10, WHOLE), complete.time_without(0, WHOLE)
    (0, 10)
    >>> complete.succeed(0, WHOLE)
    >>> complete.time_without(10, WHOLE)
    20
    """

    def __init__(self, plan: Plan) -> None:
        self._waiting = {
            (work.start, work.unit.key): reached
            for work in plan.units
            if (reached := work.start if work.previous is None else max(work.start, work.previous)) < work.end
        }
        self._limit = min(_left_to_later_runs(plan))

    def time_without(self, start: int, unit: Unit) -> int:
        """The complete time after a success of this unit of the partition that starts at ``start``."""
        waiting = (at for identity, at in self._waiting.items() if identity != (start, unit.key))
        return min([self._limit, *waiting])

    def succeed(self, start: int, unit: Unit) -> None:
        """Record that a unit has succeeded."""
        self._waiting.pop((start, unit.key), None)


def _left_to_later_runs(plan: Plan) -> Iterator[int]:
    """The starts of ranges that are left to later runs or were never read, and the end of the plan.

    An end in the future is not reached: the source will get more rows.
    """
    yield min(plan.end, plan.now)
    if plan.never_read is not None:
        yield plan.never_read
    for skipped in plan.skipped:
        if skipped.unread is not None and skipped.reason != "left-out":
            yield skipped.unread.start
    for omission in plan.omissions:
        if omission.reason == "incomplete":
            yield omission.start
