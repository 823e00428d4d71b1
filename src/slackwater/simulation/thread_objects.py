"""Threads, locks, conditions and events on the simulated clock, with the interface of `threading`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from slackwater.simulation.scheduler import Crashed, Scheduler, Task
from slackwater.time import SECOND

Result = TypeVar("Result")

_LONGEST_WAKE = 200
"""Microseconds within which a task that was woken continues."""


class SimulatedLock:
    """A lock; released by any task, so that it can also belong to a connection.

    >>> scheduler = Scheduler("1", start=0)
    >>> with SimulatedLock(scheduler) as held:
    ...     held
    True
    """

    def __init__(self, scheduler: Scheduler, *, reentrant: bool = False) -> None:
        self._scheduler = scheduler
        self._reentrant = reentrant
        self._owner: Task | None = None
        self._depth = 0
        self._waiting: list[Task] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Wait for the lock."""
        scheduler = self._scheduler
        task = scheduler.current
        if task.process.is_dead:
            raise Crashed
        if self._reentrant and self._owner is task:
            self._depth += 1
            return True
        until = None if timeout < 0 else scheduler.now + _micros(timeout)
        while self._owner is not None:
            if not blocking or (until is not None and scheduler.now >= until):
                return False
            self._waiting.append(task)
            scheduler.park(until)
        self._owner, self._depth = task, 1
        return True

    def release(self) -> None:
        """Release the lock; a killed process may still do that."""
        self._depth -= 1
        if self._depth > 0:
            return
        self._owner = None
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            self._scheduler.wake(task, self._scheduler.random.randrange(_LONGEST_WAKE))

    def locked(self) -> bool:
        """Whether a task holds the lock."""
        return self._owner is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class SimulatedCondition:
    """A condition variable."""

    def __init__(self, scheduler: Scheduler, lock: SimulatedLock | None = None) -> None:
        self._scheduler = scheduler
        self._lock = lock or SimulatedLock(scheduler)
        self._waiting: list[Task] = []
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def wait(self, timeout: float | None = None) -> bool:
        """Release the lock, and wait for a notification or the end of the time."""
        scheduler = self._scheduler
        task = scheduler.current
        self._waiting.append(task)
        self._lock.release()
        scheduler.park(None if timeout is None else scheduler.now + _micros(timeout))
        notified = task not in self._waiting
        if not notified:
            self._waiting.remove(task)
        self._lock.acquire()
        return notified

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        """Wait until a predicate holds."""
        until = None if timeout is None else self._scheduler.now + _micros(timeout)
        while not (result := predicate()):
            if until is not None and self._scheduler.now >= until:
                break
            self.wait(None if until is None else (until - self._scheduler.now) / SECOND)
        return result

    def notify(self, n: int = 1) -> None:
        """Wake some of the waiting tasks."""
        woken, self._waiting = self._waiting[:n], self._waiting[n:]
        for task in woken:
            self._scheduler.wake(task, self._scheduler.random.randrange(_LONGEST_WAKE))

    def notify_all(self) -> None:
        """Wake all waiting tasks."""
        self.notify(len(self._waiting))

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class SimulatedEvent:
    """An event."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._is_set = False
        self._waiting: list[Task] = []

    def is_set(self) -> bool:
        """Whether the event is set."""
        return self._is_set

    def set(self) -> None:
        """Set the event, and wake all waiting tasks."""
        self._is_set = True
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            self._scheduler.wake(task, self._scheduler.random.randrange(_LONGEST_WAKE))

    def clear(self) -> None:
        """Clear the event."""
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the event is set, or for a time."""
        scheduler = self._scheduler
        until = None if timeout is None else scheduler.now + _micros(timeout)
        while not self._is_set and (until is None or scheduler.now < until):
            self._waiting.append(scheduler.current)
            scheduler.park(until)
        return self._is_set


class SimulatedThread:
    """A thread of the process that starts it."""

    def __init__(
        self,
        scheduler: Scheduler,
        target: Callable[..., object],
        name: str | None = None,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._work = lambda: target(*args, **(kwargs or {}))
        self.name = name or "thread"
        self._task: Task | None = None

    def start(self) -> None:
        """Start the thread."""
        process = self._scheduler.current.process
        if process.is_dead:
            raise Crashed
        self._task = self._scheduler.spawn(f"{process.name}/{self.name}", process, self._work)

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end of the thread."""
        if self._task is not None:
            now = self._scheduler.now
            self._scheduler.join(self._task, None if timeout is None else now + _micros(timeout))

    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._task is not None and not self._task.is_done


class SimulatedExecutor:
    """A pool of threads with the part of the interface of `ThreadPoolExecutor` that the library uses."""

    def __init__(self, scheduler: Scheduler, workers: int) -> None:
        self._scheduler = scheduler
        self._workers = workers
        self._threads: list[SimulatedThread] = []

    def map(self, work: Callable[..., Result], *arguments: Iterable[Any]) -> Iterator[Result]:
        """Call a function for every tuple of arguments; results come in order, and raise the errors."""
        calls = list(enumerate(zip(*arguments, strict=False)))
        results: dict[int, Callable[[], Result]] = {}

        def run() -> None:
            while calls:
                number, values = calls.pop(0)
                try:
                    made = work(*values)
                except Exception as error:  # as an executor does: the caller gets the error
                    results[number] = _raising(error)
                else:
                    results[number] = lambda made=made: made  # type: ignore[misc]  # bound now

        count = len(calls)
        for number in range(min(self._workers, count)):
            thread = SimulatedThread(self._scheduler, run, f"worker {number}")
            thread.start()
            self._threads.append(thread)
        for thread in self._threads:
            thread.join()
        return iter([results[number]() for number in range(count)])

    def __enter__(self) -> SimulatedExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self._threads:
            thread.join()


def _raising(error: Exception) -> Callable[[], Any]:
    def fail() -> Any:
        raise error

    return fail


def _micros(seconds: float) -> int:
    """The next microsecond: a wait that is rounded down could be repeated without end."""
    return int(max(0.0, seconds) * SECOND) + 1
