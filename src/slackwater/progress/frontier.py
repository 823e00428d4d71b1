"""The minimum over inputs that come and go: the algebra under coalescer, generator and tracker.

A frontier knows, for each input, whether it is active, idle or done, and for each watermark key
how far each input is. It answers one question: how far are all of them? (`current`). It makes no
decision of its own about what to emit when; the three users differ there.

The minimum is kept in a heap with lazy repair: watermarks only rise, so an entry in the heap is
never too high. Raising an input costs nothing; asking repairs the entries that have surfaced,
which is logarithmic in the number of inputs however long the history.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

from slackwater.errors import CorruptState, InvalidArgument
from slackwater.progress.explanation import Reason
from slackwater.progress.saved import Saved
from slackwater.progress.values import IDLE, Emission, Watermark, is_text

_LONGEST_KEY = 200
_SPARE = 16


class Status(IntEnum):
    """What an input takes part in. The numbers are part of the saved form."""

    ACTIVE = 0
    IDLE = 1
    DONE = 2
    REMOVED = 3


_ACTIVE = Status.ACTIVE  # the hot path looks it up once a buffer


class Holder(NamedTuple):
    """Who holds a key back: its slot (None: nobody is active), why, since when, and how many like it."""

    slot: int | None
    reason: Reason
    since: int | None
    others: int = 0


class SavedKey(Saved):
    """One watermark key: per slot the value and when it last moved."""

    key: str
    top: int | None
    emitted: int | None
    values: list[int | None]
    moved: list[int | None]


class SavedFrontier(Saved):
    """A whole frontier: per slot its status and since when, then the keys."""

    status: list[int]
    since: list[int | None]
    idle_said: bool
    keys: list[SavedKey]


class _Key:
    """How far each input is on one watermark key."""

    __slots__ = ("emitted", "heap", "in_heap", "missing", "moved", "top", "values")

    def __init__(self, slots: int, active: int) -> None:
        self.values: list[int | None] = [None] * slots
        self.moved: list[int | None] = [None] * slots
        self.heap: list[tuple[int, int]] = []
        self.in_heap = [False] * slots
        self.missing = active
        """Active inputs that have never sent this key: while there are any, it is blocked (C3)."""
        self.top: int | None = None
        self.emitted: int | None = None

    def push(self, slot: int) -> None:
        value = self.values[slot]
        if value is None or self.in_heap[slot]:
            return
        heappush(self.heap, (value, slot))
        self.in_heap[slot] = True
        if len(self.heap) > 2 * len(self.values) + _SPARE:
            # Entries of removed inputs whose slots are used again have piled up.
            self.heap = [(known, place) for place, known in enumerate(self.values) if known is not None]
            heapify(self.heap)
            self.in_heap = [known is not None for known in self.values]

    def lowest(self, status: list[Status]) -> tuple[int, int]:
        """The lowest (value, slot) of the active inputs, all of which have a value."""
        heap = self.heap
        while True:
            value, slot = heap[0]
            true_value = self.values[slot]
            if true_value is None or status[slot] is not _ACTIVE:
                heappop(heap)
                self.in_heap[slot] = False
            elif true_value == value:
                return value, slot
            else:
                heapreplace(heap, (true_value, slot))


class Frontier:
    """How far several inputs are, on several keys. Inputs are numbered slots.

    >>> frontier = Frontier(2)
    >>> frontier.raise_to(0, "default", 10, None)
    >>> frontier.current("default")  # input 1 has never spoken
    >>> frontier.set_idle(1, None)
    >>> frontier.current("default")
    10
    """

    __slots__ = ("_free", "_keys", "_status", "active", "idle", "idle_said", "since")

    def __init__(self, slots: int = 0, now: int | None = None) -> None:
        self._status = [Status.ACTIVE] * slots
        self.since: list[int | None] = [now] * slots
        self._keys: dict[str, _Key] = {}
        self._free: list[int] = []
        self.active = slots
        self.idle = 0
        self.idle_said = False

    # ---- inputs

    def add(self, now: int | None, status: Status = Status.ACTIVE) -> int:
        """A new input without watermarks; its slot. One that is active ends an IDLE that was said."""
        if self._free:
            slot = self._free.pop()
            self._status[slot] = status
            self.since[slot] = now
        else:
            slot = len(self._status)
            self._status.append(status)
            self.since.append(now)
            for key in self._keys.values():
                key.values.append(None)
                key.moved.append(None)
                key.in_heap.append(False)
        if status is Status.ACTIVE:
            self.active += 1
            self.idle_said = False
            for key in self._keys.values():
                key.missing += 1
        elif status is Status.IDLE:
            self.idle += 1
        return slot

    def remove(self, slot: int, now: int | None) -> None:
        """Forget an input; its slot is used again."""
        self._leave(slot, Status.REMOVED, now)
        for key in self._keys.values():
            key.values[slot] = key.moved[slot] = None
            key.in_heap[slot] = False  # the entry itself is dropped when it surfaces
        self._free.append(slot)

    def status(self, slot: int) -> Status:
        """Whether the input is active, idle or done."""
        return self._status[slot]

    def wake(self, slot: int, now: int | None) -> None:
        """Make an idle input active for every key; its old watermarks limit the minimum again (C5)."""
        if self._status[slot] is not Status.IDLE:
            return
        self._status[slot] = Status.ACTIVE
        self.since[slot] = now
        self.active += 1
        self.idle -= 1
        self.idle_said = False
        for key in self._keys.values():
            if key.values[slot] is None:
                key.missing += 1
            else:
                key.push(slot)

    def set_idle(self, slot: int, now: int | None) -> None:
        """Take an input out for every key until it speaks again; its watermarks are kept (C4)."""
        if self._status[slot] is Status.ACTIVE:
            self._leave(slot, Status.IDLE, now)
            self.idle += 1

    def set_done(self, slot: int, now: int | None) -> None:
        """Take an input out for good (C7)."""
        self._leave(slot, Status.DONE, now)

    def _leave(self, slot: int, status: Status, now: int | None) -> None:
        if self._status[slot] is Status.ACTIVE:
            self.active -= 1
            for key in self._keys.values():
                if key.values[slot] is None:
                    key.missing -= 1
        elif self._status[slot] is Status.IDLE:
            self.idle -= 1
        self._status[slot] = status
        self.since[slot] = now

    # ---- watermarks

    @property
    def slots(self) -> int:
        """How many slots there are, also those of removed inputs."""
        return len(self._status)

    @property
    def keys(self) -> Iterator[str]:
        """The watermark keys heard of so far."""
        return iter(self._keys)

    def value(self, slot: int, key: str) -> int | None:
        """The watermark of one input."""
        state = self._keys.get(key)
        return None if state is None else state.values[slot]

    def emitted(self, key: str) -> int | None:
        """The last watermark emitted for a key."""
        state = self._keys.get(key)
        return None if state is None else state.emitted

    def set_emitted(self, key: str, value: int) -> None:
        """Record what was emitted (for users that emit something other than `current`)."""
        self.open_key(key).emitted = value

    def raise_to(self, slot: int, key: str, value: int, now: int | None) -> None:
        """Raise the watermark of an active input; a value that is not higher changes nothing."""
        state = self._keys.get(key)
        if state is None:
            state = self.open_key(key)
        previous = state.values[slot]
        if previous is None:
            state.values[slot] = value
            state.missing -= 1
            state.push(slot)
        elif value > previous:
            state.values[slot] = value
        else:
            return
        state.moved[slot] = now
        if state.top is None or value > state.top:
            state.top = value

    def current(self, key: str) -> int | None:
        """The minimum over the active inputs; the top observed when none is active.

        None while an active input has never sent the key (C3).
        """
        state = self._keys.get(key)
        if state is None:
            return None
        if self.active == 0:
            return state.top
        if state.missing:
            return None
        return state.lowest(self._status)[0]

    def emit(self, keys: Iterable[str]) -> tuple[Emission, ...]:
        """What has become sayable: risen watermarks of these keys, then IDLE (C2, C6, C10)."""
        emissions: list[Emission] = []
        for key in keys:
            value = self.current(key)
            if value is not None:
                state = self._keys[key]
                if state.emitted is None or value > state.emitted:
                    state.emitted = value
                    emissions.append(Watermark(value, key))
        if self.active == 0 and self.idle and not self.idle_said:
            self.idle_said = True
            emissions.append(IDLE)
        return tuple(emissions)

    def emit_all(self) -> tuple[Emission, ...]:
        """`emit` for every key: needed when an input went idle, ended or was removed."""
        return self.emit(self._keys)

    def holder(self, key: str) -> Holder:
        """Who would have to move for ``key`` to move."""
        if self.active == 0:
            reason = Reason.IDLE if self.idle else Reason.DONE
            status = Status.IDLE if self.idle else Status.DONE
            since = [at for at, is_now in zip(self.since, self._status, strict=True) if is_now is status]
            return Holder(None, reason, max((at for at in since if at is not None), default=None))
        state = self._keys.get(key)
        if state is None or state.missing:
            silent = [
                slot
                for slot, status in enumerate(self._status)
                if status is Status.ACTIVE and (state is None or state.values[slot] is None)
            ]
            return Holder(silent[0], Reason.NEVER_SPOKE, self.since[silent[0]], len(silent) - 1)
        lowest, slot = state.lowest(self._status)
        level = sum(
            1
            for value, status in zip(state.values, self._status, strict=True)
            if value == lowest and status is Status.ACTIVE
        )
        return Holder(slot, Reason.SLOWEST, state.moved[slot], level - 1)

    def check_key(self, key: str) -> None:
        """Refuse what cannot be the name of a key, before anything is changed."""
        if key not in self._keys and not (is_text(key) and 0 < len(key) <= _LONGEST_KEY):
            raise InvalidArgument(
                "key",
                key,
                f"is not a text of 1 to {_LONGEST_KEY} characters",
                fix="name the event-time column",
            )

    def open_key(self, key: str) -> _Key:
        """The state of a key; a new key starts with the inputs' present idle and done states (C8)."""
        state = self._keys.get(key)
        if state is None:
            self.check_key(key)
            state = self._keys[key] = _Key(len(self._status), self.active)
        return state

    # ---- saved form

    def save(self) -> SavedFrontier:
        """Everything but the heaps, which `load` builds again."""
        return SavedFrontier(
            status=[int(status) for status in self._status],
            since=self.since,
            idle_said=self.idle_said,
            keys=[
                SavedKey(name, key.top, key.emitted, key.values, key.moved)
                for name, key in self._keys.items()
            ],
        )

    @classmethod
    def load(cls, saved: SavedFrontier, what: str, *, removable: bool = False) -> Frontier:
        """A frontier that goes on where `save` left off; only a generator's inputs can be removed."""
        slots = len(saved.status)
        per_slot: list[list[int | None]] = [saved.since]
        for saved_key in saved.keys:
            per_slot += [saved_key.values, saved_key.moved]
        known = set(Status) if removable else set(Status) - {Status.REMOVED}
        if any(len(column) != slots for column in per_slot) or not set(saved.status) <= known:
            raise CorruptState(what, "its parts do not fit together")
        frontier = cls()
        frontier._status = [Status(status) for status in saved.status]
        frontier.since = saved.since
        frontier._free = [slot for slot, status in enumerate(frontier._status) if status is Status.REMOVED]
        frontier.active = frontier._status.count(Status.ACTIVE)
        frontier.idle = frontier._status.count(Status.IDLE)
        frontier.idle_said = saved.idle_said
        for saved_key in saved.keys:
            if saved_key.key in frontier._keys:
                raise CorruptState(what, f"key {saved_key.key!r} stands twice")
            key = frontier.open_key(saved_key.key)
            key.values, key.moved = saved_key.values, saved_key.moved
            key.top, key.emitted = saved_key.top, saved_key.emitted
            for slot, status in enumerate(frontier._status):
                if status is Status.ACTIVE and key.values[slot] is not None:
                    key.missing -= 1
                    key.push(slot)
        return frontier
