"""The windowed operator: a function from state, batch, watermark and processing time to state and panes.

``step(state, batch, watermarks, now)`` returns the new state and the output. It does not use Spark, threads
or files, and reads no clock. In one step, elements are tested for lateness against the watermark before the
step; then the watermark advances; then triggers that wait for processing time are evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl
from polars import selectors

from slackwater.errors import InvalidArgument, WatermarkRegression
from slackwater.progress.values import NO_WATERMARKS
from slackwater.time import BEGINNING_OF_TIME, check_int64
from slackwater.windows.assigners import Sessions
from slackwater.windows.engine.blobs import BlobStore
from slackwater.windows.engine.compiled_spec import CompiledSpec, StepResults
from slackwater.windows.engine.dropped_samples import combined, key_struct
from slackwater.windows.engine.elements import BatchColumns, agreed
from slackwater.windows.engine.evolution import Evolution
from slackwater.windows.engine.frames import stack
from slackwater.windows.engine.session_windows import SessionWindows
from slackwater.windows.engine.sliced_windows import SlicedWindows
from slackwater.windows.engine.slices import Slicing
from slackwater.windows.engine.window_state import WindowState
from slackwater.windows.operator_columns import END, ROW, START, key_column
from slackwater.windows.spec.window_spec import WindowSpec
from slackwater.windows.spec.windowing_strategy import WINDOW_COLUMNS


@dataclass(frozen=True)
class WindowOutput:
    """The output of one step.

    >>> import slackwater as sw
    >>> from slackwater.windows import Count, Fixed
    >>> operator = sw.WindowedOperator(window=Fixed(10), accumulations={"n": Count()}, event_time="ts")
    >>> state, output = operator.step(operator.initial_state(), pl.DataFrame({"ts": [3]}), {"default": 7})
    >>> output.panes.height, output.dropped_late, output.watermarks
    (0, 0, {'default': 7})
    """

    panes: pl.DataFrame
    """The panes, with the columns of `WindowSpec.pane_columns`."""
    late: pl.DataFrame | None
    """The rows that were dropped, with the reason; None unless ``late="emit"``."""
    dropped_late: int
    """The number of (element, window) pairs that were dropped because they were too late."""
    dropped_closed: int
    """The number of (element, window) pairs that were dropped because the trigger had finished."""
    watermarks: Mapping[str, int]
    """The watermark to send downstream, if it has advanced."""
    waiting: int | None = None
    """The end of the earliest window that still owes a pane; None if the operator holds nothing. Only then
    may an operator whose inputs are idle forward IDLE."""
    expired_keys: int = 0
    """The number of keys whose state was purged because of the ttl of a global window."""
    dropped_sample: pl.DataFrame | None = None
    """A few of the dropped rows, for reports: the reason, the window, the event time if it is known, the
    number of rows if they were folded, and the key. None if none was dropped."""


@dataclass(frozen=True)
class Folded:
    """A batch that `WindowedOperator.fold` has aggregated to partials, without access to the state.

    >>> from slackwater.windows import Count, Fixed
    >>> operator = WindowedOperator(window=Fixed(10), accumulations={"n": Count()}, event_time="ts")
    >>> operator.fold(pl.DataFrame({"ts": [3, 4, 12]})).partials.height
    2
    """

    partials: pl.DataFrame
    """One row per slice of event time and key."""
    kinds: Mapping[str, str]
    """The kind of values in each key and input column, which must be the same in all batches."""


class WindowedOperator:
    """Aggregates a keyed stream in windows; described by a `WindowSpec`.

    It takes a `WindowSpec`, or the fields of one as keyword arguments.

    >>> import slackwater as sw
    >>> from slackwater.windows import Fixed, Sum
    >>> operator = sw.WindowedOperator(
    ...     window=Fixed(10), accumulations={"total": Sum("price")}, key=("auction",), event_time="ts"
    ... )
    >>> state = operator.initial_state()
    >>> batch = pl.DataFrame({"auction": [1, 1, 2], "ts": [3, 7, 12], "price": [5, 6, 7]})
    >>> state, output = operator.step(state, batch, {"default": 10}, now=0)
    >>> output.panes.select("auction", "window_start", "window_end", "total", "timing").rows()
    [(1, 0, 10, 11, 'ON_TIME')]
    """

    emits_retractions: ClassVar[bool] = True
    """False in a subclass whose retractions are removed from the output."""

    def __init__(self, spec: WindowSpec | None = None, /, **settings: Any) -> None:
        self.spec = WindowSpec.from_arguments(spec, settings)
        compiled = CompiledSpec(self.spec, self.emits_retractions)
        self._windows: SessionWindows | SlicedWindows
        window_columns: tuple[str, ...] = ()
        if isinstance(self.spec.window, Sessions):
            self._windows = SessionWindows(compiled, self.spec.window)
        else:
            slicing = Slicing(self.spec.window)
            window_columns = slicing.inputs
            self._windows = SlicedWindows(compiled, slicing)
        self._evolution = Evolution(compiled, self._windows)
        self._columns = BatchColumns(
            event_time=self.spec.event_time,
            key=tuple(self.spec.key),
            inputs=tuple(dict.fromkeys((*self.spec.inputs, *window_columns))),
            retractions=self.spec.retractions,
            reserved=self._late_columns if self.spec.late == "emit" else (),
            numbered=self.spec.late == "emit",
            inherits=self.spec.inherits,
            gap=self.spec.gap_column,
        )

    # ---- state

    def initial_state(self, blobs: BlobStore | None = None) -> WindowState:
        """Create the state before the first step.

        Args:
            blobs: where the blobs of the state are stored; a new ``dict`` by default.

        >>> import slackwater as sw
        >>> from slackwater.windows import Count, Fixed
        >>> operator = sw.WindowedOperator(window=Fixed(10), accumulations={"n": Count()}, event_time="ts")
        >>> operator.initial_state().open_windows
        0
        """
        return WindowState({} if blobs is None else blobs, self._evolution.description)

    def save(self, state: WindowState) -> bytes:
        """Serialize the index of the state; its blobs are in the store already.

        Args:
            state: the state that the last step returned.

        >>> import slackwater as sw
        >>> from slackwater.windows import Count, Fixed
        >>> operator = sw.WindowedOperator(window=Fixed(10), accumulations={"n": Count()}, event_time="ts")
        >>> state = operator.initial_state()
        >>> operator.load(operator.save(state), state.blobs).open_windows
        0
        """
        return state.save()

    def load(self, saved: bytes, blobs: BlobStore) -> WindowState:
        """Load the state whose index `save` returned.

        The operator may have changed since then: accumulations, trigger, allowed lateness, ttl and the
        settings of panes. The blobs in the store are then rewritten for the new operator.

        Args:
            saved: the bytes that `save` returned.
            blobs: the store with the blobs of that state.

        Raises:
            CorruptState: the bytes are damaged.
            IncompatibleState: the operator that wrote the state has another window, key, mode or timestamp.
            UnsupportedStateVersion: the bytes have a version that this release cannot read.

        >>> import slackwater as sw
        >>> from slackwater.windows import Count, Fixed, Sum
        >>> counts = {"window": Fixed(10), "event_time": "ts", "on_change": "since_change"}
        >>> before = sw.WindowedOperator(accumulations={"n": Count()}, **counts)
        >>> state, _ = before.step(before.initial_state(), pl.DataFrame({"ts": [3], "price": [5]}))
        >>> after = sw.WindowedOperator(accumulations={"n": Count(), "total": Sum("price")}, **counts)
        >>> state = after.load(before.save(state), state.blobs)
        >>> _, output = after.step(state, pl.DataFrame({"ts": [4], "price": [7]}), {"default": 10})
        >>> output.panes.select("n", "total").rows()
        [(2, 7)]
        """
        state = WindowState.load(saved, blobs)
        self._evolution.apply(state)
        return state

    # ---- folding before the step

    @property
    def can_fold(self) -> bool:
        """Whether `fold` can aggregate batches before the step; see `WindowSpec.can_fold`."""
        return self.spec.can_fold

    def fold(self, batch: pl.DataFrame, carried: Sequence[str] = ()) -> Folded:
        """Aggregate a batch to partials, which can be passed to `step` instead of the batch.

        Args:
            batch: the rows to aggregate.
            carried: further columns that the partials keep; each must have one value per key.

        Raises:
            InvalidArgument: the batch cannot be used, or `can_fold` is False.

        >>> import slackwater as sw
        >>> from slackwater.windows import Count, Fixed
        >>> operator = sw.WindowedOperator(window=Fixed(10), accumulations={"n": Count()}, event_time="ts")
        >>> folded = [operator.fold(pl.DataFrame({"ts": times})) for times in ([3, 4], [5])]
        >>> _, output = operator.step(operator.initial_state(), watermarks={"default": 10}, folded=folded)
        >>> output.panes["n"].to_list()
        [3]
        """
        batch = self._columns.check(batch)
        windows = self._folding_windows("batch", batch.shape)
        elements = self._columns.elements(batch)
        elements = elements.with_columns(batch.select(carried).get_columns())
        return Folded(windows.fold(elements, carried), self._columns.kinds(batch))

    def merge_folded(self, several: Sequence[Folded], carried: Sequence[str] = ()) -> Folded:
        """Merge batches that `fold` has aggregated to one with a partial per slice and key.

        Args:
            several: the batches, in order of arrival; at least one.
            carried: the further columns that their partials keep.

        Raises:
            InvalidArgument: a column has another kind of values than in an earlier batch.

        >>> import slackwater as sw
        >>> from slackwater.windows import Count, Fixed
        >>> operator = sw.WindowedOperator(window=Fixed(10), accumulations={"n": Count()}, event_time="ts")
        >>> folded = [operator.fold(pl.DataFrame({"ts": times})) for times in ([3, 4], [5])]
        >>> operator.merge_folded(folded).partials.height
        1
        """
        windows = self._folding_windows("folded", len(several))
        kinds: Mapping[str, str] = {}
        for part in several:
            kinds = agreed(part.kinds, kinds)
        return Folded(windows.merge_folded([part.partials for part in several], carried), kinds)

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
        idle: bool = False,
    ) -> tuple[WindowState, WindowOutput]:
        """Process a batch, then the watermark, then the processing time.

        Args:
            state: the state after the last step. It must not be used again: continue with the one returned.
            batch: the rows that arrived.
            watermarks: by key; only that of ``spec.watermark_key`` is used.
            now: the processing time in microseconds.
            folded: batches that `fold` has aggregated, in order of arrival, instead of ``batch``.
            idle: whether all inputs are idle. With ``idle="close"`` every open window then fires and closes,
                after the watermark has advanced.

        Returns:
            The new state and the output.

        Raises:
            InvalidArgument: an argument cannot be used; the state is unchanged.
            WatermarkRegression: the watermark is below that of an earlier step; the state is unchanged.
        """
        watermark = self._checked_watermark(state, watermarks)
        check_int64(now, "now")
        folding = self._folding_windows("folded", len(folded)) if folded else None
        if batch is not None and folding:
            raise InvalidArgument(
                "folded", len(folded), "cannot be combined with a batch", fix="fold the batch too"
            )
        elements = None
        kinds = state.kinds
        if batch is not None and not self._columns.check(batch).is_empty():
            kinds = agreed(self._columns.kinds(batch), kinds)
            elements = self._columns.elements(batch)
        for part in folded:
            kinds = agreed(part.kinds, kinds)
        state.kinds = kinds
        out = StepResults()
        state.step += 1
        self._purge_overdue(state, out)
        if elements is not None:
            self._windows.add(state, elements, now, out)
        if folding and (partials := [part.partials for part in folded if part.partials.height]):
            folding.add_folded(state, partials, now, out)
        state.received = state.received if watermark is None else watermark
        self._advance(state, watermark, out)
        if idle and self.spec.idle == "close":
            self._advance(state, self._windows.closing_time(state), out)
        before, state.clock = state.clock, now
        if state.restarted:
            state.restarted = False
            self._windows.restart(state, out)
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
            waiting=state.waiting,
            expired_keys=out.expired,
            dropped_sample=self._dropped_sample(out.samples),
        )
        return state, output

    def _purge_overdue(self, state: WindowState, out: StepResults) -> None:
        """Purge windows that a lowered lateness has passed, before elements reach slices that they share."""
        due = state.due_windows.earliest()
        if due is not None and state.watermark is not None and due <= state.watermark:
            self._windows.advance(state, state.watermark, state.watermark, out)

    def _advance(self, state: WindowState, watermark: int | None, out: StepResults) -> None:
        """Advance the operator's watermark, unless it is there already."""
        before = BEGINNING_OF_TIME if state.watermark is None else state.watermark
        if watermark is not None and (state.watermark is None or watermark > state.watermark):
            state.watermark = watermark
            self._windows.advance(state, before, watermark, out)

    def _checked_watermark(self, state: WindowState, watermarks: Mapping[str, int]) -> int | None:
        watermark = watermarks.get(self.spec.watermark_key)
        if watermark is None:
            return None
        check_int64(watermark, "watermark")
        if state.received is not None and watermark < state.received:
            raise WatermarkRegression(
                "the windowed operator", self.spec.watermark_key, state.received, watermark
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

    def _dropped_sample(self, samples: list[pl.DataFrame]) -> pl.DataFrame | None:
        sample = combined(samples)
        if sample is None:
            return None
        internal = [key_column(number) for number in range(len(self.spec.key))]
        names = dict(zip(internal, self.spec.key, strict=True))
        key = key_struct(pl.col(column).alias(name) for column, name in names.items())
        return sample.select(~selectors.by_name(*internal, key_column(0), require_all=False), *key)

    @property
    def _late_columns(self) -> tuple[str, ...]:
        """The columns that are added to late rows; with inherited windows, rows have their window already."""
        return ("reason",) if self.spec.inherits else ("reason", *WINDOW_COLUMNS)

    def _late_rows(self, batch: pl.DataFrame | None, dropped: list[pl.DataFrame]) -> pl.DataFrame | None:
        """The dropped rows of the batch, with the reason and the window for which they were dropped."""
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
        """The watermark to send downstream, held at the earliest timestamp of an on-time pane still due."""
        if state.watermark is None:
            return NO_WATERMARKS
        hold = state.holds.earliest()
        held = state.watermark if hold is None else min(state.watermark, hold)
        if held <= state.forwarded:
            return NO_WATERMARKS
        state.forwarded = held
        return {self.spec.watermark_key: held}
