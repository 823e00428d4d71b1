"""An async stage on asyncio: capacity, timeouts, retries, fallbacks, and watermarks in order (rule A4).

`ordering` decides the order of the output; this module runs the calls. It reads its input no faster than the
capacity allows, so a slow service slows the source down instead of filling memory.

A call that exceeds its timeout is cancelled. If it ignores its cancellation, it is abandoned after 5
seconds: its item fails, and the call goes on without anyone waiting for it, until its event loop is closed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
)
from dataclasses import dataclass
from math import inf
from typing import Any, Final, Generic, Self, TypeVar, cast

from slackwater.errors import AsyncItemFailed, InvalidArgument
from slackwater.progress.ordering import OrderedResults, Ticket, UnorderedResults
from slackwater.progress.values import Watermark
from slackwater.time import check_int64

Item = TypeVar("Item")
Result = TypeVar("Result")
Outcome = TypeVar("Outcome")

_GRACE: Final = 5.0
"""The seconds that a cancelled call gets to end."""
_MOST_DOUBLINGS: Final = 30


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a failed call is retried, with exponential backoff.

    Args:
        retries: How many times a call is retried after the first attempt.
        first_delay: Seconds before the first retry. The delay doubles with every retry.
        longest_delay: The maximum delay in seconds.
        when_result: Called with each result. A result for which it returns true counts as a failed attempt,
            for example one that says that the answer is not ready. None: every result is final.

    Raises:
        InvalidArgument: A value is negative, ``first_delay`` is greater than ``longest_delay``, or
            ``when_result`` is not a function.

    >>> import slackwater as sw
    >>> sw.Retry(3, when_result=lambda answer: answer["status"] == "pending").retries
    3
    >>> [sw.Retry(3, first_delay=0.5, longest_delay=1.5).delay(attempt) for attempt in (1, 2, 3)]
    [0.5, 1.0, 1.5]
    """

    retries: int = 0
    first_delay: float = 0.1
    longest_delay: float = 30.0
    when_result: Callable[[Any], bool] | None = None

    def __post_init__(self) -> None:
        if check_int64(self.retries, "retries") < 0:
            raise InvalidArgument("retries", self.retries, "is negative", fix="pass 0 for no retries")
        if not 0 <= self.first_delay <= self.longest_delay:
            raise InvalidArgument(
                "first_delay", self.first_delay, f"is not between 0 and longest_delay, {self.longest_delay}",
                fix="pass the delay in seconds",
            )  # fmt: skip
        if self.when_result is not None and not callable(self.when_result):
            raise InvalidArgument(
                "when_result", self.when_result, "is not a function", fix="write lambda result: …"
            )

    def delay(self, attempt: int) -> float:
        """Return the seconds to wait after the ``attempt``-th failed attempt.

        Args:
            attempt: The number of the attempt that failed, from 1.

        >>> import slackwater as sw
        >>> sw.Retry(first_delay=1).delay(3)
        4.0
        """
        doublings = min(attempt - 1, _MOST_DOUBLINGS)
        return min(self.first_delay * float(2**doublings), self.longest_delay)


