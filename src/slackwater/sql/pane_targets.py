"""What all tables that panes are written to have in common: folds of deltas, and errors."""

from __future__ import annotations

from typing import Literal

from slackwater.errors import InvalidArgument, SlackwaterError

Fold = Literal["sum", "min", "max"]
"""How a delta is combined with the current value."""


class TableDoesNotFit(InvalidArgument):
    """The target table does not exist, or its columns cannot store the panes."""


class StaleBatch(SlackwaterError):
    """The checkpoint does not match the table.

    The batch is older than the last applied one, or has its number and other results.
    """

    def __init__(self, table: str, identity: str, batch: int, applied: int) -> None:
        self.table = table
        self.identity = identity
        self.batch = batch
        self.applied = applied
        fix = "stop the other run, or start with a new checkpoint and an empty table"
        if batch < applied:
            problem = f"is older than batch {applied}, which is already in table {table}"
        else:
            problem = f"has other results than the batch {applied} that is already in table {table}"
            fix += ". If the query was changed before this batch was complete, complete it without the change"
        super().__init__(
            f"batch {batch} of {identity} {problem}: another run of this query is ahead, or its checkpoint "
            f"was restored from a backup; {fix}"
        )
