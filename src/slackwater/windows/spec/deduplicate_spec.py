"""The specification of deduplication: `DeduplicateSpec`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from slackwater.errors import InvalidArgument
from slackwater.progress.values import DEFAULT_KEY
from slackwater.time import DurationLike, check_int64, duration
from slackwater.windows.spec.operator_spec import REACH, Late, OperatorSpec
from slackwater.windows.spec.spec_checks import check_choice, check_lateness, check_type


@dataclass(frozen=True, kw_only=True)
class DeduplicateSpec(OperatorSpec):
    """The configuration of a `DeduplicateOperator`: the first row per key within a time bound.

    A row is a duplicate if a row with the same key was kept whose event time is at most ``within`` earlier or
    later. Rows count in order of arrival, and those of one batch in order of their event time. A kept row is
    remembered until the watermark is more than ``within`` after it, so state does not grow with time. A row
    behind the watermark is late and dropped, because rows before it may have been forgotten. Null is a key.

    If rows may be retracted, rows count in order of their event time, those at the same time in order of
    arrival, so that the result is that of all rows in one batch. The output is corrected by retractions: if
    a kept row is retracted, the next one takes its place, and an earlier row that arrives later takes the
    place of a kept one. All rows at or after the watermark are stored for this.

    Args:
        on: the key columns.
        within: the time bound in microseconds, inclusive.
        event_time: the column with the event time of a row, in microseconds since 1970.
        late: whether late rows are only counted or also returned.
        lateness: microseconds that rows may be behind the watermark; None for no limit.
        watermark_key: the key of the watermark that decides what is remembered.
        further_keys: other watermark keys, which are forwarded: unchanged, or behind the rows that are
            stored if rows may be retracted.
        further_times: the event-time column of each further key; only needed with ``retractions``.
        retractions: the boolean column that marks rows which retract an equal earlier row, if there is one.

    Raises:
        InvalidArgument: a value is invalid.

    >>> import slackwater as sw
    >>> sw.DeduplicateSpec(on=("id",), within=5).within
    5
    >>> sw.DeduplicateSpec(on=(), within=5)
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: on = (): is empty; name at least one key column
    """

    on: tuple[str, ...]
    within: int
    event_time: str = "ts"
    late: Late = "count"
    lateness: int | None = 0
    watermark_key: str = DEFAULT_KEY
    further_keys: tuple[str, ...] = ()
    further_times: tuple[str, ...] = ()
    retractions: str | None = None

    def __post_init__(self) -> None:
        check_type("on", self.on, tuple, 'a tuple of column names, as in on=("id",)')
        if not self.on:
            raise InvalidArgument("on", self.on, "is empty", fix="name at least one key column")
        for index, name in enumerate(self.on):
            if name in self.on[:index]:
                raise InvalidArgument("on", self.on, f"contains {name!r} twice", fix="name it once")
        if not 0 <= check_int64(self.within, "within") < REACH:
            raise InvalidArgument(
                "within", self.within, "is negative or longer than 146,000 years", fix="use a duration"
            )
        if self.event_time in self.on:
            raise InvalidArgument(
                "on", self.on, "contains the event-time column", fix="use within=0 to compare equal times"
            )
        check_choice("late", self.late, get_args(Late))
        check_lateness("lateness", self.lateness)
        if self.takes_retractions and len(self.further_times) != len(self.further_keys):
            raise InvalidArgument(
                "further_times",
                self.further_times,
                "does not have one column for each further watermark key",
                fix=f"name the event-time columns of {', '.join(self.further_keys) or 'no key'}",
            )

    @property
    def takes_retractions(self) -> bool:
        """Whether rows of the input can be retractions of earlier rows."""
        return self.retractions is not None

    @property
    def retracts(self) -> bool:
        """Whether the output contains retractions: it does if the input does."""
        return self.takes_retractions

    @property
    def signature(self) -> str:
        """The settings that saved state depends on; state with another signature is rejected.

        >>> import slackwater as sw
        >>> sw.DeduplicateSpec(on=("id",), within=5).signature
        "deduplication on ('id',) by ts"
        """
        keys = f", keys {self.further_keys}" if self.further_keys else ""
        # Which rows were emitted follows from the stored rows and the bound, unless nothing can be retracted.
        bound = f", within {self.within}, retractions {self.retractions}" if self.takes_retractions else ""
        return f"deduplication on {self.on} by {self.event_time}{keys}{bound}"


def deduplication(
    *on: str, within: DurationLike, event_time: str = "ts", late: Late = "count"
) -> DeduplicateSpec:
    """Create the `DeduplicateSpec` of a deduplication, with its time bound as a duration.

    Args:
        on: the key columns.
        within: how close in time rows with the same key are duplicates.
        event_time: the event-time column.
        late: whether late rows are only counted or also returned.

    >>> import slackwater as sw
    >>> sw.deduplication("id", within="10 minutes").within
    600000000
    """
    return DeduplicateSpec(on=on, within=duration(within, name="within"), event_time=event_time, late=late)
