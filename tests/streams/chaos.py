"""Processes for the kill test: writers, readers and controllers that run until they are killed.

Each role is a function that runs in its own process. Files record what it has done: the numbers of
acknowledged events of a writer, the batches that a reader stored before its checkpoint, and a history of all
operations.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

from slackwater.errors import ReaderReplaced, SlackwaterError
from slackwater.streams.log.catalog import Streams
from slackwater.streams.log.reader_group import ReaderGroup
from slackwater.streams.log.segment_reader import EventBatch
from slackwater.streams.log.writer import Batching, Writer
from slackwater.streams.maintenance.controller import Controller
from tests.streams.histories import Event, Recorder, recorded_cut, recorded_mark

STREAM: Final = "chaos/events"
GROUP: Final = "readers"
KEYS: Final = 5
AT_ONCE: Final = 20
PAUSE: Final = 0.05
"""Pause of the writers, so that the readers keep up."""
BATCHES: Final = 30
"""Batches between two checkpoints of a reader; they are read again after a crash."""
DISORDER: Final = 4
"""Event times are out of order by at most this much."""
POLL: Final = 0.05
"""Pause of a controller between two steps."""
LOOK: Final = 0.2
"""Pause of an observer."""
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

    def recorder(self, name: str) -> Recorder:
        """The history of a process."""
        return Recorder(self.folder, name)


def event(writer: str, number: int) -> Event:
    """An event of a writer; the same whenever it is written again."""
    behind = number * 7919 % (DISORDER + 1)
    return Event(writer, f"{writer}-{number % KEYS}", number, number - behind)


def write(shared: SharedFolder, name: str) -> None:
    """Write numbered events, and note a time that no later one is below, until there is a stop file."""
    history = shared.recorder(name)
    with Streams.open(shared.url) as streams:
        batching = Batching(interval="5 milliseconds")
        with Writer(streams.get(STREAM), name, batching=batching) as writer:
            assert writer.last_event_number >= shared.acknowledged(name)
            number = writer.last_event_number
            while not shared.stopped():
                first, number = number + 1, number + AT_ONCE
                with history.operation("append", writer=name, first=first, last=number):
                    for written in (event(name, one) for one in range(first, number + 1)):
                        writer.write(written.value(), written.key, number=written.number)
                    writer.flush()
                shared.put(f"{name}.acknowledged", str(number))
                at = number + 1 - DISORDER
                with history.operation("note", writer=name, time=at, after=number) as note:
                    note.value = writer.note_time(at)
                assert note.value == "ok"
                time.sleep(PAUSE)
            with history.operation("close", writer=name):
                writer.close()


def read(shared: SharedFolder, name: str) -> None:
    """Store batches, then make a checkpoint, until killed."""
    history = shared.recorder(name)
    with Streams.open(shared.url) as streams:
        group = ReaderGroup(streams.get(STREAM), GROUP)
        while True:
            try:
                reader = group.reader(name, lease="2 seconds")
                while True:
                    for _ in range(BATCHES):
                        with history.operation("read") as read:
                            batch = reader.read(wait=0.02)
                            read.value = None if batch is None else recorded_batch(batch)
                        if batch is None:
                            break
                        store(shared, batch)
                    reader.checkpoint()
            except ReaderReplaced:
                continue  # the lease expired because the machine was busy


def recorded_batch(batch: EventBatch) -> dict[str, Any]:
    """A batch as a history contains it."""
    values = [value.decode() for value in batch.events.column("value").to_pylist()]
    return {"segment": batch.segment, "first": batch.first_offset, "values": values}


def store(shared: SharedFolder, batch: EventBatch) -> None:
    """Write the events of a batch to a file named by segment and offsets."""
    lines = b"\n".join(batch.events.column("value").to_pylist()).decode()
    shared.put(f"{batch.segment}-{batch.first_offset}-{batch.end}.events", lines)


def control(shared: SharedFolder, name: str) -> None:
    """Run a controller until killed."""
    history = shared.recorder(name)
    with Streams.open(shared.url) as streams:
        controller = Controller(streams, name=name, lease="1 second")
        while True:
            with suppress(SlackwaterError), history.operation("cycle") as cycle:
                decisions = controller.step().cycles.values()
                cycle.value = [recorded_mark(one.mark) for one in decisions if one.mark is not None]
            time.sleep(POLL)


def observe(shared: SharedFolder, name: str) -> None:
    """Look at marks, cuts and the window of the group, until killed."""
    history, chance = shared.recorder(name), random.Random(name)
    with Streams.open(shared.url) as streams:
        stream = streams.get(STREAM)
        group = ReaderGroup(stream, GROUP)
        while True:
            with history.operation("marks") as found:
                marks = stream.marks()
                found.value = [recorded_mark(mark) for mark in marks]
            if marks:
                at = chance.randint(marks[0].lower - 1, marks[-1].upper + 1)
                with history.operation("cut_at", time=at) as found:
                    found.value = recorded_cut(stream.cut_at(at))
            with history.operation("window") as found:
                window = group.current_time_window()
                found.value = {"lower": window.lower, "upper": window.upper}
            time.sleep(LOOK)


ROLES: Final[dict[str, Callable[[SharedFolder, str], None]]] = {
    "writer": write,
    "reader": read,
    "controller": control,
    "observer": observe,
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
