"""Transactions: atomic commits, with and without a time, across scaling and lost responses."""

from __future__ import annotations

from time import monotonic, sleep
from typing import Any

import pyarrow as pa
import pytest

from slackwater.errors import (
    CommitUnknown,
    InvalidArgument,
    StoreUnavailable,
    StreamError,
    TransactionEnded,
    WriterClosed,
    WriterReplaced,
)
from slackwater.streams.log.catalog import Stream
from slackwater.streams.log.transactions import TransactionalWriter
from slackwater.streams.log.writer import Batching, Writer, stage_batch
from slackwater.streams.maintenance.file_collection import collect_orphans
from slackwater.streams.segments.routing import Routing, points_of
from slackwater.streams.time.notes import NoteResult
from slackwater.time import DAY, HOUR, SECOND
from tests.streams.conftest import Clock
from tests.streams.logs import content, merge, split, values
from tests.streams.test_writer import marks_of

KEYS = [str(number) for number in range(40)]
EVENTS = [key.encode() for key in KEYS]


def test_events_appear_at_the_commit_in_all_segments(bids: Stream) -> None:
    with TransactionalWriter(bids, "t") as writer:
        transaction = writer.begin()
        for event in EVENTS:
            transaction.write(event, key=event)
        transaction.flush()
        assert values(bids) == []
        assert transaction.commit() is NoteResult.OK
        assert transaction.state == "committed"
        assert sorted(content(bids)) == [0, 1]
        assert sorted(values(bids)) == sorted(EVENTS)
        assert marks_of(bids) == []


def test_an_aborted_transaction_never_becomes_visible_and_its_files_are_collected(
    bids: Stream, clock: Clock
) -> None:
    with TransactionalWriter(bids, "t") as writer:
        transaction = writer.begin()
        transaction.write_many(EVENTS, keys=KEYS)
        transaction.flush()
        transaction.abort()
        for use in (
            transaction.commit,
            transaction.abort,
            transaction.flush,
            lambda: transaction.write(b"x"),
        ):
            with pytest.raises(TransactionEnded, match="is aborted; begin a new one"):
                use()
    clock.now += 2 * DAY
    assert len(collect_orphans(bids)) == 1
    assert values(bids) == []


def test_a_transaction_expires_at_exactly_its_time(bids: Stream, clock: Clock) -> None:
    with TransactionalWriter(bids, "t", expires_after="10 seconds") as writer:
        first, second = writer.begin(), writer.begin()
        for transaction in (first, second):
            transaction.write(b"a")
        clock.now += 10 * SECOND - 1
        assert first.commit() is NoteResult.OK
        clock.now += 1
        with pytest.raises(TransactionEnded, match="is expired"):
            second.commit()
    assert values(bids) == [b"a"]


def test_several_transactions_can_be_open_and_commit_in_any_order(bids: Stream) -> None:
    with TransactionalWriter(bids, "t") as writer:
        first, second = writer.begin(), writer.begin()
        first.write(b"first", key="k")
        second.write(b"second", key="k")
        second.commit()
        first.commit()
        assert writer.last_event_number == 2
    assert values(bids) == [b"second", b"first"]


def test_a_commit_notes_its_time_with_the_position_where_it_was_committed(bids: Stream) -> None:
    with TransactionalWriter(bids, "t") as writer:
        for time in (5, 9):
            transaction = writer.begin()
            transaction.write_many(EVENTS, keys=KEYS)
            assert transaction.commit(time) is NoteResult.OK
        assert marks_of(bids) == [("t", 9, dict(bids.tail().items()), False)]
    assert marks_of(bids)[0][3]


def test_an_invalid_time_commits_nothing_and_can_be_corrected(bids: Stream) -> None:
    with TransactionalWriter(bids, "t") as writer:
        writer.begin().commit(9)
        transaction = writer.begin()
        transaction.write(b"a")
        assert transaction.commit(8) is NoteResult.INVALID_TIME
        assert (transaction.state, values(bids)) == ("open", [])
        assert transaction.commit(9) is NoteResult.OK
    assert values(bids) == [b"a"]


