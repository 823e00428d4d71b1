"""Folding the panes of a batch: one change for each key and window.

For each key and window the pane with the highest index decides (of several rows with that index, the last
one): a result is written, a retraction deletes the row. Deltas are combined instead. `pane_merge` applies the
same rule in SQL, where the rows of several tasks are in a staging table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import polars as pl

from slackwater.sql.pane_targets import Fold

DELETED: Final = "deleted"
"""True in a change that deletes the row of its key and window."""


def folded_panes(
    panes: pl.DataFrame,
    identity: Sequence[str],
    fold: Mapping[str, Fold],
    *,
    index: str,
    retraction: str,
) -> pl.DataFrame:
    """Fold panes into changes: the identity columns, the values, and `DELETED`.

    Args:
        panes: The panes of a batch in the order in which they were emitted.
        identity: The columns that identify a row of the table.
        fold: How deltas are combined, by value column; empty if a pane is a full result.
        index: The column with the index of the pane.
        retraction: The column that marks retractions.

    >>> panes = pl.DataFrame(
    ...     {"key": ["a", "a", "b"], "n": [1, 3, 2], "i": [0, 2, 0], "r": [False, False, True]}
    ... )
    >>> folded_panes(panes, ["key"], {}, index="i", retraction="r").rows()
    [('a', 3, False), ('b', 2, True)]
    >>> folded_panes(panes.head(2), ["key"], {"n": "sum"}, index="i", retraction="r").rows()
    [('a', 4, False)]
    """
    values = [name for name in panes.columns if name not in (*identity, index, retraction)]
    if fold:
        combined = [_combined(name, fold[name]) for name in values]
        deltas = panes.group_by(identity, maintain_order=True).agg(combined)
        return deltas.with_columns(pl.lit(value=False).alias(DELETED))
    # a stable sort keeps the order of rows with the same index
    ordered = panes.sort(index, maintain_order=True, nulls_last=False)
    last = ordered.group_by(identity, maintain_order=True).last()
    return last.select(*identity, *values, pl.col(retraction).alias(DELETED))


def _combined(name: str, how: Fold) -> pl.Expr:
    column = pl.col(name)
    if how == "sum":  # null, not zero, if there is no value
        return pl.when(column.count() > 0).then(column.sum()).alias(name)
    return column.min() if how == "min" else column.max()


def new_value(name: str, how: Fold | None, old: str) -> pl.Expr:
    """The value of a row after a change: the new one, or the one in the column ``old`` folded with it.

    >>> frame = pl.DataFrame({"n": [1, None], "old": [2, 5]})
    >>> frame.select(new_value("n", "sum", "old"))["n"].to_list()
    [3, 5]
    """
    new, before = pl.col(name), pl.col(old)
    match how:
        case None:
            return new
        case "sum":
            return pl.coalesce(before + new, before, new).alias(name)
        case "min":
            return pl.min_horizontal(before, new).alias(name)
        case "max":
            return pl.max_horizontal(before, new).alias(name)
