"""What a pipeline promises, checked after every committed batch.

The oracle keeps a sum and a count for every key and window, added up event by event. After a batch is merged,
the table holds exactly those of all events that were not too late. A batch that is repeated has the same
events and the same watermark, and every event of the stream is in exactly one batch.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from slackwater.simulation.log_oracle import WrittenEvent
from slackwater.simulation.world import World

Totals = dict[tuple[str, int], tuple[int, int]]
"""Count and sum by key and start of the window."""


@dataclass(frozen=True)
class PlannedBatch:
    """The events of a micro-batch, and the watermark that it brings."""

    events: tuple[WrittenEvent, ...]
    watermark: int | None


@dataclass
class PipelineOracle:
    """The model of one windowed query into a table."""

    world: World
    table: str
    ledger: str
    size: int
    lateness: int
    batches: list[PlannedBatch] = field(default_factory=list)
    totals: list[Totals] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    merged: int = -1

    def __post_init__(self) -> None:
        self._database = sqlite3.connect(self.world.server.path, check_same_thread=False)
        self._seen: dict[str, set[int]] = defaultdict(set)

    def close(self) -> None:
        """Close the connection."""
        self._database.close()

    def read(self, number: int, events: Sequence[WrittenEvent], watermark: int | None) -> None:
        """A batch was read, perhaps again."""
        batch = PlannedBatch(tuple(sorted(events)), watermark)
        if number < len(self.batches):
            if batch != self.batches[number]:
                self.world.violate(
                    f"batch {number} has other events or another watermark when it is repeated"
                )
            return
        for event in events:
            if event.number in self._seen[event.writer]:
                self.world.violate(f"event {event.number} of {event.writer} is in two batches")
            self._seen[event.writer].add(event.number)
        before = self.batches[-1].watermark if self.batches else None
        if before is not None and (watermark is None or watermark < before):
            self.world.violate(f"the watermark of batch {number} went back from {before} to {watermark}")
        self.batches.append(batch)
        self._add(batch, before)

    def _add(self, batch: PlannedBatch, before: int | None) -> None:
        totals = dict(self.totals[-1]) if self.totals else {}
        dropped = 0
        for event in batch.events:
            start = event.time - event.time % self.size
            if before is not None and start + self.size + self.lateness <= before:
                dropped += 1
                continue
            count, total = totals.get((event.key, start), (0, 0))
            totals[event.key, start] = (count + 1, total + event.number)
        self.totals.append(totals)
        self.dropped.append(dropped)

    def stepped(self, number: int, dropped: int) -> None:
        """The operator has processed a batch, and dropped this many events."""
        if dropped != self.dropped[number]:
            self.world.violate(f"batch {number} dropped {dropped} events, {self.dropped[number]} are late")

    def check(self, changed: set[str]) -> None:
        """Compare the table with the totals, after a commit that changed it."""
        if self.ledger not in changed and self.table not in changed:
            return
        rows = self._database.execute(f"SELECT k, start, n, total FROM {self.table}").fetchall()  # noqa: S608 - a constant
        found = {(key, start): (count, total) for key, start, count, total in rows}
        number = self.world.scheduler.current.process.note
        self.merged = max(self.merged, number)
        wanted = self.totals[number]
        if found != wanted:
            differing = sorted(item for item in found.items() ^ wanted.items())
            self.world.violate(f"after batch {number} the table has {differing[:4]} too much or too little")

    def seen(self) -> dict[str, int]:
        """How many events of each writer were read."""
        return {writer: len(numbers) for writer, numbers in self._seen.items()}
