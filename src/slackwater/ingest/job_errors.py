"""What is wrong with a job: every mistake at once, each with its key, its value, a reason and a fix.

A job that is corrected one mistake a run costs an evening. So nothing is raised while a job is read:
problems are collected, and one error at the end carries all of them, for the eye and for code.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from slackwater.errors import InvalidArgument, SlackwaterError


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake. ``value`` is the text to show: what came from the environment is not in it.

    >>> print(Problem("ms.backfill", "'maybe'", "is neither true nor false", "write true or false"))
    ms.backfill = 'maybe': is neither true nor false; write true or false
    """

    key: str
    value: str | None
    reason: str
    fix: str

    def __str__(self) -> str:
        given = "" if self.value is None else f" = {self.value}"
        return f"{self.key}{given}: {self.reason}; {self.fix}"


class InvalidJob(InvalidArgument):
    """A job that cannot be used, with everything that is wrong with it. Nothing of it was run."""

    def __init__(self, problems: Iterable[Problem], *, source: str = "the job") -> None:
        self.problems = tuple(problems)
        found = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        super().__init__("job", source, f"has {found}", fix="correct all of them")
        self.message = "\n  ".join([f"{source} has {found}:", *map(str, self.problems)])
        self.args = (self.message,)


class TooFewUnits(SlackwaterError):
    """The plan has fewer units than ``ms.work.unit.min.units`` asks for."""

    def __init__(self, planned: int, wanted: int) -> None:
        self.planned = planned
        self.wanted = wanted
        super().__init__(
            f"ms.work.unit.min.units = {wanted}: only {planned} planned; "
            f"look for why the source has less than usual, or lower ms.work.unit.min.units"
        )


class TooFewRecords(SlackwaterError):
    """A unit has fewer records than ``ms.work.unit.min.records`` asks for; its target was left as it is."""

    def __init__(self, found: int, wanted: int) -> None:
        self.found = found
        self.wanted = wanted
        super().__init__(
            f"ms.work.unit.min.records = {wanted}: only {found} read; "
            f"look for why the source has less than usual, or lower ms.work.unit.min.records"
        )


class AlreadyRunning(SlackwaterError):
    """Another process runs the job."""

    def __init__(self, job: str, owner: str) -> None:
        self.job = job
        self.owner = owner
        super().__init__(
            f"job {job!r} is run by {owner}; wait until that run has ended, or half a minute if it has died"
        )


class RunReplaced(SlackwaterError):
    """This run stood still for so long that another one took its place; nothing more of it counts."""

    def __init__(self, job: str) -> None:
        self.job = job
        super().__init__(f"job {job!r} was taken over by another run; look at its history, and run it again")
