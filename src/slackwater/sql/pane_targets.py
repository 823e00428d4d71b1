"""What all tables that panes are written to have in common: folds of deltas, and errors."""

from __future__ import annotations

from typing import Literal

from slackwater.errors import InvalidArgument, SlackwaterError

Fold = Literal["sum", "min", "max"]
"""How a delta is combined with the current value."""


class TableDoesNotFit(InvalidArgument):
    """The target table does not exist, or its columns cannot store the panes."""


class StaleBatch(SlackwaterError):
    """A batch older than the last applied one: the checkpoint does not match the table."""

    def __init__(self, table: str, identity: str, batch: int, applied: int) -> None:
        self.table = table
        self.identity = identity
        self.batch = batch
        self.applied = applied
        super().__init__(
            f"batch {batch} of {identity} is older than batch {applied}, which is already in table {table}: "
            f"another run of this query is ahead, or its checkpoint was restored from a backup; stop the "
            f"other run, or start with a new checkpoint and an empty table"
        )
