"""Small files of a stream are merged without disturbing readers, writers, positions and retention."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
import sqlalchemy as sql

from slackwater.errors import CorruptSegment
from slackwater.metadata import store_schema as schema
from slackwater.streams.log.catalog import Stream, Streams
from slackwater.streams.log.reader_group import ReaderGroup
from slackwater.streams.log.scan import scan
from slackwater.streams.log.segment_files import BatchLocation
from slackwater.streams.log.segment_reader import read_events
from slackwater.streams.log.transactions import TransactionalWriter
from slackwater.streams.log.writer import Writer
from slackwater.streams.maintenance import compaction
from slackwater.streams.maintenance.compaction import Append, compact, mergeable
from slackwater.streams.maintenance.controller import Controller
from slackwater.streams.maintenance.file_collection import collect_orphans
from slackwater.streams.maintenance.retention import apply_retention
from slackwater.streams.segments.positions import Position
from slackwater.streams.settings import Retention, ScalingPolicy, StreamSettings
from slackwater.time import HOUR, MINUTE
from tests.streams.conftest import Clock
from tests.streams.logs import content, split, values
from tests.support.sampling import sampled


def flushed(stream: Stream, count: int, start: int = 0) -> None:
    """Write events one by one, each with a flush of its own."""
    with Writer(stream, "w") as writer:
        for number in range(start, start + count):
            writer.write(b"%d" % number, key=str(number % 5))
            writer.flush()


def files(stream: Stream) -> list[str]:
    return stream.folder.files(before=2**62)


def append_count(stream: Stream) -> int:
    query = sql.select(sql.func.count()).where(schema.appends.c.stream == stream.id)
    return stream.store.read(lambda connection: connection.execute(query).scalar_one())


def test_many_small_files_become_one_and_events_keep_their_offsets(bids: Stream) -> None:
    flushed(bids, 40)
    before = content(bids)
    assert len(files(bids)) == 40
    result = compact(bids, minimum_age=-1)
    assert (result.merged, result.into, result.removed_files) == (40, 2, 40)
    assert content(bids) == before
    assert len(files(bids)) == 1
    assert append_count(bids) == 2
    assert sum(state.bytes for state in bids.segments()) < 40 * 300
    for segment, found in before.items():
        for start in range(len(found) + 1):
            (*batches,) = read_events(bids, segment, start)
            assert [v for b in batches for v in b.events.column("value").to_pylist()] == found[start:]
    assert compact(bids, minimum_age=-1) == compaction.CompactionResult()


def test_young_appends_are_not_merged(bids: Stream, clock: Clock) -> None:
    flushed(bids, 20)
    clock.now += 5 * MINUTE
    assert compact(bids).merged == 0
    clock.now += 1
    assert compact(bids, StreamSettings(scaling=ScalingPolicy(rate=1, window="6 minutes"))).merged == 0
    assert compact(bids).merged == 20


def test_cuts_marks_and_checkpoints_stay_valid(bids: Stream, clock: Clock) -> None:
    flushed(bids, 15)
    group = ReaderGroup(bids, "totals")
    with group.reader("r") as reader:
        for _ in range(7):
            assert reader.read() is not None
        at = reader.checkpoint()
    cut = bids.tail()
    flushed(bids, 15, start=15)
    wanted = values(bids)
    after = sorted(v for b in scan(bids, cut) for v in b.events.column("value").to_pylist())
    compact(bids, minimum_age=-1)
    assert sorted(v for b in scan(bids, cut) for v in b.events.column("value").to_pylist()) == after
    with group.reader("r") as reader:
        assert group.position() == at
        rest = [v for batch in reader for v in batch.events.column("value").to_pylist()]
    assert len(rest) == 30 - 7
    assert set(rest) < set(wanted)
    assert bids.truncate(cut) == cut
    assert sorted(values(bids)) == after
    flushed(bids, 10, start=30)
    compact(bids, minimum_age=-1)
    assert sorted(values(bids)) == sorted([*after, *(b"%d" % number for number in range(30, 40))])


def test_sealed_segments_and_transactions_are_merged_too(bids: Stream) -> None:
    with TransactionalWriter(bids, "t") as writer:
        for number in range(12):
            transaction = writer.begin()
            transaction.write_many([b"%d" % number, b"x"], keys=["a", "b"])
            transaction.commit()
    split(bids)
    flushed(bids, 30)
    before = content(bids)
    assert len(files(bids)) == 42
    assert compact(bids, minimum_age=-1).merged > 20
    assert content(bids) == before
    assert len(files(bids)) < 25


def test_a_reader_that_has_looked_up_merged_files_looks_again(bids: Stream) -> None:
    flushed(bids, 30)
    before = content(bids)
    for segment, found in before.items():
        reading = read_events(bids, segment)
        first = next(reading)
        compact(bids, minimum_age=-1)
        rest = [v for b in reading for v in b.events.column("value").to_pylist()]
        assert [*first.events.column("value").to_pylist(), *rest] == found
        flushed(bids, 30, start=30)
        before[1] = content(bids)[1]


def test_a_missing_file_that_was_not_merged_is_still_an_error(bids: Stream) -> None:
    flushed(bids, 2)
    bids.folder.remove_files(files(bids))
    with pytest.raises(CorruptSegment, match="is missing"):
        content(bids)
    flushed(bids, 20, start=2)
    compact(bids, minimum_age=-1)  # leaves the damaged appends alone
    with pytest.raises(CorruptSegment, match="is missing"):
        content(bids)


def test_truncation_between_the_lookup_and_the_merge_wins(
    bids: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed(bids, 20)
    write = bids.folder.write

    def truncated(batches: list[pa.RecordBatch], *, at: int) -> object:
        bids.truncate(Position.of({0: 3, 1: 0}))
        return write(batches, at=at)

    monkeypatch.setattr(bids.folder, "write", truncated)
    compact(bids, minimum_age=-1)
    monkeypatch.undo()
    starts = {state.segment.id: state.start for state in bids.segments()}
    assert starts[0] == 3
    assert len(values(bids)) == 20 - 3
    collect_orphans(bids, older_than="0 seconds")
    assert len(values(bids)) == 20 - 3


def test_two_controllers_merge_the_same_appends_once(bids: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed(bids, 20)
    before = content(bids)
    write = bids.folder.write

    def merged_elsewhere(batches: list[pa.RecordBatch], *, at: int) -> object:
        monkeypatch.undo()
        assert compact(bids, minimum_age=-1).merged == 20
        return write(batches, at=at)

    monkeypatch.setattr(bids.folder, "write", merged_elsewhere)
    assert compact(bids, minimum_age=-1).merged == 0
    assert content(bids) == before
    assert len(files(bids)) == 1


def test_a_merge_whose_answer_is_lost_is_recognized(bids: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed(bids, 20)
    before = content(bids)
    replace = compaction._replace
    calls = []

    def twice(connection: sql.engine.Connection, *arguments: object) -> object:
        calls.append(replace(connection, *arguments))  # type: ignore[arg-type]
        return replace(connection, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(compaction, "_replace", twice)
    assert compact(bids, minimum_age=-1).merged == 20
    assert content(bids) == before
    assert len(files(bids)) == 1


@pytest.mark.search
def test_events_are_kept_a_twentieth_of_the_retention_age_longer_at_most(bids: Stream, clock: Clock) -> None:
    for number in range(40):
        flushed(bids, 2, start=number)
        clock.now += 6 * MINUTE
    settings = StreamSettings(retention=Retention(age="20 hours"))
    compact(bids, settings)
    query = sql.select(schema.appends.c.at, schema.appends.c.events).where(schema.appends.c.stream == bids.id)
    rows = bids.store.read(lambda connection: connection.execute(query).all())
    assert len(rows) < 40
    assert sum(row.events for row in rows) == 80
    clock.now += 18 * HOUR  # the first two hours are older than the age
    apply_retention(bids, settings.retention)
    kept = sum(state.length - state.start for state in bids.segments())
    assert 80 - 2 * 20 <= kept <= 80 - 2 * 20 + 2 * 11


def test_appends_are_merged_in_levels_of_size() -> None:
    def appends(*sizes: int) -> Iterator[Append]:
        for number, size in enumerate(sizes):
            location = BatchLocation("f", byte_offset=0, size=size, checksum=0, events=1)
            yield Append(0, number, 1, 0, location)

    def groups(*sizes: int) -> list[int]:
        return [len(group) for group in mergeable(list(appends(*sizes)))]

    small, medium, large = 1_000, 300_000, 3_000_000
    assert groups(*[small] * 7) == []
    assert groups(*[small] * 8) == [8]
    assert groups(*[small] * 100) == [100]
    assert groups(*[small] * 8, medium, *[small] * 8) == [8, 8]
    assert groups(*[medium] * 8, *[small] * 3) == [11]
    assert groups(*[large] * 12) == []  # 5 fit into one append
    assert groups(*[small] * 4, large, *[small] * 4) == [9]


def test_the_housekeeping_of_a_controller_merges_files(streams: Streams, bids: Stream, clock: Clock) -> None:
    flushed(bids, 20)
    before = content(bids)
    clock.now += HOUR
    Controller(streams, name="c").step()
    assert (len(files(bids)), content(bids)) == (1, before)


def _merge_until_killed(store: str, seed: int) -> None:
    """Merge in a process that is killed before or after any step with files."""
    random = Random(seed)
    with Streams.open(store) as streams:
        stream = streams.get("shop/bids")

        def deadly(work: Callable[..., object], chance: float) -> Callable[..., object]:
            def run(*arguments: object, **options: object) -> object:
                if random.random() < chance:
                    os.kill(os.getpid(), signal.SIGKILL)
                result = work(*arguments, **options)
                if random.random() < chance:
                    os.kill(os.getpid(), signal.SIGKILL)
                return result

            return run

        for name, chance in (("read", 0.005), ("write", 0.4), ("remove_files", 0.4)):
            setattr(stream.folder, name, deadly(getattr(stream.folder, name), chance))
        compact(stream, minimum_age=-1)


@pytest.mark.search
@pytest.mark.parametrize("seed", sampled(range(3), keep=[0]))
def test_a_merge_that_is_killed_anywhere_loses_nothing(tmp_path: Path, seed: int) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    with Streams.open(store, create=True) as streams:
        stream = streams.create("shop/bids", segments=2)
        flushed(stream, 40)
        before = content(stream)
        context = multiprocessing.get_context("fork")
        for attempt in range(6):
            process = context.Process(target=_merge_until_killed, args=(store, 100 * seed + attempt))
            process.start()
            process.join()
            assert content(stream) == before
        compact(stream, minimum_age=-1)
        collect_orphans(stream, older_than="-1 seconds")
        assert content(stream) == before
        assert append_count(stream) == 2
        assert len(files(stream)) == 1
