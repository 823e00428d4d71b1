"""The source and the sink as Spark calls them, without a JVM: offsets, partitions, rows and commits."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from slackwater.errors import InvalidArgument, UnknownStream
from slackwater.spark.versions import ReadAllAvailable, ReadLimit, ReadMaxRows
from slackwater.sql.commit_owner import Committer, IdentityInUse
from slackwater.streams.log.catalog import Stream, Streams
from slackwater.streams.log.scan import scan
from slackwater.streams.log.transactions import TransactionalWriter
from slackwater.streams.log.writer import Writer
from slackwater.streams.log.writer_owners import StaleCommit
from slackwater.streams.maintenance.mark_cycle import CycleRunner
from slackwater.streams.segments.epochs import KEY_SPACE, split_range
from slackwater.streams.spark import stream_columns
from slackwater.streams.spark.data_source import SlackwaterFormat
from slackwater.streams.spark.format_options import FormatOptions, close_stores
from slackwater.streams.spark.stream_columns import EMPTY, SEQUENCE, WATERMARK, spark_schema
from slackwater.streams.spark.stream_sink import StreamAppend, StreamSink, TaskOutput, write_task
from slackwater.streams.spark.stream_source import Offset, StreamRange, StreamSource
from slackwater.time import SECOND, to_datetime

COLUMNS = pa.schema([("user", pa.string()), ("number", pa.int64()), ("at", pa.timestamp("ms", tz="UTC"))])
ALL = ReadAllAvailable()


class Shop:
    """A stream, and sources that read it as a query does: pickled, with offsets as JSON."""

    def __init__(self, store: str, data: Path) -> None:
        self.store = store
        self.now = 1_000 * SECOND
        self.streams = Streams.open(store, clock=lambda: self.now)
        self.stream = self.streams.create("shop/bids", segments=2, columns=COLUMNS, data=str(data))
        self.cycles = CycleRunner(self.streams.store)

    def write(self, first: int, last: int, noted: int | None = None) -> None:
        events = [
            {"user": f"u{n % 7}", "number": n, "at": to_datetime(n * SECOND)} for n in range(first, last)
        ]
        with Writer(self.stream, "w") as output:
            output.write_many(events, keys="user")
            if noted is not None:
                output.note_time(noted * SECOND)
        self.now += 10 * SECOND
        self.cycles.run(self.stream.id)

    def options(self, **given: object) -> FormatOptions:
        named = {name.rstrip("_"): str(value) for name, value in given.items()}
        options = {"store": "registered:shop", "stream": "shop/bids", **named}
        return FormatOptions.of(options, {"shop": self.store})

    def source(self, **given: object) -> StreamSource:
        options = self.options(**given)
        return StreamSource(options, spark_schema(COLUMNS, headers=options.headers))


@pytest.fixture
def shop(store_url: str, tmp_path: Path) -> Iterator[Shop]:
    made = Shop(store_url, tmp_path / "data")
    yield made
    made.streams.close()
    close_stores()


def logged(offset: Offset) -> Offset:
    """The offset after a round trip through Spark's log."""
    found: Offset = json.loads(json.dumps(offset))
    return found


def rows(
    source: StreamSource | StreamRange, start: Offset | None = None, end: Offset | None = None
) -> list[dict[str, Any]]:
    if isinstance(source, StreamRange):
        partitions = source.partitions()
    else:
        assert start is not None
        assert end is not None
        partitions = source.partitions(start, end)
    sent: StreamSource | StreamRange = pickle.loads(pickle.dumps(source))  # noqa: S301 - as Spark does
    return [row for partition in partitions for batch in sent.read(partition) for row in batch.to_pylist()]


def batches(source: StreamSource, start: Offset, limit: ReadLimit = ALL) -> Iterator[tuple[Offset, Offset]]:
    while (end := logged(source.latestOffset(start, limit))) != start:
        yield start, end
        start = end


