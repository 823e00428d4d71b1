"""The simulated world: processes on a simulated clock, disk and network, and the faults that befall them."""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final

from sqlalchemy.engine import Engine
from sqlalchemy.exc import OperationalError

from slackwater.errors import (
    CommitUnknown,
    ReaderReplaced,
    StoreUnavailable,
    TransactionEnded,
    WriteFailed,
    WriterReplaced,
)
from slackwater.metadata.store import MetadataStore
from slackwater.simulation.disk import Disk
from slackwater.simulation.event_story import StoryLine
from slackwater.simulation.faults import FaultPlan
from slackwater.simulation.interposition import replaced_modules
from slackwater.simulation.scheduler import Crashed, Process, Scheduler, Task
from slackwater.simulation.simulated_database import Databases, Server
from slackwater.time import DAY, MILLISECOND, SECOND, instant

START: Final = instant("2030-01-01T00:00:00Z")
EXPECTED: Final = (
    StoreUnavailable,
    WriteFailed,
    WriterReplaced,
    ReaderReplaced,
    CommitUnknown,
    TransactionEnded,
    OperationalError,
    OSError,
)
"""Errors after which a process ends and is started again; any other error is a violation."""

_LATENCY: Final = 2 * MILLISECOND
_MOST_STEPS: Final = 60_000
"""Far more steps than a seed takes in which everything makes progress."""


