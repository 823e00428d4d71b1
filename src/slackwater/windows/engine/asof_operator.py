"""The as-of join operator: each left row with the right row that is closest in time.

A left row waits until no future right row can be a better match. The right watermark decides that, so the
result equals Polars' ``join_asof`` over all rows that were not late. A right row is removed when no left row,
buffered or future, can select it. If matches may be arbitrarily old, the latest row of each key stays.

Rows may be retracted while they are not behind the watermark of their side. A left row waits until its match
is behind the right watermark, so retractions of right rows only change the buffer. Left rows that were
emitted are kept until they cannot be retracted any more; the match of one that is retracted is found again,
because the right rows that future left rows may select include it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec
import polars as pl

from slackwater.errors import IncompatibleState, InvalidArgument
from slackwater.progress.saved_form import Saved, SavedForm
from slackwater.progress.values import NO_WATERMARKS
from slackwater.time import BEGINNING_OF_TIME, END_OF_TIME
from slackwater.windows.engine.asof_matching import ARRIVAL, closest_rows
from slackwater.windows.engine.blobs import BlobStore
from slackwater.windows.engine.dropped_samples import combined, late_sample
from slackwater.windows.engine.equal_rows import cancelled
from slackwater.windows.engine.further_keys import advanced_keys, forwarded_keys, received_keys
from slackwater.windows.engine.join_buffers import (
    CHUNK_ROWS,
    BufferSize,
    Chunk,
    SideBuffer,
    SideRows,
    SideState,
)
from slackwater.windows.engine.join_columns import PairColumns, Schema
from slackwater.windows.engine.join_limits import SideLevels, clipped
from slackwater.windows.engine.join_matching import time_range
from slackwater.windows.spec.asof_spec import AsofSpec
from slackwater.windows.spec.operator_spec import REACH, SIDES, Side

_DISTANCE: Final = "distance:"
_FEW_ROWS: Final = 4096
"""Superseded right rows are removed once there are about as many as rows that stay, plus this number."""


class SavedAsof(Saved):
    """The saved form of the index; ``join`` is the signature of the join that wrote it."""

    join: str
    left: SideState
    right: SideState
    arrived: int
    latest: int
    answered: SideState = msgspec.field(default_factory=SideState)
    """The left rows that were emitted and can be retracted; none if version 1 wrote it."""


INDEX: Final = SavedForm("index of an as-of join", "S", 2, SavedAsof, readable=(1,))


@dataclass(frozen=True, slots=True)
class AsofState:
    """The state of an as-of join between two steps: an index, and the store with its blobs.

    A step returns a new index with the same blob store; the state that it was given must not be used again.
    """

    left: SideState
    right: SideState
    blobs: BlobStore
    arrived: int = 0
    """The number of right rows that have arrived."""
    latest: int = 0
    """The number of right rows that stayed when superseded rows were last removed."""
    answered: SideState = field(default_factory=SideState)
    """The left rows that were emitted and can be retracted."""


@dataclass(frozen=True, slots=True)
class AsofOutput:
    """The output of one step of an as-of join: rows, then the watermark of the left side.

    ``rows`` has the keys, then the other columns of the left side, then those of the right side, which are
    null without a match. If left rows may be retracted, a last column marks retractions of earlier rows.
    ``late`` has the rows that were dropped in this step by side, if the spec has
    ``late="emit"``; their number is always in ``dropped``. ``watermarks`` has ``"left"`` if the watermark of
    the left side has advanced, and ``key_watermarks`` its further keys; those of the right side end here.

    >>> import slackwater as sw
    >>> times = {"ts": pl.Int64}
    >>> operator = sw.AsofOperator(sw.AsofSpec(), left=times, right=times)
    >>> _, output = operator.step(operator.initial_state(), watermarks={"left": 5, "right": 4})
    >>> output.watermarks, output.dropped
    ({'left': 5}, {'left': 0, 'right': 0})
    """

    rows: pl.DataFrame
    watermarks: Mapping[Side, int]
    dropped: Mapping[Side, int]
    late: Mapping[Side, pl.DataFrame] | None
    key_watermarks: Mapping[Side, Mapping[str, int]] = field(default_factory=dict)
    dropped_sample: pl.DataFrame | None = None
    """A few of the dropped rows of both sides, for reports; None if none was dropped."""


class AsofOperator:
    """Joins each left row with the right row that is closest in time; described by an `AsofSpec`.

    Args:
        spec: what to join.
        left: the schema of the left side. The event time must be ``Int64`` microseconds.
        right: the schema of the right side.
        chunk_rows: the maximum number of rows per blob of the state.

    Raises:
        InvalidArgument: a column is missing or has a type that cannot be used.

    >>> import slackwater as sw
    >>> trades = {"symbol": pl.String, "ts": pl.Int64, "size": pl.Int64}
    >>> quotes = {"symbol": pl.String, "ts": pl.Int64, "price": pl.Int64}
    >>> operator = sw.AsofOperator(sw.AsofSpec(on=("symbol",)), left=trades, right=quotes)
    >>> trade = pl.DataFrame({"symbol": ["a"], "ts": [10], "size": [3]})
    >>> quote = pl.DataFrame({"symbol": ["a", "a"], "ts": [7, 9], "price": [70, 90]})
    >>> state, output = operator.step(operator.initial_state(), trade, quote, {"left": 12, "right": 10})
    >>> output.rows.is_empty()  # a quote at 10 could still arrive
    True
    >>> state, output = operator.step(state, watermarks={"right": 11})
    >>> output.rows.rows(), output.watermarks
    ([('a', 10, 3, 9, 90)], {'left': 12})
    """

    def __init__(self, spec: AsofSpec, *, left: Schema, right: Schema, chunk_rows: int = CHUNK_ROWS) -> None:
        if chunk_rows < 1:
            raise InvalidArgument("chunk_rows", chunk_rows, "must be at least 1", fix="use the default")
        self.spec = spec
        self._chunk_rows = chunk_rows
        self._columns = PairColumns(spec, left=left, right=right)
        self.output_schema = self._columns.marked_schema(self._columns.pair_schema)
        """The names and types of the output columns."""

    def initial_state(self, blobs: BlobStore | None = None) -> AsofState:
        """Create the state before the first step; ``blobs`` is where its blobs are stored.

        Args:
            blobs: the store of the blobs; by default one in memory.
        """
        return AsofState(SideState(), SideState(), {} if blobs is None else blobs)

    def save(self, state: AsofState) -> bytes:
        """Serialize the index of the state; its blobs are in the store already.

        Args:
            state: the state that the last step returned.
        """
        saved = SavedAsof(
            self._signature, state.left, state.right, state.arrived, state.latest, state.answered
        )
        return INDEX.encode(saved)

    def load(self, data: bytes, blobs: BlobStore) -> AsofState:
        """Load the state whose index `save` returned, with the store that has its blobs.

        Args:
            data: the saved index.
            blobs: the store that has its blobs.
        """
        index = INDEX.decode(data)
        if index.join != self._signature:
            raise IncompatibleState("as-of join", [("the join", index.join, self._signature)])
        return AsofState(index.left, index.right, blobs, index.arrived, index.latest, index.answered)

    def buffer_sizes(self, state: AsofState) -> Mapping[Side, BufferSize]:
        """The size of the buffer of each side, without reading it; left rows that can be retracted count.

        Args:
            state: the state that the last step returned.
        """
        waiting, answered = state.left.size, state.answered.size
        left = BufferSize(waiting.rows + answered.rows, waiting.bytes + answered.bytes)
        return {"left": left, "right": state.right.size}

    def held(self, state: AsofState) -> int | None:
        """The earliest time of the left rows that are stored; None if there are none.

        Args:
            state: the state that the last step returned.
        """
        return min((chunk.low for one in (state.left, state.answered) for chunk in one.chunks), default=None)

    @property
    def output_names(self) -> Mapping[Side, Mapping[str, str]]:
        """The columns of each side that are not keys, with their names in the output.

        >>> import slackwater as sw
        >>> side = {"k": pl.String, "ts": pl.Int64}
        >>> sw.AsofOperator(sw.AsofSpec(on=("k",)), left=side, right=side).output_names["left"]
        {'ts': 'ts_left'}
        """
        return self._columns.names

    def late_rows(self, side: Side, rows: pl.DataFrame) -> pl.DataFrame:
        """Late rows of a side under the names of the output, with its keys and those of its columns there.

        Args:
            side: "left" or "right".
            rows: the late rows, with the columns of that side.
        """
        return self._columns.late_rows(side, rows, self.output_names[side])

    def step(
        self,
        state: AsofState,
        left: pl.DataFrame | None = None,
        right: pl.DataFrame | None = None,
        watermarks: Mapping[str, int] = NO_WATERMARKS,
        *,
        idle: Collection[str] = (),
        key_watermarks: Mapping[Side, Mapping[str, int]] | None = None,
    ) -> tuple[AsofState, AsofOutput]:
        """Add a batch of one side or both, advance the watermarks, and emit the left rows that are certain.

        Args:
            state: the state after the last step. It must not be used again: continue with the one returned.
            left, right: rows with the declared schema; None for no rows.
            watermarks: by side, ``"left"`` and ``"right"``; a side may be left out if it has not changed.
            idle: the sides whose inputs are all idle; has an effect only with ``idle="proceed"``.
            key_watermarks: by side, the watermarks of its further keys that have changed.

        Returns:
            The new state and the output. Rows below the watermark of their side before the step are late.

        Raises:
            InvalidArgument: an argument cannot be used; the state is unchanged.
            WatermarkRegression: a watermark is below that of an earlier step; the state is unchanged.
        """
        batches = {
            "left": self._columns.checked("left", left),
            "right": self._columns.checked("right", right),
        }
        old = SideLevels.of(state.left, state.right)
        new = old.advanced(self.spec, "as-of join", watermarks, idle)
        given = key_watermarks or {}
        received = received_keys("left", self.spec.left_keys, state.left.keys, given.get("left", {}))

        late: dict[Side, pl.DataFrame] = {}
        fresh: dict[Side, pl.DataFrame] = {}
        retracted: dict[Side, pl.DataFrame] = {}
        for side in SIDES:
            below = batches[side][self.spec.times[side]] < old.used.get(side, BEGINNING_OF_TIME)
            late[side], fresh[side] = batches[side].filter(below), batches[side].filter(~below)
            column = self.spec.retractions(side)
            retracted[side] = fresh[side].clear()
            if column is not None:
                fresh[side], retracted[side] = cancelled(fresh[side], column)

        buffers: dict[Side, SideBuffer] = {side: self._buffer(side, state) for side in SIDES}
        answered = self._answered(state)
        before = _held(old.used.get("left"), buffers["left"])
        unknown, retractions = self._retract_left(retracted["left"], buffers, answered)
        late["left"] = self._columns.with_unknown("left", late["left"], unknown)
        unknown = self._retract_right(retracted["right"], buffers["right"], before)
        late["right"] = self._columns.with_unknown("right", late["right"], unknown)

        arrived = pl.int_range(state.arrived, state.arrived + fresh["right"].height, eager=True)
        numbered = fresh["right"].with_columns(arrived.alias(ARRIVAL))
        buffers["right"].append(SideRows(self._matchable(numbered), None))
        rows, done = self._answer(fresh["left"], buffers, new.used.get("right"))
        held = _held(new.used.get("left"), buffers["left"])
        latest = self._free(buffers["right"], held, state.latest, new.used.get("right"))
        buffers["left"].compact(None)
        final = clipped(new.used.get("left"))
        if self.spec.left_retractions is not None:
            _keep(answered, done, final)

        keys = forwarded_keys(received, [(buffers["left"], None), (answered, final)])
        dropped = {side: late[side].height for side in SIDES}
        advanced = advanced_keys(self.spec.left_keys, received, keys)
        output = AsofOutput(
            rows=pl.concat([retractions, rows]),
            watermarks={} if held is None or held == before else {"left": held},
            dropped=dropped,
            late=late if self.spec.late == "emit" else None,
            key_watermarks={"left": advanced} if advanced else {},
            dropped_sample=combined(
                late_sample(late[side], self.spec.times[side], old.used.get(side), self.spec.on, side)
                for side in SIDES
            ),
        )
        state = AsofState(
            buffers["left"].commit(new, dropped["left"], keys),
            buffers["right"].commit(new, dropped["right"], ()),
            state.blobs,
            state.arrived + fresh["right"].height,
            latest,
            state.answered if self.spec.left_retractions is None else answered.commit(new, 0, ()),
        )
        return state, output

    # ---- answering

    def _answer(
        self, fresh: pl.DataFrame, buffers: Mapping[Side, SideBuffer], right_watermark: int | None
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Take the left rows that are certain out of the buffer, and store the new ones that are not.

        Returns:
            The output rows of the left rows that are certain, and these left rows.
        """
        buffer = buffers["left"]
        has_null = pl.zeros(fresh.height, dtype=pl.Boolean, eager=True)
        if self.spec.on:
            has_null = fresh.select(pl.any_horizontal(pl.col(self.spec.on).is_null())).to_series()
        done, waiting = [fresh.filter(has_null)], fresh.filter(~has_null)
        emitted = [self.output_schema.to_frame()]
        if self.spec.how == "left":  # a null key matches nothing, so there is nothing to wait for
            emitted.append(self._columns.marked(self._columns.padded("left", done[0])))
        if right_watermark is not None:
            numbers = buffer.overlapping(-REACH, min(right_watermark, REACH))
            parts = [waiting, *(buffer.load(number).rows for number in numbers)]
            several = pl.concat(parts)
            found, certain = self._settled(several, buffers["right"], right_watermark)
            emitted.append(found)
            done.append(several.filter(certain))
            remaining = [waiting.filter(~certain.head(waiting.height))]
            start = waiting.height
            for number, rows in zip(numbers, parts[1:], strict=True):
                mine = certain.slice(start, rows.height)
                start += rows.height
                if mine.any():
                    buffer.drop(number)
                    remaining.append(rows.filter(~mine))
            waiting = pl.concat(remaining)
        buffer.append(SideRows(waiting, None))
        return pl.concat(emitted), pl.concat(done)

    def _settled(
        self, rows: pl.DataFrame, right: SideBuffer, watermark: int
    ) -> tuple[pl.DataFrame, pl.Series]:
        """The output rows of the left rows that no future right row can change, and which ones these are."""
        time = self.spec.left_time
        near = rows[time] <= min(watermark, REACH)
        due = rows.filter(near)
        if due.is_empty():
            return self.output_schema.to_frame(), near
        matches = self._matches(due, right)
        certain = self._is_certain(due[time], matches[self.spec.right_time], watermark)
        settled = near.scatter(near.arg_true(), certain)
        return self._emitted(due.filter(certain), matches.filter(certain)), settled

    def _matches(self, left: pl.DataFrame, right: SideBuffer) -> pl.DataFrame:
        """The right row that each left row selects, which is null for a row without a match."""
        candidates = self._candidates(right, left)
        return candidates.select(pl.all().gather(self._closest(left, candidates)))

    def _is_certain(self, times: pl.Series, found: pl.Series, watermark: int) -> pl.Series:
        """Whether no right row at or after the watermark can change the match, for each left row."""
        if watermark == END_OF_TIME:
            return pl.repeat(True, times.len(), eager=True)  # noqa: FBT003
        if self.spec.direction == "backward":
            return times < watermark
        if self.spec.direction == "forward":
            # Of rows at the same time the first to arrive is selected, unless it is retracted.
            certain = found <= watermark if self.spec.right_retractions is None else found < watermark
        else:
            certain = times + (found - times).abs() < watermark
        if self.spec.tolerance is None:
            return certain.fill_null(value=False)
        return certain.fill_null(value=False) | (times + self.spec.tolerance < watermark)

    def _emitted(self, left: pl.DataFrame, right: pl.DataFrame, *, retraction: bool = False) -> pl.DataFrame:
        """Left rows with their matches, which are null for rows without one."""
        rows = self._columns.marked(self._columns.pairs(left, right), retraction=retraction)
        return rows if self.spec.how == "left" else rows.filter(right[ARRIVAL].is_not_null())

    def _closest(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.Series:
        return closest_rows(
            left,
            right,
            on=self.spec.on,
            left_time=self.spec.left_time,
            right_time=self.spec.right_time,
            direction=self.spec.direction,
            tolerance=self.spec.tolerance,
        )

    # ---- retractions

    def _retract_left(
        self, retracted: pl.DataFrame, buffers: Mapping[Side, SideBuffer], answered: SideBuffer
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Remove retracted left rows.

        Returns:
            The retractions of rows that are not stored, and the retractions of the output of the others.
        """
        _, emitted = buffers["left"].remove(retracted)
        removed, unknown = answered.remove(emitted)
        if removed.rows.is_empty():
            return unknown, self.output_schema.to_frame()
        matches = self._matches(removed.rows, buffers["right"])
        return unknown, self._emitted(removed.rows, matches, retraction=True)

    def _retract_right(self, retracted: pl.DataFrame, buffer: SideBuffer, held: int | None) -> pl.DataFrame:
        """Remove retracted right rows; return the retractions of rows that should be stored, and are not.

        A row below the limit of the buffer may have been removed, because no left row can select it.
        """
        _, unknown = buffer.remove(self._matchable(retracted))
        limit = self._limit(held)
        return unknown if limit is None else unknown.filter(pl.col(self.spec.right_time) >= limit)

    # ---- right rows

    def _matchable(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The right rows that can match: those without a null in their key."""
        return rows.drop_nulls(list(self.spec.on)) if self.spec.on else rows

    def _candidates(self, buffer: SideBuffer, left: pl.DataFrame) -> pl.DataFrame:
        """The right rows among which the matches of left rows are.

        Chunks whose times overlap those of the left rows come first, then further chunks in the direction of
        the search, until no left row can have a better match in the next one.
        """
        low, high = time_range(left[self.spec.left_time])
        reach = 2 * REACH if self.spec.tolerance is None else self.spec.tolerance
        parts = [buffer.empty()]
        parts += [buffer.load(chunk.number).rows for chunk in buffer.chunks if _overlaps(chunk, low, high)]
        if self.spec.looks_back:
            older = [chunk for chunk in buffer.chunks if low - reach <= chunk.high < low]
            parts += self._further(buffer, left, parts, sorted(older, key=lambda chunk: -chunk.high))
        if self.spec.looks_ahead:
            newer = [chunk for chunk in buffer.chunks if high < chunk.low <= high + reach]
            parts += self._further(buffer, left, parts, sorted(newer, key=lambda chunk: chunk.low))
        return pl.concat(parts)

    def _further(
        self, buffer: SideBuffer, left: pl.DataFrame, parts: Sequence[pl.DataFrame], chunks: Sequence[Chunk]
    ) -> list[pl.DataFrame]:
        """The rows of further chunks in which left rows may have a better match than those found so far.

        The chunks are in order of their distance to the left rows.
        """
        loaded: list[pl.DataFrame] = []
        if not chunks:
            return loaded
        open_rows = left.with_columns(self._distance(left, pl.concat(parts)).alias(_DISTANCE))
        time = pl.col(self.spec.left_time)
        for chunk in chunks:
            away = pl.max_horizontal(time - chunk.high, chunk.low - time)
            reachable = (pl.col(_DISTANCE) >= away).fill_null(value=True)
            if self.spec.tolerance is not None:
                reachable &= away <= self.spec.tolerance
            open_rows = open_rows.filter(reachable)
            if open_rows.is_empty():
                break
            rows = buffer.load(chunk.number).rows
            loaded.append(rows)
            found = self._distance(open_rows, rows)
            open_rows = open_rows.with_columns(pl.min_horizontal(_DISTANCE, found).alias(_DISTANCE))
        return loaded

    def _distance(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.Series:
        """The distance of each left row to its match; null without one."""
        found = right[self.spec.right_time].gather(self._closest(left, right))
        return (found - left[self.spec.left_time]).abs()

    def _limit(self, held: int | None) -> int | None:
        """The time below which no left row at or after ``held`` can select a right row; None if any can."""
        if held is None or held == END_OF_TIME:
            return clipped(held)
        if self.spec.looks_back and self.spec.tolerance is None:
            return None
        return clipped(held - ((self.spec.tolerance or 0) if self.spec.looks_back else 0))

    def _free(self, buffer: SideBuffer, held: int | None, latest: int, watermark: int | None) -> int:
        """Remove right rows that no left row at or after ``held`` can select.

        Returns:
            The number of rows that stayed when superseded rows were last removed.
        """
        limit = self._limit(held)
        if limit is not None:
            buffer.evict(None, limit, limit)
        buffer.compact(limit)
        if held is None or limit is not None:
            return 0 if held == END_OF_TIME else latest
        if self.spec.right_retractions is not None:  # a row that can be retracted does not supersede others
            held = BEGINNING_OF_TIME if watermark is None else min(held, watermark - 1)
        return self._remove_superseded(buffer, held, latest)

    def _remove_superseded(self, buffer: SideBuffer, held: int, latest: int) -> int:
        """Keep only the latest row of each key among the chunks that do not end after ``held``."""
        passed = [chunk for chunk in buffer.chunks if chunk.high <= held]
        if sum(chunk.rows for chunk in passed) < 2 * latest + min(_FEW_ROWS, self._chunk_rows):
            return latest
        rows = pl.concat([buffer.load(chunk.number).rows for chunk in passed])
        rows = rows.sort(self.spec.right_time, ARRIVAL)
        on = list(self.spec.on)
        rows = rows.unique(on, keep="last", maintain_order=True) if on else rows.tail(1)
        for chunk in passed:
            buffer.drop(chunk.number)
        buffer.append(SideRows(rows, None))
        return rows.height

    # ---- state

    def _buffer(self, side: Side, state: AsofState) -> SideBuffer:
        numbered = {ARRIVAL: pl.Int64()} if side == "right" else {}
        return SideBuffer(
            side=side,
            time=self.spec.times[side],
            keys=tuple(column for _, column in self.spec.keys(side)),
            schema=pl.Schema({**self._columns.stored[side], **numbered}),
            state=state.left if side == "left" else state.right,
            blobs=state.blobs,
            chunk_rows=self._chunk_rows,
            operator="an as-of join",
        )

    def _answered(self, state: AsofState) -> SideBuffer:
        """The buffer of left rows that were emitted and can be retracted."""
        buffer = self._buffer("left", state)
        return replace(buffer, state=state.answered, prefix="answered")

    @property
    def _signature(self) -> str:
        return f"{self.spec.signature} of {self._columns.signature}"


def _held(watermark: int | None, buffer: SideBuffer) -> int | None:
    """The watermark, held at the earliest buffered row; None while it is unknown."""
    if watermark is None:
        return None
    return min([watermark, *(chunk.low for chunk in buffer.chunks)])


def _keep(buffer: SideBuffer, rows: pl.DataFrame, final: int | None) -> None:
    """Store rows that can be retracted, and remove those before ``final``, which cannot any more."""
    if final is not None:
        buffer.evict(None, final, final)
        rows = rows.filter(pl.col(buffer.time) >= final)
    buffer.append(SideRows(rows, None))
    buffer.compact(final)


def _overlaps(chunk: Chunk, low: int, high: int) -> bool:
    return chunk.high >= low and chunk.low <= high
