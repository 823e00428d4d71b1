"""Rejected rows as dead letters, without a database."""

from __future__ import annotations

import polars as pl
import polars.selectors as cs


def as_letters(rows: pl.DataFrame, reasons: pl.Series) -> pl.DataFrame:
    """Describe rejected rows as dead letters: ``reason``, and the row as JSON in ``content``.

    Values that JSON does not have become text: times, decimals, bytes (in hexadecimal), NaN and infinity.

    >>> as_letters(pl.DataFrame({"price": [float("nan")]}), pl.Series(["no number"])).row(0)
    ('no number', '{"price":"NaN"}')
    """
    finite = rows.with_columns(cs.binary().bin.encode("hex"), (cs.temporal() | cs.decimal()).cast(pl.String))
    odd = [name for name in finite.select(cs.float()).columns if not finite[name].is_finite().all()]
    content = finite.with_columns(pl.col(odd).cast(pl.String))
    return content.select(reasons.alias("reason"), pl.struct(pl.all()).struct.json_encode().alias("content"))
