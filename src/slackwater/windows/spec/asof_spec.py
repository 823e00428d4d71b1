"""The specification of the as-of join: `AsofSpec`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from slackwater.errors import InvalidArgument
from slackwater.time import DurationLike, check_int64, duration
from slackwater.windows.spec.operator_spec import REACH, Late, Side
from slackwater.windows.spec.spec_checks import check_choice, join_kind
from slackwater.windows.spec.two_sided_spec import JoinIdle, TwoSidedSpec

AsofDirection = Literal["backward", "forward", "nearest"]
AsofHow = Literal["left", "inner"]


@dataclass(frozen=True, kw_only=True)
class AsofSpec(TwoSidedSpec):
    """The configuration of an `AsofOperator`: each left row with the right row that is closest in time.

    A left row is answered when no future right row can be a better match, so the result does not depend on
    the order of arrival. Of several right rows with the same key and time, backward and nearest select the
    one that arrived last, and forward the one that arrived first. Without a tolerance, a left row without a
    match waits: for ``"backward"`` until the right watermark has passed it, for the other directions until
    a match arrives or the right side ends.

    Rows of both sides may be retracted. A left row waits until its match cannot be retracted any more, so
    retractions of right rows never change the output. A left row that is retracted after it was emitted is
    retracted in the output.

    Args:
        on: the key columns, which both sides have; with none, only times are compared.
        direction: ``"backward"`` selects the last right row that is not later than the left row,
            ``"forward"`` the first that is not earlier, ``"nearest"`` the one with the smallest distance;
            of two at the same distance, the later one.
        how: whether left rows without a match are emitted with nulls (``"left"``) or not (``"inner"``).
        tolerance: the largest distance of a match in microseconds; None for no limit.

    The other settings are those of `TwoSidedSpec`.

    Raises:
        InvalidArgument: a value is invalid.

    >>> import slackwater as sw
    >>> sw.AsofSpec(on=("symbol",), tolerance=5).direction
    'backward'
    >>> sw.AsofSpec(direction="before")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: direction = 'before': is not a valid value of direction; use one of \
backward, forward, nearest
    """

    equal_times: ClassVar = "tolerance=0"
    on: tuple[str, ...] = ()
    direction: AsofDirection = "backward"
    how: AsofHow = "left"
    tolerance: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("direction", self.direction, get_args(AsofDirection))
        check_choice("how", self.how, get_args(AsofHow))
        if self.tolerance is not None and not 0 <= check_int64(self.tolerance, "tolerance") < REACH:
            raise InvalidArgument(
                "tolerance",
                self.tolerance,
                "is negative or longer than 146,000 years",
                fix="use a duration, or None for no limit",
            )

    @property
    def forwarding(self) -> tuple[Side, ...]:
        """The sides whose watermarks are forwarded: those of the right side end here."""
        return ("left",)

    @property
    def output_retractions(self) -> str | None:
        """The output column that marks retractions, which only those of left rows cause, or late rows."""
        return self.right_retractions if self._emits_only_late_retractions else self.left_retractions

    @property
    def _emits_only_late_retractions(self) -> bool:
        return self.left_retractions is None and self.late == "emit"

    @property
    def looks_back(self) -> bool:
        """Whether a match may be earlier than the left row."""
        return self.direction != "forward"

    @property
    def looks_ahead(self) -> bool:
        """Whether a match may be later than the left row."""
        return self.direction != "backward"

    @property
    def signature(self) -> str:
        """The settings that saved state depends on; state with another signature is rejected.

        >>> import slackwater as sw
        >>> sw.AsofSpec(on=("k",), tolerance=5).signature
        "left backward as-of join on ('k',) within 5, ts of ts"
        """
        within = "" if self.tolerance is None else f" within {self.tolerance}"
        further = "".join(
            f", {name} {value}"
            for name, value in (
                ("left retractions", self.left_retractions),
                ("right retractions", self.right_retractions),
                ("left keys", self.left_keys),
            )
            if value
        )
        return (
            f"{self.how} {self.direction} as-of join on {self.on}{within}, "
            f"{self.left_time} of {self.right_time}{further}"
        )


def asof_join(
    *on: str,
    direction: AsofDirection = "backward",
    tolerance: DurationLike | None = None,
    how: AsofHow | str = "left",
    left_time: str = "ts",
    right_time: str = "ts",
    late: Late = "count",
    idle: JoinIdle = "hold",
) -> AsofSpec:
    """Create the `AsofSpec` of an as-of join, with its tolerance as a duration.

    Args:
        on: the key columns, which both sides have.
        direction: ``"backward"``, ``"forward"`` or ``"nearest"``.
        tolerance: the largest distance of a match; None for no limit.
        how: whether left rows without a match are emitted with nulls or not.
        left_time: the event-time column of the left side.
        right_time: the event-time column of the right side.
        late: whether late rows are only counted or also returned.
        idle: whether an idle side holds the other one back or counts as being as far as the other side.

    >>> import slackwater as sw
    >>> sw.asof_join("symbol", tolerance="10 seconds").tolerance
    10000000
    """
    return AsofSpec(
        on=on,
        direction=direction,
        tolerance=None if tolerance is None else duration(tolerance, name="tolerance"),
        how=join_kind(how, get_args(AsofHow)),
        left_time=left_time,
        right_time=right_time,
        late=late,
        idle=idle,
    )
