"""Checks a history of notes, marks, cuts and reads: compares the operations of all processes with each other.

The checker knows the rules of a stream and nothing of its code. It uses only what the history proves: an
operation took effect between its begin and its end, and one without an end at any time after its begin, or
never. Two operations that overlap may have taken effect in either order.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slackwater.streams.segments.epochs import KEY_SPACE
from slackwater.streams.segments.routing import points_of
from tests.streams.histories import Event, Operation

KeyRanges = Mapping[int, tuple[int, int]]
"""The key range of every segment by id."""
Cut = Mapping[int, int]
Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Contradiction(NamedTuple):
    """A rule that the history breaks, and where."""

    rule: str
    found: str


@dataclass(frozen=True)
class SeenMark:
    """A mark, and the operation that had seen it first."""

    lower: int
    upper: int
    cut: Cut
    seen: Operation

    def __str__(self) -> str:
        return f"mark {self.lower} at {dict(self.cut)}"


class StoredEvents:
    """The events that were read, as columns, in the order of segments and offsets."""

    def __init__(self, reads: Iterable[Operation]) -> None:
        found: dict[tuple[int, int], Event] = {}
        first_read: dict[tuple[int, int], Operation] = {}
        self.differing: list[str] = []
        for read in reads:
            for offset, value in enumerate(read.result["values"], read.result["first"]):
                location, event = (read.result["segment"], offset), Event.parse(value)
                first_read.setdefault(location, read)
                if found.setdefault(location, event) != event:
                    self.differing.append(f"{location}: {found[location]} and {event}")
        locations = sorted(found)
        self.events = [found[location] for location in locations]
        self.reads = [first_read[location] for location in locations]
        columns = np.array(locations, np.int64).reshape(-1, 2)
        self.segments, self.offsets = columns[:, 0].copy(), columns[:, 1].copy()
        self.numbers = np.array([event.number for event in self.events], np.int64)
        self.times = np.array([event.time for event in self.events], np.int64)
        writers = np.array([event.writer for event in self.events], np.str_)
        self.keys = np.array([f"{event.writer} {event.key}" for event in self.events], np.str_)
        self.points: Numbers = points_of(pa.array([event.key for event in self.events], pa.string()))
        self.read_from = np.array([read.began for read in self.reads], np.int64)
        self.by_key = np.lexsort((self.offsets, self.segments, self.keys))
        """Rows key by key, in the order of each key."""
        self._of: dict[str, Flags] = {
            writer: writers == writer for writer in {event.writer for event in self.events}
        }

    def of(self, writer: str) -> Flags:
        """Which events a writer has written."""
        nothing: Flags = np.zeros(len(self.events), np.bool_)
        return self._of.get(writer, nothing)

    def behind(self, cut: Cut, ranges: KeyRanges) -> Flags:
        """Which events a reader that starts at a cut has behind it."""
        inside = sorted(cut, key=lambda segment: ranges[segment][0])
        lows = np.array([ranges[segment][0] for segment in inside], np.int64)
        index = np.searchsorted(lows, self.points, side="right") - 1
        segments = np.array(inside, np.int64)[index]
        offsets = np.array([cut[segment] for segment in inside], np.int64)[index]
        found: Flags = (self.segments < segments) | ((self.segments == segments) & (self.offsets < offsets))
        return found

    def some(self, chosen: Flags) -> str:
        """A few events, for a message."""
        return ", ".join(str(self.events[row]) for row in np.flatnonzero(chosen)[:3])


class HistoryChecker:
    """Compares the operations of a history.

    What the operations of each kind record:

    * ``append``: ``writer``, ``first``, ``last``, the numbers of the events that were written and flushed
    * ``note``: ``writer``, ``time``, ``after``, the number of the last event before it; results in "ok" or in
      the reason of a refusal
    * ``close``: ``writer``
    * ``cycle``: results in the marks that a controller has written
    * ``marks``: results in all marks of the stream
    * ``cut_at``: ``time``; results in a cut
    * ``read``: results in ``segment``, ``first`` and ``values`` of a batch, or None
    * ``window``: results in ``lower`` and ``upper`` of the reader group

    Args:
        operations: The operations of all processes, in the order in which they began.
        ranges: The key ranges of all segments.
        head: The cut at the head of the stream.
    """

    def __init__(self, operations: Sequence[Operation], ranges: KeyRanges, head: Cut) -> None:
        self._kinds: dict[str, list[Operation]] = defaultdict(list)
        for operation in operations:
            self._kinds[operation.kind].append(operation)
        self._ranges = ranges
        self._head = dict(head)
        self._stored = StoredEvents(read for read in self._kinds["read"] if read.result is not None)
        self._notes: dict[str, list[Operation]] = defaultdict(list)
        for note in self._kinds["note"]:
            if note.result in ("ok", None):  # None: it may have been stored
                self._notes[note.given["writer"]].append(note)
        self._marks = self._find_marks()
        self._written_from = self._find_writes()
        self._is_own_fault = self._find_broken_notes()

    def contradictions(self) -> list[Contradiction]:
        """Every rule that the history breaks."""
        return [
            *self._check_events(),
            *self._check_notes(),
            *self._check_observed_marks(),
            *self._check_marks(),
            *self._check_cuts(),
            *self._check_windows(),
        ]

    # ---- what the history contains

    def _find_marks(self) -> list[SeenMark]:
        found: dict[int, SeenMark] = {}
        ended = [one for one in (*self._kinds["cycle"], *self._kinds["marks"]) if one.ended is not None]
        for operation in sorted(ended, key=lambda one: one.ended or 0):
            for mark in operation.result:
                made = SeenMark(mark["lower"], mark["upper"], _offsets(mark["cut"]), operation)
                found.setdefault(made.lower, made)
        return [found[lower] for lower in sorted(found)]

    def _find_writes(self) -> Numbers:
        """The earliest time at which each stored event can have been stored."""
        stored = self._stored
        found = np.full(len(stored.events), np.iinfo(np.int64).max, np.int64)
        for append in self._kinds["append"]:
            first, last = append.given["first"], append.given["last"]
            chosen = stored.of(append.given["writer"]) & (stored.numbers >= first) & (stored.numbers <= last)
            found[chosen] = np.minimum(found[chosen], append.began)
        return found

    def _find_broken_notes(self) -> Flags:
        """Which events have an event time below what their writer had noted before it wrote them."""
        stored = self._stored
        found = np.zeros(len(stored.events), np.bool_)
        for writer, notes in self._notes.items():
            for note in notes:
                later = stored.of(writer) & (stored.numbers > note.given["after"])
                found |= later & (stored.times < note.given["time"])
        return found

    # ---- events

    def _check_events(self) -> Iterator[Contradiction]:
        stored = self._stored
        for differing in stored.differing:
            yield Contradiction("an offset has one event", differing)
        appends: dict[str, list[Operation]] = defaultdict(list)
        for append in self._kinds["append"]:
            appends[append.given["writer"]].append(append)
        for writer, its_appends in appends.items():
            numbers, counts = np.unique(stored.numbers[stored.of(writer)], return_counts=True)
            if (counts > 1).any():
                yield Contradiction("an event is stored once", f"{writer}: {numbers[counts > 1][:5]}")
            wanted = [_numbers(append) for append in its_appends if append.ended is not None]
            if wanted and len(missing := np.setdiff1d(np.concatenate(wanted), numbers)):
                yield Contradiction("an acknowledged event is read", f"{writer}: {missing[:5]}")
        for earlier, later in itertools.pairwise(stored.by_key.tolist()):
            if stored.keys[earlier] != stored.keys[later]:
                continue
            pair = f"{stored.events[earlier]} and {stored.events[later]}"
            if stored.numbers[earlier] > stored.numbers[later]:
                yield Contradiction("events of a key are stored in order", pair)
            if stored.reads[earlier].follows(stored.reads[later]):
                yield Contradiction("events of a key are read in order", pair)

    # ---- notes and marks

    def _check_notes(self) -> Iterator[Contradiction]:
        """A note that goes back is refused, and no other."""
        certain: dict[str, int] = {}
        possible: dict[str, int] = {}
        for note in self._kinds["note"]:
            writer, at = note.given["writer"], note.given["time"]
            if note.result == "ok" and at < certain.get(writer, at):
                yield Contradiction("a note that goes back is refused", f"{writer}: {at}")
            if note.result not in ("ok", None) and at >= possible.get(writer, at):
                yield Contradiction("a note is accepted", f"{writer}: {at} was answered {note.result}")
            if note.result == "ok":
                certain[writer] = max(at, certain.get(writer, at))
            if note.result in ("ok", None):
                possible[writer] = max(at, possible.get(writer, at))

    def _check_observed_marks(self) -> Iterator[Contradiction]:
        """Marks ascend in every list, and a list that was read later begins with all of an earlier one."""
        lists = [one for one in self._kinds["marks"] if one.ended is not None]
        for found in lists:
            lowers = [mark["lower"] for mark in found.result]
            if any(before >= after for before, after in itertools.pairwise(lowers)):
                yield Contradiction("lower bounds of marks ascend", f"{lowers}")
        for later, earlier in _latest_before(lists, lambda one: len(one.result)):
            if later.result[: len(earlier.result)] != earlier.result:
                yield Contradiction("a mark stays", f"of {earlier.ended}, not found at {later.began}")

    def _check_marks(self) -> Iterator[Contradiction]:
        noted: dict[int, int] = {}
        for note in itertools.chain(*self._notes.values()):
            noted[note.given["time"]] = min(note.began, noted.get(note.given["time"], note.began))
        first_marks = {writer: self._first_mark_of(writer) for writer in self._notes}
        before: Flags | None = None
        for number, mark in enumerate(self._marks):
            if mark.lower > mark.upper:
                yield Contradiction("a lower bound is not above its upper bound", str(mark))
            for bound in (mark.lower, mark.upper):
                if bound not in noted or not _began_before(noted[bound], mark.seen):
                    yield Contradiction("the bounds of a mark were noted", f"{bound} of {mark}")
            if not self._is_cut(mark.cut):
                yield Contradiction("a cut covers every key once", str(mark))
                continue
            behind = self._stored.behind(mark.cut, self._ranges)
            if before is not None and (before & ~behind).any():
                yield Contradiction("the cut of a mark does not go back", self._text(mark, before & ~behind))
            yield from self._check_cut(mark, behind)
            for writer, first in first_marks.items():
                if first is not None and number >= first:
                    yield from self._check_writer(mark, behind, writer)
            before = behind

    def _first_mark_of(self, writer: str) -> int | None:
        """Index of the first mark that certainly waited for a writer; None if there is none.

        A cycle reads the newest mark, then the writers, and its mark is stored only if that mark is still the
        newest. Of the marks that follow a list that was read after the writer had noted a time, the first may
        have been decided before that note, the second was not.
        """
        noted = next((note for note in self._notes[writer] if note.ended is not None), None)
        if noted is None:
            return None
        lists = (one for one in self._kinds["marks"] if one.ended is not None and one.follows(noted))
        found = next(lists, None)
        return None if found is None else len(found.result) + 1

    def _is_cut(self, cut: Cut) -> bool:
        if not cut or not cut.keys() <= self._ranges.keys():
            return False
        inside = sorted(self._ranges[segment] for segment in cut)
        return [0, *(high for _, high in inside)] == [*(low for low, _ in inside), KEY_SPACE]

    def _check_cut(self, mark: SeenMark, behind: Flags) -> Iterator[Contradiction]:
        stored, rule = self._stored, "a mark covers only events that exist"
        for segment, offset in mark.cut.items():
            known = int((stored.segments == segment).sum())
            if offset > known:
                yield Contradiction(rule, f"{mark}: {known} were read in segment {segment}")
        early = behind & (self._written_from >= (mark.seen.ended or 0))
        if early.any():
            yield Contradiction(rule, self._text(mark, early))

    def _check_writer(self, mark: SeenMark, behind: Flags, writer: str) -> Iterator[Contradiction]:
        """A mark covers what a writer had written when it noted, and is not above what it writes next."""
        closes = (one for one in self._kinds["close"] if one.given["writer"] == writer)
        if any(mark.seen.may_have_seen(close) for close in closes):
            return
        stored = self._stored
        ahead = stored.of(writer) & ~behind
        late = ahead & (stored.times < mark.lower) & ~self._is_own_fault
        if late.any():
            yield Contradiction("a mark is not above what follows", self._text(mark, late))
        used = next((note for note in self._notes[writer] if note.given["time"] >= mark.lower), None)
        if used is None or not mark.seen.may_have_seen(used):
            yield Contradiction("a mark waits for every writer", f"{mark}: {writer} had noted less")
            return
        missed = ahead & (stored.numbers <= used.given["after"])
        if missed.any():
            yield Contradiction("a mark covers what was noted", self._text(mark, missed))

    def _text(self, mark: SeenMark, chosen: Flags) -> str:
        return f"{mark}: {self._stored.some(chosen)}"

    # ---- cuts and windows

    def _check_cuts(self) -> Iterator[Contradiction]:
        """The cut at a time is that of the newest mark whose upper bound is not above it, or the head."""
        for operation in self._kinds["cut_at"]:
            if operation.ended is None:
                continue
            at, cut = operation.given["time"], _offsets(operation.result)
            allowed = [mark for mark in self._marks if mark.upper <= at]
            certain = [mark.lower for mark in allowed if operation.follows(mark.seen)]
            newest = max(certain, default=None)
            if newest is None and cut == self._head:
                continue
            if not any(mark.cut == cut for mark in allowed if newest is None or mark.lower >= newest):
                found = f"at {at}: {cut}, though mark {newest} was known"
                yield Contradiction("a cut at a time is that of the newest mark", found)

    def _check_windows(self) -> Iterator[Contradiction]:
        windows = [
            one for one in self._kinds["window"] if one.ended is not None and one.result["lower"] is not None
        ]
        for later, earlier in _latest_before(windows, lambda one: one.result["lower"]):
            if later.result["lower"] < earlier.result["lower"]:
                found = f"from {earlier.result['lower']} to {later.result['lower']}"
                yield Contradiction("the window of a group does not go back", found)
        marks = {mark.lower: mark for mark in self._marks if self._is_cut(mark.cut)}
        for window in windows:
            lower, upper = window.result["lower"], window.result["upper"]
            if upper is not None and upper < lower:
                found = f"window from {lower} to {upper}"
                yield Contradiction("a lower bound is not above its upper bound", found)
            if lower not in marks:
                yield Contradiction("the window of a group has the bound of a mark", f"{lower}")
                continue
            behind = self._stored.behind(marks[lower].cut, self._ranges)
            unread = behind & (self._stored.read_from >= (window.ended or 0))
            if unread.any():
                found = self._text(marks[lower], unread)
                yield Contradiction("a group has read what its window covers", found)


def check_history(operations: Sequence[Operation], ranges: KeyRanges, head: Cut) -> list[Contradiction]:
    """Every rule that a history breaks; see `HistoryChecker`."""
    return HistoryChecker(operations, ranges, head).contradictions()


def _offsets(cut: Mapping[str, int]) -> Cut:
    return {int(segment): offset for segment, offset in cut.items()}


def _numbers(append: Operation) -> Numbers:
    return np.arange(append.given["first"], append.given["last"] + 1, dtype=np.int64)


def _began_before(began: int, operation: Operation) -> bool:
    return operation.ended is None or began < operation.ended


def _latest_before(operations: Iterable[Operation], size: Any) -> Iterator[tuple[Operation, Operation]]:
    """Each operation with the one of the largest size among those that had ended before it began."""
    ended = sorted(operations, key=lambda one: one.ended or 0)
    largest: Operation | None = None
    position = 0
    for later in sorted(ended, key=lambda one: one.began):
        while position < len(ended) and later.follows(ended[position]):
            if largest is None or size(ended[position]) > size(largest):
                largest = ended[position]
            position += 1
        if largest is not None:
            yield later, largest