@pytest.mark.parametrize("flushed", [True, False])
def test_events_follow_their_keys_through_scaling_before_the_commit(bids: Stream, flushed: bool) -> None:
    with Writer(bids) as before:
        before.write_many([b"0/" + event for event in EVENTS], keys=KEYS)
    with TransactionalWriter(bids, "t", batching=Batching(bytes=50)) as writer:
        transaction = writer.begin()
        for place in (b"1", b"2", b"3"):
            transaction.write_many([place + b"/" + event for event in EVENTS], keys=KEYS)
        if flushed:
            transaction.flush()
        split(bids, 0)
        merge(bids, 1)
        split(bids, 1)
        assert transaction.commit() is NoteResult.OK
    with Writer(bids) as after:
        after.write_many([b"4/" + event for event in EVENTS], keys=KEYS)
    by_key: dict[bytes, bytes] = {}
    for value in values(bids):
        part, _, key = value.partition(b"/")
        by_key[key] = by_key.get(key, b"") + part
    assert by_key == dict.fromkeys(EVENTS, b"01234")
    routing = Routing(bids.epochs())
    active = {segment.id for segment in bids.epochs().active}
    for segment, found in content(bids).items():
        if segment in active:
            keys = [value.partition(b"/")[2] for value in found]
            assert set(routing.segments(points_of(keys))) == {segment}


