"""The watermarks of the two sides of a join, and the limits that follow from them (J1, J2, J6, J7)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from slackwater.errors import InvalidArgument
from slackwater.time import BEGINNING_OF_TIME, END_OF_TIME
from slackwater.windows.engine.side_watermarks import advance_sides
from slackwater.windows.spec.join_spec import JoinSpec
from slackwater.windows.spec.operator_spec import REACH, SIDES, Side
from slackwater.windows.spec.two_sided_spec import TwoSidedSpec

OTHER: Final[Mapping[Side, Side]] = {"left": "right", "right": "left"}


class SideProgress(Protocol):
    """The part of the saved state of a side that concerns its watermark."""

    watermark: int | None
    received: int | None


@dataclass(frozen=True, slots=True)
class SideLevels:
    """How far each side is: the watermarks that it sent, and those that the operator uses.

    The watermark that the operator uses is the received one, or that of the other side if the side is idle
    and proceeds, minus the lateness that rows of the side may have. It never decreases.

    >>> spec = JoinSpec(on=(), before=0, after=0, idle="proceed", left_lateness=3)
    >>> levels = SideLevels({}, {}).advanced(spec, "join", {"right": 20}, idle={"left"})
    >>> levels.used["left"], levels.used["right"]
    (17, 20)
    >>> levels.advanced(spec, "join", {"left": 5}).used["left"]
    17
    """

    received: Mapping[Side, int]
    used: Mapping[Side, int]

    @classmethod
    def of(cls, left: SideProgress, right: SideProgress) -> SideLevels:
        """The levels in the saved state of both sides."""
        sides: dict[Side, SideProgress] = {"left": left, "right": right}
        used = {side: at for side, one in sides.items() if (at := one.watermark) is not None}
        received = {side: at for side, one in sides.items() if (at := one.received) is not None}
        return cls(received, used)

    def advanced(
        self,
        spec: TwoSidedSpec,
        operator: str,
        watermarks: Mapping[str, int],
        idle: Collection[str] = (),
    ) -> SideLevels:
        """The levels after a step; raises if a side sent a lower watermark than before (J7)."""
        if unknown := sorted(set(idle) - set(SIDES)):
            raise InvalidArgument(
                "idle", unknown[0], f"is not a side of a {operator}", fix='use "left" or "right"'
            )
        received = advance_sides(self.received, watermarks, operator)
        reached = dict(received)
        if spec.idle == "proceed" and received:
            reached |= dict.fromkeys((side for side in SIDES if side in idle), max(received.values()))
        used = dict(self.used)
        for side, at in reached.items():
            if (level := behind(at, spec.lateness(side))) is not None:
                used[side] = max(level, used.get(side, level))
        return SideLevels(received, used)


def behind(watermark: int, lateness: int | None) -> int | None:
    """The watermark that an operator uses for rows that may be late; None if it is not known.

    >>> behind(20, 5), behind(END_OF_TIME, 5) == END_OF_TIME, behind(20, None)
    (15, True, None)
    """
    if watermark == END_OF_TIME:
        return watermark
    return None if lateness is None else max(BEGINNING_OF_TIME, watermark - lateness)


@dataclass(frozen=True, slots=True)
class JoinLimits:
    """The levels of both sides of a time-bounded join, and the limits that follow from them."""

    spec: JoinSpec
    levels: SideLevels

    def watermark(self, side: Side) -> int | None:
        """The watermark of a side; its rows below it are late (J1)."""
        return self.levels.used.get(side)

    def limit(self, side: Side) -> int | None:
        """The time below which rows of a side cannot match any future row of the other side (J2)."""
        other, reach = self.watermark(OTHER[side]), self.spec.after if side == "left" else self.spec.before
        return other if other is None or other == END_OF_TIME else other - reach

    def settled(self, side: Side) -> int | None:
        """The limit, clipped to the range of event times, so that it can be compared with a column."""
        return clipped(self.limit(side))

    def freed(self, side: Side) -> int | None:
        """The time below which rows of a side leave the buffer.

        A row that can still be retracted stays, because the pairs that it made are then retracted too.
        """
        if self.spec.retractions(side) is None:
            return self.settled(side)
        own, limit = self.watermark(side), self.limit(side)
        return None if own is None or limit is None else clipped(min(own, limit))

    def forwarded(self, side: Side) -> int | None:
        """The watermark of a side downstream (J6)."""
        own, limit = self.watermark(side), self.limit(side)
        return None if own is None or limit is None else max(BEGINNING_OF_TIME, min(own, limit))

    def advanced(self, watermarks: Mapping[str, int], idle: Collection[str]) -> JoinLimits:
        """The limits after an update of the watermarks; raises if one decreases (J7)."""
        return JoinLimits(self.spec, self.levels.advanced(self.spec, "join", watermarks, idle))


def clipped(limit: int | None) -> int | None:
    """A limit within the range of event times, so that it can be compared with a column.

    >>> clipped(END_OF_TIME) == REACH
    True
    """
    return None if limit is None else max(-REACH, min(limit, REACH))
