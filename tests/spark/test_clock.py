"""The clock's offsets contain the bucket ids, and a restart with other buckets raises."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from slackwater import windows
from slackwater.errors import InvalidArgument
from slackwater.progress.watermark_policies import Lag
from slackwater.spark.api.stream import stream
from slackwater.spark.session import PARTITIONS
from slackwater.spark.versions import ReadAllAvailable
from slackwater.spark.wire.clock_source import IntervalReader, StreamEnd, Ticks, TicksReader
from slackwater.spark.wire.end_signals import EndSignals
from slackwater.time import SECOND
from tests.spark.running import Batch, ended, write

LIMIT = ReadAllAvailable()
REFUSED = "buckets = 4: is not 2, the number in the checkpoint.*partitions=2"


@pytest.mark.parametrize("kind", [IntervalReader, TicksReader])
def test_other_buckets_than_those_of_the_checkpoint_raise(kind: type) -> None:
    def reader(*buckets: int) -> IntervalReader | TicksReader:
        return kind(buckets, 1, end=None) if kind is IntervalReader else kind(buckets, (5, 6), end=None)

    first = reader(0, 2)
    start = first.initialOffset()
    end = first.latestOffset(start, LIMIT)
    assert end["tick"] == 1
    other = reader(0, 1, 2, 3)
    with pytest.raises(InvalidArgument, match=REFUSED):
        other.latestOffset(end, LIMIT)
    with pytest.raises(InvalidArgument, match=REFUSED):
        other.partitions(start, end)
    with pytest.raises(InvalidArgument, match=r"buckets = 2: gives other bucket ids.*buckets=\[0, 2\]"):
        reader(0, 5).latestOffset(end, LIMIT)
    again = reader(0, 2)
    assert len(again.partitions(start, end)) == 1
    assert again.latestOffset(end, LIMIT)["tick"] == 2


def test_a_run_with_available_now_ends_after_the_batch_without_rows(tmp_path: Path) -> None:
    signals = EndSignals(str(tmp_path))
    reader = IntervalReader((0, 2), SECOND, StreamEnd(signals.folder, limit="maxFilesPerTrigger = '1'"))
    reader.prepareForTriggerAvailableNow()
    offset = reader.initialOffset()
    ends = []
    for tick, quiet in enumerate((False, False, True), 1):
        offset = reader.latestOffset(offset, LIMIT)
        ends.append(offset["end"])
        signals.report(offset["run"], tick=tick, quiet=quiet)
    end = reader.latestOffset(offset, LIMIT)
    assert (ends, end["end"]) == ([False, False, False], True)
    assert reader.latestOffset(end, LIMIT) == end, "no tick follows the end, so the run ends"
    again = IntervalReader((0, 2), SECOND, StreamEnd(signals.folder))
    again.prepareForTriggerAvailableNow()
    assert again.latestOffset(end, LIMIT)["end"], "the stream has ended before"
    resumed = IntervalReader((0, 2), SECOND, StreamEnd(signals.folder))
    resumed.prepareForTriggerAvailableNow()
    assert not resumed.latestOffset(offset, LIMIT)["end"], "a run that failed before its end starts again"


def test_a_limited_source_and_another_trigger_raise() -> None:
    reader = IntervalReader((0, 2), SECOND, StreamEnd(limit="maxFilesPerTrigger = '1'"))
    with pytest.raises(InvalidArgument, match=r"limited by maxFilesPerTrigger = '1'.*add trigger"):
        reader.latestOffset(reader.initialOffset(), LIMIT)


@pytest.fixture
def four_partitions(spark: SparkSession) -> SparkSession:
    other = spark.newSession()
    other.conf.set(PARTITIONS, "4")
    return other


@pytest.mark.spark
@pytest.mark.proof
def test_a_restart_in_another_session_loses_nothing(
    spark: SparkSession, four_partitions: SparkSession, tmp_path: Path
) -> None:
    keys = "abcdefghijkl"
    counted: dict[str, int] = {}

    def run(session: SparkSession, *, flush: bool) -> None:
        schema = session.read.parquet(str(tmp_path / "in")).schema
        df = session.readStream.schema(schema).parquet(str(tmp_path / "in"))
        times = (1000 * SECOND, 1001 * SECOND) if flush else (1000 * SECOND,)
        rows = stream(df, event_time="at", watermark=Lag(0), clock=Ticks(times)).key_by("key")
        panes = rows.window(windows.fixed("100 seconds")).agg(n=windows.count()).to_df(flush=flush)
        writer = panes.writeStream.foreachBatch(
            lambda frame, _: counted.update((row["key"], row["n"]) for row in frame.collect())
        )
        ended(writer.option("checkpointLocation", str(tmp_path / "checkpoint")))

    write(tmp_path / "in", 0, Batch([(key, 1, 1) for key in keys], 0, None))
    run(spark, flush=False)
    write(tmp_path / "in", 1, Batch([(key, 2, 1) for key in keys], 0, None))
    with pytest.raises(StreamingQueryException, match=REFUSED):
        run(four_partitions, flush=True)
    assert counted == {}
    run(spark.newSession(), flush=True)
    assert counted == dict.fromkeys(keys, 2), "another session with the same partitions goes on"


@pytest.mark.spark
@pytest.mark.proof
def test_a_run_with_available_now_keeps_the_limits_of_sources(spark: SparkSession, tmp_path: Path) -> None:
    # Each file is a batch: the row of the third file is late. In one batch it would be in the first window.
    for number, second in enumerate((1, 30, 6)):
        write(tmp_path / "in", number, Batch([("a", second, 1)], 0, None))
    spark = spark.newSession()  # sources of other tests may have changed its settings
    assert fired_in_a_run(spark, tmp_path) == [(0, 1)]
    for number, second in enumerate((45, 80, 32), start=3):
        write(tmp_path / "in", number, Batch([("a", second, 1)], 0, None))
    assert fired_in_a_run(spark, tmp_path) == [(30, 1), (40, 1)]


def fired_in_a_run(spark: SparkSession, folder: Path) -> list[tuple[int, int]]:
    """The windows, each with its rows, that fire in a run over the new files, one in each batch."""
    fired: list[tuple[int, int]] = []
    reader = spark.readStream.schema("key string, at timestamp, value bigint, origin string")
    df = reader.option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    rows = stream(df, event_time="at", watermark=Lag(0)).key_by("key")
    panes = rows.window(windows.fixed("10 seconds")).agg(n=windows.count())
    flat = panes.to_df().selectExpr("unix_seconds(window.start) as start", "n")
    writer = flat.writeStream.foreachBatch(
        lambda frame, _: fired.extend((row.start, row.n) for row in frame.collect())
    )
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    return sorted(fired)
