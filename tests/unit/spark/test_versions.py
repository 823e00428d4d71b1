"""What older versions of PySpark cannot do is translated or refused; `make matrix` runs on each of them."""

from __future__ import annotations

from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from slackwater.errors import InvalidArgument, NeedsNewerSpark
from slackwater.spark import session as session_module
from slackwater.spark import versions
from slackwater.spark.api.dataflow import check_limits
from slackwater.spark.checkpoint.rescaling import rescale
from slackwater.spark.internals import ROCKSDB
from slackwater.spark.wire.clock_source import ClockSource, TicksReader
from slackwater.streams.log.catalog import Streams
from slackwater.streams.spark.data_source import SlackwaterFormat

OLD = (4, 1)


def test_the_error_names_the_installed_version_and_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "PYSPARK", OLD)
    with pytest.raises(NeedsNewerSpark) as raised:
        versions.needs("max_events", "4.2", fix="omit it")
    assert str(raised.value) == (
        f"max_events needs PySpark 4.2 or newer; this is {pyspark.__version__}. "
        'Run pip install "pyspark>=4.2", or omit it'
    )


def test_the_version_that_has_it_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "PYSPARK", (4, 2))
    versions.needs("max_events", "4.2")


def test_a_limit_of_a_stream_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    with Streams.open(store, create=True) as streams:
        streams.create("shop/bids")
    limited = SlackwaterFormat({"store": store, "stream": "shop/bids", "max_events": "10"})
    monkeypatch.setattr(versions, "PYSPARK", OLD)
    with pytest.raises(NeedsNewerSpark, match=r"max_events needs PySpark 4\.2"):
        limited.streamReader(limited.schema())


def test_the_end_of_a_limited_source_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "PYSPARK", (4, 2))
    check_limits(["maxFilesPerTrigger = '1'"])
    monkeypatch.setattr(versions, "PYSPARK", OLD)
    check_limits([])
    with pytest.raises(NeedsNewerSpark, match=r"limited by maxFilesPerTrigger = '1' needs PySpark 4\.2"):
        check_limits(["maxFilesPerTrigger = '1'"])


def test_a_reader_without_a_start_goes_on_where_the_last_batch_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "PYSPARK", OLD)
    reader = versions.stream_reader(TicksReader([0, 1], [10, 20, 30], None))
    ticks = []
    start = reader.initialOffset()
    while (end := reader.latestOffset()) != start:  # type: ignore[call-arg]  # as Spark calls it before 4.2
        ticks.append(end["now"])
        [partition] = reader.partitions(start, end)
        assert len(next(iter(reader.read(partition)))) == 2  # a tick for each bucket
        start = end
    assert ticks == [10, 20, 30]


def test_a_reader_without_a_start_goes_on_after_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "PYSPARK", OLD)
    first = versions.stream_reader(TicksReader([0], [10, 20, 30], None))
    logged = first.latestOffset()  # type: ignore[call-arg]
    again = versions.stream_reader(TicksReader([0], [10, 20, 30], None))
    assert again.partitions(logged, logged) == []  # Spark passes the newest offset of the checkpoint so
    assert again.latestOffset()["now"] == 20  # type: ignore[call-arg]


def test_the_newest_version_gets_the_reader_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "PYSPARK", (4, 2))
    reader = TicksReader([0], [10], None)
    assert versions.stream_reader(reader) is reader


def test_rescaling_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "PYSPARK", OLD)
    spark: SparkSession = Session("4.1.4")  # type: ignore[assignment]
    with pytest.raises(NeedsNewerSpark, match=r"Rescaling a checkpoint needs PySpark 4\.2"):
        rescale(spark, "checkpoint", 4)


class Session:
    """Counts how often the streaming queries of a session were listed."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.listed = 0

    @property
    def streams(self) -> Session:
        return self

    @property
    def active(self) -> list[object]:
        self.listed += 1
        return []


@pytest.mark.parametrize(("version", "listed"), [("4.0.5", 0), ("4.1.4", 1), ("4.2.1", 1), ("4.3.0", 0)])
def test_batch_jobs_need_the_manager_of_streaming_queries_in_two_versions(version: str, listed: int) -> None:
    session = Session(version)
    spark: SparkSession = session  # type: ignore[assignment]
    versions.prepare_batch_state(spark)
    assert session.listed == listed


def test_a_clock_that_does_not_know_its_last_tick_counts_further(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before 4.2, a run with availableNow asks for its end before it names the offset of the run before."""
    monkeypatch.setattr(versions, "PYSPARK", OLD)
    clock = ClockSource({"buckets": "[0]", "interval": "1000000", "end": "{}"})
    first = clock.streamReader(clock.schema())
    end = first.latestOffset()  # type: ignore[call-arg]
    assert len(first.partitions(first.initialOffset(), end)) == 1
    again = clock.streamReader(clock.schema())
    assert len(again.partitions(end, again.latestOffset())) == 1  # type: ignore[call-arg]


def test_other_buckets_are_found_also_if_spark_names_them_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "PYSPARK", OLD)
    readers = [
        source.streamReader(source.schema())
        for buckets in ("[0]", "[0, 2]")
        for source in [ClockSource({"buckets": buckets, "interval": "1000000"})]
    ]
    first, other = (reader.latestOffset() for reader in readers)  # type: ignore[call-arg]
    with pytest.raises(InvalidArgument, match="buckets = 2: is not 1, the number in the checkpoint"):
        readers[1].partitions(first, other)


class Configured:
    """Notes the settings of a session."""

    def __init__(self) -> None:
        self.set_to: dict[str, str] = {}

    @property
    def conf(self) -> Configured:
        return self

    def set(self, name: str, value: str) -> None:
        self.set_to[name] = value


@pytest.mark.parametrize(("version", "settings"), [((4, 1), 1), ((4, 2), 0)])
def test_a_source_that_numbers_its_batches_reads_one_in_old_versions(
    version: tuple[int, int], settings: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "PYSPARK", version)
    session = Configured()
    spark: SparkSession = session  # type: ignore[assignment]
    versions.read_in_one_batch(spark)
    assert list(session.set_to.values()) == ["false"] * settings


def test_spark_connect_is_refused_in_4_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "PYSPARK", (4, 0))
    monkeypatch.setattr(session_module, "is_remote", lambda spark: True)
    session = Configured()
    monkeypatch.setattr(session, "get", lambda name, default: ROCKSDB, raising=False)
    spark: SparkSession = session  # type: ignore[assignment]
    with pytest.raises(NeedsNewerSpark, match=r"over Spark Connect needs PySpark 4\.1"):
        session_module.check_session(spark)
