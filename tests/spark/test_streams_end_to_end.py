"""Four writer processes with different clocks, one of which stalls; scaling; windows on Spark."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import slackwater as sw
from slackwater.streams.log.catalog import Stream, Streams
from slackwater.streams.log.scan import scan
from slackwater.streams.maintenance.controller import Controller
from slackwater.streams.segments.epochs import KEY_SPACE, split_range
from slackwater.streams.settings import MarkSettings, StreamSettings
from slackwater.streams.spark.stream_event_time import read_stream
from slackwater.time import SECOND, frame_floor
from tests.spark.click_writer import FINAL, SKEWS, STALLED_AT, START

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
COLUMNS = pa.schema([("user", pa.string()), ("at", pa.timestamp("us", tz="UTC")), ("amount", pa.int64())])
SIZE = 10 * SECOND


@contextmanager
def writers(folder: Path) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    started = {
        name: subprocess.Popen(
            [sys.executable, "-m", "tests.spark.click_writer", str(folder), name],
            cwd=ROOT,
            env=environment,
        )
        for name in SKEWS
    }
    try:
        yield started
    finally:
        for process in started.values():
            process.kill()
            process.wait()


def wait_until(what: str, done: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, f"waited for {seconds} s until {what}"
        time.sleep(0.2)


def expected(stream: Stream) -> Counter[tuple[str, int, int, int]]:
    """User, window start, count and sum, computed from the stored events."""
    counts: Counter[tuple[str, int]] = Counter()
    sums: Counter[tuple[str, int]] = Counter()
    for batch in scan(stream, stream.head()):
        at = batch.events.column("at").cast(pa.int64()).to_pylist()
        users, amounts = (batch.events.column(name).to_pylist() for name in ("user", "amount"))
        for user, moment, amount in zip(users, at, amounts, strict=True):
            counts[user, frame_floor(moment, SIZE)] += 1
            sums[user, frame_floor(moment, SIZE)] += amount
    return Counter((user, start, count, sums[user, start]) for (user, start), count in counts.items())


def test_windows_fire_by_the_writers_watermarks_when_their_data_is_complete(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    settings = StreamSettings(marks=MarkSettings(period="300 milliseconds", timeout="1 hour"))
    with Streams.open(store, create=True) as streams:
        clicks = streams.create("shop/clicks", segments=2, columns=COLUMNS, settings=settings)
        with writers(tmp_path) as running, Controller(streams, poll="100 milliseconds").running():
            panes = (
                read_stream(spark, "shop/clicks", store=store, event_time="at", clock="500 milliseconds")
                .key_by("user")
                .window(sw.fixed("10 seconds"))
                .agg(clicks=sw.count(), total=sw.sum("amount"))
                .to_df()
            )
            query = (
                panes.writeStream.format("memory")
                .queryName("fired_panes")
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(processingTime="300 milliseconds")
                .start()
            )

            def newest() -> int | None:
                marks = clicks.marks()
                return marks[-1].lower if marks else None

            def fired() -> list[tuple[str, int, int, int]]:
                assert query.exception() is None
                return [
                    (row.user, round(row.window.start.timestamp() * SECOND), row.clicks, row.total)
                    for row in spark.table("fired_panes").collect()
                ]

            try:
                wait_until("one writer stalls", (tmp_path / "stalled").exists)
                clicks.scale([0], split_range((0, KEY_SPACE // 2), 2))
                clicks.scale([segment.id for segment in clicks.epochs().active], [(0, KEY_SPACE)])
                for name in SKEWS.keys() - {"stalls"}:
                    assert running[name].wait(120) == 0

                # the others have finished; only this one holds the watermark back
                held = START + (SKEWS["stalls"] + STALLED_AT + 1) * SECOND
                wait_until("the watermark is held back", lambda: newest() == held)
                complete = frame_floor(held, SIZE)
                last = complete - SIZE
                wait_until("windows fire", lambda: max((row[1] for row in fired()), default=0) >= last)
                assert max(row[1] for row in fired()) == last

                (tmp_path / "go").touch()
                assert running["stalls"].wait(60) == 0
                wait_until("the last mark is made", lambda: newest() == FINAL)
                oracle = expected(clicks)
                wait_until("all windows have fired", lambda: len(fired()) >= len(oracle))
                assert Counter(fired()) == oracle
                assert oracle.total() > 20
                assert len(clicks.epochs()) == 3
            finally:
                query.stop()
