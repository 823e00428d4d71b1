"""The reference model of cogroup and join in windows: one element at a time.

Written from the specification. The windows are those of `WindowedModel` over the elements of both sides; this
module only adds the minimum watermark and the rows of a pane with two sides. In discarding mode a join keeps
every pair it ever emitted, to determine which ones are new.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slackwater import windows as configuration
from tests.model.windows import Drop, Key, Pane, Row, WindowedModel

SIDES = ("left", "right")
Pair = tuple[Row | None, Row | None]


@dataclass(frozen=True)
class MergeRow:
    """An output row: for a cogroup the elements of both sides, for a join a pair."""

    pane: Pane
    """The fields of the pane, without its values."""
    left: Any
    right: Any


@dataclass
class MergeStep:
    """The output of one step: rows in blocks, each a pane with the retractions before it."""

    blocks: list[tuple[list[MergeRow], list[MergeRow]]] = field(default_factory=list)
    drops: list[Drop] = field(default_factory=list)
    forwarded: int | None = None
    waiting: int | None = None


class MergeModel:
    """The merge with the same settings; elements are (key, event time, row), with distinct rows per side."""

    def __init__(
        self,
        window: configuration.Window,
        trigger: configuration.Trigger,
        *,
        how: str,
        mode: str,
        **options: Any,
    ) -> None:
        self.how = how
        self.once = how != "cogroup" and mode == "discarding"
        self.merges = isinstance(window, configuration.Sessions)
        self.emitted: list[tuple[Any, ...]] = []
        self.watermarks: dict[str, int] = {}
        self.lower: int | None = None
        """The operator's watermark, which never goes back."""
        # A pair is made of all elements so far, also where each is emitted only once.
        windows_mode = "accumulating" if self.once else mode
        if self.once and how != "inner":  # unmatched rows are owed until no match can come
            options["closing"] = "always"
        self.windows = WindowedModel(window, trigger, by_side, mode=windows_mode, **options)

    def step(
        self,
        elements: Mapping[str, Sequence[tuple[Key, int, Row]]],
        watermarks: Mapping[str, int],
        now: int,
        idle: Sequence[str] = (),
    ) -> MergeStep:
        """Process the elements of both sides; then the lower watermark; then the clock.

        An idle side is left out; if both are idle, the higher watermark counts.
        """
        self.watermarks |= watermarks
        active = [self.watermarks.get(side) for side in SIDES if side not in idle]
        level = max(self.watermarks.values(), default=None)
        if active:
            known = [at for at in active if at is not None]
            level = min(known) if len(known) == len(active) else None
        if level is not None:
            self.lower = level if self.lower is None else max(self.lower, level)
        lower = self.lower
        both = [
            (key, at, {"side": side, "key": key, "at": at, "row": row})
            for side in SIDES
            for key, at, row in elements.get(side, ())
        ]
        output = self.windows.step(both, lower, now, idle=len(set(idle)) == len(SIDES))
        done = MergeStep(drops=output.drops, forwarded=output.forwarded, waiting=output.waiting)
        for emission in output.emissions:
            taken_back = [row for old in emission.retractions for row in self._rows(old)]
            results = [] if emission.pane is None else self._rows(emission.pane)
            if self.once:
                results = [row for row in results if self._is_new(row)]
            if taken_back or results:
                done.blocks.append((taken_back, results))
        return done

    def _rows(self, pane: Pane) -> list[MergeRow]:
        left, right = pane.values["left"], pane.values["right"]
        if self.how == "cogroup":
            return [MergeRow(pane, left, right)]
        pairs = self._pairs(pane.key, left, right)
        if self.once and not pane.is_last:
            pairs = [pair for pair in pairs if None not in pair]
        return [MergeRow(pane, *pair) for pair in pairs]

    def _pairs(self, key: Key, left: list[Row], right: list[Row]) -> list[Pair]:
        """Join as SQL does: a null in the key equals nothing, and an outer side keeps unmatched rows."""
        matches = not any(value is None for value in key)
        pairs: list[Pair] = [(one, other) for one in left for other in right if matches]
        if self.how in {"left", "full"}:
            pairs += [(one, None) for one in left if not (matches and right)]
        if self.how in {"right", "full"}:
            pairs += [(None, other) for other in right if not (matches and left)]
        return pairs

    def _is_new(self, row: MergeRow) -> bool:
        """Whether the pair was not emitted before in this window (for sessions, in any window)."""
        window = None if self.merges else (row.pane.start, row.pane.end)
        identity = (window, row.left, row.right)
        if identity in self.emitted:
            return False
        self.emitted.append(identity)
        return True


def by_side(elements: Sequence[Row]) -> Row:
    """The rows of each side, in the order of their numbers."""
    return {
        side: sorted((one["row"] for one in elements if one["side"] == side), key=lambda row: row["number"])
        for side in SIDES
    }
