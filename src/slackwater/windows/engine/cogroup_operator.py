"""Cogroup and join of two streams in the same windows.

Both inputs go through one windowed operator whose watermark is the minimum of the two; it does not advance
until both are known. A side whose inputs are all idle is left out, as in a union. Windows, triggers, lateness
and modes are those of that operator, and a pane contains the rows of the left and of the right side. A join
forms pairs of them, within the key and the window.

Internal columns have a prefix, so that they cannot collide with columns of the user: keys are
``merge:key:0``, ``merge:key:1``, …, and the carried columns of each side are in one struct, ``merge:left``
and ``merge:right``.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import polars as pl

from slackwater.errors import IncompatibleState, InvalidArgument
from slackwater.progress.saved_form import Saved, SavedForm
from slackwater.progress.values import NO_WATERMARKS
from slackwater.windows.accumulations import Collect
from slackwater.windows.engine.blobs import BlobStore
from slackwater.windows.engine.dropped_samples import KEY
from slackwater.windows.engine.frames import match
from slackwater.windows.engine.join_matching import MatchingRows
from slackwater.windows.engine.pieces import PIECE_ROWS, Pieces, check_piece_rows, rows_per_piece
from slackwater.windows.engine.side_watermarks import advance_sides
from slackwater.windows.engine.window_state import WindowState
from slackwater.windows.engine.windowed_operator import WindowedOperator, WindowOutput
from slackwater.windows.spec.cogroup_spec import COGROUP_LATE_COLUMNS, CogroupSpec
from slackwater.windows.spec.operator_spec import SIDES, Side
from slackwater.windows.spec.window_spec import WindowSpec
from slackwater.windows.spec.windowing_strategy import PANE_FIELDS, WINDOW_COLUMNS

_TIME: Final = "merge:time"
_SIDE: Final = "merge:side"
_BLOCK: Final = "merge:block"
_PANE: Final = "merge:pane"
_RETRACTION: Final = "merge:retraction"
_NUMBER: Final = "number"
"""The field of a side's struct that identifies its rows; carried columns have a prefix."""
_CARRIED: Final = "carried:"


class _Layout(Saved):
    left: int | None
    right: int | None
    next_number: int
    windows: bytes
    signature: str


MERGE_FORM: Final = SavedForm("state of a merge", "M", 1, _Layout)


@dataclass
class MergeState:
    """The state of a merge between two steps: its windows, and the watermark of each side.

    >>> from slackwater.windows import Fixed
    >>> merge = MergeOperator(
    ...     window=Fixed(10), key=("id",), left=(), right=(), left_time="ts", right_time="ts"
    ... )
    >>> state, output = merge.step(merge.initial_state(), watermarks={"left": 5})
    >>> state.watermarks, dict(output.watermarks)  # nothing until both are known
    ({'left': 5}, {})
    """

    windows: WindowState
    watermarks: dict[Side, int]
    next_number: int = 0

    @property
    def blobs(self) -> BlobStore:
        """The store in which the windows keep their blobs."""
        return self.windows.blobs


class _PairWindows(WindowedOperator):
    """Windows whose retractions show which pairs were emitted before: those of the retracted pane."""

    emits_retractions = False


