"""Rows as a counted multiset: cancel rows against their retractions, and find rows that equal others.

Equal rows are distinguished by their occurrence: the n-th row of a value equals the n-th row of that value in
another frame. So the cost is that of a join, also with many equal rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import polars as pl

_OCCURRENCE: Final = "occurrence:"
_ROW: Final = "row:"


def cancelled(rows: pl.DataFrame, retractions: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows that remain after each retraction has cancelled an equal row, and the remaining retractions.

    Both are returned without the column ``retractions``; null means that a row is not a retraction.

    >>> rows = pl.DataFrame({"price": [5, 5, 7], "back": [False, True, True]})
    >>> [frame.rows() for frame in cancelled(rows, "back")]
    [[], [(7,)]]
    """
    negative = rows[retractions].fill_null(value=False)
    values = rows.drop(retractions)
    if not negative.any():
        return values, values.clear()
    added, removed = values.filter(~negative), values.filter(negative)
    if added.is_empty():
        return added, removed
    return added[equal_rows(added, removed, "anti")], removed[equal_rows(removed, added, "anti")]


def retracting(
    rows: pl.DataFrame, retractions: str, columns: Sequence[str], *, value: bool = True
) -> pl.DataFrame:
    """Rows with a column that marks them as retractions or not, and their columns in the given order.

    >>> retracting(pl.DataFrame({"price": [5]}), "back", ["back", "price"]).rows()
    [(True, 5)]
    """
    return rows.with_columns(pl.lit(value).alias(retractions)).select(columns)


def equal_rows(rows: pl.DataFrame, others: pl.DataFrame, how: Literal["semi", "anti"]) -> pl.Series:
    """The numbers of the rows that have an equal row in ``others``, or of those that do not have one.

    Each row of ``others`` is equal to at most one row.

    >>> rows, others = pl.DataFrame({"a": [1, 1, None]}), pl.DataFrame({"a": [None, 1]})
    >>> equal_rows(rows, others, "semi").to_list()
    [0, 2]
    """
    left, right = _comparable(rows), _comparable(others)
    matching = left.with_row_index(_ROW).join(
        right, on=right.columns, how=how, nulls_equal=True, maintain_order="left"
    )
    return matching[_ROW]


def _comparable(rows: pl.DataFrame) -> pl.DataFrame:
    """The values of the rows, nested ones as text, and which occurrence of its value each row is."""
    values = rows.select(
        pl.struct(name).struct.json_encode().alias(name) if kind.is_nested() else pl.col(name)
        for name, kind in rows.schema.items()
    )
    return values.with_columns(pl.int_range(pl.len()).over(rows.columns).alias(_OCCURRENCE))
