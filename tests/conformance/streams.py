"""Parsing of segments, epochs, positions and cuts in the cases, shared by the suites of streams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from slackwater.streams.segments.epochs import Epochs, Segment, point
from slackwater.streams.segments.positions import END_OF_SEGMENT, Position
from tests.conformance.framework import BrokenCase, Case, Fields

_SEGMENT = Fields({"number", "epoch", "range"})


class Named:
    """The segments of a case, by the names that it gives them."""

    def __init__(self, case: Case) -> None:
        self.segments: dict[str, Segment] = {}
        for name, fields in case["segments"].items():
            _SEGMENT.check(fields, f"segment {name}")
            low, high = fields["range"]
            self.segments[name] = Segment(fields["number"], fields["epoch"], point(low), point(high))
        self._names = {segment.id: name for name, segment in self.segments.items()}
        if len(self._names) < len(self.segments):
            raise BrokenCase("segments: two have the same number and epoch")

    @property
    def by_id(self) -> Mapping[int, Segment]:
        return {segment.id: segment for segment in self.segments.values()}

    def epochs(self, written: Iterable[Iterable[str]]) -> Epochs:
        return Epochs([[self._segment(name) for name in names] for names in written])

    def position(self, written: Mapping[str, Any]) -> Position:
        """``end`` stands for the offset of a finished segment, null for one that was never written to."""
        special = {"end": END_OF_SEGMENT, None: 0}
        return Position.of(
            {self._segment(name).id: special.get(offset, offset) for name, offset in written.items()}
        )

    def named(self, position: Position) -> dict[str, int]:
        return {self._names[identity]: offset for identity, offset in position.items()}

    def _segment(self, name: str) -> Segment:
        try:
            return self.segments[name]
        except KeyError:
            raise BrokenCase(f"unknown segment {name!r}") from None
