"""The buffers of a join: the rows of each side in chunks, with a small index.

A chunk is a range of rows sorted by time, stored as one blob. The index has the time range of every chunk, so
a batch reads only the chunks that its rows can match, and a watermark drops whole chunks without reading
them. A row below its limit is no longer in the buffer, even while its chunk still exists: readers filter by
the limit, and nothing is rewritten. Whether a row of an outer side has matched is stored in a second, small
blob, because it changes and the rows do not; in a join that takes retractions it is the number of its
matches, which can become zero again. Small chunks are compacted in tiers, so that each row is rewritten a
logarithmic number of times.

Blobs are named ``left-7`` (the rows) and ``left-7-matched`` (the flags or counts);
see `slackwater.windows.engine.blobs`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec
import polars as pl

from slackwater.errors import CorruptState
from slackwater.progress.saved_form import Saved, SavedForm
from slackwater.windows.engine.blobs import BlobStore, decode, encode
from slackwater.windows.engine.equal_rows import equal_rows
from slackwater.windows.engine.join_limits import SideLevels
from slackwater.windows.engine.join_matching import time_range
from slackwater.windows.spec.operator_spec import Side

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
    bytes: int = 0
    """The size of its blobs; 0 if version 1 wrote it."""
    holds: tuple[int | None, ...] = ()
    """For each further watermark key, a time that is not above that of any row; None if no row has one."""


class KeyState(Saved):
    """A further watermark key of a side: the last watermark received and the last one forwarded."""

    received: int | None = None
    forwarded: int | None = None


class SideState(Saved):
    """The state of one side between two steps: the watermark used, number of late rows and chunks."""

    watermark: int | None = None
    late: int = 0
    next_number: int = 0
    chunks: tuple[Chunk, ...] = ()
    received: int | None = None
    """The last watermark that the side sent; None before the first."""
    keys: tuple[KeyState, ...] = ()
    """The further watermark keys, in the order of the specification."""

    @property
    def size(self) -> BufferSize:
        """The size of the buffer, from the index alone."""
        return BufferSize(sum(chunk.rows for chunk in self.chunks), sum(chunk.bytes for chunk in self.chunks))


class BufferSize(NamedTuple):
    """The number of rows in a buffer and of the bytes in which they are stored.

    Rows that cannot match any more count until their chunk is removed or rewritten.
    """

    rows: int
    bytes: int


class SavedIndex(Saved):
    """The saved form of the index; ``join`` is the signature of the join that wrote it."""

    join: str
    left: SideState
    right: SideState


INDEX: Final = SavedForm("index of a time-bounded join", "J", 2, SavedIndex, readable=(1,))


def decode_index(data: bytes) -> SavedIndex:
    """Decode an index; in version 1, the watermark that was used is also the one that was received."""
    index = INDEX.decode(data)
    if data[0] == 1:
        for side in (index.left, index.right):
            side.received = side.watermark
    return index


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
    """Rows of one side in memory; ``matched`` is None for a side whose matches are not recorded.

    ``matched`` has flags, or numbers of matches in a join that takes retractions. ``was_matched`` has flags
    as they were before the first change of this step.
    """

    rows: pl.DataFrame
    matched: pl.Series | None
    was_matched: pl.Series | None = None

    def take(self, order: pl.Series | slice) -> SideRows:
        """Select rows by their numbers or a slice."""
        return SideRows(
            self.rows[order],
            None if self.matched is None else self.matched[order],
            None if self.was_matched is None else self.was_matched[order],
        )

    def mark(self, rows: pl.Series, change: int = 1) -> None:
        """Record matches of rows; a row that occurs twice has got two matches."""
        if self.matched is None or rows.is_empty():
            return
        if self.was_matched is None:
            self.was_matched = self.has_match()
        if self.matched.dtype == pl.Boolean:
            self.matched = self.matched.scatter(rows.unique(), values=True)
            return
        counted = rows.alias("row").value_counts(name="count")
        changed, counts = counted["row"], counted["count"].cast(pl.Int64) * change
        self.matched = self.matched.scatter(changed, self.matched[changed] + counts)

    def has_match(self) -> pl.Series:
        """Whether each row has a match; False for a side whose matches are not recorded."""
        if self.matched is None:
            return pl.zeros(self.rows.height, dtype=pl.Boolean, eager=True)
        return self.matched.clone() if self.matched.dtype == pl.Boolean else self.matched > 0

    def unmatched(self) -> pl.DataFrame:
        """The rows without a match; none for a side whose matches are not recorded."""
        return self.rows.clear() if self.matched is None else self.rows.filter(~self.has_match())


@dataclass(slots=True, kw_only=True)
class SideBuffer:
    """The buffer of one side during a step: reads chunks when needed, and writes nothing before `commit`."""

    side: Side
    time: str
    schema: pl.Schema
    """The columns of the rows."""
    state: SideState
    blobs: BlobStore
    chunk_rows: int
    keys: tuple[str, ...] = ()
    """The event-time columns of the further watermark keys."""
    tracks: bool = False
    """Whether matches are recorded."""
    settles: bool = False
    """Whether rows that are settled without a match are emitted."""
    keeps_matched: bool = True
    """Whether a row with a match is still needed."""
    operator: str = "a time-bounded join"
    """The operator in errors."""
    prefix: str = ""
    """The beginning of the names of its blobs; the side if it is empty."""
    _chunks: dict[int, Chunk] = field(init=False)
    _loaded: dict[int, SideRows] = field(init=False, default_factory=dict)
    _new: set[int] = field(init=False, default_factory=set)
    _marked: set[int] = field(init=False, default_factory=set)
    _next_number: int = field(init=False)

    def __post_init__(self) -> None:
        self._chunks = {chunk.number: chunk for chunk in self.state.chunks}
        self._next_number = self.state.next_number

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """The chunks in the index."""
        return tuple(self._chunks.values())

    def empty(self) -> pl.DataFrame:
        """A frame with the columns of the rows."""
        return self.schema.to_frame()

    def overlapping(self, low: int, high: int) -> list[int]:
        """The numbers of the chunks with times in ``[low, high]``."""
        return [chunk.number for chunk in self._chunks.values() if chunk.high >= low and chunk.low <= high]

    def load(self, number: int) -> SideRows:
        """The rows of a chunk, which is read at most once per step."""
        if number not in self._loaded:
            rows = self._read(self._blob(number))
            matched = self._read(f"{self._blob(number)}-matched")[_MATCHED] if self.tracks else None
            self._loaded[number] = SideRows(rows, matched)
        return self._loaded[number]

    def mark(self, number: int, rows: pl.Series, change: int = 1) -> None:
        """Record matches of rows of a chunk."""
        if self.tracks and not rows.is_empty():
            self.load(number).mark(rows, change)
            self._marked.add(number)

    def append(self, added: SideRows) -> None:
        """Store rows, sorted by time and divided into chunks of equal size."""
        if not self.keeps_matched:
            added = added.take((~added.has_match()).arg_true())
        total = added.rows.height
        if total == 0:
            return
        added = added.take(added.rows[self.time].arg_sort())
        count = -(-total // self.chunk_rows)
        for start, stop in pairwise(total * number // count for number in range(count + 1)):
            self._put(self._next_number, added.take(slice(start, stop)))
            self._next_number += 1

    def drop(self, number: int) -> None:
        """Remove a chunk."""
        del self._chunks[number]

    def remove(self, retracted: pl.DataFrame) -> tuple[SideRows, pl.DataFrame]:
        """Remove one equal row for each given row, which may lack columns that are then not compared.

        Returns:
            The removed rows, and the given rows that are not in the buffer.
        """
        removed = [SideRows(self.empty(), None)]
        if retracted.is_empty():
            return removed[0], retracted
        low, high = time_range(retracted[self.time])
        wanted = retracted
        for number in self.overlapping(low, high):
            chunk = self.load(number)
            stored = chunk.rows.select(wanted.columns)
            found = equal_rows(stored, wanted, "semi")
            if found.is_empty():
                continue
            wanted = wanted[equal_rows(wanted, stored, "anti")]
            removed.append(chunk.take(found))
            kept = pl.repeat(True, chunk.rows.height, eager=True).scatter(found, values=False)  # noqa: FBT003
            del self._chunks[number]
            if found.len() < chunk.rows.height:
                self._put(number, chunk.take(kept.arg_true()))
            if wanted.is_empty():
                break
        return _merged(removed[1:] or removed), wanted

    def changed_matches(self) -> list[SideRows]:
        """The buffered rows of chunks in which matches were recorded in this step."""
        return [
            chunk for number, chunk in self._loaded.items()
            if number in self._chunks and chunk.was_matched is not None
        ]  # fmt: skip

    def evict(self, previous: int | None, settled: int, freed: int | None) -> list[pl.DataFrame]:
        """Remove the rows below ``freed`` (J5); return those settled now without a match, if emitted.

        A row is settled below ``settled``; those below ``previous`` were settled before.
        """
        unmatched: list[pl.DataFrame] = []
        for chunk in list(self._chunks.values()):
            if chunk.low >= settled:
                continue
            if self.settles and settled != previous and (previous is None or chunk.high >= previous):
                rows = self.load(chunk.number).unmatched()
                leaving = pl.col(self.time) < settled
                if previous is not None:
                    leaving &= pl.col(self.time) >= previous
                unmatched.append(rows.filter(leaving))
            if freed is None:
                continue
            if chunk.high < freed:
                del self._chunks[chunk.number]
            elif freed > chunk.middle and chunk.high - freed > chunk.middle - chunk.low:
                # Most rows were removed, and a few much later ones would keep the chunk for a long time.
                self._rewrite([chunk.number], freed)
        return unmatched

    def compact(self, freed: int | None) -> None:
        """Merge small chunks once there are enough of about the same size."""
        tiers: dict[int, list[int]] = {}
        for chunk in self._chunks.values():
            if chunk.rows < self.chunk_rows // 2:
                tiers.setdefault((chunk.rows.bit_length() - 1) // _FANOUT_BITS, []).append(chunk.number)
        for numbers in tiers.values():
            if len(numbers) >= _FANOUT:
                self._rewrite(numbers, freed)

    def live_rows(self, freed: int | None) -> int:
        """The number of rows in the buffer; reads the chunks that contain the bound."""
        total = 0
        for chunk in self._chunks.values():
            if not self.keeps_matched:
                total += self._live(chunk, freed).rows.height
            elif freed is None or chunk.low >= freed:
                total += chunk.rows
            elif chunk.high >= freed:
                total += chunk.rows - int(
                    self.load(chunk.number).rows[self.time].search_sorted(freed, side="left")
                )
        return total

    def hold(self, key: int, freed: int | None) -> int | None:
        """The earliest time of the rows in the buffer by a further watermark key; None if there is none.

        Only chunks that contain rows which are no longer in the buffer are read, and only if they may have
        the earliest time.
        """
        earliest: int | None = None
        bounds = {number: chunk.holds[key] for number, chunk in self._chunks.items()}
        for number in sorted((n for n in bounds if bounds[n] is not None), key=lambda n: bounds[n] or 0):
            chunk, bound = self._chunks[number], bounds[number]
            if earliest is not None and bound is not None and bound >= earliest:
                break
            if (freed is not None and chunk.low < freed) or not self.keeps_matched:
                bound = _minimum(self._live(chunk, freed).rows[self.keys[key]])
                holds = (*chunk.holds[:key], bound, *chunk.holds[key + 1 :])
                self._chunks[number] = msgspec.structs.replace(chunk, holds=holds)
            if bound is not None:
                earliest = bound if earliest is None else min(earliest, bound)
        return earliest

    def commit(self, levels: SideLevels, late: int, keys: tuple[KeyState, ...]) -> SideState:
        """Write the changes of this step; returns the new state of the side."""
        for chunk in self.state.chunks:
            if chunk.number not in self._chunks:
                for suffix in ("", "-matched") if self.tracks else ("",):
                    del self.blobs[f"{self._blob(chunk.number)}{suffix}"]
        for number, chunk in self._chunks.items():
            size = chunk.bytes
            if number in self._new:
                rows = encode(self._loaded[number].rows)
                self.blobs[self._blob(number)] = rows
                size = len(rows)
            elif number not in self._marked:
                continue
            if (flags := self._loaded[number].matched) is not None:
                matched = encode(flags.alias(_MATCHED).to_frame())
                self.blobs[f"{self._blob(number)}-matched"] = matched
                size += len(matched) if number in self._new else 0
            self._chunks[number] = msgspec.structs.replace(chunk, bytes=size)
        return SideState(
            watermark=levels.used.get(self.side),
            late=self.state.late + late,
            next_number=self._next_number,
            chunks=tuple(self._chunks.values()),
            received=levels.received.get(self.side),
            keys=keys,
        )

    def _blob(self, number: int) -> str:
        return f"{self.prefix or self.side}-{number}"

    def _put(self, number: int, rows: SideRows) -> None:
        """Store sorted rows as a chunk, which is written at the end of the step."""
        times = rows.rows[self.time]
        self._chunks[number] = Chunk(
            number=number,
            rows=len(times),
            low=times[0],
            middle=times[len(times) // 2],
            high=times[-1],
            holds=tuple(_minimum(rows.rows[name]) for name in self.keys),
        )
        self._loaded[number] = rows
        self._new.add(number)

    def live(self, number: int, freed: int | None) -> pl.DataFrame:
        """The rows of a chunk that are still in the buffer."""
        return self._live(self._chunks[number], freed).rows

    def _live(self, chunk: Chunk, freed: int | None) -> SideRows:
        """The rows of a chunk that are still in the buffer."""
        rows = self.load(chunk.number)
        if freed is not None and chunk.low < freed:
            rows = rows.take((rows.rows[self.time] >= freed).arg_true())
        return rows if self.keeps_matched else rows.take((~rows.has_match()).arg_true())

    def _read(self, name: str) -> pl.DataFrame:
        what = f"blob {name} of {self.operator}"
        try:
            data = self.blobs[name]
        except KeyError:
            raise CorruptState(what, "it is in the index but not in the store") from None
        return decode(data, what)

    def _rewrite(self, numbers: Iterable[int], freed: int | None) -> None:
        """Rewrite chunks with only those of their rows that are still in the buffer."""
        live = [self._live(self._chunks[number], freed) for number in numbers]
        for number in numbers:
            del self._chunks[number]
        self.append(_merged(live))


def _merged(parts: Sequence[SideRows]) -> SideRows:
    flags = [part.matched for part in parts if part.matched is not None]
    return SideRows(pl.concat([part.rows for part in parts]), pl.concat(flags) if flags else None)


def _minimum(times: pl.Series) -> int | None:
    found = times.min()
    return None if found is None else int(found)  # type: ignore[arg-type]  # a column of integers
