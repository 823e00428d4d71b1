"""Watermarks at a source: rules G1 to G9.

A generator watches the events of one stream, partition by partition, and says how far the stream
is. Which watermark an event or the clock gives is the policy, a value (`Lag`, `Clock`,
`FixedDelay`, `Constant`); the generator is the running part. Put it before any filter: a source
whose rows are all filtered out still advances (G9). It never drops an event (G8).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from slackwater.errors import InvalidArgument, InvalidDuration, UnknownSource
from slackwater.progress.explanation import Explanation, Reason
from slackwater.progress.frontier import Frontier, SavedFrontier, Status
from slackwater.progress.saved import Saved, SavedForm
from slackwater.progress.values import DEFAULT_KEY, IDLE, Emission, Origin, Watermark, check_origin
from slackwater.time import (
    BEGINNING_OF_TIME,
    END_OF_TIME,
    DurationLike,
    InstantLike,
    check_int64,
    duration,
    frame_floor,
    instant,
)


@dataclass(frozen=True, slots=True)
class _Delayed:
    lag: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "lag", _not_negative(self.lag, "lag"))


class Lag(_Delayed):
    """A partition's watermark is its highest event time minus ``lag``; it never goes back.

    >>> Lag(5_000_000).lag
    5000000
    """

    __slots__ = ()


class Clock(_Delayed):
    """The clock minus ``lag``, but never beyond the event being observed (G2).

    With a lag of zero and the clock as event time this is ingestion time.

    >>> Clock(0).lag
    0
    """

    __slots__ = ()


class FixedDelay(_Delayed):
    """The clock minus ``lag``, whatever the events say: older events are late.

    >>> FixedDelay(20).lag
    20
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Constant:
    """Always the same watermark, but never beyond the event being observed (G2).

    >>> Constant(42).value
    42
    """

    value: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", check_int64(self.value, "value"))


WatermarkPolicy = Lag | Clock | FixedDelay | Constant


def lag(delay: DurationLike) -> Lag:
    """Events arrive at most ``delay`` out of order: the usual choice.

    >>> lag("5 seconds")
    Lag(lag=5000000)
    """
    return Lag(duration(delay, name="lag"))


def clock(delay: DurationLike = "0 seconds") -> Clock:
    """Follow the clock at a distance, without making an event late by its own arrival.

    >>> clock("1 minute")
    Clock(lag=60000000)
    """
    return Clock(duration(delay, name="lag"))


def fixed_delay(delay: DurationLike) -> FixedDelay:
    """Follow the clock at a distance, whatever the events say.

    >>> fixed_delay("20 seconds")
    FixedDelay(lag=20000000)
    """
    return FixedDelay(duration(delay, name="lag"))


def constant(value: InstantLike) -> Constant:
    """Always this watermark.

    >>> constant("1970-01-01T00:00:42Z")
    Constant(value=42000000)
    """
    return Constant(instant(value, name="value"))


class _SavedPartition(Saved):
    name: Origin
    slot: int
    heard: int


class _SavedGenerator(Saved):
    partitions: list[_SavedPartition]
    frontier: SavedFrontier
    now: int
    ahead: int
    has_emitted: bool


_SPARE = 16
_FORM = SavedForm("watermark generator", "G", 1, _SavedGenerator)


