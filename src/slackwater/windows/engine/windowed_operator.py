"""The windowed operator: batches, watermarks and a clock in, panes out.

A pure function of its state: ``step(state, batch, watermarks, now)`` returns the state and what to emit. It
knows nothing of Spark, threads or files, and reads no clock. In one step elements are judged against the
watermark before the step; then the watermark advances; then triggers that wait for the clock are asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Final, get_args

import polars as pl

from slackwater.errors import InvalidArgument, WatermarkRegression
from slackwater.progress.values import DEFAULT_KEY, NO_WATERMARKS
from slackwater.time import BEGINNING_OF_TIME, check_int64
from slackwater.windows.accumulations import ColumnarAccumulation
from slackwater.windows.assigners import Inherited, Sessions, Window
from slackwater.windows.engine.blobs import BlobStore
from slackwater.windows.engine.elements import BatchColumns, agreed
from slackwater.windows.engine.rules import (
    END,
    ROW,
    START,
    Closing,
    Collector,
    DropLate,
    Late,
    Mode,
    OnTime,
    Rules,
    Timestamp,
    stack,
)
from slackwater.windows.engine.session_windows import SessionWindows
from slackwater.windows.engine.sliced_windows import SlicedWindows
from slackwater.windows.engine.slices import Slicing
from slackwater.windows.engine.trigger_machine import TriggerMachine
from slackwater.windows.engine.window_state import WindowState
from slackwater.windows.triggers import DEFAULT_TRIGGER, Trigger, describe

PANE_COLUMNS: Final = (
    "window_start", "window_end", "timing", "index", "on_time_index", "is_first", "is_last", "retraction",
    "timestamp",
)  # fmt: skip
"""The columns of panes besides keys and accumulations."""


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

    def __init__(  # three separate choices (where, when, how long) and their details
        self,
        *,
        window: Window,
        accumulations: Mapping[str, ColumnarAccumulation],
        event_time: str,
        trigger: Trigger = DEFAULT_TRIGGER,
        key: Sequence[str] = (),
        mode: Mode = "accumulating",
        allowed_lateness: int | None = 0,
        on_time: OnTime = "always",
        closing: Closing = "if_non_empty",
        timestamp: Timestamp = "end_of_window",
        drop_late: DropLate = "by_window",
        late: Late = "count",
        only_updated: bool = False,
        allow_data_loss: bool = False,
        retractions: str | None = None,
        watermark_key: str = DEFAULT_KEY,
    ) -> None:
        self.window = window
        self.trigger = trigger
        _check_type("window", window, Window, 'write fixed("10 seconds")')
        _check_type("trigger", trigger, Trigger, "write after_watermark()")
        _check_type("accumulations", accumulations, Mapping, 'write {"n": count()}')
        _check_type("key", key, Sequence, 'write key=("auction",)')
        _check_type("event_time", event_time, str, 'write event_time="ts"')
        self.accumulations = dict(accumulations)
        self.key = tuple([key] if isinstance(key, str) else key)
        self.event_time = event_time
        self.mode: Mode = mode
        self.allowed_lateness = allowed_lateness
        self.late: Late = late
        self.retractions = retractions
        self.watermark_key = watermark_key
        choices = (
            ("mode", mode, Mode), ("on_time", on_time, OnTime), ("closing", closing, Closing),
            ("timestamp", timestamp, Timestamp), ("drop_late", drop_late, DropLate), ("late", late, Late),
        )  # fmt: skip
        for name, value, kind in choices:
            if value not in get_args(kind):
                raise InvalidArgument(
                    name, value, "is not known", fix=f"use one of {', '.join(get_args(kind))}"
                )
        self._check_names()
        self._check_combination(only_updated, allow_data_loss)
        self.rules = Rules(
            machine=TriggerMachine(trigger),
            accumulations=self.accumulations,
            keys=self.key,
            mode=mode,
            allowed_lateness=allowed_lateness,
            on_time=on_time,
            closing=closing,
            timestamp=timestamp,
            drop_late=drop_late,
            late=late,
            only_updated=only_updated,
            signed=retractions is not None,
        )
        self._windows: SessionWindows | SlicedWindows
        slicing: tuple[str, ...] = ()
        if isinstance(window, Sessions):
            self._windows = SessionWindows(self.rules, window)
        else:
            layout = Slicing(window)
            slicing = layout.inputs
            self._windows = SlicedWindows(self.rules, layout)
        inputs = [name for accumulation in self.accumulations.values() for name in accumulation.inputs]
        dropped = ("reason",) if isinstance(window, Inherited) else ("reason", "window_start", "window_end")
        self._columns = BatchColumns(
            event_time=event_time,
            key=self.key,
            inputs=tuple(dict.fromkeys([*inputs, *slicing])),
            retractions=retractions,
            reserved=dropped if late == "emit" else (),
            numbered=late == "emit",
        )

    # ---- state

    def initial_state(self, blobs: BlobStore | None = None) -> WindowState:
        """The state before the first step; its blobs go into ``blobs``, or a ``dict``.

        >>> from slackwater.windows import Count, Fixed
        >>> operator = WindowedOperator(window=Fixed(10), accumulations={"n": Count()}, event_time="ts")
        >>> operator.initial_state().open_windows
        0
        """
        return WindowState({} if blobs is None else blobs, self._signature)

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
        return WindowState.load(saved, blobs, self._signature)

    @property
    def _signature(self) -> str:
        """What saved state depends on; state of another configuration is refused."""
        rules = self.rules
        parts = (f"{name}={accumulation.signature}" for name, accumulation in self.accumulations.items())
        return (
            f"{self.window} {describe(self.trigger)} {rules.mode} {rules.timestamp} "
            f"updated={rules.only_updated} signed={rules.signed} keys={self.key!r} {' '.join(parts)}"
        )

    # ---- folding ahead of the step

    @property
    def can_fold(self) -> bool:
        """Whether a batch can be folded where its windows and their watermark are not known.

        It cannot where an element must be judged by itself: sessions, lateness by element, rows to be
        emitted as late, and output timestamps that depend on the watermark.

        >>> from slackwater.windows import Count, Fixed, Sessions
        >>> counts = {"accumulations": {"n": Count()}, "key": ("auction",), "event_time": "ts"}
        >>> WindowedOperator(window=Fixed(10), **counts).can_fold
        True
        >>> WindowedOperator(window=Sessions(10), **counts).can_fold
        False
        """
        rules = self.rules
        return (
            isinstance(self._windows, SlicedWindows)
            and rules.timestamp == "end_of_window"
            and rules.drop_late == "by_window"
            and rules.late == "count"
        )

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
        if not self.can_fold or isinstance(self._windows, SessionWindows):
            raise InvalidArgument(
                "batch", describe(self.trigger), "its elements must be judged one by one",
                fix="give it to step as it is",
            )  # fmt: skip
        elements = self._columns.elements(self._columns.check(batch))
        elements = elements.with_columns(batch.select(carried).get_columns())
        return Folded(self._windows.fold(elements, carried), self._columns.kinds(batch))

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
        if batch is not None and folded:
            raise InvalidArgument("batch", batch.shape, "is given besides folded ones", fix="fold it too")
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
        partials = [part.partials for part in folded if part.partials.height]
        if partials and isinstance(self._windows, SlicedWindows):
            self._windows.add_folded(state, partials, now, out)
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
        watermark = watermarks.get(self.watermark_key)
        if watermark is None:
            return None
        check_int64(watermark, "watermark")
        if state.watermark is not None and watermark < state.watermark:
            raise WatermarkRegression("the windowed operator", self.watermark_key, state.watermark, watermark)
        return watermark

    def _panes(self, frames: list[pl.DataFrame]) -> pl.DataFrame:
        if frames:
            return stack(frames)
        columns = [*self.key, "window_start", "window_end", *self.accumulations, *PANE_COLUMNS[2:]]
        types: dict[str, type[pl.DataType]] = {
            **dict.fromkeys(columns, pl.Null),
            **dict.fromkeys(("window_start", "window_end", "index", "on_time_index", "timestamp"), pl.Int64),
            **dict.fromkeys(("is_first", "is_last", "retraction"), pl.Boolean),
            "timing": pl.String,
        }
        return pl.DataFrame(schema={name: types[name] for name in columns})

    def _late_rows(self, batch: pl.DataFrame | None, dropped: list[pl.DataFrame]) -> pl.DataFrame | None:
        """The dropped rows as they came, with the reason and the window for which they were dropped."""
        if self.late != "emit" or batch is None:
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
        if isinstance(self.window, Inherited):  # the rows bring their windows along
            reasons = reasons.select("reason")
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
        return {self.watermark_key: held}

    # ---- what is refused when the operator is built

    def _check_names(self) -> None:
        if not self.accumulations:
            raise InvalidArgument(
                "accumulations", {}, "is empty", fix='give at least one, as in {"n": count()}'
            )
        for name, accumulation in self.accumulations.items():
            if not isinstance(accumulation, ColumnarAccumulation):
                raise InvalidArgument(
                    name, accumulation, "is not an accumulation", fix='use count(), sum("price"), …'
                )
        names = [*self.key, *self.accumulations]
        for place, name in enumerate(names):
            if name in names[:place] or name in PANE_COLUMNS:
                raise InvalidArgument(
                    "name",
                    name,
                    "is used twice in the panes",
                    fix="rename the key column or the accumulation",
                )

    def _check_combination(self, only_updated: bool, allow_data_loss: bool) -> None:
        if self.allowed_lateness is not None and check_int64(self.allowed_lateness, "allowed_lateness") < 0:
            raise InvalidArgument(
                "allowed_lateness",
                self.allowed_lateness,
                "must not be negative",
                fix="use 0, or None for ever",
            )
        if isinstance(self.window, Sessions) and not self.key:
            raise InvalidArgument(
                "key", (), "is empty, but sessions are made per key", fix="name the key columns"
            )
        if only_updated and self.mode == "discarding":
            raise InvalidArgument(
                "only_updated", only_updated, "compares panes, but discarding panes hold different elements",
                fix='use mode="accumulating"',
            )  # fmt: skip
        if self.trigger.can_finish and not allow_data_loss:
            raise InvalidArgument(
                "trigger", describe(self.trigger), "can finish, and then drops the elements that follow",
                fix="wrap it in repeatedly(…), give after_watermark a late=…, or say allow_data_loss=True",
            )  # fmt: skip
        if self.retractions is not None:
            for name, accumulation in self.accumulations.items():
                if not accumulation.can_subtract:
                    raise InvalidArgument(
                        name, accumulation.name, "cannot take elements back, as retractions of the input ask",
                        fix="use one that can (count, sum, mean, variance, stddev, any, all)",
                    )  # fmt: skip


def _check_type(name: str, value: object, wanted: type | UnionType, fix: str) -> None:
    """Refuse an argument of another type; as early as the line on which it was written."""
    if not isinstance(value, wanted):
        raise InvalidArgument(name, value, f"is of type {type(value).__name__}", fix=fix)
