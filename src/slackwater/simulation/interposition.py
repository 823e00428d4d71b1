"""Replaces the modules of the standard library that the library's modules use, while a simulation runs.

A module of the library that has imported `time`, `threading`, `uuid`, `random`, `os` or `fcntl` finds a
simulated one under the same name, and `temporary_engine` reaches the simulated database. Threads that do not
belong to the simulation still reach the real modules.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from types import ModuleType
from typing import Any, Final

from sqlalchemy.engine import URL, Engine

from slackwater.simulation.disk import Disk
from slackwater.simulation.scheduler import Scheduler
from slackwater.simulation.thread_objects import (
    SimulatedCondition,
    SimulatedEvent,
    SimulatedExecutor,
    SimulatedLock,
    SimulatedThread,
)
from slackwater.sql.database import READ_ONLY, temporary_engine
from slackwater.time import MILLISECOND, SECOND

_ROOT: Final = "slackwater"
_OWN: Final = "slackwater.simulation"
_LOCK_POLL: Final = 20 * MILLISECOND
_LONGEST_LOCK_POLL: Final = 10 * SECOND
"""The task that holds a lock may stand still for hours, which must not take a million steps."""


class _Replaced:
    """A simulated module: what it does not define comes from the real one."""

    def __init__(self, real: ModuleType, scheduler: Scheduler) -> None:
        self._real = real
        self._scheduler = scheduler

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _Time(_Replaced):
    def time_ns(self) -> int:
        scheduler = self._scheduler
        if not scheduler.is_simulated():
            return time.time_ns()
        return (scheduler.now + scheduler.current.process.clock_error) * 1_000

    def time(self) -> float:
        return self.time_ns() / 1e9

    def monotonic(self) -> float:
        return self._scheduler.now / SECOND if self._scheduler.is_simulated() else time.monotonic()

    def perf_counter(self) -> float:
        return self.monotonic()

    def sleep(self, seconds: float) -> None:
        if self._scheduler.is_simulated():
            self._scheduler.pause(int(max(0.0, seconds) * SECOND), "sleep")
        else:
            time.sleep(seconds)


class _Threading(_Replaced):
    def Lock(self) -> Any:  # noqa: N802 - the name in threading
        return SimulatedLock(self._scheduler) if self._scheduler.is_simulated() else threading.Lock()

    def RLock(self) -> Any:  # noqa: N802 - the name in threading
        if self._scheduler.is_simulated():
            return SimulatedLock(self._scheduler, reentrant=True)
        return threading.RLock()

    def Condition(self, lock: Any = None) -> Any:  # noqa: N802 - the name in threading
        if self._scheduler.is_simulated():
            return SimulatedCondition(self._scheduler, lock)
        return threading.Condition(lock)

    def Event(self) -> Any:  # noqa: N802 - the name in threading
        return SimulatedEvent(self._scheduler) if self._scheduler.is_simulated() else threading.Event()

    def Thread(self, *, target: Any, daemon: bool | None = None, **options: Any) -> Any:  # noqa: N802 - the name in threading
        if self._scheduler.is_simulated():
            return SimulatedThread(self._scheduler, target, **options)
        return threading.Thread(target=target, daemon=daemon, **options)


class _Uuid(_Replaced):
    def uuid4(self) -> uuid.UUID:
        if self._scheduler.is_simulated():
            return uuid.UUID(int=self._scheduler.random.getrandbits(128), version=4)
        return uuid.uuid4()


class _Random(_Replaced):
    def uniform(self, low: float, high: float) -> float:
        if self._scheduler.is_simulated():
            return self._scheduler.random.uniform(low, high)
        return random.uniform(low, high)  # noqa: S311 - passes on


class _Os(_Replaced):
    def __init__(self, real: ModuleType, scheduler: Scheduler, disk: Disk) -> None:
        super().__init__(real, scheduler)
        self._disk = disk

    def open(self, path: Any, flags: int, mode: int = 0o777, **options: Any) -> int:
        if self._scheduler.is_simulated():
            return self._disk.open(os.fspath(path), flags, mode)
        return os.open(path, flags, mode, **options)

    def write(self, descriptor: int, content: Any) -> int:
        if self._scheduler.is_simulated():
            return self._disk.write(descriptor, content)
        return os.write(descriptor, content)

    def fsync(self, descriptor: int) -> None:
        if self._scheduler.is_simulated():
            self._disk.fsync(descriptor)
        else:
            os.fsync(descriptor)

    def close(self, descriptor: int) -> None:
        if self._scheduler.is_simulated():
            self._disk.close(descriptor)
        else:
            os.close(descriptor)

    def getpid(self) -> int:
        return self._scheduler.current.process.pid if self._scheduler.is_simulated() else os.getpid()

    def kill(self, pid: int, number: int) -> None:
        if not self._scheduler.is_simulated():
            os.kill(pid, number)
        elif not self._disk.is_alive(pid):
            raise ProcessLookupError(errno.ESRCH, "no such process")


class _Fcntl(_Replaced):
    def flock(self, descriptor: int, operation: int) -> None:
        if not self._scheduler.is_simulated():
            fcntl.flock(descriptor, operation)
            return
        poll = _LOCK_POLL
        while True:
            try:
                fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
            except BlockingIOError:
                self._scheduler.pause(poll, "flock")
                poll = min(2 * poll, _LONGEST_LOCK_POLL)
            else:
                return


_REAL: Final[dict[str, Any]] = {
    "time": time,
    "threading": threading,
    "uuid": uuid,
    "random": random,
    "os": os,
    "fcntl": fcntl,
    "ThreadPoolExecutor": ThreadPoolExecutor,
    "temporary_engine": temporary_engine,
}


@lru_cache(maxsize=1)
def _uses(_: int) -> list[tuple[ModuleType, str, str]]:
    """The names under which modules of the library hold one of the real modules.

    Computed again when the number of loaded modules has changed.
    """
    wanted = {id(thing): name for name, thing in _REAL.items()}
    found = []
    for name, module in sorted(sys.modules.items()):
        inside = name == _ROOT or name.startswith(f"{_ROOT}.")
        if inside and not name.startswith(_OWN):
            held = vars(module).items()
            found += [
                (module, attribute, wanted[id(value)]) for attribute, value in held if id(value) in wanted
            ]
    return found


@contextmanager
def replaced_modules(scheduler: Scheduler, disk: Disk, engine: Engine) -> Iterator[None]:
    """Let the library's modules use simulated time, threads, ids and files for the duration of a block."""

    @contextmanager
    def simulated_engine(_: URL, *, read_only: bool = False) -> Iterator[Engine]:
        yield engine.execution_options(**{READ_ONLY: read_only})

    simulated: dict[str, Any] = {
        "time": _Time(time, scheduler),
        "threading": _Threading(threading, scheduler),
        "uuid": _Uuid(uuid, scheduler),
        "random": _Random(random, scheduler),
        "os": _Os(os, scheduler, disk),
        "fcntl": _Fcntl(fcntl, scheduler),
        "ThreadPoolExecutor": lambda workers: SimulatedExecutor(scheduler, workers),
        "temporary_engine": simulated_engine,
    }
    uses = _uses(len(sys.modules))
    for module, attribute, name in uses:
        setattr(module, attribute, simulated[name])
    try:
        yield
    finally:
        for module, attribute, name in uses:
            setattr(module, attribute, _REAL[name])
