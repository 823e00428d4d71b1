"""Short texts for streams and panes, which notebooks show, and for names of DataFrames that they lack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql.types import StructType

_SHOWN: Final = 8
"""The number of columns that are listed."""


_DATAFRAME_NAMES: Final = {
    "alias": "sw.stream(…, name=…)",
    "cache": "to_df().cache()",
    "collect": "to_df().collect()",
    "count": ".window(…).agg(rows=sw.count())",
    "crossJoin": ".join(…)",
    "drop": ".select(…)",
    "dropDuplicates": ".deduplicate(on=[…], within=…)",
    "dropDuplicatesWithinWatermark": ".deduplicate(on=[…], within=…)",
    "drop_duplicates": ".deduplicate(on=[…], within=…)",
    "groupBy": '.key_by("…")',
    "groupby": '.key_by("…")',
    "printSchema": ".explain()",
    "selectExpr": ".select(…), which takes SQL text",
    "show": "to_df().show()",
    "take": "to_df().take(…)",
    "toDF": ".to_df()",
    "toPandas": "to_df().toPandas()",
    "unionAll": ".union(…)",
    "unionByName": ".union(…)",
    "where": ".filter(…)",
    "withColumn": '.with_columns(twice="price * 2")',
    "withColumnRenamed": '.select("price as amount")',
    "withColumns": '.with_columns(twice="price * 2")',
    "withWatermark": 'sw.stream(df, event_time="…", watermark=sw.lag("…"))',
    "write": "to_df().write",
    "writeStream": "to_df().writeStream",
}
"""What DataFrames have: how it is done with streams."""


def unknown_attribute(kind: str, name: str) -> str:
    """The message for an attribute that streams do not have.

    >>> print(unknown_attribute("Panes", "groupBy"))
    'Panes' object has no attribute 'groupBy'; write .key_by("…")
    >>> unknown_attribute("Panes", "price")
    "'Panes' object has no attribute 'price'"
    """
    known = _DATAFRAME_NAMES.get(name)
    return f"{kind!r} object has no attribute {name!r}" + (f"; write {known}" if known else "")


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
