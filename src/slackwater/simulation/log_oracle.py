"""What a stream promises, checked after every commit.

The oracle reads the committed rows and the files with a connection of its own, and keeps its own record of
every event. No event is stored twice, left out or out of order per key; nothing is acknowledged that is not
stored on a durable file; marks never go back, are never beyond the events that exist, and are never above the
event time of what follows; a reader group never skips an event that exists; retention removes no event before
its time, and not the newest append.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from slackwater.simulation.world import World
from slackwater.streams.log.catalog import Stream
from slackwater.streams.log.segment_files import BatchLocation, DamagedFile
from slackwater.streams.log.segment_reader import EventBatch
from slackwater.streams.segments.epochs import KEY_SPACE
from slackwater.streams.segments.positions import Position
from slackwater.streams.segments.routing import point_of
from slackwater.streams.settings import StreamSettings
from slackwater.streams.time.marks import Mark
from slackwater.streams.time.time_windows import TimeWindow


class WrittenEvent(NamedTuple):
    """An event as the simulation writes it: who wrote it, under which key, as which number, at which time.

    >>> WrittenEvent.parse(WrittenEvent("a", "k1", 7, 1000).value()).number
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
    def parse(cls, value: bytes) -> WrittenEvent:
        """The event of these bytes."""
        writer, key, number, time = value.decode().split(" ")
        return cls(writer, key, int(number), int(time))


class KnownSegment(NamedTuple):
    """A segment: its id and key range."""

    id: int
    low: int
    high: int


@lru_cache
def _point_of(key: str) -> int:
    return point_of(key)


