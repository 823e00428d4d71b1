"""Which sequences of one origin are complete, when buffers come out of order or twice: S1 to S8.

Memory is what is out of order, never the history. Complete sequences behind a gap are kept as
maximal runs, so a million sequences behind one missing buffer cost as much as two.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Set

from slackwater._time_text import HIGHEST
from slackwater.errors import CorruptState, SequenceConflict
from slackwater.progress.explanation import Gap
from slackwater.progress.saved import Saved
from slackwater.progress.values import Origin

Marks = Mapping[str, int]


class SavedRuns(Saved):
    """Starts and ends (both inclusive), and the highest watermarks of each run."""

    starts: list[int]
    ends: list[int]
    marks: list[dict[str, int]]


class SavedOpen(Saved):
    """A sequence of which chunks are missing."""

    sequence: int
    last: int | None
    chunks: SavedRuns


class SavedSequences(Saved):
    """Everything known of one origin's sequences."""

    complete: int
    duplicates: int
    gap_since: int | None
    ahead: SavedRuns
    last_chunks: dict[int, int]
    open: list[SavedOpen]


class Runs:
    """A set of positive integers as maximal runs, each with the highest watermarks seen in it.

    >>> runs = Runs()
    >>> for number in (1, 3, 2):
    ...     runs.add(number, {"default": number})
    >>> list(runs), runs.marks
    ([(1, 3)], [{'default': 3}])
    """

    __slots__ = ("_head", "ends", "marks", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.marks: list[Marks] = []
        self._head = 0
        """Where the runs begin; what lies before was taken out, and is dropped now and then."""

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.starts[self._head :], self.ends[self._head :], strict=True)

    def __bool__(self) -> bool:
        return self._head < len(self.starts)

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self.starts, number, self._head) - 1
        return place >= self._head and number <= self.ends[place]

    @property
    def first(self) -> tuple[int, int]:
        """The lowest run, of which there must be one."""
        return self.starts[self._head], self.ends[self._head]

    def add(self, number: int, marks: Marks) -> None:
        """Add a number that is not in the set."""
        starts, ends = self.starts, self.ends
        place = bisect_right(starts, number, self._head)
        joins_left = place > self._head and ends[place - 1] == number - 1
        joins_right = place < len(starts) and starts[place] == number + 1
        if joins_left and joins_right:
            ends[place - 1] = ends[place]
            self.marks[place - 1] = highest(highest(self.marks[place - 1], marks), self.marks[place])
            del starts[place], ends[place], self.marks[place]
        elif joins_left:
            ends[place - 1] = number
            self.marks[place - 1] = highest(self.marks[place - 1], marks)
        elif joins_right:
            starts[place] = number
            self.marks[place] = highest(self.marks[place], marks)
        else:
            starts.insert(place, number)
            ends.insert(place, number)
            self.marks.insert(place, dict(marks))

    def pop_first(self) -> tuple[int, Marks]:
        """Take out the first run; its end and marks."""
        end, marks = self.ends[self._head], self.marks[self._head]
        self._head += 1
        if 2 * self._head > len(self.starts):
            del self.starts[: self._head], self.ends[: self._head], self.marks[: self._head]
            self._head = 0
        return end, marks

    def save(self) -> SavedRuns:
        """As lists, for the saved form."""
        head = self._head
        return SavedRuns(self.starts[head:], self.ends[head:], [dict(marks) for marks in self.marks[head:]])

    @classmethod
    def load(cls, saved: SavedRuns, what: str) -> Runs:
        """The runs that `save` wrote, checked to be ascending and apart."""
        runs = cls()
        runs.starts, runs.ends = saved.starts, saved.ends
        runs.marks = list(saved.marks)
        if not len(runs.starts) == len(runs.ends) == len(runs.marks):
            raise CorruptState(what, "its runs do not fit together")
        previous_end = -1
        for start, end in runs:
            if start < 1 or end < start or start <= previous_end + 1:
                raise CorruptState(what, "its runs are not in order")
            previous_end = end
        return runs


class _Open:
    """A sequence of which chunks are missing."""

    __slots__ = ("chunks", "last")

    def __init__(self) -> None:
        self.chunks = Runs()
        self.last: int | None = None

    def missing(self) -> tuple[tuple[int, int | None], ...]:
        gaps: list[tuple[int, int | None]] = []
        expected = 1
        for start, end in self.chunks:
            if start > expected:
                gaps.append((expected, start - 1))
            expected = end + 1
        if self.last is None:
            gaps.append((expected, None))
        elif expected <= self.last:
            gaps.append((expected, self.last))
        return tuple(gaps)


