"""The complete and incomplete sequences of one origin (rules S1 to S8 of docs/spec/progress.md).

Only what is out of order is kept, never the history. Complete sequences after a gap are stored as maximal
runs, so a million sequences after one missing buffer take as much memory as two.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Set

from slackwater._time_text import HIGHEST
from slackwater.errors import CorruptState, SequenceConflict
from slackwater.progress.explanation import Gap
from slackwater.progress.saved_form import Saved
from slackwater.progress.values import Origin, Watermarks


class _SavedRuns(Saved):
    """The inclusive starts and ends of runs, and the highest watermarks of each run."""

    starts: list[int]
    ends: list[int]
    watermarks: list[dict[str, int]]


class _SavedIncomplete(Saved):
    """A sequence with missing chunks."""

    sequence: int
    last: int | None
    chunks: _SavedRuns


class SavedSequences(Saved):
    """The saved form of the sequences of one origin."""

    complete: int
    duplicates: int
    gap_since: int | None
    ahead: _SavedRuns
    last_chunks: dict[int, int]
    open: list[_SavedIncomplete]


class _Runs:
    """A set of positive integers as maximal runs, each with the highest watermarks seen in it.

    >>> runs = _Runs()
    >>> for number in (1, 3, 2):
    ...     runs.add(number, {"default": number})
    >>> list(runs), runs.watermarks
    ([(1, 3)], [{'default': 3}])
    """

    __slots__ = ("_head", "ends", "starts", "watermarks")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.watermarks: list[Watermarks] = []
        self._head = 0
        """Index of the first run. Removed runs before it are deleted from the lists in bulk."""

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.starts[self._head :], self.ends[self._head :], strict=True)

    def __bool__(self) -> bool:
        return self._head < len(self.starts)

    def __contains__(self, number: int) -> bool:
        index = bisect_right(self.starts, number, self._head) - 1
        return index >= self._head and number <= self.ends[index]

    @property
    def first(self) -> tuple[int, int]:
        """The lowest run; the set must not be empty."""
        return self.starts[self._head], self.ends[self._head]

    def add(self, number: int, watermarks: Watermarks) -> None:
        """Add a number that is not in the set yet."""
        starts, ends = self.starts, self.ends
        index = bisect_right(starts, number, self._head)
        joins_left = index > self._head and ends[index - 1] == number - 1
        joins_right = index < len(starts) and starts[index] == number + 1
        if joins_left and joins_right:
            ends[index - 1] = ends[index]
            self.watermarks[index - 1] = _highest(
                _highest(self.watermarks[index - 1], watermarks), self.watermarks[index]
            )
            del starts[index], ends[index], self.watermarks[index]
        elif joins_left:
            ends[index - 1] = number
            self.watermarks[index - 1] = _highest(self.watermarks[index - 1], watermarks)
        elif joins_right:
            starts[index] = number
            self.watermarks[index] = _highest(self.watermarks[index], watermarks)
        else:
            starts.insert(index, number)
            ends.insert(index, number)
            self.watermarks.insert(index, dict(watermarks))

    def pop_first(self) -> tuple[int, Watermarks]:
        """Remove the first run and return its end and watermarks."""
        end, watermarks = self.ends[self._head], self.watermarks[self._head]
        self._head += 1
        if 2 * self._head > len(self.starts):
            del self.starts[: self._head], self.ends[: self._head], self.watermarks[: self._head]
            self._head = 0
        return end, watermarks

    def save(self) -> _SavedRuns:
        """Return the saved form."""
        head = self._head
        return _SavedRuns(
            self.starts[head:], self.ends[head:], [dict(watermarks) for watermarks in self.watermarks[head:]]
        )

    @classmethod
    def load(cls, saved: _SavedRuns, what: str) -> _Runs:
        """Restore what `save` returned; the runs must be ascending and not adjacent."""
        runs = cls()
        runs.starts, runs.ends = saved.starts, saved.ends
        runs.watermarks = list(saved.watermarks)
        if not len(runs.starts) == len(runs.ends) == len(runs.watermarks):
            raise CorruptState(what, "its runs are inconsistent")
        previous_end = -1
        for start, end in runs:
            if start < 1 or end < start or start <= previous_end + 1:
                raise CorruptState(what, "its runs are not in order")
            previous_end = end
        return runs


class _IncompleteSequence:
    """A sequence with missing chunks."""

    __slots__ = ("chunks", "last")

    def __init__(self) -> None:
        self.chunks = _Runs()
        self.last: int | None = None

    def missing(self) -> tuple[tuple[int, int | None], ...]:
        """Return the missing chunks as inclusive ranges; see `Gap.missing`."""
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
        """When the current gap was detected, on the caller's clock."""
        self._ahead = _Runs()
        self._last_chunks: dict[int, int] = {}
        self._open: dict[int, _IncompleteSequence] = {}

    @property
    def out_of_order(self) -> bool:
        """Whether a chunk has arrived that is not in the complete prefix."""
        return bool(self._open) or bool(self._ahead)

    def is_duplicate(self, sequence: int, chunk: int, last: bool) -> bool:
        """Return whether the chunk arrived before; raise if it contradicts an earlier chunk (S5, S6)."""
        if not (1 <= sequence <= HIGHEST and 1 <= chunk <= HIGHEST):
            reason = "sequence and chunk numbers must be at least 1 and fit into 64 bits"
            raise self._conflict(sequence, chunk, reason)
        if sequence <= self.complete:
            return True
        incomplete = self._open.get(sequence)
        if incomplete is not None:
            known_last, seen = incomplete.last, chunk in incomplete.chunks
        elif sequence in self._ahead:
            known_last = self._last_chunks.get(sequence, 1)
            seen = chunk <= known_last
        else:
            return False
        if seen:
            if last != (chunk == known_last):
                flag = "the last chunk" if last else "not the last chunk"
                raise self._conflict(sequence, chunk, f"arrived before, but is now flagged as {flag}")
            return True
        if known_last is not None:
            if last:
                reason = f"is flagged as the last chunk, but chunk {known_last} was flagged before"
                raise self._conflict(sequence, chunk, reason)
            if chunk > known_last:
                raise self._conflict(sequence, chunk, f"is greater than the last chunk, {known_last}")
        elif last and incomplete is not None and incomplete.chunks.ends[-1] > chunk:
            reason = f"is flagged as the last chunk, but chunk {incomplete.chunks.ends[-1]} has arrived"
            raise self._conflict(sequence, chunk, reason)
        return False

    def accept(
        self, sequence: int, chunk: int, last: bool, watermarks: Watermarks, now: int | None
    ) -> Watermarks | None:
        """Record a chunk that is not a duplicate.

        Returns:
            The highest watermarks of the sequences by which the complete prefix grew (S2, S3), None if it
            did not grow.
        """
        incomplete = self._open.get(sequence)
        if incomplete is None and chunk == 1 and last:
            known_last = 1
        else:
            if incomplete is None:
                incomplete = self._open[sequence] = _IncompleteSequence()
            incomplete.chunks.add(chunk, watermarks)
            if last:
                incomplete.last = chunk
            if incomplete.last is None or incomplete.chunks.first != (1, incomplete.last):
                if self.gap_since is None:
                    self.gap_since = now
                return None
            known_last = incomplete.last
            watermarks = incomplete.chunks.watermarks[0]
            del self._open[sequence]
        if sequence != self.complete + 1:
            self._ahead.add(sequence, watermarks)
            if known_last != 1:
                self._last_chunks[sequence] = known_last
            if self.gap_since is None:
                self.gap_since = now
            return None
        self.complete = sequence
        if self._ahead and self._ahead.first[0] == sequence + 1:
            end, further = self._ahead.pop_first()
            watermarks = _highest(watermarks, further)
            self._forget_last_chunks(sequence + 1, end)
            self.complete = end
        if self.gap_since is not None:
            self.gap_since = now if self.out_of_order else None
        return watermarks

    def _conflict(self, sequence: int, chunk: int, reason: str) -> SequenceConflict:
        return SequenceConflict(self.origin, sequence, chunk, reason)

    def _forget_last_chunks(self, start: int, end: int) -> None:
        known = self._last_chunks
        if end - start < len(known):
            for sequence in range(start, end + 1):
                known.pop(sequence, None)
        elif known:
            self._last_chunks = {sequence: last for sequence, last in known.items() if sequence > end}

    def is_complete(self, sequence: int) -> bool:
        """Return whether all chunks of a sequence have arrived."""
        return sequence <= self.complete or sequence in self._ahead

    @property
    def open(self) -> Set[int]:
        """The incomplete sequences: some of their chunks have arrived."""
        return self._open.keys()

    def gap(self) -> Gap | None:
        """Return what is missing after the complete prefix, None if nothing is out of order."""
        if not self.out_of_order:
            return None
        first = self._open.get(self.complete + 1)
        return Gap(self.complete + 1, ((1, None),) if first is None else first.missing())

    def save(self) -> SavedSequences:
        """Return the saved form; it is small if little is out of order."""
        incomplete = [
            _SavedIncomplete(sequence, state.last, state.chunks.save())
            for sequence, state in self._open.items()
        ]
        return SavedSequences(
            self.complete, self.duplicates, self.gap_since, self._ahead.save(), self._last_chunks, incomplete
        )

    @classmethod
    def load(cls, origin: Origin, saved: SavedSequences, what: str) -> Sequences:
        """Restore what `save` returned for ``origin``."""
        sequences = cls(origin)
        sequences.complete = saved.complete
        sequences.duplicates = saved.duplicates
        sequences.gap_since = saved.gap_since
        sequences._ahead = _Runs.load(saved.ahead, what)
        sequences._last_chunks = saved.last_chunks
        for entry in saved.open:
            state = sequences._open[entry.sequence] = _IncompleteSequence()
            state.last = entry.last
            state.chunks = _Runs.load(entry.chunks, what)
            if not state.chunks or entry.sequence <= saved.complete or entry.sequence in sequences._ahead:
                raise CorruptState(what, f"sequence {entry.sequence} of origin {origin!r} is inconsistent")
        if saved.complete < 0 or (sequences._ahead and sequences._ahead.first[0] <= saved.complete + 1):
            raise CorruptState(what, f"the complete prefix of origin {origin!r} is inconsistent")
        return sequences


def _highest(left: Watermarks, right: Watermarks) -> Watermarks:
    """Return the higher of two watermarks for each key.

    >>> _highest({"a": 1, "b": 5}, {"a": 3})
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
