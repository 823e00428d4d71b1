"""Streams as a target: rows are appended exactly once, with a time before which the data are complete."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import slackwater as sw
from slackwater.ingest import WorkUnit
from slackwater.ingest.ledger.run_ledger import Outcome, reset_history
from slackwater.ingest.runner import Watcher
from slackwater.metadata.store import open_store
from slackwater.streams.log.catalog import Stream, Streams
from slackwater.streams.log.scan import scan
from slackwater.streams.maintenance.mark_cycle import CycleRunner
from slackwater.streams.spark.stream_event_time import read_stream
from slackwater.streams.time.mark_store import writer_marks
from slackwater.time import DAY, HOUR, SECOND, format_instant, frame_floor, instant
from slackwater.time import now as wall_clock
from tests.ingest.copying import AXIS, ROWS, START, execute, from_orders, orders, run

pytestmark = pytest.mark.spark
QUERY = "SELECT id, at FROM orders WHERE name = {{name}} AND at >= {{low}} AND at < {{high}}"


def into_stream(folder: Path, **more: Any) -> dict[str, Any]:
    target = {"target_url": f"sqlite:///{folder}/streams.db", "target_stream": "shop/orders"}
    return from_orders(f"sqlite:///{folder}/source.db", target_type="stream", **target, **more)


def events(stream: Stream, names: tuple[str, ...] = ("id",), upto: Any = None) -> list[tuple[Any, ...]]:
    """The events of a stream, or those before a cut."""
    offsets = None if upto is None else dict(upto.items())
    found: list[tuple[Any, ...]] = []
    for batch in scan(stream, stream.head()):
        columns = [batch.events.column(name).to_pylist() for name in names]
        end = len(columns[0]) if offsets is None else offsets.get(batch.segment, 0) - batch.first_offset
        found += list(zip(*columns, strict=True))[: max(0, end)]
    return sorted(found)


class Marking(Watcher):
    """Makes a mark of the stream whenever a unit has ended, as a controller would."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._cycles = CycleRunner(streams.store, clock=lambda: wall_clock() + HOUR)
        self.marks: list[str] = []

    def ended(self, number: int, work: WorkUnit, outcome: Outcome) -> None:
        stream = self._streams.get("shop/orders")
        cycle = self._cycles.run(stream.id)
        if cycle is None or cycle.mark is None:
            return
        mark = cycle.mark
        self.marks.append(format_instant(mark.lower))
        # whatever is older than the mark lies before its cut
        wanted = [(key,) for key, at, _ in ROWS if at < mark.lower]
        assert not Counter(wanted) - Counter(events(stream, upto=mark.cut))


def wait_until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not done():
        assert time.monotonic() < end
        time.sleep(0.2)


