"""The reference model of the time-bounded join: one row at a time, written from rules J1 to J7 alone.

A row of a semi or anti join is a pair without a right row. With a further condition, rows match only if the
sum of their times is not a multiple of 3.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

from slackwater.errors import WatermarkRegression
from slackwater.time import END_OF_TIME
from slackwater.windows.spec.join_spec import JoinHow, JoinSpec

Side = Literal["left", "right"]
Key = tuple[object, ...]
Pair = tuple[str | None, str | None]

INFINITY = float("inf")


@dataclass
class Row:
    """A row in a buffer."""

    name: str
    time: int
    key: Key
    matched: bool = False


@dataclass
class JoinModel:
    """Both buffers and both watermarks; ``float("inf")`` as a watermark is the end of a side."""

    how: JoinHow
    before: int
    after: int
    conditional: bool = False
    proceeds: bool = False
    """Whether an idle side counts as being as far as the other one."""
    lateness: dict[Side, int] = field(default_factory=lambda: {"left": 0, "right": 0})
    received: dict[Side, float | None] = field(default_factory=lambda: {"left": None, "right": None})
    buffers: dict[Side, list[Row]] = field(default_factory=lambda: {"left": [], "right": []})
    watermarks: dict[Side, float | None] = field(default_factory=lambda: {"left": None, "right": None})
    late: dict[Side, list[str]] = field(default_factory=lambda: {"left": [], "right": []})

    def __post_init__(self) -> None:
        JoinSpec(on=("key",), before=self.before, after=self.after, how=self.how)  # refuses what is refused

    def row(self, side: Side, name: str, time: int, key: Key) -> list[Pair]:
        """Process a row; returns the rows that are emitted."""
        own = self.watermarks[side]
        if own is not None and time < own:
            self.late[side].append(name)
            return []
        row = Row(name, time, key)
        pairs: list[Pair] = []
        for other in self.buffers[self.other(side)]:
            left, right = (row, other) if side == "left" else (other, row)
            if self.matches(left, right):
                if self.how == "semi" and not left.matched:
                    pairs.append((left.name, None))
                elif self.how not in ("semi", "anti"):
                    pairs.append((left.name, right.name))
                left.matched = right.matched = True
        limit = self.limit(side)
        if limit is None or time >= limit:
            self.buffers[side].append(row)
            return pairs
        return pairs + self.padded(side, [row])

    def watermark(self, side: Side, value: float) -> list[Pair]:
        """Process a watermark; returns the rows that are emitted before it is forwarded."""
        return self.advance({side: value})

    def advance(self, watermarks: dict[Side, float], idle: Collection[Side] = ()) -> list[Pair]:
        """Process the watermarks of a step, and which sides are idle; returns the rows that are emitted."""
        for side, value in watermarks.items():
            previous = self.received[side]
            if previous is not None and value < previous:
                shown = END_OF_TIME if previous == INFINITY else int(previous)
                raise WatermarkRegression(side, "default", shown, int(value))
            self.received[side] = value
        known = [value for value in self.received.values() if value is not None]
        for one in self.received:
            reached = max(known) if self.proceeds and one in idle and known else self.received[one]
            if reached is not None:
                used = self.watermarks[one]
                level = reached - self.lateness[one]
                self.watermarks[one] = level if used is None else max(used, level)
        pairs: list[Pair] = []
        for buffered in ("left", "right"):
            limit = self.limit(buffered)
            if limit is not None:
                leaving = [row for row in self.buffers[buffered] if row.time < limit]
                self.buffers[buffered] = [row for row in self.buffers[buffered] if row.time >= limit]
                pairs += self.padded(buffered, leaving)
        return pairs

    def buffered(self, side: Side) -> int:
        """The number of rows that can still change the output."""
        needed = self.buffers[side]
        if side == "left" and self.how in ("semi", "anti"):
            needed = [row for row in needed if not row.matched]
        if not self.pads(side):  # a null matches nothing
            needed = [row for row in needed if None not in row.key]
        return len(needed)

    def forwarded(self, side: Side) -> float | None:
        """The watermark of a side that is forwarded, if it is known."""
        own, limit = self.watermarks[side], self.limit(side)
        return None if own is None or limit is None else min(own, limit)

    def matches(self, left: Row, right: Row) -> bool:
        """Equal keys without a null, and the right row within the bounds of the left."""
        if left.key != right.key or None in left.key:
            return False
        if self.conditional and (left.time + right.time) % 3 == 0:
            return False
        return left.time - self.before <= right.time <= left.time + self.after

    def limit(self, side: Side) -> float | None:
        """Below it, no future row of the other side can match."""
        other = self.watermarks[self.other(side)]
        if other is None:
            return None
        return other - (self.after if side == "left" else self.before)

    def pads(self, side: Side) -> bool:
        """Whether unmatched rows of a side are emitted."""
        return self.how in (side, "full") or (self.how == "anti" and side == "left")

    def padded(self, side: Side, rows: list[Row]) -> list[Pair]:
        """Unmatched rows of an outer side, padded."""
        if not self.pads(side):
            return []
        return [(row.name, None) if side == "left" else (None, row.name) for row in rows if not row.matched]

    @staticmethod
    def other(side: Side) -> Side:
        """The other side."""
        return "right" if side == "left" else "left"
