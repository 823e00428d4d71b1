"""The Python workers of a session: started in advance, and shared by all kinds of tasks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from queue import Queue
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import slackwater as sw
from slackwater.spark.runtime import worker_start
from slackwater.spark.wire import clock_source
from slackwater.spark.wire.clock_source import (
    ClockSpec,
    Interval,
    StreamEnd,
    Ticks,
    clock_buffers,
    prepare_clock,
)
from tests.support.programs import ROOT, Program

pytestmark = pytest.mark.spark


# The workers of a pool have the same parent.
def with_process(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.append_column("mapper", pa.array([os.getppid()] * batch.num_rows, pa.int64()))


def process_of(_key: Any, _window: Any, rows: Any) -> list[dict[str, int]]:
    return [{"mappers": int(mapper), "operator": os.getppid()} for mapper in rows["mapper"].unique()]


def imported(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        found = "slackwater.spark.runtime.bucket_task" in sys.modules
        yield pa.record_batch({"pid": [os.getpid()], "found": [found]})


def test_workers_are_started_before_the_first_batch(spark: SparkSession) -> None:
    worker_start.start_workers(spark).get()
    rows = spark.range(2, numPartitions=2).mapInArrow(imported, "pid long, found boolean").collect()
    assert all(row.found for row in rows)
    assert spark.sparkContext.getLocalProperty("spark.job.description") is None


def test_processes_are_started_once_for_a_session(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: Queue[SparkSession] = Queue()
    monkeypatch.setattr(worker_start, "start_workers", started.put)
    worker_start._started.discard(spark)
    worker_start.start_processes(spark, Interval(7_000_000), [0, 1])
    assert started.get(timeout=60) is spark
    prepared = clock_source._prepared[spark]
    worker_start.start_processes(spark, Interval(7_000_000), [0, 1])
    assert clock_source._prepared.pop(spark) is prepared
    assert started.empty()


def test_the_prepared_clock_is_used_once(spark: SparkSession) -> None:
    clock = Interval(7_000_000)
    prepare_clock(spark, clock, [0, 1])
    prepared = clock_source._prepared[spark].clock
    assert clock_buffers(spark, clock, [0, 1], end=None) is prepared.result()
    assert clock_buffers(spark, clock, [0, 1], end=None) is not prepared.result()


def test_a_new_session_prepares_one_clock_while_another_one_is_created(spark: SparkSession) -> None:
    other = spark.newSession()
    prepare_clock(other, Interval(7_000_000), [0, 1])
    prepared = clock_source._prepared[other].clock
    assert clock_buffers(other, Interval(1_000_000), [0, 1], end=None).columns == prepared.result().columns


@pytest.mark.parametrize(
    ("clock", "end"), [(Interval(1_000_000), None), (Interval(7_000_000), StreamEnd()), (Ticks((1, 2)), None)]
)
def test_a_clock_that_was_prepared_for_other_options_is_not_used(
    spark: SparkSession, clock: ClockSpec, end: StreamEnd | None
) -> None:
    prepare_clock(spark, Interval(7_000_000), [0, 1])
    prepared = clock_source._prepared[spark].clock
    assert clock_buffers(spark, clock, [0, 1], end=end) is not prepared.result()
    assert spark not in clock_source._prepared


def test_a_clock_that_could_not_be_prepared_is_created_with_the_query(spark: SparkSession) -> None:
    prepare_clock(spark, Interval(1_000_000), [0])
    clock_source._prepared[spark].clock.result()
    failed: Future[DataFrame] = Future()
    failed.set_exception(RuntimeError("the process was killed"))
    clock_source._prepared[spark] = replace(clock_source._prepared[spark], clock=failed)
    assert clock_buffers(spark, Interval(1_000_000), [0], end=None).columns == ["bucket", "header", "payload"]


def test_stateful_tasks_and_map_tasks_share_their_workers(spark: SparkSession) -> None:
    rows = spark.sql("select timestamp'2024-01-01 00:00:00Z' as at, id from range(0, 8, 1, 2)")
    rows = rows.mapInArrow(with_process, "at timestamp, id long, mapper long")
    panes = (
        sw.stream(rows, event_time="at", watermark=sw.lag("1 second"))
        .key_by("id")
        .window(sw.fixed("10 seconds"))
        .apply(process_of, "mappers long, operator long")
    )
    found = panes.to_df().select("mappers", "operator").collect()
    assert {row.operator for row in found} == {row.mappers for row in found}


SHOP = """
from pyspark.sql.datasource import DataSource, DataSourceReader

class DefaultSource(DataSource):
    @classmethod
    def name(cls):
        return "shop"

    def schema(self):
        return "id long"

    def reader(self, schema):
        return Reader()

class Reader(DataSourceReader):
    def read(self, partition):
        yield (7,)
"""
PROGRAM = """
import slackwater as sw

spark = sw.session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
rows = spark.readStream.format("rate").load()
times = sw.stream(rows, event_time="timestamp", watermark=sw.lag("1 second"))
panes = times.window(sw.fixed("1 second")).agg(n=sw.count())
assert panes.to_df().isStreaming  # the clock is registered
print([row.id for row in spark.read.format("shop").load().collect()])
"""


@pytest.mark.proof
def test_installed_data_sources_are_found_next_to_the_clock(tmp_path: Path) -> None:
    (tmp_path / "pyspark_shop.py").write_text(SHOP)
    log = tmp_path / "log"
    with Program(
        [sys.executable, "-c", PROGRAM], log, {"PYTHONPATH": f"{tmp_path}:{ROOT / 'src'}"}
    ) as program:
        assert program.process.wait(120) == 0, program.said()
        assert program.said().splitlines()[-1] == "[7]"
