"""The trigger algebra on columns: one trigger, all keys and windows at once.

What a trigger tree remembers is little. Outside of ``until`` parts, a count is the number of elements
since the last firing and a clock target follows from the arrival of the first of them, and both belong to
the row of a key and window, not to the trigger. What remains, per node of the tree, is a few flat columns:

- each after_watermark: whether it has fired at the end (``past``);
- each after_each: which of its triggers is the current one (``place``);
- each or_finally: how many elements its ``until`` has seen, and when the first of them arrived.

So "ready", "fire" and "merge" become expressions over a frame with one row per key and window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_

import polars as pl

from slackwater.time import BEGINNING_OF_TIME, END_OF_TIME
from slackwater.windows.triggers import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterProcessingTime,
    AfterWatermark,
    Always,
    Never,
    OrFinally,
    Repeatedly,
    Trigger,
    waits_for_end,
)

NEW = "new"
"""How many elements came since the last firing."""
FIRST = "first"
"""When the first of them arrived, by the clock."""

_FALSE = pl.lit(value=False)
_TRUE = pl.lit(value=True)


@dataclass(frozen=True)
class Moment:
    """What a trigger can see when it is asked: whether the window is complete, and the clock."""

    complete: pl.Expr
    clock: int


@dataclass(frozen=True)
class _Memory:
    """A column that a node keeps: its name, its type and what it starts from."""

    name: str
    dtype: pl.DataType
    initial: bool | int | None

    @property
    def start(self) -> pl.Expr:
        return pl.lit(self.initial, self.dtype)


class _Changes:
    """The columns of a machine as expressions, changed step by step and written at once."""

    def __init__(self, memories: Sequence[_Memory]) -> None:
        self.columns = {memory.name: pl.col(memory.name) for memory in memories}

    def set(self, memory: _Memory, mask: pl.Expr, value: pl.Expr) -> None:
        self.columns[memory.name] = pl.when(mask).then(value).otherwise(self.columns[memory.name])

    def expressions(self) -> list[pl.Expr]:
        return [expression.alias(name) for name, expression in self.columns.items()]


@dataclass(frozen=True)
class _Pending:
    """Where the count and the first arrival are read: the row's own, or those of an ``until``."""

    count: str
    first: str


