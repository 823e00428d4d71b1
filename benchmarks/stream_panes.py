"""Panes into a stream: tasks that write them, against rows that pass through Spark's sink.

`write_stream` lets the tasks of the operator write the files of the stream. The peer is
``to_df(flat=True).writeStream.format("slackwater")``, where each pane goes to the JVM and from there to a
second Python process. Every run is a new process on `sw.session()`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Final

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import polars as pl  # after the number of threads is set, which Polars reads once
import pyarrow as pa
from pyspark.sql.streaming.readwriter import DataStreamWriter

import slackwater as sw
from benchmarks.cold_process import in_new_process, print_result
from benchmarks.report import Report, spread
from benchmarks.spark_windows import BATCH, QUIET, TUMBLING, bids, read, windows
from slackwater.spark.api.panes import Panes
from slackwater.streams.log.catalog import Streams
from slackwater.streams.log.scan import scan
from slackwater.streams.spark.data_source import register

BATCHES: Final = 8
WARM: Final = 3
RUNS: Final = 3
KEYS: Final = (1_000, 200_000)
SEGMENTS: Final = 2
DIRECT: Final = "write_stream"
THROUGH: Final = "Spark's sink"
SIDES: Final = (DIRECT, THROUGH)
COLUMNS: Final = pa.schema(
    [
        ("auction", pa.int64()),
        ("window_start", pa.timestamp("us", "UTC")),
        ("window_end", pa.timestamp("us", "UTC")),
        ("bids", pa.int64()),
        ("total", pa.int64()),
        ("best", pa.int64()),
    ]
)


def _store(work: Path) -> str:
    return f"sqlite:///{work}/store.db"


def _stream(side: str) -> str:
    return f"bench/{'direct' if side == DIRECT else 'through'}"


def _writer(panes: Panes, side: str, work: Path) -> DataStreamWriter:
    if side == DIRECT:
        return sw.write_stream(panes, _stream(side), store=_store(work), key="auction")
    register(panes.dataflow.spark)
    options = {"store": _store(work), "stream": _stream(side), "key": "auction"}
    return panes.to_df(flat=True).writeStream.format("slackwater").options(**options)


def run_side(side: str, work: Path) -> list[float]:
    """Run one side in this process, and return the seconds of each batch."""
    spark = sw.session(config=QUIET)
    spark.sparkContext.setLogLevel("ERROR")
    writer = _writer(windows(read(spark, work / "in"), TUMBLING.ours), side, work)
    query = writer.option("checkpointLocation", str(work / f"{_stream(side)}-checkpoint"))
    running = query.trigger(availableNow=True).start()
    running.awaitTermination()
    return [one.durationMs["triggerExecution"] / 1000 for one in running.recentProgress if one.numInputRows]


def _events(work: Path, side: str) -> pl.DataFrame:
    """The events of a side, in one order."""
    with Streams.open(_store(work)) as streams:
        stream = streams.get(_stream(side))
        batches = [batch.events.select(COLUMNS.names) for batch in scan(stream, stream.head())]
    return pl.DataFrame(pa.Table.from_batches(batches)).sort("window_start", "auction")


def _measure(keys: int) -> tuple[dict[str, list[float]], int]:
    """The median seconds of a batch for each side and run, and the number of panes."""
    took: dict[str, list[float]] = {side: [] for side in SIDES}
    panes = 0
    for _ in range(RUNS):
        with tempfile.TemporaryDirectory() as name:
            work = Path(name)
            bids(work / "in", keys, BATCH, BATCHES)
            with Streams.open(_store(work), create=True) as streams:
                for side in SIDES:
                    streams.create(_stream(side), segments=SEGMENTS, columns=COLUMNS)
            for side in SIDES:
                batches = in_new_process("benchmarks.stream_panes", list[float], side, work)
                assert len(batches) == BATCHES, f"{side}: {len(batches)} batches"
                took[side].append(median(batches[WARM:]))
            direct, through = (_events(work, side) for side in SIDES)
            assert direct.height > 0
            assert direct.equals(through), "the streams differ"
            panes = direct.height
    return took, panes


def run(report: Report) -> None:
    """The same panes into two streams, in turns."""
    section = report.section(
        "On Spark: panes into a stream",
        f"Tumbling windows of 10 s, {BATCHES} micro-batches of {BATCH:,} bids, Parquet in, a stream of "
        f"{SEGMENTS} segments out, routed by auction. With `write_stream` the tasks of the operator write "
        "the files of the stream; Spark's sink is "
        '`to_df(flat=True).writeStream.format("slackwater")`. Every run '
        f"is a new process on `sw.session()`; seconds of a batch are the median without the first {WARM}, of "
        f"{RUNS} runs in turns, with the lowest and the highest. Both streams are equal.",
        ("keys", "panes", *SIDES, "ratio"),
    )
    for keys in KEYS:
        took, panes = _measure(keys)
        ratios = [through / direct for direct, through in zip(took[DIRECT], took[THROUGH], strict=True)]
        section.row(keys, panes, spread(took[DIRECT]), spread(took[THROUGH]), spread(ratios))
    report.show(section)


if __name__ == "__main__":
    side_name, folder_name = sys.argv[1:]
    print_result(run_side(side_name, Path(folder_name)))
