"""Writers: each event once and in order per key, across crashes, scaling and lost responses; time (N1–N5)."""

from __future__ import annotations

import random
import resource
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sql
from sqlalchemy.engine import Connection

from slackwater.errors import (
    InvalidArgument,
    StoreUnavailable,
    WriteFailed,
    WriterClosed,
)
from slackwater.metadata.store import open_store
from slackwater.metadata.store_schema import writers
from slackwater.streams.log import append as appending
from slackwater.streams.log import writer as writing
from slackwater.streams.log.catalog import Stream, Streams
from slackwater.streams.log.transactions import TransactionalWriter
from slackwater.streams.log.writer import Batching, Writer
from slackwater.streams.maintenance.file_collection import collect_orphans
from slackwater.streams.segments.positions import Position
from slackwater.streams.segments.routing import point_of
from slackwater.streams.settings import MarkSettings, StreamSettings
from slackwater.streams.time.mark_store import writer_marks
from slackwater.streams.time.notes import NoteResult
from slackwater.time import DAY, HOUR, SECOND
from tests.stores import new_store
from tests.streams.conftest import Clock
from tests.streams.logs import content, merge, split, values

PATIENT = Batching(interval="1 hour")
"""Nothing is stored before a flush."""


def test_events_are_numbered_and_acknowledged_by_flush(bids: Stream) -> None:
    with Writer(bids, "w", batching=PATIENT) as writer:
        assert [writer.write(b"a"), writer.write(b"b"), writer.write_many([b"c", b"d"])] == [1, 2, 4]
        assert (writer.acknowledged, values(bids)) == (0, [])
        writer.flush()
        assert writer.acknowledged == 4
        assert sorted(values(bids)) == [b"a", b"b", b"c", b"d"]
        assert sum(offset for _, offset in writer.position.items()) == 4


def test_a_batch_is_stored_when_it_is_old_or_large_enough(bids: Stream) -> None:
    with Writer(bids, batching=Batching(interval="20 milliseconds")) as writer:
        writer.write(b"a")
        while writer.acknowledged < 1:
            time.sleep(0.005)
    with Writer(bids, batching=Batching(bytes=1_000, interval="1 hour")) as writer:
        writer.write_many([b"x" * 600, b"y" * 600])
        while writer.acknowledged < 2:
            time.sleep(0.005)
    assert len(values(bids)) == 3


def test_events_of_one_key_keep_their_order_over_scaling(bids: Stream) -> None:
    keys = [f"key {number % 7}" for number in range(700)]
    with Writer(bids) as writer:
        for number, key in enumerate(keys):
            writer.write(f"{key}/{number}".encode(), key)
            if number % 100 == 50:
                writer.flush()
                if number % 200 == 50:
                    split(bids, 1)
                else:
                    merge(bids)
    by_key: dict[bytes, list[int]] = {}
    for value in values(bids):
        key_of, _, place = value.partition(b"/")
        by_key.setdefault(key_of, []).append(int(place))
    assert by_key == {key.encode(): list(range(place, 700, 7)) for place, key in enumerate(keys[:7])}


def test_an_event_that_waits_while_its_segment_is_sealed_goes_to_the_successor(bids: Stream) -> None:
    with Writer(bids, "w", batching=PATIENT) as writer:
        writer.write_many([b"a"] * 50, keys=[str(number) for number in range(50)])
        split(bids, 0)
        split(bids, 2)
        writer.flush()
    assert sorted(content(bids)) == [segment.id for segment in bids.epochs().active]
    assert len(values(bids)) == 50
    # the position contains only segments that the writer wrote to
    assert writer.position == bids.tail()


def test_the_position_drops_a_segment_once_successors_cover_its_range(bids: Stream) -> None:
    keys = [str(number) for number in range(50)]
    with Writer(bids, "w") as writer:
        writer.write_many([b"a"] * 50, keys=keys)
        writer.flush()
        assert sorted(dict(writer.position.items())) == [0, 1]
        split(bids, 0)
        left = bids.epochs().active[0]
        inside = next(key for key in keys if point_of(key) < left.high)
        writer.write(b"b", inside)
        writer.flush()
        assert sorted(dict(writer.position.items())) == [0, 1, left.id]
        writer.write_many([b"c"] * 50, keys=keys)
        writer.flush()
        assert writer.position == bids.tail()


# ---- exactly once


def test_a_reopened_writer_continues_after_its_last_event(bids: Stream) -> None:
    events = [str(number).encode() for number in range(1, 101)]
    crashed = Writer(bids, "w", batching=PATIENT)
    crashed.write_many(events[:40], keys=events[:40])
    crashed.flush()
    crashed.write_many(events[40:60])  # never stored: the process dies here
    again = Writer(bids, "w")
    assert again.last_event_number == 40
    again.write_many(events[30:], keys=events[30:], number=31)
    again.close()
    assert sorted(values(bids), key=int) == events
    assert again.acknowledged == 100


