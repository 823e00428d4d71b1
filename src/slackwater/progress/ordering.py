"""The order in which an async stage lets results and watermarks leave: rules A1 to A3.

A watermark leaves only after the results of all items received before it. These objects know
nothing of threads or event loops: they are told what was submitted and what has completed, and
answer with what leaves.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import Generic, NamedTuple, Self, TypeVar

from slackwater.errors import InvalidArgument, ProgressError
from slackwater.progress.saved import Saved, SavedForm
from slackwater.progress.values import Watermark
from slackwater.time import check_int64

Result = TypeVar("Result")

_SPARE = 16


class _SavedOrdering(Saved):
    received: dict[str, int]


_FORM = SavedForm("async ordering", "A", 1, _SavedOrdering)


class Ticket(NamedTuple):
    """The receipt for a submitted item; `complete` wants it back.

    >>> OrderedResults[str]().submit()
    Ticket(number=0)
    """

    number: int


class _Ordering(Generic[Result]):
    """What both orders share: tickets, capacity, and the watermarks received (A3)."""

    def __init__(self, capacity: int | None = None) -> None:
        if capacity is not None and check_int64(capacity, "capacity") < 1:
            raise InvalidArgument("capacity", capacity, "must be at least 1", fix="leave it out for no limit")
        self._capacity = capacity
        self._received: dict[str, int] = {}
        self._next = 0
        self._held = 0
        """Items whose result has not left yet: these count against the capacity."""

    @property
    def held(self) -> int:
        """How many items have been taken in and not left."""
        return self._held

    def submit(self) -> Ticket | None:
        """Take in an item. None: no capacity left, offer it again after something has left."""
        if self._capacity is not None and self._held >= self._capacity:
            return None
        ticket = Ticket(self._next)
        self._next += 1
        self._held += 1
        self._take_in(ticket)
        return ticket

    def watermark(self, watermark: Watermark) -> list[Result | Watermark]:
        """Take in a watermark; one that is not above the last received of its key is ignored."""
        value = check_int64(watermark.value, "watermark")
        last = self._received.get(watermark.key)
        if last is not None and value <= last:
            return []
        self._received[watermark.key] = value
        return self._take_in_watermark(Watermark(value, watermark.key))

    def save(self) -> bytes:
        """The watermarks received. Items under way cannot be saved: complete them first.

        >>> stage = OrderedResults[str]()
        >>> _ = stage.watermark(Watermark(10))
        >>> OrderedResults[str].load(stage.save()).watermark(Watermark(9))
        []
        """
        if self._held:
            raise ProgressError(
                f"{self._held} items are under way, and calls cannot be saved; complete them first"
            )
        return _FORM.seal(_SavedOrdering(self._received))

    @classmethod
    def load(cls, data: bytes, capacity: int | None = None) -> Self:
        """An order that goes on after the watermarks that `save` kept."""
        ordering = cls(capacity)
        ordering._received = _FORM.unseal(data).received
        return ordering

    def complete(self, ticket: Ticket, result: Result | None) -> list[Result | Watermark]:
        """An item has its result; None filters the item (A4)."""
        raise NotImplementedError

    def _take_in(self, ticket: Ticket) -> None:
        raise NotImplementedError

    def _take_in_watermark(self, watermark: Watermark) -> list[Result | Watermark]:
        raise NotImplementedError

    def _unknown(self, ticket: Ticket) -> ProgressError:
        what = "was completed before" if ticket.number < self._next else "was never given out"
        return ProgressError(f"ticket {ticket.number} {what}; complete each submitted item once")


class _Waiting(Generic[Result]):
    """An item in the queue of an ordered stage."""

    __slots__ = ("done", "result")

    def __init__(self) -> None:
        self.done = False
        self.result: Result | None = None


class OrderedResults(_Ordering[Result]):
    """Results leave in the order in which their items came (A1).

    A new watermark replaces the last element of the queue iff that is a watermark of its key.

    >>> stage = OrderedResults[str]()
    >>> first, second = stage.submit(), stage.submit()
    >>> stage.watermark(Watermark(10)), stage.complete(second, "b")
    ([], [])
    >>> stage.complete(first, "a")
    ['a', 'b', Watermark(value=10, key='default')]
    """

    def __init__(self, capacity: int | None = None) -> None:
        super().__init__(capacity)
        self._queue: deque[_Waiting[Result] | Watermark] = deque()
        self._waiting: dict[Ticket, _Waiting[Result]] = {}

    def complete(self, ticket: Ticket, result: Result | None) -> list[Result | Watermark]:
        """An item has its result; what can leave now, in order."""
        item = self._waiting.pop(ticket, None)
        if item is None:
            raise self._unknown(ticket)
        item.done, item.result = True, result
        return self._leave()

    def _take_in(self, ticket: Ticket) -> None:
        item: _Waiting[Result] = _Waiting()
        self._waiting[ticket] = item
        self._queue.append(item)

    def _take_in_watermark(self, watermark: Watermark) -> list[Result | Watermark]:
        last = self._queue[-1] if self._queue else None
        if isinstance(last, Watermark) and last.key == watermark.key:
            self._queue[-1] = watermark
        else:
            self._queue.append(watermark)
        return self._leave()

    def _leave(self) -> list[Result | Watermark]:
        leaving: list[Result | Watermark] = []
        while self._queue:
            head = self._queue[0]
            if isinstance(head, Watermark):
                leaving.append(head)
            elif head.done:
                self._held -= 1
                if head.result is not None:
                    leaving.append(head.result)
            else:
                break
            self._queue.popleft()
        return leaving


class UnorderedResults(_Ordering[Result]):
    """Results leave as they complete; a watermark when every item received before it is done (A2).

    Of several watermarks of one key that could leave, only the highest does; watermarks of several
    keys leave in the order received.

    >>> stage = UnorderedResults[str]()
    >>> first, second = stage.submit(), stage.submit()
    >>> stage.watermark(Watermark(10)), stage.complete(second, "b")
    ([], ['b'])
    >>> stage.complete(first, "a")
    ['a', Watermark(value=10, key='default')]
    """

    def __init__(self, capacity: int | None = None) -> None:
        super().__init__(capacity)
        self._open: set[int] = set()
        self._oldest_first: deque[int] = deque()
        """Open items, and done ones behind the oldest open one."""
        self._pending: deque[tuple[int, dict[str, Watermark]]] = deque()
        """Watermarks behind open items, grouped by how many items came before them, as received."""

    def complete(self, ticket: Ticket, result: Result | None) -> list[Result | Watermark]:
        """An item has its result, which leaves at once, and so may watermarks."""
        if ticket.number not in self._open:
            raise self._unknown(ticket)
        self._open.remove(ticket.number)
        self._held -= 1
        leaving: list[Result | Watermark] = [] if result is None else [result]
        while self._oldest_first and self._oldest_first[0] not in self._open:
            self._oldest_first.popleft()
        reached = self._oldest_first[0] if self._oldest_first else self._next
        released: dict[str, Watermark] = {}
        while self._pending and self._pending[0][0] <= reached:
            _put_last(released, self._pending.popleft()[1])
        return [*leaving, *released.values()]

    def _take_in(self, ticket: Ticket) -> None:
        self._open.add(ticket.number)
        self._oldest_first.append(ticket.number)

    def _take_in_watermark(self, watermark: Watermark) -> list[Result | Watermark]:
        if not self._open:
            return [watermark]
        if not self._pending or self._pending[-1][0] != self._next:
            self._pending.append((self._next, {}))
            if len(self._pending) > 2 * len(self._open) + _SPARE:
                self._merge_pending()
        _put_last(self._pending[-1][1], {watermark.key: watermark})
        return []

    def _merge_pending(self) -> None:
        """Join groups with no open item between them: they leave together, only the highest of each key."""
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
    """Replace watermarks by newer ones of their keys, at the place of the newer: order received."""
    for key, watermark in newer.items():
        watermarks.pop(key, None)
        watermarks[key] = watermark
