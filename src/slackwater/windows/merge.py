"""Two streams in the same windows: cogroup, and joins per key and window.

Both inputs go through one windowed operator whose watermark is the lower of the two, and nothing happens by
the watermark until both are known. Windows, triggers, lateness and modes are those of that operator; a pane
holds what came from the left and what came from the right. A join makes pairs of them, within the key and
the window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

import polars as pl

from slackwater.errors import InvalidArgument, WatermarkRegression
from slackwater.progress.saved import Saved, SavedForm
from slackwater.progress.values import DEFAULT_KEY, NO_WATERMARKS
from slackwater.windows.accumulations import Collect
from slackwater.windows.assigners import Window
from slackwater.windows.blobs import BlobStore
from slackwater.windows.operator import PANE_COLUMNS, WindowedOperator, WindowOutput
from slackwater.windows.rules import Closing, DropLate, Late, Mode, OnTime, Timestamp, match
from slackwater.windows.state import WindowState
from slackwater.windows.triggers import DEFAULT_TRIGGER, Trigger

How = Literal["cogroup", "inner", "left", "right", "full"]
Side = Literal["left", "right"]
SIDES: Final[tuple[Side, Side]] = ("left", "right")

_TIME: Final = "merge:time"
_SIDE: Final = "merge:side"
_NUMBER: Final = "number"
_BLOCK: Final = "block"


class _Layout(Saved):
    left: int | None
    right: int | None
    next_number: int
    windows: bytes


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
    another gets the suffix ``_right``. In discarding mode a pair is emitted once, with the pane in which its
    second element came.

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

    def __init__(  # the options of the windowed operator, and two sides
        self,
        *,
        window: Window,
        key: Sequence[str],
        left: Sequence[str],
        right: Sequence[str],
        left_time: str,
        right_time: str,
        how: How = "cogroup",
        trigger: Trigger = DEFAULT_TRIGGER,
        mode: Mode = "accumulating",
        allowed_lateness: int | None = 0,
        on_time: OnTime = "always",
        closing: Closing = "if_non_empty",
        timestamp: Timestamp = "end_of_window",
        drop_late: DropLate = "by_window",
        late: Late = "count",
        only_updated: bool = False,
        allow_data_loss: bool = False,
        watermark_key: str = DEFAULT_KEY,
    ) -> None:
        if how not in get_args(How):
            raise InvalidArgument("how", how, "is not known", fix=f"use one of {', '.join(get_args(How))}")
        self.how: How = how
        self.key = tuple([key] if isinstance(key, str) else key)
        self.columns: dict[Side, tuple[str, ...]] = {"left": tuple(left), "right": tuple(right)}
        self.times: dict[Side, str] = {"left": left_time, "right": right_time}
        self.event_time = left_time
        self.watermark_key = watermark_key
        self.mode: Mode = mode
        self._keeps_pairs = how != "cogroup" and mode == "discarding"
        self._names = self._output_names()
        self.windows = WindowedOperator(
            window=window,
            trigger=trigger,
            accumulations={side: Collect(side) for side in SIDES},
            key=self.key,
            event_time=_TIME,
            # What a pair was emitted with before is what the pane would take back.
            mode="accumulating_and_retracting" if self._keeps_pairs else mode,
            allowed_lateness=allowed_lateness,
            on_time=on_time,
            closing=closing,
            timestamp=timestamp,
            drop_late=drop_late,
            late=late,
            only_updated=only_updated,
            allow_data_loss=allow_data_loss,
            watermark_key=watermark_key,
        )
        self.accumulations = self.windows.accumulations

    # ---- state

    def initial_state(self, blobs: BlobStore | None = None) -> MergeState:
        """The state before the first step."""
        return MergeState(self.windows.initial_state(blobs), {})

    def save(self, state: MergeState) -> bytes:
        """The index of the state; its blobs are in the store already."""
        known = state.watermarks
        return _FORM.seal(
            _Layout(
                known.get("left"), known.get("right"), state.next_number, self.windows.save(state.windows)
            )
        )

    def load(self, saved: bytes, blobs: BlobStore) -> MergeState:
        """The state whose index `save` returned, over the blobs that were stored with it."""
        layout = _FORM.unseal(saved)
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
        for side in SIDES:
            before, new = state.watermarks.get(side), watermarks.get(side)
            if before is not None and new is not None and new < before:
                raise WatermarkRegression(f"the {side} input", self.watermark_key, before, new)
        batches = [
            self._tagged(side, batch)
            for side, batch in zip(SIDES, (left, right), strict=True)
            if batch is not None and batch.height
        ]
        batch: pl.DataFrame | None = None
        if batches:
            batch = pl.concat(batches, how="diagonal_relaxed")
            batch = self._numbered(batch, state.next_number)
        known = {**state.watermarks, **{side: watermarks[side] for side in SIDES if side in watermarks}}
        low = {self.watermark_key: min(known.values())} if len(known) == len(SIDES) else NO_WATERMARKS
        state.windows, output = self.windows.step(state.windows, batch, low, now)
        state.watermarks = known
        state.next_number += 0 if batch is None else batch.height
        panes = self._cogrouped(output.panes) if self.how == "cogroup" else self._joined(output.panes)
        late = None if output.late is None else self._untagged(output.late)
        return state, WindowOutput(panes, late, output.dropped_late, output.dropped_closed, output.watermarks)

    def _tagged(self, side: Side, batch: pl.DataFrame) -> pl.DataFrame:
        """A batch in the form of both sides: its carried columns in a struct named after the side."""
        needed = [*self.key, self.times[side], *self.columns[side]]
        missing = [name for name in needed if name not in batch.columns]
        if missing:
            raise InvalidArgument(
                side, batch.columns, f"has no column {missing[0]!r}", fix="name the columns of the batch"
            )
        carried = pl.struct(pl.lit(0, pl.Int64).alias(_NUMBER), *self._renamed(side))
        return batch.select(
            *self.key, pl.col(self.times[side]).alias(_TIME), pl.lit(side).alias(_SIDE), carried.alias(side)
        )

    def _renamed(self, side: Side) -> list[pl.Expr]:
        """The carried columns under names that no number can collide with."""
        return [pl.col(name).alias(f"{side}:{name}") for name in self.columns[side]]

    @staticmethod
    def _numbered(batch: pl.DataFrame, first: int) -> pl.DataFrame:
        number = pl.int_range(first, first + pl.len(), dtype=pl.Int64).alias(_NUMBER)
        present = [side for side in SIDES if side in batch.columns]
        batch = batch.with_columns(
            pl.when(pl.col(_SIDE) == side).then(pl.col(side).struct.with_fields(number)).alias(side)
            for side in present
        )
        absent = [side for side in SIDES if side not in present]
        return batch.with_columns(pl.lit(None, pl.Struct({_NUMBER: pl.Int64})).alias(side) for side in absent)

    def _untagged(self, late: pl.DataFrame) -> pl.DataFrame:
        return late.rename({_TIME: "event_time", _SIDE: "side"})

    # ---- panes

    def _cogrouped(self, panes: pl.DataFrame) -> pl.DataFrame:
        """Lists of rows with the columns that were carried, under their own names."""
        if panes.is_empty():
            return panes
        rows = [
            pl.col(side).list.eval(
                pl.struct(
                    pl.element().struct.field(f"{side}:{name}").alias(name) for name in self.columns[side]
                )
            )
            if isinstance(panes.schema[side], pl.List) and self._carries(panes, side)
            else pl.col(side)
            for side in SIDES
        ]
        return panes.with_columns(rows)

    def _carries(self, panes: pl.DataFrame, side: Side) -> bool:
        inner = panes.schema[side].inner  # type: ignore[attr-defined]  # a list, as the caller saw
        return isinstance(inner, pl.Struct) and len(inner.fields) > 1

    def _joined(self, panes: pl.DataFrame) -> pl.DataFrame:
        """A row per pair, in the order of the panes; where pairs are emitted once, only new ones."""
        columns = [*self.key, "window_start", "window_end", *self._names.values(), *PANE_COLUMNS[2:]]
        if panes.is_empty():
            return panes.select(
                pl.col(name) if name in panes.columns else pl.lit(None).alias(name) for name in columns
            )
        pairs = self._pairs(panes)
        if self._keeps_pairs:
            # A block is a pane with the retractions before it, of which it is the end.
            before, new = pairs.filter("retraction"), pairs.filter(~pl.col("retraction"))
            pairs = match(new, before, [_BLOCK, "left_number", "right_number"], "anti")
        return pairs.select(
            pl.col(name) if name in pairs.columns else pl.lit(None).alias(name) for name in columns
        )

    def _pairs(self, panes: pl.DataFrame) -> pl.DataFrame:
        block = (~pl.col("retraction")).cast(pl.Int64).cum_sum().shift(1, fill_value=0).alias(_BLOCK)
        exploded = panes.with_columns(block)
        for side in SIDES:
            if isinstance(exploded.schema[side], pl.List):
                exploded = exploded.with_columns(
                    pl.when(pl.col(side).list.len() > 0).then(pl.col(side))
                ).explode(side)
            if not isinstance(exploded.schema[side], pl.Struct):
                exploded = exploded.with_columns(pl.lit(None, pl.Struct({_NUMBER: pl.Int64})).alias(side))
            fields = [field.name for field in exploded.schema[side].fields]  # type: ignore[attr-defined]
            exploded = exploded.with_columns(
                pl.col(side)
                .struct.field(name)
                .alias(f"{side}_number" if name == _NUMBER else self._names[side, name.split(":", 1)[1]])
                for name in fields
            )
        left, right = pl.col("left_number").is_not_null(), pl.col("right_number").is_not_null()
        kept = {"inner": left & right, "left": left, "right": right, "full": left | right}[self.how]
        return exploded.filter(kept)

    def _output_names(self) -> dict[tuple[Side, str], str]:
        """What each carried column is called in the pairs."""
        taken = {*self.key, *PANE_COLUMNS}
        names: dict[tuple[Side, str], str] = {}
        for side in SIDES:
            for name in self.columns[side]:
                chosen = f"{name}_right" if side == "right" and name in taken else name
                if self.how != "cogroup" and chosen in taken:
                    raise InvalidArgument(side, name, "is used twice in the pairs", fix="rename the column")
                taken.add(chosen)
                names[side, name] = chosen
        return names
