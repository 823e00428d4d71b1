"""Helpers for Polars frames: a join in which null keys match, and concatenation with a common type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import polars as pl


def match(
    left: pl.DataFrame,
    right: pl.DataFrame,
    columns: Sequence[str],
    how: Literal["inner", "left", "semi", "anti"],
) -> pl.DataFrame:
    """Join two frames on key columns in which null equals null; the order of ``left`` is kept.

    >>> left, right = pl.DataFrame({"key": [None, 1]}), pl.DataFrame({"key": [None], "value": [7]})
    >>> match(left, right, ["key"], "left").to_dicts()
    [{'key': None, 'value': 7}, {'key': 1, 'value': None}]
    """
    schemas = [frame.select(columns).clear() for frame in (left, right)]
    if schemas[0].schema != schemas[1].schema:  # a batch whose keys are all null, or have a narrower type
        common = pl.concat(schemas, how="vertical_relaxed").schema
        left, right = left.cast(common), right.cast(common)
    return left.join(right, on=list(columns), how=how, nulls_equal=True, maintain_order="left")


def stack(frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Concatenate frames with the same columns, in the widest of their types.

    >>> stack([pl.DataFrame({"a": [1]}), pl.DataFrame({"a": [2]})])["a"].to_list()
    [1, 2]
    """
    several = list(frames)
    if len(several) == 1:
        return several[0]
    schema = several[0].schema
    if all(frame.schema == schema for frame in several):  # equal schemas have their columns in one order
        return pl.concat(several, rechunk=False)
    ordered = [frame.select(schema.names()) for frame in several]
    return pl.concat(ordered, how="vertical_relaxed", rechunk=False)
