"""Giving buffers their numbers: renumbering in a stateless stage (S9), numbering in a stateful one (S10)."""

from __future__ import annotations

from slackwater.errors import InvalidArgument
from slackwater.progress.saved import Saved, SavedForm
from slackwater.progress.sequences import Marks, SavedSequences, Sequences
from slackwater.progress.values import NO_WATERMARKS, BufferHeader, Origin, check_origin
from slackwater.time import check_int64


class _SavedRechunker(Saved):
    origin: Origin
    sequences: SavedSequences
    emitted: dict[int, int]


class _SavedNumbering(Saved):
    origin: Origin
    sequence: int


_RECHUNKER_FORM = SavedForm("rechunker", "R", 1, _SavedRechunker)
_NUMBERING_FORM = SavedForm("numbering", "N", 1, _SavedNumbering)


class Rechunker:
    """A stateless stage keeps origin and sequence, and renumbers the chunks (S9).

    It may split a chunk into several buffers or filter all of it, but every sequence leaves
    complete exactly once: chunks numbered densely 1..m, the highest marked last, whatever the
    order in which the input's chunks came. One rechunker serves one origin.

    >>> rechunker = Rechunker("a")
    >>> [(h.chunk, h.last_chunk) for h in rechunker.rechunk(BufferHeader("a", 1, chunk=2), buffers=2)]
    [(1, False), (2, False)]
    >>> [(h.chunk, h.last_chunk) for h in rechunker.rechunk(BufferHeader("a", 1, 1, False), buffers=1)]
    [(3, True)]
    """

    __slots__ = ("_emitted", "_sequences")

    def __init__(self, origin: Origin) -> None:
        self._sequences = Sequences(check_origin(origin))
        self._emitted: dict[int, int] = {}
        """Per sequence not complete yet: how many chunks have left."""

    @property
    def duplicates(self) -> int:
        """How many chunks had been there before, and so led to nothing."""
        return self._sequences.duplicates

    def rechunk(self, header: BufferHeader, buffers: int = 1) -> tuple[BufferHeader, ...]:
        """The headers of the ``buffers`` buffers made from one chunk.

        At least one, also if everything in it was filtered: an empty buffer closes the sequence.
        None for a duplicate: what was made from it has left before.
        """
        origin, sequence, chunk, last, watermarks = header
        sequences = self._sequences
        if origin != sequences.origin:
            raise InvalidArgument(
                "origin", origin, f"is not {sequences.origin!r}", fix="use one rechunker for each origin"
            )
        _at_least_one(buffers)
        sequence, chunk = check_int64(sequence, "sequence"), check_int64(chunk, "chunk")
        if sequences.is_duplicate(sequence, chunk, last):
            sequences.duplicates += 1
            return ()
        sequences.accept(sequence, chunk, last, NO_WATERMARKS, None)
        before = self._emitted.pop(sequence, 0)
        complete = sequences.is_complete(sequence)
        if not complete:
            self._emitted[sequence] = before + buffers
        return _headers(origin, sequence, before, buffers, complete=complete, watermarks=watermarks)

    def save(self) -> bytes:
        """What is out of order; small when little is."""
        sequences = self._sequences
        return _RECHUNKER_FORM.seal(_SavedRechunker(sequences.origin, sequences.save(), self._emitted))

    @classmethod
    def load(cls, data: bytes) -> Rechunker:
        """A rechunker that goes on exactly where `save` left off.

        >>> Rechunker.load(Rechunker("a").save()).duplicates
        0
        """
        saved = _RECHUNKER_FORM.unseal(data)
        rechunker = cls(saved.origin)
        rechunker._sequences = Sequences.load(saved.origin, saved.sequences, _RECHUNKER_FORM.what)
        emitted = saved.emitted
        fits = emitted.keys() == rechunker._sequences.open and min(emitted.values(), default=1) > 0
        _RECHUNKER_FORM.check(fits, "its open sequences do not fit together")
        rechunker._emitted = emitted
        return rechunker


class OutputNumbering:
    """A stateful operator is a new origin with its own dense sequence numbers (S10).

    >>> numbering = OutputNumbering("window-1")
    >>> [(h.sequence, h.chunk, h.last_chunk) for h in numbering.number(2, {"default": 10})]
    [(1, 1, False), (1, 2, True)]
    >>> numbering.number()[0].sequence
    2
    """

    __slots__ = ("_origin", "_sequence")

    def __init__(self, origin: Origin) -> None:
        self._origin = check_origin(origin)
        self._sequence = 0

    def number(self, buffers: int = 1, watermarks: Marks = NO_WATERMARKS) -> tuple[BufferHeader, ...]:
        """The headers of the next sequence, of ``buffers`` chunks; the last carries the watermarks."""
        _at_least_one(buffers)
        self._sequence += 1
        return _headers(self._origin, self._sequence, 0, buffers, complete=True, watermarks=watermarks)

    def save(self) -> bytes:
        """The origin and the last number given."""
        return _NUMBERING_FORM.seal(_SavedNumbering(self._origin, self._sequence))

    @classmethod
    def load(cls, data: bytes) -> OutputNumbering:
        """A numbering that goes on exactly where `save` left off.

        >>> OutputNumbering.load(OutputNumbering("window-1").save()).number()[0].sequence
        1
        """
        saved = _NUMBERING_FORM.unseal(data)
        _NUMBERING_FORM.check(saved.sequence >= 0, f"its last sequence is {saved.sequence}")
        numbering = cls(saved.origin)
        numbering._sequence = saved.sequence
        return numbering


def _headers(
    origin: Origin, sequence: int, before: int, buffers: int, *, complete: bool, watermarks: Marks
) -> tuple[BufferHeader, ...]:
    """``buffers`` headers after the first ``before``; the last of them closes a complete sequence."""
    final = before + buffers
    return tuple(
        BufferHeader(
            origin,
            sequence,
            chunk,
            complete and chunk == final,
            watermarks if chunk == final else NO_WATERMARKS,
        )
        for chunk in range(before + 1, final + 1)
    )


def _at_least_one(buffers: int) -> None:
    if check_int64(buffers, "buffers") < 1:
        raise InvalidArgument("buffers", buffers, "there must be at least one", fix="send an empty buffer")
