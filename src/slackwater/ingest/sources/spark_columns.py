"""Columns of Spark DataFrames with their Arrow types."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.types import StructType

from slackwater.spark.internals import from_arrow_type, to_arrow_schema

Columns = Mapping[str, pa.DataType]
"""The columns of a source or target by name, in order."""


def columns_of(schema: StructType) -> dict[str, pa.DataType]:
    """Convert a Spark schema to columns with Arrow types.

    >>> from pyspark.sql.types import LongType
    >>> columns_of(StructType().add("id", LongType()))
    {'id': DataType(int64)}
    """
    return {field.name: field.type for field in to_arrow_schema(schema, timezone="UTC")}


def column(name: str) -> Column:
    """Refer to a column of a frame by name; the name may contain dots and backticks.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> spark.range(1).toDF("a.`b`").select(column("a.`b`")).columns
    ['a.`b`']
    """
    return F.col("`" + name.replace("`", "``") + "`")


def fitted(frame: DataFrame, wanted: Columns) -> DataFrame:
    """Select the ``wanted`` columns, cast to their types; those that the frame does not have are null.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> fitted(spark.range(1), {"id": pa.string(), "name": pa.string()}).collect()
    [Row(id='0', name=None)]
    """
    found = columns_of(frame.schema)
    chosen = []
    for name, kind in wanted.items():
        value = column(name) if name in found else F.lit(None)
        same = found.get(name) == kind
        chosen.append(value if same else value.cast(from_arrow_type(kind)).alias(name))
    return frame.select(*chosen)
