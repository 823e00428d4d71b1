"""Extractions without Spark for tests of the runner: each read of a unit has a scripted end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from slackwater.ingest import WorkUnit
from slackwater.ingest.runner import Approve


class Died(BaseException):
    """Ends a run as a killed process would: no outcome is recorded."""


@dataclass(frozen=True)
class Amount:
    """What a read of one row reports."""

    rows: int = 1
    bytes: int = 1
    highest: int | None = None
    drift: str | None = None
    without_time: int | None = None
    rejected: int = 0


@dataclass
class ScriptedReads:
    """Ends each read as the next word says: "well", "fails" or "dies"; all further reads end well.

    After a death no unit begins, because the process is gone.
    """

    ends: Iterable[str]
    good: list[WorkUnit] = field(default_factory=list)
    bad: list[WorkUnit] = field(default_factory=list)
    dead: bool = False

    def __post_init__(self) -> None:
        self._ends = iter(self.ends)

    def __call__(self, work: WorkUnit, approve: Approve, /) -> Amount:
        if self.dead:
            raise Died
        end = next(self._ends, "well")
        if end != "well":
            self.bad.append(work)
            self.dead = end == "dies"
            raise Died if self.dead else ValueError("the source is gone")
        approve(Amount())
        self.good.append(work)
        return Amount()
