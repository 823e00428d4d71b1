"""Hosts with wrong clocks: leases, retention and collection follow the clock of the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slackwater.metadata import store_schema as schema
from slackwater.metadata.store import open_store
from slackwater.streams.log.catalog import BUCKETS, Stream, Streams
from slackwater.streams.log.reader_group import ReaderGroup
from slackwater.streams.log.transactions import TransactionalWriter
from slackwater.streams.log.writer import Batching, Writer
from slackwater.streams.maintenance.controller import Controller
from slackwater.streams.maintenance.retention import apply_retention
from slackwater.streams.settings import MarkSettings, Retention, StreamSettings
from slackwater.time import DAY, MINUTE, SECOND
from tests.streams.conftest import Clock
from tests.streams.logs import values

KEEP_A_WEEK = StreamSettings(retention=Retention(age="7 days"))

Host = Callable[[int], Streams]
"""The streams of the store, on a host whose clock is ahead by this much."""


@pytest.fixture
def on_host(store_url: str, clock: Clock) -> Iterator[Host]:
    with open_store(store_url, clock=clock) as store:
        yield lambda ahead: Streams(store, clock=lambda: clock.now + ahead)


@pytest.fixture
def bids(on_host: Host, tmp_path: Path) -> Stream:
    return on_host(0).create("shop/bids", data=str(tmp_path / "data"), settings=KEEP_A_WEEK)


def write(stream: Stream, *events: bytes) -> None:
    with Writer(stream) as writer:
        writer.write_many(events)


@pytest.mark.parametrize("ahead", [2 * DAY, 8 * DAY, -2 * DAY, -8 * DAY])
def test_a_controller_with_a_wrong_clock_deletes_nothing(
    on_host: Host, bids: Stream, clock: Clock, ahead: int
) -> None:
    write(bids, b"a")
    clock.now += MINUTE
    write(bids, b"b")
    Controller(on_host(ahead)).step()
    write(bids, b"c")
    assert values(bids) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("ahead", [2 * DAY, -2 * DAY])
def test_writers_with_a_wrong_clock_are_not_taken_for_old_or_new(
    on_host: Host, bids: Stream, clock: Clock, ahead: int, tmp_path: Path
) -> None:
    write(bids, b"a")
    clock.now += 8 * DAY
    Controller(on_host(0)).step()
    there = on_host(ahead).get("shop/bids")
    write(there, b"b")
    with TransactionalWriter(there) as writer:
        transaction = writer.begin()
        transaction.write(b"c")
        transaction.commit()
    assert values(bids) == [b"a", b"b", b"c"], "the newest append was kept"
    clock.now += 6 * DAY
    Controller(on_host(0)).step()
    assert values(bids) == [b"b", b"c"]


def test_a_writer_does_not_spin_behind_a_horizon_in_the_future(
    bids: Stream, clock: Clock, tmp_path: Path
) -> None:
    """As an earlier release with a fast clock, or a server whose clock was corrected, has left it."""
    ahead = schema.streams.update().values(collected_before=clock.now + 2 * DAY)
    bids.store.write(lambda connection: connection.execute(ahead))
    with Writer(bids, "w", batching=Batching(interval="1 hour")) as writer:
        for event in (b"a", b"b", b"c"):
            writer.write(event)
            writer.flush()
    assert values(bids) == [b"a", b"b", b"c"]
    assert len(list(tmp_path.rglob("*.arrow"))) == 3, "files that are written again are removed"


@pytest.mark.parametrize("retention", [Retention(size=1), Retention(age="1 second")])
def test_retention_keeps_the_newest_append(bids: Stream, clock: Clock, retention: Retention) -> None:
    for event in (b"a", b"b", b"c"):
        write(bids, event)
        clock.now += 10 * SECOND
    apply_retention(bids, retention)
    assert values(bids) == [b"c"]
    apply_retention(bids, retention)
    assert values(bids) == [b"c"]


def test_a_dead_controller_with_a_fast_clock_is_replaced_when_its_lease_ends(
    on_host: Host, clock: Clock
) -> None:
    Controller(on_host(2 * DAY), lease="15 seconds").step()
    here = Controller(on_host(0), lease="15 seconds")
    assert len(here.step().buckets) == BUCKETS // 2
    clock.now += 15 * SECOND
    assert len(here.step().buckets) == BUCKETS


def test_a_dead_reader_with_a_fast_clock_is_replaced_when_its_lease_ends(
    on_host: Host, bids: Stream, clock: Clock
) -> None:
    write(bids, b"a")
    there = on_host(2 * DAY).get("shop/bids")
    assert ReaderGroup(there, "g").reader("there", lease="10 seconds").position == {0: 0}
    here = ReaderGroup(bids, "g").reader("here", lease="10 seconds")
    assert here.position == {}
    clock.now += 10 * SECOND
    here.checkpoint()
    assert here.position == {0: 0}


def test_a_controller_with_a_wrong_clock_does_not_give_up_writers_early(
    on_host: Host, bids: Stream, clock: Clock
) -> None:
    bids.configure(StreamSettings(marks=MarkSettings(timeout="60 seconds")))
    here, there = Controller(on_host(0)), Controller(on_host(2 * DAY))
    with Writer(bids, "a") as first, Writer(bids, "b") as second:
        first.note_time(10)
        second.note_time(10)
        clock.now += 10 * SECOND
        here.step()
        first.note_time(20)
        for controller in (here, there):
            clock.now += 10 * SECOND
            controller.step()
        assert [mark.lower for mark in bids.marks()] == [10], "the second writer is waited for"


def test_a_controller_goes_on_when_the_clock_is_set_back(on_host: Host, bids: Stream, clock: Clock) -> None:
    controller = Controller(on_host(0))
    with Writer(bids, "w") as writer:
        writer.note_time(10)
        clock.now += DAY
        assert bids.id in controller.step().cycles
        clock.now -= DAY - 10 * SECOND
        assert bids.id in controller.step().cycles
