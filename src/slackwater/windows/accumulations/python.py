"""Accumulations in plain Python: `Accumulation` to subclass, fold and reduce.

This is the slow path. Every element, merge and output is a Python call per key and window, about a hundred
times slower than the columnar accumulations. Accumulators are stored pickled.
"""

from __future__ import annotations

import pickle
from abc import abstractmethod
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import reduce as fold_left
from typing import Any as AnyValue

import polars as pl

from slackwater.errors import InvalidArgument
from slackwater.windows.accumulations.base import (
    ColumnarAccumulation,
    PartialColumns,
    check_column,
)
from slackwater.windows.columns import WEIGHT, input_column


class Accumulation(ColumnarAccumulation):
    """Base class for user-defined accumulations in plain Python. **Slow**: one call per element.

    A subclass defines the ``column`` it reads, the ``dtype`` of its output and four methods; also
    ``subtract`` if elements can be subtracted. Accumulators must be picklable. ``add_value`` and
    ``merge_accumulators`` may modify and return their first argument.

    >>> class Product(Accumulation):
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
    >>> Product().inputs
    ('factor',)
    """

    column: str
    dtype: pl.DataType

    @abstractmethod
    def empty(self) -> AnyValue:
        """Return a new accumulator without values."""

    @abstractmethod
    def add_value(self, accumulator: AnyValue, value: AnyValue) -> AnyValue:
        """Return the accumulator with one more value, which is never null."""

    @abstractmethod
    def merge_accumulators(self, left: AnyValue, right: AnyValue) -> AnyValue:
        """Merge two accumulators to one."""

    @abstractmethod
    def value(self, accumulator: AnyValue) -> AnyValue:
        """Return the value of a pane."""

    def subtract(self, accumulator: AnyValue, value: AnyValue) -> AnyValue:
        """Return the accumulator without one of its values. Define it if that is possible."""
        raise InvalidArgument(
            "accumulation", self.name, "cannot subtract an element", fix="define subtract()"
        )

    @property
    def can_subtract(self) -> bool:
        """Whether it can subtract an element: if ``subtract`` is defined."""
        return type(self).subtract is not Accumulation.subtract

    @property
    def inputs(self) -> tuple[str, ...]:
        """The input columns that it reads."""
        return (self.column,)

    def add(self, partials: PartialColumns) -> Sequence[pl.Expr]:
        """Aggregate elements to a pickled accumulator."""
        inputs = [pl.col(input_column(self.column))] + ([pl.col(WEIGHT)] if partials.retractable else [])
        return [
            pl.map_groups(inputs, self._added, return_dtype=pl.Binary(), returns_scalar=True).alias(
                partials.name("accumulator")
            )
        ]

    def merge(self, partials: PartialColumns) -> Sequence[pl.Expr]:
        """Merge pickled accumulators to one."""
        inputs = [partials.column("accumulator").drop_nulls()]
        return [pl.map_groups(inputs, self._merged, return_dtype=pl.Binary(), returns_scalar=True)]

    def output(self, partials: PartialColumns) -> pl.Expr:
        """The values of the panes."""
        return partials.column("accumulator").map_batches(self._values, return_dtype=self.dtype)

    def _added(self, series: Sequence[pl.Series]) -> bytes:
        accumulator = self.empty()
        weights = series[1] if len(series) > 1 else (1 for _ in series[0])
        for value, weight in zip(series[0], weights, strict=True):
            if value is not None:
                change = self.add_value if weight > 0 else self.subtract
                accumulator = change(accumulator, value)
        return pickle.dumps(accumulator, protocol=5)

    def _merged(self, series: Sequence[pl.Series]) -> bytes:
        accumulators = [pickle.loads(saved) for saved in series[0]]  # noqa: S301  # our own state, checksummed
        return pickle.dumps(fold_left(self.merge_accumulators, accumulators, self.empty()), protocol=5)

    def _values(self, saved: pl.Series) -> pl.Series:
        values = [
            self.value(self.empty() if one is None else pickle.loads(one))  # noqa: S301  # our own state
            for one in saved
        ]
        return pl.Series(saved.name, values, dtype=self.dtype)


Function = Callable[[AnyValue, AnyValue], AnyValue]


def _check_callable(value: object, name: str) -> None:
    if not callable(value):
        raise InvalidArgument(
            name, value, "is not a function", fix=f"give a function such as {name}=lambda left, right: …"
        )


@dataclass(frozen=True)
class Fold(Accumulation):
    """Values folded into an ``initial`` one by a function; ``combine`` merges two results. **Slow.**

    ``inverse`` subtracts a value, if that is possible.

    >>> Fold("price", 0, lambda total, price: total + price, lambda a, b: a + b, pl.Int64()).inputs
    ('price',)
    """

    column: str
    initial: AnyValue
    function: Function
    combine: Function
    dtype: pl.DataType
    inverse: Function | None = None

    def __post_init__(self) -> None:
        check_column(self.column)
        _check_callable(self.function, "function")
        _check_callable(self.combine, "combine")

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

    >>> Reduce("price", lambda left, right: left * right, pl.Int64()).inputs
    ('price',)
    """

    column: str
    function: Function
    dtype: pl.DataType

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
