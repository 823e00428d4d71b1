"""What a stream promises, checked after every commit.

The oracle reads the committed rows and the files with a connection of its own, and keeps its own record of
every event. No event is stored twice, left out or out of order per key; nothing is acknowledged that is not
stored on a durable file; marks never go back, are never beyond the events that exist, and are never above the
event time of what follows; a reader group never skips an event.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from slackwater.simulation.world import World
from slackwater.streams.log.catalog import Stream
from slackwater.streams.log.segment_files import BatchLocation, DamagedFile
from slackwater.streams.log.segment_reader import EventBatch
from slackwater.streams.segments.epochs import KEY_SPACE
from slackwater.streams.segments.positions import Position
from slackwater.streams.time.marks import Mark
from slackwater.streams.time.time_windows import TimeWindow


class SimulatedEvent(NamedTuple):
    """An event as the simulation writes it: who wrote it, under which key, as which number, at which time.

    >>> SimulatedEvent.parse(SimulatedEvent("a", "k1", 7, 1000).value()).number
    7
    """

    writer: str
    key: str
    number: int
    time: int

    def value(self) -> bytes:
        """The event as bytes."""
        return f"{self.writer} {self.key} {self.number} {self.time}".encode()

    @classmethod
    def parse(cls, value: bytes) -> SimulatedEvent:
        """The event of these bytes."""
        writer, key, number, time = value.decode().split(" ")
        return cls(writer, key, int(number), int(time))


class KnownSegment(NamedTuple):
    """A segment: its id and key range."""

    id: int
    low: int
    high: int

    def overlaps(self, other: KnownSegment) -> bool:
        """Whether the key ranges overlap."""
        return self.low < other.high and other.low < self.high


@dataclass
class LogOracle:
    """The model of one stream and one reader group."""

    world: World
    stream: Stream
    root: Path
    segments: dict[int, KnownSegment] = field(default_factory=dict)
    events: dict[int, list[SimulatedEvent]] = field(default_factory=lambda: defaultdict(list))
    stored: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    marks: list[Mark] = field(default_factory=list)
    delivered: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """How many events of each segment the readers have passed on, without a gap."""

    def __post_init__(self) -> None:
        self._database = sqlite3.connect(self.world.server.path, check_same_thread=False)
        self._last_of_key: dict[tuple[str, str], int] = defaultdict(int)
        self._last_delivered: dict[tuple[str, str], int] = defaultdict(int)
        self._commits = 0
        self._joined: dict[str, int] = {}
        self._promised: dict[str, int] = {}
        self._covered: dict[int, int] = {}
        self._lower: int | None = None
        self.world.committed = self.check
        self.world.server.began = self._note_snapshot
        self._note_writers()

    def close(self) -> None:
        """Close the connection."""
        self._database.close()

    # ---- after a commit

    def check(self, changed: set[str]) -> None:
        """Check what a transaction has committed."""
        self._commits += 1
        if "slackwater_segments" in changed:
            self._note_events()
        if "slackwater_writer_marks" in changed:
            self._note_writers()
        if "slackwater_marks" in changed:
            self._note_marks()
        if "slackwater_group_segments" in changed:
            self._check_group()

    def _note_snapshot(self) -> None:
        # a controller decides on a mark from what it reads in its last reading transaction
        self.world.scheduler.current.process.note = self._commits

    def _rows(self, query: str, *values: object) -> list[tuple[int, ...]]:
        return self._database.execute(query, (self.stream.id, *values)).fetchall()

    def _note_events(self) -> None:
        added: dict[str, list[SimulatedEvent]] = defaultdict(list)
        query = "SELECT id, low, high, length FROM slackwater_segments WHERE stream = ? ORDER BY id"
        for identity, low, high, length in self._rows(query):
            self.segments.setdefault(identity, KnownSegment(identity, low, high))
            known = self.events[identity]
            if length < len(known):
                self.world.violate(f"segment {identity} shrank from {len(known)} to {length} events")
            while len(known) < length:
                found = self._read_append(identity, len(known))
                if not found:
                    return
                known += found
                for event in found:
                    added[event.writer].append(event)
        for writer, events in added.items():
            self._check_added(writer, events)

    def _read_append(self, segment: int, offset: int) -> list[SimulatedEvent]:
        query = (
            "SELECT file, place, size, checksum, events FROM slackwater_appends "
            "WHERE stream = ? AND segment = ? AND first_offset = ?"
        )
        found = self._rows(query, segment, offset)
        if not found:
            self.world.violate(f"offset {offset} of segment {segment} is not in any append")
            return []
        location = BatchLocation(*found[0])  # type: ignore[arg-type]  # the columns of a location
        try:
            batch = self.stream.folder.read(location, self.stream.columns)
        except DamagedFile as damaged:
            self.world.violate(f"the file of a committed append {damaged}: {location.file}")
            return []
        if not self.world.disk.is_durable(self.root / location.file):
            self.world.violate(f"events were committed before their file was durable: {location.file}")
        return [SimulatedEvent.parse(value) for value in batch.column("value").to_pylist()]

    def _check_added(self, writer: str, events: list[SimulatedEvent]) -> None:
        first = self.stored[writer] + 1
        numbers = sorted(event.number for event in events)
        if numbers != list(range(first, first + len(events))):
            self.world.violate(f"{writer}: stored {numbers[:9]} where {first} comes next")
        self.stored[writer] += len(events)
        for event in events:
            last = self._last_of_key[writer, event.key]
            if event.number <= last:
                self.world.violate(f"{writer}: {event.number} of key {event.key} follows {last}")
            self._last_of_key[writer, event.key] = event.number
            promised = self._promised.get(writer)
            if promised is not None and event.time < promised:
                self.world.violate(
                    f"{writer}: wrote an event of time {event.time}, but a mark has the bound {promised}"
                )

    def acknowledged(self, writer: str, number: int) -> None:
        """A writer was sent the acknowledgement of all its events up to a number."""
        if number > self.stored[writer]:
            self.world.violate(f"{writer}: {number} was acknowledged, {self.stored[writer]} are stored")

    # ---- marks

    def _note_writers(self) -> None:
        query = "SELECT writer FROM slackwater_writer_marks WHERE stream = ? AND NOT closed"
        present = {str(writer) for (writer,) in self._rows(query)}
        for writer in self._joined.keys() - present:
            del self._joined[writer]
            self._promised.pop(writer, None)
        for writer in present - self._joined.keys():
            self._joined[writer] = self._commits

    def _note_marks(self) -> None:
        query = 'SELECT "lower", "upper", cut FROM slackwater_marks WHERE stream = ? ORDER BY number'
        rows = self._rows(query)
        last = self.marks[-1].lower if self.marks else None
        for lower, upper, cut in rows:
            if last is None or lower > last:
                self._check_mark(Mark(lower, upper, Position.load(cut)))  # type: ignore[arg-type]  # bytes
        if rows and self.marks and rows[-1][0] < self.marks[-1].lower:
            self.world.violate(f"marks went back from {self.marks[-1].lower} to {rows[-1][0]}")

    def _check_mark(self, mark: Mark) -> None:
        world = self.world
        cut = dict(mark.cut.items())
        if mark.lower > mark.upper:
            world.violate(f"a mark has the bounds {mark.lower} and {mark.upper}")
        covered = self._covered_by(cut)
        if covered is None:
            world.violate(f"the cut {cut} does not cover the key space once")
            return
        for segment, offset in cut.items():
            if offset > len(self.events[segment]):
                world.violate(
                    f"a mark claims {offset} of {len(self.events[segment])} events of segment {segment}"
                )
        for segment, offset in self._covered.items():
            if covered.get(segment, 0) < offset:
                world.violate(
                    f"the cut of a mark went back in segment {segment}: {covered.get(segment, 0)} < {offset}"
                )
        read_at = world.scheduler.current.process.note
        taking_part = {writer for writer, since in self._joined.items() if since <= read_at}
        for segment, events in self.events.items():
            for offset in range(covered.get(segment, 0), len(events)):
                event = events[offset]
                if event.writer in taking_part and event.time < mark.lower:
                    world.violate(
                        f"a mark has the lower bound {mark.lower}, but {event.writer} wrote event "
                        f"{event.number} of time {event.time} after its cut"
                    )
        for writer in taking_part:
            self._promised[writer] = mark.lower
        self._covered = covered
        self.marks.append(mark)

    def _covered_by(self, cut: Mapping[int, int]) -> dict[int, int] | None:
        """How many events of each segment a cut covers; None if it is not a cut."""
        inside = sorted((self.segments[identity] for identity in cut), key=lambda one: one.low)
        bounds = [0, *(one.high for one in inside)], [*(one.low for one in inside), KEY_SPACE]
        if bounds[0] != bounds[1]:
            return None
        covered = {}
        for segment in self.segments.values():
            if segment.id in cut:
                covered[segment.id] = cut[segment.id]
            elif all(one.id > segment.id for one in inside if one.overlaps(segment)):
                covered[segment.id] = len(self.events[segment.id])
            else:
                covered[segment.id] = 0
        return covered

    # ---- readers

    def deliver(self, batch: EventBatch) -> None:
        """A reader has passed a batch on; one that was passed on before must be the same."""
        known = self.events[batch.segment]
        for offset, value in enumerate(batch.events.column("value").to_pylist(), batch.first_offset):
            event = SimulatedEvent.parse(value)
            if offset >= len(known) or known[offset] != event:
                self.world.violate(f"read {event} at offset {offset} of segment {batch.segment}")
            if offset < self.delivered[batch.segment]:
                continue
            if offset > self.delivered[batch.segment]:
                self.world.violate(
                    f"a reader skipped from {self.delivered[batch.segment]} to {offset} in {batch.segment}"
                )
            self.delivered[batch.segment] = offset + 1
            last = self._last_delivered[event.writer, event.key]
            if event.number <= last:
                self.world.violate(f"read {event.number} of key {event.key} of {event.writer} after {last}")
            self._last_delivered[event.writer, event.key] = event.number

    def _check_group(self) -> None:
        query = 'SELECT segment, "offset", finished FROM slackwater_group_segments WHERE stream = ?'
        for segment, offset, finished in self._rows(query):
            if offset > self.delivered[segment]:
                self.world.violate(
                    f"the group is at {offset} of segment {segment}, read are {self.delivered[segment]}"
                )
            if finished and offset < len(self.events[segment]):
                self.world.violate(
                    f"segment {segment} is finished at {offset} of {len(self.events[segment])}"
                )

    def window(self, window: TimeWindow) -> None:
        """The group was asked for its time window."""
        if window.lower is None:
            return
        if self._lower is not None and window.lower < self._lower:
            self.world.violate(f"the window of the group went back from {self._lower} to {window.lower}")
        self._lower = window.lower
        if window.upper is not None and window.upper < window.lower:
            self.world.violate(f"the window of the group is {window}")
        reached = [mark for mark in self.marks if mark.lower <= window.lower]
        covered = self._covered_by(dict(reached[-1].cut.items())) if reached else None
        if covered is None:
            self.world.violate(f"the window of the group has the bound {window.lower} of no mark")
            return
        for segment, offset in covered.items():
            # a segment that grew after the mark counts up to what the mark could cover
            if self.delivered[segment] < min(offset, len(self.events[segment])):
                self.world.violate(
                    f"the window of the group is at {window.lower}, but only {self.delivered[segment]} "
                    f"of {offset} events of segment {segment} were read"
                )

    # ---- at the end

    def check_end(self, quotas: Mapping[str, int]) -> None:
        """After all faults have ended, everything has arrived."""
        for writer, quota in quotas.items():
            if self.stored[writer] != quota:
                self.world.violate(f"{writer} stored {self.stored[writer]} of {quota} events in the end")
        for segment, events in self.events.items():
            if self.delivered[segment] != len(events):
                self.world.violate(
                    f"in the end {self.delivered[segment]} of {len(events)} in segment {segment} were read"
                )
