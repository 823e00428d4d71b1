"""A query with a silent origin, late rows, a chain and a join, run to the end of its input."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from slackwater.progress.watermark_policies import lag
from slackwater.spark.api.stream import stream
from slackwater.spark.monitor.telemetry import Telemetry, telemetry
from slackwater.spark.wire.clock_source import Ticks
from slackwater.time import SECOND
from slackwater.windows import count, fixed
from tests.spark.running import Batch, collector, run_available, until, write

ORDERS = [
    [("x", 3, 1, "a"), ("x", 4, 1, "b")],
    [("x", 25, 1, "a"), ("x", 26, 1, "b")],
    [("x", 1, 1, "a"), ("x", 2, 1, "a"), ("x", 40, 1, "a")],  # two late rows, and "b" is silent
]
DELIVERIES = [[("x", 5, 1)], [("x", 30, 1)], [("x", 45, 1)]]


def run_recorded_chain(spark: SparkSession, tmp_path: Path, url: str) -> tuple[str, Telemetry]:
    """Run the query with its reports in a store, and return its id and the telemetry."""
    for number, (orders, deliveries) in enumerate(zip(ORDERS, DELIVERIES, strict=True)):
        write(tmp_path / "orders", number, Batch(orders, 0, None))
        write(tmp_path / "deliveries", number, Batch(deliveries, 0, None))
    schema = spark.read.parquet(str(tmp_path / "orders")).schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    clock = Ticks((0, 8 * SECOND, 16 * SECOND))
    ordered = stream(
        reader.parquet(str(tmp_path / "orders")),
        event_time="at", watermark=lag("0 seconds"), origin="origin", clock=clock, name="orders",
    )  # fmt: skip
    delivered = stream(
        reader.parquet(str(tmp_path / "deliveries")),
        event_time="at", watermark=lag("0 seconds"), clock=clock, name="deliveries",
    )  # fmt: skip
    counts = ordered.key_by("key").window(fixed("10 seconds")).agg(n=count())
    joined = counts.join(delivered, on="key", before="30 seconds", after="30 seconds", how="left")
    with telemetry(spark, store=url, keep="36500 days") as heard:
        query = run_available(joined.to_df(), tmp_path / "checkpoint", collector({}))
        until(lambda: any(not one.running for one in heard.queries()))
        assert heard.recorder is not None
        assert heard.recorder.flush(timeout=60)  # closing waits for less, and drops what it cannot write
    return str(query.id), heard
