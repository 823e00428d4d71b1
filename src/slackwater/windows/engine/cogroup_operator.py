"""Two streams in the same windows: cogroup, and joins per key and window.

Both inputs go through one windowed operator whose watermark is the lower of the two, and nothing happens by
the watermark until both are known. Windows, triggers, lateness and modes are those of that operator; a pane
holds what came from the left and what came from the right. A join makes pairs of them, within the key and
the window.

Until the rows are handed out, every column has a name of the merge's own making, so that none of the user's
can collide with it: keys are ``merge:key:0``, ``merge:key:1``, …, and what is carried lies in one struct a
side, ``merge:left`` and ``merge:right``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import polars as pl

from slackwater.errors import InvalidArgument, WatermarkRegression
from slackwater.progress.saved_form import Saved, SavedForm
from slackwater.progress.values import NO_WATERMARKS
from slackwater.time import check_int64
from slackwater.windows.accumulations import Collect
from slackwater.windows.engine.blobs import BlobStore
from slackwater.windows.engine.rules import match
from slackwater.windows.engine.window_state import WindowState
from slackwater.windows.engine.windowed_operator import WindowedOperator, WindowOutput
from slackwater.windows.spec import (
    COGROUP_LATE_COLUMNS,
    PANE_FIELDS,
    SIDES,
    WINDOW_COLUMNS,
    CogroupSpec,
    Side,
    WindowSpec,
)

_TIME: Final = "merge:time"
_SIDE: Final = "merge:side"
_BLOCK: Final = "merge:block"
_PANE: Final = "merge:pane"
_NUMBER: Final = "number"
"""The field of a side's struct that tells its rows apart; those that are carried have a prefix."""
_CARRIED: Final = "carried:"


class _Layout(Saved):
    left: int | None
    right: int | None
    next_number: int
    windows: bytes
    signature: str


_FORM: Final = SavedForm("state of a merge", "M", 1, _Layout)


