"""How far all units of a plan are read: what may be said about time while some of them still run.

A unit that reached the end says nothing about one that is behind it. So the time that is complete is the
lowest that any unit has still to read from, and it moves when the last one that held it back has succeeded.
"""

from __future__ import annotations

from collections.abc import Iterator

from slackwater.ingest.plan.planner import Plan
from slackwater.ingest.units import Unit


class Completeness:
    """Before which time nothing is missing any more, as units succeed.

    What a run reads again because of a grace period was read before, so it holds nothing back.

    >>> from slackwater.ingest import WHOLE, WorkUnit
    >>> units = [WorkUnit(0, 10, WHOLE, 0), WorkUnit(10, 20, WHOLE, 10)]
    >>> complete = Completeness(Plan("j", "system", 20, 0, 20, units, [], (), None))
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
        """The time that is complete once this unit of the partition that begins at ``start`` is."""
        waiting = (at for place, at in self._waiting.items() if place != (start, unit.key))
        return min([self._limit, *waiting])

    def succeed(self, start: int, unit: Unit) -> None:
        """A unit has succeeded."""
        self._waiting.pop((start, unit.key), None)


def _left_to_later_runs(plan: Plan) -> Iterator[int]:
    """What this run leaves to others, and the end of what it plans."""
    yield plan.end
    for skipped in plan.skipped:
        if skipped.unread is not None and skipped.reason != "left-out":
            yield skipped.unread.start
    for omission in plan.omissions:
        if omission.reason == "incomplete":
            yield omission.start
