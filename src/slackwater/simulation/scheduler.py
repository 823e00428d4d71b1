"""Runs the threads of a simulation one at a time, on a simulated clock.

Every task is a thread that waits for its baton. A task gives up control only where it calls the simulation:
at a statement, a write, a sleep or a lock. It then enters a queue by the time at which it continues, and
hands the baton to the first task of the queue. The order of all steps therefore depends on the seed alone.
"""

from __future__ import annotations

import _thread
from collections.abc import Callable
from hashlib import blake2b
from heapq import heappop, heappush
from random import Random


class Crashed(BaseException):
    """Unwinds the tasks of a process that was killed; every call into the simulation raises it again."""


class Process:
    """A simulated process: a name, a clock with an error, and whether it was killed.

    >>> process = Process("writer-1", pid=7)
    >>> process.is_dead
    False
    """

    __slots__ = (
        "clock_error",
        "is_dead",
        "is_protected",
        "name",
        "note",
        "pid",
        "postponed",
        "suspended_by",
        "tasks",
    )

    def __init__(self, name: str, *, pid: int, is_protected: bool = False, clock_error: int = 0) -> None:
        self.name = name
        self.pid = pid
        self.is_protected = is_protected
        """Whether faults and delays leave it out: the process that sets up and checks a simulation."""
        self.clock_error = clock_error
        self.is_dead = False
        self.tasks: list[Task] = []
        self.suspended_by: Task | None = None
        """The only task that may run again, while the process stands still."""
        self.postponed: list[Task] = []
        """The tasks whose turn came meanwhile."""
        self.note = 0
        """Free for the oracle of a scenario, such as what the process has read last."""


class Task:
    """A thread of a process."""

    __slots__ = ("baton", "is_done", "joiners", "name", "process", "token")

    def __init__(self, name: str, process: Process) -> None:
        self.name = name
        self.process = process
        self.baton = _thread.allocate_lock()
        self.baton.acquire()
        self.token = 0
        """Changes whenever the task runs; entries of the queue with another token are void."""
        self.is_done = False
        self.joiners: list[Task] = []


class Scheduler:
    """Chooses which task runs next.

    Args:
        seed: All choices follow from it.
        start: Simulated time at the beginning, in microseconds.

    >>> scheduler = Scheduler("7", start=0)
    >>> seen = []
    >>> def count():
    ...     for _ in range(2):
    ...         seen.append(scheduler.now)
    ...         scheduler.pause(10, "count")
    >>> task = scheduler.spawn("counter", Process("p", pid=1), count)
    >>> scheduler.pause(100, "wait")
    >>> seen, scheduler.now, task.is_done
    ([0, 10], 100, True)
    """

    def __init__(self, seed: str, *, start: int) -> None:
        self.random = Random(seed)  # noqa: S311 - chooses steps, keeps no secret
        self.now = start
        self.steps = 0
        self.main = Task("main", Process("main", pid=1, is_protected=True))
        self.current = self.main
        self._queue: list[tuple[int, int, int, Task]] = []
        self._entries = 0
        self._hash = blake2b(digest_size=16)
        self._threads = {_thread.get_ident()}
        self.thread_failed: Callable[[Task, Exception], None] = lambda task, error: None

    def is_simulated(self) -> bool:
        """Whether the calling thread is one of the simulation's."""
        return _thread.get_ident() in self._threads

    def trace_hash(self) -> str:
        """The hash of all steps so far; equal for equal seeds."""
        return self._hash.hexdigest()

    def record(self, text: str) -> None:
        """Add a step to the trace."""
        self._hash.update(f"{self.now} {self.current.name} {text}\n".encode())

    # ---- called by the current task

    def pause(self, delay: int, label: str) -> None:
        """Continue after ``delay`` microseconds; other tasks may run before that."""
        task = self.current
        if task.process.is_dead:
            raise Crashed
        self.record(label)
        self._push(task, self.now + delay)
        self._run_next(task)
        if task.process.is_dead:
            raise Crashed

    def park(self, until: int | None) -> None:
        """Wait until another task calls `wake`, or until a time."""
        task = self.current
        if task.process.is_dead:
            raise Crashed
        if until is not None:
            self._push(task, max(until, self.now))
        self._run_next(task)
        if task.process.is_dead:
            raise Crashed

    def suspend(self, duration: int) -> None:
        """Let the whole process of the current task stand still; `wake` of that task ends it earlier."""
        process = self.current.process
        process.suspended_by = self.current
        try:
            self.park(self.now + duration)
        finally:
            process.suspended_by = None
            postponed, process.postponed = process.postponed, []
            for task in postponed:
                self._push(task, self.now)

    def wake(self, task: Task, delay: int = 0) -> None:
        """Let a parked task continue."""
        self._push(task, self.now + delay)

    def spawn(self, name: str, process: Process, target: Callable[[], object]) -> Task:
        """Start a task; it runs when its turn comes."""
        task = Task(name, process)
        process.tasks.append(task)
        self._push(task, self.now)
        _thread.start_new_thread(self._run, (task, target))
        return task

    def kill(self, process: Process) -> None:
        """Kill a process: its tasks unwind at the next step, and reach nothing any more."""
        process.is_dead = True
        for task in process.tasks:
            if not task.is_done and task is not self.current:
                self._push(task, self.now)

    def join(self, task: Task, until: int | None = None) -> bool:
        """Wait for the end of a task; False if the time came first."""
        while not task.is_done:
            if until is not None and self.now >= until:
                return False
            task.joiners.append(self.current)
            self.park(until)
        return True

    # ---- turns

    def _run(self, task: Task, target: Callable[[], object]) -> None:
        self._threads.add(_thread.get_ident())
        task.baton.acquire()
        try:
            if not task.process.is_dead:
                target()
        except Crashed:
            pass
        except Exception as error:  # as in a real thread, which ends with a traceback
            self.thread_failed(task, error)
        finally:
            task.is_done = True
            task.process.tasks.remove(task)
            for joiner in task.joiners:
                self._push(joiner, self.now)
            self._threads.discard(_thread.get_ident())
            self._run_next(None)

    def _push(self, task: Task, at: int) -> None:
        self._entries += 1
        heappush(self._queue, (at, self._entries, task.token, task))

    def _run_next(self, task: Task | None) -> None:
        """Hand the baton to the next task; return when it comes back to ``task``."""
        queue = self._queue
        while True:
            at, _, token, chosen = heappop(queue)
            if token != chosen.token or chosen.is_done:
                continue
            process = chosen.process
            if process.suspended_by in (None, chosen) or process.is_dead:
                break
            process.postponed.append(chosen)
        chosen.token += 1
        self.now = max(self.now, at)
        self.steps += 1
        if chosen is task:
            return
        self.current = chosen
        chosen.baton.release()
        if task is not None:
            task.baton.acquire()
