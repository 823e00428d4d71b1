"""How fast Spark reads a stream, in a batch and in a streaming query, and writes one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.report import Report, best
from slackwater.spark.session import session
from slackwater.streams.log.catalog import Stream, Streams
from slackwater.streams.log.writer import Writer
from slackwater.streams.spark.data_source import register

EVENTS = int(os.environ.get("BENCH_EVENTS", "4_000_000"))
BYTES = 100
SEGMENTS = 2
AIM = 1_000_000
RUNS = 3


def _fill(stream: Stream) -> None:
    """Events of a hundred bytes, spread over the segments by their keys."""
    chunk = 200_000
    with Writer(stream) as writer:
        for first in range(0, EVENTS, chunk):
            keys = [str(number % 1_000) for number in range(first, first + chunk)]
            values = [f"{number:0{BYTES}d}" for number in range(first, first + chunk)]
            writer.write_many(pa.table({"key": keys, "value": values}), keys="key")


def _best(work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(RUNS):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return best(seconds)


def _check(spark: SparkSession, options: dict[str, str]) -> None:
    """Every event is there, once, with its key."""
    df = spark.read.format("slackwater").options(**options).load()
    number = "cast(substring(value, -10) as bigint)"
    [row] = df.selectExpr(
        f"count(distinct {number}) events", f"sum({number}) total", f"min({number} % 1000 = int(key)) fits"
    ).collect()
    assert (row.events, row.total, row.fits) == (EVENTS, EVENTS * (EVENTS - 1) // 2, True)


def _measure(spark: SparkSession, store: str, folder: Path) -> dict[str, float]:
    options = {"store": store, "stream": "bench/events"}
    _check(spark, options)

    def batch() -> None:
        df = spark.read.format("slackwater").options(**options).load()
        [row] = df.selectExpr("count(*) n", "sum(length(value)) bytes").collect()
        assert (row.n, row.bytes) == (EVENTS, EVENTS * BYTES)

    runs = iter(range(1_000))
    triggers: list[float] = []

    def stream() -> None:
        checkpoint = folder / f"checkpoint-{next(runs)}"
        df = spark.readStream.format("slackwater").options(**options).load()
        query = (
            df.writeStream.format("noop")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert sum(progress["numInputRows"] for progress in query.recentProgress) == EVENTS
        triggers.append(sum(p["durationMs"]["triggerExecution"] for p in query.recentProgress) / 1e3)

    def write() -> None:
        df = spark.range(EVENTS // 4).selectExpr(
            "cast(id % 1000 as string) key", f"lpad(cast(id as string), {BYTES}, '0') value"
        )
        target = {"store": store, "stream": "bench/copy", "key": "key"}
        df.write.format("slackwater").options(**target).mode("append").save()

    rates = {"read, a job": EVENTS / _best(batch), "read, a query with availableNow": EVENTS / _best(stream)}
    rates["read, the batches of that query alone"] = EVENTS / best(triggers)
    return {**rates, "write, a job": EVENTS // 4 / _best(write)}


def local_session() -> SparkSession:
    """A session on two cores that prints no more than errors."""
    spark = session(
        "slackwater benchmarks",
        master="local[2]",
        partitions=2,
        config={"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"},
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def run(report: Report) -> None:
    """A stream of two segments, on SQLite and the local disk."""
    section = report.section(
        "Streams on Spark",
        f"{EVENTS:,} events of {BYTES} bytes in {SEGMENTS} segments; events per second of wall time, "
        f"best of {RUNS}, including the start of the job or query unless stated otherwise.",
        ["", "events/s"],
    )
    columns = pa.schema([("key", pa.string()), ("value", pa.string())])
    with TemporaryDirectory() as name:
        folder = Path(name)
        store = f"sqlite:///{folder}/store.db"
        with Streams.open(store, create=True) as streams:
            _fill(streams.create("bench/events", segments=SEGMENTS, columns=columns))
            streams.create("bench/copy", segments=SEGMENTS, columns=columns)
        spark = local_session()
        register(spark)
        try:
            rates = _measure(spark, store, folder)
        finally:
            spark.stop()
    for what, rate in rates.items():
        section.row(what, round(rate))
    for what in (what for what in rates if what.startswith("read")):
        said = "within" if rates[what] >= AIM else "below"
        section.verdict(
            f"{what}: {rates[what] / 1e6:.2f} million events per second, {said} the aim of {AIM:,}"
        )
    section.verdict("the difference between a query and its batches is the start of the query")
    report.show(section)