class _Node:
    """A node of the tree, with the columns it keeps."""

    def __init__(self, trigger: Trigger, number: list[int], pending: _Pending) -> None:
        self.trigger = trigger
        self.pending = pending
        self.memories: tuple[_Memory, ...] = ()
        name = f"trigger:{number[0]}"
        number[0] += 1
        inner: list[tuple[Trigger, _Pending]] = []
        match trigger:
            case AfterWatermark(early, late):
                self.memories = (_Memory(f"{name}:past", pl.Boolean(), initial=False),)
                inner = [(part, pending) for part in (early, late) if part is not None]
            case AfterEach(triggers=parts):
                self.memories = (_Memory(f"{name}:place", pl.Int16(), 0),)
                inner = [(part, pending) for part in parts]
            case AfterAny(triggers=parts) | AfterAll(triggers=parts):
                inner = [(part, pending) for part in parts]
            case Repeatedly(part):
                inner = [(part, pending)]
            case OrFinally(main, until):
                seen = _Memory(f"{name}:count", pl.Int64(), 0), _Memory(f"{name}:first", pl.Int64(), None)
                self.memories = seen
                inner = [(main, pending), (until, _Pending(seen[0].name, seen[1].name))]
            case _:
                pass
        self.children = tuple(_Node(part, number, place) for part, place in inner)

    @property
    def early(self) -> _Node | None:
        return self.children[0] if isinstance(self.trigger, AfterWatermark) and self.trigger.early else None

    @property
    def late(self) -> _Node | None:
        return self.children[-1] if isinstance(self.trigger, AfterWatermark) and self.trigger.late else None

    def memory(self, place: int = 0) -> pl.Expr:
        return pl.col(self.memories[place].name)

    def descendants(self) -> list[_Node]:
        return [self, *(node for child in self.children for node in child.descendants())]

    # ---- asking

    def ready(self, moment: Moment) -> pl.Expr:
        match self.trigger:
            case AfterCount(count):
                return pl.col(self.pending.count) >= count
            case AfterProcessingTime(delay):
                arrived_before = max(moment.clock - delay, BEGINNING_OF_TIME)
                return (pl.col(self.pending.first) < arrived_before).fill_null(value=False)
            case AfterWatermark():
                early = self.early.ready(moment) if self.early else _FALSE
                late = self.late.ready(moment) if self.late else _FALSE
                return pl.when(self.memory()).then(late).otherwise(moment.complete | early)
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
        nothing = pl.lit(None, pl.Int64())
        match self.trigger:
            case AfterProcessingTime(delay):
                first, latest = pl.col(self.pending.first), END_OF_TIME - delay
                at = pl.when(first < latest).then(first + delay).when(first.is_not_null()).then(END_OF_TIME)
                return pl.when(at >= clock).then(at)
            case AfterWatermark():
                early = self.early.target(clock) if self.early else nothing
                late = self.late.target(clock) if self.late else nothing
                return pl.when(self.memory()).then(late).otherwise(early)
            case AfterEach():
                return self._current([child.target(clock) for child in self.children])
            case _:
                targets = [child.target(clock) for child in self.children]
                return pl.min_horizontal(targets) if targets else nothing

    def _current(self, answers: Sequence[pl.Expr]) -> pl.Expr:
        choice = answers[-1]
        for place, answer in reversed(list(enumerate(answers[:-1]))):
            choice = pl.when(self.memory() == place).then(answer).otherwise(choice)
        return choice

    # ---- firing

    def fire(self, mask: pl.Expr, moment: Moment, changes: _Changes) -> pl.Expr:
        """Change what a firing changes where ``mask`` holds; the answer is where the node finishes."""
        match self.trigger:
            case AfterWatermark():
                past = self.memory() | moment.complete
                for child in self.children:
                    child.reset(mask, changes)
                changes.set(self.memories[0], mask, past)
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
                self.forget(mask, changes)
                return mask
            case OrFinally():
                main, until = self.children
                ends = mask & until.ready(moment)
                until.fire(ends, moment, changes)
                finished = ends | main.fire(mask & ~ends, moment, changes)
                self.forget(finished, changes)
                return finished
            case Never() | Always():
                return _FALSE
            case _:
                return mask

    def _fire_each(self, mask: pl.Expr, moment: Moment, changes: _Changes) -> pl.Expr:
        place = self.memory()
        finished = []
        for number, child in enumerate(self.children):
            current = mask & (place == number)
            finished.append(child.fire(current, moment, changes))
            child.forget((mask & (place != number)) | finished[number], changes)
        for number, ended in enumerate(finished[:-1]):
            changes.set(self.memories[0], ended, pl.lit(number + 1, pl.Int16()))
        return finished[-1]

    def forget(self, mask: pl.Expr, changes: _Changes) -> None:
        """What was pending is no more: counts and first arrivals, nothing else."""
        for node in self.descendants():
            if isinstance(node.trigger, OrFinally):
                for memory in node.memories:
                    changes.set(memory, mask, memory.start)

    def reset(self, mask: pl.Expr, changes: _Changes) -> None:
        """Start from the very beginning."""
        for node in self.descendants():
            for memory in node.memories:
                changes.set(memory, mask, memory.start)

    # ---- merging sessions

    def rewind(self, complete: pl.Expr, changes: _Changes) -> pl.Expr:
        """After a merge: set what the sessions go back to; the answer is where an after_watermark does."""
        rewinds = [child.rewind(complete, changes) for child in self.children]
        match self.trigger:
            case AfterWatermark():
                every, some = (
                    pl.col(f"{self.memories[0].name}:every"),
                    pl.col(f"{self.memories[0].name}:some"),
                )
                past = complete & every
                changes.set(self.memories[0], _TRUE, past)
                if self.late:
                    self.late.reset(~past, changes)
                rewinds.append(some & ~past)
            case AfterEach():
                place = self.memory()
                for number, back in reversed(list(enumerate(rewinds[:-1]))):
                    place = (
                        pl.when((self.memory() > number) & back)
                        .then(pl.lit(number, pl.Int16()))
                        .otherwise(place)
                    )
                changes.set(self.memories[0], _TRUE, place)
                for number, child in enumerate(self.children):
                    child.reset(place < number, changes)
            case _:
                pass
        return reduce(or_, rewinds, _FALSE)


