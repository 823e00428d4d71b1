"""Processes for the kill test: writers, readers and controllers that run until they are killed.

Each role is a function that runs in its own process. Files record what it has done: the numbers of
acknowledged events of a writer, and the batches that a reader stored before its checkpoint.
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

STREAM: Final = "chaos/events"
GROUP: Final = "readers"
KEYS: Final = 5
AT_ONCE: Final = 20
PAUSE: Final = 0.05
"""Pause of the writers, so that the readers keep up."""
BATCHES: Final = 30
"""Batches between two checkpoints of a reader; they are read again after a crash."""
_processes = multiprocessing.get_context("forkserver")


@dataclass(frozen=True)
class SharedFolder:
    """The store and the folder that the processes share."""

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
        """Write a file atomically."""
        written = self.folder / f"{name}.{os.getpid()}.part"
        written.write_text(text, encoding="ascii")
        written.rename(self.folder / name)


def event(writer: str, number: int) -> tuple[bytes, str]:
    """The value and the routing key of a writer's event."""
    key = f"{writer}-{number % KEYS}"
    return f"{writer} {key} {number}".encode(), key


def write(shared: SharedFolder, name: str) -> None:
    """Write numbered events and note each number as the time, until there is a stop file."""
    with Streams.open(shared.url) as streams:
        batching = Batching(interval="5 milliseconds")
        with Writer(streams.get(STREAM), name, batching=batching) as writer:
            assert writer.last_event_number >= shared.acknowledged(name)
            number = writer.last_event_number
            while not shared.stopped():
                for number in range(number + 1, number + 1 + AT_ONCE):  # noqa: B020 - goes on where it was
                    writer.write(*event(name, number), number=number)
                writer.flush()
                shared.put(f"{name}.acknowledged", str(number))
                assert writer.note_time(number) == "ok"
                time.sleep(PAUSE)


def read(shared: SharedFolder, name: str) -> None:
    """Store batches, then make a checkpoint, until killed."""
    with Streams.open(shared.url) as streams:
        group = ReaderGroup(streams.get(STREAM), GROUP)
        while True:
            try:
                reader = group.reader(name, lease="2 seconds")
                while True:
                    for _ in range(BATCHES):
                        if (batch := reader.read(wait=0.02)) is None:
                            break
                        store(shared, batch)
                    reader.checkpoint()
            except ReaderReplaced:
                continue  # the lease expired because the machine was busy


def store(shared: SharedFolder, batch: EventBatch) -> None:
    """Write the events of a batch to a file named by segment and offsets."""
    lines = b"\n".join(batch.events.column("value").to_pylist()).decode()
    shared.put(f"{batch.segment}-{batch.first_offset}-{batch.end}.events", lines)


def control(shared: SharedFolder, name: str) -> None:
    """Run a controller until killed."""
    with Streams.open(shared.url) as streams:
        Controller(streams, name=name, lease="1 second", poll="50 milliseconds").run()


ROLES: Final[dict[str, Callable[[SharedFolder, str], None]]] = {
    "writer": write,
    "reader": read,
    "controller": control,
}


def _work(shared: SharedFolder, name: str) -> None:
    try:
        ROLES[name.partition("-")[0]](shared, name)
    except BaseException:
        (shared.folder / f"{name}.failure").write_text(traceback.format_exc(), encoding="utf-8")
        raise


@dataclass
class Crew:
    """Processes by name, and how often each was killed."""

    shared: SharedFolder
    processes: dict[str, BaseProcess] = field(default_factory=dict)
    killed: dict[str, int] = field(default_factory=dict)

    def start(self, name: str) -> None:
        process = _processes.Process(target=_work, args=(self.shared, name), name=name, daemon=True)
        process.start()
        self.processes[name] = process

    def kill(self, name: str) -> bool:
        """Kill a process; return whether it was alive."""
        process = self.processes[name]
        if not process.is_alive():
            return False
        process.kill()
        process.join()
        self.killed[name] = self.killed.get(name, 0) + 1
        return True

    def failures(self) -> list[str]:
        """Tracebacks of processes that failed."""
        return [path.read_text(encoding="utf-8") for path in sorted(self.shared.folder.glob("*.failure"))]