class World:
    """One simulation.

    Args:
        seed: All choices follow from it.
        folder: An empty folder for the files.
        databases: The engine that all seeds share.
        faults: What fails, and how often; by default as the seed decides.
    """

    def __init__(
        self, seed: str, folder: Path, databases: Databases, *, faults: FaultPlan | None = None
    ) -> None:
        self.scheduler = Scheduler(seed, start=START)
        self.random: Random = self.scheduler.random
        self.plan = FaultPlan.of(self.random) if faults is None else faults
        self.story: list[StoryLine] = []
        self.violation: str | None = None
        self.faults: Counter[str] = Counter()
        self.is_faulty = False
        self.committed: Callable[[set[str]], None] = lambda changed: None
        """Called after every commit with the tables that it changed: the oracle."""
        self.largest_clock_error = 10 * DAY
        self._is_ending = False
        self._stalled: list[Task] = []
        self._pids = 1
        self._processes: dict[int, Process] = {}
        self.folder = folder
        self.data = folder / "data"
        self.data.mkdir()
        self.disk = Disk(self.data, point=self.point, is_alive=self.is_alive, random=self.random)
        path = folder / "store.db"
        shutil.copyfile(databases.empty, path)
        self.server = Server(
            self.scheduler, path, point=self.point, loses=self._loses, committed=self._committed
        )
        self._databases = databases
        self.scheduler.thread_failed = self._thread_failed

    # ---- time and story

    @property
    def now(self) -> int:
        """The true time."""
        return self.scheduler.now

    def tell(self, text: str, process: str | None = None) -> None:
        """Add a line to the story."""
        name = self.scheduler.current.process.name if process is None else process
        text = text.replace(str(self.folder), "…")  # another folder in every run
        self.scheduler.record(text)
        self.story.append(StoryLine(self.now - START, "" if name == "main" else name, text))

    def violate(self, text: str) -> None:
        """Report a broken promise; the first one ends the simulation."""
        if self.violation is None and not self._is_ending:
            self.tell(f"VIOLATION: {text}")
            self.violation = text
            self.scheduler.wake(self.scheduler.main)

    def sleep(self, shortest: int, longest: int) -> None:
        """Let the current process wait for a random time."""
        self.scheduler.pause(self.random.randint(shortest, longest), "think")

    # ---- processes

    @property
    def engine(self) -> Engine:
        """Connections to the database."""
        return self._databases.engine

    def store(self) -> MetadataStore:
        """Connect to the metadata store."""
        return self._databases.store(self.server)

    def is_alive(self, pid: int) -> bool:
        """Whether a process runs."""
        process = self._processes.get(pid)
        return process is not None and not process.is_dead

    def start(self, name: str, body: Callable[[], None], *, after: int = 0) -> None:
        """Start a process; when it is killed or fails, it starts again, until ``body`` has returned."""
        self._pids += 1
        error = min(self.plan.clock_error, self.largest_clock_error) if self.is_faulty else 0
        process = Process(name, pid=self._pids, clock_error=self.random.randint(-error, error))
        self._processes[process.pid] = process

        def run() -> None:
            try:
                self.scheduler.pause(after + 1, "start")
                body()
                self.tell("ends")
                process.is_dead = True
            except EXPECTED as failure:
                self.tell(f"fails: {type(failure).__name__}: {_first_line(failure)}")
                self._restart(process, body)
            except Crashed:
                self._restart(process, body)
            except Exception as failure:  # any other error breaks a promise
                self.violate(f"{name} failed: {type(failure).__name__}: {failure}")
                self._restart(process, body)

        self.scheduler.spawn(name, process, run)

    def _restart(self, process: Process, body: Callable[[], None]) -> None:
        self.scheduler.kill(process)
        if not self._is_ending:
            self.start(process.name, body, after=self.random.randint(1 * SECOND, 10 * SECOND))

    def kill(self, process: Process, why: str) -> None:
        """Kill a process."""
        self.faults["crash"] += 1
        self.tell(f"is killed {why}", process.name)
        self.scheduler.kill(process)

    def _thread_failed(self, task: Task, error: Exception) -> None:
        self.tell(f"thread ends: {type(error).__name__}: {_first_line(error)}", task.process.name)

    # ---- faults

    def point(self, label: str) -> None:
        """A point at which the current process may be delayed, stand still, or be killed."""
        scheduler = self.scheduler
        process = scheduler.current.process
        if process.is_dead:
            raise Crashed
        if process.is_protected:
            return
        if scheduler.steps > _MOST_STEPS:
            self.violate(f"no end after {_MOST_STEPS} steps: processes work without progress")
        delay = int(self.random.random() * _LATENCY)
        if self.is_faulty:
            draw, plan = self.random.random(), self.plan
            if draw < plan.crash:
                self.kill(process, f"at {label}")
                raise Crashed
            if draw > 1 - plan.stall:
                self._stand_still(label)
        scheduler.pause(delay, label)

    def _stand_still(self, label: str) -> None:
        delay = self.random.randint(1, self.plan.longest_stall)
        self.faults["stall"] += 1
        self.tell(f"stands still for {delay / SECOND:.1f} s at {label}")
        self._stalled.append(self.scheduler.current)
        try:
            self.scheduler.suspend(delay)
        finally:
            self._stalled.remove(self.scheduler.current)

    def _loses(self, verb: str) -> bool:
        if not self.is_faulty or self.scheduler.current.process.is_protected:
            return False
        chance = self.plan.lost_response if verb == "response" else self.plan.lost_request
        if self.random.random() >= chance:
            return False
        kind = "lost response" if verb == "response" else "lost connection"
        self.faults[kind] += 1
        self.tell(f"{kind} at {'COMMIT' if verb == 'response' else verb}")
        return True

    def _committed(self, changed: set[str]) -> None:
        if self.violation is None:
            self.committed(changed)

    def _nemesis(self, every: int, strike: Callable[[], None]) -> None:
        while self.is_faulty:
            self.scheduler.pause(int(self.random.expovariate(1 / every)), "nemesis")
            if self.is_faulty:
                strike()

    def _restart_database(self) -> None:
        outage = self.random.randint(0, self.plan.longest_outage)
        self.faults["database restart"] += 1
        self.tell(f"restarts, and is away for {outage / SECOND:.1f} s", "database")
        self.server.restart()
        self.server.is_down = True
        self.scheduler.pause(outage, "outage")
        self.server.is_down = False

    def _lose_power(self) -> None:
        for process in list(self._processes.values()):
            if not process.is_dead:
                self.scheduler.kill(process)
        self.scheduler.pause(1, "unwind")
        lost = self.disk.fail()
        self.faults["power failure"] += 1
        self.tell(f"loses power: all processes end, {lost} unflushed files and folders suffer", "machine")

    def _fill_disk(self) -> None:
        self.faults["full disk"] += 1
        self.disk.is_full = True
        self.tell("is full", "disk")
        self.scheduler.pause(self.random.randint(SECOND, 30 * SECOND), "full")
        self.disk.is_full = False
        self.tell("has space again", "disk")

    # ---- running

    @contextmanager
    def running(self) -> Iterator[None]:
        """Replace the surroundings of the library for the duration of a block; then end all processes."""
        self._databases.server = self.server
        logger = logging.getLogger("slackwater")
        was_disabled, logger.disabled = logger.disabled, True
        logging.disable(logging.CRITICAL)
        try:
            with replaced_modules(self.scheduler, self.disk, self.engine):
                try:
                    yield
                finally:
                    self._end()
        finally:
            logger.disabled = was_disabled
            logging.disable(logging.NOTSET)
            self._databases.engine.dispose()
            self._databases.server = None

    def run_for(
        self, duration: int, *, until: Callable[[], bool] = lambda: False, poll: int = SECOND
    ) -> bool:
        """Let the processes run for a time, or until something holds; returns whether it does."""
        end = self.now + duration
        while self.now < end and self.violation is None:
            if until():
                return True
            self.scheduler.park(min(end, self.now + poll))
        return until()

    def begin_faults(self, *, rarer: int = 1) -> None:
        """Let things fail from now on; restarts, power failures and full disks are rarer by a factor."""
        self.is_faulty = True
        strikes = (
            (self.plan.restart_every, self._restart_database),
            (self.plan.power_failure_every, self._lose_power),
            (self.plan.full_disk_every, self._fill_disk),
        )
        for every, strike in strikes:
            if every is not None:
                self.scheduler.spawn(
                    "nemesis", self.scheduler.main.process, self._bound(every * rarer, strike)
                )

    def _bound(self, every: int, strike: Callable[[], None]) -> Callable[[], None]:
        return lambda: self._nemesis(every, strike)

    def heal(self) -> None:
        """End all faults: the disk has space, the database answers, and clocks are right."""
        self.is_faulty = False
        self.server.is_down = False
        self.disk.is_full = False
        for process in self._processes.values():
            process.clock_error = 0
        for task in self._stalled:
            self.scheduler.wake(task)
        self.tell("all faults end", "")

    def _end(self) -> None:
        self._is_ending = True
        self.is_faulty = False
        for process in self._processes.values():
            self.scheduler.kill(process)
        nemeses = self.scheduler.main.process.tasks
        while any(process.tasks for process in self._processes.values()) or nemeses:
            self.scheduler.pause(10 * SECOND, "end")


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
