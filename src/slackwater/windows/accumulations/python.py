"""Accumulations in plain Python: `Accumulation` to subclass, fold and reduce.

This is the slow path. Every element, merge and output is a Python call per key and window, about a hundred
times slower than the columnar accumulations. Accumulators are stored as MessagePack: values of a closed set
of types, or of the type that an accumulation declares (see `stored_values`). Loading them runs no code.

An accumulation that is ``ordered`` adds elements in the order of their event times, and of their arrival if
the times are equal, so that its value does not depend on how a stream is divided into micro-batches. For this
it stores the elements themselves and adds them when a pane is emitted. `fold` and `reduce` are ordered by
default.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import reduce as fold_left
from itertools import repeat
from typing import Any as AnyValue
from typing import Final

import msgspec
import polars as pl

from slackwater.errors import CorruptState, IncompatibleState, InvalidArgument
from slackwater.windows.accumulations.base import (
    ColumnarAccumulation,
    PartialColumns,
    check_column,
)
from slackwater.windows.accumulations.stored_values import check_declaration, load_value, store_value
from slackwater.windows.operator_columns import TIME, WEIGHT, input_column

_STORED: Final = "stored"
_PICKLED: Final = "accumulator"
"""The field of partials in which earlier releases stored accumulators, pickled."""
_ACCUMULATOR: Final = b"\x01"
_ELEMENTS: Final = b"\x02"
"""The first byte of a stored value: an accumulator, or the elements of an ordered accumulation."""


class Accumulation(ColumnarAccumulation):
    """Base class for user-defined accumulations in plain Python. **Slow**: one call per element.

    A subclass defines the ``column`` it reads, the ``dtype`` of its output and four methods; also
    ``subtract`` if elements can be subtracted. Without it, the elements of a window are stored if the input
    contains retractions, and those that remain are added again for each pane. An accumulator consists of
    numbers, text, bytes, lists, tuples, sets, dicts, decimals, dates and times; for one of another type, such
    as a dataclass, declare ``accumulator_type``. ``add_value`` and ``merge_accumulators`` may modify and
    return their first argument. The order in which elements are added and accumulators are merged is not
    defined, unless ``ordered`` is True.

    >>> import slackwater as sw
    >>> class Product(sw.Accumulation):
    ...     column = "factor"
    ...     dtype = pl.Int64()
    ...
    ...     def empty(self):
    ...         return 1
    ...
    ...     def add_value(self, accumulator, value):
    ...         return accumulator * value
    ...
    ...     def merge_accumulators(self, left, right):
    ...         return left * right
    ...
    ...     def value(self, accumulator):
    ...         return accumulator
    >>> operator = sw.WindowedOperator(
    ...     window=sw.fixed("10 seconds"), accumulations={"product": Product()}, event_time="ts"
    ... )
    >>> rows = pl.DataFrame({"ts": [1, 2, 3], "factor": [2, 3, 7]})
    >>> _, output = operator.step(operator.initial_state(), rows, {"default": 10_000_000}, now=0)
    >>> output.panes["product"].to_list()
    [42]
    """

    column: str
    dtype: pl.DataType
    ordered: bool = False
    """Whether elements are added in the order of their event times; they are then stored until the purge."""
    accumulator_type: AnyValue = None
    """The type of the accumulators, if the state cannot store it without a declaration."""

    @abstractmethod
    def empty(self) -> AnyValue:
        """Return a new accumulator without values."""

    @abstractmethod
    def add_value(self, accumulator: AnyValue, value: AnyValue) -> AnyValue:
        """Return the accumulator with one more value, which is never null.

        Args:
            accumulator: the accumulator so far.
            value: the value of an element.
        """

    @abstractmethod
    def merge_accumulators(self, left: AnyValue, right: AnyValue) -> AnyValue:
        """Merge two accumulators to one.

        Args:
            left: the accumulator of the earlier elements.
            right: the accumulator of the later elements.
        """

    @abstractmethod
    def value(self, accumulator: AnyValue) -> AnyValue:
        """Return the value of a pane.

        Args:
            accumulator: the accumulator of all elements of the pane.
        """

    def subtract(self, accumulator: AnyValue, value: AnyValue) -> AnyValue:
        """Return the accumulator without one of its values. Define it if that is possible.

        Args:
            accumulator: the accumulator so far.
            value: the value to take back, which was added before.
        """
        raise InvalidArgument(
            "accumulation", self.name, "cannot subtract an element", fix="define subtract()"
        )

    @property
    def can_subtract(self) -> bool:
        """Whether it can subtract an element: if ``subtract`` is defined."""
        return type(self).subtract is not Accumulation.subtract

    @property
    def can_recompute(self) -> bool:
        """True: without ``subtract``, the elements that remain after retractions are added again."""
        return True

    @property
    def reads_time(self) -> bool:
        """True: elements that are added together are in the order of their event times."""
        return True

    @property
    def inputs(self) -> tuple[str, ...]:
        """The input columns that it reads."""
        return (self.column,)

    def add(self, partials: PartialColumns) -> Sequence[pl.Expr]:
        """Aggregate elements to a stored accumulator."""
        inputs = [pl.col(input_column(self.column)), pl.col(TIME)]
        inputs += [pl.col(WEIGHT)] if partials.retractable else []
        return [
            pl.map_groups(inputs, self._added, return_dtype=pl.Binary(), returns_scalar=True).alias(
                partials.name(_STORED)
            )
        ]

    def merge(self, partials: PartialColumns) -> Sequence[pl.Expr]:
        """Merge stored accumulators to one."""
        inputs = [partials.column(_STORED).drop_nulls()]
        return [pl.map_groups(inputs, self._merged, return_dtype=pl.Binary(), returns_scalar=True)]

    def output(self, partials: PartialColumns) -> pl.Expr:
        """The values of the panes."""
        return partials.column(_STORED).map_batches(self._values, return_dtype=self.dtype)

    def check_saved(self, partials: PartialColumns, saved: Sequence[str]) -> None:
        """Raise `IncompatibleState` if an earlier release pickled the partials; ``saved`` are their columns.

        Unpickling would run whatever code the state contains.

        Args:
            partials: the columns of the partial.
            saved: the columns in the saved state.
        """
        if partials.name(_PICKLED) in saved:
            how = "pickled by an earlier release", "stored without code"
            raise IncompatibleState(f"accumulation {self.name}", [("the form of its accumulators", *how)])

    def load(self, saved: bytes) -> AnyValue:
        """Load an accumulator, or the elements of an ordered accumulation, from the state.

        Args:
            saved: the bytes in the state.
        """
        try:
            if saved[:1] == _ACCUMULATOR:
                return load_value(saved[1:], self.accumulator_type)
            if saved[:1] == _ELEMENTS:
                base, times, values, weights = load_value(saved[1:])
                loaded = None if base is None else load_value(base, self.accumulator_type)
                return Elements(loaded, times, values, weights)
        except (msgspec.MsgspecError, ValueError) as error:
            declared = "undeclared" if self.accumulator_type is None else str(self.accumulator_type)
            changed = ("accumulator_type", f"of another form ({error})", declared)
            raise IncompatibleState(f"accumulation {self.name}", [changed]) from error
        raise CorruptState(f"accumulation {self.name}", f"it begins with {saved[:1]!r}")

    def _store(self, value: AnyValue) -> bytes:
        if not isinstance(value, Elements):
            return _ACCUMULATOR + store_value(value, self.accumulator_type)
        base = None if value.base is None else store_value(value.base, self.accumulator_type)
        return _ELEMENTS + store_value([base, value.times, value.values, value.weights])

    def _added(self, series: Sequence[pl.Series]) -> bytes:
        known = series[0].is_not_null()
        values, times, *weights = (one.filter(known).to_list() for one in series)
        elements = Elements(None, times, values, weights[0] if weights else None)
        return self._store(elements if self.ordered else self._folded(elements))

    def _merged(self, series: Sequence[pl.Series]) -> bytes:
        several = [self.load(saved) for saved in series[0]]
        if not self.ordered:
            accumulators = [self._folded(one) if isinstance(one, Elements) else one for one in several]
            return self._store(fold_left(self.merge_accumulators, accumulators, self.empty()))
        # Plain accumulators were saved by an accumulation without order; their elements come first.
        bases = [one.base if isinstance(one, Elements) else one for one in several]
        known = [base for base in bases if base is not None]
        base = fold_left(self.merge_accumulators, known, self.empty()) if known else None
        return self._store(Elements.merged(base, several))

    def _folded(self, elements: Elements) -> AnyValue:
        """The accumulator of elements, added in their order."""
        accumulator = self.empty() if elements.base is None else elements.base
        for value, weight in elements:
            accumulator = (self.add_value if weight > 0 else self.subtract)(accumulator, value)
        return accumulator

    def _values(self, saved: pl.Series) -> pl.Series:
        loaded = (self.empty() if one is None else self.load(one) for one in saved)
        accumulators = (self._folded(one) if isinstance(one, Elements) else one for one in loaded)
        return pl.Series(saved.name, map(self.value, accumulators), dtype=self.dtype)


@dataclass
class Elements:
    """The elements of an ordered accumulation, in the order of their event times, then of arrival.

    >>> older, newer = Elements(None, [1, 5], ["a", "c"], None), Elements(None, [3], ["b"], None)
    >>> Elements.merged(None, [older, newer]).values
    ['a', 'b', 'c']
    """

    base: AnyValue
    """An accumulator that precedes the elements; None if there is none."""
    times: list[int]
    values: list[AnyValue]
    weights: list[int] | None
    """+1 for an element, -1 for a retraction; None if there are no retractions."""

    def __post_init__(self) -> None:
        order = sorted(range(len(self.times)), key=self.times.__getitem__)
        self.times = [self.times[number] for number in order]
        self.values = [self.values[number] for number in order]
        if self.weights is not None:
            self.weights = [self.weights[number] for number in order]

    def __iter__(self) -> Iterator[tuple[AnyValue, int]]:
        return zip(self.values, self.weights or repeat(1), strict=False)

    @classmethod
    def merged(cls, base: AnyValue, several: Sequence[AnyValue]) -> Elements:
        """The elements of several, in order of arrival; other values among them are skipped."""
        parts = [one for one in several if isinstance(one, cls)]
        weights = [weight for part in parts for _, weight in part]
        return cls(
            base,
            [time for part in parts for time in part.times],
            [value for part in parts for value in part.values],
            weights if any(part.weights is not None for part in parts) else None,
        )


Function = Callable[[AnyValue, AnyValue], AnyValue]


def _check_callable(value: object, name: str) -> None:
    if not callable(value):
        raise InvalidArgument(
            name, value, "is not a function", fix=f"give a function such as {name}=lambda left, right: …"
        )


@dataclass(frozen=True)
class Fold(Accumulation):
    """Values folded into an ``initial`` one by a function; ``combine`` merges two results. **Slow.**

    ``inverse`` subtracts a value, if that is possible; without it, values that remain after retractions are
    folded again. Values are folded in the order of their event times,
    then of arrival, and stored for that. With ``ordered=False`` only results are stored: use it for functions
    whose result does not depend on the order.

    >>> Fold("price", 0, lambda total, price: total + price, lambda a, b: a + b, pl.Int64()).inputs
    ('price',)
    """

    column: str
    initial: AnyValue
    function: Function
    combine: Function
    dtype: pl.DataType
    inverse: Function | None = None
    ordered: bool = True
    accumulator_type: AnyValue = None

    def __post_init__(self) -> None:
        check_column(self.column)
        _check_callable(self.function, "function")
        _check_callable(self.combine, "combine")
        if self.accumulator_type is not None:
            check_declaration(self.accumulator_type)
        store_value(self.initial, self.accumulator_type)  # raises if it cannot be stored

    @property
    def can_subtract(self) -> bool:
        """Whether it can subtract an element: if an inverse is given."""
        return self.inverse is not None

    def empty(self) -> AnyValue:
        """Return a copy of the initial value, so that accumulators do not share it."""
        return deepcopy(self.initial)

    def add_value(self, accumulator: AnyValue, value: AnyValue) -> AnyValue:
        """Return the accumulator with one more value."""
        return self.function(accumulator, value)

    def subtract(self, accumulator: AnyValue, value: AnyValue) -> AnyValue:
        """Return the accumulator without one of its values."""
        return (
            super().subtract(accumulator, value) if self.inverse is None else self.inverse(accumulator, value)
        )

    def merge_accumulators(self, left: AnyValue, right: AnyValue) -> AnyValue:
        """Merge two accumulators to one."""
        return self.combine(left, right)

    def value(self, accumulator: AnyValue) -> AnyValue:
        """Return the accumulator itself, which is the value of a pane."""
        return accumulator


@dataclass(frozen=True)
class Reduce(Accumulation):
    """Values reduced by an associative function; null without values. **Slow.**

    They are in the order of their event times, then of arrival, unless ``ordered`` is False; see `Fold`.

    >>> Reduce("price", lambda left, right: left * right, pl.Int64()).inputs
    ('price',)
    """

    column: str
    function: Function
    dtype: pl.DataType
    ordered: bool = True

    def __post_init__(self) -> None:
        check_column(self.column)
        _check_callable(self.function, "function")

    def empty(self) -> AnyValue:
        """Return None, the accumulator without values."""
        return None

    def add_value(self, accumulator: AnyValue, value: AnyValue) -> AnyValue:
        """Return the accumulator with one more value."""
        return value if accumulator is None else self.function(accumulator, value)

    def merge_accumulators(self, left: AnyValue, right: AnyValue) -> AnyValue:
        """Merge two accumulators to one."""
        return left if right is None else self.add_value(left, right)

    def value(self, accumulator: AnyValue) -> AnyValue:
        """Return the accumulator itself, which is the value of a pane."""
        return accumulator