@dataclass
class LogOracle:
    """The model of one stream and one reader group."""

    world: World
    stream: Stream
    root: Path
    settings: StreamSettings
    segments: dict[int, KnownSegment] = field(default_factory=dict)
    events: dict[int, list[WrittenEvent]] = field(default_factory=lambda: defaultdict(list))
    stored: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    marks: list[Mark] = field(default_factory=list)
    delivered: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """Up to which offset of each segment the readers have passed events on, without a gap."""
    resets: int = 0
    """How often the group was reset."""

    def __post_init__(self) -> None:
        self._database = sqlite3.connect(self.world.server.path, check_same_thread=False)
        self._last_of_key: dict[tuple[str, str], int] = defaultdict(int)
        self._last_delivered: dict[tuple[str, str], int] = defaultdict(int)
        self._commits = 0
        self._starts: dict[int, int] = defaultdict(int)
        self._appended: dict[tuple[int, int], int] = {}
        self._joined: dict[str, int] = {}
        self._promised: dict[str, int] = {}
        self._covered: set[tuple[int, int]] = set()
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
            self._note_removals()
        if "slackwater_writer_marks" in changed:
            self._note_writers()
        if "slackwater_marks" in changed:
            self._note_marks()
        if "slackwater_groups" in changed:
            self._note_resets()
        if "slackwater_group_segments" in changed:
            self._check_group()

    def _note_snapshot(self) -> None:
        # a controller decides on a mark from what it reads in its last reading transaction
        self.world.scheduler.current.process.note = self._commits

    def _rows(self, query: str, *values: object) -> list[tuple[int, ...]]:
        return self._database.execute(query, (self.stream.id, *values)).fetchall()

    def _note_events(self) -> None:
        added: dict[str, list[WrittenEvent]] = defaultdict(list)
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

    def _read_append(self, segment: int, offset: int) -> list[WrittenEvent]:
        query = (
            "SELECT file, byte_offset, size, checksum, events, at FROM slackwater_appends "
            "WHERE stream = ? AND segment = ? AND first_offset = ?"
        )
        found = self._rows(query, segment, offset)
        if not found:
            self.world.violate(f"offset {offset} of segment {segment} is not in any append")
            return []
        *columns, at = found[0]
        location = BatchLocation(*columns)  # type: ignore[arg-type]  # the columns of a location
        self._appended.update({(segment, offset + row): at for row in range(location.events)})
        try:
            batch = self.stream.folder.read(location, self.stream.columns)
        except DamagedFile as damaged:
            self.world.violate(f"the file of a committed append {damaged}: {location.file}")
            return []
        if not self.world.disk.is_durable(self.root / location.file):
            self.world.violate(f"events were committed before their file was durable: {location.file}")
        return [WrittenEvent.parse(value) for value in batch.column("value").to_pylist()]

    def _note_removals(self) -> None:
        """Check the events that a truncation has removed."""
        query = "SELECT id, start FROM slackwater_segments WHERE stream = ?"
        removed = [
            (segment, offset)
            for segment, start in self._rows(query)
            for offset in range(self._starts[segment], start)
        ]
        if not removed:
            return
        for segment, offset in removed:
            self._starts[segment] = offset + 1
        name = self.world.scheduler.current.process.name
        if name == "operator":
            unread = [one for one in removed if one[1] >= self.delivered[one[0]]]
            if unread:
                self.world.violate(f"the operator removed {unread[0]}, which the group has not read")
            return
        age = self.settings.retention.age
        limit = self.world.now - (age or 0)
        if age is None or any(self._appended[location] > limit for location in removed):
            self.world.violate(f"{name} removed events before their time: {removed[:3]}")
        if max(self._appended, key=self._appended.__getitem__) in removed:
            self.world.violate(f"{name} removed the newest append")

    def _passed(self, segment: int) -> int:
        """The offset before which every event was read or removed."""
        return max(self.delivered[segment], self._starts[segment])

    def _note_resets(self) -> None:
        query = 'SELECT name FROM slackwater_groups WHERE stream = ? AND "lower" IS NULL'
        if self._lower is not None and self._rows(query):
            self._lower = None
            self.resets += 1

    def _check_added(self, writer: str, events: list[WrittenEvent]) -> None:
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
        if went_back := sorted(self._covered - covered):
            world.violate(f"the cut of a mark went back at segment and offset {went_back[0]}")
        read_at = world.scheduler.current.process.note
        taking_part = {writer for writer, since in self._joined.items() if since <= read_at}
        taking_part -= self._given_up()
        for segment, events in self.events.items():
            for offset, event in enumerate(events):
                is_late = event.writer in taking_part and event.time < mark.lower
                if is_late and (segment, offset) not in covered:
                    world.violate(
                        f"a mark has the lower bound {mark.lower}, but {event.writer} wrote event "
                        f"{event.number} of time {event.time} after its cut"
                    )
        for writer in self._joined:
            if writer in taking_part:
                self._promised[writer] = mark.lower
            else:
                self._promised.pop(writer, None)
        self._covered = covered
        self.marks.append(mark)

    def _given_up(self) -> set[str]:
        """The writers that have been behind the newest mark for so long that a new one need not wait."""
        if not self.marks:
            return set()
        query = (
            "SELECT writer FROM slackwater_writer_marks WHERE stream = ? AND time <= ? AND behind_since <= ?"
        )
        since = self.world.now - self.settings.marks.timeout
        return {str(writer) for (writer,) in self._rows(query, self.marks[-1].lower, since)}

    def _covered_by(self, cut: Mapping[int, int]) -> set[tuple[int, int]] | None:
        """The segments and offsets of the events that a cut covers; None if it is not a cut.

        A cut can have a predecessor of a segment for some of its keys and a successor for others.
        """
        inside = sorted((self.segments[identity] for identity in cut), key=lambda one: one.low)
        bounds = [0, *(one.high for one in inside)], [*(one.low for one in inside), KEY_SPACE]
        if bounds[0] != bounds[1]:
            return None
        at_key: dict[str, int] = {}
        covered = set()
        for segment, events in self.events.items():
            for offset, event in enumerate(events):
                if event.key not in at_key:
                    point = _point_of(event.key)
                    at_key[event.key] = next(one.id for one in inside if one.low <= point < one.high)
                reached = at_key[event.key]
                if segment < reached or (segment == reached and offset < cut[reached]):
                    covered.add((segment, offset))
        return covered

    # ---- readers

    def deliver(self, batch: EventBatch) -> None:
        """A reader has passed a batch on; one that was passed on before must be the same."""
        known = self.events[batch.segment]
        for offset, value in enumerate(batch.events.column("value").to_pylist(), batch.first_offset):
            event = WrittenEvent.parse(value)
            if offset >= len(known) or known[offset] != event:
                self.world.violate(f"read {event} at offset {offset} of segment {batch.segment}")
            if offset < self.delivered[batch.segment]:
                continue
            if offset > self._passed(batch.segment):
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
            if offset > self._passed(segment):
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
        unread = sorted((segment, offset) for segment, offset in covered if offset >= self._passed(segment))
        if unread:
            segment, offset = unread[0]
            self.world.violate(
                f"the window of the group is at {window.lower}, but only {self.delivered[segment]} events "
                f"of segment {segment} were read, not that at {offset}"
            )

    # ---- at the end

    def has_read_everything(self) -> bool:
        """Whether the readers have passed on every event that was not removed before."""
        return all(self._passed(segment) == len(events) for segment, events in self.events.items())

    def check_end(self, quotas: Mapping[str, int]) -> None:
        """After all faults have ended, everything has arrived."""
        for writer, quota in quotas.items():
            if self.stored[writer] != quota:
                self.world.violate(f"{writer} stored {self.stored[writer]} of {quota} events in the end")
        for segment, events in self.events.items():
            if self._passed(segment) != len(events):
                self.world.violate(
                    f"in the end {self.delivered[segment]} of {len(events)} in segment {segment} were read"
                )
