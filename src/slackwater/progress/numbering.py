"""Numbering of output buffers: by stateless stages (S9) and by stateful operators (S10)."""

from __future__ import annotations

from slackwater.errors import InvalidArgument
from slackwater.progress.saved_form import Saved, SavedForm
from slackwater.progress.sequences import SavedSequences, Sequences
from slackwater.progress.values import NO_WATERMARKS, BufferHeader, Origin, Watermarks, check_origin
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
    """Renumbers the chunks of a stateless stage, which keeps origin and sequence (S9).

    The stage may split a chunk into several buffers or filter all its rows, but it emits every sequence
    exactly once and completely: chunks are numbered 1 to m without gaps, and the highest is flagged as last,
    whatever the order in which the input chunks arrive.

    Args:
        origin: The origin of the buffers. Use one rechunker for each origin.

    >>> import slackwater as sw
    >>> rechunker = sw.Rechunker("a")
    >>> [(h.chunk, h.last_chunk) for h in rechunker.rechunk(sw.BufferHeader("a", 1, chunk=2), buffers=2)]
    [(1, False), (2, False)]
    >>> [(h.chunk, h.last_chunk) for h in rechunker.rechunk(sw.BufferHeader("a", 1, 1, False), buffers=1)]
    [(3, True)]
    """

    __slots__ = ("_emitted", "_sequences")

    def __init__(self, origin: Origin) -> None:
        self._sequences = Sequences(check_origin(origin))
        self._emitted: dict[int, int] = {}
        """Number of emitted chunks of each incomplete sequence."""

    @property
    def duplicates(self) -> int:
        """Number of duplicate input chunks, which produce no output."""
        return self._sequences.duplicates

    def rechunk(self, header: BufferHeader, buffers: int = 1) -> tuple[BufferHeader, ...]:
        """Return the headers of the buffers that were made from one input chunk.

        Args:
            header: The header of the input chunk.
            buffers: How many buffers were made from it. At least one, also if all rows were filtered: an
                empty buffer completes the sequence.

        Returns:
            One header for each buffer. Empty for a duplicate, whose output was emitted before.

        Raises:
            InvalidArgument: The chunk has another origin, or ``buffers`` is lower than one.
            SequenceConflict: The numbers are invalid or contradict earlier chunks (S6).
        """
        origin, sequence, chunk, last, watermarks = header
        sequences = self._sequences
        if origin != sequences.origin:
            raise InvalidArgument(
                "origin", origin, f"is not {sequences.origin!r}", fix="use one rechunker for each origin"
            )
        _check_buffers(buffers)
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
        """Serialize the state; it is small if little is out of order."""
        sequences = self._sequences
        return _RECHUNKER_FORM.encode(_SavedRechunker(sequences.origin, sequences.save(), self._emitted))

    @classmethod
    def load(cls, data: bytes) -> Rechunker:
        """Restore a rechunker from the bytes of `save`.

        Args:
            data: The saved state.

        >>> import slackwater as sw
        >>> sw.Rechunker.load(sw.Rechunker("a").save()).duplicates
        0
        """
        saved = _RECHUNKER_FORM.decode(data)
        rechunker = cls(saved.origin)
        rechunker._sequences = Sequences.load(saved.origin, saved.sequences, _RECHUNKER_FORM.what)
        emitted = saved.emitted
        consistent = emitted.keys() == rechunker._sequences.open and min(emitted.values(), default=1) > 0
        _RECHUNKER_FORM.check(consistent, "its incomplete sequences are inconsistent")
        rechunker._emitted = emitted
        return rechunker


class OutputNumbering:
    """Numbers the buffers of a producer or stateful operator, which is an origin of its own (S10).

    Args:
        origin: The name of the origin.

    >>> import slackwater as sw
    >>> numbering = sw.OutputNumbering("window-1")
    >>> [(h.sequence, h.chunk, h.last_chunk) for h in numbering.number(2, {"default": 10})]
    [(1, 1, False), (1, 2, True)]
    >>> numbering.number()[0].sequence
    2
    """

    __slots__ = ("_origin", "_sequence")

    def __init__(self, origin: Origin) -> None:
        self._origin = check_origin(origin)
        self._sequence = 0

    def number(self, buffers: int = 1, watermarks: Watermarks = NO_WATERMARKS) -> tuple[BufferHeader, ...]:
        """Return the headers of the next sequence.

        Args:
            buffers: The number of chunks in the sequence, at least one.
            watermarks: Watermarks by key, which the last chunk carries.
        """
        _check_buffers(buffers)
        self._sequence += 1
        return _headers(self._origin, self._sequence, 0, buffers, complete=True, watermarks=watermarks)

    def save(self) -> bytes:
        """Serialize the origin and the last sequence number."""
        return _NUMBERING_FORM.encode(_SavedNumbering(self._origin, self._sequence))

    @classmethod
    def load(cls, data: bytes) -> OutputNumbering:
        """Restore a numbering from the bytes of `save`.

        Args:
            data: The saved state.

        >>> import slackwater as sw
        >>> sw.OutputNumbering.load(sw.OutputNumbering("window-1").save()).number()[0].sequence
        1
        """
        saved = _NUMBERING_FORM.decode(data)
        _NUMBERING_FORM.check(saved.sequence >= 0, f"its last sequence is {saved.sequence}")
        numbering = cls(saved.origin)
        numbering._sequence = saved.sequence
        return numbering


def _headers(
    origin: Origin, sequence: int, before: int, buffers: int, *, complete: bool, watermarks: Watermarks
) -> tuple[BufferHeader, ...]:
    """Return headers for the chunks ``before + 1`` to ``before + buffers`` of a sequence.

    If the sequence is ``complete``, the last of them is flagged as its last chunk.
    """
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


def _check_buffers(buffers: int) -> None:
    if check_int64(buffers, "buffers") < 1:
        raise InvalidArgument("buffers", buffers, "must be at least one", fix="send an empty buffer")
