"""Outages of the database: writers and readers go on after a real PostgreSQL was stopped and started."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slackwater.errors import StoreUnreachable, WriteFailed
from slackwater.streams.log.catalog import Stream, Streams
from slackwater.streams.log.reader_group import ReaderGroup
from slackwater.streams.log.transactions import TransactionalWriter
from slackwater.streams.log.writer import Batching, Writer
from slackwater.streams.time.notes import NoteResult
from tests.spark.postgres import Server, running_server
from tests.streams.logs import values

pytestmark = [pytest.mark.proof, pytest.mark.postgres]


@pytest.fixture
def own_server() -> Iterator[Server]:
    with running_server() as running:
        yield running


@pytest.fixture
def bids(own_server: Server, tmp_path: Path) -> Iterator[Stream]:
    with Streams.open(own_server.create_database("streams"), create=True) as streams:
        yield streams.create("shop/bids", segments=2, data=str(tmp_path / "data"))


def test_writers_and_readers_survive_an_outage_of_two_seconds(bids: Stream, own_server: Server) -> None:
    reader = ReaderGroup(bids, "g").reader("r", lease="1 hour")
    writers = [Writer(bids, f"w{number}", automatically_note_time="50 milliseconds") for number in range(3)]
    transactional = TransactionalWriter(bids, "t")
    transaction = transactional.begin()
    transaction.write(b"t")
    stopped = threading.Event()
    sent: dict[str, int] = {}

    def write(writer: Writer) -> None:
        while not stopped.is_set():
            sent[writer.id] = writer.write(
                f"{writer.id}/{sent.get(writer.id, 0) + 1}".encode(), key=writer.id
            )
            time.sleep(0.002)
        writer.close()

    threads = [threading.Thread(target=write, args=(writer,)) for writer in writers]
    for thread in threads:
        thread.start()
    for _ in range(2):
        time.sleep(0.5)
        own_server.stop()
        time.sleep(2)
        own_server.start()
    assert transaction.commit() is NoteResult.OK
    stopped.set()
    for thread in threads:
        thread.join()
    transactional.close()
    wanted = [f"{name}/{number}".encode() for name, last in sent.items() for number in range(1, last + 1)]
    read = [value for batch in reader for value in batch.events.column("value").to_pylist()]
    assert sorted(read) == sorted([*wanted, b"t"]) == sorted(values(bids))
    for name, last in sent.items():
        mine = [value for value in read if value.startswith(name.encode())]
        assert mine == [f"{name}/{number}".encode() for number in range(1, last + 1)]


def test_a_writer_fails_when_its_timeout_is_over_and_buffers_no_more_than_allowed(
    bids: Stream, own_server: Server
) -> None:
    batching = Batching(bytes=1_000, buffered=10_000)
    writer = Writer(bids, "w", batching=batching, timeout="6 seconds")
    writer.write(b"a")
    writer.flush()
    own_server.stop()
    begun = time.monotonic()
    written = []

    def write_until_it_fails() -> None:
        while True:
            written.append(writer.write(b"x" * 500))

    with pytest.raises(WriteFailed, match=r"after number 1: .*is not available"):
        write_until_it_fails()
    assert time.monotonic() - begun >= 6
    assert len(written) < 30
    with pytest.raises(StoreUnreachable):
        bids.tail()
    own_server.start()
    with Writer(bids, "w") as again:
        assert again.last_event_number == 1
