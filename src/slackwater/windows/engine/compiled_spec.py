"""A window spec compiled to Polars expressions over elements, partials and window rows.

Three kinds of frames occur in an operator. *Elements* are the rows of a batch. *Partials* hold aggregated
elements: one row per slice (or session) and key. *Window rows* hold what an operator remembers of a key in a
window: how many elements are new, the index of the next pane, the state of the trigger.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Literal

import polars as pl

from slackwater.errors import SumOverflow
from slackwater.time import END_OF_TIME
from slackwater.windows.accumulations.base import ColumnarAccumulation, PartialColumns, bounded_columns
from slackwater.windows.accumulations.counted import GROUP, Counted, CountedElements
from slackwater.windows.assigners import Sessions
from slackwater.windows.engine.compiled_trigger import CompiledTrigger
from slackwater.windows.engine.dropped_samples import SAMPLED_ROWS
from slackwater.windows.engine.frames import match, stack
from slackwater.windows.engine.lateness import Lateness
from slackwater.windows.operator_columns import (
    ADDED,
    CLOSED,
    END,
    FIRED,
    FIRST,
    FRESH,
    INDEX,
    LATEST,
    NEW,
    ON_TIME,
    REMAINING,
    STAMP,
    START,
    TIME,
    WEIGHT,
    input_column,
    key_column,
    missed_column,
    value_column,
)
from slackwater.windows.spec.window_spec import WindowSpec

_POSITION: Final = "counted:position"
Stored = Literal["elements", "extremes", "nothing"]
"""What merged partials have of accumulations that store their elements."""


@dataclass(frozen=True)
class CompiledSpec:
    """The expressions of one operator."""

    spec: WindowSpec
    emits_retractions: bool = True
    """False if retractions do not leave the operator, so that none can be late downstream."""

    @cached_property
    def trigger(self) -> CompiledTrigger:
        """The trigger as expressions over window rows."""
        return CompiledTrigger(self.spec.trigger)

    @cached_property
    def lateness(self) -> Lateness:
        """When windows are purged and elements are too late."""
        return Lateness(self.spec)

    @cached_property
    def key_columns(self) -> list[str]:
        """The internal names of the key columns; an operator without keys has one that is always 0."""
        return [key_column(number) for number in range(max(len(self.spec.key), 1))]

    @cached_property
    def row_columns(self) -> list[str]:
        """The columns that identify a window row: its window and its key."""
        return [START, END, *self.key_columns]

    @cached_property
    def keeps_panes(self) -> bool:
        """Whether the last pane is kept after it was emitted, to be retracted or compared with the next."""
        return self.spec.only_updated or self.spec.retracts

    @cached_property
    def partials(self) -> dict[str, PartialColumns]:
        """The partial columns of each accumulation."""
        return {name: PartialColumns(name, self.spec.takes_retractions) for name in self.spec.accumulations}

    @cached_property
    def accumulations(self) -> dict[str, ColumnarAccumulation]:
        """The accumulations, of which some store their elements if the input contains retractions."""
        if not self.spec.takes_retractions:
            return dict(self.spec.accumulations)
        return {
            name: accumulation if accumulation.can_subtract else Counted(accumulation)
            for name, accumulation in self.spec.accumulations.items()
        }

    @cached_property
    def _counted(self) -> list[tuple[Counted, PartialColumns]]:
        """The accumulations that store their elements, with their partial columns."""
        return [
            (accumulation, self.partials[name])
            for name, accumulation in self.accumulations.items()
            if isinstance(accumulation, Counted)
        ]

    @cached_property
    def element_columns(self) -> list[str]:
        """The columns of partials that hold elements, as lists."""
        return [name for counted, columns in self._counted for name in counted.elements_of(columns)]

    @cached_property
    def session_elements(self) -> CountedElements | None:
        """The elements of a session, which a retraction may split or shorten; None if that cannot happen."""
        splits = isinstance(self.spec.window, Sessions) and self.spec.takes_retractions
        if not splits or self.spec.mode == "discarding":
            return None
        return CountedElements(PartialColumns("", retractable=True), self.spec.inputs, reads_time=True)

    # ---- expressions over elements and partials

    def narrowed(self, elements: pl.DataFrame) -> tuple[pl.DataFrame, set[str]]:
        """Elements with the narrow columns of the accumulations that store them, and the names of those."""
        found = {
            columns.accumulation: narrow
            for counted, columns in self._counted
            if (narrow := counted.narrow(elements, columns))
        }
        if not found:
            return elements, set()
        return elements.with_columns(
            {one.name: one for several in found.values() for one in several}.values()
        ), set(found)

    def add_elements(
        self, watermark: int, elements: pl.DataFrame, narrow: Collection[str] = ()
    ) -> list[pl.Expr]:
        """Aggregations from elements to partials, with the number of elements and their output timestamp.

        Args:
            watermark: the watermark before the step.
            elements: the elements, of which small integers are added in 64 bits.
            narrow: the accumulations for which the elements are `narrowed`.
        """
        bounded = bounded_columns(elements, map(input_column, self._summed_inputs))
        aggregations: list[pl.Expr] = []
        if not self.numbers(elements, narrow):
            aggregations.append(pl.len().cast(pl.Int64).alias(ADDED))
            if self.spec.takes_retractions:
                aggregations.append(pl.col(WEIGHT).sum().alias(REMAINING))
        if self.spec.timestamp != "end_of_window":
            times = pl.col(TIME).filter(pl.col(TIME) >= watermark)
            stamp = times.min() if self.spec.timestamp == "earliest" else times.max()
            aggregations.append(stamp.alias(STAMP))
        if self.spec.ttl is not None:
            aggregations.append(pl.col(TIME).max().alias(LATEST))
        if self.session_elements is not None:
            aggregations += self.session_elements.add()
        for name, accumulation in self.accumulations.items():
            if isinstance(accumulation, Counted) and name in narrow:
                aggregations += accumulation.add_narrow(elements, self.partials[name])
            else:
                is_bounded = bounded.issuperset(map(input_column, accumulation.inputs))
                aggregations += accumulation.add(replace(self.partials[name], bounded=is_bounded))
        return aggregations

    def numbers(self, elements: pl.DataFrame, narrow: Collection[str]) -> list[pl.Expr]:
        """The number of elements, and that minus retractions, from lists that `add_elements` aggregates.

        Reading them from a list takes a fifth of the time of an aggregation. Empty if no list has signs.
        """
        several = (
            counted.numbers(elements, columns)
            for counted, columns in self._counted
            if columns.accumulation in narrow
        )
        return next(filter(None, several), [])

    @cached_property
    def _summed_inputs(self) -> list[str]:
        """The columns whose sums could overflow."""
        return list(dict.fromkeys(self._summed.values()))

    def merge_partials(
        self,
        missed: Iterable[str] = (),
        stored: Stored = "elements",
        present: Collection[str] | None = None,
    ) -> list[pl.Expr]:
        """Aggregations from several partials to one.

        Args:
            missed: the accumulations with a marker.
            stored: what the result has of accumulations that store their elements.
            present: the columns of the partials, if their lists are `narrowed`.
        """
        aggregations = [pl.col(ADDED).sum()]
        if self.spec.timestamp != "end_of_window":
            aggregations.append(self.merge_stamps())
        return aggregations + self.merge_values(missed, stored, present)

    def merge_values(
        self,
        missed: Iterable[str] = (),
        stored: Stored = "elements",
        present: Collection[str] | None = None,
    ) -> list[pl.Expr]:
        """`merge_partials` without the number of elements and the timestamp."""
        what = (tuple(missed), stored, None if present is None else frozenset(present))
        if what not in self._merges:  # building expressions takes longer than to merge a few partials
            self._merges[what] = self._merge_values(*what)
        return self._merges[what]

    @cached_property
    def _merges(self) -> dict[tuple[tuple[str, ...], Stored, frozenset[str] | None], list[pl.Expr]]:
        return {}

    def _merge_values(
        self, missed: Iterable[str], stored: Stored, present: Collection[str] | None
    ) -> list[pl.Expr]:
        # A partial that an earlier release stored has no REMAINING: the sum is then unknown.
        known = pl.col(REMAINING).is_not_null().all()
        counts: list[pl.Expr] = []
        if self.spec.takes_retractions:
            counts.append(pl.when(known).then(pl.col(REMAINING).sum()))
        if self.session_elements is not None:
            counts += self.session_elements.merge()
        merged: list[pl.Expr] = []
        for name, accumulation in self.accumulations.items():
            if not isinstance(accumulation, Counted):
                merged += accumulation.merge(self.partials[name])
            elif stored == "elements":
                merged += accumulation.merge(self.partials[name], present)
            elif stored == "extremes":
                merged += accumulation.merge_extremes(self.partials[name])
        return [*counts, *merged, *(pl.col(missed_column(name)).any() for name in missed)]

    def merge_stamps(self) -> pl.Expr:
        """Aggregation from several output timestamps to one."""
        return pl.col(STAMP).max() if self.spec.timestamp == "latest" else pl.col(STAMP).min()

    def settled(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Partials that are stored for longer: equal elements are combined, and retracted ones dropped."""
        for accumulation, columns in self._counted:
            partials = accumulation.settle(partials, columns)
        return partials if self.session_elements is None else self.session_elements.settle(partials)

    def without_elements(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Partials without the `element_columns`, but with the extremes that values may be known from."""
        for counted, columns in self._counted:
            partials = counted.without_elements(partials, columns)
        return partials

    def compacted(self, parts: pl.DataFrame, missed: Iterable[str] = ()) -> pl.DataFrame:
        """Partials of one window, merged to one for each key and `settled`."""
        keys = self.key_columns
        if not self._counted:
            return parts.group_by(keys).agg(self.merge_partials(missed))
        merged = parts.group_by(keys).agg(self.merge_partials(missed, "nothing"))
        for counted, columns in self._counted:
            merged = match(merged, counted.compact(parts, keys, columns), keys, "left")
        return merged

    def upgraded(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Partials from the state, with the columns that an earlier release did not store, and wide lists."""
        return self.widened(self.complete(partials))

    def united(self, several: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Partials together; their lists are wide unless all of them are narrow alike."""
        if any(each.schema != several[0].schema for each in several):
            several = [self.widened(each) for each in several]
        return stack(several)

    def widened(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Partials whose lists have the types of the elements."""
        for counted, columns in self._counted:
            partials = counted.widened(partials, columns)
        return partials

    def complete(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Partials from the state, with the columns that an earlier release did not store."""
        if self.spec.takes_retractions and REMAINING not in partials.columns:
            partials = partials.with_columns(pl.lit(None, pl.Int64()).alias(REMAINING))
            return partials if self.session_elements is None else self.session_elements.upgraded(partials)
        counts = [name for name in (ADDED, REMAINING) if partials.schema.get(name) == pl.Int32]
        return partials.with_columns(pl.col(counts).cast(pl.Int64)) if counts else partials

    def stored(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Partials of one batch as they are stored: smaller, as they are read once and written once."""
        if not self._counted:
            return partials
        return partials.with_columns(pl.col(ADDED, REMAINING).cast(pl.Int32))

    def with_values(self, partials: pl.DataFrame, parts: pl.DataFrame | None = None) -> pl.DataFrame:
        """Partials with the values of their panes.

        Args:
            partials: one row for each pane.
            parts: the partials that they were merged from without the `element_columns`.
        """

        def parts_of(rows: pl.DataFrame) -> pl.DataFrame:
            if parts is None:
                return rows
            # Their positions are matched, so that the lists of only these parts are copied, from one chunk:
            # from several it takes longer than to copy all lists.
            whole = parts.rechunk()
            positions = whole.select(self.row_columns).with_row_index(_POSITION)
            found = match(positions, rows.select(GROUP, *self.row_columns), self._identity(parts), "inner")
            return whole[found[_POSITION]].with_columns(found[GROUP])

        for counted, columns in self._counted:
            partials = counted.prepare(partials, columns, parts_of)
        values: list[pl.Expr] = []
        for name, accumulation in self.accumulations.items():
            value = accumulation.output(self.partials[name])
            if missed_column(name) in partials.columns:  # null if elements were missed
                value = pl.when(~pl.col(missed_column(name)).fill_null(value=False)).then(value)
            values.append(value.alias(value_column(name)))
        try:
            partials = partials.with_columns(values)
        except pl.exceptions.ComputeError as error:
            if "overflow in decimal" not in str(error):
                raise
            raise SumOverflow(self._summed, partials.height) from error
        self._check_sums(partials)
        return partials

    def _check_sums(self, partials: pl.DataFrame) -> None:
        """Raise if a value is null because it does not fit into its type."""
        for name, accumulation in self.accumulations.items():
            lost = accumulation.overflowed(self.partials[name])
            if lost is not None and partials[value_column(name)].null_count():
                rows = partials.select(lost.sum()).item()
                if rows:
                    raise SumOverflow({name: accumulation.inputs[0]}, rows)

    @property
    def _summed(self) -> dict[str, str]:
        """The names of the accumulations that can overflow, with the column of each."""
        return {
            name: accumulation.inputs[0]
            for name, accumulation in self.accumulations.items()
            if accumulation.overflowed(self.partials[name]) is not None
        }

    def _identity(self, parts: pl.DataFrame) -> list[str]:
        """The columns that identify the row of a part; the key suffices if there is only one window."""
        several = pl.any_horizontal(pl.col(name).min() != pl.col(name).max() for name in (START, END))
        return self.row_columns if parts.select(several).item() else self.key_columns

    # ---- expressions over window rows

    @cached_property
    def new_rows(self) -> list[pl.Expr]:
        """The columns of window rows without any elements."""
        return [
            pl.lit(0, pl.Int64()).alias(NEW),
            pl.lit(None, pl.Int64()).alias(FIRST),
            pl.lit(value=False).alias(FRESH),
            pl.lit(0, pl.Int64()).alias(INDEX),
            pl.lit(0, pl.Int64()).alias(ON_TIME),
            pl.lit(value=False).alias(CLOSED),
            pl.lit(-1, pl.Int64()).alias(FIRED),
            *self.trigger.initial(),
        ]

    @cached_property
    def state_columns(self) -> list[str]:
        """The columns that a window row keeps between steps, in addition to its window and key."""
        row = [NEW, FIRST, FRESH, STAMP, INDEX, ON_TIME, CLOSED, FIRED]
        return [*row, *self.latest_columns, *self.trigger.columns]

    @cached_property
    def latest_columns(self) -> list[str]:
        """The column with the latest event time of a key; none if keys do not expire."""
        return [] if self.spec.ttl is None else [LATEST]

    @cached_property
    def combine_rows(self) -> list[pl.Expr]:
        """Aggregations that combine a stored window row with a new row of the same window and key."""
        return [
            pl.col(NEW).sum(),
            pl.col(FIRST).min(),
            pl.col(FRESH).any(),
            self.merge_stamps(),
            pl.col(INDEX).sum(),
            pl.col(ON_TIME).sum(),
            pl.col(CLOSED).any(),
            pl.col(FIRED).max(),
            pl.col(ADDED).sum(),
            *(pl.col(name).max() for name in self.latest_columns),
        ]

    def add_to_rows(self, watermark: int, now: int) -> list[pl.Expr]:
        """The columns of window rows after ``ADDED`` elements were added to each."""
        added = pl.col(ADDED)
        arrived = pl.when(added > 0).then(pl.lit(now, pl.Int64()))
        return [
            pl.col(NEW) + added,
            pl.coalesce(pl.col(FIRST), arrived),
            pl.col(FRESH) | ((added > 0) & (pl.col(END) > watermark)),
            *self.trigger.add(added, now, watermark),
        ]

    def hold(self) -> pl.Expr:
        """The timestamp of the on-time pane that is still due, at which the watermark is held; or null."""
        pending = ~pl.col(CLOSED) & pl.col(FRESH) & (pl.col(ON_TIME) == 0)
        return pl.when(pending).then(pl.coalesce(pl.col(STAMP), pl.col(END) - 1))

    def waiting(self, watermark: int) -> pl.Expr:
        """The end of a window that still owes a pane; null if everything that it accepted was emitted.

        A pane at the end of time is owed by every global window. It can never be late, so it does not count.
        """
        owes = pl.col(NEW) > 0
        if self.spec.on_time == "always":
            owes = owes | (pl.col(END) > watermark)
        if self.spec.closing == "always":
            owes = pl.lit(value=True)
        can_be_late = (pl.col(END) < END_OF_TIME) | (self.hold() < END_OF_TIME - 1)
        return pl.when(~pl.col(CLOSED) & owes & can_be_late).then(pl.col(END))

    def event_target(self, watermark: int) -> pl.Expr:
        """The next watermark at which the trigger of an open window has to be evaluated; or null."""
        return pl.when(~pl.col(CLOSED)).then(self.trigger.event_target(watermark))

    def next_watermark(self, watermark: int) -> pl.Expr:
        """The next watermark at which a window row has to be evaluated before its window is due; or null."""
        target = self.event_target(watermark)
        return target if self.spec.ttl is None else pl.min_horizontal(target, self.lateness.expiry())

    def clock_target(self, clock: int) -> pl.Expr:
        """The processing time at which an open window has to be evaluated again; or null."""
        return pl.when(~pl.col(CLOSED)).then(self.trigger.target(clock))


@dataclass
class StepResults:
    """What one step has produced so far: panes, and the rows that were dropped."""

    panes: list[pl.DataFrame] = field(default_factory=list)
    late: list[pl.DataFrame] = field(default_factory=list)
    """Numbers of dropped rows with the reason, and the window if there is one."""
    dropped_late: int = 0
    dropped_closed: int = 0
    samples: list[pl.DataFrame] = field(default_factory=list)
    """Some of the dropped rows, or partials of rows, with their key and what `sample` adds."""

    def sample(
        self, dropped: pl.DataFrame, reason: str, bounds: tuple[pl.Expr, pl.Expr], keys: list[str]
    ) -> None:
        """Keep a few of the rows that are dropped for a reason; ``bounds`` are those of their window."""
        missing = SAMPLED_ROWS - sum(frame.height for frame in self.samples)
        if missing > 0:
            names = dropped.columns
            self.samples.append(
                dropped.head(missing).select(
                    pl.lit(reason).alias("reason"),
                    bounds[0].alias("window_start"),
                    bounds[1].alias("window_end"),
                    (pl.col(TIME) if TIME in names else pl.lit(None, pl.Int64())).alias("event_time"),
                    (pl.col(ADDED) if ADDED in names else pl.lit(1, pl.Int64())).alias("rows"),
                    *keys,
                )
            )

    expired: int = 0
    """The number of keys that were purged because of the ttl."""
