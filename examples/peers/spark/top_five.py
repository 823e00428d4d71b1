"""Keep the five best sellers of each hour in a table, from the first sale of the hour to its last.

A ranking after an aggregation needs foreachBatch, and a table that is replaced as a whole needs the state of all hours.
"""

import psycopg
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the conventional alias
from pyspark.sql.streaming.readwriter import DataStreamWriter

TABLE = "CREATE TABLE IF NOT EXISTS best_sellers (hour TIMESTAMPTZ, product TEXT, pieces BIGINT)"


def pipeline(sales: DataFrame, database: str, folder: str) -> DataStreamWriter:
    def replace(batch: DataFrame, number: int) -> None:
        rank = F.row_number().over(Window.partitionBy("hour").orderBy(F.desc("pieces"), "product"))
        best = batch.withColumn("rank", rank).where("rank <= 5").drop("rank").collect()
        with psycopg.connect(database) as connection, connection.cursor() as cursor:
            cursor.execute(TABLE)
            cursor.execute("DELETE FROM best_sellers")
            cursor.executemany("INSERT INTO best_sellers VALUES (%s, %s, %s)", map(tuple, best))

    hours = sales.groupBy(F.window("at", "1 hour").start.alias("hour"), "product")
    sold = hours.agg(F.sum("pieces").alias("pieces")).writeStream.outputMode("complete")
    return sold.foreachBatch(replace).option("checkpointLocation", folder)
