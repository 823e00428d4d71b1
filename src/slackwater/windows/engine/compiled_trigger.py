"""A trigger compiled to Polars expressions, which evaluate it for all keys and windows at once.

A trigger has little state. Except under the ``until`` of an or_finally, a count is the number of elements
since the last firing and a processing-time target follows from the arrival of the first of them; both are
columns of the window row, not of the trigger. What remains is a few columns per node of the trigger tree:

- after_watermark: whether it has fired at the end (``past``);
- after_each: the number of its current trigger (``place``);
- or_finally: how many elements its ``until`` has seen, and when the first of them arrived.

With an after_event_time there is one more: the watermark at which the first element since the last firing
arrived, but at least the start of the window (``since``).

So "ready", "fire" and "merge" become expressions over a frame with one row per key and window.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import count
from operator import and_, or_

import polars as pl

from slackwater.time import BEGINNING_OF_TIME, END_OF_TIME
from slackwater.windows.operator_columns import FIRST, NEW, ON_TIME, START
from slackwater.windows.triggers import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterEventTime,
    AfterProcessingTime,
    AfterWatermark,
    Always,
    Never,
    OrFinally,
    Repeatedly,
    Trigger,
    waits_for_end,
)

_FALSE = pl.lit(value=False)
_TRUE = pl.lit(value=True)
_NOTHING = pl.lit(None, pl.Int64())


@dataclass(frozen=True)
class Moment:
    """When a trigger is evaluated: whether the window is complete, the processing time, the watermark."""

    complete: pl.Expr
    clock: int
    watermark: int = BEGINNING_OF_TIME


@dataclass(frozen=True)
class _StateColumn:
    """A column that a node keeps in the window row: its name, type and initial value."""

    name: str
    dtype: pl.DataType
    initial: bool | int | None

    @property
    def reset(self) -> pl.Expr:
        return pl.lit(self.initial, self.dtype)


class _Changes:
    """The state columns of a trigger as expressions, to which changes are added one after the other."""

    def __init__(self, columns: Sequence[_StateColumn]) -> None:
        self.columns = {column.name: pl.col(column.name) for column in columns}

    def set(self, column: _StateColumn, mask: pl.Expr, value: pl.Expr) -> None:
        self.columns[column.name] = pl.when(mask).then(value).otherwise(self.columns[column.name])

    def expressions(self) -> list[pl.Expr]:
        return [expression.alias(name) for name, expression in self.columns.items()]


@dataclass(frozen=True)
class _Counted:
    """The columns with the count and the first arrival: those of the window row, or of an ``until``."""

    count: str
    first: str
    since: str

    @property
    def since_column(self) -> _StateColumn:
        """The column with the watermark at which the first element arrived."""
        return _StateColumn(self.since, pl.Int64(), None)


class _Node:
    """A node of the trigger tree, with its state columns."""

    def __init__(self, trigger: Trigger, numbers: Iterator[int], counted: _Counted) -> None:
        self.trigger = trigger
        self.counted = counted
        self.columns: tuple[_StateColumn, ...] = ()
        name = f"trigger:{next(numbers)}"
        inner: list[tuple[Trigger, _Counted]] = []
        match trigger:
            case AfterWatermark(early, late):
                self.columns = (_StateColumn(f"{name}:past", pl.Boolean(), initial=False),)
                inner = [(each, counted) for each in (early, late) if each is not None]
            case AfterEach(triggers=triggers):
                self.columns = (_StateColumn(f"{name}:place", pl.Int16(), 0),)
                inner = [(each, counted) for each in triggers]
            case AfterAny(triggers=triggers) | AfterAll(triggers=triggers):
                inner = [(each, counted) for each in triggers]
            case Repeatedly(repeated):
                inner = [(repeated, counted)]
            case OrFinally(main, until):
                own = _Counted(f"{name}:count", f"{name}:first", f"{name}:since")
                self.columns = (
                    _StateColumn(own.count, pl.Int64(), 0),
                    _StateColumn(own.first, pl.Int64(), None),
                )
                inner = [(main, counted), (until, own)]
            case _:
                pass
        self.children = tuple(_Node(child, numbers, columns) for child, columns in inner)
        if isinstance(trigger, OrFinally) and self.children[1].waits_for_event_time:
            self.columns += (self.children[1].counted.since_column,)

    @property
    def early(self) -> _Node | None:
        return self.children[0] if isinstance(self.trigger, AfterWatermark) and self.trigger.early else None

    @property
    def late(self) -> _Node | None:
        return self.children[-1] if isinstance(self.trigger, AfterWatermark) and self.trigger.late else None

    def state(self) -> pl.Expr:
        """The first state column of the node."""
        return pl.col(self.columns[0].name)

    def descendants(self) -> list[_Node]:
        return [self, *(node for child in self.children for node in child.descendants())]

    @property
    def waits_for_event_time(self) -> bool:
        """Whether a trigger of this tree, apart from those of an ``until``, is an after_event_time."""
        return any(
            isinstance(node.trigger, AfterEventTime) and node.counted == self.counted
            for node in self.descendants()
        )

    # ---- evaluating

    def ready(self, moment: Moment) -> pl.Expr:
        match self.trigger:
            case AfterCount(count):
                return pl.col(self.counted.count) >= count
            case AfterProcessingTime(delay):
                arrived_before = max(moment.clock - delay, BEGINNING_OF_TIME)
                return (pl.col(self.counted.first) < arrived_before).fill_null(value=False)
            case AfterEventTime(interval):
                return (self._multiple(interval) <= moment.watermark).fill_null(value=False)
            case AfterWatermark():
                early = self.early.ready(moment) if self.early else _FALSE
                late = self.late.ready(moment) if self.late else _FALSE
                return pl.when(self.state()).then(late).otherwise(moment.complete | early)
            case AfterEach():
                return self._current([child.ready(moment) for child in self.children])
            case AfterAll():
                return reduce(and_, (child.ready(moment) for child in self.children))
            case Never():
                return _FALSE
            case Always():
                return _TRUE
            case _:
                return reduce(or_, (child.ready(moment) for child in self.children))

    def target(self, clock: int) -> pl.Expr:
        """The earliest processing time, not before ``clock``, for which the node waits; or null."""
        if isinstance(self.trigger, AfterProcessingTime):
            delay = self.trigger.delay
            first, latest = pl.col(self.counted.first), END_OF_TIME - delay
            at = pl.when(first < latest).then(first + delay).when(first.is_not_null()).then(END_OF_TIME)
            return pl.when(at >= clock).then(at)
        if not self.contains(AfterProcessingTime):
            return _NOTHING
        return self._earliest([child.target(clock) for child in self.children])

    def event_target(self, watermark: int) -> pl.Expr:
        """The lowest watermark, above ``watermark``, for which an after_event_time waits; or null."""
        if isinstance(self.trigger, AfterEventTime):
            multiple = self._multiple(self.trigger.interval)
            return pl.when(multiple > watermark).then(multiple)
        if not self.contains(AfterEventTime):
            return _NOTHING
        return self._earliest([child.event_target(watermark) for child in self.children])

    def contains(self, kind: type[Trigger]) -> bool:
        """Whether the node or one below it has a trigger of this kind."""
        return isinstance(self.trigger, kind) or any(child.contains(kind) for child in self.children)

    def _earliest(self, targets: Sequence[pl.Expr]) -> pl.Expr:
        """The earliest target of the children, as far as they are active."""
        match self.trigger:
            case AfterWatermark():
                early = targets[0] if self.early else _NOTHING
                late = targets[-1] if self.late else _NOTHING
                return pl.when(self.state()).then(late).otherwise(early)
            case AfterEach():
                return self._current(targets)
            case _:
                return pl.min_horizontal(targets) if targets else _NOTHING

    def _multiple(self, interval: int) -> pl.Expr:
        """The multiple of event time for which an after_event_time waits; null before its first element."""
        since = pl.col(self.counted.since)
        latest = END_OF_TIME // interval * interval
        return (
            pl.when(since < latest)
            .then(since - since % interval + interval)
            .when(since.is_not_null())
            .then(pl.lit(END_OF_TIME, pl.Int64()))
        )

    def _current(self, results: Sequence[pl.Expr]) -> pl.Expr:
        """Of the results of the triggers of an after_each, that of the current one."""
        choice = results[-1]
        for number, result in reversed(list(enumerate(results[:-1]))):
            choice = pl.when(self.state() == number).then(result).otherwise(choice)
        return choice

    # ---- firing

    def fire(self, mask: pl.Expr, moment: Moment, changes: _Changes) -> pl.Expr:
        """Add the changes of a firing where ``mask`` is true; returns where the node finishes."""
        match self.trigger:
            case AfterWatermark():
                past = self.state() | moment.complete
                for child in self.children:
                    child.reset(mask, changes)
                changes.set(self.columns[0], mask, past)
                return _FALSE if self.late else mask & past
            case Repeatedly():
                finished = self.children[0].fire(mask, moment, changes)
                self.children[0].reset(finished, changes)
                return _FALSE
            case AfterEach():
                return self._fire_each(mask, moment, changes)
            case AfterAny() | AfterAll():
                for child in self.children:
                    child.fire(mask & child.ready(moment), moment, changes)
                self.clear_counts(mask, changes)
                return mask
            case OrFinally():
                main, until = self.children
                ends = mask & until.ready(moment)
                until.fire(ends, moment, changes)
                finished = ends | main.fire(mask & ~ends, moment, changes)
                self.clear_counts(finished, changes)
                return finished
            case Never() | Always():
                return _FALSE
            case _:
                return mask

    def _fire_each(self, mask: pl.Expr, moment: Moment, changes: _Changes) -> pl.Expr:
        current = self.state()
        finished = []
        for number, child in enumerate(self.children):
            fires = mask & (current == number)
            finished.append(child.fire(fires, moment, changes))
            child.clear_counts((mask & (current != number)) | finished[number], changes)
        for number, ended in enumerate(finished[:-1]):
            changes.set(self.columns[0], ended, pl.lit(number + 1, pl.Int16()))
        return finished[-1]

    def clear_counts(self, mask: pl.Expr, changes: _Changes) -> None:
        """Reset counts and first arrivals, and no other state."""
        for node in self.descendants():
            if isinstance(node.trigger, OrFinally):
                for column in node.columns:
                    changes.set(column, mask, column.reset)

    def reset(self, mask: pl.Expr, changes: _Changes) -> None:
        """Reset all state."""
        for node in self.descendants():
            for column in node.columns:
                changes.set(column, mask, column.reset)

    # ---- merging sessions

    def rewind(self, complete: pl.Expr, changes: _Changes) -> pl.Expr:
        """Set the phase of merged sessions; returns where an after_watermark is before the end again."""
        rewinds = [child.rewind(complete, changes) for child in self.children]
        match self.trigger:
            case AfterWatermark():
                every, some = (
                    pl.col(f"{self.columns[0].name}:every"),
                    pl.col(f"{self.columns[0].name}:some"),
                )
                past = complete & every
                changes.set(self.columns[0], _TRUE, past)
                if self.late:
                    self.late.reset(~past, changes)
                rewinds.append(some & ~past)
            case AfterEach():
                current = self.state()
                for number, rewound in reversed(list(enumerate(rewinds[:-1]))):
                    current = (
                        pl.when((self.state() > number) & rewound)
                        .then(pl.lit(number, pl.Int16()))
                        .otherwise(current)
                    )
                changes.set(self.columns[0], _TRUE, current)
                for number, child in enumerate(self.children):
                    child.reset(current < number, changes)
            case _:
                pass
        return reduce(or_, rewinds, _FALSE)


class CompiledTrigger:
    """A trigger as expressions over window rows: its state columns, and how to evaluate, fire and merge it.

    >>> from slackwater.windows.triggers import AfterCount, Repeatedly
    >>> trigger = CompiledTrigger(Repeatedly(AfterCount(2)))
    >>> rows = pl.DataFrame({"new": [1, 2, 3]})
    >>> rows.select(trigger.ready(Moment(pl.lit(value=False), clock=0)).alias("ready")).to_series().to_list()
    [False, True, True]
    """

    def __init__(self, trigger: Trigger) -> None:
        counted = _Counted(NEW, FIRST, "trigger:since")
        self.root = _Node(trigger, count(), counted)
        nodes = self.root.descendants()
        self._since = [counted.since_column] if self.root.waits_for_event_time else []
        self._columns = [*self._since, *(column for node in nodes for column in node.columns)]
        self._watermarks = [node for node in nodes if isinstance(node.trigger, AfterWatermark)]
        self.uses_clock = any(isinstance(node.trigger, AfterProcessingTime) for node in nodes)
        self.can_finish = trigger.can_finish
        self.waits_for_end = waits_for_end(trigger)

    @property
    def columns(self) -> list[str]:
        """The names of its state columns."""
        return [column.name for column in self._columns]

    def initial(self) -> list[pl.Expr]:
        """The state columns of window rows without elements."""
        return [column.reset.alias(column.name) for column in self._columns]

    def restarted(self, complete: pl.Expr, watermark: int) -> list[pl.Expr]:
        """The state columns of window rows whose former trigger was another one.

        Elements since the last firing keep counting, and a window that has emitted its on-time pane waits
        for late elements. Everything else begins anew.

        Args:
            complete: whether the window of a row is complete.
            watermark: the operator's watermark, from which event time counts.
        """
        columns = {column.name: column.reset for column in self._columns}
        for name in columns:
            if name.endswith(":count"):
                columns[name] = pl.col(NEW)
            elif name.endswith(":first"):
                columns[name] = pl.col(FIRST)
            elif name.endswith(":since"):
                reached = pl.max_horizontal(pl.col(START), pl.lit(watermark, pl.Int64()))
                columns[name] = pl.when(pl.col(NEW) > 0).then(reached)
        if self.root.late is not None:
            columns[self.root.columns[0].name] = complete & (pl.col(ON_TIME) > 0)
        return [value.alias(name) for name, value in columns.items()]

    def add(self, count: pl.Expr, arrival: int, watermark: int) -> list[pl.Expr]:
        """The state columns after ``count`` elements arrived; every ``until`` counts them."""
        changed: list[pl.Expr] = []
        for name in self.columns:
            if name.endswith(":count"):
                changed.append(pl.col(name) + count)
            elif name.endswith(":first"):
                arrived = pl.when(count > 0).then(pl.lit(arrival, pl.Int64()))
                changed.append(pl.coalesce(pl.col(name), arrived))
            elif name.endswith(":since"):
                reached = pl.max_horizontal(pl.col(START), pl.lit(watermark, pl.Int64()))
                changed.append(pl.coalesce(pl.col(name), pl.when(count > 0).then(reached)))
        return changed

    def combine(self) -> list[pl.Expr]:
        """Aggregations that combine a stored window row with a new row of the same window and key."""
        return [
            pl.col(name).min() if name.endswith((":first", ":since"))
            else pl.col(name).sum() if name.endswith(":count")
            else pl.col(name).max()
            for name in self.columns
        ]  # fmt: skip

    def merge(self, stored: str) -> list[pl.Expr]:
        """Aggregations that merge sessions; column ``stored`` is false for sessions of the batch."""
        flags: list[pl.Expr] = []
        for node in self._watermarks:
            past, is_stored = node.state(), pl.col(stored)
            flags += [
                (past | ~is_stored).all().alias(f"{node.columns[0].name}:every"),
                (past & is_stored).any().alias(f"{node.columns[0].name}:some"),
            ]
        return [*self.combine(), *flags]

    def rewind(self, complete: pl.Expr) -> list[pl.Expr]:
        """The state columns of merged sessions, after `merge` with at least one stored session."""
        changes = _Changes(self._columns)
        self.root.rewind(complete, changes)
        return changes.expressions()

    def ready(self, moment: Moment) -> pl.Expr:
        """Whether the trigger is ready to fire."""
        return self.root.ready(moment)

    def fire(self, mask: pl.Expr, moment: Moment) -> tuple[pl.Expr, list[pl.Expr]]:
        """Fire where ``mask`` is true; returns where the trigger finishes, and its state columns."""
        changes = _Changes(self._columns)
        finished = self.root.fire(mask, moment, changes)
        for column in self._since:
            changes.set(column, mask, column.reset)
        return finished, changes.expressions()

    def target(self, clock: int) -> pl.Expr:
        """The earliest processing time, not before ``clock``, at which to evaluate it again; or null."""
        return self.root.target(clock)

    def event_target(self, watermark: int) -> pl.Expr:
        """The lowest watermark, above ``watermark``, at which to evaluate it again; or null."""
        return self.root.event_target(watermark)