class WatermarkGenerator:
    """The watermark of a stream from its events and the clock.

    Every call is told the time (``now``) and returns what follows: a risen watermark, then IDLE
    when nobody is left to wait for. ``frame`` throttles: only multiples of it (plus
    ``frame_offset``) are emitted, and 0 suppresses watermarks. ``idle_after`` is how long a
    partition may be silent before it is left out; exactly then counts as silent. None: never.
    An event further than ``max_ahead`` in the future of the clock does not advance the watermark;
    it is counted in `ahead`, and its row is data like any other.

    >>> generator = WatermarkGenerator(Lag(3), partitions=["a", "b"], idle_after=10, now=0)
    >>> generator.observe("a", 20, now=1)
    ()
    >>> print(generator.why())
    watermark unknown: held back by partition 'b' since 1970-01-01T00:00:00Z (never spoke)
    >>> generator.tick(now=10)
    (Watermark(value=17, key='default'),)
    """

    __slots__ = (
        "_deadlines",
        "_followed",
        "_frame",
        "_frame_offset",
        "_frontier",
        "_has_emitted",
        "_heard",
        "_idle_after",
        "_key",
        "_max_ahead",
        "_names",
        "_now",
        "_policy",
        "_slots",
        "ahead",
    )

    def __init__(
        self,
        policy: WatermarkPolicy,
        *,
        partitions: Iterable[Origin] = (),
        now: int,
        idle_after: int | None = None,
        frame: int = 1,
        frame_offset: int = 0,
        max_ahead: int | None = None,
        key: str = DEFAULT_KEY,
    ) -> None:
        if not isinstance(policy, WatermarkPolicy):
            raise InvalidArgument("policy", policy, "is not a watermark policy", fix='write lag("5 seconds")')
        if isinstance(partitions, str):
            raise InvalidArgument("partitions", partitions, "is a single text", fix=f"write [{partitions!r}]")
        if idle_after is not None and check_int64(idle_after, "idle_after") <= 0:
            raise InvalidDuration(
                "idle_after", idle_after, "must be greater than zero", fix="leave it out for never"
            )
        self._policy = policy
        self._idle_after = None if idle_after is None else int(idle_after)
        self._frame = _not_negative(frame, "frame")
        self._frame_offset = check_int64(frame_offset, "frame_offset")
        self._max_ahead = None if max_ahead is None else _not_negative(max_ahead, "max_ahead")
        self._key = key
        self.ahead = 0
        """How many events lay further than ``max_ahead`` in the future."""
        self._frontier = Frontier()
        self._frontier.open_key(key)
        self._slots: dict[Origin, int] = {}
        self._names: dict[int, Origin] = {}
        self._heard: dict[int, int] = {}
        self._deadlines: list[tuple[int, int]] = []
        self._now = check_int64(now, "now")
        self._has_emitted = False
        """Whether a watermark has left; until then restored ones decide what counts as emitted (G7)."""
        self._followed: int | None = None
        """What the clock has raised every active partition to; None while some may lie below."""
        for partition in partitions:
            self.add(partition, now=now)

    # ---- steps

    def observe(self, partition: Origin, timestamp: int, *, now: int) -> tuple[Emission, ...]:
        """An event has come from a partition.

        The highest timestamp of a batch may stand for all of it, once its rows have been judged by the
        watermark before; leave out those further than ``max_ahead`` in the future then.
        """
        slot = self._slot(partition)
        timestamp, now = check_int64(timestamp, "timestamp"), check_int64(now, "now")
        self._now = now
        self._hear(slot, now)
        if self._max_ahead is not None and timestamp > now + self._max_ahead:
            self.ahead += 1
        elif isinstance(self._policy, Lag):
            self._frontier.raise_to(
                slot, self._key, max(timestamp - self._policy.lag, BEGINNING_OF_TIME), now
            )
        return self._evaluate(now, limit=timestamp)

    def hear(self, partition: Origin, *, now: int) -> None:
        """Something has come from a partition that tells no time: it is not silent, and nothing moves by it.

        >>> generator = WatermarkGenerator(Lag(3), partitions=["a"], idle_after=10, now=0)
        >>> generator.hear("a", now=9)
        >>> generator.tick(now=10)
        ()
        """
        slot = self._slot(partition)
        self._now = now = check_int64(now, "now")
        self._hear(slot, now)

    def tick(self, *, now: int) -> tuple[Emission, ...]:
        """Time has passed and nothing has come."""
        self._now = now = check_int64(now, "now")
        return self._evaluate(now, limit=END_OF_TIME)

    def add(self, partition: Origin, *, now: int) -> None:
        """A partition has appeared: active, without a watermark, holding the minimum back (G6)."""
        if partition in self._slots:
            raise InvalidArgument("partition", partition, "is there already", fix="remove it first")
        partition, now = check_origin(partition, "partition"), check_int64(now, "now")
        slot = self._frontier.add(now)
        self._slots[partition] = slot
        self._names[slot] = partition
        self._now = now
        self._hear(slot, now)

    def remove(self, partition: Origin, *, now: int) -> tuple[Emission, ...]:
        """A partition is gone; what it held back may leave (G6)."""
        slot = self._slot(partition)
        now = check_int64(now, "now")
        del self._slots[partition], self._names[slot], self._heard[slot]
        self._frontier.remove(slot, now)
        self._now = now
        return self._evaluate(now, limit=END_OF_TIME)

    def restore(self, watermarks: Mapping[Origin, int | None], *, now: int) -> None:
        """Go on from the watermarks of partitions, where nothing else was kept (G7).

        They count as observed, and what was emitted last is taken to be their minimum, so that
        time does not go back over a restart; partitions may be restored one after the other. A
        partition not known yet is added.
        """
        now = check_int64(now, "now")
        named = {check_origin(name, "partition"): value for name, value in watermarks.items()}
        known = {name: check_int64(value, "watermark") for name, value in named.items() if value is not None}
        for partition in named:
            if partition not in self._slots:
                self.add(partition, now=now)
        for partition, value in known.items():
            slot = self._slots[partition]
            self._hear(slot, now)
            self._frontier.raise_to(slot, self._key, value, now)
        values = [self._frontier.value(slot, self._key) for slot in self._names]
        lowest = min((value for value in values if value is not None), default=None)
        if lowest is not None and not self._has_emitted:
            self._frontier.set_emitted(self._key, lowest)
        self._now = now

    def resume(self, *, now: int) -> None:
        """The time between the last step and now was our own doing, not the partitions' silence.

        Call it after a pause of the pipeline itself (a restart, a slow batch): nobody becomes
        idle by it. A clock that went back is taken as it is.
        """
        now = check_int64(now, "now")
        pause = max(0, now - self._now)
        self._heard = {slot: heard + pause for slot, heard in self._heard.items()}
        self._set_deadlines()
        self._now = now

    # ---- questions

    @property
    def current(self) -> int | None:
        """The last watermark emitted, None before the first."""
        return self._frontier.emitted(self._key)

    @property
    def partitions(self) -> tuple[Origin, ...]:
        """The partitions there are, in the order in which they came."""
        return tuple(self._slots)

    def partition_watermark(self, partition: Origin) -> int | None:
        """How far one partition is, unthrottled."""
        return self._frontier.value(self._slot(partition), self._key)

    def why(self) -> Explanation:
        """Which partition holds the watermark back, since when it says nothing, and why."""
        holder = self._frontier.holder(self._key)
        if holder.slot is None:
            reason = Reason.IDLE if self._slots else Reason.NEVER_SPOKE
            return Explanation(self._key, self.current, reason, since=holder.since)
        return Explanation(
            key=self._key,
            watermark=self.current,
            reason=holder.reason,
            held_by=f"partition {self._names[holder.slot]!r}",
            since=holder.since,
            holder_watermark=self._frontier.value(holder.slot, self._key),
            others=holder.others,
        )

    # ---- saved form

    def save(self) -> bytes:
        """Everything that was observed; the configuration is given again to `load`."""
        partitions = [_SavedPartition(name, slot, self._heard[slot]) for name, slot in self._slots.items()]
        return _FORM.seal(
            _SavedGenerator(partitions, self._frontier.save(), self._now, self.ahead, self._has_emitted)
        )

    def load(self, data: bytes) -> WatermarkGenerator:
        """A generator with this one's configuration that goes on where ``data`` left off.

        A changed configuration is welcome (a longer lag, another frame): what was emitted still
        does not go back. Partitions that only this one has are added. Another key is refused.

        >>> generator = WatermarkGenerator(Lag(3), partitions=["a"], now=0)
        >>> _ = generator.observe("a", 10, now=1)
        >>> WatermarkGenerator(Lag(3), now=2).load(generator.save()).current
        7
        """
        saved = _FORM.unseal(data)
        loaded = WatermarkGenerator(
            self._policy,
            now=saved.now,
            idle_after=self._idle_after,
            frame=self._frame,
            frame_offset=self._frame_offset,
            max_ahead=self._max_ahead,
            key=self._key,
        )
        with _FORM.restoring():
            loaded._frontier = Frontier.load(saved.frontier, _FORM.what, removable=True)
        keys = tuple(loaded._frontier.keys)
        if keys != (self._key,):
            raise InvalidArgument("key", self._key, f"was not saved, but {keys!r} was", fix="use that key")
        loaded.ahead, loaded._has_emitted = saved.ahead, saved.has_emitted
        for partition in saved.partitions:
            loaded._slots[partition.name] = partition.slot
            loaded._names[partition.slot] = partition.name
            loaded._heard[partition.slot] = partition.heard
        present = {
            slot
            for slot in range(loaded._frontier.slots)
            if loaded._frontier.status(slot) in (Status.ACTIVE, Status.IDLE)
        }
        fits = set(loaded._names) == present and len(loaded._slots) == len(saved.partitions)
        _FORM.check(fits, "its partitions do not fit together")
        loaded._set_deadlines()
        for name in self._slots:
            if name not in loaded._slots:
                loaded.add(name, now=saved.now)
        return loaded

    # ---- the rules

    def _slot(self, partition: Origin) -> int:
        slot = self._slots.get(partition)
        if slot is None:
            raise UnknownSource(f"partition {partition!r}", self._slots, fix="add() it first")
        return slot

    def _hear(self, slot: int, now: int) -> None:
        before = self._heard.get(slot)
        self._heard[slot] = now
        joins = before is None or self._frontier.status(slot) is Status.IDLE
        self._frontier.wake(slot, now)
        if joins:
            self._followed = None
        if self._idle_after is not None and (joins or before is None or now < before):
            # Otherwise the deadline in the heap is too early, and is repaired when it surfaces.
            heappush(self._deadlines, (now, slot))
            if len(self._deadlines) > 2 * len(self._heard) + _SPARE:
                self._set_deadlines()

    def _set_deadlines(self) -> None:
        active = (item for item in self._heard.items() if self._frontier.status(item[0]) is Status.ACTIVE)
        self._deadlines = [(heard, slot) for slot, heard in active]
        heapify(self._deadlines)

    def _expire(self, now: int) -> None:
        """Mark as idle whoever has been silent for ``idle_after``; exactly that long counts (G3)."""
        if self._idle_after is None:
            return
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] + self._idle_after <= now:
            heard, slot = heappop(deadlines)
            last = self._heard.get(slot)
            if last is None:
                continue  # it was removed
            if last > heard:
                heappush(deadlines, (last, slot))
            else:
                self._frontier.set_idle(slot, now)

    def _evaluate(self, now: int, limit: int) -> tuple[Emission, ...]:
        self._expire(now)
        self._follow_clock(now, limit)
        emissions: list[Emission] = []
        value = self._frontier.current(self._key)
        if value is not None and self._frame:
            value = max(frame_floor(value, self._frame, self._frame_offset), BEGINNING_OF_TIME)
            emitted = self.current
            if emitted is None or value > emitted:
                self._frontier.set_emitted(self._key, value)
                self._has_emitted = True
                emissions.append(Watermark(value, self._key))
        if self._frontier.active == 0 and not self._frontier.idle_said:
            self._frontier.idle_said = True
            emissions.append(IDLE)
        return tuple(emissions)

    def _follow_clock(self, now: int, limit: int) -> None:
        """Raise every active partition to what the clock says, at most to ``limit`` (G2)."""
        policy = self._policy
        if isinstance(policy, Lag):
            return
        if isinstance(policy, FixedDelay):
            value = now - policy.lag
        else:
            value = min(policy.value if isinstance(policy, Constant) else now - policy.lag, limit)
        value = max(value, BEGINNING_OF_TIME)
        if self._followed is not None and value <= self._followed:
            return
        for slot in self._slots.values():
            if self._frontier.status(slot) is Status.ACTIVE:
                self._frontier.raise_to(slot, self._key, value, now)
        self._followed = value


def _not_negative(value: int, name: str) -> int:
    number = check_int64(value, name)
    if number < 0:
        raise InvalidDuration(name, value, "is negative", fix="give zero or more")
    return number
