"""The catalog: names, segments, scaling and truncation; invalid arguments are rejected with the reason."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest
import sqlalchemy as sql

from slackwater.errors import (
    EventsGone,
    InvalidArgument,
    SlackwaterError,
    StreamExists,
    UnknownStream,
    WriteFailed,
)
from slackwater.metadata import store_schema as schema
from slackwater.streams.log.catalog import Stream, Streams
from slackwater.streams.log.reader_group import ReaderGroup
from slackwater.streams.log.segment_reader import read_events
from slackwater.streams.log.writer import Writer
from slackwater.streams.maintenance.controller import Controller
from slackwater.streams.maintenance.file_collection import collect_orphans
from slackwater.streams.segments.epochs import KEY_SPACE, even_ranges
from slackwater.streams.segments.positions import Position
from slackwater.streams.settings import MarkSettings, StreamSettings
from slackwater.streams.time.mark_store import apply_cycle, newest_mark
from slackwater.streams.time.marks import CycleDecision, Mark
from slackwater.time import DAY, HOUR
from tests.streams.conftest import Clock
from tests.streams.logs import content, merge, split, values


def test_a_stream_is_found_again_by_its_name(streams: Streams, bids: Stream) -> None:
    columns = pa.schema([pa.field("user", pa.string()), pa.field("at", pa.timestamp("us", "UTC"))])
    data = str(bids.record.data)
    streams.create(
        "shop/orders",
        segments=3,
        columns=columns,
        data=data,
        settings={"marks": {"period": "5 microseconds"}},
    )
    again = streams.get("shop/orders")
    assert again.columns == columns
    assert StreamSettings.load(again.record.settings).marks.period == 5
    assert [state.segment.id for state in again.segments()] == [0, 1, 2]
    assert [record.name for record in streams.list()] == ["shop/bids", "shop/orders"]
    assert streams.list("other") == []
    changed = StreamSettings(marks=MarkSettings(period="6 seconds"))
    again.configure(changed)
    assert StreamSettings.load(again.refreshed().settings) == changed


def test_a_stream_name_is_unique(streams: Streams, bids: Stream) -> None:
    with pytest.raises(StreamExists, match="stream 'shop/bids' exists already"):
        streams.create("shop/bids", data=bids.record.data)


def test_deleting_a_stream_deletes_its_files(streams: Streams, bids: Stream, tmp_path: Path) -> None:
    with Writer(bids) as writer:
        writer.write(b"x")
    assert list(tmp_path.rglob("*.arrow"))
    streams.delete("shop/bids")
    assert not list(tmp_path.rglob("*.arrow"))
    for use in (lambda: streams.get("shop/bids"), bids.refreshed, lambda: Writer(bids), bids.head):
        with pytest.raises(UnknownStream, match="create it, or list the existing streams"):
            use()
    for table in schema.TABLES.tables.values():
        if "stream" in table.c:
            assert streams.store.read(lambda c, t=table: c.execute(sql.select(t)).all()) == []  # type: ignore[misc]  # bound now


def test_a_stream_recreated_under_a_deleted_name_is_empty(streams: Streams, bids: Stream) -> None:
    with Writer(bids) as writer:
        writer.write(b"x")
    streams.delete("shop/bids")
    assert values(streams.create("shop/bids", data=bids.record.data)) == []


def test_a_handle_of_a_deleted_stream_never_reaches_its_successor_of_the_same_name(
    streams: Streams, bids: Stream
) -> None:
    old = Writer(bids, "w")
    streams.delete("shop/bids")
    again = streams.create("shop/bids", segments=2, data=bids.record.data)
    with Writer(again, "w") as writer:
        writer.write(b"new")
    old.write(b"old")
    with pytest.raises(WriteFailed, match="stream 'shop/bids' does not exist"):
        old.flush()
    assert values(again) == [b"new"]
    bids.folder.remove()  # as a slow process that deletes the old stream would
    assert values(again) == [b"new"]


def test_files_written_after_their_stream_was_deleted_are_collected(
    streams: Streams, bids: Stream, clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The process dies after deleting the records, before the files; a slow writer adds a file later."""
    with Writer(bids) as writer:
        writer.write(b"x")

    def killed(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(type(bids.folder), "remove", killed)
    with pytest.raises(KeyboardInterrupt):
        streams.delete("shop/bids")
    monkeypatch.undo()
    assert streams.list() == []
    assert len(list(tmp_path.rglob("*.arrow"))) == 1
    controller = Controller(streams, housekeeping="1 hour")
    controller.step()
    assert list(tmp_path.rglob("*.arrow")) == []
    bids.folder.write([pa.record_batch([[b"late"]], schema=bids.columns)], at=clock())
    clock.now += DAY
    controller.step()
    assert list(tmp_path.rglob("*.arrow")) == []
    clock.now += HOUR
    controller.step()
    kept = sql.select(schema.deleted_streams)
    assert streams.store.read(lambda connection: connection.execute(kept).all()) == []


def test_a_controller_retries_files_that_cannot_be_deleted(
    streams: Streams, bids: Stream, clock: Clock, tmp_path: Path
) -> None:
    streams.delete("shop/bids")
    in_the_way = tmp_path / "data" / f"shop/bids-{bids.id}"
    in_the_way.write_text("a file where a folder was")
    controller = Controller(streams)
    clock.now += 2 * DAY
    assert controller.step().buckets
    in_the_way.unlink()
    clock.now += DAY
    controller.step()
    kept = sql.select(schema.deleted_streams)
    assert streams.store.read(lambda connection: connection.execute(kept).all()) == []


def test_truncating_at_a_cut_on_both_sides_of_a_segment_keeps_all_later_events(bids: Stream) -> None:
    """The cut is after a merge on the left and before it on the right: the merged segment is kept whole."""
    written(bids, b"1", b"2", b"3", b"4")
    merge(bids)
    merged = bids.epochs().active[0]
    written(bids, b"5", b"6")
    bids.scale([merged.id], even_ranges(2))
    left = bids.epochs().active[0]
    written(bids, b"7", b"8")
    right = content(bids)[1]
    head = bids.truncate(Position.of({left.id: 0, 1: len(right)}))
    lengths = {state.segment.id: state.length for state in bids.segments()}
    assert head == Position.of({0: lengths[0], 1: lengths[1]})
    assert sorted(values(bids)) == [b"5", b"6", b"7", b"8"]
    with ReaderGroup(bids, "g").reader() as reader:
        found = [value for batch in reader for value in batch.events.column("value").to_pylist()]
    assert sorted(found) == [b"5", b"6", b"7", b"8"]


@pytest.mark.parametrize("name", ["", "bids", "shop/", "/bids", "a/b/c", "shop/b ids", "../x", "shop/.."])
def test_an_invalid_stream_name_is_rejected(streams: Streams, name: str) -> None:
    with pytest.raises(InvalidArgument, match="is not a valid stream name"):
        streams.create(name)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"segments": 0}, "is not a valid number of segments"),
        ({"columns": pa.schema([])}, "is empty; give a schema with at least one column"),
        ({"columns": pa.schema([("a", pa.int8()), ("a", pa.int8())])}, "contains a name twice"),
        (
            {"columns": pa.schema([("a", pa.dictionary(pa.int8(), pa.string()))])},
            "has the unsupported type dictionary",
        ),
        ({"settings": {"period": 5}}, r"settings = \['period'\]: unknown setting"),
        ({"settings": {"marks": {"period": "0 seconds"}}}, "must be greater than zero"),
        ({"settings": {"marks": {"period": 5}}}, "a bare number has no unit"),
        ({"settings": {"marks": None}}, "marks must be MarkSettings"),
        ({"settings": {"scaling": {"rate": "fast"}}}, "rate = 'fast': is a str"),
        ({"data": "gopher://user:s3cret@x"}, "data = 'gopher://…': cannot be opened"),
    ],
)
def test_invalid_options_of_a_stream_are_rejected(
    streams: Streams, options: dict[str, object], says: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidArgument, match=says):
        streams.create("a/b", **{"data": str(tmp_path), **options})  # type: ignore[arg-type]
    assert streams.list() == []


