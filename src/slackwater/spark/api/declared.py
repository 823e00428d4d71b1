"""DataFrames whose columns are declared, because Spark does not analyze them yet."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from slackwater.spark.internals import declare_columns, is_remote
from slackwater.spark.versions import needs


def declared(df: DataFrame, schema: StructType | str) -> DataFrame:
    """Declare the columns of a table of a Spark Declarative Pipeline, so that `stream` can read it.

    Inside a function with ``@dp.table`` Spark refuses every request that analyzes a DataFrame, because the
    tables that it reads need not exist yet. `stream` and what follows look up columns and types, so they have
    to be declared. Spark compares them with the table when the pipeline starts.

    Args:
        df: What the function reads, such as ``spark.readStream.table("bids")``.
        schema: Its columns, as in ``"auction string, price long, at timestamp"``.

    Returns:
        A DataFrame for `stream`. On a session that is not one of Spark Connect, ``df`` itself.

    Raises:
        NeedsNewerSpark: The version of PySpark has no declarative pipelines.

    >>> import slackwater as sw
    >>> spark = sw.session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> sw.declared(spark.range(3), "id long").columns
    ['id']
    """
    if not is_remote(df.sparkSession):
        return df
    needs("sw.declared", "4.1")
    return declare_columns(df, schema)
