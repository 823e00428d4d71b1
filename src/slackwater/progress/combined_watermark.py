"""The minimum watermark over several inputs, shared by coalescer, generator and tracker.

A `CombinedWatermark` knows whether each input is active, idle or done, and the watermark of each input for
each key. `CombinedWatermark.current` is the minimum over the active inputs. When to emit it is decided by the
three callers, which differ in this.

The minimum is kept in a heap with lazy repair: watermarks only rise, so an entry of the heap is never too
high. Raising an input does not touch the heap; reading the minimum repairs the entries that have reached the
top. The cost is logarithmic in the number of inputs and does not depend on the history.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import IntEnum
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

from slackwater.errors import CorruptState, InvalidArgument
from slackwater.progress.explanation import Reason
from slackwater.progress.saved_form import Saved
from slackwater.progress.values import IDLE, Emission, Watermark, is_text

_LONGEST_KEY = 200
_SPARE = 16


class Status(IntEnum):
    """The state of an input. The numbers are part of the saved form."""

    ACTIVE = 0
    IDLE = 1
    DONE = 2
    REMOVED = 3


_STATUS_NAMES = {status: status.name.lower() for status in Status}
_ACTIVE = Status.ACTIVE  # a module global: looked up for every buffer


class Holder(NamedTuple):
    """The input that holds a key back: its slot (None if no input is active), the reason, and since when.

    ``others`` is the number of other inputs that hold it back in the same way.
    """

    slot: int | None
    reason: Reason
    since: int | None
    others: int = 0


class _SavedKey(Saved):
    """One watermark key: the value of each slot, and when it last advanced."""

    key: str
    top: int | None
    emitted: int | None
    values: list[int | None]
    moved: list[int | None]


class SavedCombinedWatermark(Saved):
    """The saved form: the status of each slot and since when, then the keys."""

    status: list[int]
    since: list[int | None]
    idle_emitted: bool
    keys: list[_SavedKey]


class InputState(NamedTuple):
    """An input in saved state, for inspection without the object that saved it."""

    name: str
    status: str
    """``active``, ``idle`` or ``done``."""
    watermarks: dict[str, int | None]
    """Its watermark of each key."""


def saved_inputs(saved: SavedCombinedWatermark, names: Mapping[int, str]) -> list[InputState]:
    """The inputs in a saved minimum; ``names`` has the name of each slot."""
    return [
        InputState(
            name, Status(saved.status[slot]).name.lower(), {key.key: key.values[slot] for key in saved.keys}
        )
        for slot, name in names.items()
    ]


class _Key:
    """The watermarks of all inputs for one key."""

    __slots__ = ("emitted", "heap", "in_heap", "missing", "moved", "top", "values")

    def __init__(self, slots: int, active: int) -> None:
        self.values: list[int | None] = [None] * slots
        self.moved: list[int | None] = [None] * slots
        self.heap: list[tuple[int, int]] = []
        self.in_heap = [False] * slots
        self.missing = active
        """Number of active inputs that have never sent this key. While not zero, the key is blocked (C3)."""
        self.top: int | None = None
        self.emitted: int | None = None

    def push(self, slot: int) -> None:
        value = self.values[slot]
        if value is None or self.in_heap[slot]:
            return
        heappush(self.heap, (value, slot))
        self.in_heap[slot] = True
        if len(self.heap) > 2 * len(self.values) + _SPARE:
            # Stale entries of removed inputs, whose slots are reused, have accumulated: rebuild the heap.
            self.heap = [(known, index) for index, known in enumerate(self.values) if known is not None]
            heapify(self.heap)
            self.in_heap = [known is not None for known in self.values]

    def lowest(self, status: list[Status]) -> tuple[int, int]:
        """Return the lowest (value, slot) of the active inputs, all of which must have a value."""
        heap = self.heap
        while True:
            value, slot = heap[0]
            current = self.values[slot]
            if current is None or status[slot] is not _ACTIVE:
                heappop(heap)
                self.in_heap[slot] = False
            elif current == value:
                return value, slot
            else:
                heapreplace(heap, (current, slot))


class CombinedWatermark:
    """The minimum over several inputs, for each watermark key. Inputs are numbered slots.

    >>> combined = CombinedWatermark(2)
    >>> combined.raise_to(0, "default", 10, None)
    >>> combined.current("default")  # None: input 1 has not sent a watermark
    >>> combined.set_idle(1, None)
    >>> combined.current("default")
    10
    """

    __slots__ = ("_free", "_keys", "_status", "active", "idle", "idle_emitted", "since")

    def __init__(self, slots: int = 0, now: int | None = None) -> None:
        self._status = [Status.ACTIVE] * slots
        self.since: list[int | None] = [now] * slots
        self._keys: dict[str, _Key] = {}
        self._free: list[int] = []
        self.active = slots
        self.idle = 0
        self.idle_emitted = False

    # ---- inputs

    def add(self, now: int | None, status: Status = Status.ACTIVE) -> int:
        """Add an input without watermarks and return its slot. An active one ends an emitted IDLE."""
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
            self.idle_emitted = False
            for key in self._keys.values():
                key.missing += 1
        elif status is Status.IDLE:
            self.idle += 1
        return slot

    def remove(self, slot: int, now: int | None) -> None:
        """Remove an input; its slot will be reused."""
        self._leave(slot, Status.REMOVED, now)
        for key in self._keys.values():
            key.values[slot] = key.moved[slot] = None
            key.in_heap[slot] = False  # the entry is dropped when it reaches the top
        self._free.append(slot)

    def status_name(self, slot: int) -> str:
        """Return the status of an input in lower case."""
        return _STATUS_NAMES[self._status[slot]]

    def status(self, slot: int) -> Status:
        """Return the status of an input."""
        return self._status[slot]

    def wake(self, slot: int, now: int | None) -> None:
        """Make an idle input active for every key; its old watermarks limit the minimum again (C5)."""
        if self._status[slot] is not Status.IDLE:
            return
        self._status[slot] = Status.ACTIVE
        self.since[slot] = now
        self.active += 1
        self.idle -= 1
        self.idle_emitted = False
        for key in self._keys.values():
            if key.values[slot] is None:
                key.missing += 1
            else:
                key.push(slot)

    def set_idle(self, slot: int, now: int | None) -> None:
        """Exclude an input for every key until it is active again; its watermarks are kept (C4)."""
        if self._status[slot] is Status.ACTIVE:
            self._leave(slot, Status.IDLE, now)
            self.idle += 1

    def set_done(self, slot: int, now: int | None) -> None:
        """Exclude an input permanently (C7)."""
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
        """Number of slots, including those of removed inputs."""
        return len(self._status)

    @property
    def keys(self) -> Iterator[str]:
        """The watermark keys seen so far."""
        return iter(self._keys)

    def value(self, slot: int, key: str) -> int | None:
        """Return the watermark of one input, None if it has sent none."""
        state = self._keys.get(key)
        return None if state is None else state.values[slot]

    def values_and_statuses(self, slots: Iterable[int], key: str) -> tuple[list[int | None], list[str]]:
        """Return the watermarks of some inputs for a key, and their statuses in lower case."""
        slots, state, statuses = list(slots), self._keys.get(key), self._status
        values = [None if state is None else state.values[slot] for slot in slots]
        return values, [_STATUS_NAMES[statuses[slot]] for slot in slots]

    def emitted(self, key: str) -> int | None:
        """Return the last watermark emitted for a key."""
        state = self._keys.get(key)
        return None if state is None else state.emitted

    def set_emitted(self, key: str, value: int) -> None:
        """Record an emitted watermark (for callers that emit something other than `current`)."""
        self.open_key(key).emitted = value

    def raise_to(self, slot: int, key: str, value: int, now: int | None) -> None:
        """Raise the watermark of an active input; a value that is not higher has no effect."""
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
        """Return the minimum over the active inputs, or the highest watermark seen if none is active.

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
        """Return the emissions that are due: advanced watermarks of these keys, then IDLE (C2, C6, C10)."""
        emissions: list[Emission] = []
        for key in keys:
            value = self.current(key)
            if value is not None:
                state = self._keys[key]
                if state.emitted is None or value > state.emitted:
                    state.emitted = value
                    emissions.append(Watermark(value, key))
        if self.active == 0 and self.idle and not self.idle_emitted:
            self.idle_emitted = True
            emissions.append(IDLE)
        return tuple(emissions)

    def emit_all(self) -> tuple[Emission, ...]:
        """Call `emit` for every key: needed when an input became idle, ended or was removed."""
        return self.emit(self._keys)

    def holder(self, key: str) -> Holder:
        """Return the input that has to advance for ``key`` to advance."""
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
        """Raise InvalidArgument if ``key`` cannot be a watermark key, before any state changes."""
        if key not in self._keys and not (is_text(key) and 0 < len(key) <= _LONGEST_KEY):
            raise InvalidArgument(
                "key",
                key,
                f"is not a string of 1 to {_LONGEST_KEY} characters",
                fix="use the name of the event-time column",
            )

    def open_key(self, key: str) -> _Key:
        """Return the state of a key. A new key starts with the current idle and done states (C8)."""
        state = self._keys.get(key)
        if state is None:
            self.check_key(key)
            state = self._keys[key] = _Key(len(self._status), self.active)
        return state

    def without(self, removed: Collection[int], now: int | None) -> tuple[CombinedWatermark, dict[int, int]]:
        """A minimum without some inputs and without free slots, and the new slot of each old one.

        What was emitted stays emitted, and the highest watermark seen stays so (G6).

        >>> combined = CombinedWatermark(3)
        >>> for slot, value in enumerate((5, 9, 7)):
        ...     combined.raise_to(slot, "default", value, None)
        >>> fewer, slots = combined.without({0}, None)
        >>> fewer.slots, slots, fewer.current("default")
        (2, {1: 0, 2: 1}, 7)
        """
        for slot in removed:
            self.remove(slot, now)
        kept = [slot for slot, status in enumerate(self._status) if status is not Status.REMOVED]
        saved = self.save()
        fewer = SavedCombinedWatermark(
            [saved.status[slot] for slot in kept],
            [saved.since[slot] for slot in kept],
            saved.idle_emitted,
            [
                _SavedKey(
                    key.key,
                    key.top,
                    key.emitted,
                    [key.values[slot] for slot in kept],
                    [key.moved[slot] for slot in kept],
                )
                for key in saved.keys
            ],
        )
        return CombinedWatermark.load(fewer, "minimum"), {slot: index for index, slot in enumerate(kept)}

    # ---- saved form

    def save(self) -> SavedCombinedWatermark:
        """Return the saved form, without the heaps, which `load` rebuilds."""
        return SavedCombinedWatermark(
            status=[int(status) for status in self._status],
            since=self.since,
            idle_emitted=self.idle_emitted,
            keys=[
                _SavedKey(name, key.top, key.emitted, key.values, key.moved)
                for name, key in self._keys.items()
            ],
        )

    @classmethod
    def load(cls, saved: SavedCombinedWatermark, what: str, *, removable: bool = False) -> CombinedWatermark:
        """Restore what `save` returned; only the inputs of a generator are ``removable``."""
        slots = len(saved.status)
        per_slot: list[list[int | None]] = [saved.since]
        for saved_key in saved.keys:
            per_slot += [saved_key.values, saved_key.moved]
        allowed = set(Status) if removable else set(Status) - {Status.REMOVED}
        if any(len(column) != slots for column in per_slot) or not set(saved.status) <= allowed:
            raise CorruptState(what, "its parts are inconsistent")
        combined = cls()
        combined._status = [Status(status) for status in saved.status]
        combined.since = saved.since
        combined._free = [slot for slot, status in enumerate(combined._status) if status is Status.REMOVED]
        combined.active = combined._status.count(Status.ACTIVE)
        combined.idle = combined._status.count(Status.IDLE)
        combined.idle_emitted = saved.idle_emitted
        for saved_key in saved.keys:
            if saved_key.key in combined._keys:
                raise CorruptState(what, f"key {saved_key.key!r} is duplicated")
            key = combined.open_key(saved_key.key)
            key.values, key.moved = saved_key.values, saved_key.moved
            key.top, key.emitted = saved_key.top, saved_key.emitted
            for slot, status in enumerate(combined._status):
                if status is Status.ACTIVE and key.values[slot] is not None:
                    key.missing -= 1
                    key.push(slot)
        return combined
