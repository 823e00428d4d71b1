"""Panes, late rows and invalid rows as DataFrames of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from slackwater.spark.api.stream_inputs import quoted
from slackwater.spark.wire.pane_schema import INVALID_KIND, LATE_KIND, RECORD_FIELDS


class PaneSplit(NamedTuple):
    """The output of a windowed operator by the kind of its rows; see `Panes.split`.

    >>> PaneSplit._fields
    ('panes', 'late', 'invalid', 'all_rows')
    """

    panes: DataFrame
    """The results, and rows for which an async function failed."""
    late: DataFrame
    """The rows that arrived too late."""
    invalid: DataFrame
    """The rows without a usable event time, and records that could not be parsed."""
    all_rows: DataFrame
    """All rows, as `Panes.to_df` returns them; ``pane.kind`` is their kind."""

    @classmethod
    def of(cls, rows: DataFrame, key: Sequence[str]) -> PaneSplit:
        """Divide rows of all kinds, with these key columns."""
        records = [field.name for field in RECORD_FIELDS if field in rows.schema.fields]
        kind = sql.col("pane.kind")
        values = [name for name in rows.columns if name not in (*key, "window", "pane", *records)]
        return cls(
            rows.where(~kind.isin(LATE_KIND, INVALID_KIND)).drop(*records),
            rows.where(kind == LATE_KIND).select(*map(quoted, (*key, "window", *values))),
            rows.where(kind == INVALID_KIND).select(*map(quoted, (*key, *values, *records))),
            rows,
        )
