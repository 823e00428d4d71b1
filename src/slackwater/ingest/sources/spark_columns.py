"""Columns of Spark DataFrames with their Arrow types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.types import StructType

from slackwater.spark.versions import to_arrow_schema

Columns = Mapping[str, pa.DataType]
"""The columns of a source or target by name, in order."""

REJECTED: Final = "slackwater_rejected"
"""The column of a frame with the rejection of a row: its reason, the value, and the whole row as JSON."""


def columns_of(schema: StructType) -> dict[str, pa.DataType]:
    """Convert a Spark schema to columns with Arrow types, without that of rejections.

    >>> from pyspark.sql.types import LongType
    >>> columns_of(StructType().add("id", LongType()))
    {'id': DataType(int64)}
    """
    found = to_arrow_schema(schema)
    return {field.name: field.type for field in found if field.name != REJECTED}


def column(name: str) -> Column:
    """Refer to a column of a frame by name; the name may contain dots and backticks.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> spark.range(1).toDF("a.`b`").select(column("a.`b`")).columns
    ['a.`b`']
    """
    return F.col("`" + name.replace("`", "``") + "`")
