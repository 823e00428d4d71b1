"""Controllers with a real store and a manual clock: buckets, takeover, races and housekeeping."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import pytest

from slackwater.errors import InvalidArgument
from slackwater.metadata import store_schema as schema
from slackwater.streams.log.catalog import BUCKETS, Stream, Streams
from slackwater.streams.log.writer import Writer
from slackwater.streams.maintenance.controller import Controller
from slackwater.streams.maintenance.mark_cycle import CycleRunner
from slackwater.streams.maintenance.retention import apply_retention
from slackwater.streams.maintenance.scaling import scale_by_rate
from slackwater.streams.segments.epochs import KEY_SPACE, split_range
from slackwater.streams.segments.positions import Position
from slackwater.streams.settings import MarkSettings, Retention, ScalingPolicy, StreamSettings
from slackwater.streams.time import mark_store
from slackwater.streams.time.marks import CycleDecision, Mark
from slackwater.streams.time.notes import WriterMark
from slackwater.time import MINUTE, SECOND
from tests.streams.conftest import Clock


@pytest.fixture
def bids(streams: Streams, tmp_path: Path) -> Stream:
    return streams.create("shop/bids", segments=2, data=str(tmp_path / "data"))


def marks_of(stream: Stream) -> list[Mark]:
    return list(stream.store.read(partial(mark_store.read_marks, stream=stream.id)).values())


def writers_of(stream: Stream) -> dict[str, WriterMark]:
    return {one.writer: one for one in stream.store.read(partial(mark_store.writer_marks, stream=stream.id))}


def note(stream: Stream, writer: str, time: int, offset: int = 0) -> None:
    position = Position.of({0: offset})
    stream.store.write(lambda c: mark_store.note(c, stream.id, writer, time, position, stream.clock()))


# ---- marks


def test_noted_times_become_marks_once_per_period(streams: Streams, bids: Stream, clock: Clock) -> None:
    controller = Controller(streams)
    with Writer(bids, "a") as first, Writer(bids, "b") as second:
        first.write(b"x", key="k")
        first.note_time(100)
        second.note_time(90)
        assert controller.step().cycles[bids.id].mark is None
        clock.now += 10 * SECOND
        assert controller.step().cycles[bids.id].mark == marks_of(bids)[-1]
        assert [(mark.lower, mark.upper) for mark in marks_of(bids)] == [(90, 100)]
        assert sum(offset for _, offset in marks_of(bids)[0].cut.items()) == 1
        # not due before the period is over
        second.note_time(95)
        clock.now += 10 * SECOND - 1
        assert controller.step().cycles == {}
        clock.now += 1
        assert controller.step().cycles[bids.id].mark == Mark(95, 100, marks_of(bids)[0].cut)


def test_a_stream_without_noted_times_is_not_scheduled(streams: Streams, bids: Stream, clock: Clock) -> None:
    controller = Controller(streams)
    assert controller.step().cycles == {}
    note(bids, "a", 5)
    bids.store.write(partial(mark_store.close_writer, stream=bids.id, writer="a"))
    for _ in range(4):
        clock.now += 10 * SECOND
        controller.step()
    assert [mark.lower for mark in marks_of(bids)] == [5]
    clock.now += 10 * SECOND
    assert controller.step().cycles == {}
    note(bids, "a", 6)
    assert controller.step().cycles[bids.id].mark == Mark(6, 6, marks_of(bids)[0].cut)


def test_the_period_of_a_stream_is_its_own(streams: Streams, tmp_path: Path, clock: Clock) -> None:
    settings = StreamSettings(marks=MarkSettings(period="2 seconds"))
    quick = streams.create("shop/quick", settings=settings, data=str(tmp_path))
    note(quick, "a", 1)
    clock.now += 2 * SECOND
    assert Controller(streams).step().cycles[quick.id].mark == Mark(1, 1, Position.of({0: 0}))


# ---- several controllers (M5, M6)


def test_only_the_first_of_two_controllers_appends_a_mark(bids: Stream, clock: Clock) -> None:
    """Both read the same state; the second finds that its mark is not the next one any more (M5)."""
    note(bids, "a", 5)
    clock.now += 10 * SECOND
    cycle = CycleDecision(mark=Mark(5, 5, Position.of({0: 0, 1: 0})))
    assert bids.store.write(lambda c: mark_store.apply_cycle(c, bids.id, None, cycle, clock()))
    gone = WriterMark("a", 5, Position.of({0: 0}), version=1)
    late = CycleDecision(mark=Mark(6, 6, Position.of({0: 0, 1: 0})), delete=(gone,))
    assert not bids.store.write(lambda c: mark_store.apply_cycle(c, bids.id, None, late, clock()))
    assert not bids.store.write(
        lambda c: mark_store.apply_cycle(c, bids.id, None, CycleDecision(delete=late.delete), clock())
    )
    assert [mark.lower for mark in marks_of(bids)] == [5]
    assert len(bids.store.read(partial(mark_store.writer_marks, stream=bids.id))) == 1


def test_a_writer_record_that_changed_since_it_was_read_is_not_deleted(bids: Stream, clock: Clock) -> None:
    note(bids, "a", 5)
    [seen] = bids.store.read(partial(mark_store.writer_marks, stream=bids.id))
    note(bids, "a", 5)
    assert bids.store.write(
        lambda c: mark_store.apply_cycle(c, bids.id, None, CycleDecision(delete=(seen,)), clock())
    )
    assert len(bids.store.read(partial(mark_store.writer_marks, stream=bids.id))) == 1


def test_a_mark_is_not_written_over_a_writer_that_returned_meanwhile(bids: Stream, clock: Clock) -> None:
    """The cycle leaves out b, which then notes a time below the lower bound that was decided without it."""
    note(bids, "a", 5)
    note(bids, "b", 5)
    clock.now += 10 * SECOND
    runner = CycleRunner(bids.store)
    assert runner.run(bids.id) is not None
    [first] = marks_of(bids)
    note(bids, "a", 9)
    left_out = writers_of(bids)["b"]
    cycle = CycleDecision(mark=Mark(9, 9, first.cut), delete=(left_out,))
    note(bids, "b", 5)  # still behind: the cycle need not wait for it
    note(bids, "b", 7)
    assert not bids.store.write(lambda c: mark_store.apply_cycle(c, bids.id, (1, first), cycle, clock()))
    assert marks_of(bids) == [first]
    made = runner.run(bids.id)
    assert made is not None
    assert made.mark == Mark(7, 9, first.cut)


def test_a_writer_that_stays_behind_does_not_prevent_a_mark(bids: Stream, clock: Clock) -> None:
    note(bids, "a", 5)
    note(bids, "b", 5)
    clock.now += 10 * SECOND
    assert CycleRunner(bids.store).run(bids.id) is not None
    [first] = marks_of(bids)
    note(bids, "a", 9)
    left_out = writers_of(bids)["b"]
    cycle = CycleDecision(mark=Mark(9, 9, first.cut), delete=(left_out,))
    note(bids, "b", 5)
    assert bids.store.write(lambda c: mark_store.apply_cycle(c, bids.id, (1, first), cycle, clock()))
    assert [mark.lower for mark in marks_of(bids)] == [5, 9]
    assert len(bids.store.read(partial(mark_store.writer_marks, stream=bids.id))) == 2


def test_concurrent_controllers_append_each_lower_bound_once(bids: Stream, clock: Clock) -> None:
    note(bids, "a", 0)
    clock.now += 10 * SECOND
    runners = [CycleRunner(bids.store) for _ in range(4)]
    for time in range(1, 6):
        note(bids, "a", time)
        together = threading.Barrier(len(runners))

        def race(runner: CycleRunner, together: threading.Barrier = together) -> None:
            together.wait()
            runner.run(bids.id)

        threads = [threading.Thread(target=race, args=(runner,)) for runner in runners]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [mark.lower for mark in marks_of(bids)] == [1, 2, 3, 4, 5]


@pytest.mark.search
def test_concurrent_notes_of_one_writer_are_never_lost(bids: Stream) -> None:
    """N6: the highest time stays, in any order."""
    together = threading.Barrier(8)

    def noting(first: int) -> None:
        together.wait()
        for time in range(first, 200, 8):
            note(bids, "a", time)

    threads = [threading.Thread(target=noting, args=(first,)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [record] = bids.store.read(partial(mark_store.writer_marks, stream=bids.id))
    assert record.time == 199


def test_controllers_cover_all_buckets_evenly(streams: Streams, clock: Clock) -> None:
    controllers = [Controller(streams, name=name) for name in ("a", "b", "c")]
    for controller in controllers:
        controller.step()
    shares = [set(controller.step().buckets) for controller in controllers]
    assert sorted(bucket for share in shares for bucket in share) == list(range(BUCKETS))
    assert {len(share) for share in shares} == {42, 43}


def test_the_buckets_of_a_dead_controller_are_taken_over(streams: Streams, clock: Clock) -> None:
    first, second = Controller(streams, lease="15 seconds"), Controller(streams, lease="15 seconds")
    first.step()
    assert len(second.step().buckets) == BUCKETS // 2
    clock.now += 15 * SECOND - 1
    assert len(second.step().buckets) == BUCKETS // 2
    clock.now += 1
    assert len(second.step().buckets) == BUCKETS
    # it was only slow and continues
    assert len(first.step().buckets) == BUCKETS // 2


def test_stopping_a_controller_releases_its_buckets_at_once(streams: Streams) -> None:
    with Controller(streams, poll="1 millisecond").running():
        pass
    assert len(Controller(streams).step().buckets) == BUCKETS


def test_a_failing_stream_does_not_block_the_others(
    streams: Streams, bids: Stream, tmp_path: Path, clock: Clock
) -> None:
    other = streams.create("shop/other", data=str(tmp_path / "other"))
    for stream in (bids, other):
        note(stream, "a", 1)
    broken = schema.writer_marks
    bids.store.write(
        lambda c: c.execute(broken.update().where(broken.c.stream == bids.id).values(position=b"?"))
    )
    clock.now += 10 * SECOND
    assert list(Controller(streams).step().cycles) == [other.id]


@pytest.mark.parametrize("option", ["lease", "poll", "housekeeping"])
def test_durations_must_be_above_zero(option: str) -> None:
    with Streams.temporary() as streams, pytest.raises(InvalidArgument, match=option):
        Controller(streams, **{option: "0 seconds"})


# ---- scaling and retention


def fill(stream: Stream, events: int, key: str | None = None) -> None:
    with Writer(stream) as writer:
        for number in range(events):
            writer.write(b"x" * 100, key=key or f"key {number}")


def test_a_hot_segment_is_split_and_cold_ones_are_merged(bids: Stream, clock: Clock) -> None:
    policy = ScalingPolicy(rate=1, window="1 minute")
    fill(bids, 400)
    assert scale_by_rate(bids, policy) == [], "too young to be judged"
    clock.now += MINUTE - 1
    fill(bids, 400)
    clock.now += 1
    done = scale_by_rate(bids, policy)
    assert [scaling.seal for scaling in done] == [(0,), (1,)] or [s.seal for s in done] == [(1,), (0,)]
    assert len(bids.epochs().active) > 4
    clock.now += 3 * MINUTE
    while scale_by_rate(bids, policy):
        clock.now += MINUTE
    assert len(bids.epochs().active) == 1


def test_concurrent_scaling_by_another_process_is_tolerated(
    bids: Stream, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.now += 5 * MINUTE
    stale = bids.segments()
    bids.scale([0, 1], [(0, KEY_SPACE)])
    with monkeypatch.context() as seen:
        seen.setattr(bids, "segments", lambda: stale)
        assert scale_by_rate(bids, ScalingPolicy(rate=10)) == []
    assert len(bids.epochs()) == 2


def test_retention_by_age_works_across_scaling(bids: Stream, clock: Clock) -> None:
    fill(bids, 10)
    clock.now += MINUTE
    bids.scale([0], split_range((0, KEY_SPACE // 2), 2))
    fill(bids, 10)
    before = bids.tail()
    clock.now += MINUTE
    assert apply_retention(bids, Retention(age="3 minutes")) == Position.of({0: 0, 1: 0})
    head = apply_retention(bids, Retention(age="90 seconds"))
    assert 0 not in dict(head.items()), "its successors have replaced it"
    clock.now += MINUTE
    fill(bids, 1, key="0")
    assert apply_retention(bids, Retention(age="1 minute")) == before
    clock.now += 2 * MINUTE
    assert apply_retention(bids, Retention(age="1 minute")) == before, "the newest append is kept"
    assert sum(state.length - state.start for state in bids.segments()) == 1


def test_retention_by_size_keeps_at_most_that_many_bytes(bids: Stream, clock: Clock) -> None:
    for _ in range(5):
        fill(bids, 50)
        clock.now += SECOND
    total = sum(state.bytes for state in bids.segments())
    apply_retention(bids, Retention(size=total))
    assert sum(state.bytes for state in bids.segments()) == total
    apply_retention(bids, Retention(size=total // 2))
    assert 0 < sum(state.bytes for state in bids.segments()) <= total // 2


def test_the_controller_applies_the_scaling_and_retention_settings(
    streams: Streams, tmp_path: Path, clock: Clock
) -> None:
    settings = StreamSettings(
        retention=Retention(age="1 minute"), scaling=ScalingPolicy(rate=1, window="1 minute")
    )
    stream = streams.create("shop/set", settings=settings, data=str(tmp_path))
    clock.now += MINUTE
    fill(stream, 300)
    controller = Controller(streams, housekeeping="30 seconds")
    controller.step()
    assert len(stream.epochs().active) == 5
    clock.now += 1
    fill(stream, 1)
    clock.now += 2 * MINUTE
    controller.step()
    assert sum(state.length - state.start for state in stream.segments()) == 1, "the newest append is kept"
    assert 0 not in dict(stream.head().items()), "the events of the first segment were removed"