@pytest.mark.postgres
def test_a_shared_store_requires_a_data_folder(store_url: str) -> None:
    with Streams.open(store_url) as streams:
        if streams.store.is_embedded:
            assert streams.create("a/b").record.data is None
        else:
            with pytest.raises(
                InvalidArgument,
                match="is required unless the store is SQLite; give a folder that all hosts can reach",
            ):
                streams.create("a/b")


# ---- scaling


def test_scaling_seals_and_makes_successors_in_a_new_epoch(bids: Stream, clock: Clock) -> None:
    clock.now += 5
    split(bids, 0)
    states = {state.segment.id: state for state in bids.segments()}
    assert [state.is_sealed for state in states.values()] == [True, False, False, False]
    assert (states[0].sealed_epoch, states[0].sealed_at) == (1, clock.now)
    assert bids.refreshed().epoch == 1
    assert [segment.fractions for segment in bids.epochs().active] == [(0, 0.25), (0.25, 0.5), (0.5, 1)]


@pytest.mark.parametrize(
    ("seal", "ranges", "says"),
    [
        ([], [(0, KEY_SPACE)], "names no segment"),
        ([7], [(0, KEY_SPACE)], "is not an active segment"),
        ([0], [(0, KEY_SPACE // 4)], "is not covered"),
        ([0], [(0, KEY_SPACE)], "is covered twice"),
        ([0], [(0, KEY_SPACE // 2 + 1)], "is covered twice"),
        ([0, 1], [(0, KEY_SPACE // 2), (KEY_SPACE // 4, KEY_SPACE)], "is covered twice"),
        ([0], [(5, 5)], "is not a valid key range"),
    ],
)
def test_invalid_scaling_is_rejected_and_changes_nothing(
    bids: Stream, seal: list[int], ranges: list[tuple[int, int]], says: str
) -> None:
    before = bids.segments()
    with pytest.raises(InvalidArgument, match=says):
        bids.scale(seal, ranges)
    assert bids.segments() == before


def test_only_one_of_two_processes_can_scale_a_segment(bids: Stream) -> None:
    results: list[object] = []
    start = threading.Barrier(2)

    def scale() -> None:
        start.wait()
        try:
            results.append(bids.scale([0], even_ranges(4)[:2]))
        except InvalidArgument as error:
            results.append(str(error))

    threads = [threading.Thread(target=scale) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum("is not an active segment" in str(result) for result in results) == 1
    assert len(bids.epochs()) == 2


# ---- truncation


def written(stream: Stream, *events: bytes) -> None:
    with Writer(stream) as writer:
        for event in events:
            writer.write(event, key=event)
            writer.flush()


def test_truncation_removes_the_events_before_the_cut(streams: Streams, tmp_path: Path, clock: Clock) -> None:
    stream = streams.create("a/b", data=str(tmp_path / "data"))
    written(stream, b"1", b"2")
    middle = stream.tail()
    written(stream, b"3")
    before = stream.segments()[0].bytes
    assert stream.truncate(middle) == middle == stream.head()
    assert content(stream) == {0: [b"3"]}
    assert 0 < stream.segments()[0].bytes < before
    with pytest.raises(
        EventsGone, match="the events from offset 1 to 2 were removed by retention; start at the head"
    ):
        list(read_events(stream, 0, 1))
    # a cut before the head changes nothing
    assert stream.truncate(Position.of({0: 1})) == middle
    # the files are deleted when they are old enough
    clock.now += 2 * DAY
    assert len(collect_orphans(stream)) == 2
    assert content(stream) == {0: [b"3"]}


def test_truncating_inside_an_append_keeps_its_later_events(streams: Streams, tmp_path: Path) -> None:
    stream = streams.create("a/b", data=str(tmp_path / "data"))
    with Writer(stream) as writer:
        writer.write_many([b"1", b"2", b"3"])
    stream.truncate(Position.of({0: 2}))
    assert content(stream) == {0: [b"3"]}


def test_truncation_across_scaling_removes_sealed_segments(bids: Stream) -> None:
    written(bids, b"1", b"2", b"3", b"4")
    split(bids, 0)
    split(bids, 2)
    written(bids, b"5", b"6")
    after = bids.tail()
    written(bids, b"7")
    bids.truncate(after)
    assert values(bids) == [b"7"]
    assert [state.start == state.length for state in bids.segments() if state.is_sealed] == [True, True]


@pytest.mark.parametrize(
    ("cut", "says"),
    [
        ({0: 1}, "is not covered"),
        ({0: 1, 1: 1, 9: 1}, "is not a segment of this stream"),
        ({0: 99, 1: 1}, "is beyond the end of segment 0"),
    ],
)
def test_an_invalid_cut_is_rejected(bids: Stream, cut: dict[int, int], says: str) -> None:
    written(bids, b"1", b"2", b"3", b"4")
    with pytest.raises(InvalidArgument, match=says):
        bids.truncate(Position.of(cut))
    assert len(values(bids)) == 4


def test_truncation_removes_older_marks_but_lower_bounds_still_ascend(
    streams: Streams, tmp_path: Path
) -> None:
    stream = streams.create("a/b", data=str(tmp_path / "data"))
    written(stream, b"1", b"2", b"3")
    newest = None
    for offset in (1, 2, 3):
        cycle = CycleDecision(mark=Mark(10 * offset, 10 * offset, Position.of({0: offset})))
        assert stream.store.write(
            lambda c, n=newest, cycle=cycle: apply_cycle(c, stream.id, n, cycle, at=0)  # type: ignore[misc]  # bound now
        )
        newest = stream.store.read(lambda c: newest_mark(c, stream.id))
    assert [stream.cut_at(time) for time in (9, 10, 29)] == [Position.of({0: offset}) for offset in (0, 1, 2)]
    stream.truncate(Position.of({0: 2}))
    assert [mark.lower for mark in stream.marks()] == [20, 30]
    assert stream.cut_at(0) == Position.of({0: 2})
    written(stream, b"4")
    stream.truncate(Position.of({0: 4}))
    assert stream.marks() == []
    assert stream.cut_at(100) == stream.head() == Position.of({0: 4})
    assert stream.store.read(lambda c: newest_mark(c, stream.id)) == newest


def test_a_group_cannot_start_before_the_head(bids: Stream) -> None:
    written(bids, b"1", b"2", b"3", b"4")
    middle = bids.tail()
    written(bids, b"5")
    bids.truncate(middle)
    assert ReaderGroup(bids, "g").position() == middle
    with pytest.raises(InvalidArgument, match=r"start = .*is not at or after"):
        ReaderGroup(bids, "h", start=Position.of({0: 0, 1: 0}))
    with pytest.raises(InvalidArgument, match=r"start = .*is beyond the end of segment 0"):
        ReaderGroup(bids, "h", start=Position.of({0: 99, 1: 99}))


def test_errors_are_of_one_kind(streams: Streams) -> None:
    with pytest.raises(SlackwaterError):
        streams.get("no/such")
