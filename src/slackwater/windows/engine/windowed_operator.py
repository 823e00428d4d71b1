"""The windowed operator: batches, watermarks and a clock in, panes out.

A pure function of its state: ``step(state, batch, watermarks, now)`` returns the state and what to emit. It
knows nothing of Spark, threads or files, and reads no clock. In one step elements are judged against the
watermark before the step; then the watermark advances; then triggers that wait for the clock are asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from slackwater.errors import InvalidArgument, WatermarkRegression
from slackwater.progress.values import NO_WATERMARKS
from slackwater.time import BEGINNING_OF_TIME, check_int64
from slackwater.windows.assigners import Sessions
from slackwater.windows.engine.blobs import BlobStore
from slackwater.windows.engine.elements import BatchColumns, agreed
from slackwater.windows.engine.rules import END, ROW, START, Collector, Rules, stack
from slackwater.windows.engine.session_windows import SessionWindows
from slackwater.windows.engine.sliced_windows import SlicedWindows
from slackwater.windows.engine.slices import Slicing
from slackwater.windows.engine.window_state import WindowState
from slackwater.windows.spec import WINDOW_COLUMNS, WindowSpec


@dataclass(frozen=True)
class WindowOutput:
    """What one step emits.

    >>> from slackwater.windows import Count, Fixed
    >>> operator = WindowedOperator(window=Fixed(10), accumulations={"n": Count()}, event_time="ts")
    >>> state, output = operator.step(operator.initial_state(), pl.DataFrame({"ts": [3]}), {"default": 7})
    >>> output.panes.height, output.dropped_late, output.watermarks
    (0, 0, {'default': 7})
    """

    panes: pl.DataFrame
    """Key columns, window, accumulations and what each pane says of itself."""
    late: pl.DataFrame | None
    """The rows that were dropped, with the reason; only with ``late="emit"``."""
    dropped_late: int
    dropped_closed: int
    watermarks: Mapping[str, int]
    """What to send downstream: the operator's watermark, if it moved."""


@dataclass(frozen=True)
class Folded:
    """A batch folded to partials by `WindowedOperator.fold`, where there is no state.

    >>> from slackwater.windows import Count, Fixed
    >>> operator = WindowedOperator(window=Fixed(10), accumulations={"n": Count()}, event_time="ts")
    >>> operator.fold(pl.DataFrame({"ts": [3, 4, 12]})).partials.height
    2
    """

    partials: pl.DataFrame
    """A row for each slice of event time and key."""
    kinds: Mapping[str, str]
    """What the columns held that were folded: batches must agree on it."""


