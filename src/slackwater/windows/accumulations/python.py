"""Accumulations in plain Python: anything at all, at the price of speed.

This is the slow path. Each element, each merge and each output is a Python call per key and window,
about a hundred times slower than the columnar accumulations. Accumulators are kept pickled.
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
    WEIGHT,
    ColumnarAccumulation,
    Parts,
    check_column,
    value_name,
)


class Accumulation(ColumnarAccumulation):
    """Base class for accumulations of your own, in plain Python. **Slow**: a call per element.

    Say which ``column`` it reads and the ``dtype`` of its output, and write four methods. Define
    ``subtract`` as well where an element can be taken back. Accumulators must be picklable; ``add``
    and ``merge`` may change and return their first argument.

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
        """A new accumulator of nothing."""

    @abstractmethod
    def add_value(self, accumulator: AnyValue, value: AnyValue) -> AnyValue:
        """The accumulator with one more value (never null)."""

    @abstractmethod
    def merge_accumulators(self, left: AnyValue, right: AnyValue) -> AnyValue:
        """One accumulator of both."""

    @abstractmethod
    def value(self, accumulator: AnyValue) -> AnyValue:
        """What a pane shows."""

    def subtract(self, accumulator: AnyValue, value: AnyValue) -> AnyValue:
        """The accumulator with one value taken back; define it where that is possible."""
        raise InvalidArgument(
            "accumulation", self.name, "cannot take an element back", fix="define subtract()"
        )

    @property
    def can_subtract(self) -> bool:
        """Whether an element can be taken back: where ``subtract`` is defined."""
        return type(self).subtract is not Accumulation.subtract

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns of the batch that it reads."""
        return (self.column,)

    def add(self, parts: Parts) -> Sequence[pl.Expr]:
        """Elements to a pickled accumulator."""
        inputs = [pl.col(value_name(self.column))] + ([pl.col(WEIGHT)] if parts.signed else [])
        return [
            pl.map_groups(inputs, self._added, return_dtype=pl.Binary(), returns_scalar=True).alias(
                parts.name("accumulator")
            )
        ]

    def merge(self, parts: Parts) -> Sequence[pl.Expr]:
        """Pickled accumulators to one."""
        inputs = [parts.column("accumulator").drop_nulls()]
        return [pl.map_groups(inputs, self._merged, return_dtype=pl.Binary(), returns_scalar=True)]

    def output(self, parts: Parts) -> pl.Expr:
        """What the panes show."""
        return parts.column("accumulator").map_batches(self._values, return_dtype=self.dtype)

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
        raise InvalidArgument(name, value, "is not a function", fix=f"write {name}=lambda left, right: …")


@dataclass(frozen=True)
class Fold(Accumulation):
    """Values folded into an ``initial`` one by a function; ``combine`` joins two results. **Slow.**

    ``inverse`` takes a value back, where that is possible.

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
        """Whether an element can be taken back: where an inverse was given."""
        return self.inverse is not None

    def empty(self) -> AnyValue:
        """A copy of the initial value, so that no two accumulators share it."""
        return deepcopy(self.initial)

    def add_value(self, accumulator: AnyValue, value: AnyValue) -> AnyValue:
        """The accumulator with one more value."""
        return self.function(accumulator, value)

    def subtract(self, accumulator: AnyValue, value: AnyValue) -> AnyValue:
        """The accumulator with one value taken back."""
        return (
            super().subtract(accumulator, value) if self.inverse is None else self.inverse(accumulator, value)
        )

    def merge_accumulators(self, left: AnyValue, right: AnyValue) -> AnyValue:
        """One accumulator of both."""
        return self.combine(left, right)

    def value(self, accumulator: AnyValue) -> AnyValue:
        """What a pane shows: the accumulator itself."""
        return accumulator


@dataclass(frozen=True)
class Reduce(Accumulation):
    """Values joined pairwise by an associative function; null over nothing. **Slow.**

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
        """Nothing yet."""
        return None

    def add_value(self, accumulator: AnyValue, value: AnyValue) -> AnyValue:
        """The accumulator with one more value."""
        return value if accumulator is None else self.function(accumulator, value)

    def merge_accumulators(self, left: AnyValue, right: AnyValue) -> AnyValue:
        """One accumulator of both."""
        return left if right is None else self.add_value(left, right)

    def value(self, accumulator: AnyValue) -> AnyValue:
        """What a pane shows: the accumulator itself."""
        return accumulator
