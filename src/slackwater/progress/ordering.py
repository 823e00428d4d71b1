"""The order in which an async stage emits results and watermarks (rules A1 to A3 of docs/spec/progress.md).

A watermark is emitted only after the results of all items received before it. These classes are independent
of threads and event loops: the caller reports submitted and completed items, and gets the output that is due.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import Generic, NamedTuple, Self, TypeVar

from slackwater.errors import InvalidArgument, ProgressError
from slackwater.progress.saved_form import Saved, SavedForm
from slackwater.progress.values import Watermark
from slackwater.time import check_int64

Result = TypeVar("Result")

_SPARE = 16


class _SavedOrdering(Saved):
    received: dict[str, int]


_FORM = SavedForm("async ordering", "A", 1, _SavedOrdering)


class Ticket(NamedTuple):
    """Identifies a submitted item; pass it to `complete`.

    >>> import slackwater as sw
    >>> sw.OrderedResults[str]().submit()
    Ticket(number=0)
    """

    number: int


class _Ordering(Generic[Result]):
    """The common part of both orders: tickets, capacity and the received watermarks (A3)."""

    def __init__(self, capacity: int | None = None) -> None:
        if capacity is not None and check_int64(capacity, "capacity") < 1:
            raise InvalidArgument("capacity", capacity, "must be at least 1", fix="omit it for no limit")
        self._capacity = capacity
        self._received: dict[str, int] = {}
        self._next = 0
        self._held = 0
        """Number of items whose result has not been emitted. They count against the capacity."""

    @property
    def held(self) -> int:
        """Number of submitted items whose result has not been emitted."""
        return self._held

    def submit(self) -> Ticket | None:
        """Submit an item.

        Returns:
            Its ticket, or None if the capacity is exhausted: submit the item again after output was emitted.
        """
        if self._capacity is not None and self._held >= self._capacity:
            return None
        ticket = Ticket(self._next)
        self._next += 1
        self._held += 1
        self._enqueue(ticket)
        return ticket

    def watermark(self, watermark: Watermark) -> list[Result | Watermark]:
        """Process a watermark. One that is not above the last received one of its key is ignored (A3).

        Args:
            watermark: The watermark that arrived.

        Returns:
            The output that is due: the watermark, if no earlier item is in flight.
        """
        value = check_int64(watermark.value, "watermark")
        last = self._received.get(watermark.key)
        if last is not None and value <= last:
            return []
        self._received[watermark.key] = value
        return self._enqueue_watermark(Watermark(value, watermark.key))

    def save(self) -> bytes:
        """Serialize the received watermarks. Items in flight cannot be saved: complete them first.

        >>> stage = OrderedResults[str]()
        >>> _ = stage.watermark(Watermark(10))
        >>> OrderedResults[str].load(stage.save()).watermark(Watermark(9))
        []
        """
        if self._held:
            raise ProgressError(f"cannot save while {self._held} items are in flight; complete them first")
        return _FORM.encode(_SavedOrdering(self._received))

    @classmethod
    def load(cls, data: bytes, capacity: int | None = None) -> Self:
        """Restore an order from the bytes of `save`.

        Args:
            data: The saved state.
            capacity: Most items in flight; None for no limit.
        """
        ordering = cls(capacity)
        ordering._received = _FORM.decode(data).received
        return ordering

    def complete(self, ticket: Ticket, result: Result | None) -> list[Result | Watermark]:
        """Process the result of an item; None filters the item (A4).

        Args:
            ticket: What `submit` returned for the item.
            result: The result; None if the item has no output.

        Returns:
            The output that is due, in order.

        Raises:
            ProgressError: The ticket is unknown, or its item was completed before.
        """
        raise NotImplementedError

    def _enqueue(self, ticket: Ticket) -> None:
        raise NotImplementedError

    def _enqueue_watermark(self, watermark: Watermark) -> list[Result | Watermark]:
        raise NotImplementedError

    def _unknown(self, ticket: Ticket) -> ProgressError:
        what = "was completed before" if ticket.number < self._next else "was never issued"
        return ProgressError(f"ticket {ticket.number} {what}; complete each submitted item once")


class _Waiting(Generic[Result]):
    """An item in the queue of an ordered stage."""

    __slots__ = ("done", "result")

    def __init__(self) -> None:
        self.done = False
        self.result: Result | None = None


class OrderedResults(_Ordering[Result]):
    """Emits results in the order in which their items were submitted (A1).

    A new watermark replaces the last element of the queue if and only if that is a watermark of the same key.

    Args:
        capacity: The maximum number of items whose result has not been emitted. None: no limit.

    >>> import slackwater as sw
    >>> stage = sw.OrderedResults[str]()
    >>> first, second = stage.submit(), stage.submit()
    >>> stage.watermark(sw.Watermark(10)), stage.complete(second, "b")
    ([], [])
    >>> stage.complete(first, "a")
    ['a', 'b', Watermark(value=10, key='default')]
    """

    def __init__(self, capacity: int | None = None) -> None:
        super().__init__(capacity)
        self._queue: deque[_Waiting[Result] | Watermark] = deque()
        self._waiting: dict[Ticket, _Waiting[Result]] = {}

    def complete(self, ticket: Ticket, result: Result | None) -> list[Result | Watermark]:
        """Process the result of an item and return the output that is due, in order.

        Args:
            ticket: What `submit` returned for the item.
            result: The result; None if the item has no output.
        """
        item = self._waiting.pop(ticket, None)
        if item is None:
            raise self._unknown(ticket)
        item.done, item.result = True, result
        return self._release()

    def _enqueue(self, ticket: Ticket) -> None:
        item: _Waiting[Result] = _Waiting()
        self._waiting[ticket] = item
        self._queue.append(item)

    def _enqueue_watermark(self, watermark: Watermark) -> list[Result | Watermark]:
        last = self._queue[-1] if self._queue else None
        if isinstance(last, Watermark) and last.key == watermark.key:
            self._queue[-1] = watermark
        else:
            self._queue.append(watermark)
        return self._release()

    def _release(self) -> list[Result | Watermark]:
        released: list[Result | Watermark] = []
        while self._queue:
            head = self._queue[0]
            if isinstance(head, Watermark):
                released.append(head)
            elif head.done:
                self._held -= 1
                if head.result is not None:
                    released.append(head.result)
            else:
                break
            self._queue.popleft()
        return released


class UnorderedResults(_Ordering[Result]):
    """Emits results as they complete, and a watermark when all items before it are complete (A2).

    Of several watermarks of one key that are due, only the highest is emitted. Watermarks of several keys are
    emitted in the order in which they were received.

    Args:
        capacity: The maximum number of items whose result has not been emitted. None: no limit.

    >>> import slackwater as sw
    >>> stage = sw.UnorderedResults[str]()
    >>> first, second = stage.submit(), stage.submit()
    >>> stage.watermark(sw.Watermark(10)), stage.complete(second, "b")
    ([], ['b'])
    >>> stage.complete(first, "a")
    ['a', Watermark(value=10, key='default')]
    """

    def __init__(self, capacity: int | None = None) -> None:
        super().__init__(capacity)
        self._open: set[int] = set()
        self._oldest_first: deque[int] = deque()
        """The items in flight, and completed items after the oldest item in flight."""
        self._pending: deque[tuple[int, dict[str, Watermark]]] = deque()
        """Watermarks that wait for items, grouped by the number of items received before them."""

    def complete(self, ticket: Ticket, result: Result | None) -> list[Result | Watermark]:
        """Process the result of an item, which is emitted at once, and the watermarks that waited for it.

        Args:
            ticket: What `submit` returned for the item.
            result: The result; None if the item has no output.
        """
        if ticket.number not in self._open:
            raise self._unknown(ticket)
        self._open.remove(ticket.number)
        self._held -= 1
        results: list[Result | Watermark] = [] if result is None else [result]
        while self._oldest_first and self._oldest_first[0] not in self._open:
            self._oldest_first.popleft()
        reached = self._oldest_first[0] if self._oldest_first else self._next
        released: dict[str, Watermark] = {}
        while self._pending and self._pending[0][0] <= reached:
            _put_last(released, self._pending.popleft()[1])
        return [*results, *released.values()]

    def _enqueue(self, ticket: Ticket) -> None:
        self._open.add(ticket.number)
        self._oldest_first.append(ticket.number)

    def _enqueue_watermark(self, watermark: Watermark) -> list[Result | Watermark]:
        if not self._open:
            return [watermark]
        if not self._pending or self._pending[-1][0] != self._next:
            self._pending.append((self._next, {}))
            if len(self._pending) > 2 * len(self._open) + _SPARE:
                self._merge_pending()
        _put_last(self._pending[-1][1], {watermark.key: watermark})
        return []

    def _merge_pending(self) -> None:
        """Merge groups with no item in flight between them: they are emitted together."""
        waiting = sorted(self._open)
        merged: deque[tuple[int, dict[str, Watermark]]] = deque()
        for received, group in self._pending:
            barrier = waiting[bisect_left(waiting, received) - 1] + 1
            if merged and merged[-1][0] == barrier:
                _put_last(merged[-1][1], group)
            else:
                merged.append((barrier, dict(group)))
        self._pending = merged


def _put_last(watermarks: dict[str, Watermark], newer: dict[str, Watermark]) -> None:
    """Replace watermarks by newer ones of the same keys, and move those to the end (order received)."""
    for key, watermark in newer.items():
        watermarks.pop(key, None)
        watermarks[key] = watermark
