"""Three jobs in a row, each started by ``slackwater wait`` on the one before, and a late correction."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.readwriter import DataStreamWriter

import slackwater as sw
from slackwater.spark.api.stream import Stream
from slackwater.spark.api.windowed import Windowed
from slackwater.streams.log.catalog import Streams
from slackwater.streams.log.scan import scan
from slackwater.streams.settings import MarkSettings, StreamSettings
from slackwater.tables.delta_table import DeltaLakeTable
from slackwater.time import SECOND
from tests.spark.oracle import micros
from tests.spark.running import Batch, write
from tests.support.programs import Program
from tests.tables.lakes import rows_of

pytestmark = [pytest.mark.spark, pytest.mark.proof]

ROWS: Final = "key string, at timestamp, value long, origin string"
TABLES: Final = ("stream:jobs/tens", "stream:jobs/halves")
LENGTHS: Final = (10, 30, 60)
"""The windows of the three jobs, in seconds."""
LATENESS: Final = "1 hour"
END: Final = 2**60
"""A time in seconds after the end of the stream."""

Results = dict[tuple[Any, ...], int]
Rows = list[tuple[str, int, int]]


@dataclass
class Chain:
    """The three jobs, what they wait for, and what their inputs stated when they were started."""

    spark: SparkSession
    folder: Path
    started_at: list[int] = field(default_factory=list)

    @property
    def store(self) -> str:
        return f"sqlite:///{self.folder}/store.db"

    @property
    def table(self) -> DeltaLakeTable:
        """The table of the last job."""
        return DeltaLakeTable(str(self.folder / "minutes"))

    def create(self) -> None:
        quick = StreamSettings(marks=MarkSettings(period="1 microsecond"))
        kinds = {"window_start": pa.timestamp("us", "UTC"), "window_end": pa.timestamp("us", "UTC")}
        columns = pa.schema(
            [("key", pa.string()), *kinds.items(), ("total", pa.int64()), ("retraction", pa.bool_())]
        )
        with Streams.open(self.store, create=True) as streams:
            for name in TABLES:
                streams.create(name.removeprefix("stream:"), columns=columns, settings=quick)

    def run(self, number: int, *, ends: bool) -> None:
        """Run a job over what is there, to its end."""
        writer = self._writer(number, ends=ends).option(
            "checkpointLocation", f"{self.folder}/checkpoint-{number}"
        )
        writer.trigger(availableNow=True).start().awaitTermination()

    def _writer(self, number: int, *, ends: bool) -> DataStreamWriter:
        if number == 0:
            files = self.spark.readStream.schema(ROWS).parquet(str(self.folder / "in"))
            source = sw.stream(files, event_time="at", watermark=sw.lag("5 seconds"))
            value = "value"
        else:
            # the last instant of a window: its end is the first one of the next window
            last = sql.col("window_end") - sql.expr("interval 1 microsecond")
            name = TABLES[number - 1].removeprefix("stream:")
            source = sw.read_stream(
                self.spark, name, store=self.store, event_time=last, retraction="retraction"
            )
            value = "total"
        if number < len(TABLES):
            panes = self._windowed(source.key_by("key"), number).agg(total=sw.sum(value))
            name = TABLES[number].removeprefix("stream:")
            return sw.write_stream(panes, name, store=self.store, key="key", flush=ends)
        panes = self._windowed(source, number).agg(total=sw.sum(value))
        return panes.merge_into(self.table.name, create=True, flush=ends)

    def _windowed(self, source: Stream, number: int) -> Windowed:
        window = source.window(sw.fixed(f"{LENGTHS[number]} seconds"))
        return window.allowed_lateness(LATENESS).accumulating_and_retracting()

    def after(self, number: int, until: str, *, ends: bool) -> None:
        """Run a job once the one before is complete."""
        table = TABLES[number - 1]
        command = [sys.executable, "-m", "slackwater.cli", "wait", table, "--until", until, "--every", "0.1s"]
        waited = subprocess.run(
            [*command, "--timeout", "4 minutes", "--store", self.store, "--json"],
            check=True,
            capture_output=True,
            text=True,
        )
        assert json.loads(waited.stdout)["reached"]
        stated = sw.complete_until(table, store=self.store)
        assert stated is not None
        self.started_at.append(stated)
        self.run(number, ends=ends)

    def results(self, number: int) -> Results:
        """What a job has written, retractions applied."""
        found: Results = {}
        if number == len(TABLES):
            for row in rows_of(self.table).rows(named=True):
                found[micros(row["window_start"]) // SECOND,] = row["total"]
            return found
        with Streams.open(self.store) as streams:
            stream = streams.get(TABLES[number].removeprefix("stream:"))
            events = [event for batch in scan(stream, stream.head()) for event in batch.events.to_pylist()]
        for event in events:
            group = (event["key"], micros(event["window_start"]) // SECOND)
            if event["retraction"]:
                assert found.pop(group) == event["total"]
            else:
                assert group not in found
                found[group] = event["total"]
        return found


def truth(rows: Rows, number: int, until: int) -> Results:
    """The batch result of a job over rows, for the windows that end at or before a time."""
    totals: dict[tuple[Any, ...], int] = defaultdict(int)
    length = LENGTHS[number]
    for key, second, value in rows:
        start = second - second % length
        if start + length <= until:
            totals[(key, start) if number < len(TABLES) else (start,)] += value
    return dict(totals)


def before(results: Results, number: int, until: int) -> Results:
    return {group: total for group, total in results.items() if group[-1] + LENGTHS[number] <= until}


FIRST: Final[Rows] = [("ab"[second % 2], second, second) for second in range(0, 131, 3)]
SECOND_DAY: Final[Rows] = [("ab"[second % 2], second, 1000 + second) for second in range(131, 251, 4)]
CORRECTION: Final[Rows] = [("a", 15, 100_000), ("b", 44, 200_000)]
"""Rows of windows that all three jobs have finished when they arrive."""


def test_three_jobs_that_wait_for_each_other_converge_to_the_batch_result(
    spark: SparkSession, tmp_path: Path
) -> None:
    chain = Chain(spark, tmp_path)
    chain.create()
    command = [sys.executable, "-m", "slackwater.cli", "controller", "--store", chain.store, "--poll", "0.1s"]
    rounds: list[tuple[Rows, int, str]] = [
        (FIRST, 120, "1970-01-01T00:02:00Z"),
        ([*SECOND_DAY, *CORRECTION], 240, "1970-01-01T00:04:00Z"),
        ([], END, "9999-12-31T00:00:00Z"),
    ]
    fed: Rows = []
    with Program(command, tmp_path / "controller.log"), ThreadPoolExecutor(2) as scheduler:
        for number, (rows, until, text) in enumerate(rounds):
            ends = until == END
            # the jobs are scheduled before their input is there
            waiting: list[Future[None]] = [
                scheduler.submit(chain.after, job, text, ends=ends) for job in (1, 2)
            ]
            fed += rows
            write(tmp_path / "in", number, Batch(rows, 0, None))
            chain.run(0, ends=ends)
            for one in waiting:
                one.result(timeout=240)
            for job in range(3):
                found = chain.results(job)
                assert before(found, job, until) == truth(fed, job, until), (number, job)
            assert min(chain.started_at[-2:]) >= min(until * SECOND, micros_of("9999-12-31T00:00:00Z"))
    assert sw.complete_until(chain.table.name) == sw.END_OF_TIME


def micros_of(text: str) -> int:
    return sw.instant(text)
