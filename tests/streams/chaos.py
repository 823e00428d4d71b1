"""Processes for the kill test: writers, readers and controllers that work until somebody kills them.

Each role is a function that a process of its own runs. What it has done is in files: numbers that a writer
knows to be acknowledged, and batches that a reader has stored before its checkpoint.
"""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

from slackwater.errors import ReaderReplaced
from slackwater.streams.log.catalog import Streams
from slackwater.streams.log.reader_group import ReaderGroup
from slackwater.streams.log.segment_reader import EventBatch
from slackwater.streams.log.writer import Batching, Writer
from slackwater.streams.maintenance.controller import Controller
from slackwater.time import MILLISECOND

STREAM: Final = "chaos/events"
GROUP: Final = "readers"
KEYS: Final = 5
AT_ONCE: Final = 20
PAUSE: Final = 0.05
"""So that the readers keep up: it is the crashes that are tested."""
BATCHES: Final = 30
"""How many are read before a checkpoint, and read again by whoever comes after a crash."""
_processes = multiprocessing.get_context("forkserver")


@dataclass(frozen=True)
class Place:
    """Where the processes meet."""

    url: str
    folder: Path

    def stopped(self) -> bool:
        return (self.folder / "stop").exists()

    def acknowledged(self, writer: str) -> int:
        try:
            return int((self.folder / f"{writer}.acknowledged").read_text(encoding="ascii"))
        except FileNotFoundError:
            return 0

    def put(self, name: str, text: str) -> None:
        """A whole file or none."""
        written = self.folder / f"{name}.{os.getpid()}.part"
        written.write_text(text, encoding="ascii")
        written.rename(self.folder / name)


def event(writer: str, number: int) -> tuple[bytes, str]:
    """The value and the routing key of a writer's event."""
    key = f"{writer}-{number % KEYS}"
    return f"{writer} {key} {number}".encode(), key


def write(place: Place, name: str) -> None:
    """Writes numbered events, and notes the number as the time, until there is a stop file."""
    with Streams.open(place.url) as streams:
        batching = Batching(interval=5 * MILLISECOND)
        with Writer(streams.get(STREAM), name, batching=batching) as writer:
            assert writer.last_event_number >= place.acknowledged(name)
            number = writer.last_event_number
            while not place.stopped():
                for number in range(number + 1, number + 1 + AT_ONCE):  # noqa: B020 - goes on where it was
                    writer.write(*event(name, number), number=number)
                writer.flush()
                place.put(f"{name}.acknowledged", str(number))
                assert writer.note_time(number) == "ok"
                time.sleep(PAUSE)


def read(place: Place, name: str) -> None:
    """Stores what it reads, batch by batch, then makes a checkpoint; until it is killed."""
    with Streams.open(place.url) as streams:
        group = ReaderGroup(streams.get(STREAM), GROUP)
        while True:
            try:
                reader = group.reader(name, lease="2 seconds")
                while True:
                    for _ in range(BATCHES):
                        if (batch := reader.read(wait=0.02)) is None:
                            break
                        store(place, batch)
                    reader.checkpoint()
            except ReaderReplaced:
                continue  # the machine was so busy that the others took it for dead


def store(place: Place, batch: EventBatch) -> None:
    """A file of the batch, named after where its events lie."""
    lines = b"\n".join(batch.events.column("value").to_pylist()).decode()
    place.put(f"{batch.segment}-{batch.first_offset}-{batch.end}.events", lines)


def control(place: Place, name: str) -> None:
    """Runs a controller until it is killed."""
    with Streams.open(place.url) as streams:
        Controller(streams, name=name, lease="1 second", poll="50 milliseconds").run()


ROLES: Final[dict[str, Callable[[Place, str], None]]] = {
    "writer": write,
    "reader": read,
    "controller": control,
}


def _work(place: Place, name: str) -> None:
    try:
        ROLES[name.partition("-")[0]](place, name)
    except BaseException:
        (place.folder / f"{name}.failure").write_text(traceback.format_exc(), encoding="utf-8")
        raise


@dataclass
class Crew:
    """The processes, by name, and how often each was killed."""

    place: Place
    processes: dict[str, BaseProcess] = field(default_factory=dict)
    killed: dict[str, int] = field(default_factory=dict)

    def start(self, name: str) -> None:
        process = _processes.Process(target=_work, args=(self.place, name), name=name, daemon=True)
        process.start()
        self.processes[name] = process

    def kill(self, name: str) -> bool:
        """Whether the process was alive, and now is not."""
        process = self.processes[name]
        if not process.is_alive():
            return False
        process.kill()
        process.join()
        self.killed[name] = self.killed.get(name, 0) + 1
        return True

    def failures(self) -> list[str]:
        """What processes said that ended by themselves and should not have."""
        return [path.read_text(encoding="utf-8") for path in sorted(self.place.folder.glob("*.failure"))]
