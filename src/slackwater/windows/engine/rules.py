"""What the parts of an operator share: its choices, and the names of the columns they work on.

Inside the operator every column has a name of its own making, so a user's column can never collide with
one of them: keys are ``key:0``, ``key:1``, …, inputs ``in:price``, partials ``part:total:sum``, values of
panes ``value:total``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import polars as pl

from slackwater.time import END_OF_TIME
from slackwater.windows.accumulations.base import TIME, Parts
from slackwater.windows.engine.trigger_machine import FIRST, NEW, TriggerMachine
from slackwater.windows.spec import WindowSpec

START = "start"
END = "end"
ADDED = "added"
"""How many elements this batch brings."""
STAMP = "stamp"
"""The output timestamp of the elements since the last firing; null for the end of the window."""
FRESH = "fresh"
"""Whether one of the elements since the last firing arrived while the window was not complete."""
INDEX = "index"
"""The index of the next pane."""
ON_TIME = "on_time"
"""How many panes were emitted that were not early."""
CLOSED = "closed"
"""Whether the trigger has finished."""
FIRED = "fired"
"""The step of the last firing; partials of later steps are new."""
SEQUENCE = "sequence"
"""The step in which a partial was added."""
ROW = "row"
"""The number of an element in its batch, or of a row in a decision."""


@dataclass(frozen=True)
class Rules:
    """The rules of one operator, as expressions over its columns."""

    spec: WindowSpec

    @cached_property
    def machine(self) -> TriggerMachine:
        """The trigger, compiled to expressions."""
        return TriggerMachine(self.spec.trigger)

    @cached_property
    def key_columns(self) -> list[str]:
        """The inner names of the key columns; an operator without keys has one that is always 0."""
        return [f"key:{number}" for number in range(max(len(self.spec.key), 1))]

    @cached_property
    def row_columns(self) -> list[str]:
        """The columns that identify a row: its window and its key."""
        return [START, END, *self.key_columns]

    @cached_property
    def keeps_standing(self) -> bool:
        """Whether panes are kept after they were emitted, to be taken back or compared."""
        return self.spec.only_updated or self.spec.mode == "accumulating_and_retracting"

    @cached_property
    def parts(self) -> dict[str, Parts]:
        """The partial columns of each accumulation."""
        return {name: Parts(name, self.spec.takes_retractions) for name in self.spec.accumulations}

    def horizon(self, end: int) -> int:
        """The watermark at which a window that ends there is purged."""
        if self.spec.allowed_lateness is None:
            return END_OF_TIME
        return min(end + self.spec.allowed_lateness, END_OF_TIME)

    def horizon_expression(self, end: pl.Expr) -> pl.Expr:
        """The same for a column of ends."""
        if self.spec.allowed_lateness is None:
            return pl.lit(END_OF_TIME, pl.Int64())
        room = END_OF_TIME - self.spec.allowed_lateness
        return (
            pl.when(end >= room)
            .then(pl.lit(END_OF_TIME, pl.Int64()))
            .otherwise(end + min(self.spec.allowed_lateness, END_OF_TIME))
        )

    # ---- expressions over elements and partials

    def add_elements(self, watermark: int) -> list[pl.Expr]:
        """Aggregations from elements to partials, with their number and output timestamp."""
        aggregations = [pl.len().cast(pl.Int64).alias(ADDED)]
        if self.spec.timestamp != "end_of_window":
            times = pl.col(TIME).filter(pl.col(TIME) >= watermark)
            aggregations.append(
                (times.min() if self.spec.timestamp == "earliest" else times.max()).alias(STAMP)
            )
        for name, accumulation in self.spec.accumulations.items():
            aggregations += accumulation.add(self.parts[name])
        return aggregations

    def merge_partials(self) -> list[pl.Expr]:
        """Aggregations from partials to one."""
        aggregations = [pl.col(ADDED).sum()]
        if self.spec.timestamp != "end_of_window":
            aggregations.append(self.merge_stamps())
        return aggregations + self.merge_parts()

    def merge_parts(self) -> list[pl.Expr]:
        """The same without the number of elements and the timestamp."""
        return [
            expression
            for name, accumulation in self.spec.accumulations.items()
            for expression in accumulation.merge(self.parts[name])
        ]

    def merge_stamps(self) -> pl.Expr:
        """The output timestamp of several partials."""
        return pl.col(STAMP).max() if self.spec.timestamp == "latest" else pl.col(STAMP).min()

    def values(self) -> list[pl.Expr]:
        """The values of panes, from partials."""
        return [
            accumulation.output(self.parts[name]).alias(f"value:{name}")
            for name, accumulation in self.spec.accumulations.items()
        ]

    # ---- expressions over rows

    def new_rows(self) -> list[pl.Expr]:
        """The columns of rows that nothing has come to."""
        return [
            pl.lit(0, pl.Int64()).alias(NEW),
            pl.lit(None, pl.Int64()).alias(FIRST),
            pl.lit(value=False).alias(FRESH),
            pl.lit(0, pl.Int64()).alias(INDEX),
            pl.lit(0, pl.Int64()).alias(ON_TIME),
            pl.lit(value=False).alias(CLOSED),
            pl.lit(-1, pl.Int64()).alias(FIRED),
            *self.machine.initial(),
        ]

    @cached_property
    def state_columns(self) -> list[str]:
        """The columns that a row keeps between steps, besides its window and key."""
        return [NEW, FIRST, FRESH, STAMP, INDEX, ON_TIME, CLOSED, FIRED, *self.machine.columns]

    def combine_rows(self) -> list[pl.Expr]:
        """Aggregations that join the row of a window with one that nothing has come to."""
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
        ]

    def add_to_rows(self, watermark: int, now: int) -> list[pl.Expr]:
        """The columns of rows after ``ADDED`` elements came to each."""
        added = pl.col(ADDED)
        arrived = pl.when(added > 0).then(pl.lit(now, pl.Int64()))
        return [
            pl.col(NEW) + added,
            pl.coalesce(pl.col(FIRST), arrived),
            pl.col(FRESH) | ((added > 0) & (pl.col(END) > watermark)),
            *self.machine.add(added, now),
        ]

    def hold(self) -> pl.Expr:
        """The timestamp of the pane that is still to come on time, where there is one."""
        pending = ~pl.col(CLOSED) & pl.col(FRESH) & (pl.col(ON_TIME) == 0)
        return pl.when(pending).then(pl.coalesce(pl.col(STAMP), pl.col(END) - 1))

    def drop_behind(self, watermark: int) -> pl.Expr:
        """Whether an element is too late by its own timestamp."""
        if self.spec.drop_late == "by_window" or self.spec.allowed_lateness is None:
            return pl.lit(value=False)
        return pl.col(TIME) < max(watermark - self.spec.allowed_lateness, -(2**63))


@dataclass
class Collector:
    """What one step brings: panes, rows that were dropped, and how many."""

    panes: list[pl.DataFrame] = field(default_factory=list)
    late: list[pl.DataFrame] = field(default_factory=list)
    """Numbers of dropped rows with the reason, and the window where there is one."""
    dropped_late: int = 0
    dropped_closed: int = 0


def match(
    left: pl.DataFrame,
    right: pl.DataFrame,
    columns: Sequence[str],
    how: Literal["inner", "left", "semi", "anti"],
) -> pl.DataFrame:
    """A join on keys, in which null is a key like any other.

    >>> left, right = pl.DataFrame({"key": [None, 1]}), pl.DataFrame({"key": [None], "value": [7]})
    >>> match(left, right, ["key"], "left").to_dicts()
    [{'key': None, 'value': 7}, {'key': 1, 'value': None}]
    """
    kinds = [frame.select(columns).clear() for frame in (left, right)]
    if kinds[0].schema != kinds[1].schema:  # a batch whose keys are all null, or of a narrower type
        common = pl.concat(kinds, how="vertical_relaxed").schema
        left, right = left.cast(common), right.cast(common)
    return left.join(right, on=list(columns), how=how, nulls_equal=True, maintain_order="left")


def stack(frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Frames with the same columns, one below the other, in the widest of their types.

    >>> stack([pl.DataFrame({"a": [1]}), pl.DataFrame({"a": [2]})])["a"].to_list()
    [1, 2]
    """
    several = list(frames)
    if len(several) == 1:
        return several[0]
    schema = several[0].schema
    if all(frame.schema == schema for frame in several):  # which also says that columns are in one order
        return pl.concat(several, rechunk=False)
    ordered = [frame.select(schema.names()) for frame in several]
    return pl.concat(ordered, how="vertical_relaxed", rechunk=False)