class Sequences:
    """The sequences of one origin: the end of the complete prefix, and what is out of order.

    >>> sequences = Sequences("a")
    >>> sequences.accept(2, 1, True, {"default": 20}, None)  # sequence 1 is missing
    >>> dict(sequences.accept(1, 1, True, {"default": 10}, None))
    {'default': 20}
    >>> sequences.complete
    2
    """

    __slots__ = ("_ahead", "_last_chunks", "_open", "complete", "duplicates", "gap_since", "origin")

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.complete = 0
        """The end of the longest complete prefix."""
        self.duplicates = 0
        self.gap_since: int | None = None
        """When the present gap was noticed, on the caller's clock."""
        self._ahead = Runs()
        self._last_chunks: dict[int, int] = {}
        self._open: dict[int, _Open] = {}

    @property
    def out_of_order(self) -> bool:
        """Whether anything has come that the complete prefix does not reach."""
        return bool(self._open) or bool(self._ahead)

    def is_duplicate(self, sequence: int, chunk: int, last: bool) -> bool:
        """Whether the chunk was seen before; a contradiction with what was seen raises (S5, S6)."""
        if not (1 <= sequence <= HIGHEST and 1 <= chunk <= HIGHEST):
            reason = "sequences and chunks are numbered from 1, in 64 bits"
            raise SequenceConflict(self.origin, sequence, chunk, reason)
        if sequence <= self.complete:
            return True
        opened = self._open.get(sequence)
        if opened is not None:
            known_last, seen = opened.last, chunk in opened.chunks
        elif sequence in self._ahead:
            known_last = self._last_chunks.get(sequence, 1)
            seen = chunk <= known_last
        else:
            return False
        if seen:
            if last != (chunk == known_last):
                flag = "last chunk" if last else "not the last chunk"
                raise SequenceConflict(
                    self.origin, sequence, chunk, f"came before, but now says it is {flag}"
                )
            return True
        if known_last is not None:
            if last:
                raise SequenceConflict(
                    self.origin, sequence, chunk, f"says it is the last chunk, but chunk {known_last} was"
                )
            if chunk > known_last:
                raise SequenceConflict(
                    self.origin, sequence, chunk, f"lies above the last chunk, {known_last}"
                )
        elif last and opened is not None and opened.chunks.ends[-1] > chunk:
            raise SequenceConflict(
                self.origin,
                sequence,
                chunk,
                f"says it is the last chunk, but chunk {opened.chunks.ends[-1]} has come",
            )
        return False

    def accept(self, sequence: int, chunk: int, last: bool, marks: Marks, now: int | None) -> Marks | None:
        """Take in a chunk that is no duplicate.

        Returns the highest watermarks of the sequences by which the complete prefix grew (S2, S3),
        or None if it did not grow.
        """
        opened = self._open.get(sequence)
        if opened is None and chunk == 1 and last:
            known_last = 1
        else:
            if opened is None:
                opened = self._open[sequence] = _Open()
            opened.chunks.add(chunk, marks)
            if last:
                opened.last = chunk
            if opened.last is None or opened.chunks.first != (1, opened.last):
                if self.gap_since is None:
                    self.gap_since = now
                return None
            known_last = opened.last
            marks = opened.chunks.marks[0]
            del self._open[sequence]
        if sequence != self.complete + 1:
            self._ahead.add(sequence, marks)
            if known_last != 1:
                self._last_chunks[sequence] = known_last
            if self.gap_since is None:
                self.gap_since = now
            return None
        self.complete = sequence
        if self._ahead and self._ahead.first[0] == sequence + 1:
            end, further = self._ahead.pop_first()
            marks = highest(marks, further)
            self._forget_last_chunks(sequence + 1, end)
            self.complete = end
        if self.gap_since is not None:
            self.gap_since = now if self.out_of_order else None
        return marks

    def _forget_last_chunks(self, start: int, end: int) -> None:
        known = self._last_chunks
        if end - start < len(known):
            for sequence in range(start, end + 1):
                known.pop(sequence, None)
        elif known:
            self._last_chunks = {sequence: last for sequence, last in known.items() if sequence > end}

    def is_complete(self, sequence: int) -> bool:
        """Whether all chunks of a sequence have been seen."""
        return sequence <= self.complete or sequence in self._ahead

    @property
    def open(self) -> Set[int]:
        """The sequences of which some chunks have come, but not all."""
        return self._open.keys()

    def gap(self) -> Gap | None:
        """What is missing at the end of the complete prefix; None if nothing is out of order."""
        if not self.out_of_order:
            return None
        first = self._open.get(self.complete + 1)
        return Gap(self.complete + 1, ((1, None),) if first is None else first.missing())

    def save(self) -> SavedSequences:
        """What is needed to go on; small when little is out of order."""
        opened = [
            SavedOpen(sequence, state.last, state.chunks.save()) for sequence, state in self._open.items()
        ]
        return SavedSequences(
            self.complete, self.duplicates, self.gap_since, self._ahead.save(), self._last_chunks, opened
        )

    @classmethod
    def load(cls, origin: Origin, saved: SavedSequences, what: str) -> Sequences:
        """The sequences of ``origin`` as `save` wrote them."""
        sequences = cls(origin)
        sequences.complete = saved.complete
        sequences.duplicates = saved.duplicates
        sequences.gap_since = saved.gap_since
        sequences._ahead = Runs.load(saved.ahead, what)
        sequences._last_chunks = saved.last_chunks
        for entry in saved.open:
            state = sequences._open[entry.sequence] = _Open()
            state.last = entry.last
            state.chunks = Runs.load(entry.chunks, what)
            if not state.chunks or entry.sequence <= saved.complete or entry.sequence in sequences._ahead:
                raise CorruptState(what, f"sequence {entry.sequence} of origin {origin!r} does not fit")
        if saved.complete < 0 or (sequences._ahead and sequences._ahead.first[0] <= saved.complete + 1):
            raise CorruptState(what, f"the complete prefix of origin {origin!r} does not fit")
        return sequences


def highest(left: Marks, right: Marks) -> Marks:
    """Per key the higher watermark of the two.

    >>> highest({"a": 1, "b": 5}, {"a": 3})
    {'a': 3, 'b': 5}
    """
    if not right:
        return left
    if not left:
        return dict(right)
    merged = dict(left)
    for key, value in right.items():
        if merged.get(key, value) <= value:
            merged[key] = value
    return merged
