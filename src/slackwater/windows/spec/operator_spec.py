"""What the specifications of all operators have in common."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

Late = Literal["count", "emit"]
Side = Literal["left", "right"]

SIDES: Final[tuple[Side, Side]] = ("left", "right")
REACH: Final = 2**62
"""Times and bounds of a join stay within ±146,000 years of 1970, so that their sums never overflow."""


class OperatorSpec:
    """The questions that every specification answers; these are the answers of an operator without windows.

    >>> from slackwater.windows import JoinSpec
    >>> JoinSpec(on=("auction",), before=0, after=5).can_fold
    False
    """

    @property
    def can_fold(self) -> bool:
        """Whether rows can be aggregated to partials before the operator's step, where there is no state."""
        return False

    @property
    def fires_once(self) -> bool:
        """Whether a key never gets a second pane for a window."""
        return False

    @property
    def retracts(self) -> bool:
        """Whether the output contains retractions of earlier panes."""
        return False

    @property
    def takes_retractions(self) -> bool:
        """Whether rows of the input can be retractions of earlier rows."""
        return False

    @property
    def inherits(self) -> bool:
        """Whether the operator keeps the windows of the incoming panes."""
        return False

    @property
    def time_limits(self) -> tuple[int, int] | None:
        """The first and the last event time that has a window, if not every time has one."""
        return None

    @property
    def gap_column(self) -> str | None:
        """The column with the session gap of each row, if there is one."""
        return None


def longest_lateness(several: Iterable[int | None]) -> int | None:
    """The longest of several latenesses, of which None has no limit; 0 if there are none.

    >>> longest_lateness([0, 5]), longest_lateness([5, None]), longest_lateness([])
    (5, None, 0)
    """
    known = list(several)
    return None if None in known else max((one for one in known if one is not None), default=0)