class WindowedOperator:
    """Windows, a trigger and accumulations over a keyed stream.

    >>> from slackwater.windows import Fixed, Sum
    >>> operator = WindowedOperator(
    ...     window=Fixed(10), accumulations={"total": Sum("price")}, key=("auction",), event_time="ts"
    ... )
    >>> state = operator.initial_state()
    >>> batch = pl.DataFrame({"auction": [1, 1, 2], "ts": [3, 7, 12], "price": [5, 6, 7]})
    >>> state, output = operator.step(state, batch, {"default": 10}, now=0)
    >>> output.panes.select("auction", "window_start", "window_end", "total", "timing").rows()
    [(1, 0, 10, 11, 'ON_TIME')]
    """

    def __init__(self, spec: WindowSpec | None = None, /, **settings: Any) -> None:
        self.spec = WindowSpec.from_arguments(spec, settings)
        self.rules = Rules(self.spec)
        self._windows: SessionWindows | SlicedWindows
        slicing: tuple[str, ...] = ()
        if isinstance(self.spec.window, Sessions):
            self._windows = SessionWindows(self.rules, self.spec.window)
        else:
            layout = Slicing(self.spec.window)
            slicing = layout.inputs
            self._windows = SlicedWindows(self.rules, layout)
        self._columns = BatchColumns(
            event_time=self.spec.event_time,
            key=tuple(self.spec.key),
            inputs=tuple(dict.fromkeys((*self.spec.inputs, *slicing))),
            retractions=self.spec.retractions,
            reserved=self._late_columns if self.spec.late == "emit" else (),
            numbered=self.spec.late == "emit",
        )

    # ---- state

    def initial_state(self, blobs: BlobStore | None = None) -> WindowState:
        """The state before the first step; its blobs go into ``blobs``, or a ``dict``.

        >>> from slackwater.windows import Count, Fixed
        >>> operator = WindowedOperator(window=Fixed(10), accumulations={"n": Count()}, event_time="ts")
        >>> operator.initial_state().open_windows
        0
        """
        return WindowState({} if blobs is None else blobs, self.spec.signature)

    def save(self, state: WindowState) -> bytes:
        """The index of the state; its blobs are in the store already.

        >>> from slackwater.windows import Count, Fixed
        >>> operator = WindowedOperator(window=Fixed(10), accumulations={"n": Count()}, event_time="ts")
        >>> state = operator.initial_state()
        >>> operator.load(operator.save(state), state.blobs).open_windows
        0
        """
        return state.save()

    def load(self, saved: bytes, blobs: BlobStore) -> WindowState:
        """The state whose index `save` returned, over the blobs that were stored with it."""
        return WindowState.load(saved, blobs, self.spec.signature)

    # ---- folding ahead of the step

    @property
    def can_fold(self) -> bool:
        """Whether `fold` can aggregate batches before the step; see `WindowSpec.can_fold`."""
        return self.spec.can_fold

    def fold(self, batch: pl.DataFrame, carried: Sequence[str] = ()) -> Folded:
        """A batch as partials, which a step takes instead of it; only if `can_fold`.

        ``carried`` are further columns, each the same in all rows of a key: partials keep them.

        >>> from slackwater.windows import Count, Fixed
        >>> operator = WindowedOperator(window=Fixed(10), accumulations={"n": Count()}, event_time="ts")
        >>> folded = [operator.fold(pl.DataFrame({"ts": times})) for times in ([3, 4], [5])]
        >>> _, output = operator.step(operator.initial_state(), watermarks={"default": 10}, folded=folded)
        >>> output.panes["n"].to_list()
        [3]
        """
        windows = self._folding_windows("batch", batch.shape)
        elements = self._columns.elements(self._columns.check(batch))
        elements = elements.with_columns(batch.select(carried).get_columns())
        return Folded(windows.fold(elements, carried), self._columns.kinds(batch))

    def _folding_windows(self, argument: str, value: object) -> SlicedWindows:
        """The windows, if they accept folded batches; otherwise an error about the argument."""
        if isinstance(self._windows, SessionWindows) or not self.spec.can_fold:
            raise InvalidArgument(
                argument,
                value,
                f"{self.spec.prevents_folding} handles elements one by one, so batches cannot be folded",
                fix="pass the batch itself to step()",
            )
        return self._windows

    # ---- the step

    def step(
        self,
        state: WindowState,
        batch: pl.DataFrame | None = None,
        watermarks: Mapping[str, int] = NO_WATERMARKS,
        now: int = 0,
        *,
        folded: Sequence[Folded] = (),
    ) -> tuple[WindowState, WindowOutput]:
        """Take a batch, then the watermark, then the clock; say what to emit.

        A batch comes as it is, or as parts that were folded before, in their order. The state that is
        given is used up: go on with the one that is returned. Nothing of a step that raises because of
        its arguments is kept.
        """
        watermark = self._checked_watermark(state, watermarks)
        check_int64(now, "now")
        folding = self._folding_windows("folded", len(folded)) if folded else None
        if batch is not None and folding:
            raise InvalidArgument(
                "batch", batch.shape, "cannot be combined with folded batches", fix="fold it too"
            )
        elements = None
        kinds = state.kinds
        if batch is not None and not self._columns.check(batch).is_empty():
            kinds = agreed(self._columns.kinds(batch), kinds)
            elements = self._columns.elements(batch)
        for part in folded:
            kinds = agreed(part.kinds, kinds)
        state.kinds = kinds
        out = Collector()
        state.step += 1
        if elements is not None:
            self._windows.add(state, elements, now, out)
        if folding and (partials := [part.partials for part in folded if part.partials.height]):
            folding.add_folded(state, partials, now, out)
        before = BEGINNING_OF_TIME if state.watermark is None else state.watermark
        if watermark is not None and (state.watermark is None or watermark > state.watermark):
            state.watermark = watermark
            self._windows.advance(state, before, watermark, out)
        before, state.clock = state.clock, now
        self._windows.tick(state, before, out)
        state.dropped_late += out.dropped_late
        state.dropped_closed += out.dropped_closed
        state.flush()
        output = WindowOutput(
            panes=self._panes(out.panes),
            late=self._late_rows(batch, out.late),
            dropped_late=out.dropped_late,
            dropped_closed=out.dropped_closed,
            watermarks=self._forwarded(state),
        )
        return state, output

    def _checked_watermark(self, state: WindowState, watermarks: Mapping[str, int]) -> int | None:
        watermark = watermarks.get(self.spec.watermark_key)
        if watermark is None:
            return None
        check_int64(watermark, "watermark")
        if state.watermark is not None and watermark < state.watermark:
            raise WatermarkRegression(
                "the windowed operator", self.spec.watermark_key, state.watermark, watermark
            )
        return watermark

    def _panes(self, frames: list[pl.DataFrame]) -> pl.DataFrame:
        if frames:
            return stack(frames)
        types: dict[str, type[pl.DataType]] = {
            **dict.fromkeys(self.spec.pane_columns, pl.Null),
            **dict.fromkeys((*WINDOW_COLUMNS, "index", "on_time_index", "timestamp"), pl.Int64),
            **dict.fromkeys(("is_first", "is_last", "retraction"), pl.Boolean),
            "timing": pl.String,
        }
        return pl.DataFrame(schema=types)

    @property
    def _late_columns(self) -> tuple[str, ...]:
        """The columns that a late row has in addition to its own; inherited windows are columns already."""
        return ("reason",) if self.spec.inherits else ("reason", *WINDOW_COLUMNS)

    def _late_rows(self, batch: pl.DataFrame | None, dropped: list[pl.DataFrame]) -> pl.DataFrame | None:
        """The dropped rows as they came, with the reason and the window for which they were dropped."""
        if self.spec.late != "emit" or batch is None:
            return None
        if not dropped:
            numbers = pl.DataFrame(
                schema={ROW: pl.Int64, "reason": pl.String, START: pl.Int64, END: pl.Int64}
            )
        else:
            numbers = stack(dropped).sort(ROW, START, maintain_order=True)
        reasons = numbers.select(
            "reason", pl.col(START).alias("window_start"), pl.col(END).alias("window_end")
        )
        reasons = reasons.select(self._late_columns)
        return batch.drop(reasons.columns, strict=False)[numbers[ROW]].hstack(reasons)

    def _forwarded(self, state: WindowState) -> Mapping[str, int]:
        """The watermark, held at the earliest timestamp of a pane that is still to come on time."""
        if state.watermark is None:
            return NO_WATERMARKS
        hold = state.holds.earliest()
        held = state.watermark if hold is None else min(state.watermark, hold)
        if held <= state.forwarded:
            return NO_WATERMARKS
        state.forwarded = held
        return {self.spec.watermark_key: held}