class MergeOperator:
    """Cogroups or joins two keyed streams in windows; described by a `CogroupSpec`.

    It takes a `CogroupSpec`, or the fields of one as keyword arguments; ``piece_rows`` is the maximum number
    of pairs that are in memory at a time (see `pieces`). With ``how="cogroup"`` a pane has two
    lists of rows, ``left`` and ``right``; otherwise there is one row per pair, in which a column of the right
    side gets the suffix ``_right`` if its name is used already. A pane without pairs has no rows. In
    discarding mode a pair is emitted once, with the pane in which its second row arrived, and a row without a
    match once, with the last pane of its window, because it could not be taken back.

    In a join, a null in the key matches nothing, not even another null; an outer join pads such a row like
    any row without a match. In a cogroup, rows with a null form a group of their own. ``only_updated``
    compares the rows of a window, not the pairs. With ``retractions`` a retracted row leaves its pane, and
    the rows of a pane are in ascending order of their columns.

    With ``late="emit"`` the late rows of both sides have the key, ``event_time``, ``side``, the carried
    columns as in panes, and the ``reason`` and window of the drop.

    >>> import slackwater as sw
    >>> from slackwater.windows import Fixed
    >>> merge = sw.MergeOperator(
    ...     window=Fixed(10),
    ...     key=("id",),
    ...     left=("price",),
    ...     right=("name",),
    ...     how="inner",
    ...     left_time="ts",
    ...     right_time="ts",
    ... )
    >>> bids = pl.DataFrame({"id": [1, 1, 2], "ts": [1, 2, 3], "price": [5, 6, 7]})
    >>> names = pl.DataFrame({"id": [1], "ts": [4], "name": ["lamp"]})
    >>> state, output = merge.step(merge.initial_state(), bids, names, {"left": 10, "right": 12})
    >>> output.panes.select("id", "price", "name").sort("price").rows()
    [(1, 5, 'lamp'), (1, 6, 'lamp')]
    """

    def __init__(
        self, spec: CogroupSpec | None = None, /, *, piece_rows: int = PIECE_ROWS, **settings: Any
    ) -> None:
        self._piece_rows = check_piece_rows(piece_rows)
        self.spec = CogroupSpec.from_arguments(spec, settings)
        self._keys = {f"merge:key:{number}": name for number, name in enumerate(self.spec.key)}
        self._emits_pairs_once = self.spec.how != "cogroup" and self.spec.mode == "discarding"
        windows = WindowSpec.from_strategy(
            self.spec,
            key=tuple(self._keys),
            accumulations={_inner(side): Collect(_inner(side)) for side in SIDES},
            event_time=_TIME,
            retractions=_RETRACTION if self.spec.takes_retractions else None,
        )
        self.windows = WindowedOperator(windows)
        if self._emits_pairs_once:
            windows = replace(windows, mode="accumulating_and_retracting")
            if self.spec.how != "inner":  # the last pane has the rows that nothing matched
                windows = replace(windows, closing="always")
            self.windows = _PairWindows(windows)

    # ---- state

    def initial_state(self, blobs: BlobStore | None = None) -> MergeState:
        """Create the state before the first step; ``blobs`` is where its blobs are stored.

        Args:
            blobs: the store of the blobs; by default one in memory.
        """
        return MergeState(self.windows.initial_state(blobs), {})

    def save(self, state: MergeState) -> bytes:
        """Serialize the index of the state; its blobs are in the store already.

        Args:
            state: the state that the last step returned.
        """
        known = state.watermarks
        return MERGE_FORM.encode(
            _Layout(
                known.get("left"),
                known.get("right"),
                state.next_number,
                self.windows.save(state.windows),
                self.spec.signature,
            )
        )

    def load(self, saved: bytes, blobs: BlobStore) -> MergeState:
        """Load the state whose index `save` returned, with the store that has its blobs.

        Args:
            saved: the saved index.
            blobs: the store that has its blobs.
        """
        layout = MERGE_FORM.decode(saved)
        if layout.signature != self.spec.signature:
            raise IncompatibleState("cogroup", [("the cogroup", layout.signature, self.spec.signature)])
        saved_watermarks = zip(SIDES, (layout.left, layout.right), strict=True)
        watermarks = {side: watermark for side, watermark in saved_watermarks if watermark is not None}
        return MergeState(self.windows.load(layout.windows, blobs), watermarks, layout.next_number)

    # ---- the step

    def step(
        self,
        state: MergeState,
        left: pl.DataFrame | None = None,
        right: pl.DataFrame | None = None,
        watermarks: Mapping[str, int] = NO_WATERMARKS,
        now: int = 0,
        *,
        idle: Collection[str] = (),
    ) -> tuple[MergeState, WindowOutput]:
        """Process a batch of each side, then the coalesced watermark, then the processing time.

        Args:
            state: the state after the last step. It must not be used again: continue with the one returned.
            left: the rows of the left side that arrived.
            right: the rows of the right side that arrived.
            watermarks: by side, ``"left"`` and ``"right"``; a side may be left out if it has not changed.
            now: the processing time in microseconds.
            idle: the sides whose inputs are all idle. The watermark of the other side counts alone; if both
                are idle, the higher one counts.

        Returns:
            The new state and the output.

        Raises:
            InvalidArgument: an argument cannot be used; the state is unchanged.
            WatermarkRegression: a watermark is below that of an earlier step; the state is unchanged.
        """
        emitted = Pieces(self.pieces(state, left, right, watermarks, now, idle=idle))
        panes = list(emitted)
        after, output = emitted.result
        return after, replace(output, panes=pl.concat(panes) if panes else output.panes)

    def pieces(
        self,
        state: MergeState,
        left: pl.DataFrame | None = None,
        right: pl.DataFrame | None = None,
        watermarks: Mapping[str, int] = NO_WATERMARKS,
        now: int = 0,
        *,
        idle: Collection[str] = (),
    ) -> Generator[pl.DataFrame, None, tuple[MergeState, WindowOutput]]:
        """Do the same as `step`, but yield the panes in pieces.

        A frequent key can have millions of pairs in one window. Only one piece of them is in memory at a
        time. The errors are those of `step`.

        Args:
            state: the state that the last step returned, or the initial one.
            left, right: rows of each side; None for no rows.
            watermarks: the new watermark of each side that advanced, by side.
            now: the processing time of the step.
            idle: the sides that are idle.

        Yields:
            Frames with the columns of the panes; one may be empty.

        Returns:
            The new state, and the output without panes.

        >>> import slackwater as sw
        >>> from slackwater.windows import Fixed
        >>> sides = {"left": ("a",), "right": ("b",), "left_time": "ts", "right_time": "ts"}
        >>> merge = sw.MergeOperator(window=Fixed(10), key=(), how="inner", **sides, piece_rows=3)
        >>> left, right = (pl.DataFrame({"ts": [1, 1], name: [5, 6]}) for name in ("a", "b"))
        >>> pieces = merge.pieces(merge.initial_state(), left, right, {"left": 10, "right": 12})
        >>> [piece.height for piece in pieces]
        [3, 1]
        """
        known = advance_sides(state.watermarks, watermarks, "merge", self.spec.watermark_key)
        batches: list[pl.DataFrame] = []
        next_number = state.next_number
        for side, given in zip(SIDES, (left, right), strict=True):
            if given is not None and given.height:
                batches.append(self._tagged(side, given, next_number))
                next_number += given.height
        batch = self._both(batches) if batches else None
        coalesced = _coalesced(known, idle, state.windows.received)
        driving = NO_WATERMARKS if coalesced is None else {self.spec.watermark_key: coalesced}
        state.windows, output = self.windows.step(
            state.windows, batch, driving, now, idle=set(SIDES) <= set(idle)
        )
        state.watermarks, state.next_number = known, next_number
        if self.spec.how == "cogroup":
            yield self._cogrouped(output.panes)
        elif output.panes.height:
            yield from map(self._pair_rows, self._pairs(output.panes))
        none = output.panes.clear()
        none = self._cogrouped(none) if self.spec.how == "cogroup" else self._pair_rows(none)
        late = None if output.late is None else self._late_rows(output.late)
        sample = output.dropped_sample
        if sample is not None and self._keys:
            sample = sample.with_columns(pl.col(KEY).struct.rename_fields(list(self._keys.values())))
        return state, replace(output, panes=none, late=late, dropped_sample=sample)

    def _tagged(self, side: Side, batch: pl.DataFrame, first: int) -> pl.DataFrame:
        """The batch of one side under internal names: carried columns in a struct, with a number per row."""
        needed = [*self.spec.key, self.spec.times[side], *self.spec.carried[side]]
        missing = [name for name in needed if name not in batch.columns]
        if missing:
            raise InvalidArgument(
                side, batch.columns, f"has no column {missing[0]!r}", fix="add or rename the column"
            )
        number = pl.int_range(first, first + pl.len(), dtype=pl.Int64).alias(_NUMBER)
        retraction: list[pl.Expr] = []
        if self.spec.retractions is not None:
            number = pl.lit(0, pl.Int64()).alias(_NUMBER)  # a retraction equals the row that it takes back
            marked = self.spec.retractions in batch.columns
            is_retraction = pl.col(self.spec.retractions) if marked else pl.lit(value=False)
            retraction = [is_retraction.alias(_RETRACTION)]
        carried = [pl.col(name).alias(_CARRIED + name) for name in self.spec.carried[side]]
        return batch.select(
            *(pl.col(name).alias(inner) for inner, name in self._keys.items()),
            pl.col(self.spec.times[side]).alias(_TIME),
            pl.lit(side).alias(_SIDE),
            pl.struct(number, *carried).alias(_inner(side)),
            *retraction,
        )

    @staticmethod
    def _both(batches: list[pl.DataFrame]) -> pl.DataFrame:
        """The batches of both sides as one, in which the struct of the other side is null."""
        batch = pl.concat(batches, how="diagonal_relaxed")
        absent = [_inner(side) for side in SIDES if _inner(side) not in batch.columns]
        return batch.with_columns(pl.lit(None, pl.Struct({_NUMBER: pl.Int64})).alias(name) for name in absent)

    # ---- output, under the names of the user's columns

    def _cogrouped(self, panes: pl.DataFrame) -> pl.DataFrame:
        """Panes with a list of rows per side."""
        return panes.select(
            *self._key_columns(), *WINDOW_COLUMNS, *(self._rows(panes, side) for side in SIDES),
            *PANE_FIELDS,
        )  # fmt: skip

    def _rows(self, panes: pl.DataFrame, side: Side) -> pl.Expr:
        kind = panes.schema[_inner(side)]
        rows = pl.col(_inner(side))
        if isinstance(kind, pl.List):  # otherwise the frame is empty
            rows = rows.list.eval(self._row(side, pl.element(), kind.inner))
        return rows.alias(side)

    def _row(self, side: Side, row: pl.Expr, kind: object) -> pl.Expr:
        """A row of a side, with its carried columns only."""
        if not self.spec.carried[side]:
            return row.cast(pl.Struct([]))
        carried = pl.struct(_field(row, kind, name).alias(name) for name in self.spec.carried[side])
        return pl.when(row.is_not_null()).then(carried)

    def _pair_rows(self, pairs: pl.DataFrame) -> pl.DataFrame:
        """Pairs as output rows."""
        return pairs.select(
            *self._key_columns(), *WINDOW_COLUMNS, *self._carried_columns(pairs), *PANE_FIELDS
        )

    def _pairs(self, panes: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """The pairs of some panes, in their order; only new pairs if a pair is emitted once."""
        # A block is a pane together with the retractions directly before it.
        block = (~pl.col("retraction")).cast(pl.Int64).cum_sum().shift(1, fill_value=0).alias(_BLOCK)
        panes = self._split_null_keys(panes.with_columns(block)).with_row_index(_PANE)
        left, right = (self._side_rows(panes, side) for side in SIDES)
        panes = panes.drop(map(_inner, SIDES))
        if self._emits_pairs_once:  # retracted panes only show which pairs are not new
            left = left.filter(~panes["retraction"][left[_PANE]])
        start = right[_PANE].search_sorted(left[_PANE], side="left")
        stop = right[_PANE].search_sorted(left[_PANE], side="right")
        numbers = [pl.int_range(side.height, dtype=pl.UInt32, eager=True) for side in (left, right)]
        matching = MatchingRows(numbers[0], start, stop, numbers[1])
        pane = left[_PANE]
        left, right = left.drop(_PANE), right.drop(_PANE)
        for here, there in matching.pieces(rows_per_piece(panes, left, right, rows=self._piece_rows)):
            pairs = pl.concat([panes[pane[here]], left[here], right[there]], how="horizontal")
            yield self._kept(pairs)

    def _side_rows(self, panes: pl.DataFrame, side: Side) -> pl.DataFrame:
        """The rows of one side of all panes, with the number of the pane; a null for a pane without rows.

        If a pair is emitted once, each row also has the number of the retracted pane that contained it.
        """
        rows = pl.col(_inner(side))
        listed = panes.select(_PANE, pl.when(rows.list.len() > 0).then(rows).alias(_inner(side)))
        exploded = listed.explode(_inner(side)).with_columns(
            pl.col(_inner(side)).struct.field(_NUMBER).alias(_number(side))
        )
        if not self._emits_pairs_once:
            return exploded
        identity = [_BLOCK, _number(side)]
        described = exploded.with_columns(
            panes["retraction"][exploded[_PANE]], panes[_BLOCK][exploded[_PANE]]
        )
        before = described.filter(pl.col("retraction") & pl.col(_number(side)).is_not_null())
        before = before.select(*identity, pl.col(_PANE).alias(_before(side)))
        return match(described, before, identity, "left").drop("retraction", _BLOCK)

    def _kept(self, pairs: pl.DataFrame) -> pl.DataFrame:
        """The pairs that the join emits: those of two rows, and padded ones of an outer join."""
        left, right = (pl.col(_number(side)).is_not_null() for side in SIDES)
        kept = {"inner": left & right, "left": left, "right": right, "full": left | right}[self.spec.how]
        if not self._emits_pairs_once:
            return pairs.filter(kept)
        before = [pl.col(_before(side)) for side in SIDES]
        is_new = (before[0] != before[1]).fill_null(value=True)
        # A row that was padded too early could not be taken back.
        return pairs.filter((left & right & is_new) | (kept & ~(left & right) & pl.col("is_last")))

    def _split_null_keys(self, panes: pl.DataFrame) -> pl.DataFrame:
        """Split the panes of keys with a null in two, one per side, because nulls match nothing."""
        if not self._keys:
            return panes
        has_null = pl.any_horizontal(*(pl.col(key).is_null() for key in self._keys))
        numbered = panes.with_row_index(_PANE)
        split = numbered.filter(has_null)
        if split.is_empty():
            return panes
        one_sided = [
            split.with_columns(pl.col(_inner(side)).list.head(0).alias(_inner(side))) for side in SIDES
        ]
        ordered = pl.concat([numbered.filter(~has_null), *one_sided]).sort(_PANE, maintain_order=True)
        return ordered.drop(_PANE)

    def _late_rows(self, late: pl.DataFrame) -> pl.DataFrame:
        """The dropped rows of both sides, with their carried columns as in panes."""
        carried = self._carried_columns(late)
        if self.spec.how == "cogroup":
            carried = [
                self._row(side, pl.col(_inner(side)), late.schema[_inner(side)]).alias(side) for side in SIDES
            ]
        return late.select(
            *self._key_columns(), pl.col(_TIME).alias("event_time"), pl.col(_SIDE).alias("side"), *carried,
            *COGROUP_LATE_COLUMNS[2:],
        )  # fmt: skip

    def _key_columns(self) -> list[pl.Expr]:
        return [pl.col(inner).alias(name) for inner, name in self._keys.items()]

    def _carried_columns(self, frame: pl.DataFrame) -> list[pl.Expr]:
        """The carried columns of both sides, taken from their structs."""
        return [
            _field(pl.col(_inner(side)), frame.schema[_inner(side)], name).alias(chosen)
            for (side, name), chosen in self.spec.carried_names.items()
        ]


def _coalesced(known: Mapping[Side, int], idle: Collection[str], before: int | None) -> int | None:
    """The watermark of both sides together (rules C2, C3 and C6); it never goes back."""
    active = [side for side in SIDES if side not in idle]
    if any(side not in known for side in active):
        return before
    level = min((known[side] for side in active), default=max(known.values(), default=None))
    return level if before is None or level is None else max(level, before)


def _inner(side: Side) -> str:
    return f"merge:{side}"


def _number(side: Side) -> str:
    return f"merge:number:{side}"


def _before(side: Side) -> str:
    return f"merge:before:{side}"


def _field(rows: pl.Expr, kind: object, name: str) -> pl.Expr:
    """A carried column of a struct; null if that side has not had any rows yet."""
    fields = kind.fields if isinstance(kind, pl.Struct) else []
    if any(field.name == _CARRIED + name for field in fields):
        return rows.struct.field(_CARRIED + name)
    return pl.lit(None)
