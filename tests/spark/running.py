"""Running a scenario on Spark in several ways, and on the reference model, to compare the results.

A scenario is rows in batches, with the clock and the watermark after each batch. On Spark the watermark is
not given: it follows from the rows, and a scenario that expects another one fails.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Row as SparkRow
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from slackwater import windows
from slackwater.progress.watermark_policies import Lag, WatermarkPolicy
from slackwater.spark.api.panes import Panes
from slackwater.spark.api.stream import Stream, stream
from slackwater.spark.api.windowed import Windowed
from slackwater.spark.versions import PYSPARK
from slackwater.spark.wire.clock_source import Ticks
from slackwater.time import BEGINNING_OF_TIME, END_OF_TIME, SECOND, instant
from tests.model.windows import Pane, Row
from tests.support.windowed import ModelSubject, Observed, Options

SCHEMA = pa.schema(
    [("key", pa.string()), ("at", pa.timestamp("us", "UTC")), ("value", pa.int64()), ("origin", pa.string())]
)
ACCUMULATIONS = {"count": windows.count(), "sum": windows.sum("value"), "collect": windows.collect("value")}


@dataclass(frozen=True)
class Batch:
    """Rows (key, second, value) or (key, second, value, origin), and the second on the clock."""

    rows: Sequence[tuple[Any, ...]]
    now: int
    watermark: int | None
    """The watermark of the stream after these rows, in seconds."""
    counted: Sequence[tuple[Any, ...]] | None = None
    """The rows that count, if not all do."""
    idle: bool = False
    """Whether the stream is idle after this batch."""

    @property
    def elements(self) -> Sequence[tuple[Any, ...]]:
        return self.rows if self.counted is None else self.counted


@dataclass(frozen=True)
class Scenario:
    """The settings of the operator, and its input."""

    options: Options
    batches: Sequence[Batch]
    policy: WatermarkPolicy = field(default_factory=lambda: Lag(0))
    stream_options: dict[str, Any] = field(default_factory=dict)
    schema: pa.Schema = SCHEMA
    through: Callable[[Stream], Stream] = lambda rows: rows
    """Applied to the stream before its windows."""

    def stream(self, df: DataFrame, times: Sequence[int]) -> Stream:
        return stream(
            df, event_time="at", watermark=self.policy, clock=Ticks(tuple(times)), **self.stream_options
        )

    def windowed(self, df: DataFrame, times: Sequence[int]) -> Windowed:
        options = self.options
        windowed = (
            self.through(self.stream(df, times))
            .key_by(*options.key)
            .window(options.window)
            .trigger(options.trigger, allow_data_loss=True)
            .on_time(options.on_time)  # type: ignore[arg-type]
            .closing(options.closing)  # type: ignore[arg-type]
            .drop_late(options.drop_late)  # type: ignore[arg-type]
            .idle(options.idle)  # type: ignore[arg-type]
        )
        lateness = options.allowed_lateness
        windowed = windowed.allowed_lateness(None if lateness is None else f"{lateness} microseconds")
        if options.only_updated:
            windowed = windowed.only_updated()
        mode = {
            "discarding": windowed.discarding,
            "accumulating": windowed.accumulating,
            "accumulating_and_retracting": windowed.accumulating_and_retracting,
        }[options.mode]
        return mode()

    def build(self, df: DataFrame, times: Sequence[int]) -> Panes:
        shown = {name: ACCUMULATIONS[name] for name in self.options.accumulations}
        return self.windowed(df, times).agg(late="emit", invalid="emit", **shown)


def expected(
    scenario: Scenario, portions: Sequence[Sequence[Batch]], *, bounded: bool = False
) -> list[Observed]:
    """The output of the model for the batches in these portions, and for the end of the stream."""
    model = ModelSubject(scenario.options)
    observed: list[Observed] = []
    for portion in portions:
        rows = [model_row(row) for batch in portion for row in batch.elements if row[1] is not None]
        last = portion[-1].watermark
        watermark = END_OF_TIME if bounded else None if last is None else last * SECOND
        observed.append(model.step(rows, watermark, portion[-1].now * SECOND, idle=portion[-1].idle))
    if not bounded:
        observed.append(model.step([], END_OF_TIME, (portions[-1][-1].now + 1) * SECOND))
    return observed


def model_row(row: tuple[Any, ...]) -> Row:
    return {"key": row[0], "ts": row[1] * SECOND, "value": row[2]}


# ---- the ways to run


def as_batch(spark: SparkSession, scenario: Scenario, folder: Path) -> list[list[SparkRow]]:
    for number, batch in enumerate(scenario.batches):
        write(folder / "in", number, batch, scenario.schema)
    df = spark.read.parquet(str(folder / "in"))
    return [scenario.build(df, ()).to_df().collect()]


def as_stream(
    spark: SparkSession,
    scenario: Scenario,
    folder: Path,
    portions: Sequence[Sequence[Batch]],
    restart_after: int | None,
) -> list[list[SparkRow]]:
    """A micro-batch for each portion and one for the end; restarted after ``restart_after`` portions."""
    collected: dict[int, list[SparkRow]] = {}
    times = [portion[-1].now * SECOND for portion in portions]
    times.append(times[-1] + SECOND)
    runs = [len(portions)] if restart_after is None else [restart_after, len(portions)]
    written = 0
    for until in runs:
        for number in range(written, until):
            rows = [row for batch in portions[number] for row in batch.rows]
            write(folder / "in", number, Batch(rows, 0, None), scenario.schema)
        written = until
        ends = until == len(portions)
        schema = spark.read.parquet(str(folder / "in")).schema
        df = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
        panes = scenario.build(df, times[: until + ends])
        run_available(panes.to_df(flush=ends), folder / "checkpoint", collector(collected))
    assert sorted(collected) == list(range(len(portions) + 1))
    return [collected[number] for number in sorted(collected)]


def as_running_query(
    spark: SparkSession, scenario: Scenario, folder: Path, portions: Sequence[Sequence[Batch]]
) -> list[list[SparkRow]]:
    """The same micro-batches of a query that does not end by itself; stopped after the last one."""
    collected: dict[int, list[SparkRow]] = {}
    for number, portion in enumerate(portions):
        rows = [row for batch in portion for row in batch.rows]
        write(folder / "in", number, Batch(rows, 0, None), scenario.schema)
    times = [portion[-1].now * SECOND for portion in portions]
    schema = spark.read.parquet(str(folder / "in")).schema
    df = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    query = (
        scenario.build(df, [*times, times[-1] + SECOND])
        .to_df(flush=True)
        .writeStream.foreachBatch(collector(collected))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime="0 seconds")
        .start()
    )
    try:
        while len(collected) <= len(portions):
            assert not query.awaitTermination(1), "the query has ended"
    finally:
        query.stop()
    return [collected[number] for number in sorted(collected)]


def streamed(spark: SparkSession, scenario: Scenario, folder: Path) -> Panes:
    """The panes of a streaming query with a micro-batch for each batch, and one for the end."""
    for number, batch in enumerate(scenario.batches):
        write(folder / "in", number, batch)
    times = [batch.now * SECOND for batch in scenario.batches]
    schema = spark.read.parquet(str(folder / "in")).schema
    rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    return scenario.build(rows, [*times, times[-1] + SECOND])


def collector(batches: dict[int, list[SparkRow]]) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` that puts the rows of each batch into ``batches``."""

    def collect(frame: DataFrame, number: int) -> None:
        batches[number] = frame.collect()

    return collect