@pytest.mark.parametrize("first", [1, 3, 5, 6])
def test_events_with_stored_numbers_are_skipped(bids: Stream, first: int) -> None:
    with Writer(bids, "w") as writer:
        writer.write_many([b"1", b"2", b"3", b"4", b"5"])
        more = [str(number).encode() for number in range(first, 9)]
        assert writer.write_many(more, number=first) == 8
        assert writer.write(b"again", number=8) == 8
        assert writer.write(b"9") == 9
    assert sorted(values(bids)) == [str(number).encode() for number in range(1, 10)]


def test_numbers_may_have_gaps(bids: Stream) -> None:
    with Writer(bids, "w") as writer:
        for number in (10, 20, 15, 30):
            writer.write(str(number).encode(), key="k", number=number)
    assert values(bids) == [b"10", b"20", b"30"]
    with Writer(bids, "w") as writer:
        assert writer.last_event_number == 30


def test_a_replaced_writer_cannot_continue(bids: Stream) -> None:
    old = Writer(bids, "w", batching=PATIENT)
    old.write(b"old")
    with Writer(bids, "w") as new:
        new.write(b"new")
    with pytest.raises(WriteFailed, match="opened again by another process") as caught:
        old.flush()
    assert caught.value.acknowledged == 0
    with pytest.raises(WriteFailed):
        old.close()
    assert values(bids) == [b"new"]