class TriggerMachine:
    """A trigger, compiled: its columns, and expressions that ask, fire and merge it.

    >>> from slackwater.windows.triggers import AfterCount, Repeatedly
    >>> machine = TriggerMachine(Repeatedly(AfterCount(2)))
    >>> rows = pl.DataFrame({"new": [1, 2, 3]})
    >>> rows.select(machine.ready(Moment(pl.lit(value=False), clock=0)).alias("ready")).to_series().to_list()
    [False, True, True]
    """

    def __init__(self, trigger: Trigger) -> None:
        self.root = _Node(trigger, [0], _Pending(NEW, FIRST))
        nodes = self.root.descendants()
        self._memories = [memory for node in nodes for memory in node.memories]
        self._watermarks = [node for node in nodes if isinstance(node.trigger, AfterWatermark)]
        self.uses_clock = any(isinstance(node.trigger, AfterProcessingTime) for node in nodes)
        self.can_finish = trigger.can_finish
        self.waits_for_end = waits_for_end(trigger)

    @property
    def columns(self) -> list[str]:
        """The names of the columns it keeps."""
        return [memory.name for memory in self._memories]

    def initial(self) -> list[pl.Expr]:
        """The columns of rows that nothing has come to."""
        return [memory.start.alias(memory.name) for memory in self._memories]

    def add(self, count: pl.Expr, arrival: int) -> list[pl.Expr]:
        """The columns after ``count`` elements came: every ``until`` sees them, whosever turn it is."""
        changed: list[pl.Expr] = []
        for memory in self._memories:
            if memory.name.endswith(":count"):
                changed.append(pl.col(memory.name) + count)
            elif memory.name.endswith(":first"):
                arrived = pl.when(count > 0).then(pl.lit(arrival, pl.Int64()))
                changed.append(pl.coalesce(pl.col(memory.name), arrived))
        return changed

    def combine(self) -> list[pl.Expr]:
        """Aggregations that join the row of a window with a row that nothing has come to."""
        return [
            pl.col(memory.name).min() if memory.name.endswith(":first")
            else pl.col(memory.name).sum() if memory.name.endswith(":count")
            else pl.col(memory.name).max()
            for memory in self._memories
        ]  # fmt: skip

    def merge(self, source: str) -> list[pl.Expr]:
        """Aggregations that join sessions; rows where ``source`` is false are elements, not sessions."""
        flags: list[pl.Expr] = []
        for node in self._watermarks:
            past, is_source = node.memory(), pl.col(source)
            flags += [
                (past | ~is_source).all().alias(f"{node.memories[0].name}:every"),
                (past & is_source).any().alias(f"{node.memories[0].name}:some"),
            ]
        return [*self.combine(), *flags]

    def rewind(self, complete: pl.Expr) -> list[pl.Expr]:
        """The columns of merged sessions, after `merge` over at least one of them."""
        changes = _Changes(self._memories)
        self.root.rewind(complete, changes)
        return changes.expressions()

    def ready(self, moment: Moment) -> pl.Expr:
        """Whether the window should fire."""
        return self.root.ready(moment)

    def fire(self, mask: pl.Expr, moment: Moment) -> tuple[pl.Expr, list[pl.Expr]]:
        """For a firing where ``mask`` holds: where the trigger finishes, and its columns afterwards."""
        changes = _Changes(self._memories)
        finished = self.root.fire(mask, moment, changes)
        return finished, changes.expressions()

    def target(self, clock: int) -> pl.Expr:
        """The earliest processing time, not before ``clock``, at which to ask again; or null."""
        return self.root.target(clock)