@dataclass
class MergeState:
    """What a merge remembers between two steps: its windows, and the watermark of each side.

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


class MergeOperator:
    """Two keyed streams merged in windows.

    ``left`` and ``right`` name the columns to carry. With ``how="cogroup"`` a pane has two lists of rows,
    ``left`` and ``right``; otherwise a row per pair, where a column of the right side that has the name of
    another gets the suffix ``_right``. A pane without pairs has no rows. In discarding mode a pair is emitted
    once, with the pane in which its second element came.

    A null in the key matches nothing, not even another null: in a join such a row is padded on an outer side
    like any row without a partner. A cogroup does not match: rows with a null are grouped as a key of their
    own. ``only_updated`` asks whether rows came to a window, not whether they found a partner.

    With ``late="emit"`` the late rows of both sides have the key, ``event_time``, ``side``, what they carry
    as it is in panes, and the ``reason`` and window of the drop.

    >>> from slackwater.windows import Fixed
    >>> merge = MergeOperator(
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

    def __init__(self, spec: CogroupSpec | None = None, /, **settings: Any) -> None:
        self.spec = CogroupSpec.from_arguments(spec, settings)
        self._keys = {f"merge:key:{number}": name for number, name in enumerate(self.spec.key)}
        self._emits_pairs_once = self.spec.how != "cogroup" and self.spec.mode == "discarding"
        windows = WindowSpec.from_strategy(
            self.spec,
            key=tuple(self._keys),
            accumulations={_inner(side): Collect(_inner(side)) for side in SIDES},
            event_time=_TIME,
        )
        if self._emits_pairs_once:
            # The retractions tell which pairs were emitted before: those of the pane that is retracted.
            windows = replace(windows, mode="accumulating_and_retracting")
        self.windows = WindowedOperator(windows)

    # ---- state

    def initial_state(self, blobs: BlobStore | None = None) -> MergeState:
        """The state before the first step."""
        return MergeState(self.windows.initial_state(blobs), {})

    def save(self, state: MergeState) -> bytes:
        """The index of the state; its blobs are in the store already."""
        known = state.watermarks
        return _FORM.encode(
            _Layout(
                known.get("left"),
                known.get("right"),
                state.next_number,
                self.windows.save(state.windows),
                self.spec.signature,
            )
        )

    def load(self, saved: bytes, blobs: BlobStore) -> MergeState:
        """The state whose index `save` returned, over the blobs that were stored with it."""
        layout = _FORM.decode(saved)
        another = f"it belongs to another merge ({layout.signature}, here {self.spec.signature})"
        _FORM.check(layout.signature == self.spec.signature, another)
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
    ) -> tuple[MergeState, WindowOutput]:
        """Take a batch of each side, then the lower of the two watermarks, then the clock."""
        known = self._moved(state, watermarks)
        batches: list[pl.DataFrame] = []
        next_number = state.next_number
        for side, given in zip(SIDES, (left, right), strict=True):
            if given is not None and given.height:
                batches.append(self._tagged(side, given, next_number))
                next_number += given.height
        batch = self._both(batches) if batches else None
        low = {self.spec.watermark_key: min(known.values())} if len(known) == len(SIDES) else NO_WATERMARKS
        state.windows, output = self.windows.step(state.windows, batch, low, now)
        state.watermarks, state.next_number = known, next_number
        panes = self._cogrouped(output.panes) if self.spec.how == "cogroup" else self._joined(output.panes)
        late = None if output.late is None else self._late_rows(output.late)
        return state, WindowOutput(panes, late, output.dropped_late, output.dropped_closed, output.watermarks)

    def _moved(self, state: MergeState, watermarks: Mapping[str, int]) -> dict[Side, int]:
        """The watermarks after these; one that goes back is an error."""
        if unknown := sorted(watermarks.keys() - set(SIDES)):
            raise InvalidArgument(
                "watermarks", unknown[0], "is not a side of a merge", fix='use "left" and "right"'
            )
        known = dict(state.watermarks)
        for side in SIDES:
            if side in watermarks:
                new = check_int64(watermarks[side], f"watermarks[{side!r}]")
                if side in known and new < known[side]:
                    raise WatermarkRegression(f"the {side} input", self.spec.watermark_key, known[side], new)
                known[side] = new
        return known

    def _tagged(self, side: Side, batch: pl.DataFrame, first: int) -> pl.DataFrame:
        """A batch in the form of both sides: its carried columns in a struct, with a number for each row."""
        needed = [*self.spec.key, self.spec.times[side], *self.spec.carried[side]]
        missing = [name for name in needed if name not in batch.columns]
        if missing:
            raise InvalidArgument(
                side, batch.columns, f"has no column {missing[0]!r}", fix="name the columns of the batch"
            )
        number = pl.int_range(first, first + pl.len(), dtype=pl.Int64).alias(_NUMBER)
        carried = [pl.col(name).alias(_CARRIED + name) for name in self.spec.carried[side]]
        return batch.select(
            *(pl.col(name).alias(inner) for inner, name in self._keys.items()),
            pl.col(self.spec.times[side]).alias(_TIME),
            pl.lit(side).alias(_SIDE),
            pl.struct(number, *carried).alias(_inner(side)),
        )

    @staticmethod
    def _both(batches: list[pl.DataFrame]) -> pl.DataFrame:
        """The batches as one; a row has null for the side that it is not of."""
        batch = pl.concat(batches, how="diagonal_relaxed")
        absent = [_inner(side) for side in SIDES if _inner(side) not in batch.columns]
        return batch.with_columns(pl.lit(None, pl.Struct({_NUMBER: pl.Int64})).alias(name) for name in absent)

    # ---- what comes out, under the user's names

    def _cogrouped(self, panes: pl.DataFrame) -> pl.DataFrame:
        """Lists of rows with the columns that were carried."""
        return panes.select(
            *self._key_columns(), *WINDOW_COLUMNS, *(self._rows(panes, side) for side in SIDES),
            *PANE_FIELDS,
        )  # fmt: skip

    def _rows(self, panes: pl.DataFrame, side: Side) -> pl.Expr:
        kind = panes.schema[_inner(side)]
        rows = pl.col(_inner(side))
        if isinstance(kind, pl.List):  # otherwise there are no panes
            rows = rows.list.eval(self._row(side, pl.element(), kind.inner))
        return rows.alias(side)

    def _row(self, side: Side, row: pl.Expr, kind: object) -> pl.Expr:
        """A row of a side with its own columns only."""
        if not self.spec.carried[side]:
            return row.cast(pl.Struct([]))
        own = pl.struct(_field(row, kind, name).alias(name) for name in self.spec.carried[side])
        return pl.when(row.is_not_null()).then(own)

    def _joined(self, panes: pl.DataFrame) -> pl.DataFrame:
        """A row per pair, in the order of the panes; where pairs are emitted once, only new ones."""
        pairs = panes if panes.is_empty() else self._pairs(panes)
        return pairs.select(
            *self._key_columns(), *WINDOW_COLUMNS, *self._carried_columns(pairs), *PANE_FIELDS
        )

    def _pairs(self, panes: pl.DataFrame) -> pl.DataFrame:
        # A block is a pane with the retractions before it, of which it is the end.
        block = (~pl.col("retraction")).cast(pl.Int64).cum_sum().shift(1, fill_value=0).alias(_BLOCK)
        pairs = self._parted(panes.with_columns(block))
        for side in SIDES:
            rows = pl.col(_inner(side))
            pairs = pairs.with_columns(pl.when(rows.list.len() > 0).then(rows)).explode(_inner(side))
        pairs = pairs.with_columns(
            pl.col(_inner(side)).struct.field(_NUMBER).alias(_number(side)) for side in SIDES
        )
        left, right = (pl.col(_number(side)).is_not_null() for side in SIDES)
        kept = {"inner": left & right, "left": left, "right": right, "full": left | right}[self.spec.how]
        pairs = pairs.filter(kept)
        if self._emits_pairs_once:
            before, new = pairs.filter("retraction"), pairs.filter(~pl.col("retraction"))
            pairs = match(new, before, [_BLOCK, *map(_number, SIDES)], "anti")
        return pairs

    def _parted(self, panes: pl.DataFrame) -> pl.DataFrame:
        """The panes, those of keys that match nothing in two: each side without the other."""
        lonely = pl.any_horizontal(pl.lit(value=False), *(pl.col(key).is_null() for key in self._keys))
        numbered = panes.with_row_index(_PANE)
        alone = numbered.filter(lonely)
        if alone.is_empty():
            return panes
        nothing = [
            alone.with_columns(pl.col(_inner(side)).list.head(0).alias(_inner(side))) for side in SIDES
        ]
        return pl.concat([numbered.filter(~lonely), *nothing]).sort(_PANE, maintain_order=True)

    def _late_rows(self, late: pl.DataFrame) -> pl.DataFrame:
        """The rows of both sides that were dropped; what they carry is as in panes."""
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
        """The columns of both sides from their structs."""
        return [
            _field(pl.col(_inner(side)), frame.schema[_inner(side)], name).alias(chosen)
            for (side, name), chosen in self.spec.carried_names.items()
        ]


def _inner(side: Side) -> str:
    return f"merge:{side}"


def _number(side: Side) -> str:
    return f"merge:number:{side}"


def _field(rows: pl.Expr, kind: object, name: str) -> pl.Expr:
    """A carried column of a struct; null where nothing has come of that side yet."""
    fields = kind.fields if isinstance(kind, pl.Struct) else []
    if any(field.name == _CARRIED + name for field in fields):
        return rows.struct.field(_CARRIED + name)
    return pl.lit(None)
