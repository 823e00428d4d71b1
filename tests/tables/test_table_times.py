"""The completeness of tables in the offsets of the clock: a batch never uses a time that its rows lack."""

from __future__ import annotations

import json
from typing import Any

from slackwater.progress.watermark_policies import Lag, TableWatermark
from slackwater.spark.runtime.source_progress import SourceProgress, SourceRules
from slackwater.spark.versions import ReadAllAvailable
from slackwater.spark.wire.buffers import Observation, Peak
from slackwater.spark.wire.clock_source import IntervalReader, TableTimes, is_tick
from slackwater.time import END_OF_TIME


class Reading:
    """A table whose completeness is set by the test."""

    def __init__(self) -> None:
        self.complete: int | None = None

    def __call__(self) -> int | None:
        if self.complete == -1:
            raise ConnectionError
        return self.complete


def reader(reading: Reading, **built: int) -> IntervalReader:
    tables = TableTimes((TableWatermark("t", reading),), built)
    return IntervalReader((0, 2), 1, None, tables)


def used(clock: IntervalReader, start: dict[str, Any], end: dict[str, Any]) -> dict[str, int]:
    (partition,) = clock.partitions(start, end)
    return partition.tick.tables  # type: ignore[attr-defined,no-any-return]


def test_a_batch_uses_the_time_that_was_read_with_the_batch_before() -> None:
    reading = Reading()
    clock = reader(reading)
    offsets = [clock.initialOffset()]
    found = []
    for reading.complete in (10, 20, None, -1, 15, 30):
        offsets.append(clock.latestOffset(offsets[-1], ReadAllAvailable()))
        found.append(used(clock, offsets[-2], offsets[-1]).get("t"))
    # read with the batch before; never lower, also if the table cannot be read for a while
    assert found == [None, 10, 20, 20, 20, 20]
    assert used(clock, offsets[1], offsets[2]) == {"t": 10}, "a repeated batch has the same time"
    assert is_tick(json.dumps(offsets[-1]))


def test_the_first_batch_of_a_run_uses_the_time_of_its_start() -> None:
    reading = Reading()
    reading.complete = 30
    first = reader(reading, t=10)
    start = first.initialOffset()
    end = first.latestOffset(start, ReadAllAvailable())
    assert used(first, start, end) == {"t": 10}
    # what the stopped run had read is not used: the rows of the next batch may be older
    second = reader(reading, t=25)
    again = second.latestOffset(end, ReadAllAvailable())
    assert used(second, end, again) == {"t": 25}


def test_a_run_with_available_now_uses_no_later_time() -> None:
    reading = Reading()
    reading.complete = 30
    clock = reader(reading, t=10)
    clock.prepareForTriggerAvailableNow()
    start = clock.initialOffset()
    end = clock.latestOffset(start, ReadAllAvailable())
    assert (used(clock, start, end), end["tables"]["seen"]) == ({"t": 10}, {})


def test_the_watermark_follows_the_table_and_not_the_rows() -> None:
    progress = SourceProgress(SourceRules(Lag(5), table="t"), now=0)
    rows = [Observation("input", [Peak(99, 1)])]
    progress.advance(rows, now=1)
    before = progress.watermark
    assert before is None
    progress.advance(rows, now=2, tables={"t": 20, "other": 50})
    assert progress.watermark == 15
    again = SourceProgress.load(SourceRules(Lag(5), table="t"), progress.save(), now=2)
    again.advance([], now=3, tables={"t": 20})
    assert again.watermark == 15
    again.advance([], now=4, tables={"t": END_OF_TIME})
    assert again.watermark == END_OF_TIME - 5
    assert again.why().held_by == "partition 't'"
