"""The deduplication operator: passes the first row per key within a time bound.

Of the kept rows only keys and times are stored. If rows may be retracted, all rows at or after the watermark
are stored too: which of them are kept is computed from them, for the keys that a batch changes, before and
after the change, and the difference is the output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import msgspec
import polars as pl

from slackwater.errors import IncompatibleState, InvalidArgument, WatermarkRegression
from slackwater.progress.saved_form import Saved, SavedForm
from slackwater.progress.values import NO_WATERMARKS
from slackwater.time import BEGINNING_OF_TIME, END_OF_TIME, check_int64
from slackwater.windows.engine.asof_matching import ARRIVAL
from slackwater.windows.engine.blobs import BlobStore
from slackwater.windows.engine.dropped_samples import late_sample
from slackwater.windows.engine.equal_rows import cancelled, equal_rows, retracting
from slackwater.windows.engine.frames import match
from slackwater.windows.engine.further_keys import forwarded_keys
from slackwater.windows.engine.join_buffers import (
    CHUNK_ROWS,
    BufferSize,
    KeyState,
    SideBuffer,
    SideRows,
    SideState,
)
from slackwater.windows.engine.join_columns import Schema
from slackwater.windows.engine.join_limits import SideLevels, behind, clipped
from slackwater.windows.engine.join_matching import matching_rows, time_range
from slackwater.windows.spec.deduplicate_spec import DeduplicateSpec
from slackwater.windows.spec.operator_spec import REACH

_CODE: Final = "code:"


class SavedDeduplication(Saved):
    """The saved form of the index; ``operator`` is the signature of the operator that wrote it."""

    operator: str
    kept: SideState
    duplicates: int
    pending: SideState = msgspec.field(default_factory=SideState)
    """The rows that can be retracted; none if version 1 wrote it."""
    arrived: int = 0


INDEX: Final = SavedForm("index of a deduplication", "D", 2, SavedDeduplication, readable=(1,))


@dataclass(frozen=True, slots=True)
class DeduplicateState:
    """The state of a deduplication between two steps: the index of the kept rows, and the store of blobs.

    A step returns a new index with the same blob store; the state that it was given must not be used again.
    """

    kept: SideState
    blobs: BlobStore
    duplicates: int = 0
    """The number of duplicates so far, without those that have been restored."""
    pending: SideState = field(default_factory=SideState)
    """The rows that can be retracted."""
    arrived: int = 0
    """The number of rows that have been stored because they can be retracted."""


@dataclass(frozen=True, slots=True)
class DeduplicateOutput:
    """The output of one step: rows, then the watermark.

    ``rows`` has the rows without duplicates, in order of arrival. ``duplicates`` is the number of
    duplicates and ``dropped`` that of late rows in this step; ``late`` has the late rows if the spec has
    ``late="emit"``. ``watermarks`` has the watermarks that have advanced: they are forwarded unchanged.

    If rows may be retracted, ``rows`` has the retractions of rows that are not kept any more, then the rows
    that are kept from now on. A kept row can become a duplicate, and ``restored`` is the number of duplicates
    of earlier steps that are none any more, because they were retracted or take the place of another row.

    >>> import slackwater as sw
    >>> spec = sw.DeduplicateSpec(on=("id",), within=5)
    >>> operator = sw.DeduplicateOperator(spec, schema={"id": pl.Int64, "ts": pl.Int64})
    >>> _, output = operator.step(operator.initial_state(), watermarks={"default": 20})
    >>> output.watermarks, output.duplicates
    ({'default': 20}, 0)
    """

    rows: pl.DataFrame
    watermarks: Mapping[str, int]
    duplicates: int
    dropped: int
    late: pl.DataFrame | None
    restored: int = 0
    dropped_sample: pl.DataFrame | None = None
    """A few of the late rows, for reports; None if there are none."""


class DeduplicateOperator:
    """Passes the first row per key within a time bound; described by a `DeduplicateSpec`.

    Args:
        spec: what to deduplicate.
        schema: the columns of the rows. The event time must be ``Int64`` microseconds.
        chunk_rows: the maximum number of rows per blob of the state.

    Raises:
        InvalidArgument: a column is missing or has a type that cannot be used.

    >>> import slackwater as sw
    >>> spec = sw.DeduplicateSpec(on=("id",), within=5)
    >>> operator = sw.DeduplicateOperator(spec, schema={"id": pl.Int64, "ts": pl.Int64})
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
        marks = () if spec.retractions is None else (spec.retractions,)
        for name in (*spec.on, spec.event_time, *spec.further_times, *marks):
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
        for argument, name in (
            ("event_time", spec.event_time),
            *(("further_times", name) for name in spec.further_times),
        ):
            if self.schema[name] != pl.Int64:
                raise InvalidArgument(
                    argument, name, f"has type {self.schema[name]}", fix="use Int64 microseconds since 1970"
                )
        if spec.retractions is not None and self.schema[spec.retractions] != pl.Boolean:
            raise InvalidArgument(
                "retractions",
                spec.retractions,
                f"has type {self.schema[spec.retractions]}",
                fix="use a boolean column",
            )

    def initial_state(self, blobs: BlobStore | None = None) -> DeduplicateState:
        """Create the state before the first step; ``blobs`` is where its blobs are stored.

        Args:
            blobs: the store of the blobs; by default one in memory.
        """
        return DeduplicateState(SideState(), {} if blobs is None else blobs)

    def save(self, state: DeduplicateState) -> bytes:
        """Serialize the index of the state; its blobs are in the store already.

        Args:
            state: the state that the last step returned.
        """
        saved = SavedDeduplication(
            self._signature, state.kept, state.duplicates, state.pending, state.arrived
        )
        return INDEX.encode(saved)

    def load(self, data: bytes, blobs: BlobStore) -> DeduplicateState:
        """Load the state whose index `save` returned, with the store that has its blobs.

        Args:
            data: the saved index.
            blobs: the store that has its blobs.
        """
        index = INDEX.decode(data)
        if index.operator != self._signature:
            difference = ("the deduplication", index.operator, self._signature)
            raise IncompatibleState("deduplication", [difference])
        return DeduplicateState(index.kept, blobs, index.duplicates, index.pending, index.arrived)

    def buffer_size(self, state: DeduplicateState) -> BufferSize:
        """The number of remembered rows and their bytes, without reading them.

        Args:
            state: the state that the last step returned.
        """
        kept, pending = state.kept.size, state.pending.size
        return BufferSize(kept.rows + pending.rows, kept.bytes + pending.bytes)

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
        after = self._received(state.kept, watermarks)
        received = after.get(self.spec.watermark_key)
        time = self.spec.event_time
        used = state.kept.watermark
        below = batch[time] < (BEGINNING_OF_TIME if used is None else used)
        late, accepted = batch.filter(below), batch.filter(~below)

        kept, pending = self._kept(state), self._pending(state)
        level = None if received is None else behind(received, self.spec.lateness)
        reached = used if level is None else level if used is None else max(used, level)
        if self.spec.retractions is None:
            passed = final = accepted[self._first(accepted, kept)]
            revision = _Revision(passed, accepted.height - passed.height)
        else:
            revision = self._revise(accepted, self.spec.retractions, kept, pending, state.arrived)
            late = pl.concat([late, *revision.unknown])
            final = self._finished(pending, kept, clipped(used), clipped(reached))
        self._remember(kept, final, _freed(reached, self.spec.within))

        held = [(pending, clipped(reached))] if self.spec.takes_retractions else []
        keys = forwarded_keys(
            tuple(
                KeyState(after.get(key), one.forwarded)
                for key, one in zip(self.spec.further_keys, self._key_states(state.kept), strict=True)
            ),
            held,
        )
        levels = SideLevels(
            {} if received is None else {"left": received}, {} if reached is None else {"left": reached}
        )
        output = DeduplicateOutput(
            rows=revision.rows,
            watermarks=self._advanced(state.kept, received, keys),
            duplicates=revision.duplicates,
            dropped=late.height,
            late=late if self.spec.late == "emit" else None,
            restored=revision.restored,
            dropped_sample=late_sample(late, time, used, self.spec.on),
        )
        state = DeduplicateState(
            kept.commit(levels, late.height, keys),
            state.blobs,
            state.duplicates + revision.duplicates - revision.restored,
            pending.commit(levels, 0, ()) if self.spec.takes_retractions else state.pending,
            state.arrived + revision.arrived,
        )
        return state, output

    # ---- retractions

    def _revise(
        self, rows: pl.DataFrame, mark: str, kept: SideBuffer, pending: SideBuffer, arrived: int
    ) -> _Revision:
        """Store rows that can be retracted and remove retracted ones; find what changes in the output."""
        added, retracted = cancelled(rows, mark)
        numbers = pl.int_range(arrived, arrived + added.height, eager=True)
        new = added.with_columns(numbers.alias(ARRIVAL))
        removed, unknown = pending.remove(retracted)
        old, on = removed.rows, list(self.spec.on)
        keys = pl.concat([new.select(on), old.select(on)]).unique()
        final = clipped(kept.state.watermark)
        same = [
            match(pending.live(chunk.number, final), keys, on, "semi")
            for chunk in (pending.chunks if keys.height else ())
        ]
        before, repeated = self._divided([*same, old], kept)
        after, repeats = self._divided([*same, new], kept)
        pending.append(SideRows(new, None))
        gone, come = before[equal_rows(before, after, "anti")], after[equal_rows(after, before, "anti")]
        names = self.schema.names()
        return _Revision(
            rows=pl.concat([retracting(gone, mark, names), retracting(come, mark, names, value=False)]),
            duplicates=_count_missing(repeats, repeated),
            restored=_count_missing(repeated, repeats),
            arrived=added.height,
            unknown=(retracting(unknown, mark, names),),
        )

    def _divided(self, parts: Sequence[pl.DataFrame], kept: SideBuffer) -> tuple[pl.DataFrame, pl.Series]:
        """Of rows that can be retracted, those that are kept, and the arrival numbers of the duplicates."""
        rows = pl.concat(parts).sort(ARRIVAL)
        plain, first = rows.drop(ARRIVAL), self._first(rows, kept)
        numbers = rows[ARRIVAL]
        return plain[first], numbers.filter(~numbers.is_in(numbers[first].implode()))

    def _finished(
        self, pending: SideBuffer, kept: SideBuffer, before: int | None, final: int | None
    ) -> pl.DataFrame:
        """Remove the rows that cannot be retracted any more; return those of them that are kept."""
        rows = [pending.empty()]
        if final is not None:
            rows += [
                pending.live(number, before).filter(pl.col(self.spec.event_time) < final)
                for number in pending.overlapping(-REACH, final - 1)
            ]
            pending.evict(None, final, final)
        pending.compact(final)
        return self._divided(rows, kept)[0]

    def _remember(self, kept: SideBuffer, rows: pl.DataFrame, freed: int | None) -> None:
        """Store the keys and times of kept rows, and remove those that cannot have a duplicate any more."""
        stored = rows.select(*self.spec.on, self.spec.event_time)
        if freed is not None:
            kept.evict(None, freed, freed)
            stored = stored.filter(pl.col(self.spec.event_time) >= freed)
        kept.append(SideRows(stored, None))
        kept.compact(freed)

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
        coded = match(rows.select(*on, time), codes, on, "inner")
        known = match(known, codes, on, "inner")
        repeated = matching_rows(
            coded,
            known,
            on=[_CODE],
            left_time=time,
            right_time=time,
            before=within,
            after=within,
        ).left
        new = numbers.filter(~numbers.is_in(repeated.implode()))
        return new[first_within(coded[_CODE][new], coded[time][new], within)].sort()

    def _known(self, kept: SideState) -> dict[str, int]:
        """The watermarks of earlier steps by key."""
        states = zip(self.spec.further_keys, self._key_states(kept), strict=True)
        known = {self.spec.watermark_key: kept.received, **{key: one.received for key, one in states}}
        return {key: at for key, at in known.items() if at is not None}

    def _key_states(self, kept: SideState) -> tuple[KeyState, ...]:
        """The further watermark keys, which have no state before the first step."""
        return kept.keys or (KeyState(),) * len(self.spec.further_keys)

    def _advanced(self, kept: SideState, received: int | None, keys: tuple[KeyState, ...]) -> dict[str, int]:
        """The watermarks that are forwarded because they have advanced."""
        before = [kept.received, *(one.forwarded for one in self._key_states(kept))]
        after = [received, *(one.forwarded for one in keys)]
        names = (self.spec.watermark_key, *self.spec.further_keys)
        return {
            key: at for key, old, at in zip(names, before, after, strict=True) if at is not None and at != old
        }

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

    def _pending(self, state: DeduplicateState) -> SideBuffer:
        """The buffer of rows that can be retracted."""
        stored = {name: kind for name, kind in self.schema.items() if name != self.spec.retractions}
        return replace(
            self._kept(state),
            schema=pl.Schema({**stored, ARRIVAL: pl.Int64()}),
            keys=self.spec.further_times,
            state=state.pending,
            prefix="pending",
        )

    def _kept(self, state: DeduplicateState) -> SideBuffer:
        """The buffer of the keys and times of kept rows."""
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


class _Revision(NamedTuple):
    """What a batch changes in the output, and how many rows it stores."""

    rows: pl.DataFrame
    duplicates: int
    restored: int = 0
    arrived: int = 0
    unknown: tuple[pl.DataFrame, ...] = ()
    """The retractions of rows that are not stored."""


def _count_missing(numbers: pl.Series, others: pl.Series) -> int:
    """How many of the numbers are not among others."""
    return int((~numbers.is_in(others.implode())).sum())


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
    rows = rows.sort("number", maintain_order=True)  # rows are in order of their number
    after = rows["number"].search_sorted(rows["reach"], side="right").cast(pl.UInt32)
    link = pl.concat([after, pl.Series([total], dtype=pl.UInt32)])  # the last one leads to itself
    visited = pl.Series([0], dtype=pl.UInt32)
    while int(link[0]) < total:
        visited = pl.concat([visited, link[visited]]).unique()
        link = link[link]
    return rows["row"][visited.filter(visited < total).sort()]


def _freed(watermark: int | None, within: int) -> int | None:
    """The time below which kept rows are forgotten, clipped to the range of event times."""
    return clipped(watermark if watermark is None or watermark == END_OF_TIME else watermark - within)
