"""Errors of jobs and runs.

The problems of a job are collected while it is loaded and raised together, each with its key, value, reason
and fix, so that a job file can be corrected in one go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from slackwater.errors import InvalidArgument, SlackwaterError

_LONGEST_ROW: Final = 500


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a job. ``value`` is the text to show, with secrets redacted.

    >>> from slackwater.ingest import Problem
    >>> print(Problem("ms.backfill", "'maybe'", "is not a boolean", "write true or false"))
    ms.backfill = 'maybe': is not a boolean; write true or false
    """

    key: str
    value: str | None
    reason: str
    fix: str

    @classmethod
    def from_error(
        cls, error: InvalidArgument, *, key: str | None = None, show_value: bool = True
    ) -> Problem:
        """The problem that an `InvalidArgument` describes, by default under the name that the error has.

        Args:
            error: The error of the invalid value.
            key: The key of the job file to report; by default the argument that the error names.
            show_value: Whether the value may be shown; pass False for a secret.
        """
        value = repr(error.value) if show_value else None
        return cls(key or error.name, value, error.reason, error.fix or "correct it")

    def __str__(self) -> str:
        given = "" if self.value is None else f" = {self.value}"
        return f"{self.key}{given}: {self.reason}; {self.fix}"


class InvalidJob(InvalidArgument):
    """A job that cannot be used, with all its problems. No part of it was run."""

    def __init__(self, problems: Iterable[Problem], *, source: str = "the job") -> None:
        self.problems = tuple(problems)
        found = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        super().__init__("job", source, f"has {found}", fix="correct all of them")
        self.message = "\n  ".join([f"{source} has {found}:", *map(str, self.problems)])
        self.args = (self.message,)


class RowRejected(SlackwaterError):
    """A row cannot be stored in the target.

    >>> print(RowRejected("column 'price' has a value that cannot be cast to bigint", "1.9", '{"price":1.9}'))
    column 'price' has a value that cannot be cast to bigint: '1.9', in the row {"price":1.9}; correct the \
source, or set ms.target.on.error to emit to store such rows as dead letters
    """

    def __init__(self, reason: str, value: str | None, content: str) -> None:
        self.reason = reason
        self.value = value
        self.content = content
        row = content if len(content) <= _LONGEST_ROW else f"{content[:_LONGEST_ROW]}…"
        found = "" if value is None else f": {value!r}"
        super().__init__(
            f"{reason}{found}, in the row {row}; correct the source, or set ms.target.on.error to emit "
            "to store such rows as dead letters"
        )


class TooFewUnits(SlackwaterError):
    """The plan has fewer units than ``ms.work.unit.min.units``."""

    def __init__(self, planned: int, wanted: int) -> None:
        self.planned = planned
        self.wanted = wanted
        units = "1 unit is" if planned == 1 else f"{planned} units are"
        super().__init__(
            f"ms.work.unit.min.units = {wanted}: only {units} planned; "
            f"check why there are fewer units than usual, or lower ms.work.unit.min.units"
        )


class TooFewRecords(SlackwaterError):
    """A unit has fewer records than ``ms.work.unit.min.records``; the target was not changed."""

    def __init__(self, found: int, wanted: int) -> None:
        self.found = found
        self.wanted = wanted
        records = "1 record was" if found == 1 else f"{found} records were"
        super().__init__(
            f"ms.work.unit.min.records = {wanted}: only {records} read; "
            f"check why the source has fewer records than usual, or lower ms.work.unit.min.records"
        )


class AlreadyRunning(SlackwaterError):
    """Another process is running the job."""

    def __init__(self, job: str, owner: str) -> None:
        self.job = job
        self.owner = owner
        super().__init__(
            f"job {job!r} is already running in {owner}; wait until that run ends, "
            f"or 30 seconds if it was killed"
        )


class JobChanged(SlackwaterError):
    """The history under the name of a job belongs to a job that reads or writes something else."""

    def __init__(self, job: str, changes: Iterable[str]) -> None:
        self.job = job
        self.changes = tuple(changes)
        super().__init__(
            f"the history of job {job!r} was recorded with {' and '.join(self.changes)}; if this is another "
            f"job, give it a name of its own with ms.job.name; if the job was changed, continue its history "
            f"with `slackwater ingest adopt`, or read everything again after `slackwater ingest reset`"
        )


class OverlappingPartitions(SlackwaterError):
    """A run would write rows under a new partition that an earlier run wrote under another one."""

    def __init__(self, overlaps: Sequence[object]) -> None:
        self.overlaps = tuple(overlaps)
        more = f" (and {len(overlaps) - 1} more)" if len(overlaps) > 1 else ""
        super().__init__(
            f"{overlaps[0]}{more}; without ms.time.column both stay in the target, as duplicate rows; set "
            f"ms.time.column, undo the change of 'from' or of ms.work.unit.partition, or delete the rows of "
            f"the job from the target and run `slackwater ingest reset`"
        )


class RunReplaced(SlackwaterError):
    """Another run took over because this one lost its lease; this run writes and records nothing more."""

    def __init__(self, job: str) -> None:
        self.job = job
        super().__init__(f"another run has taken over job {job!r}; check its history, then run it again")