class AsyncStage(Generic[Item, Result]):
    """Calls an async function for every item, many at a time, and keeps watermarks in order.

    A result of None filters the item. An item that fails after all retries, or exceeds its timeout, gets the
    result of ``fallback``; without it, that of ``on_failure``; without both, it fails the stage with
    `AsyncItemFailed`, which carries the item's key, and cancels the other calls.

    Args:
        function: Called for every item.
        ordered: Whether results are emitted in the order of their items (A1) or as they complete (A2).
        capacity: The maximum number of items in flight.
        timeout: The maximum number of seconds for one item, including all attempts and delays. The function
            is then cancelled; if it ignores that for 5 seconds, it is abandoned.
        attempt_timeout: The maximum number of seconds for one attempt, which then fails and is retried.
        retry: How often and when a failed attempt is retried. None: never.
        fallback: Returns the result of an item that failed; None filters the item. None: no fallback.
        on_failure: Returns the result of an item that failed, and whose fallback failed, given the error.
            None: the error fails the stage.
        key: Returns the key of an item, for the error message.

    Raises:
        InvalidArgument: A number is not positive.

    >>> import slackwater as sw
    >>> async def double(number: int) -> int:
    ...     return 2 * number
    >>> async def source():
    ...     yield 1
    ...     yield sw.Watermark(10)
    ...     yield 2
    >>> async def main():
    ...     return [out async for out in sw.AsyncStage(double, capacity=8).run(source())]
    >>> asyncio.run(main())
    [2, Watermark(value=10, key='default'), 4]
    """

    def __init__(
        self,
        function: Callable[[Item], Awaitable[Result | None]],
        *,
        ordered: bool = True,
        capacity: int = 100,
        timeout: float | None = None,
        attempt_timeout: float | None = None,
        retry: Retry | None = None,
        fallback: Callable[[Item], Result | None] | None = None,
        on_failure: Callable[[Item, AsyncItemFailed], Result | None] | None = None,
        key: Callable[[Item], object] = repr,
    ) -> None:
        for name, seconds in (("timeout", timeout), ("attempt_timeout", attempt_timeout)):
            if seconds is not None and not seconds > 0:
                raise InvalidArgument(name, seconds, "must be greater than zero", fix="omit it for no limit")
        self._function = function
        self._ordered = ordered
        self._capacity = check_int64(capacity, "capacity")
        self._timeout = timeout
        self._attempt_timeout = attempt_timeout
        self._retry = retry or Retry()
        self._fallback = fallback
        self._on_failure = on_failure
        self._key = key
        self._ordering()  # validates the capacity now, not with the first item

    async def run(self, source: AsyncIterable[Item | Watermark]) -> AsyncIterator[Result | Watermark]:
        """Yield results and watermarks until the source has ended and all calls are complete.

        Args:
            source: Items and watermarks.

        Raises:
            AsyncItemFailed: An item failed after all retries.
        """
        ordering = self._ordering()
        items = aiter(source)
        running: set[asyncio.Task[Result | None]] = set()
        finished: deque[tuple[Ticket, asyncio.Task[Result | None]]] = deque()
        incoming: asyncio.Task[Item | Watermark | _End] | None = None
        something_happened = asyncio.Event()
        ended = False

        def start(item: Item, ticket: Ticket) -> None:
            def finish(task: asyncio.Task[Result | None]) -> None:
                finished.append((ticket, task))
                something_happened.set()

            task = asyncio.ensure_future(self._result(item))
            running.add(task)
            task.add_done_callback(finish)

        try:
            while True:
                if incoming is None and not ended and ordering.held < self._capacity:
                    incoming = asyncio.ensure_future(_next(items))
                    incoming.add_done_callback(lambda _: something_happened.set())
                if not running and incoming is None:
                    return
                await something_happened.wait()
                something_happened.clear()
                while finished:
                    ticket, task = finished.popleft()
                    running.discard(task)
                    for output in ordering.complete(ticket, task.result()):
                        yield output
                if incoming is not None and incoming.done():
                    item = incoming.result()
                    incoming = None
                    if isinstance(item, _End):
                        ended = True
                    elif isinstance(item, Watermark):
                        for output in ordering.watermark(item):
                            yield output
                    else:
                        # Items are read only while there is capacity, so there is a ticket.
                        start(item, cast(Ticket, ordering.submit()))
        finally:
            pending: list[asyncio.Task[Any]] = [*running] if incoming is None else [*running, incoming]
            # A call stops its own attempt within the grace period, so a task that needs longer ignores it.
            await stop_tasks(pending, 2 * _GRACE)
            if isinstance(items, AsyncGenerator) and (incoming is None or incoming.done()):
                await items.aclose()

    def _ordering(self) -> OrderedResults[Result] | UnorderedResults[Result]:
        return OrderedResults(self._capacity) if self._ordered else UnorderedResults(self._capacity)

    async def _result(self, item: Item) -> Result | None:
        try:
            return await self._call(item)
        except AsyncItemFailed as failed:
            if self._on_failure is None:
                raise
            return self._on_failure(item, failed)

    async def _call(self, item: Item) -> Result | None:
        try:
            return await self._answer(item)
        except AsyncItemFailed as failed:
            if self._fallback is None:
                raise
            try:
                return self._fallback(item)
            except Exception as error:
                reason = f"{failed.reason}; its fallback failed too: {_reason(error)}"
                raise self._failed(item, failed.attempts, reason) from error

    async def _answer(self, item: Item) -> Result | None:
        attempt = 0
        clock = asyncio.get_running_loop().time
        deadline = inf if self._timeout is None else clock() + self._timeout
        while True:
            attempt += 1
            problem: BaseException | None = None
            limit = min(self._attempt_timeout or inf, max(deadline - clock(), 0.0))
            try:
                result = await self._attempt(item, limit)
                if self._retry.when_result is None or not self._retry.when_result(result):
                    return result
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and _is_being_cancelled():
                    raise
                problem = error
            if isinstance(problem, _Expired) and limit < (self._attempt_timeout or inf):
                raise self._too_late(item, attempt, problem)
            if attempt > self._retry.retries:
                reason = "when_result rejected its last result" if problem is None else _reason(problem)
                raise self._failed(item, attempt, reason) from problem
            delay = self._retry.delay(attempt)
            await asyncio.sleep(min(delay, max(deadline - clock(), 0.0)))
            if clock() >= deadline:
                raise self._too_late(item, attempt, problem)

    async def _attempt(self, item: Item, seconds: float) -> Result | None:
        """One call of the function; raises _Expired if it takes longer than ``seconds``."""
        if seconds == inf:
            return await self._function(item)
        call = asyncio.ensure_future(self._function(item))
        try:
            done, _ = await asyncio.wait((call,), timeout=seconds)
        except asyncio.CancelledError:
            await stop_tasks((call,), _GRACE)
            raise
        if done:
            return call.result()
        raise _Expired(is_abandoned=bool(await stop_tasks((call,), _GRACE)))

    def _too_late(self, item: Item, attempts: int, problem: BaseException | None) -> AsyncItemFailed:
        reason = f"no result within its timeout of {self._timeout} s"
        if isinstance(problem, _Expired) and problem.is_abandoned:
            reason += f"; it ignored its cancellation for {_GRACE} s and was abandoned"
        failed = self._failed(item, attempts, reason)
        failed.__cause__ = problem
        return failed

    def _failed(self, item: Item, attempts: int, reason: str) -> AsyncItemFailed:
        try:
            key = self._key(item)
        except Exception as error:
            key = f"(the key function failed: {_reason(error)})"
        return AsyncItemFailed(key, attempts, reason)


