"""Reader groups: assignment, order across scaling, dead readers, time windows; and damaged files."""

from __future__ import annotations

from pathlib import Path

import pytest

from slackwater.errors import CorruptSegment, EventsGone, InvalidArgument, ReaderReplaced
from slackwater.streams.log.catalog import Stream, Streams
from slackwater.streams.log.reader_group import Reader, ReaderGroup
from slackwater.streams.log.segment_reader import read_events
from slackwater.streams.log.writer import Writer
from slackwater.streams.maintenance.mark_cycle import CycleRunner
from slackwater.streams.segments.epochs import even_ranges
from slackwater.streams.segments.positions import Position
from slackwater.streams.time.time_windows import TimeWindow
from slackwater.time import SECOND
from tests.streams.conftest import Clock
from tests.streams.logs import merge, split, values

KEYS = [str(number) for number in range(40)]


def written(stream: Stream, text: str, keys: list[str] = KEYS) -> None:
    with Writer(stream) as writer:
        writer.write_many([f"{key}/{text}".encode() for key in keys], keys=keys)


def drained(*readers: Reader) -> list[bytes]:
    """Let the readers take turns until none of them gets an event."""
    found: list[bytes] = []
    quiet = 0
    while quiet < 3:
        quiet += 1
        for reader in readers:
            while (batch := reader.read()) is not None:
                found += batch.events.column("value").to_pylist()
                quiet = 0
            reader.checkpoint()
    return found


def test_readers_share_the_segments_evenly(streams: Streams, tmp_path: Path) -> None:
    stream = streams.create("a/b", segments=7, data=str(tmp_path / "data"))
    group = ReaderGroup(stream, "g")
    readers = [group.reader(name) for name in "abc"]
    for _ in range(2):
        for reader in readers:
            reader.checkpoint()
    assert [len(reader.position) for reader in readers] == [3, 2, 2]
    assert sorted(segment for reader in readers for segment in reader.position) == list(range(7))
    readers.pop(0).close()
    for reader in readers:
        reader.checkpoint()
    assert [len(reader.position) for reader in readers] == [4, 3]


def test_every_event_is_read_once_and_in_order_through_scaling(bids: Stream) -> None:
    group = ReaderGroup(bids, "g")
    first, second = group.reader("a"), group.reader("b")
    found: list[bytes] = []
    for round_ in range(6):
        written(bids, str(round_))
        if round_ % 2:
            found += drained(first, second)
        merge(bids) if round_ % 3 == 2 else split(bids, round_ % 2)
    written(bids, "6")
    found += drained(second, first)
    by_key: dict[bytes, bytes] = {}
    for value in found:
        key, _, text = value.partition(b"/")
        by_key[key] = by_key.get(key, b"") + text
    assert by_key == {key.encode(): b"0123456" for key in KEYS}
    assert group.position() == bids.tail()


def test_a_successor_waits_for_all_its_predecessors(bids: Stream) -> None:
    written(bids, "before")
    merge(bids)
    written(bids, "after")
    group = ReaderGroup(bids, "g")
    first, second = group.reader("a"), group.reader("b")
    first.checkpoint()
    second.checkpoint()
    (of_first,), (of_second,) = first.position, second.position
    assert first.read() is not None
    first.checkpoint()
    # the other predecessor is not finished
    assert (first.position, first.read()) == ({}, None)
    assert dict(group.position().items())[of_second] == 0
    assert second.read() is not None
    second.checkpoint()
    first.checkpoint()
    merged = bids.epochs().active[0].id
    assert {**first.position, **second.position} == {merged: 0}
    assert of_first != of_second


def test_segments_of_a_dead_reader_are_read_from_its_last_checkpoint(bids: Stream, clock: Clock) -> None:
    written(bids, "1")
    group = ReaderGroup(bids, "g")
    dead = group.reader("dead", lease="10 seconds")
    checked = [dead.read()]
    dead.checkpoint()
    assert dead.read() is not None  # not checkpointed
    heir = group.reader("heir", lease="10 seconds")
    assert drained(heir) == []
    clock.now += 10 * SECOND - 1
    heir.checkpoint()
    assert heir.position == {}
    clock.now += 1
    read_again = drained(heir)
    first = [value for batch in checked if batch for value in batch.events.column("value").to_pylist()]
    assert sorted(first + read_again) == sorted(values(bids))
    for use in (dead.checkpoint, lambda: dead._update(publish=False)):
        with pytest.raises(ReaderReplaced, match=r"the lease of reader .* expired"):
            use()


