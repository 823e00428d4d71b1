"""Reference model of an async stage: recomputed from all received and completed items at every step."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import zip_longest

from slackwater.progress.values import Watermark


@dataclass
class OrderingModel:
    """All received items and watermarks in order, the completed items, and the output so far."""

    ordered: bool
    received: list[str | Watermark] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    left: list[str | Watermark] = field(default_factory=list)
    gone: int = 0
    """Number of received items and watermarks that were emitted or replaced (ordered only)."""

    def watermark(self, watermark: Watermark) -> list[str | Watermark]:
        highest = [each.value for each in self._marks() if each.key == watermark.key]
        if watermark.value <= max(highest, default=watermark.value - 1):
            return []
        self.received.append(watermark)
        return self._leave()

    def submit(self, name: str) -> list[str | Watermark]:
        self.received.append(name)
        return []

    def complete(self, name: str) -> list[str | Watermark]:
        self.done.append(name)
        return self._leave()

    def held(self) -> int:
        return sum(1 for each in self.received if isinstance(each, str) and each not in self.left)

    def _marks(self) -> list[Watermark]:
        return [each for each in self.received if isinstance(each, Watermark)]

    def _leave(self) -> list[str | Watermark]:
        leaving = self._in_order() if self.ordered else self._as_completed()
        self.left += leaving
        return leaving

    def _in_order(self) -> list[str | Watermark]:
        """The longest received prefix in which every item is complete, without what was emitted."""
        prefix: list[str | Watermark] = []
        for each in self.received:
            if isinstance(each, str) and each not in self.done:
                break
            prefix.append(each)
        leaving = prefix[self.gone :]
        self.gone = len(prefix)
        # Of two adjacent watermarks of one key, the later replaced the earlier if that was waiting.
        return [
            each
            for each, following in zip_longest(leaving, leaving[1:])
            if not (
                isinstance(each, Watermark) and isinstance(following, Watermark) and each.key == following.key
            )
        ]

    def _as_completed(self) -> list[str | Watermark]:
        leaving: list[str | Watermark] = [name for name in self.done if name not in self.left]
        releasable: dict[str, Watermark] = {}
        for number, each in enumerate(self.received):
            before = [item for item in self.received[:number] if isinstance(item, str)]
            if isinstance(each, Watermark) and all(item in self.done for item in before):
                releasable[each.key] = each
        fresh = [
            each for each in self.received if isinstance(each, Watermark) and releasable.get(each.key) == each
        ]
        return leaving + [each for each in fresh if each not in self.left]
