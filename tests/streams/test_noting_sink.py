"""The Spark sink of a stream notes the watermark of the query with every commit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from slackwater.spark.runtime.sink_progress import BucketProgress, CompletenessClaim
from slackwater.sql.commit_owner import Committer, IdentityInUse
from slackwater.streams.log.catalog import Stream, Streams
from slackwater.streams.log.scan import scan
from slackwater.streams.log.writer import Batching
from slackwater.streams.settings import MarkSettings, StreamSettings
from slackwater.streams.spark.format_options import FormatOptions, close_stores
from slackwater.streams.spark.stream_sink import StreamSink, TaskOutput, write_task
from slackwater.streams.time import mark_store
from slackwater.streams.time.notes import WriterMark
from slackwater.time import END_OF_TIME, instant

CLAIM = CompletenessClaim((0, 2), "default", lateness=0)


@pytest.fixture
def options(tmp_path: Path) -> Iterator[FormatOptions]:
    options = FormatOptions(f"sqlite:///{tmp_path}/store.db", "shop/totals")
    with Streams.open(options.store, create=True) as streams:
        streams.create("shop/totals", columns=pa.schema([("n", pa.int64())]))
    yield options
    close_stores()


def output(options: FormatOptions, n: int, *times: int | None, query: str = "q") -> list[TaskOutput]:
    """The message of a task that wrote one row, and the watermark of each bucket."""
    written = write_task(options, iter([pa.record_batch({"n": [n]})]), Committer(query, "run"))
    written.progress = [
        BucketProgress(bucket, {} if time is None else {"default": time})
        for bucket, time in zip(CLAIM.buckets, times, strict=False)
    ]
    return [written]


def noted(stream: Stream) -> list[WriterMark]:
    return stream.store.read(lambda connection: mark_store.writer_marks(connection, stream.id))


def events(stream: Stream) -> list[int]:
    return [row["n"] for batch in scan(stream, stream.head()) for row in batch.events.to_pylist()]


def test_a_large_batch_of_spark_is_stored_in_several(options: FormatOptions) -> None:
    rows = 3 * Batching().bytes // 8
    numbers = pa.record_batch({"n": pa.array(range(rows), pa.int64())})
    sink, written = StreamSink(options), write_task(options, iter([numbers]), Committer("q", "run"))
    assert [location.events for _, location in written.staged] == [rows // 3] * 3
    sink.commit([written], 0)
    assert events(options.open()) == list(range(rows))


def test_a_commit_notes_the_lowest_watermark_of_the_buckets(options: FormatOptions) -> None:
    sink, stream = StreamSink(options, CLAIM), options.open()
    sink.commit(list(output(options, 1, 50, 40)), 0)
    (record,) = noted(stream)
    assert (record.writer, record.time, record.closed) == ("q", 40, False)
    assert dict(record.position.items()) == {0: 1}, "the note is at the position of the batch"
    sink.commit(list(output(options, 1, 50, 40)), 0)  # repeated
    sink.commit(list(output(options, 2, 70, 60)), 1)
    (record,) = noted(stream)
    assert (record.time, events(stream)) == (60, [1, 2])


def test_without_the_watermark_of_every_bucket_nothing_is_noted(options: FormatOptions) -> None:
    sink, stream = StreamSink(options, CLAIM), options.open()
    sink.commit(list(output(options, 1, 50)), 0)
    sink.commit(list(output(options, 2, 50, None)), 1)
    assert (noted(stream), events(stream)) == ([], [1, 2])
    StreamSink(options).commit(list(output(options, 3, 50, 50)), 2)
    assert (noted(stream), events(stream)) == ([], [1, 2, 3])


def test_the_end_of_the_query_is_noted_as_the_latest_time_of_spark(options: FormatOptions) -> None:
    StreamSink(options, CLAIM).commit(list(output(options, 1, END_OF_TIME, END_OF_TIME)), 0)
    (record,) = noted(options.open())
    assert record.time == instant("9999-12-31T23:59:59.999999Z")


def test_a_time_that_the_stream_rejects_does_not_stop_the_query(
    options: FormatOptions, caplog: pytest.LogCaptureFixture
) -> None:
    stream = options.open()
    stream.configure(StreamSettings(marks=MarkSettings(max_ahead="1 hour")))
    StreamSink(options, CLAIM).commit(list(output(options, 1, END_OF_TIME, END_OF_TIME)), 0)
    assert (noted(stream), events(stream)) == ([], [1])
    assert "batch 0 of writer q could not note its time: too_far_ahead" in caplog.text


def test_another_query_under_the_same_writer_is_refused(options: FormatOptions) -> None:
    named = FormatOptions(options.store, options.stream, writer="totals")
    StreamSink(named, CLAIM).commit(list(output(named, 1, 50, 40)), 0)
    with pytest.raises(IdentityInUse):
        StreamSink(named, CLAIM).commit(list(output(named, 2, 70, 60, query="other")), 0)
    assert events(options.open()) == [1]
