"""The cost of telemetry: CPU time of the recorder per batch, and the size of reports.

python -m benchmarks.telemetry_cost
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import polars as pl

from slackwater import windows
from slackwater.progress.watermark_policies import lag
from slackwater.spark.api.stream import stream
from slackwater.spark.monitor.telemetry import telemetry
from slackwater.spark.session import session
from slackwater.time import SECOND, now

ROWS, FILES, ORIGINS = 50_000, 30, 20


def main() -> None:
    """Run a query of thirty batches with a store, and print the shares."""
    spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in").mkdir()
        for number in range(FILES):
            rows = pl.select(value=pl.int_range(ROWS)).with_columns(
                key=(pl.col("value") % 200).cast(pl.String),
                origin=(pl.col("value") % ORIGINS).cast(pl.String),
                at=pl.from_epoch(
                    now() + pl.col("value") * 200 + number * 10 * SECOND, "us"
                ).dt.replace_time_zone("UTC"),
            )
            rows.write_parquet(folder / "in" / f"{number:03}.parquet")
        schema = spark.read.parquet(str(folder / "in")).schema
        df = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
        panes = (
            stream(df, event_time="at", watermark=lag("2 seconds"), origin="origin")
            .key_by("key")
            .window(windows.fixed("5 seconds"))
            .agg(n=windows.count(), total=windows.sum("value"))
            .to_df()
        )
        with telemetry(spark, batches=FILES, store=f"sqlite:///{folder}/store.db") as heard:
            query = panes.writeStream.format("noop").option("checkpointLocation", str(folder / "c"))
            query.trigger(availableNow=True).start().awaitTermination()
            recorder = heard.recorder
        (history,) = heard.queries()
        seconds = [batch.duration / 1e6 for batch in history.batches]
        sizes = [
            len(msgspec.json.encode(bucket))
            for batch in history.batches
            for operator in batch.report.operators
            for bucket in operator.buckets
        ]
        cpu = 0.0 if recorder is None else recorder.cpu_seconds
        total, batches = math.fsum(seconds), len(seconds)
        lines = [
            f"{batches} batches of {ROWS} rows and {ORIGINS} origins in {total:.1f} s",
            f"recorder: {cpu / batches * 1e3:.1f} ms of CPU a batch, {cpu / total:.2%} of batch time",
            f"report of a bucket: {max(sizes)} bytes at most",
            f"lost: {0 if recorder is None else recorder.lost}",
        ]
        sys.stdout.write("\n".join(lines) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
