"""A batch on Spark reads only the state that it touches, however much is stored."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from slackwater import windows
from slackwater.progress.watermark_policies import lag
from slackwater.spark.api.stream import stream
from slackwater.spark.wire.clock_source import Ticks
from slackwater.time import SECOND
from tests.spark.running import Batch, write

pytestmark = pytest.mark.spark

WINDOWS = 10
TOUCHES = 3


@dataclass(frozen=True)
class Cost:
    """The state store calls of the last batch, and the size of the state."""

    reads: int
    writes: int
    bytes_read: int
    bytes_written: int
    remembered: int


@pytest.mark.proof
def test_a_batch_reads_only_the_window_it_touches(spark: SparkSession, tmp_path: Path) -> None:
    # with fewer keys the blobs of windows would be small enough to be stored with the small state
    little, much = (cost_of_a_touch(spark, tmp_path / str(keys), keys) for keys in (20_000, 100_000))
    assert much.remembered > 4 * little.remembered
    assert (much.reads, much.writes) == (little.reads, little.writes)
    # the index of the windows is in it, whose numbers are some bytes longer
    assert much.bytes_read <= little.bytes_read + 200
    assert much.bytes_written <= little.bytes_written + 200


def cost_of_a_touch(spark: SparkSession, folder: Path, keys: int) -> Cost:
    """A batch into one window, after so many keys in each of the others."""
    fill = [(f"{key}", 10 * (2 + number), key) for number in range(WINDOWS) for key in range(keys)]
    touch = [(f"{key}", 5, key) for key in range(20)]
    for number, rows in enumerate([fill, *[touch] * TOUCHES]):
        write(folder / "in", number, Batch(rows, 0, None))
    schema = spark.read.parquet(str(folder / "in")).schema
    elements = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    clock = Ticks(tuple(number * SECOND for number in range(1 + TOUCHES)))
    # nothing is complete before a day has gone by, so everything is remembered
    keyed = stream(elements, event_time="at", watermark=lag("1 day"), clock=clock).key_by("key")
    panes = keyed.window(windows.fixed("10 seconds")).agg(total=windows.sum("value")).to_df()
    query = (
        panes.writeStream.format("noop")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    last = json.loads(query.recentProgress[-1].json)
    assert last["batchId"] == TOUCHES
    (operator,) = last["stateOperators"]
    metrics = operator["customMetrics"]
    return Cost(
        reads=metrics["rocksdbGetCount"],
        writes=metrics["rocksdbPutCount"],
        bytes_read=metrics["rocksdbTotalBytesRead"],
        bytes_written=metrics["rocksdbTotalBytesWritten"],
        remembered=sum(
            path.stat().st_size for path in (folder / "checkpoint" / "state").rglob("*.changelog")
        ),
    )
