"""Approximate accumulations in constant space, by Apache DataSketches: distinct count and quantile.

A partial is a serialized sketch. Sketches are Python objects, so each key and window costs a Python call, and
a distinct count one more per distinct value in the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import datasketches
import polars as pl

from slackwater.errors import InvalidArgument
from slackwater.windows.accumulations.base import (
    ColumnarAccumulation,
    PartialColumns,
    check_column,
    is_number,
)
from slackwater.windows.operator_columns import input_column


@dataclass(frozen=True, slots=True)
class ApproxCountDistinct(ColumnarAccumulation):
    """The approximate number of distinct values: a HyperLogLog sketch with ``2**precision`` registers.

    >>> ApproxCountDistinct("bidder").precision
    12
    """

    column: str
    precision: int = 12

    def __post_init__(self) -> None:
        check_column(self.column)
        if not 4 <= self.precision <= 21:
            raise InvalidArgument(
                "precision",
                self.precision,
                "must be between 4 and 21",
                fix="use a value such as precision=12",
            )

    @property
    def retractable_alternative(self) -> str:
        """What to use instead if the input contains retractions."""
        return 'count_distinct("…"), which is exact'

    @property
    def inputs(self) -> tuple[str, ...]:
        """The input columns that it reads."""
        return (self.column,)

    def add(self, partials: PartialColumns) -> Sequence[pl.Expr]:
        """Aggregate elements to a partial."""
        distinct = pl.col(input_column(self.column)).drop_nulls().unique()
        return [_per_group(distinct, self._sketch, pl.Binary()).alias(partials.name("sketch"))]

    def merge(self, partials: PartialColumns) -> Sequence[pl.Expr]:
        """Merge partials to one."""
        return [_per_group(partials.column("sketch").drop_nulls(), self._union, pl.Binary())]

    def output(self, partials: PartialColumns) -> pl.Expr:
        """The estimate as an integer; 0 without values."""
        return partials.column("sketch").map_batches(self._estimates, return_dtype=pl.Int64)

    def _sketch(self, values: pl.Series) -> bytes:
        sketch = datasketches.hll_sketch(self.precision)
        for value in values:
            sketch.update(value if isinstance(value, (int, float, str)) else repr(value))
        return bytes(sketch.serialize_compact())

    def _union(self, sketches: pl.Series) -> bytes:
        union = datasketches.hll_union(self.precision)
        for sketch in sketches:
            union.update(datasketches.hll_sketch.deserialize(sketch))
        return bytes(union.get_result().serialize_compact())

    def _estimates(self, sketches: pl.Series) -> pl.Series:
        estimates = [
            0 if sketch is None else round(datasketches.hll_sketch.deserialize(sketch).get_estimate())
            for sketch in sketches
        ]
        return pl.Series(sketches.name, estimates, dtype=pl.Int64)


@dataclass(frozen=True, slots=True)
class ApproxQuantile(ColumnarAccumulation):
    """The approximate value at a rank between 0 and 1 of a numeric column: a KLL sketch.

    >>> ApproxQuantile("price", 0.5).rank
    0.5
    """

    column: str
    rank: float
    size: int = 200

    def __post_init__(self) -> None:
        check_column(self.column)
        if not 0 <= self.rank <= 1:
            raise InvalidArgument(
                "rank", self.rank, "must be between 0 and 1", fix="use rank=0.5 for the median"
            )
        if not 8 <= self.size <= 65535:
            raise InvalidArgument(
                "size", self.size, "must be between 8 and 65535", fix="use a value such as size=200"
            )

    @property
    def retractable_alternative(self) -> str:
        """What to use instead if the input contains retractions."""
        return 'sort("…"), and select the quantile from the list'

    @property
    def inputs(self) -> tuple[str, ...]:
        """The input columns that it reads."""
        return (self.column,)

    def takes(self, column: str, dtype: pl.DataType) -> bool:
        """Accept numbers."""
        return is_number(dtype)

    def add(self, partials: PartialColumns) -> Sequence[pl.Expr]:
        """Aggregate elements to a partial."""
        values = pl.col(input_column(self.column)).drop_nulls().cast(pl.Float64)
        return [_per_group(values, self._sketch, pl.Binary()).alias(partials.name("sketch"))]

    def merge(self, partials: PartialColumns) -> Sequence[pl.Expr]:
        """Merge partials to one."""
        return [_per_group(partials.column("sketch").drop_nulls(), self._merged, pl.Binary())]

    def output(self, partials: PartialColumns) -> pl.Expr:
        """The value at the rank; null without values."""
        return partials.column("sketch").map_batches(self._quantiles, return_dtype=pl.Float64)

    def _sketch(self, values: pl.Series) -> bytes:
        sketch = datasketches.kll_doubles_sketch(self.size)
        sketch.update(values.to_numpy(writable=True))
        return bytes(sketch.serialize())

    def _merged(self, sketches: pl.Series) -> bytes:
        merged = datasketches.kll_doubles_sketch(self.size)
        for sketch in sketches:
            merged.merge(datasketches.kll_doubles_sketch.deserialize(sketch))
        return bytes(merged.serialize())

    def _quantiles(self, sketches: pl.Series) -> pl.Series:
        values: list[float | None] = []
        for saved in sketches:
            sketch = None if saved is None else datasketches.kll_doubles_sketch.deserialize(saved)
            values.append(
                sketch.get_quantile(self.rank, inclusive=True) if sketch and not sketch.is_empty() else None
            )
        return pl.Series(sketches.name, values, dtype=pl.Float64)


def _per_group(values: pl.Expr, function: object, dtype: pl.DataType) -> pl.Expr:
    def apply(series: Sequence[pl.Series]) -> object:
        return function(series[0])  # type: ignore[operator]  # a function from a Series to bytes

    return pl.map_groups([values], apply, return_dtype=dtype, returns_scalar=True)
