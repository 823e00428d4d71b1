"""The settings that joins of two streams have in common: `TwoSidedSpec`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from slackwater.errors import InvalidArgument
from slackwater.windows.spec.operator_spec import SIDES, Late, OperatorSpec, Side
from slackwater.windows.spec.spec_checks import check_choice, check_lateness, check_type

JoinIdle = Literal["hold", "proceed"]


@dataclass(frozen=True, kw_only=True)
class TwoSidedSpec(OperatorSpec):
    """The settings that `JoinSpec` and `AsofSpec` have in common.

    Args:
        on: the key columns, which both sides have.
        left_time: the event-time column of the left side.
        right_time: the event-time column of the right side.
        suffixes: appended to the columns that both sides have and that are not keys.
        late: whether late rows are only counted or also returned.
        idle: whether an idle side holds the other one back (``"hold"``) or counts as being as far as the
            other side (``"proceed"``), so that rows that it sends later below that are late.
        left_retractions: the boolean column that marks left rows which retract an equal earlier row.
        right_retractions: the same for the right side.
        left_lateness: microseconds that rows of the left side may be behind its watermark; None for no limit.
        right_lateness: the same for the right side.
        left_keys: further watermark keys of the left side, each with its event-time column.

    Raises:
        InvalidArgument: a value is invalid.

    >>> TwoSidedSpec(on=("auction",), right_time="end").times
    {'left': 'ts', 'right': 'end'}
    """

    equal_times: ClassVar[str]
    """The settings with which only rows with equal event times match, as text."""
    on: tuple[str, ...]
    left_time: str = "ts"
    right_time: str = "ts"
    suffixes: tuple[str, str] = ("_left", "_right")
    late: Late = "count"
    idle: JoinIdle = "hold"
    left_retractions: str | None = None
    right_retractions: str | None = None
    left_lateness: int | None = 0
    right_lateness: int | None = 0
    left_keys: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        check_type("on", self.on, tuple, 'a tuple of column names, as in on=("auction",)')
        check_choice("late", self.late, get_args(Late))
        check_choice("idle", self.idle, get_args(JoinIdle))
        for side in SIDES:
            check_lateness(f"{side}_lateness", self.lateness(side))
        if self.left_time in self.on or self.right_time in self.on:
            raise InvalidArgument(
                "on",
                self.on,
                "contains an event-time column",
                fix=f"use {self.equal_times} to match equal event times",
            )

    @property
    def times(self) -> dict[Side, str]:
        """The event-time column of each side."""
        return {"left": self.left_time, "right": self.right_time}

    @property
    def forwarding(self) -> tuple[Side, ...]:
        """The sides whose watermarks are forwarded: those that have columns in the output."""
        return SIDES

    @property
    def takes_retractions(self) -> bool:
        """Whether rows of a side can be retractions of earlier rows."""
        return self.left_retractions is not None or self.right_retractions is not None

    @property
    def retracts(self) -> bool:
        """Whether the output contains retractions."""
        return self.output_retractions is not None

    @property
    def output_retractions(self) -> str | None:
        """The output column that marks retractions: the name that the first side with retractions uses."""
        return self.left_retractions if self.left_retractions is not None else self.right_retractions

    def retractions(self, side: Side) -> str | None:
        """The column of a side that marks retractions; None if it does not retract.

        Args:
            side: "left" or "right".
        """
        return self.left_retractions if side == "left" else self.right_retractions

    def lateness(self, side: Side) -> int | None:
        """How far rows of a side may be behind its watermark; None for no limit.

        Args:
            side: "left" or "right".
        """
        return self.left_lateness if side == "left" else self.right_lateness

    def keys(self, side: Side) -> tuple[tuple[str, str], ...]:
        """The further watermark keys of a side that are forwarded, each with its event-time column.

        Args:
            side: "left" or "right".
        """
        return self.left_keys if side == "left" else ()
