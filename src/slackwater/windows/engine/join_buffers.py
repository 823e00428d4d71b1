"""The buffers of a time-bounded join: the rows of each side in chunks, with a small index.

A chunk is a range of rows sorted by time, stored as one blob. The index has the time range of every chunk, so
a batch reads only the chunks that its rows can match, and a watermark drops whole chunks without reading
them. A row below its limit is no longer in the buffer, even while its chunk still exists: readers filter by
the limit, and nothing is rewritten. Whether a row of an outer side has matched is stored in a second, small
blob, because it changes and the rows do not. Small chunks are compacted in tiers, so that each row is
rewritten a logarithmic number of times.

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
"""Large enough that a batch writes few blobs, small enough that reading an unneeded one is cheap."""
_FANOUT_BITS: Final = 3
_FANOUT: Final = 2**_FANOUT_BITS
_MATCHED: Final = "matched"


class Chunk(Saved):
    """A chunk in the index: the number of its blob, its size, its lowest, middle and highest time."""

    number: int
    rows: int
    low: int
    middle: int
    high: int


class SideState(Saved):
    """The state of one side between two steps: its last watermark, number of late rows and chunks."""

    watermark: int | None = None
    late: int = 0
    next_number: int = 0
    chunks: tuple[Chunk, ...] = ()


class SavedIndex(Saved):
    """The saved form of the index; ``join`` is the signature of the join that wrote it."""

    join: str
    left: SideState
    right: SideState


INDEX: Final = SavedForm("index of a time-bounded join", "J", 1, SavedIndex)


@dataclass(frozen=True, slots=True)
class JoinState:
    """The state of a join between two steps: an index, and the store with its blobs.

    A step returns a new index with the same blob store; the state that it was given must not be used again.
    """

    left: SideState
    right: SideState
    blobs: BlobStore


@dataclass(slots=True)
class SideRows:
    """Rows of one side in memory; ``matched`` is None for a side that is not padded."""

    rows: pl.DataFrame
    matched: pl.Series | None

    def take(self, order: pl.Series | slice) -> SideRows:
        """Select rows by their numbers or a slice."""
        return SideRows(self.rows[order], None if self.matched is None else self.matched[order])

    def mark(self, rows: pl.Series) -> None:
        """Mark rows as matched."""
        if self.matched is not None:
            self.matched = self.matched.scatter(rows.unique(), values=True)

    def unmatched(self) -> pl.DataFrame:
        """The rows without a match; none for a side that is not padded."""
        return self.rows.clear() if self.matched is None else self.rows.filter(~self.matched)


@dataclass(slots=True)
class SideBuffer:
    """The buffer of one side during a step: reads chunks when needed, and writes nothing before `commit`."""

    side: Side
    time: str
    pads: bool
    state: SideState
    blobs: BlobStore
    chunk_rows: int
    _chunks: dict[int, Chunk] = field(init=False)
    _loaded: dict[int, SideRows] = field(init=False, default_factory=dict)
    _new: set[int] = field(init=False, default_factory=set)
    _marked: set[int] = field(init=False, default_factory=set)
    _next_number: int = field(init=False)

    def __post_init__(self) -> None:
        self._chunks = {chunk.number: chunk for chunk in self.state.chunks}
        self._next_number = self.state.next_number

    def overlapping(self, low: int, high: int) -> list[int]:
        """The numbers of the chunks with times in ``[low, high]``."""
        return [chunk.number for chunk in self._chunks.values() if chunk.high >= low and chunk.low <= high]

    def load(self, number: int) -> SideRows:
        """The rows of a chunk, which is read at most once per step."""
        if number not in self._loaded:
            rows = self._read(f"{self.side}-{number}")
            matched = self._read(f"{self.side}-{number}-matched")[_MATCHED] if self.pads else None
            self._loaded[number] = SideRows(rows, matched)
        return self._loaded[number]

    def mark(self, number: int, rows: pl.Series) -> None:
        """Mark rows of a chunk as matched."""
        if self.pads and not rows.is_empty():
            self.load(number).mark(rows)
            self._marked.add(number)

    def append(self, added: SideRows) -> None:
        """Store rows, sorted by time and divided into chunks of equal size."""
        total = added.rows.height
        if total == 0:
            return
        added = added.take(added.rows[self.time].arg_sort())
        count = -(-total // self.chunk_rows)
        for start, stop in pairwise(total * number // count for number in range(count + 1)):
            chunk_rows = added.take(slice(start, stop))
            times = chunk_rows.rows[self.time]
            chunk = Chunk(self._next_number, len(times), times[0], times[len(times) // 2], times[-1])
            self._chunks[chunk.number] = chunk
            self._loaded[chunk.number] = chunk_rows
            self._new.add(chunk.number)
            self._next_number += 1

    def evict(self, previous: int | None, limit: int) -> list[pl.DataFrame]:
        """Remove the rows below ``limit``; returns those without a match, for a side that is padded.

        Rows below the ``previous`` limit were removed before.
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
                # Most rows were removed, and a few much later ones would keep the chunk for a long time.
                self._rewrite([chunk.number], limit)
        return unmatched

    def compact(self, limit: int | None) -> None:
        """Merge small chunks once there are enough of about the same size."""
        tiers: dict[int, list[int]] = {}
        for chunk in self._chunks.values():
            if chunk.rows < self.chunk_rows // 2:
                tiers.setdefault((chunk.rows.bit_length() - 1) // _FANOUT_BITS, []).append(chunk.number)
        for numbers in tiers.values():
            if len(numbers) >= _FANOUT:
                self._rewrite(numbers, limit)

    def live_rows(self, limit: int | None) -> int:
        """The number of rows in the buffer; reads the chunks that contain the limit."""
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
        """Write the changes of this step; returns the new state of the side."""
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
            raise CorruptState(what, "it is in the index but not in the store") from None
        return decode(data, what)

    def _rewrite(self, numbers: Iterable[int], limit: int | None) -> None:
        """Rewrite chunks with only those of their rows that are still in the buffer."""
        loaded = [self.load(number) for number in numbers]
        for number in numbers:
            del self._chunks[number]
        flags = [chunk.matched for chunk in loaded if chunk.matched is not None]
        merged = SideRows(pl.concat([chunk.rows for chunk in loaded]), pl.concat(flags) if flags else None)
        if limit is not None:
            merged = merged.take((merged.rows[self.time] >= limit).arg_true())
        self.append(merged)