@pytest.mark.proof
def test_windows_fire_when_all_units_are_complete(spark: SparkSession, tmp_path: Path) -> None:
    source, store = f"sqlite:///{tmp_path}/source.db", f"sqlite:///{tmp_path}/streams.db"
    orders(source)
    execute(source, "UPDATE orders SET name = CASE id % 2 WHEN 0 THEN 'even' ELSE 'odd' END")
    # the odd orders of the second day are missing at first, which fails their unit
    execute(source, "UPDATE orders SET name = 'odd, later' WHERE id IN (5, 7, 9)")
    units = [AXIS, {"name": "name", "type": "unit", "units": ["even", "odd"]}]
    keys = into_stream(
        tmp_path, watermark=units, source_query=QUERY, work_unit_partition="daily",
        work_unit_min_records=1, run_concurrency=3,
    )  # fmt: skip
    del keys["ms.source.table"]
    with Streams.open(store, create=True) as streams:
        marking = Marking(streams)
        report = run(spark, tmp_path, "2020-01-04T01:00:00Z", keys, watcher=marking)
        assert Counter(outcome.state for outcome in report.outcomes) == {"succeeded": 5, "failed": 1}
        assert marking.marks[-1] == "2020-01-02T00:00:00Z"

        panes = (
            read_stream(spark, "shop/orders", store=store, event_time="at", clock="500 milliseconds")
            .key_by("name")
            .window(sw.fixed("1 day"))
            .agg(orders=sw.count(), total=sw.sum("id"))
            .to_df()
        )
        query = (
            panes.writeStream.format("memory")
            .queryName("panes_of_orders")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="300 milliseconds")
            .start()
        )

        def fired() -> list[tuple[str, int, int, int]]:
            assert query.exception() is None
            rows = spark.table("panes_of_orders").collect()
            return [(row.name, round(row.window.start.timestamp()), row.orders, row.total) for row in rows]

        try:
            wait_until(lambda: len(fired()) >= 2)
            assert {start for _, start, _, _ in fired()} == {START // SECOND}
            execute(source, "UPDATE orders SET name = 'odd' WHERE name = 'odd, later'")
            report = run(spark, tmp_path, "2020-01-04T01:00:00Z", keys, watcher=marking)
            assert [outcome.low for outcome in report.outcomes] == [START + DAY]
            assert marking.marks[-1] == "2020-01-04T00:00:00Z"
            wait_until(lambda: len(fired()) >= 6)
        finally:
            query.stop()
        # a unit that is new begins before what was noted: its rows come, and time stays where it is
        units[1] = {"name": "name", "type": "unit", "units": ["even", "odd", "new"]}
        assert run(spark, tmp_path, "2020-01-04T01:00:00Z", {**keys, "ms.work.unit.min.records": 0}).succeeded
        (writer,) = streams.store.read(lambda c: writer_marks(c, streams.get("shop/orders").id))
        assert writer.time == START + 3 * DAY
        counts: Counter[tuple[str, int]] = Counter()
        totals: Counter[tuple[str, int]] = Counter()
        for number, at, _ in ROWS:
            group = ("odd" if number % 2 else "even", frame_floor(at, DAY) // SECOND)
            counts[group] += 1
            totals[group] += number
        assert sorted(fired()) == sorted((*group, counts[group], totals[group]) for group in counts)


def test_a_range_that_is_read_again_is_appended_again_with_its_time_of_reading(
    spark: SparkSession, tmp_path: Path, store_url: str
) -> None:
    source = f"sqlite:///{tmp_path}/source.db"
    orders(source)
    keys = into_stream(tmp_path, target_key=["name"], grace_period_days=1, target_path=f"{tmp_path}/events")
    keys["ms.target.url"] = store_url
    with Streams.open(store_url) as streams:
        for day in (3, 3):  # the second run finds nothing to do but the grace period
            assert run(spark, tmp_path, f"2020-01-0{day}T01:00:00Z", keys).succeeded
        stream = streams.get("shop/orders")
        first = [number for number, at, _ in ROWS if at < START + 2 * DAY]
        again = [number for number in first if ROWS[number][1] >= START + DAY]
        assert events(stream) == sorted((number,) for number in first + again)
        names = ("id", "slackwater_low", "slackwater_high", "slackwater_read_at")
        newest = {row[0]: row for row in sorted(events(stream, names), key=lambda row: row[-1])}
        assert newest[again[-1]][1].isoformat() == "2020-01-02T00:00:00+00:00"
        assert newest[first[0]][1].isoformat() == "2020-01-01T00:00:00+00:00"

        # a column that the stream does not have is refused, whatever else is allowed
        execute(source, "ALTER TABLE orders ADD COLUMN note TEXT")
        (failed,) = run(spark, tmp_path, "2020-01-04T01:00:00Z", {**keys, "ms.schema.drift": "add"}).outcomes
        assert "(new: note); write to another stream, or set ms.schema.drift to ignore" in str(failed.error)
        execute(source, "UPDATE orders SET note = name")
        execute(source, "INSERT INTO orders VALUES (100, '2020-01-02 00:00:00', 'late', 'late')")
        ignoring = {**keys, "ms.schema.drift": "ignore"}
        assert run(spark, tmp_path, "2020-01-04T01:00:00Z", ignoring).succeeded
        assert (100,) in events(stream)

        # who wants it read again gets it again
        with open_store(f"sqlite:///{tmp_path}/state.db", create=True) as store:
            reset_history(store, "job", "system", since=instant("2020-01-03T00:00:00Z"))
        before = len(events(stream))
        plain = {**ignoring, "ms.grace.period.days": 0}
        assert run(spark, tmp_path, "2020-01-04T01:00:00Z", plain).succeeded
        assert len(events(stream)) == before + sum(at >= START + 2 * DAY for _, at, _ in ROWS)
