"""Give each order the price that is valid at its time; `load` loads new prices every night.

There is no as-of join of streams, so each batch is joined with all prices. A crash between the two writes of `load` loads
prices twice; an order that arrives before the load of its day gets the price of the day before.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

import pandas as pd
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the conventional alias
from pyspark.sql.streaming.readwriter import DataStreamWriter

QUERY = "SELECT product, valid_from, price FROM prices WHERE valid_from >= ? AND valid_from < ?"


def load(spark: SparkSession, database: str, folder: str, midnight: str) -> None:
    loaded = Path(folder, "loaded-until")
    since = loaded.read_text() if loaded.exists() else "2024-05-01"
    with closing(sqlite3.connect(database)) as connection:
        prices = pd.read_sql(QUERY, connection, params=(since, midnight), parse_dates=["valid_from"])
    if len(prices):
        spark.createDataFrame(prices).write.mode("append").parquet(f"{folder}/prices")
    loaded.write_text(midnight)


def pipeline(orders: DataFrame, folder: str) -> DataStreamWriter:
    def priced(batch: DataFrame, number: int) -> None:
        numbered = batch.withColumn("id", F.monotonically_increasing_id())
        prices = batch.sparkSession.read.parquet(f"{folder}/prices").withColumnRenamed("product", "priced")
        pairs = numbered.join(prices, F.expr("product = priced AND valid_from <= at"), "left")
        newest = F.row_number().over(Window.partitionBy("id").orderBy(F.desc("valid_from")))
        rows = pairs.withColumn("newest", newest).where("newest = 1")
        rows.select("product", "at", "pieces", "price").write.mode("append").parquet(f"{folder}/priced")

    return orders.writeStream.foreachBatch(priced).option("checkpointLocation", f"{folder}/checkpoint")
