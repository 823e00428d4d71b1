"""The time-bounded join operator: batches of two streams in, pairs and padded rows out (rules J1 to J7).

One step joins the new rows with the buffered ones and with each other, on whole columns, and then advances
the watermarks. The order of rows within a step does not matter: a row that is not stored any more cannot, by
the definition of its limit, match any row of the other side that is not late.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

import polars as pl

from slackwater.errors import IncompatibleState, InvalidArgument
from slackwater.progress.values import NO_WATERMARKS
from slackwater.time import BEGINNING_OF_TIME
from slackwater.windows.engine.blobs import BlobStore
from slackwater.windows.engine.dropped_samples import combined, late_sample
from slackwater.windows.engine.equal_rows import cancelled
from slackwater.windows.engine.further_keys import advanced_keys, forwarded_keys, received_keys
from slackwater.windows.engine.join_buffers import (
    CHUNK_ROWS,
    INDEX,
    BufferSize,
    JoinState,
    SavedIndex,
    SideBuffer,
    SideRows,
    SideState,
    decode_index,
)
from slackwater.windows.engine.join_columns import PairColumns, Schema
from slackwater.windows.engine.join_limits import OTHER, JoinLimits, SideLevels
from slackwater.windows.engine.join_matching import MatchingRows, matching_rows, time_range
from slackwater.windows.engine.pieces import PIECE_ROWS, Pieces, check_piece_rows, rows_per_piece
from slackwater.windows.spec.join_spec import JoinSpec
from slackwater.windows.spec.operator_spec import SIDES, Side

KeyWatermarks = Mapping[Side, Mapping[str, int]]

_HOLDS: Final = "condition:"


@dataclass(frozen=True, slots=True)
class JoinOutput:
    """The output of one step of a join: rows, then watermarks.

    ``rows`` has the keys, then the other columns of the left side, then those of the right side; the missing
    side of a padded row is null. A semi or anti join has only the columns of the left side. A join that takes
    retractions adds a last column that marks retractions of earlier rows. ``late`` has the rows that were
    dropped in this step by side, if the spec has ``late="emit"``; their number is always in ``dropped``, and
    the totals are in the state. ``watermarks`` has the sides whose watermark has advanced, and
    ``key_watermarks`` their further watermark keys that have advanced.

    >>> import slackwater as sw
    >>> times = {"ts": pl.Int64}
    >>> same = sw.JoinOperator(sw.JoinSpec(on=(), before=0, after=0), left=times, right=times)
    >>> _, output = same.step(same.initial_state(), watermarks={"left": 5, "right": 4})
    >>> output.watermarks, output.dropped
    ({'left': 4, 'right': 4}, {'left': 0, 'right': 0})
    """

    rows: pl.DataFrame
    watermarks: Mapping[Side, int]
    dropped: Mapping[Side, int]
    late: Mapping[Side, pl.DataFrame] | None
    key_watermarks: KeyWatermarks = field(default_factory=dict)
    dropped_sample: pl.DataFrame | None = None
    """A few of the dropped rows of both sides, for reports; None if none was dropped."""


class JoinOperator:
    """Joins two streams on keys and event time; described by a `JoinSpec`.

    Args:
        spec: what to join.
        left: the schema of the left side. A padded row needs the columns of a side that may not have sent any
            rows yet. The event time must be ``Int64`` microseconds.
        right: the schema of the right side.
        chunk_rows: the maximum number of rows per blob of the state.
        piece_rows: the maximum number of pairs that are in memory at a time; see `pieces`.

    >>> import slackwater as sw
    >>> bids = {"auction": pl.Int64, "ts": pl.Int64, "price": pl.Int64}
    >>> ends = {"auction": pl.Int64, "end": pl.Int64}
    >>> spec = sw.JoinSpec(on=("auction",), before=0, after=10, how="left", right_time="end")
    >>> operator = sw.JoinOperator(spec, left=bids, right=ends)
    >>> state = operator.initial_state()
    >>> bid = pl.DataFrame({"auction": [1, 2], "ts": [3, 4], "price": [70, 80]})
    >>> end = pl.DataFrame({"auction": [1], "end": [13]})
    >>> state, output = operator.step(state, bid, end)
    >>> output.rows.rows(named=True)
    [{'auction': 1, 'ts': 3, 'price': 70, 'end': 13}]
    >>> state, output = operator.step(state, watermarks={"left": 20, "right": 15})
    >>> output.rows.rows(), output.watermarks
    ([(2, 4, 80, None)], {'left': 5, 'right': 15})
    """

    def __init__(
        self,
        spec: JoinSpec,
        *,
        left: Schema,
        right: Schema,
        chunk_rows: int = CHUNK_ROWS,
        piece_rows: int = PIECE_ROWS,
    ) -> None:
        if chunk_rows < 1:
            raise InvalidArgument("chunk_rows", chunk_rows, "must be at least 1", fix="use the default")
        self.spec = spec
        self._chunk_rows = chunk_rows
        self._piece_rows = check_piece_rows(piece_rows)
        self._columns = PairColumns(spec, left=left, right=right)
        self._times = spec.times
        self.output_schema = self._output_schema()
        """The names and types of the output columns."""
        self._check_condition()

    def initial_state(self, blobs: BlobStore | None = None) -> JoinState:
        """Create the state before the first step; ``blobs`` is where its blobs are stored.

        Args:
            blobs: the store of the blobs; by default one in memory.
        """
        return JoinState(SideState(), SideState(), {} if blobs is None else blobs)

    def save(self, state: JoinState) -> bytes:
        """Serialize the index of the state; its blobs are in the store already.

        Args:
            state: the state that the last step returned.
        """
        return INDEX.encode(SavedIndex(self._signature, state.left, state.right))

    def load(self, data: bytes, blobs: BlobStore) -> JoinState:
        """Load the state whose index `save` returned, with the store that has its blobs.

        Args:
            data: the saved index.
            blobs: the store that has its blobs.
        """
        index = decode_index(data)
        if index.join != self._signature:
            raise IncompatibleState("join", [("the join", index.join, self._signature)])
        return JoinState(index.left, index.right, blobs)

    def buffered(self, state: JoinState) -> Mapping[Side, int]:
        """The number of buffered rows of each side, which may still match. Slow, because it reads state.

        Args:
            state: the state that the last step returned.
        """
        limits = self._limits(state)
        buffers = self._buffers(state)
        return {side: buffers[side].live_rows(limits.freed(side)) for side in SIDES}

    def buffer_sizes(self, state: JoinState) -> Mapping[Side, BufferSize]:
        """The size of the buffer of each side, without reading it.

        Rows that cannot match any more count until their chunk is removed or rewritten.

        Args:
            state: the state that the last step returned.

        >>> import slackwater as sw
        >>> times = {"ts": pl.Int64}
        >>> same = sw.JoinOperator(sw.JoinSpec(on=(), before=0, after=0), left=times, right=times)
        >>> state, _ = same.step(same.initial_state(), pl.DataFrame({"ts": [1, 2]}))
        >>> same.buffer_sizes(state)["left"].rows
        2
        """
        return {"left": state.left.size, "right": state.right.size}

    def held(self, state: JoinState) -> int | None:
        """The earliest time of the buffered rows, which may still be emitted; None if there are none.

        Args:
            state: the state that the last step returned.
        """
        return min((chunk.low for side in (state.left, state.right) for chunk in side.chunks), default=None)

    def step(
        self,
        state: JoinState,
        left: pl.DataFrame | None = None,
        right: pl.DataFrame | None = None,
        watermarks: Mapping[str, int] = NO_WATERMARKS,
        *,
        idle: Collection[str] = (),
        key_watermarks: KeyWatermarks | None = None,
    ) -> tuple[JoinState, JoinOutput]:
        """Join a batch of one side or both, then advance the watermarks.

        Args:
            state: the state after the last step. It must not be used again: continue with the one returned.
            left: the rows of the left side that arrived.
            right: the rows of the right side that arrived.
            watermarks: by side, ``"left"`` and ``"right"``; a side may be left out if it has not changed.
                ``END_OF_TIME`` means that the side has ended.
            idle: the sides whose inputs are all idle; has an effect only with ``idle="proceed"``.
            key_watermarks: by side, the watermarks of its further keys that have changed.

        Returns:
            The new state and the output. Rows below the watermark of their side before the step are late.

        Raises:
            InvalidArgument: an argument cannot be used; the state is unchanged.
            WatermarkRegression: a watermark is below that of an earlier step; the state is unchanged.
        """
        emitted = Pieces(
            self.pieces(state, left, right, watermarks, idle=idle, key_watermarks=key_watermarks)
        )
        rows = list(emitted)
        after, output = emitted.result
        return after, replace(output, rows=pl.concat([output.rows, *rows]))

    def pieces(
        self,
        state: JoinState,
        left: pl.DataFrame | None = None,
        right: pl.DataFrame | None = None,
        watermarks: Mapping[str, int] = NO_WATERMARKS,
        *,
        idle: Collection[str] = (),
        key_watermarks: KeyWatermarks | None = None,
    ) -> Generator[pl.DataFrame, None, tuple[JoinState, JoinOutput]]:
        """Do the same as `step`, but yield the output rows in pieces.

        A frequent key can have millions of pairs in one step. Only one piece of them is in memory at a time.
        The state is written after the last piece. The errors are those of `step`.

        Args:
            state: the state that the last step returned, or the initial one.
            left, right: rows with the declared schema; None for no rows.
            watermarks: the new watermark of each side that advanced, by side.
            idle: the sides that are idle.
            key_watermarks: new watermarks of further watermark keys, by side and key.

        Yields:
            Frames with the columns of ``output_schema``.

        Returns:
            The new state, and the output without rows.

        >>> import slackwater as sw
        >>> times = {"ts": pl.Int64}
        >>> spec = sw.JoinSpec(on=(), before=0, after=0)
        >>> same = sw.JoinOperator(spec, left=times, right=times, piece_rows=3)
        >>> rows = pl.DataFrame({"ts": [1, 1]})
        >>> pieces = same.pieces(same.initial_state(), rows, rows, {"left": 5, "right": 4})
        >>> [piece.height for piece in pieces]
        [3, 1]
        """
        batches = {
            "left": self._columns.checked("left", left),
            "right": self._columns.checked("right", right),
        }
        old = self._limits(state)
        new = old.advanced(watermarks, idle)
        given, states = key_watermarks or {}, {"left": state.left, "right": state.right}
        received = {
            side: received_keys(side, self.spec.keys(side), states[side].keys, given.get(side, {}))
            for side in SIDES
        }

        buffers = self._buffers(state)
        late: dict[Side, pl.DataFrame] = {}
        fresh: dict[Side, SideRows] = {}
        for side in SIDES:
            watermark = old.watermark(side)
            below = batches[side][self._times[side]] < (BEGINNING_OF_TIME if watermark is None else watermark)
            late[side] = batches[side].filter(below)
            accepted, column = batches[side].filter(~below), self.spec.retractions(side)
            if self.spec.on and not buffers[side].settles:  # a row with a null key is never emitted
                accepted = accepted.drop_nulls(list(self.spec.on))
            if column is not None:
                accepted, retracted = cancelled(accepted, column)
                unknown = yield from self._retract(side, retracted, buffers, old)
                late[side] = self._columns.with_unknown(side, late[side], unknown)
            fresh[side] = self._side_rows(side, accepted)

        for side in SIDES:
            yield from self._marked(self._pairs(side, fresh, buffers))
        if self.spec.how == "semi":
            yield from self._selected(fresh["left"], buffers["left"])
        for side in SIDES:
            settled = _settle(
                buffers[side], fresh[side], old.settled(side), new.settled(side), new.freed(side)
            )
            if settled.height:
                yield from self._marked([self._padded(side, settled)])

        keys = {side: forwarded_keys(received[side], [(buffers[side], new.freed(side))]) for side in SIDES}
        dropped = {side: late[side].height for side in SIDES}
        output = JoinOutput(
            rows=self.output_schema.to_frame(),
            watermarks={
                side: value
                for side in self.spec.forwarding
                if (value := new.forwarded(side)) is not None and value != old.forwarded(side)
            },
            dropped=dropped,
            late=late if self.spec.late == "emit" else None,
            key_watermarks={
                side: advanced
                for side in self.spec.forwarding
                if (advanced := advanced_keys(self.spec.keys(side), received[side], keys[side]))
            },
            dropped_sample=combined(
                late_sample(late[side], self._times[side], old.watermark(side), self.spec.on, side)
                for side in SIDES
            ),
        )
        state = JoinState(
            buffers["left"].commit(new.levels, dropped["left"], keys["left"]),
            buffers["right"].commit(new.levels, dropped["right"], keys["right"]),
            state.blobs,
        )
        return state, output

    # ---- joining

    def _pairs(
        self, side: Side, fresh: Mapping[Side, SideRows], buffers: Mapping[Side, SideBuffer]
    ) -> Iterator[pl.DataFrame]:
        """Join the new rows of one side, and record matches.

        They are joined with the buffer of the other side, and those of the left side also with the new rows
        of the right side, so that each pair is emitted once (J4).
        """
        more = [fresh["right"]] if side == "left" else []
        return self._joined(side, fresh[side], buffers[OTHER[side]], more)

    def _joined(
        self, side: Side, rows: SideRows, buffer: SideBuffer, more: list[SideRows], change: int = 1
    ) -> Iterator[pl.DataFrame]:
        """Pairs of rows of one side with the buffer of the other side and with more of its rows.

        The matches are recorded on both sides; with ``change=-1`` those of the other side are taken back.
        A semi or anti join records them too, but has no pairs in its output.
        """
        if rows.rows.is_empty():
            return
        low, high = time_range(rows.rows[self._times[side]])
        earlier, later = (
            (self.spec.before, self.spec.after) if side == "left" else (self.spec.after, self.spec.before)
        )
        numbers = buffer.overlapping(low - earlier, high + later)
        others = [*map(buffer.load, numbers), *more]
        if not others:
            return
        candidates = pl.concat([each.rows for each in others])
        starts = pl.Series([0, *(each.rows.height for each in others)]).cum_sum()
        matching = self._matching(side, rows.rows, candidates)
        for piece in matching.pieces(rows_per_piece(rows.rows, candidates, rows=self._piece_rows)):
            here, there = piece if side == "left" else piece[::-1]
            if not self.spec.selects_left or self.spec.predicate is not None:
                mine, theirs = rows.rows[here], candidates[there]
                pairs = self._columns.pairs(*((mine, theirs) if side == "left" else (theirs, mine)))
                if self.spec.predicate is not None:
                    holds = pairs.select(pl.lit(value=True).alias(_HOLDS) & self.spec.predicate).to_series()
                    holds = holds.fill_null(value=False)
                    pairs, here, there = pairs.filter(holds), here.filter(holds), there.filter(holds)
                if not self.spec.selects_left:
                    yield pairs

            if change > 0:
                rows.mark(here)
            if buffer.tracks:
                matched = there.sort()
                ranges = pairwise(matched.search_sorted(starts, side="left").to_list())
                for position, (start, stop) in enumerate(ranges):
                    marked = matched.slice(start, stop - start) - starts[position]
                    if position < len(numbers):
                        buffer.mark(numbers[position], marked, change)
                    else:
                        others[position].mark(marked, change)

    def _matching(self, side: Side, rows: pl.DataFrame, others: pl.DataFrame) -> MatchingRows:
        left, right = (rows, others) if side == "left" else (others, rows)
        return matching_rows(
            left,
            right,
            on=self.spec.on,
            left_time=self.spec.left_time,
            right_time=self.spec.right_time,
            before=self.spec.before,
            after=self.spec.after,
        )

    def _retract(
        self, side: Side, retracted: pl.DataFrame, buffers: Mapping[Side, SideBuffer], limits: JoinLimits
    ) -> Generator[pl.DataFrame, None, pl.DataFrame]:
        """Remove retracted rows of one side.

        Yields:
            The retractions of what the removed rows had emitted: pairs, a padded row, or the row itself.

        Returns:
            The retractions of rows that are not in the buffer.
        """
        if retracted.is_empty():
            return retracted
        buffer = buffers[side]
        removed, unknown = buffer.remove(retracted)
        pairs = self._joined(side, removed, buffers[OTHER[side]], [], change=-1)
        yield from self._marked(pairs, retraction=True)
        emitted: list[pl.DataFrame] = []
        if self.spec.how == "semi" and side == "left":
            emitted.append(self._left_rows(removed.rows.filter(removed.has_match())))
        settled = limits.settled(side)
        if buffer.settles and settled is not None:
            alone = removed.unmatched().filter(pl.col(buffer.time) < settled)
            emitted.append(self._padded(side, alone))
        yield from self._marked(emitted, retraction=True)
        return unknown

    def _selected(self, fresh: SideRows, buffer: SideBuffer) -> Iterator[pl.DataFrame]:
        """The left rows of a semi join that have got their first match, or have lost their last one."""
        found = [fresh.rows.filter(fresh.has_match())]
        lost: list[pl.DataFrame] = []
        for chunk in buffer.changed_matches():
            before, after = chunk.was_matched, chunk.has_match()
            if before is not None:
                found.append(chunk.rows.filter(after & ~before))
                if self.spec.retracts:
                    lost.append(chunk.rows.filter(before & ~after))
        yield from self._marked(map(self._left_rows, found))
        yield from self._marked(map(self._left_rows, lost), retraction=True)

    @property
    def output_names(self) -> Mapping[Side, Mapping[str, str]]:
        """The columns of each side that are in the output and not keys, with their names there.

        >>> import slackwater as sw
        >>> side = {"k": pl.String, "ts": pl.Int64}
        >>> spec = sw.JoinSpec(on=("k",), before=0, after=0)
        >>> sw.JoinOperator(spec, left=side, right=side).output_names["left"]
        {'ts': 'ts_left'}
        """
        if not self.spec.selects_left:
            return self._columns.names
        return {"left": {name: name for name in self._columns.names["left"]}, "right": {}}

    def late_rows(self, side: Side, rows: pl.DataFrame) -> pl.DataFrame:
        """Late rows of a side under the names of the output, with its keys and those of its columns there.

        Args:
            side: "left" or "right".
            rows: the late rows, with the columns of that side.
        """
        return self._columns.late_rows(side, rows, self.output_names[side])

    def _padded(self, side: Side, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows of one side as output rows, with nulls in the columns of the other side."""
        if self.spec.selects_left:
            return self._left_rows(rows)
        return self._columns.padded(side, rows)

    def _left_rows(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Left rows as output rows of a semi or anti join."""
        return rows.select(name for name in self.output_schema if name != self.spec.output_retractions)

    def _marked(self, frames: Iterable[pl.DataFrame], *, retraction: bool = False) -> Iterator[pl.DataFrame]:
        """Output rows with the column that marks retractions, if the join retracts; no empty frames."""
        for rows in frames:
            if rows.height:
                yield self._columns.marked(rows, retraction=retraction)

    def _side_rows(self, side: Side, rows: pl.DataFrame) -> SideRows:
        if not self.spec.tracks(side):
            return SideRows(rows, None)
        kind = pl.Int64 if self.spec.takes_retractions else pl.Boolean
        return SideRows(rows, pl.zeros(rows.height, dtype=kind, eager=True))

    def _limits(self, state: JoinState) -> JoinLimits:
        return JoinLimits(self.spec, SideLevels.of(state.left, state.right))

    def _buffers(self, state: JoinState) -> dict[Side, SideBuffer]:
        sides: dict[Side, SideState] = {"left": state.left, "right": state.right}
        return {
            side: SideBuffer(
                side=side,
                time=self._times[side],
                schema=self._columns.stored[side],
                keys=tuple(column for _, column in self.spec.keys(side)),
                tracks=self.spec.tracks(side),
                settles=self.spec.pads(side) or (side == "left" and self.spec.how == "anti"),
                keeps_matched=not (
                    side == "left" and self.spec.selects_left and not self.spec.takes_retractions
                ),
                state=sides[side],
                blobs=state.blobs,
                chunk_rows=self._chunk_rows,
            )
            for side in SIDES
        }

    # ---- validation

    def _output_schema(self) -> pl.Schema:
        schema = self._columns.pair_schema
        if self.spec.selects_left:
            left = self._columns.stored["left"]
            others = [name for name in left if name not in self.spec.on]
            schema = pl.Schema({name: left[name] for name in (*self.spec.on, *others)})
        return self._columns.marked_schema(schema)

    def _check_condition(self) -> None:
        """Raise unless the condition is a boolean expression over the columns of a pair."""
        if self.spec.predicate is None:
            return
        try:
            found = self._columns.pair_schema.to_frame().select(pl.lit(1), self.spec.predicate.alias(_HOLDS))
        except pl.exceptions.PolarsError as error:
            raise InvalidArgument(
                "condition",
                self.spec.condition_text,
                f"cannot be evaluated ({error})",
                fix=f"use the columns {', '.join(self._columns.pair_schema)}",
            ) from None
        if found.schema[_HOLDS] not in (pl.Boolean, pl.Null):
            raise InvalidArgument(
                "condition",
                self.spec.condition_text,
                f"has type {found.schema[_HOLDS]}, not Boolean",
                fix="give a comparison",
            )

    @property
    def _signature(self) -> str:
        """The settings that saved state depends on: loading it into another join would lose or add rows."""
        return f"{self.spec.signature} of {self._columns.signature}"


def _settle(
    buffer: SideBuffer, fresh: SideRows, previous: int | None, settled: int | None, freed: int | None
) -> pl.DataFrame:
    """Store the new rows that are still needed, and remove those that are not; returns the rows to pad.

    A new row below the limit before the step is not stored (J3). A new row below the limit after the step
    would be stored and removed at once (J5), so it is not stored either, unless it can be retracted.
    """
    if settled is None:
        buffer.append(fresh)
        buffer.compact(None)
        return fresh.rows.clear()
    times = fresh.rows[buffer.time]
    leaving = [fresh.rows.clear()]
    if buffer.settles:
        leaving.append(fresh.take((times < settled).arg_true()).unmatched())
    leaving += buffer.evict(previous, settled, freed)
    buffer.append(fresh if freed is None else fresh.take((times >= freed).arg_true()))
    buffer.compact(freed)
    return pl.concat(leaving)
