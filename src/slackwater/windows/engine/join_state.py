"""The buffers of a time-bounded join: rows of each side in chunks of time, a small index over them.

A chunk is a run of rows sorted by time, one blob. The index knows the range of every chunk, so a
batch reads only the chunks its rows can match, and a watermark drops whole chunks without reading
them. A row below its limit has left the buffer from that moment on, even while the chunk it lies
in is still there: readers filter by the limit, nothing is rewritten for it. Whether a row of an
outer side has matched is a second, tiny blob beside the chunk, because it changes and the rows do
not. Small chunks are merged in tiers, so each row is rewritten a logarithmic number of times.

Blobs are named ``left-7`` (the rows) and ``left-7-matched`` (the flags);
see `slackwater.windows.engine.blobs`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import polars as pl

from slackwater.errors import CorruptState
from slackwater.progress.saved_form import Saved, SavedForm
from slackwater.windows.engine.blobs import BlobStore, decode, encode
from slackwater.windows.spec import Side

CHUNK_ROWS: Final = 65_536
"""Large enough that a batch writes few blobs, small enough that reading one too many is cheap."""
_FANOUT_BITS: Final = 3
_FANOUT: Final = 2**_FANOUT_BITS
_MATCHED: Final = "matched"


class Chunk(Saved):
    """What the index knows of a chunk: its blob, its size, its lowest, middle and highest time."""

    number: int
    rows: int
    low: int
    middle: int
    high: int


class SideState(Saved):
    """One side between two steps: the last watermark received, late rows so far, its chunks."""

    watermark: int | None = None
    late: int = 0
    next_number: int = 0
    chunks: tuple[Chunk, ...] = ()


class SavedIndex(Saved):
    """The saved index; ``join`` says for which join it was written."""

    join: str
    left: SideState
    right: SideState


INDEX: Final = SavedForm("index of a time-bounded join", "J", 1, SavedIndex)


@dataclass(frozen=True, slots=True)
class JoinState:
    """The state of a join between two steps: an index, and the blobs it points to.

    A step hands back a new index over the same blob store; the one it was given is used up.
    """

    left: SideState
    right: SideState
    blobs: BlobStore


@dataclass(slots=True)
class Part:
    """Rows of one side in memory; ``matched`` is None on a side that never pads."""

    rows: pl.DataFrame
    matched: pl.Series | None

    def take(self, order: pl.Series | slice) -> Part:
        """The rows in another order, or some of them."""
        return Part(self.rows[order], None if self.matched is None else self.matched[order])

    def mark(self, rows: pl.Series) -> None:
        """Note that these rows have matched."""
        if self.matched is not None:
            self.matched = self.matched.scatter(rows.unique(), values=True)

    def unmatched(self) -> pl.DataFrame:
        """The rows without a match, on a side that pads; no rows on one that does not."""
        return self.rows.clear() if self.matched is None else self.rows.filter(~self.matched)


@dataclass(slots=True)
class Buffer:
    """One side during one step: reads chunks as they are needed, writes nothing before `commit`."""

    side: Side
    time: str
    pads: bool
    state: SideState
    blobs: BlobStore
    chunk_rows: int
    _chunks: dict[int, Chunk] = field(init=False)
    _loaded: dict[int, Part] = field(init=False, default_factory=dict)
    _new: set[int] = field(init=False, default_factory=set)
    _marked: set[int] = field(init=False, default_factory=set)
    _next_number: int = field(init=False)

    def __post_init__(self) -> None:
        self._chunks = {chunk.number: chunk for chunk in self.state.chunks}
        self._next_number = self.state.next_number

    def overlapping(self, low: int, high: int) -> list[int]:
        """The numbers of the chunks with times in ``[low, high]``."""
        return [chunk.number for chunk in self._chunks.values() if chunk.high >= low and chunk.low <= high]

    def load(self, number: int) -> Part:
        """The rows of a chunk, read at most once in a step."""
        if number not in self._loaded:
            rows = self._read(f"{self.side}-{number}")
            matched = self._read(f"{self.side}-{number}-matched")[_MATCHED] if self.pads else None
            self._loaded[number] = Part(rows, matched)
        return self._loaded[number]

    def mark(self, number: int, rows: pl.Series) -> None:
        """Note that these rows of a chunk have matched."""
        if self.pads and not rows.is_empty():
            self.load(number).mark(rows)
            self._marked.add(number)

    def append(self, part: Part) -> None:
        """Store rows: sorted by time, cut into chunks of equal size."""
        total = part.rows.height
        if total == 0:
            return
        part = part.take(part.rows[self.time].arg_sort())
        pieces = -(-total // self.chunk_rows)
        for start, stop in pairwise(total * piece // pieces for piece in range(pieces + 1)):
            piece = part.take(slice(start, stop))
            times = piece.rows[self.time]
            chunk = Chunk(self._next_number, len(times), times[0], times[len(times) // 2], times[-1])
            self._chunks[chunk.number] = chunk
            self._loaded[chunk.number] = piece
            self._new.add(chunk.number)
            self._next_number += 1

    def evict(self, previous: int | None, limit: int) -> list[pl.DataFrame]:
        """Let the rows below ``limit`` leave; what is handed back had no match, on a side that pads.

        Rows below the ``previous`` limit have left before.
        """
        unmatched: list[pl.DataFrame] = []
        for chunk in list(self._chunks.values()):
            if chunk.low >= limit:
                continue
            if self.pads and (previous is None or chunk.high >= previous):
                rows = self.load(chunk.number).unmatched()
                leaving = pl.col(self.time) < limit
                if previous is not None:
                    leaving &= pl.col(self.time) >= previous
                unmatched.append(rows.filter(leaving))
            if chunk.high < limit:
                del self._chunks[chunk.number]
            elif limit > chunk.middle and chunk.high - limit > chunk.middle - chunk.low:
                # Most rows are gone, and a few that lie far ahead would keep them here for long.
                self._rewrite([chunk.number], limit)
        return unmatched

    def compact(self, limit: int | None) -> None:
        """Merge chunks that are small, as soon as enough of about one size have come together."""
        tiers: dict[int, list[int]] = {}
        for chunk in self._chunks.values():
            if chunk.rows < self.chunk_rows // 2:
                tiers.setdefault((chunk.rows.bit_length() - 1) // _FANOUT_BITS, []).append(chunk.number)
        for numbers in tiers.values():
            if len(numbers) >= _FANOUT:
                self._rewrite(numbers, limit)

    def live_rows(self, limit: int | None) -> int:
        """How many rows are in the buffer; reads the chunks that the limit divides."""
        total = 0
        for chunk in self._chunks.values():
            if limit is None or chunk.low >= limit:
                total += chunk.rows
            elif chunk.high >= limit:
                total += chunk.rows - int(
                    self.load(chunk.number).rows[self.time].search_sorted(limit, side="left")
                )
        return total

    def commit(self, watermark: int | None, late: int) -> SideState:
        """Write what this step changed, and hand back the new index of the side."""
        for chunk in self.state.chunks:
            if chunk.number not in self._chunks:
                for suffix in ("", "-matched") if self.pads else ("",):
                    del self.blobs[f"{self.side}-{chunk.number}{suffix}"]
        for number in self._chunks:
            if number in self._new:
                self.blobs[f"{self.side}-{number}"] = encode(self._loaded[number].rows)
            if number not in self._new and number not in self._marked:
                continue
            if (flags := self._loaded[number].matched) is not None:
                self.blobs[f"{self.side}-{number}-matched"] = encode(flags.alias(_MATCHED).to_frame())
        return SideState(watermark, self.state.late + late, self._next_number, tuple(self._chunks.values()))

    def _read(self, name: str) -> pl.DataFrame:
        what = f"blob {name} of a time-bounded join"
        try:
            data = self.blobs[name]
        except KeyError:
            raise CorruptState(what, "the index names it, but the store does not have it") from None
        return decode(data, what)

    def _rewrite(self, numbers: Iterable[int], limit: int | None) -> None:
        """Replace chunks by chunks of those of their rows that are still in the buffer."""
        parts = [self.load(number) for number in numbers]
        for number in numbers:
            del self._chunks[number]
        flags = [part.matched for part in parts if part.matched is not None]
        merged = Part(pl.concat([part.rows for part in parts]), pl.concat(flags) if flags else None)
        if limit is not None:
            merged = merged.take((merged.rows[self.time] >= limit).arg_true())
        self.append(merged)