def test_a_commit_whose_response_was_lost_is_stored_once(
    bids: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, original = bids.store, bids.store.write
    repeated: list[int] = []

    def write(work: Any, *, repeatable: bool = False) -> Any:
        result = original(work, repeatable=repeatable)
        if repeatable:
            repeated.append(1)
            return original(work, repeatable=repeatable)
        return result

    with TransactionalWriter(bids, "t") as writer:
        transaction = writer.begin()
        transaction.write_many(EVENTS, keys=KEYS)
        monkeypatch.setattr(store, "write", write)
        assert transaction.commit(5) is NoteResult.OK
        monkeypatch.undo()
        assert (repeated, writer.last_event_number) == ([1], 1)
    assert sorted(values(bids)) == sorted(EVENTS)


@pytest.mark.parametrize("stored", [True, False])
def test_after_a_commit_of_unknown_outcome_no_other_commit_uses_its_number(
    bids: Stream, monkeypatch: pytest.MonkeyPatch, stored: bool
) -> None:
    store, original = bids.store, bids.store.write

    def write(work: Any, *, repeatable: bool = False) -> Any:
        if stored:
            original(work, repeatable=repeatable)
        raise StoreUnavailable("the test", "gone, before or after the commit")

    writer = TransactionalWriter(bids, "t")
    first, second = writer.begin(), writer.begin()
    first.write_many(EVENTS, keys=KEYS)
    second.write(b"second")
    monkeypatch.setattr(store, "write", write)
    with pytest.raises(StoreUnavailable):
        first.commit()
    monkeypatch.undo()
    for use in (second.commit, first.abort):
        with pytest.raises(CommitUnknown):
            use()
    assert (len(values(bids)), first.state, second.state) == (len(EVENTS) if stored else 0, "open", "open")
    assert [first.commit(), second.commit()] == [NoteResult.OK, NoteResult.OK]
    assert sorted(values(bids)) == sorted([*EVENTS, b"second"])
    assert TransactionalWriter(bids, "t").last_event_number == 2


def test_numbered_commits_of_staged_files_are_stored_once(bids: Stream, clock: Clock) -> None:
    batch = pa.record_batch([EVENTS], schema=bids.columns)
    for _ in range(2):  # the second time as after a restart: the same batch, other files
        staged = stage_batch(bids, Routing(bids.epochs()), batch, points_of(KEYS), transaction=True)
        with TransactionalWriter(bids, "query") as writer:
            assert writer.commit_staged(staged, time=7, number=1) is NoteResult.OK
            assert writer.last_event_number == 1
    assert sorted(values(bids)) == sorted(EVENTS)
    with TransactionalWriter(bids, "query") as writer:
        assert writer.commit_staged([], number=2) is NoteResult.OK
        assert writer.last_event_number == 2
        clock.now += 2 * DAY
        old = stage_batch(bids, Routing(bids.epochs()), batch, points_of(KEYS), transaction=True)
        clock.now += 2 * DAY
        collect_orphans(bids)
        with pytest.raises(StreamError, match="may have deleted them; write the events again"):
            writer.commit_staged(old, number=3)
    assert sorted(values(bids)) == sorted(EVENTS)


def test_the_old_name_of_commit_staged_is_deprecated(bids: Stream) -> None:
    with TransactionalWriter(bids, "t") as writer:
        with pytest.deprecated_call(match="commit_staged"):
            assert writer.commit_parts([], number=1) is NoteResult.OK
        assert writer.last_event_number == 1


def test_a_replaced_writer_cannot_commit(bids: Stream) -> None:
    old = TransactionalWriter(bids, "t")
    transaction = old.begin()
    transaction.write(b"a")
    with TransactionalWriter(bids, "t") as new:
        assert new.last_event_number == 0
    with pytest.raises(WriterReplaced):
        transaction.commit()
    assert values(bids) == []


def test_closing_the_writer_ends_its_open_transactions(bids: Stream) -> None:
    writer = TransactionalWriter(bids, "t")
    flushed, pending = writer.begin(), writer.begin()
    for transaction in (flushed, pending):
        transaction.write(b"a")
    flushed.flush()
    writer.close()
    writer.close()
    for transaction in (flushed, pending):
        assert transaction.state == "closed"
        for use in (transaction.commit, transaction.flush, transaction.abort):
            with pytest.raises(TransactionEnded, match="is closed; begin a new one"):
                use()
        with pytest.raises(TransactionEnded):
            transaction.write(b"b")
    for attempt in (writer.begin, lambda: writer.commit_staged([], number=7)):
        with pytest.raises(WriterClosed):
            attempt()
    assert values(bids) == []
    with TransactionalWriter(bids, "t") as again:
        assert again.last_event_number == 0


def wait_for_note(stream: Stream, time: int) -> None:
    deadline = monotonic() + 20
    while not (found := marks_of(stream)) or found[0][1] < time:
        assert monotonic() < deadline, found
        sleep(0.005)


def test_time_is_noted_automatically_up_to_the_begin_of_open_transactions(bids: Stream, clock: Clock) -> None:
    begun = clock.now
    with TransactionalWriter(bids, "t", automatically_note_time="5 milliseconds") as writer:
        first = writer.begin()
        clock.now += SECOND
        second = writer.begin()
        first.write_many(EVENTS, keys=KEYS)
        wait_for_note(bids, begun)
        sleep(0.05)
        assert marks_of(bids) == [("t", begun, {}, False)], "events of the first transaction may be that old"
        assert first.commit() is NoteResult.OK
        wait_for_note(bids, begun + SECOND)
        clock.now += SECOND
        second.abort()
        wait_for_note(bids, clock.now)
        assert marks_of(bids)[0][:3] == ("t", clock.now, dict(bids.tail().items()))
        dropped = writer.begin()
        clock.now += HOUR  # an expired transaction does not hold the time back
        wait_for_note(bids, clock.now)
        assert dropped.state == "expired"
        with pytest.raises(InvalidArgument, match="notes time automatically"):
            writer.begin().commit(5)
        with pytest.raises(InvalidArgument, match="notes time automatically"):
            writer.commit_staged([], number=9)
    assert marks_of(bids)[0][3]


def test_invalid_arguments_are_rejected(bids: Stream) -> None:
    with pytest.raises(InvalidArgument, match="must be greater than zero"):
        TransactionalWriter(bids, expires_after="0 seconds")
    with TransactionalWriter(bids) as writer:
        transaction = writer.begin()
        with pytest.raises(InvalidArgument, match="is not a valid routing key"):
            transaction.write(b"a", key=5)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="column 'value' of type binary"):
            transaction.write(5)
        transaction.commit()
    assert writer.expires_after == HOUR
    assert values(bids) == []