def repeat_work(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Run repeatable work twice, as after a connection lost just after the commit; return what ran."""
    original = stream.store.write
    repeated: list[Any] = []

    def write(work: Any, *, repeatable: bool = False) -> Any:
        result = original(work, repeatable=repeatable)
        if repeatable:
            repeated.append(work)
            return original(work, repeatable=repeatable)
        return result

    monkeypatch.setattr(stream.store, "write", write)
    return repeated


@pytest.mark.parametrize("name", ["w", None])
def test_closing_a_writer_survives_a_lost_response(
    bids: Stream, monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    writer = Writer(bids, name)
    writer.write(b"a")
    writer.flush()
    repeated = repeat_work(bids, monkeypatch)
    writer.close()
    assert repeated
    assert values(bids) == [b"a"]


def test_an_append_whose_response_was_lost_is_stored_once(
    bids: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Writer(bids, "w") as writer:
        repeated = repeat_work(bids, monkeypatch)
        writer.write_many([b"a", b"b"], keys=["1", "2"])
        writer.flush()
        monkeypatch.undo()
        assert repeated
        assert writer.position == Position.of(
            {state.segment.id: state.length for state in bids.segments() if state.length}
        )
    assert sorted(values(bids)) == [b"a", b"b"]


@pytest.mark.search
def test_concurrent_writers_lose_no_event(bids: Stream) -> None:
    def write(name: str) -> None:
        with Writer(bids, name, batching=Batching(interval="1 millisecond")) as writer:
            for number in range(200):
                writer.write(f"{name}/{number}".encode(), key=f"{name}{number % 3}")
                if number % 40 == 0:
                    writer.flush()

    threads = [threading.Thread(target=write, args=(f"w{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for place in range(3):
        split(bids, place)
    for thread in threads:
        thread.join()
    assert sorted(values(bids)) == sorted(
        f"w{w}/{number}".encode() for w in range(4) for number in range(200)
    )


def test_a_slow_file_is_written_again_instead_of_being_lost(
    bids: Stream, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer pauses between its file and its transaction, and the file is collected in between."""
    collected: list[list[str]] = []
    original = writing.stage_batch

    def stage_batch(*arguments: Any, **options: Any) -> Any:
        parts = original(*arguments, **options)
        if not collected:
            clock.now += 2 * DAY
            collected.append(collect_orphans(bids))
        return parts

    monkeypatch.setattr(writing, "stage_batch", stage_batch)
    with Writer(bids) as writer:
        writer.write(b"a")
    assert [len(names) for names in collected] == [1]
    assert values(bids) == [b"a"]


def test_files_of_a_crashed_writer_are_collected_and_files_in_use_are_not(bids: Stream, clock: Clock) -> None:
    with Writer(bids) as writer:
        writer.write(b"a")
    batch = pa.record_batch([[b"lost"]], schema=bids.columns)
    (orphan,) = bids.folder.write([batch], at=clock())
    clock.now += DAY
    assert collect_orphans(bids) == []  # exactly one day is not older than one day
    clock.now += 1
    assert collect_orphans(bids) == [orphan.file]
    assert values(bids) == [b"a"]


# ---- trouble


@contextmanager
def no_room_beyond(size: int) -> Iterator[None]:
    """Make the system reject writes beyond this file size."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_the_error_about_a_full_disk_names_the_last_stored_event(bids: Stream, tmp_path: Path) -> None:
    large = random.Random(7).randbytes(3 << 20)
    writer = Writer(bids, "w", batching=PATIENT)
    writer.write(b"a")
    writer.flush()
    with no_room_beyond(2 << 20):
        writer.write(large)
        with pytest.raises(WriteFailed, match=r"after number 1: OSError.*File too large") as caught:
            writer.flush()
    assert caught.value.acknowledged == 1
    for use in (lambda: writer.write(b"c"), writer.close):
        with pytest.raises(WriteFailed):
            use()
    # an incomplete file would take up the missing space
    assert len(list(tmp_path.rglob("*.arrow"))) == 1
    with Writer(bids, "w") as again:
        assert again.last_event_number == 1
        again.write(large)
    assert sorted(values(bids), key=len) == [b"a", large]


def test_a_full_store_raises_and_works_again_when_there_is_space(tmp_path: Path) -> None:
    with Streams.open(new_store(tmp_path)) as streams:
        stream = streams.create("a/b")
        writer = Writer(stream, "w", batching=PATIENT)
        writer.write(b"a")
        with (
            no_room_beyond(4_096),
            pytest.raises(WriteFailed, match=r"metadata store at .* is not available"),
        ):
            writer.flush()
        assert values(stream) == []
        with Writer(stream, "w") as again:
            assert again.last_event_number == 0
            again.write(b"a")
        assert values(stream) == [b"a"]


def test_a_failing_store_raises_and_stores_nothing(bids: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer(bids, "w", batching=PATIENT)
    writer.write_many([b"a", b"b"], keys=["1", "2"])
    real = appending.append

    def failing(connection: Connection, *arguments: Any, **options: Any) -> Any:
        real(connection, *arguments, **options)
        raise StoreUnavailable("the test", "gone before the commit")

    monkeypatch.setattr(writing, "append", failing)
    with pytest.raises(WriteFailed, match="gone before the commit"):
        writer.flush()
    monkeypatch.undo()
    assert values(bids) == []


@pytest.mark.search
def test_backpressure_limits_the_buffered_bytes(bids: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    real = writing.stage_batch

    def slow(*arguments: Any, **options: Any) -> Any:
        gate.wait(20)
        return real(*arguments, **options)

    monkeypatch.setattr(writing, "stage_batch", slow)
    batching = Batching(bytes=1_000, interval="1 millisecond", buffered=5_000)
    written = []

    def write() -> None:
        with Writer(bids, "w", batching=batching) as writer:
            for number in range(100):
                writer.write(b"x" * 500)
                written.append(number)

    thread = threading.Thread(target=write)
    thread.start()
    while len(written) < 9:
        time.sleep(0.01)
    time.sleep(0.1)
    assert len(written) < 15
    gate.set()
    thread.join()
    assert len(values(bids)) == 100


def test_a_closed_writer_raises(bids: Stream) -> None:
    writer = Writer(bids)
    writer.close()
    writer.close()
    for use in (lambda: writer.write(b"a"), writer.flush, lambda: writer.note_time(5)):
        with pytest.raises(WriterClosed, match="is closed; open a new one"):
            use()


@pytest.mark.parametrize("writer", ["", "a b", "x" * 251, "ä"])
def test_a_writer_id_is_checked(bids: Stream, writer: str) -> None:
    with pytest.raises(InvalidArgument, match="is not a valid writer id"):
        Writer(bids, writer)


@pytest.mark.parametrize("options", [{"bytes": 0}, {"interval": "-1 second"}, {"buffered": 0}])
def test_batching_is_checked(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="must be greater than zero"):
        Batching(**options)


@pytest.mark.parametrize(
    "change", [Path.unlink, lambda path: Path(shutil.copy(path, f"{path}.new")).rename(path)]
)
def test_events_are_not_acknowledged_by_a_store_that_disappeared(
    tmp_path: Path, change: Callable[[Path], Any]
) -> None:
    with Streams.open(new_store(tmp_path)) as streams:
        writer = Writer(streams.create("a/b"), "w", batching=PATIENT)
        writer.write(b"a")
        writer.flush()
        change(tmp_path / "store.db")
        writer.write(b"b")
        with pytest.raises(WriteFailed, match=r"after number 1: .* (removed|replaced) while it was open"):
            writer.flush()
        assert writer.acknowledged == 1


# ---- time


def marks_of(stream: Stream) -> list[tuple[str, int, dict[int, int], bool]]:
    found = stream.store.read(lambda connection: writer_marks(connection, stream.id))
    return [(mark.writer, mark.time, dict(mark.position.items()), mark.closed) for mark in found]


def test_note_time_flushes_and_reports_the_position(bids: Stream) -> None:
    with Writer(bids, "w", batching=PATIENT) as writer:
        assert writer.note_time(5) is NoteResult.OK
        assert marks_of(bids) == [("w", 5, {}, False)]
        writer.write_many([b"a", b"b"], keys=["1", "2"])
        assert writer.note_time("1970-01-01T00:00:00.000007Z") is NoteResult.OK
        assert marks_of(bids) == [("w", 7, dict(writer.position.items()), False)]
        assert sum(dict(writer.position.items()).values()) == 2
        assert writer.note_time(6) is NoteResult.INVALID_TIME
        assert writer.note_time(7) is NoteResult.OK
        writer.mark_idle()
        assert marks_of(bids)[0][3]
        writer.note_time(8)
        assert not marks_of(bids)[0][3]
    assert marks_of(bids)[0][3]


def test_a_reopened_writer_reports_its_earlier_position(bids: Stream) -> None:
    crashed = Writer(bids, "w")
    crashed.write_many([b"a", b"b"], keys=["1", "2"])
    crashed.flush()
    with Writer(bids, "w") as again:
        assert again.position == crashed.position
        again.note_time(5)
    assert marks_of(bids) == [("w", 5, dict(crashed.position.items()), True)]


def test_time_is_noted_automatically(bids: Stream, clock: Clock) -> None:
    with Writer(bids, "w", batching=PATIENT, automatically_note_time="10 milliseconds") as writer:
        writer.write(b"a")
        while not marks_of(bids) or not marks_of(bids)[0][2]:
            time.sleep(0.005)
        # noting the time has stored the pending events
        assert marks_of(bids)[0][:2] == ("w", clock.now)
        assert writer.acknowledged == 1
        clock.now += SECOND
        while marks_of(bids)[0][1] < clock.now:
            time.sleep(0.005)
        with pytest.raises(InvalidArgument, match="notes time automatically"):
            writer.note_time(5)


def test_the_clock_is_read_before_the_events_that_are_stored_with_it_are_taken(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise an event that is written in between is stored after the note of a later time."""
    order: list[str] = []

    def clock() -> int:
        order.append("clock")
        return 1_000 * SECOND

    class Swapped(writing.PendingEvents):
        def __init__(self, columns: pa.Schema) -> None:
            order.append("swap")
            super().__init__(columns)

    with open_store(store_url, clock=lambda: 0) as store:
        stream = Streams(store, clock=clock).create("a/b", data=str(tmp_path / "data"))
        monkeypatch.setattr(writing, "PendingEvents", Swapped)
        with Writer(stream, "w", automatically_note_time="5 milliseconds"):
            while order.count("swap") < 4:
                time.sleep(0.005)
    assert order[1:7] == ["clock", "swap"] * 3, order


def test_a_time_too_far_ahead_of_the_store_is_refused(bids: Stream, clock: Clock) -> None:
    bids.configure(StreamSettings(marks=MarkSettings(max_ahead="1 hour")))
    with Writer(bids, "w") as writer, TransactionalWriter(bids, "t") as transactional:
        assert writer.note_time(clock.now + HOUR + 1) is NoteResult.TOO_FAR_AHEAD
        assert marks_of(bids) == []
        assert writer.note_time(clock.now + HOUR) is NoteResult.OK
        assert writer.note_time(5) is NoteResult.INVALID_TIME
        transaction = transactional.begin()
        transaction.write(b"a")
        assert transaction.commit(clock.now + HOUR + 1) is NoteResult.TOO_FAR_AHEAD
        assert values(bids) == []
        assert transaction.commit(clock.now + HOUR) is NoteResult.OK
    bids.configure(StreamSettings())
    with Writer(bids, "w") as writer:
        assert writer.note_time(clock.now + 1_000 * DAY) is NoteResult.OK


def test_a_clock_that_goes_back_does_not_stop_the_writer(bids: Stream, clock: Clock) -> None:
    with Writer(bids, "w", automatically_note_time="10 milliseconds") as writer:
        while not marks_of(bids):
            time.sleep(0.005)
        noted, clock.now = clock.now, clock.now - 5
        time.sleep(0.05)
        writer.write(b"a")
        writer.flush()
        assert marks_of(bids)[0][1] == noted


def test_a_writer_without_an_id_leaves_no_record(bids: Stream) -> None:

    with Writer(bids) as writer:
        writer.write(b"a")
    with Writer(bids, "named") as writer:
        writer.write(b"b")
    query = sql.select(writers.c.writer)
    found = bids.store.read(lambda connection: connection.execute(query).scalars().all())
    assert found == ["named"]