def test_a_reader_of_the_same_name_replaces_the_older_one(bids: Stream) -> None:
    group = ReaderGroup(bids, "g")
    old = group.reader("a")
    new = group.reader("a")
    assert sorted(new.position) == [0, 1]
    with pytest.raises(ReaderReplaced):
        old.checkpoint()
    old.close()
    assert sorted(new.position) == [0, 1]
    new.checkpoint()


def test_a_group_starts_at_a_cut_and_can_be_reset(bids: Stream) -> None:
    written(bids, "1")
    cut = bids.tail()
    written(bids, "2")
    group = ReaderGroup(bids, "g", start=cut)
    reader = group.reader()
    assert sorted(drained(reader)) == sorted(f"{key}/2".encode() for key in KEYS)
    group.reset(bids.head())
    with pytest.raises(ReaderReplaced):
        reader.checkpoint()
    assert len(drained(group.reader())) == 2 * len(KEYS)
    # an existing group ignores the start
    assert ReaderGroup(bids, "g", start=cut).position() == bids.tail()
    group.delete()
    with pytest.raises(InvalidArgument, match="was deleted"):
        group.reader()
    assert ReaderGroup(bids, "g").position() == bids.head()


def test_a_group_started_at_a_cut_on_both_sides_of_a_segment_reads_that_segment(bids: Stream) -> None:
    """The start is before a merge on one side and after it on the other: the merged segment is read first."""
    written(bids, "1")
    merge(bids)
    merged = bids.epochs().active[0]
    written(bids, "2")
    bids.scale([merged.id], even_ranges(2))
    left, right = bids.epochs().active
    written(bids, "3")
    group = ReaderGroup(bids, "g", start=Position.of({left.id: 0, 1: 0}))
    reader = group.reader()
    assert sorted(reader.position) == [1]
    segments = [batch.segment for batch in reader]
    assert segments[:2] == [1, merged.id]
    assert sorted(segments[2:]) == sorted([left.id, right.id])


def test_a_group_overtaken_by_retention_raises_instead_of_skipping_events(bids: Stream) -> None:
    written(bids, "1")
    reader = ReaderGroup(bids, "g").reader()
    bids.truncate(bids.tail())
    with pytest.raises(EventsGone, match="start at the head"):
        drained(reader)


def test_the_time_window_follows_the_whole_group(bids: Stream, clock: Clock) -> None:
    group = ReaderGroup(bids, "g")
    first, second = group.reader("a", lease="1 hour"), group.reader("b", lease="1 hour")
    first.checkpoint()
    second.checkpoint()
    cycles = CycleRunner(bids.store)
    assert first.current_time_window() == TimeWindow(None, None)
    with Writer(bids, "w") as writer:
        for time in (10, 20):
            writer.write_many([b"x"] * len(KEYS), keys=KEYS)
            writer.note_time(time)
            clock.now += 10 * SECOND
            cycles.run(bids.id)
        assert [mark.lower for mark in bids.marks()] == [10, 20]
        assert group.current_time_window() == TimeWindow(None, 10)
        assert first.read() is not None
        first.checkpoint()
        # the other half of the first mark is not read yet
        assert group.current_time_window().lower is None
        assert second.read() is not None
        second.checkpoint()
        assert group.current_time_window() == TimeWindow(10, 20)
        drained(first, second)
        assert group.current_time_window() == TimeWindow(20, None)
        group.reset(bids.head())
        assert group.current_time_window() == TimeWindow(None, 10)