def test_every_event_is_read_once_across_limits_and_scaling(shop: Shop) -> None:
    source = shop.source()
    offset = logged(source.initialOffset())
    read: Counter[int] = Counter()

    def run() -> None:
        nonlocal offset
        for start, end in batches(source, offset, ReadMaxRows(30)):
            found = rows(source, start, end)
            assert 0 < len(found) <= 30
            read.update(row["number"] for row in found)
            offset = end

    shop.write(0, 100)
    run()
    assert read == Counter(range(100))
    shop.stream.scale([0], split_range((0, KEY_SPACE // 2), 3))
    shop.write(100, 150)
    shop.stream.scale([segment.id for segment in shop.stream.epochs().active], [(0, KEY_SPACE)])
    shop.write(150, 200)
    run()
    assert read == Counter(range(200))
    assert list(offset) == ["batch", "cut"]
    assert offset["cut"] == {str(identity): end for identity, end in shop.stream.tail().items()}


def test_a_batch_has_the_watermark_of_the_newest_mark_it_passed(shop: Shop) -> None:
    source = shop.source(headers=True)
    offset = logged(source.initialOffset())
    received_headers = []
    for first, last, noted in ((0, 10, 5), (10, 20, None), (20, 20, 15)):
        shop.write(first, last, noted)
        [(start, end)] = batches(source, offset)
        found = rows(source, start, end)
        assert sorted(row["number"] for row in found if not row[EMPTY]) == list(range(first, last))
        assert sum(row[EMPTY] for row in found) == 1
        [header] = {(row[SEQUENCE], row[WATERMARK].timestamp()) for row in found}
        received_headers.append(header)
        offset = end
    assert received_headers == [(1, 5), (2, 5), (3, 15)]
    assert list(batches(source, offset)) == []


def test_without_headers_a_new_mark_does_not_start_a_batch(shop: Shop) -> None:
    source = shop.source()
    shop.write(0, 10)
    [(_, end)] = batches(source, logged(source.initialOffset()))
    shop.write(10, 10, noted=5)
    assert list(batches(source, end)) == []


def test_a_mark_after_the_end_of_the_batch_does_not_count(shop: Shop) -> None:
    shop.write(0, 40, noted=30)
    source = shop.source(headers=True, max_events=25)
    limit = source.getDefaultReadLimit()
    ends = [end for _, end in batches(source, logged(source.initialOffset()), limit)]
    assert [end.get("watermark") for end in ends] == [None, 30 * SECOND]


def test_a_repeated_batch_is_identical_despite_later_events(shop: Shop) -> None:
    shop.write(0, 10, noted=5)
    source = shop.source(headers=True)
    [(start, end)] = batches(source, logged(source.initialOffset()))
    before = rows(source, start, end)
    shop.stream.scale([0, 1], [(0, KEY_SPACE)])
    shop.write(10, 20, noted=15)
    assert rows(shop.source(headers=True), start, end) == before


def test_the_watermark_never_goes_back_across_a_restart(shop: Shop) -> None:
    shop.write(0, 10, noted=5)
    first = shop.source(headers=True)
    [(_, offset)] = batches(first, logged(first.initialOffset()))
    shop.stream.truncate(shop.stream.tail())
    shop.write(10, 20)
    [(_, end)] = batches(shop.source(headers=True), offset)
    assert (end["batch"], end["watermark"]) == (2, 5 * SECOND)


def test_available_now_ends_where_the_stream_ended_at_the_start_of_the_query(shop: Shop) -> None:
    shop.write(0, 10, noted=5)
    source = shop.source(headers=True)
    source.prepareForTriggerAvailableNow()
    shop.write(10, 20, noted=15)
    [(start, end)] = batches(source, logged(source.initialOffset()))
    assert len(rows(source, start, end)) == 11
    assert end["watermark"] == 5 * SECOND


def test_reading_starts_at_a_time_or_a_cut(shop: Shop) -> None:
    shop.write(0, 10, noted=10)
    cut = shop.stream.tail().as_text()
    shop.write(10, 20, noted=20)
    for place in ("1970-01-01T00:00:10Z", cut):
        source = shop.source(from_=place)
        [(start, end)] = batches(source, logged(source.initialOffset()))
        assert sorted(row["number"] for row in rows(source, start, end)) == list(range(10, 20))


def test_a_batch_reads_between_two_cuts(shop: Shop) -> None:
    shop.write(0, 10)
    middle = shop.stream.tail().as_text()
    shop.stream.scale([0, 1], [(0, KEY_SPACE)])
    shop.write(10, 20)
    for to, count in (("tail", 20), (middle, 10)):
        found = rows(StreamRange(shop.options(to=to), spark_schema(COLUMNS, headers=False)))
        assert sorted(row["number"] for row in found) == list(range(count))


@pytest.mark.parametrize("headers", [False, True])
def test_a_batch_of_a_stream_without_events_is_empty(shop: Shop, headers: bool) -> None:
    """Spark replaces an empty list of partitions by a partition of its own."""
    source = StreamRange(shop.options(headers=headers), spark_schema(COLUMNS, headers=headers))
    assert len(source.partitions()) == 1
    assert [row[EMPTY] for row in rows(source)] == ([True] if headers else [])


def test_large_events_are_not_combined_into_a_batch_beyond_2_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = pa.record_batch({"value": ["x" * 1_000] * 10})
    monkeypatch.setattr(stream_columns, "_BYTES", 25_000)
    combined = list(stream_columns.rows([batch] * 5, batch.schema, None))
    assert [one.num_rows for one in combined] == [20, 20, 10]


def written(stream: Stream) -> Counter[int]:
    found = scan(stream, stream.head())
    return Counter(number for batch in found for number in batch.events.column("number").to_pylist())


def message(options: FormatOptions, numbers: range, query: str = "query-7", run: str = "run-1") -> TaskOutput:
    columns = {"user": [str(n) for n in numbers], "number": list(numbers), "at": [n * 1000 for n in numbers]}
    batch = pa.record_batch(columns, schema=COLUMNS)
    return write_task(options, iter([batch.slice(0, 3), batch.slice(3)]), Committer(query, run))


def test_a_batch_is_committed_once(shop: Shop) -> None:
    options = shop.options(key="number")
    sink = StreamSink(options)
    first = message(options, range(10))
    sink.commit([first, message(options, range(10, 20))], 0)
    assert written(shop.stream) == Counter(range(20))
    # repeated after a crash with new files, and an attempt that was never committed
    sink.commit([message(options, range(10)), message(options, range(10, 20))], 0)
    message(options, range(50, 60))
    assert written(shop.stream) == Counter(range(20))
    before = message(options, range(20, 30))
    shop.stream.scale([0, 1], split_range((0, KEY_SPACE), 3))
    sink.commit([before, None], 1)
    assert written(shop.stream) == Counter(range(30))


def test_a_sink_requires_a_writer_id_or_a_query_id(shop: Shop) -> None:
    options = shop.options()
    nameless = TaskOutput(message(options, range(3)).staged, None)
    with pytest.raises(InvalidArgument, match="writer"):
        StreamSink(options).commit([nameless], 0)
    StreamSink(shop.options(writer="copy")).commit([nameless], 0)
    assert written(shop.stream) == Counter(range(3))


def test_a_second_query_does_not_commit_as_the_writer_of_the_first(shop: Shop) -> None:
    options = shop.options(writer="copy")
    StreamSink(options).commit([message(options, range(10), "first")], 0)
    second = message(options, range(10, 20), "second")
    with pytest.raises(IdentityInUse, match="writer 'copy' of stream 'shop/bids' belongs to query first"):
        StreamSink(options).commit([second], 0)
    taking = shop.options(writer="copy", takeover_from="first")
    for _ in range(2):
        StreamSink(taking).commit([message(taking, range(10, 20), "second")], 0)
    assert written(shop.stream) == Counter(range(20))
    with pytest.raises(IdentityInUse, match="takeover_from='second'"):
        StreamSink(options).commit([message(options, range(20, 30), "first")], 1)
    StreamSink(options).commit([message(options, range(20, 30), "second")], 1)
    assert written(shop.stream) == Counter(range(30))


def test_a_replaced_run_of_a_query_does_not_commit(shop: Shop) -> None:
    options = shop.options()
    sink = StreamSink(options)
    sink.commit([message(options, range(10), run="one")], 0)
    sink.commit([message(options, range(10), run="two")], 0)
    with pytest.raises(IdentityInUse, match="run two has replaced run one"):
        sink.commit([message(options, range(10, 20), run="one")], 1)
    sink.commit([message(options, range(10, 20), run="two")], 1)
    assert written(shop.stream) == Counter(range(20))


def test_a_commit_older_than_the_last_is_refused(shop: Shop) -> None:
    options = shop.options()
    for number in range(3):
        StreamSink(options).commit([message(options, range(number * 10, number * 10 + 10))], number)
    with pytest.raises(StaleCommit, match="commit 2 of writer 'query-7' is older than commit 3"):
        StreamSink(options).commit([message(options, range(10, 20), run="restored")], 1)
    assert written(shop.stream) == Counter(range(30))


def test_a_writer_id_of_a_query_is_not_shared_with_other_writers(shop: Shop) -> None:
    options = shop.options(writer="copy")
    StreamSink(options).commit([message(options, range(10))], 0)
    with pytest.raises(IdentityInUse, match="this is a batch job"):
        StreamAppend(options).commit([message(options, range(10, 20))])
    with Writer(shop.stream, "copy") as output:
        output.write({"user": "u", "number": 99, "at": to_datetime(0)})
    with pytest.raises(IdentityInUse, match="was used outside of query query-7"):
        StreamSink(options).commit([message(options, range(10, 20))], 1)
    assert written(shop.stream) == Counter([*range(10), 99])


def test_a_batch_job_with_a_writer_id_appends_every_time(shop: Shop) -> None:
    options = shop.options(writer="job")
    for start in (0, 10):
        StreamAppend(options).commit([message(options, range(start, start + 10))])
    assert written(shop.stream) == Counter(range(20))


def test_a_writer_of_an_earlier_release_keeps_its_numbers(shop: Shop) -> None:
    options = shop.options(writer="copy")
    with TransactionalWriter(shop.stream, "copy") as writer:
        for number in (1, 2):
            writer.commit_staged(message(options, range(number * 10, number * 10 + 10)).staged, number=number)
    StreamSink(options).commit([message(options, range(20, 30))], 1)
    StreamSink(options).commit([message(options, range(30, 40))], 2)
    assert written(shop.stream) == Counter(range(10, 40))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"stream": "shop/bids", "maxEvents": "3"}, "unknown option"),
        ({"stream": "shop/bids", "max_events": "none"}, "give 1 or more"),
        ({"stream": "shop/bids", "headers": "perhaps"}, "is not a boolean; give true or false"),
        ({}, "write .option"),
    ],
)
def test_errors_name_the_invalid_option(options: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        SlackwaterFormat({"store": "sqlite:///store.db", **options})


def test_options_of_the_query_are_ignored_by_the_sink() -> None:
    given = {"store": "sqlite:///store.db", "stream": "shop/bids", "checkpointLocation": "here"}
    assert FormatOptions.of(given).stream == "shop/bids"


def test_an_unknown_stream_and_overwrite_mode_are_rejected(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_STORE", shop.store)
    given = {"store": "env:SHOP_STORE", "stream": "shop/nope"}
    with pytest.raises(UnknownStream):
        SlackwaterFormat(given).schema()
    with pytest.raises(InvalidArgument, match="append"):
        SlackwaterFormat(given).writer(spark_schema(COLUMNS, headers=False), overwrite=True)


# ---- the address of the store


ADDRESS = "postgresql://app:s3cret@127.0.0.1/shop"


@pytest.mark.parametrize("address", [ADDRESS, "postgresql://app@127.0.0.1/shop?password=s3cret"])
def test_an_option_with_a_password_is_refused_without_showing_it(address: str) -> None:
    with pytest.raises(InvalidArgument, match=r"contains a password.*env:NAME") as raised:
        FormatOptions.of({"store": address, "stream": "shop/bids"})
    assert "s3cret" not in str(raised.value) + repr(raised.value)


def test_a_store_is_named_by_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_STORE", ADDRESS)
    (tmp_path / "store").write_text(f"{ADDRESS}\n")
    for given in ("env:SHOP_STORE", f"file:{tmp_path}/store", "registered:main"):
        options = FormatOptions.of({"store": given, "stream": "shop/bids"}, {"main": ADDRESS})
        assert options.store == ADDRESS
        assert "s3cret" not in repr(options)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("env:NO_SUCH_STORE", "the environment variable is not set"),
        ("file:/no/such/file", r"the file cannot be read \(FileNotFoundError\)"),
        ("registered:other", "is not registered; registered: main"),
    ],
)
def test_a_reference_that_leads_nowhere_is_named(given: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        FormatOptions.of({"store": given, "stream": "shop/bids"}, {"main": ADDRESS})
