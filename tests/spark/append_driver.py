"""A query that appends panes to a table, in a process with an environment and a session of its own.

``python -m tests.spark.append_driver ADDRESS FOLDER``; rows are read from ``FOLDER/in``. The first attempt of
each task fails after it has written to its file.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import polars as pl
from pyspark import TaskContext

import slackwater as sw
from slackwater.spark.api.file_append import append_rows
from slackwater.spark.api.pane_sink import SinkIdentity


def main(address: str, folder: str) -> None:
    """Append the totals of all available rows, and end the stream."""
    spark = sw.session(master="local[2,4]", partitions=2, config={"spark.ui.enabled": "false"})
    reader = spark.readStream.schema("key string, at timestamp, value long, origin string")
    df = reader.option("maxFilesPerTrigger", 1).parquet(f"{folder}/in")
    keyed = sw.stream(df, event_time="at", watermark=sw.lag("0 seconds"), buckets=8).key_by("key")
    dataflow = keyed.window(sw.fixed("10 seconds")).agg(total=sw.sum("value")).dataflow
    prepare, failing = dataflow.flat_reader.prepare, set[int]()

    def failing_once(rows: pl.DataFrame) -> pl.DataFrame:
        task = TaskContext.get()
        assert task is not None
        assert prepare is not None
        if task.attemptNumber() == 0 and task.taskAttemptId() in failing:
            raise ValueError("the first attempt of a task fails at its second bucket")
        failing.add(task.taskAttemptId())
        return prepare(rows)

    writer = append_rows(
        dataflow,
        replace(dataflow.flat_reader, prepare=failing_once),
        address,
        create=True,
        commits=SinkIdentity(None, None, dataflow.claim),
        flush=True,
    )
    query = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