def run_available(
    df: DataFrame, checkpoint: Path, collect: Callable[[DataFrame, int], None]
) -> StreamingQuery:
    """Run a query over the available input, and return it after it has ended."""
    return ended(df.writeStream.foreachBatch(collect).option("checkpointLocation", str(checkpoint)))


def ended(writer: DataStreamWriter) -> StreamingQuery:
    """Run a query over the available input, all ticks of its clock among it, and return it at its end."""
    if PYSPARK >= (4, 2):
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return query
    # Before, a run with `availableNow` has one tick of the clock, and these scenarios have one in each batch.
    query = writer.trigger(processingTime="0 seconds").start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    return query


def read_to_the_end(writer: DataStreamWriter) -> None:
    """Read all that a stream of Slackwater has, also after a batch that was not committed.

    Before PySpark 4.2 a run that reads such a stream is one batch, and after a failure it is the failed one.
    """
    for _ in range(1 if PYSPARK >= (4, 2) else 2):
        writer.trigger(availableNow=True).start().awaitTermination(120)


def until(condition: Callable[[], bool], seconds: float = 240) -> None:
    """Wait until a running query has done something."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition was not met in time"
        time.sleep(0.2)


def put_in_order(path: Path, number: int) -> None:
    """Make Spark read this file as the ``number``-th one of its folder: it reads them by modification time.

    Files that are written within the same millisecond have no order of their own.
    """
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def write(folder: Path, number: int, batch: Batch, schema: pa.Schema = SCHEMA) -> None:
    """A file of rows, times in seconds; files are read in the order of their numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    full = [(*row, "only")[: len(schema)] for row in batch.rows]
    columns = [list(column) for column in zip(*full, strict=True)] if full else [[] for _ in schema]
    for index, kind in enumerate(schema.types):
        if pa.types.is_timestamp(kind):
            columns[index] = [None if second is None else second * SECOND for second in columns[index]]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    path = folder / f"{number:05}.parquet"
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), path)
    put_in_order(path, number)


# ---- comparing


def panes_of(rows: Sequence[SparkRow], options: Options) -> list[Pane]:
    """The panes among the rows of a batch, in order. The timestamp is not a column, so it is 0 here."""
    return [
        Pane(
            key=tuple(row[name] for name in options.key),
            start=BEGINNING_OF_TIME if row["window"]["start"] is None else micros(row["window"]["start"]),
            end=END_OF_TIME if row["window"]["end"] is None else micros(row["window"]["end"]),
            values={
                name: sorted(row[name]) if isinstance(row[name], list) else row[name]
                for name in options.accumulations
            },
            timing=row["pane"]["timing"],
            index=row["pane"]["index"],
            on_time_index=row["pane"]["on_time_index"],
            is_first=row["pane"]["is_first"],
            is_last=row["pane"]["is_last"],
            timestamp=0,
            retraction=row["pane"]["retraction"],
        )
        for row in rows
        if row["pane"]["kind"] == "pane"
    ]


def of_kind(rows: Sequence[SparkRow], kind: str) -> list[tuple[Any, ...]]:
    """The rows that were dropped for a reason: key, start of the window, values."""
    dropped = [row for row in rows if row["pane"]["kind"] == kind]
    starts = [row["window"]["start"] for row in dropped]
    found = [
        (row["key"], None if start is None else micros(start), row["collect"])
        for row, start in zip(dropped, starts, strict=True)
    ]
    return sorted(found, key=repr)


def micros(moment: datetime) -> int:
    """Spark returns timestamps without a time zone, in that of this process."""
    return instant(moment.astimezone(UTC))