def test_the_upper_bound_of_a_reader_covers_what_it_read_since_its_checkpoint(
    bids: Stream, clock: Clock
) -> None:
    group = ReaderGroup(bids, "g")
    reader = group.reader("a", lease="1 hour")
    cycles = CycleRunner(bids.store)
    with Writer(bids, "w") as writer:
        for time in (10, 20, 30):
            writer.write_many([b"x"] * len(KEYS), keys=KEYS)
            writer.note_time(time)
            clock.now += 10 * SECOND
            cycles.run(bids.id)
    assert reader.current_time_window() == TimeWindow(None, 10)
    for upper in (10, 20, 20, 30, 30, None):  # each mark has a batch in both segments
        assert reader.read() is not None
        assert reader.current_time_window() == TimeWindow(None, upper)
        # what is not in a checkpoint is read again after a crash
        assert group.current_time_window() == TimeWindow(None, 10)
    reader.checkpoint()
    assert reader.current_time_window() == TimeWindow(30, None)


def test_the_upper_bound_of_a_reader_covers_the_end_of_a_sealed_segment(bids: Stream, clock: Clock) -> None:
    group = ReaderGroup(bids, "g")
    reader = group.reader("a", lease="1 hour")
    cycles = CycleRunner(bids.store)
    with Writer(bids, "w") as writer:
        for time in (10, 20):
            writer.write_many([b"x"] * len(KEYS), keys=KEYS)
            writer.note_time(time)
            clock.now += 10 * SECOND
            cycles.run(bids.id)
            if time == 10:
                merge(bids)
    for upper in (20, 20):
        assert reader.read() is not None
        assert reader.current_time_window().upper == upper
    assert reader.read() is None, "the successor is read after a checkpoint"
    reader.checkpoint()
    assert reader.current_time_window() == TimeWindow(10, 20)
    assert reader.read() is not None
    assert reader.current_time_window() == TimeWindow(10, None)


@pytest.mark.parametrize("lease", ["0 seconds", "-1 second"])
def test_a_lease_must_be_positive(bids: Stream, lease: str) -> None:
    with pytest.raises(InvalidArgument, match="must be greater than zero"):
        ReaderGroup(bids, "g").reader(lease=lease)


# ---- damaged files


def damaged(stream: Stream, tmp_path: Path, kind: str) -> None:
    (file,) = (tmp_path / "data").rglob("*.arrow")
    content = bytearray(file.read_bytes())
    match kind:
        case "missing":
            file.unlink()
        case "cut short":
            file.write_bytes(content[: len(content) // 2])
        case "changed":
            place = next(
                iter(
                    stream.store.read(
                        lambda c: (
                            c.exec_driver_sql("SELECT byte_offset FROM slackwater_appends").scalars().all()
                        )
                    )
                )
            )
            content[place + 20] ^= 1
            file.write_bytes(content)
        case "empty":
            file.write_bytes(b"")


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("missing", "is missing"),
        ("cut short", "does not match its checksum"),
        ("changed", "does not match its checksum"),
        ("empty", "cannot be read|does not match its checksum"),
    ],
)
def test_the_error_about_a_damaged_file_names_it(
    streams: Streams, tmp_path: Path, kind: str, says: str
) -> None:
    stream = streams.create("a/b", data=str(tmp_path / "data"))
    written(stream, "1")
    damaged(stream, tmp_path, kind)
    with pytest.raises(
        CorruptSegment, match=rf"segment 0: cannot read the events from offset 0 on: .*\.arrow ({says})"
    ):
        list(read_events(stream, 0))


@pytest.mark.parametrize(("start", "end"), [(-1, None), (5, 4)])
def test_an_invalid_range_of_offsets_is_rejected(bids: Stream, start: int, end: int | None) -> None:
    with pytest.raises(InvalidArgument, match="is not a valid range of offsets"):
        list(read_events(bids, 0, start, end))
    with pytest.raises(InvalidArgument, match="is not a segment of this stream"):
        list(read_events(bids, 99))


@pytest.mark.parametrize("at_once", [1, 2, 256])
def test_any_range_of_a_segment_can_be_read(streams: Streams, tmp_path: Path, at_once: int) -> None:
    stream = streams.create("a/b", data=str(tmp_path / "data"))
    with Writer(stream) as writer:
        for size in (3, 1, 4):
            writer.write_many([b"x"] * size)
            writer.flush()
    for start in range(10):
        for end in (*range(start, 10), None):
            batches = list(read_events(stream, 0, start, end, at_once=at_once))
            offsets = [offset for batch in batches for offset in range(batch.first_offset, batch.end)]
            assert offsets == list(range(start, min(8, 8 if end is None else end)))
