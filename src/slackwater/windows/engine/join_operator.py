"""The time-bounded join operator: batches of two streams in, pairs and padded rows out (rules J1 to J7).

One step joins the new rows with the buffered ones and with each other, on whole columns, and then advances
the watermarks. The order of rows within a step does not matter: a row that is not stored any more cannot, by
the definition of its limit, match any row of the other side that is not late.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import polars as pl

from slackwater.errors import CorruptState, InvalidArgument
from slackwater.progress.values import NO_WATERMARKS
from slackwater.time import BEGINNING_OF_TIME, END_OF_TIME
from slackwater.windows.engine.blobs import BlobStore
from slackwater.windows.engine.join_buffers import (
    CHUNK_ROWS,
    INDEX,
    JoinState,
    SavedIndex,
    SideBuffer,
    SideRows,
    SideState,
)
from slackwater.windows.engine.join_matching import matching_rows, time_range
from slackwater.windows.engine.side_watermarks import advance_sides
from slackwater.windows.spec import REACH, SIDES, JoinSpec, Side

Schema = Mapping[str, pl.DataType | type[pl.DataType]]

_OTHER: Final[Mapping[Side, Side]] = {"left": "right", "right": "left"}


@dataclass(frozen=True, slots=True)
class JoinOutput:
    """The output of one step of a join: rows, then watermarks.

    ``rows`` has the keys, then the other columns of the left side, then those of the right side; the missing
    side of a padded row is null. ``late`` has the rows that were dropped in this step by side, if the spec
    has ``late="emit"``; their number is always in ``dropped``, and the totals are in the state.
    ``watermarks`` has the sides whose watermark has advanced.

    >>> times = {"ts": pl.Int64}
    >>> same = JoinOperator(JoinSpec(on=(), before=0, after=0), left=times, right=times)
    >>> _, output = same.step(same.initial_state(), watermarks={"left": 5, "right": 4})
    >>> output.watermarks, output.dropped
    ({'left': 4, 'right': 4}, {'left': 0, 'right': 0})
    """

    rows: pl.DataFrame
    watermarks: Mapping[Side, int]
    dropped: Mapping[Side, int]
    late: Mapping[Side, pl.DataFrame] | None


class JoinOperator:
    """Joins two streams on keys and event time; described by a `JoinSpec`.

    Args:
        spec: what to join.
        left: the schema of the left side. A padded row needs the columns of a side that may not have sent any
            rows yet. The event time must be ``Int64`` microseconds.
        right: the schema of the right side.
        chunk_rows: the maximum number of rows per blob of the state.

    >>> bids = {"auction": pl.Int64, "ts": pl.Int64, "price": pl.Int64}
    >>> ends = {"auction": pl.Int64, "end": pl.Int64}
    >>> spec = JoinSpec(on=("auction",), before=0, after=10, how="left", right_time="end")
    >>> operator = JoinOperator(spec, left=bids, right=ends)
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

    def __init__(self, spec: JoinSpec, *, left: Schema, right: Schema, chunk_rows: int = CHUNK_ROWS) -> None:
        if chunk_rows < 1:
            raise InvalidArgument("chunk_rows", chunk_rows, "must be at least 1", fix="use the default")
        self.spec = spec
        self._chunk_rows = chunk_rows
        self._schemas: dict[Side, pl.Schema] = {"left": pl.Schema(left), "right": pl.Schema(right)}
        self._times = spec.times
        self._check_schemas()
        self._names = self._output_names()
        self.output_schema = pl.Schema({name: self._schemas["left"][name] for name in spec.on})
        """The names and types of the output columns."""
        for side in SIDES:
            for name, renamed in self._names[side].items():
                self.output_schema[renamed] = self._schemas[side][name]

    def initial_state(self, blobs: BlobStore | None = None) -> JoinState:
        """Create the state before the first step; ``blobs`` is where its blobs are stored."""
        return JoinState(SideState(), SideState(), {} if blobs is None else blobs)

    def save(self, state: JoinState) -> bytes:
        """Serialize the index of the state; its blobs are in the store already."""
        return INDEX.encode(SavedIndex(self._signature, state.left, state.right))

    def load(self, data: bytes, blobs: BlobStore) -> JoinState:
        """Load the state whose index `save` returned, with the store that has its blobs."""
        index = INDEX.decode(data)
        if index.join != self._signature:
            problem = f"it belongs to another join (saved: {index.join}; this join: {self._signature})"
            raise CorruptState(INDEX.what, problem)
        return JoinState(index.left, index.right, blobs)

    def buffered(self, state: JoinState) -> Mapping[Side, int]:
        """The number of buffered rows of each side, which may still match. Slow, because it reads state."""
        limits = _Limits(self.spec, state.left.watermark, state.right.watermark)
        buffers = self._buffers(state)
        return {side: buffers[side].live_rows(limits.bound(side)) for side in SIDES}

    def step(
        self,
        state: JoinState,
        left: pl.DataFrame | None = None,
        right: pl.DataFrame | None = None,
        watermarks: Mapping[str, int] = NO_WATERMARKS,
    ) -> tuple[JoinState, JoinOutput]:
        """Join a batch of one side or both, then advance the watermarks.

        Args:
            state: the state after the last step. It must not be used again: continue with the one returned.
            left: the rows of the left side that arrived.
            right: the rows of the right side that arrived.
            watermarks: by side, ``"left"`` and ``"right"``; a side may be left out if it has not changed.
                ``END_OF_TIME`` means that the side has ended.

        Returns:
            The new state and the output. Rows below the watermark of their side before the step are late.

        Raises:
            InvalidArgument: an argument cannot be used; the state is unchanged.
            WatermarkRegression: a watermark is below that of an earlier step; the state is unchanged.
        """
        batches = {"left": self._checked("left", left), "right": self._checked("right", right)}
        old = _Limits(self.spec, state.left.watermark, state.right.watermark)
        new = old.advanced(watermarks)

        late: dict[Side, pl.DataFrame] = {}
        fresh: dict[Side, SideRows] = {}
        for side in SIDES:
            watermark = old.watermark(side)
            below = batches[side][self._times[side]] < (BEGINNING_OF_TIME if watermark is None else watermark)
            late[side] = batches[side].filter(below)
            fresh[side] = self._side_rows(side, batches[side].filter(~below))

        buffers = self._buffers(state)
        rows = [self.output_schema.to_frame()]
        rows += [pairs for side in SIDES if (pairs := self._pairs(side, fresh, buffers)) is not None]
        for side in SIDES:
            rows.append(
                self._padded(side, _settle(buffers[side], fresh[side], old.bound(side), new.bound(side)))
            )

        dropped = {side: late[side].height for side in SIDES}
        state = JoinState(
            buffers["left"].commit(new.left, dropped["left"]),
            buffers["right"].commit(new.right, dropped["right"]),
            state.blobs,
        )
        return state, JoinOutput(
            rows=pl.concat(rows),
            watermarks={
                side: value
                for side in SIDES
                if (value := new.forwarded(side)) is not None and value != old.forwarded(side)
            },
            dropped=dropped,
            late=late if self.spec.late == "emit" else None,
        )

    # ---- joining

    def _pairs(
        self, side: Side, fresh: Mapping[Side, SideRows], buffers: Mapping[Side, SideBuffer]
    ) -> pl.DataFrame | None:
        """Join the new rows of one side, and mark matched rows.

        They are joined with the buffer of the other side, and those of the left side also with the new rows
        of the right side, so that each pair is emitted once (J4).
        """
        other = _OTHER[side]
        rows, buffer = fresh[side].rows, buffers[other]
        if rows.is_empty():
            return None
        low, high = time_range(rows[self._times[side]])
        earlier, later = (
            (self.spec.before, self.spec.after) if side == "left" else (self.spec.after, self.spec.before)
        )
        numbers = buffer.overlapping(low - earlier, high + later)
        others = [buffer.load(number) for number in numbers]
        if side == "left":
            others.append(fresh[other])
        if not others:
            return None
        candidates = pl.concat([each.rows for each in others])
        here, there = self._matching(side, rows, candidates)

        fresh[side].mark(here)
        if buffer.pads:
            matched = there.unique().sort()
            starts = pl.Series([0, *(each.rows.height for each in others)]).cum_sum()
            ranges = pairwise(matched.search_sorted(starts, side="left").to_list())
            for position, (start, stop) in enumerate(ranges):
                marked = matched.slice(start, stop - start) - starts[position]
                if position < len(numbers):
                    buffer.mark(numbers[position], marked)
                else:
                    others[position].mark(marked)

        mine, theirs = rows[here], candidates[there]
        left, right = (mine, theirs) if side == "left" else (theirs, mine)
        return pl.concat(
            [
                left.select(*self.spec.on, *_renamed(self._names["left"])),
                right.select(_renamed(self._names["right"])),
            ],
            how="horizontal",
        )

    def _matching(self, side: Side, rows: pl.DataFrame, others: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
        left, right = (rows, others) if side == "left" else (others, rows)
        left_rows, right_rows = matching_rows(
            left,
            right,
            on=self.spec.on,
            left_time=self.spec.left_time,
            right_time=self.spec.right_time,
            before=self.spec.before,
            after=self.spec.after,
        )
        return (left_rows, right_rows) if side == "left" else (right_rows, left_rows)

    def _padded(self, side: Side, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows of one side as output rows, with nulls in the columns of the other side."""
        other = _OTHER[side]
        nulls = [
            pl.lit(None, self._schemas[other][name]).alias(to) for name, to in self._names[other].items()
        ]
        columns = {side: _renamed(self._names[side]), other: nulls}
        return rows.select(*self.spec.on, *columns["left"], *columns["right"])

    def _side_rows(self, side: Side, rows: pl.DataFrame) -> SideRows:
        return SideRows(
            rows, pl.zeros(rows.height, dtype=pl.Boolean, eager=True) if self.spec.pads(side) else None
        )

    def _buffers(self, state: JoinState) -> dict[Side, SideBuffer]:
        sides: dict[Side, SideState] = {"left": state.left, "right": state.right}
        return {
            side: SideBuffer(
                side, self._times[side], self.spec.pads(side), sides[side], state.blobs, self._chunk_rows
            )
            for side in SIDES
        }

    # ---- validation

    def _check_schemas(self) -> None:
        for side in SIDES:
            schema, time = self._schemas[side], self._times[side]
            for name in (*self.spec.on, time):
                if name not in schema:
                    raise InvalidArgument(
                        side, schema.names(), f"has no column {name!r}", fix="add or rename the column"
                    )
            if schema[time] != pl.Int64:
                raise InvalidArgument(
                    f"{side}_time",
                    time,
                    f"has type {schema[time]}",
                    fix="use Int64 microseconds since 1970",
                )
        for name in self.spec.on:
            left, right = self._schemas["left"][name], self._schemas["right"][name]
            if left != right:
                raise InvalidArgument(
                    "on",
                    name,
                    f"has type {left} on the left and {right} on the right",
                    fix="cast one of them",
                )
            if left.is_nested() or left == pl.Object:
                raise InvalidArgument(
                    "on",
                    name,
                    f"has type {left}, which cannot be a key",
                    fix="use a column that is not nested",
                )

    def _output_names(self) -> dict[Side, dict[str, str]]:
        """The columns of each side that are not keys, with their names in the output."""
        own = {side: [name for name in self._schemas[side] if name not in self.spec.on] for side in SIDES}
        shared = set(own["left"]) & set(own["right"])
        names = {
            side: {name: name + suffix if name in shared else name for name in own[side]}
            for side, suffix in zip(SIDES, self.spec.suffixes, strict=True)
        }
        result = [*self.spec.on, *names["left"].values(), *names["right"].values()]
        if twice := sorted({name for name in result if result.count(name) > 1}):
            raise InvalidArgument(
                "suffixes",
                self.spec.suffixes,
                f"give two columns the name {twice[0]!r}",
                fix="use other suffixes",
            )
        return names

    def _checked(self, side: Side, batch: pl.DataFrame | None) -> pl.DataFrame:
        """The batch with its columns in the order of the schema; raises if it cannot be used."""
        schema, time = self._schemas[side], self._times[side]
        if batch is None:
            return schema.to_frame()
        if dict(batch.schema) != dict(schema):
            raise InvalidArgument(
                side, dict(batch.schema), "does not have the declared schema", fix=f"use {dict(schema)}"
            )
        times = batch[time]
        if times.has_nulls():
            raise InvalidArgument(side, None, f"event time {time!r} is null", fix="filter out such rows")
        outside = times.filter((times <= -REACH) | (times >= REACH))
        if not outside.is_empty():
            raise InvalidArgument(
                side,
                outside[0],
                f"event time {time!r} is more than 146,000 years from 1970",
                fix="use microseconds since 1970",
            )
        return batch.select(schema.names())

    @property
    def _signature(self) -> str:
        """The settings that saved state depends on: loading it into another join would lose or add rows."""
        schemas = ", ".join(f"{side}={dict(self._schemas[side])}" for side in SIDES)
        return f"{self.spec.signature} of {schemas}"


@dataclass(frozen=True, slots=True)
class _Limits:
    """The watermarks of both sides, and the limits that follow from them."""

    spec: JoinSpec
    left: int | None
    right: int | None

    def watermark(self, side: Side) -> int | None:
        """The watermark of a side; its rows below it are late (J1)."""
        return self.left if side == "left" else self.right

    def limit(self, side: Side) -> int | None:
        """The time below which rows of a side cannot match any future row of the other side (J2)."""
        other, reach = (self.right, self.spec.after) if side == "left" else (self.left, self.spec.before)
        return other if other is None or other == END_OF_TIME else other - reach

    def bound(self, side: Side) -> int | None:
        """The limit, clipped to the range of event times, so that it can be compared with a column."""
        limit = self.limit(side)
        return None if limit is None else max(-REACH, min(limit, REACH))

    def forwarded(self, side: Side) -> int | None:
        """The watermark of a side downstream (J6)."""
        own, limit = self.watermark(side), self.limit(side)
        return None if own is None or limit is None else max(BEGINNING_OF_TIME, min(own, limit))

    def advanced(self, watermarks: Mapping[str, int]) -> _Limits:
        """The limits after an update of the watermarks; raises if one decreases (J7)."""
        before = {side: at for side in SIDES if (at := self.watermark(side)) is not None}
        new = advance_sides(before, watermarks, "join")
        return _Limits(self.spec, new.get("left"), new.get("right"))


def _settle(buffer: SideBuffer, fresh: SideRows, previous: int | None, limit: int | None) -> pl.DataFrame:
    """Store the new rows that may still match, and remove those that cannot; returns the rows to pad.

    A new row below the limit before the step is not stored (J3). A new row below the limit after the step
    would be stored and removed at once (J5), so it is not stored either.
    """
    if limit is None:
        buffer.append(fresh)
        buffer.compact(None)
        return fresh.rows.clear()
    below = fresh.rows[buffer.time] < limit
    leaving = [fresh.take(below.arg_true()).unmatched()]
    if limit != previous:
        leaving += buffer.evict(previous, limit)
    buffer.append(fresh.take((~below).arg_true()))
    buffer.compact(limit)
    return pl.concat(leaving)


def _renamed(names: Mapping[str, str]) -> list[pl.Expr]:
    return [pl.col(name).alias(renamed) for name, renamed in names.items()]