class _Expired(TimeoutError):
    """An attempt exceeded its time limit."""

    def __init__(self, *, is_abandoned: bool) -> None:
        self.is_abandoned = is_abandoned
        super().__init__(
            f"timed out; it ignored its cancellation for {_GRACE} s and was abandoned" if is_abandoned else ""
        )


async def stop_tasks(
    tasks: Collection[asyncio.Future[Any]], seconds: float
) -> Collection[asyncio.Future[Any]]:
    """Cancel tasks and wait until they have ended, but not longer than ``seconds``.

    Returns:
        The tasks that ignored their cancellation; their results will not be reported.

    >>> async def main():
    ...     return await stop_tasks([asyncio.ensure_future(asyncio.sleep(60))], 1.0)
    >>> asyncio.run(main())
    set()
    """
    if not tasks:
        return set()
    for task in tasks:
        task.cancel()
        task.add_done_callback(_retrieve)
    _, pending = await asyncio.wait(tasks, timeout=seconds)
    return pending


def _retrieve(task: asyncio.Future[Any]) -> None:
    """Retrieve the exception of a task, which asyncio would log otherwise."""
    if not task.cancelled():
        task.exception()


class BoundedRunner:
    """Runs coroutines on an event loop of its own, like `asyncio.Runner`, and ends within bounded time.

    `asyncio.Runner` waits for every task when it is closed, so one that ignores its cancellation would block
    it without limit.

    >>> with BoundedRunner() as runner:
    ...     runner.run(asyncio.sleep(0, result=7))
    7
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop or asyncio.new_event_loop()

    def run(self, main: Coroutine[Any, Any, Outcome]) -> Outcome:
        """The result of a coroutine."""
        return self._loop.run_until_complete(main)

    def __enter__(self) -> Self:
        asyncio.set_event_loop(self._loop)
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            self._loop.run_until_complete(stop_tasks(asyncio.all_tasks(self._loop), _GRACE))
            generators = self._loop.create_task(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(asyncio.wait((generators,), timeout=_GRACE))
        finally:
            asyncio.set_event_loop(None)
            self._loop.close()


def _is_being_cancelled() -> bool:
    """Return whether this task is being cancelled, as opposed to an awaitable that it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class _End:
    """Marks the end of the source, because a task must not raise StopAsyncIteration."""


async def _next(items: AsyncIterator[Item | Watermark]) -> Item | Watermark | _End:
    return await anext(items, _End())


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return "timed out"
    return f"{type(error).__name__}: {error}"
