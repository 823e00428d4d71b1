"""`python -m benchmarks.peers.spark_engine`: the windows in Slackwater or Spark, from Parquet to CSV files.

The environment variable ``ENGINE`` chooses between them.
"""

from __future__ import annotations

import os
import tempfile

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

import slackwater as sw
from benchmarks.announcements import announced_run
from benchmarks.peers.workloads import SECOND, Job, Workload, parse_job
from slackwater.windows import Window


def our_window(window: Workload) -> Window:
    """The window of Slackwater; sessions exactly the gap apart are two there, hence a longer gap."""
    size = f"{window.size // SECOND} seconds"
    if window.sessions:
        return sw.sessions(f"{size} 1 millisecond")
    return (
        sw.fixed(size)
        if window.every is None
        else sw.sliding(size, every=f"{window.every // SECOND} seconds")
    )


def spark_window(window: Workload) -> Column:
    """The window of Spark."""
    size = f"{window.size // SECOND} seconds"
    if window.sessions:
        return F.session_window("ts", size)
    return F.window("ts", size, f"{(window.every or window.size) // SECOND} seconds")


def result(engine: str, rows: DataFrame, window: Workload) -> DataFrame:
    """The windows of one of the two."""
    if engine == "slackwater":
        stream = sw.stream(rows, event_time="ts", watermark=sw.lag("5 seconds"), clock="1 hour")
        panes = stream.key_by("auction").window(our_window(window))
        return panes.agg(bids=sw.count(), total=sw.sum("price"), best=sw.max("price")).to_df(flush=True)
    windows = rows.withWatermark("ts", "5 seconds").groupBy(spark_window(window).alias("window"), "auction")
    return windows.agg(
        F.count("*").alias("bids"), F.sum("price").alias("total"), F.max("price").alias("best")
    )


def run(job: Job, engine: str) -> None:
    """Run the job to its end."""
    quiet = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "6g",
    }
    with announced_run(), tempfile.TemporaryDirectory(prefix="slackwater-peers-") as checkpoint:
        spark = sw.session("peers", config=quiet)
        spark.sparkContext.setLogLevel("ERROR")
        reader = spark.readStream.schema("auction bigint, price bigint, millis bigint")
        rows = reader.option("maxFilesPerTrigger", 1).parquet(str(job.data / "parquet"))
        panes = result(engine, rows.withColumn("ts", F.timestamp_millis("millis")), job.window)
        lines = panes.select("auction", F.unix_millis("window.start"), "bids", "total", "best")
        writer = lines.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        writer.start(str(job.output), format="csv").awaitTermination()


if __name__ == "__main__":
    run(parse_job(), os.environ["ENGINE"])
