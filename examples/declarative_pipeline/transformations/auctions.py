"""A Spark Declarative Pipeline: panes of bids with late corrections, and the current totals."""

from pathlib import Path

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sql

import slackwater as sw

spark = SparkSession.active()
BIDS = "auction string, price long, at timestamp"
DATA = Path(__file__).parents[1] / "data"


@dp.table
def panes() -> DataFrame:
    bids = spark.readStream.schema(BIDS).option("maxFilesPerTrigger", 1).json(DATA.as_uri())
    return (
        sw.stream(sw.declared(bids, BIDS), event_time="at", watermark=sw.lag("5 seconds"))
        .key_by("auction")
        .window(sw.tumbling("10 seconds"))
        .trigger(sw.after_watermark(late=sw.every(count=1)))
        .allowed_lateness("1 hour")
        .accumulating_and_retracting()
        .agg(bids=sw.count(), total=sw.sum("price"))
        .to_df()
    )


@dp.materialized_view
def totals() -> DataFrame:
    newest = Window.partitionBy("auction", "window").orderBy(sql.desc("pane.index"), "pane.retraction")
    rows = spark.read.table("panes").withColumn("row", sql.row_number().over(newest))
    return rows.where("row = 1 and not pane.retraction").select("auction", "window", "bids", "total")
