"""`python -m benchmarks.nexmark.spark_engine`: run a query on Spark, in Slackwater or in Spark's own terms.

Prints a report before and after every run. The first run writes the result as Parquet files, to
be compared; the other runs write to nothing and are timed.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

import slackwater as sw
from benchmarks.announcements import announced_run
from benchmarks.nexmark import slackwater_queries, spark_queries
from benchmarks.nexmark.generator import TABLES

ENGINES: Final = ("slackwater", "spark")


def read(spark: SparkSession, folder: Path) -> tuple[dict[str, DataFrame], DataFrame]:
    """The three streams, one file a micro-batch, and the table of query 13."""
    rows = {}
    for name in TABLES:
        schema = spark.read.parquet(str(folder / name)).schema
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        rows[name] = reader.parquet(str(folder / name))
    return rows, spark.read.parquet(str(folder / "side_input.parquet"))


def build(spark: SparkSession, engine: str, query: str, folder: Path) -> DataFrame:
    """The result of a query as a streaming DataFrame."""
    if engine == "slackwater":
        return slackwater_queries.QUERIES[query](slackwater_queries.Streams(*read(spark, folder)))
    return spark_queries.QUERIES[query](spark_queries.Frames(*read(spark, folder)))


def run(frame: DataFrame, *, updated: bool, checkpoint: Path, output: Path | None) -> None:
    """Run a query over all that is available, into Parquet files or into nothing."""
    writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    writer = writer.outputMode("update" if updated else "append")
    if output is None:
        query = writer.format("noop").start()
    else:
        query = writer.foreachBatch(_numbered(output)).start()
    query.awaitTermination()


def _numbered(output: Path) -> Callable[[DataFrame, int], None]:
    """A function that writes a batch with its number, by which the last update of a key is found."""

    def write(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(str(output / f"batch={number}"))

    return write


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=ENGINES, required=True)
    parser.add_argument("--query", required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--runs", type=int, required=True)
    arguments = parser.parse_args()
    spark = sw.session(
        "nexmark",
        config={
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.memory": "6g",
            "spark.sql.session.timeZone": "UTC",
        },
    )
    spark.sparkContext.setLogLevel("ERROR")
    query = arguments.query
    updated = arguments.engine == "spark" and query in spark_queries.UPDATED
    for number in range(arguments.runs + 1):
        checkpoint = Path(tempfile.mkdtemp(prefix="slackwater-nexmark-"))
        output = arguments.output / query if number == 0 else None
        with announced_run(run=number):
            frame = build(spark, arguments.engine, query, arguments.data)
            run(frame, updated=updated, checkpoint=checkpoint, output=output)
        # Spark may still write a snapshot of the state.
        shutil.rmtree(checkpoint, ignore_errors=True)
    spark.stop()


if __name__ == "__main__":
    main()
