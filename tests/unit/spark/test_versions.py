"""What older versions of PySpark cannot do is translated or refused; `make matrix` runs on each of them."""

from __future__ import annotations

from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from slackwater.errors import NeedsNewerSpark
from slackwater.spark import versions
from slackwater.spark.api.dataflow import check_limits
from slackwater.spark.checkpoint.rescaling import rescale
from slackwater.spark.wire.clock_source import TicksReader
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
