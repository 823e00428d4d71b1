"""Running a pipeline over several folders of rows: as a batch, in micro-batches, and over a restart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Row as SparkRow

from slackwater.progress.watermark_policies import Lag
from slackwater.spark.api.output_rows import OutputRows
from slackwater.spark.api.panes import Panes
from slackwater.spark.api.stream import Stream, stream
from slackwater.spark.wire.clock_source import Ticks
from slackwater.time import SECOND
from tests.spark.running import Batch, collector, run_available, write

Rows = Sequence[tuple[Any, ...]]
"""Rows (key, second, value)."""
Steps = Sequence[Mapping[str, Rows]]
"""For each micro-batch, the rows of each input by its name."""
Build = Callable[..., Panes | OutputRows]
"""Called with a stream for each input, by name. The event time is a column and key with that name."""

LAGS = {"ordered": 2, "delivered": 0, "returned": 1}
"""The lag of each input in seconds."""


def as_batch(spark: SparkSession, folder: Path, build: Build, steps: Steps) -> list[SparkRow]:
    for number, step in enumerate(steps):
        _write(folder, number, step)
    frames = {name: spark.read.parquet(str(folder / name)) for name in steps[0]}
    return build(**_streams(frames, ())).to_df().collect()


def as_stream(
    spark: SparkSession, folder: Path, build: Build, steps: Steps, restart_after: int | None = None
) -> list[list[SparkRow]]:
    """The rows of each micro-batch, and of the end; restarted after ``restart_after`` of them."""
    collected: dict[int, list[SparkRow]] = {}
    runs = [len(steps)] if restart_after is None else [restart_after, len(steps)]
    written = 0
    for until in runs:
        for number in range(written, until):
            _write(folder, number, steps[number])
        written = until
        ends = until == len(steps)
        frames: dict[str, DataFrame] = {}
        for name in steps[0]:
            schema = spark.read.parquet(str(folder / name)).schema
            reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
            frames[name] = reader.parquet(str(folder / name))
        built = build(**_streams(frames, range(until + ends)))
        run_available(built.to_df(flush=ends), folder / "checkpoint", collector(collected))
    assert sorted(collected) == list(range(len(steps) + 1))
    return [collected[number] for number in sorted(collected)]


def _streams(frames: Mapping[str, DataFrame], seconds: Sequence[int]) -> dict[str, Stream]:
    clock = Ticks(tuple(second * SECOND for second in seconds))
    return {
        name: stream(
            df.drop("origin").withColumnsRenamed({"at": name, "value": f"{name}_value"}),
            event_times={name: Lag(LAGS[name] * SECOND)},
            clock=clock,
        )
        for name, df in frames.items()
    }


def _write(folder: Path, number: int, step: Mapping[str, Rows]) -> None:
    for name, rows in step.items():
        write(folder / name, number, Batch(rows, 0, None))
