"""Samples of dropped rows for reports: a few rows of a step, with the reason and their key.

The key is one struct column, so that key columns may have any name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import polars as pl

SAMPLED_ROWS: Final = 10
"""How many dropped rows of a step are kept as a sample."""
KEY: Final = "key"
"""The column with the key; missing if there is none."""


def key_struct(columns: Iterable[pl.Expr]) -> list[pl.Expr]:
    """The column with the key, made of some columns; none without a key.

    >>> pl.DataFrame({"rows": [1]}).select(key_struct([pl.col("rows")])).to_dicts()
    [{'key': {'rows': 1}}]
    """
    found = list(columns)
    return [pl.struct(found).alias(KEY)] if found else []


def late_sample(
    late: pl.DataFrame, time: str, watermark: int | None, key: Sequence[str], side: str | None = None
) -> pl.DataFrame | None:
    """A few of the rows that an operator without windows dropped as late; None if there are none.

    Args:
        late: The dropped rows.
        time: Their event-time column.
        watermark: The watermark that they are behind.
        key: Their key columns.
        side: The side of a join.

    >>> late_sample(pl.DataFrame({"ts": [3], "id": ["a"]}), "ts", 5, ["id"]).to_dicts()[0]["key"]
    {'id': 'a'}
    """
    if late.is_empty():
        return None
    return late.head(SAMPLED_ROWS).select(
        pl.lit("late").alias("reason"),
        pl.lit(None, pl.Int64).alias("window_start"),
        pl.lit(None, pl.Int64).alias("window_end"),
        pl.col(time).cast(pl.Int64).alias("event_time"),
        pl.lit(1, pl.Int64).alias("rows"),
        pl.lit(watermark, pl.Int64).alias("watermark"),
        pl.lit(side, pl.String).alias("side"),
        *key_struct(pl.col(name) for name in key),
    )


def combined(samples: Iterable[pl.DataFrame | None]) -> pl.DataFrame | None:
    """Several samples as one of at most `SAMPLED_ROWS` rows; None if there is none.

    >>> combined([None]) is None
    True
    """
    found = [sample for sample in samples if sample is not None]
    return pl.concat(found, how="diagonal_relaxed").head(SAMPLED_ROWS) if found else None
