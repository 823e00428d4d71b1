"""Short texts for streams and panes, which notebooks show for the last line of a cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql.types import StructType

_SHOWN: Final = 8
"""The number of columns that are listed."""


def short_text(kind: str, schema: StructType, *details: str) -> str:
    """The kind of a value with its columns and some details, in the style of Spark's DataFrames.

    A nested type is named without its fields.

    >>> short_text("Stream", StructType.fromDDL("at timestamp, price int"), "key: auction")
    'Stream[at: timestamp, price: int], key: auction'
    """
    shown = schema.fields[:_SHOWN]
    columns = [f"{field.name}: {field.dataType.simpleString().partition('<')[0]}" for field in shown]
    more = [f"… {len(schema) - _SHOWN} more"] if len(schema) > _SHOWN else []
    return ", ".join([f"{kind}[{', '.join([*columns, *more])}]", *details])


def key_text(key: Sequence[str]) -> str:
    """The key of a stream as a detail of its text.

    >>> key_text(("auction", "site")), key_text(())
    ('key: auction, site', 'no key')
    """
    return f"key: {', '.join(key)}" if key else "no key"
