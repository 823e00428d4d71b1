"""The deduplication operator: passes the first row per key within a time bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl

from slackwater.errors import IncompatibleState, InvalidArgument, WatermarkRegression
from slackwater.progress.saved_form import Saved, SavedForm
from slackwater.progress.values import NO_WATERMARKS
from slackwater.time import BEGINNING_OF_TIME, END_OF_TIME, check_int64
from slackwater.windows.engine.blobs import BlobStore
from slackwater.windows.engine.join_buffers import (
    CHUNK_ROWS,
    BufferSize,
    KeyState,
    SideBuffer,
    SideRows,
    SideState,
)
from slackwater.windows.engine.join_columns import Schema
from slackwater.windows.engine.join_limits import SideLevels, behind
from slackwater.windows.engine.join_matching import matching_rows, time_range
from slackwater.windows.spec.deduplicate_spec import DeduplicateSpec
from slackwater.windows.spec.operator_spec import REACH

_CODE: Final = "code:"


class SavedDeduplication(Saved):
    """The saved form of the index; ``operator`` is the signature of the operator that wrote it."""

    operator: str
    kept: SideState
    duplicates: int


INDEX: Final = SavedForm("index of a deduplication", "D", 1, SavedDeduplication)


@dataclass(frozen=True, slots=True)
class DeduplicateState:
    """The state of a deduplication between two steps: the index of the kept rows, and the store of blobs.

    A step returns a new index with the same blob store; the state that it was given must not be used again.
    """

    kept: SideState
    blobs: BlobStore
    duplicates: int = 0
    """The number of duplicates so far."""


@dataclass(frozen=True, slots=True)
class DeduplicateOutput:
    """The output of one step: rows, then the watermark.

    ``rows`` has the rows without duplicates, in order of arrival. ``duplicates`` is the number of
    duplicates and ``dropped`` that of late rows in this step; ``late`` has the late rows if the spec has
    ``late="emit"``. ``watermarks`` has the watermarks that have advanced: they are forwarded unchanged.

    >>> spec = DeduplicateSpec(on=("id",), within=5)
    >>> operator = DeduplicateOperator(spec, schema={"id": pl.Int64, "ts": pl.Int64})
    >>> _, output = operator.step(operator.initial_state(), watermarks={"default": 20})
    >>> output.watermarks, output.duplicates
    ({'default': 20}, 0)
    """

    rows: pl.DataFrame
    watermarks: Mapping[str, int]
    duplicates: int
    dropped: int
    late: pl.DataFrame | None


class DeduplicateOperator:
    """Passes the first row per key within a time bound; described by a `DeduplicateSpec`.

    Args:
        spec: what to deduplicate.
        schema: the columns of the rows. The event time must be ``Int64`` microseconds.
        chunk_rows: the maximum number of rows per blob of the state.

    Raises:
        InvalidArgument: a column is missing or has a type that cannot be used.

    >>> spec = DeduplicateSpec(on=("id",), within=5)
    >>> operator = DeduplicateOperator(spec, schema={"id": pl.Int64, "ts": pl.Int64})
    >>> rows = pl.DataFrame({"id": [7, 7, 7], "ts": [10, 15, 16]})
    >>> state, output = operator.step(operator.initial_state(), rows)
    >>> output.rows.rows(), output.duplicates
    ([(7, 10), (7, 16)], 1)
    """

    def __init__(self, spec: DeduplicateSpec, *, schema: Schema, chunk_rows: int = CHUNK_ROWS) -> None:
        if chunk_rows < 1:
            raise InvalidArgument("chunk_rows", chunk_rows, "must be at least 1", fix="use the default")
        self.spec = spec
        self.schema = pl.Schema(schema)
        """The names and types of the columns, of the input and the output."""
        self._chunk_rows = chunk_rows
        for name in (*spec.on, spec.event_time):
            if name not in self.schema:
                raise InvalidArgument(
                    "schema", self.schema.names(), f"has no column {name!r}", fix="add or rename the column"
                )
        for name in spec.on:
            kind = self.schema[name]
            if kind.is_nested() or kind == pl.Object:
                raise InvalidArgument(
                    "on",
                    name,
                    f"has type {kind}, which cannot be a key",
                    fix="use a column that is not nested",
                )
        if self.schema[spec.event_time] != pl.Int64:
            raise InvalidArgument(
                "event_time",
                spec.event_time,
                f"has type {self.schema[spec.event_time]}",
                fix="use Int64 microseconds since 1970",
            )

    def initial_state(self, blobs: BlobStore | None = None) -> DeduplicateState:
        """Create the state before the first step; ``blobs`` is where its blobs are stored."""
        return DeduplicateState(SideState(), {} if blobs is None else blobs)

    def save(self, state: DeduplicateState) -> bytes:
        """Serialize the index of the state; its blobs are in the store already."""
        return INDEX.encode(SavedDeduplication(self._signature, state.kept, state.duplicates))

    def load(self, data: bytes, blobs: BlobStore) -> DeduplicateState:
        """Load the state whose index `save` returned, with the store that has its blobs."""
        index = INDEX.decode(data)
        if index.operator != self._signature:
            difference = ("the deduplication", index.operator, self._signature)
            raise IncompatibleState("deduplication", [difference])
        return DeduplicateState(index.kept, blobs, index.duplicates)

    def buffer_size(self, state: DeduplicateState) -> BufferSize:
        """The number of remembered rows and the bytes of their keys, without reading them."""
        return state.kept.size

    def step(
        self,
        state: DeduplicateState,
        rows: pl.DataFrame | None = None,
        watermarks: Mapping[str, int] = NO_WATERMARKS,
    ) -> tuple[DeduplicateState, DeduplicateOutput]:
        """Pass the rows of a batch that are no duplicates, then advance the watermark.

        Args:
            state: the state after the last step. It must not be used again: continue with the one returned.
            rows: the rows that arrived.
            watermarks: the watermarks by key; a key may be left out if it has not changed.

        Returns:
            The new state and the output. Rows below the watermark before the step are late.

        Raises:
            InvalidArgument: the batch cannot be used; the state is unchanged.
            WatermarkRegression: a watermark is below that of an earlier step; the state is unchanged.
        """
        batch = self._checked(rows)
        before, after = self._known(state.kept), self._received(state.kept, watermarks)
        received = after.get(self.spec.watermark_key)
        time = self.spec.event_time
        used = state.kept.watermark
        below = batch[time] < (BEGINNING_OF_TIME if used is None else used)
        late, accepted = batch.filter(below), batch.filter(~below)

        buffer = self._buffer(state)
        passed = self._first(accepted, buffer)
        kept = accepted[passed]
        level = None if received is None else behind(received, self.spec.lateness)
        if level is not None:
            used = level if used is None else max(used, level)
        freed = _freed(used, self.spec.within)
        stored = kept.select(*self.spec.on, time)
        if freed is not None:
            buffer.evict(None, freed, freed)
            stored = stored.filter(pl.col(time) >= freed)
        buffer.append(SideRows(stored, None))
        buffer.compact(freed)

        duplicates = accepted.height - kept.height
        levels = SideLevels(
            {} if received is None else {"left": received}, {} if used is None else {"left": used}
        )
        output = DeduplicateOutput(
            rows=kept,
            watermarks={key: at for key, at in after.items() if at != before.get(key)},
            duplicates=duplicates,
            dropped=late.height,
            late=late if self.spec.late == "emit" else None,
        )
        keys = tuple(KeyState(after.get(key)) for key in self.spec.further_keys)
        committed = buffer.commit(levels, late.height, keys)
        return DeduplicateState(committed, state.blobs, state.duplicates + duplicates), output

    # ---- finding duplicates

    def _first(self, rows: pl.DataFrame, buffer: SideBuffer) -> pl.Series:
        """The numbers of the rows that are no duplicates, in order of arrival."""
        numbers = pl.int_range(rows.height, dtype=pl.UInt32, eager=True)
        if rows.is_empty():
            return numbers
        on, time, within = list(self.spec.on), self.spec.event_time, self.spec.within
        low, high = time_range(rows[time])
        near = buffer.overlapping(low - within, high + within)
        known = pl.concat([buffer.empty(), *(buffer.load(number).rows for number in near)])
        codes = rows.select(on).unique().with_row_index(_CODE)
        coded = rows.select(*on, time).join(codes, on=on, nulls_equal=True, maintain_order="left")
        known = known.join(codes, on=on, nulls_equal=True)
        repeated, _ = matching_rows(
            coded,
            known,
            on=[_CODE],
            left_time=time,
            right_time=time,
            before=within,
            after=within,
        )
        new = numbers.filter(~numbers.is_in(repeated.unique().implode()))
        return new[first_within(coded[_CODE][new], coded[time][new], within)].sort()

    def _known(self, kept: SideState) -> dict[str, int]:
        """The watermarks of earlier steps by key."""
        # Keys have no state before the first step.
        further = {key: one.received for key, one in zip(self.spec.further_keys, kept.keys, strict=False)}
        known = {self.spec.watermark_key: kept.received, **further}
        return {key: at for key, at in known.items() if at is not None}

    def _received(self, kept: SideState, watermarks: Mapping[str, int]) -> dict[str, int]:
        """The watermarks after a step; raises if one decreases."""
        names = (self.spec.watermark_key, *self.spec.further_keys)
        if unknown := sorted(watermarks.keys() - set(names)):
            raise InvalidArgument(
                "watermarks",
                unknown[0],
                "is not a watermark key of the deduplication",
                fix=f"use {', '.join(map(repr, names))}",
            )
        received = self._known(kept)
        for key, value in watermarks.items():
            watermark = check_int64(value, f"watermarks[{key!r}]")
            if watermark < received.get(key, watermark):
                raise WatermarkRegression("the deduplication", key, received[key], watermark)
            received[key] = watermark
        return received

    def _checked(self, batch: pl.DataFrame | None) -> pl.DataFrame:
        if batch is None:
            return self.schema.to_frame()
        if dict(batch.schema) != dict(self.schema):
            raise InvalidArgument(
                "rows",
                dict(batch.schema),
                "does not have the declared schema",
                fix=f"use {dict(self.schema)}",
            )
        times = batch[self.spec.event_time]
        if times.has_nulls():
            raise InvalidArgument("rows", None, "event time is null", fix="filter out such rows")
        outside = times.filter((times <= -REACH) | (times >= REACH))
        if not outside.is_empty():
            raise InvalidArgument(
                "rows",
                outside[0],
                "event time is more than 146,000 years from 1970",
                fix="use microseconds since 1970",
            )
        return batch.select(self.schema.names())

    def _buffer(self, state: DeduplicateState) -> SideBuffer:
        columns = (*self.spec.on, self.spec.event_time)
        return SideBuffer(
            side="left",
            time=self.spec.event_time,
            schema=pl.Schema({name: self.schema[name] for name in columns}),
            state=state.kept,
            blobs=state.blobs,
            chunk_rows=self._chunk_rows,
            operator="a deduplication",
        )

    @property
    def _signature(self) -> str:
        return f"{self.spec.signature} of {dict(self.schema)}"


def first_within(codes: pl.Series, times: pl.Series, within: int) -> pl.Series:
    """The numbers of rows that are kept, if each kept row removes those of its code at most ``within`` later.

    Rows are taken in order of time, those with equal times in order of their number. The row after a kept row
    is the first one beyond its range, or the first of the next code. Following these links from the first row
    visits all kept rows; squaring the links in each round needs a logarithmic number of rounds.

    >>> first_within(pl.Series([0, 0, 0, 1]), pl.Series([30, 10, 15, 12]), 5).to_list()
    [1, 0, 3]
    """
    total = codes.len()
    if total == 0:
        return pl.Series(dtype=pl.UInt32)
    ordered = times.sort()
    ranks = ordered.search_sorted(times, side="left").cast(pl.Int64)
    reach = ordered.search_sorted(times + within, side="right").cast(pl.Int64) - 1
    base = codes.cast(pl.Int64) * total
    rows = pl.DataFrame({"number": base + ranks, "reach": base + reach}).with_row_index("row")
    rows = rows.sort("number", "row")
    after = rows["number"].search_sorted(rows["reach"], side="right").cast(pl.UInt32)
    link = pl.concat([after, pl.Series([total], dtype=pl.UInt32)])  # the last one leads to itself
    visited = pl.Series([0], dtype=pl.UInt32)
    while int(link[0]) < total:
        visited = pl.concat([visited, link[visited]]).unique()
        link = link[link]
    return rows["row"][visited.filter(visited < total).sort()]


def _freed(watermark: int | None, within: int) -> int | None:
    """The time below which kept rows are forgotten, clipped to the range of event times."""
    if watermark is None:
        return None
    limit = REACH if watermark == END_OF_TIME else watermark - within
    return max(-REACH, min(limit, REACH))
