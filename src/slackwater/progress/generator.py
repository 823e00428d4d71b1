"""Watermark generators for sources (rules G1 to G9 of docs/spec/progress.md).

A generator observes the events of a stream, partition by partition, and emits the watermark of the stream.
The policy (`Lag`, `Learned`, `LagThenClock`, `LagLikeSpark`, `Clock`, `FixedDelay`, `Constant`) is a value
that defines the watermark of an event or of the clock; the generator holds the state. Generate watermarks
before filters, so that a source whose rows are all filtered out still advances (G9). A generator never drops
an event (G8).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from slackwater.errors import IncompatibleState, InvalidArgument, InvalidDuration, UnknownSource
from slackwater.progress.combined_watermark import CombinedWatermark, Status
from slackwater.progress.delays import DelayHistogram
from slackwater.progress.discovery import Discover
from slackwater.progress.explanation import Explanation, OriginProgress, Reason
from slackwater.progress.generator_state import FORM, SavedGenerator, SavedPartition
from slackwater.progress.learned_lag import LagDecision, LagLearner
from slackwater.progress.policy_state import ClockAnchors, PostponedEvents
from slackwater.progress.silence import PartitionSilence
from slackwater.progress.values import DEFAULT_KEY, IDLE, Emission, Origin, Watermark, check_origin
from slackwater.progress.watermark_policies import (
    Constant,
    FixedDelay,
    Lag,
    LagLikeSpark,
    LagThenClock,
    Learned,
    WatermarkPolicy,
    not_negative,
)
from slackwater.time import BEGINNING_OF_TIME, END_OF_TIME, MILLISECOND, check_int64, frame_floor


class WatermarkGenerator:
    """Generates the watermark of a stream from its events and the clock.

    Every step takes the current time (``now``) and returns the emissions that are due: an advanced watermark,
    then IDLE when all partitions are idle.

    Args:
        policy: `Lag`, `Learned`, `LagThenClock`, `LagLikeSpark`, `Clock`, `FixedDelay` or `Constant`.
        partitions: The partitions that exist at the start; an empty list means that there is none, so the
            stream is idle. None (the default) means that they are not known yet: the generator emits nothing,
            not even IDLE, until the first one is added. `add` adds partitions in either case.
        now: The current time, in microseconds.
        discover: Emit nothing for this many microseconds after ``now``, so that partitions that are added in
            the meantime count for the first watermark. None: emit as soon as there is a watermark.
        idle_after: A partition is idle when it has been silent for this many microseconds; exactly this long
            counts as idle. None: never.
        frame: Emit only multiples of ``frame`` plus ``frame_offset`` (G4). 0 suppresses watermarks.
        frame_offset: The offset of the frame boundaries.
        max_ahead: An event that is more than this many microseconds ahead of the clock does not advance the
            watermark. It is counted in `ahead`, and its row is processed like any other. None: no limit.
        forget_after: Remove a partition that has been silent for this many microseconds, so that the state
            does not grow with every partition that ever existed. One that sends again is a new one. None:
            partitions are never removed.
        key: The watermark key.

    Raises:
        InvalidArgument: An argument has a wrong type or is out of range.

    >>> import slackwater as sw
    >>> generator = sw.WatermarkGenerator(sw.Lag(3), partitions=["a", "b"], idle_after=10, now=0)
    >>> generator.observe("a", 20, now=1)
    ()
    >>> print(generator.why())
    watermark unknown: held back by partition 'b' since 1970-01-01T00:00:00Z (never spoke)
    >>> generator.tick(now=10)
    (Watermark(value=17, key='default'),)
    """

    __slots__ = (
        "_anchors",
        "_combined",
        "_discovers",
        "_discovery",
        "_followed",
        "_forget_after",
        "_frame",
        "_frame_offset",
        "_has_emitted",
        "_idle_after",
        "_key",
        "_learner",
        "_max_ahead",
        "_names",
        "_now",
        "_pending",
        "_policy",
        "_silence",
        "_slots",
        "ahead",
    )

    def __init__(
        self,
        policy: WatermarkPolicy,
        *,
        partitions: Iterable[Origin] | None = None,
        now: int,
        discover: int | None = None,
        idle_after: int | None = None,
        frame: int = 1,
        frame_offset: int = 0,
        max_ahead: int | None = None,
        forget_after: int | None = None,
        key: str = DEFAULT_KEY,
    ) -> None:
        if not isinstance(policy, WatermarkPolicy):
            raise InvalidArgument("policy", policy, "is not a watermark policy", fix='write lag("5 seconds")')
        if isinstance(partitions, str):
            raise InvalidArgument(
                "partitions", partitions, "is a string, not a list", fix=f"write [{partitions!r}]"
            )
        if idle_after is not None and check_int64(idle_after, "idle_after") <= 0:
            raise InvalidDuration(
                "idle_after",
                idle_after,
                "must be greater than zero",
                fix="omit it if partitions are never idle",
            )
        if forget_after is not None and check_int64(forget_after, "forget_after") < max(idle_after or 0, 1):
            raise InvalidDuration(
                "forget_after",
                forget_after,
                "must be greater than zero and not shorter than idle_after",
                fix="omit it to keep all partitions",
            )
        self._policy = policy
        self._discovers = partitions is None
        self._idle_after = None if idle_after is None else int(idle_after)
        self._forget_after = None if forget_after is None else int(forget_after)
        self._frame = not_negative(frame, "frame")
        self._frame_offset = check_int64(frame_offset, "frame_offset")
        self._max_ahead = None if max_ahead is None else not_negative(max_ahead, "max_ahead")
        self._key = key
        self.ahead = 0
        """Number of events that were more than ``max_ahead`` ahead of the clock."""
        self._combined = CombinedWatermark()
        self._combined.open_key(key)
        self._slots: dict[Origin, int] = {}
        self._names: dict[int, Origin] = {}
        self._silence = PartitionSilence(self._idle_after)
        self._anchors = ClockAnchors()
        self._learner = LagLearner(policy) if isinstance(policy, Learned) else None
        self._pending = PostponedEvents()
        self._now = check_int64(now, "now")
        self._discovery: tuple[int, int] | None = None
        """When the discovery of partitions began and when it ends; None if it is over."""
        if discover is not None:
            self._discovery = self._now, self._now + Discover(discover).wait
        self._has_emitted = False
        """Whether a watermark was emitted. Until then `restore` sets the last emitted one (G7)."""
        self._followed: int | None = None
        """The watermark to which the clock raised all active partitions; None if some may be lower."""
        for partition in partitions or ():
            self.add(partition, now=now)

    # ---- steps

    def observe(
        self, partition: Origin, timestamp: int, *, now: int, learns: bool = True
    ) -> tuple[Emission, ...]:
        """Process an event of a partition.

        A batch may be passed as one call with its highest timestamp, if the lateness of its rows was decided
        before. Exclude rows that are more than ``max_ahead`` ahead of the clock in this case, and pass the
        delays of its rows to `learn`.

        Args:
            partition: The partition of the event.
            timestamp: The event time.
            now: The current time.
            learns: Whether a learned lag counts the delay of this event.

        Returns:
            The advanced watermark, if any, and IDLE if all partitions are idle.

        Raises:
            UnknownSource: The partition was not added.
        """
        slot = self._slot(partition)
        timestamp, now = check_int64(timestamp, "timestamp"), check_int64(now, "now")
        self._now = now
        self._hear(slot, now)
        if self._max_ahead is not None and timestamp > now + self._max_ahead:
            self.ahead += 1
        elif isinstance(self._policy, Lag | LagThenClock | Learned):
            if self._learner is not None:
                reached = self._learner.reached.get(slot)
                if learns and reached is not None:
                    self._learner.count(DelayHistogram.of([reached - timestamp]), now=now)
                self._learner.reach(slot, timestamp)
            value = max(timestamp - self.lag, BEGINNING_OF_TIME)
            self._combined.raise_to(slot, self._key, value, now)
            if isinstance(self._policy, LagThenClock):
                self._anchors.raise_to(slot, value, now=now)
        elif isinstance(self._policy, LagLikeSpark):
            value = max(frame_floor(timestamp, MILLISECOND) - self._policy.lag, BEGINNING_OF_TIME)
            due = self._pending.postpone(slot, value)
            if due is not None:
                self._combined.raise_to(slot, self._key, due, now)
        return self._evaluate(now, limit=timestamp)

    def learn(self, delays: DelayHistogram, *, now: int) -> None:
        """Count the delays of a batch for a policy that learns its lag; call it before `observe`.

        A delay is the distance of a row to `reached` of its partition before the batch, or zero. With other
        policies nothing is counted.

        Args:
            delays: The delays of the rows of the batch.
            now: The current time, in microseconds since 1970.

        >>> import slackwater as sw
        >>> generator = sw.WatermarkGenerator(sw.Learned(0.9, initial=0), partitions=["a"], now=0)
        >>> generator.learn(DelayHistogram.of([0, 4_000_000]), now=1)
        >>> generator.lag
        4000000
        """
        if self._learner is not None:
            self._learner.count(delays, now=check_int64(now, "now"))

    def hear(self, partition: Origin, *, now: int) -> None:
        """Record that a partition sent something without an event time: it is not idle, nothing is emitted.

        Args:
            partition: The partition.
            now: The current time, in microseconds since 1970.

        >>> import slackwater as sw
        >>> generator = sw.WatermarkGenerator(sw.Lag(3), partitions=["a"], idle_after=10, now=0)
        >>> generator.hear("a", now=9)
        >>> generator.tick(now=10)
        ()
        """
        slot = self._slot(partition)
        self._now = now = check_int64(now, "now")
        self._hear(slot, now)

    def tick(self, *, now: int) -> tuple[Emission, ...]:
        """Process the passing of time without events: partitions may become idle, or be forgotten.

        Args:
            now: The current time, in microseconds since 1970.
        """
        self._now = now = check_int64(now, "now")
        self._forget(now)
        if isinstance(self._policy, LagThenClock):
            self._follow_clock_from_events(now)
        elif isinstance(self._policy, LagLikeSpark):
            self._count(self._pending.tick(), now)
        return self._evaluate(now, limit=END_OF_TIME)

    def add(self, partition: Origin, *, now: int) -> None:
        """Add a partition. It is active without a watermark and holds the minimum back (G6).

        Args:
            partition: The name or number of the partition.
            now: The current time, in microseconds since 1970.
        """
        if partition in self._slots:
            raise InvalidArgument("partition", partition, "exists already", fix="remove it first")
        partition, now = check_origin(partition, "partition"), check_int64(now, "now")
        slot = self._combined.add(now)
        self._slots[partition] = slot
        self._names[slot] = partition
        self._now = now
        self._hear(slot, now)

    def remove(self, partition: Origin, *, now: int) -> tuple[Emission, ...]:
        """Remove a partition and emit what it held back (G6).

        Args:
            partition: The partition.
            now: The current time, in microseconds since 1970.
        """
        slot = self._slot(partition)
        now = check_int64(now, "now")
        self._combined.remove(slot, now)
        self._drop(partition)
        self._now = now
        return self._evaluate(now, limit=END_OF_TIME)

    def restore(self, watermarks: Mapping[Origin, int | None], *, now: int) -> None:
        """Continue from the watermarks of partitions, where no other state was kept (G7).

        The watermarks count as observed, and their minimum counts as the last emitted watermark, so that time
        does not go back over a restart. Partitions may be restored one after the other. Unknown partitions
        are added.

        Args:
            watermarks: The watermark of each partition, None if it had none.
            now: The current time.
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
            self._combined.raise_to(slot, self._key, value, now)
            if isinstance(self._policy, LagThenClock):
                self._anchors.raise_to(slot, value, now=now)
            if self._learner is not None:
                self._learner.reach(slot, value)
        values = [self._combined.value(slot, self._key) for slot in self._names]
        lowest = min((value for value in values if value is not None), default=None)
        if lowest is not None and not self._has_emitted:
            self._combined.set_emitted(self._key, lowest)
        self._now = now

    def resume(self, *, now: int) -> None:
        """Ignore the time since the last step: for idleness, for discovery, and for a clock between events.

        Call it after a pause of the pipeline itself (a restart, a slow batch), so that no partition becomes
        idle because of it. If the clock went back, only the current time is updated.

        Args:
            now: The current time, in microseconds since 1970.
        """
        now = check_int64(now, "now")
        pause = max(0, now - self._now)
        self._silence.shift(pause, self._is_active)
        self._anchors.shift(pause)
        if self._discovery is not None:
            self._discovery = self._discovery[0], self._discovery[1] + pause
        self._now = now

    def set_back(self, by: int) -> None:
        """Follow a clock that was set back by so many microseconds: what happened before it keeps its age.

        Without this, a clock that was wrong once makes every deadline that was set then wrong for as long.

        Args:
            by: The distance in microseconds.

        >>> import slackwater as sw
        >>> generator = sw.WatermarkGenerator(sw.Lag(3), partitions=["a"], idle_after=10, now=0)
        >>> _ = generator.observe("a", 20, now=1000)
        >>> generator.set_back(990)
        >>> generator.tick(now=19), generator.tick(now=20)
        ((), (IDLE,))
        """
        self._silence.shift(-by, self._is_active)
        self._anchors.shift(-by)
        if self._discovery is not None:
            self._discovery = self._discovery[0] - by, self._discovery[1] - by
        self._now -= by

    # ---- queries

    @property
    def current(self) -> int | None:
        """The last emitted watermark, None before the first."""
        return self._combined.emitted(self._key)

    @property
    def lag(self) -> int:
        """The distance to the events or the clock, for a policy that has one: the learned one at present."""
        if self._learner is not None:
            return self._learner.lag
        return 0 if isinstance(self._policy, Constant | Learned) else self._policy.lag

    @property
    def decisions(self) -> tuple[LagDecision, ...]:
        """The latest changes of a learned lag, oldest first; none with another policy."""
        return () if self._learner is None else self._learner.decisions

    def reached(self, partition: Origin) -> int | None:
        """The highest event time of a partition, with a policy that learns its lag; None if unknown.

        Args:
            partition: The partition.
        """
        slot = self._slots.get(partition)
        return None if self._learner is None or slot is None else self._learner.reached.get(slot)

    @property
    def partitions(self) -> tuple[Origin, ...]:
        """The partitions, in the order in which they were added."""
        return tuple(self._slots)

    def partition_watermark(self, partition: Origin) -> int | None:
        """Return the watermark of one partition, before throttling.

        Args:
            partition: The partition.
        """
        return self._combined.value(self._slot(partition), self._key)

    def origins(self) -> list[OriginProgress]:
        """The progress of every partition, in the order in which they were added.

        >>> import slackwater as sw
        >>> generator = sw.WatermarkGenerator(sw.Lag(3), partitions=["a"], now=0)
        >>> generator.origins()
        [OriginProgress(name='a', watermark=None, status='active', heard=0, gap=None)]
        """
        return list(map(OriginProgress, *self.origin_columns()))

    def origin_columns(self) -> tuple[list[Origin], list[int | None], list[str], list[int | None]]:
        """The names, watermarks, statuses and times of last sending of all partitions, in the same order.

        >>> import slackwater as sw
        >>> sw.WatermarkGenerator(sw.Lag(3), partitions=["a"], now=0).origin_columns()
        (['a'], [None], ['active'], [0])
        """
        slots, heard = self._slots.values(), self._silence.last_heard
        values, statuses = self._combined.values_and_statuses(slots, self._key)
        return list(self._slots), values, statuses, [heard[slot] for slot in slots]

    def why(self) -> Explanation:
        """Explain which partition holds the watermark back, since when, and why."""
        if self._discovery is not None:
            return Explanation(self._key, None, Reason.DISCOVERY, since=self._discovery[0])
        holder = self._combined.holder(self._key)
        if holder.slot is None:
            reason = Reason.NEVER_SPOKE if self._waits_for_first else Reason.IDLE
            return Explanation(self._key, self.current, reason, since=holder.since)
        return Explanation(
            key=self._key,
            watermark=self.current,
            reason=holder.reason,
            held_by=f"partition {self._names[holder.slot]!r}",
            since=holder.since,
            holder_watermark=self._combined.value(holder.slot, self._key),
            others=holder.others,
        )

    # ---- saved form

    def save(self) -> bytes:
        """Serialize the observed state, without the configuration."""
        heard = self._silence.last_heard
        partitions = [SavedPartition(name, slot, heard[slot]) for name, slot in self._slots.items()]
        return FORM.encode(
            SavedGenerator(
                partitions,
                self._combined.save(),
                self._now,
                self.ahead,
                self._has_emitted,
                list(self._discovery or ()),
                self._anchors.save(),
                None if self._learner is None else self._learner.save(),
                self._pending.save(),
            )
        )

    def load(self, data: bytes) -> WatermarkGenerator:
        """Return a generator with the configuration of this one and the state in ``data``.

        The configuration may have changed (a longer lag, another frame): the emitted watermark still does
        not go back. Partitions that only this generator has are added. A discovery of partitions goes on as
        it began, unless this generator has none.

        Args:
            data: The bytes of `save`.

        Raises:
            StateError: The bytes cannot be loaded.
            IncompatibleState: The saved generator has another watermark key.

        >>> import slackwater as sw
        >>> generator = sw.WatermarkGenerator(sw.Lag(3), partitions=["a"], now=0)
        >>> _ = generator.observe("a", 10, now=1)
        >>> sw.WatermarkGenerator(sw.Lag(3), now=2).load(generator.save()).current
        7
        """
        saved = FORM.decode(data)
        loaded = WatermarkGenerator(
            self._policy,
            now=saved.now,
            idle_after=self._idle_after,
            frame=self._frame,
            frame_offset=self._frame_offset,
            max_ahead=self._max_ahead,
            forget_after=self._forget_after,
            key=self._key,
        )
        with FORM.restoring():
            loaded._combined = CombinedWatermark.load(saved.combined, FORM.what, removable=True)
        keys = tuple(loaded._combined.keys)
        if keys != (self._key,):
            saved_keys = ", ".join(map(repr, keys))
            raise IncompatibleState("source", [("watermark key", saved_keys, repr(self._key))])
        loaded._discovers = self._discovers
        if self._discovery is not None and saved.discovery:
            begin, end = saved.discovery
            loaded._discovery = begin, end
        if isinstance(self._policy, LagThenClock):
            loaded._anchors = ClockAnchors(saved.anchors)
        if isinstance(self._policy, Learned) and saved.learner is not None:
            loaded._learner = LagLearner.load(self._policy, saved.learner)
        loaded._pending = PostponedEvents(saved.pending)
        loaded.ahead, loaded._has_emitted = saved.ahead, saved.has_emitted
        for partition in saved.partitions:
            loaded._slots[partition.name] = partition.slot
            loaded._names[partition.slot] = partition.name
        present = {
            slot
            for slot in range(loaded._combined.slots)
            if loaded._combined.status(slot) in (Status.ACTIVE, Status.IDLE)
        }
        consistent = (
            set(loaded._names) == present
            and len(loaded._slots) == len(saved.partitions)
            and len(saved.discovery) in (0, 2)
            and loaded._anchors.slots | loaded._pending.slots <= present
            and (loaded._learner is None or set(loaded._learner.reached) <= present)
        )
        FORM.check(consistent, "its partitions are inconsistent")
        heard = ((partition.slot, partition.heard) for partition in saved.partitions)
        loaded._silence.restore(heard, loaded._is_active)
        if not isinstance(self._policy, LagLikeSpark):
            loaded._count(loaded._pending.take_all(), saved.now)  # events that waited under another policy
        loaded._set_missing_anchors()
        for name in self._slots:
            if name not in loaded._slots:
                loaded.add(name, now=saved.now)
        return loaded

    # ---- implementation

    def _slot(self, partition: Origin) -> int:
        slot = self._slots.get(partition)
        if slot is None:
            raise UnknownSource(f"partition {partition!r}", self._slots, fix="call add() first")
        return slot

    @property
    def _waits_for_first(self) -> bool:
        """Whether partitions are discovered and none has appeared: the stream is unknown, not idle (G5)."""
        none_known = self._combined.slots == 0 and self._combined.current(self._key) is None
        return self._discovers and none_known

    def _is_active(self, slot: int) -> bool:
        return self._combined.status(slot) is Status.ACTIVE

    def _hear(self, slot: int, now: int) -> None:
        wakes = self._combined.status(slot) is Status.IDLE
        self._combined.wake(slot, now)
        if self._silence.hear(slot, now, was_idle=wakes, is_active=self._is_active):
            self._followed = None
        value = self._combined.value(slot, self._key)
        if wakes and value is not None and isinstance(self._policy, LagThenClock):
            self._anchors.restart(slot, value, now=now)  # the time in which it was idle does not count

    def _drop(self, partition: Origin) -> None:
        """Remove what is stored about a partition, apart from its slot in the minimum."""
        slot = self._slots.pop(partition)
        del self._names[slot]
        self._silence.drop(slot)
        self._anchors.drop(slot)
        self._pending.drop(slot)
        if self._learner is not None:
            self._learner.reached.pop(slot, None)

    def _forget(self, now: int) -> None:
        """Remove the partitions that have been silent for ``forget_after`` or longer."""
        if self._forget_after is None:
            return
        oldest = now - self._forget_after
        heard = self._silence.last_heard
        forgotten = [name for name, slot in self._slots.items() if heard[slot] <= oldest]
        if not forgotten:
            return
        slots = [self._slots[name] for name in forgotten]
        for name in forgotten:
            self._drop(name)
        self._combined, new = self._combined.without(slots, now)
        self._slots = {name: new[slot] for name, slot in self._slots.items()}
        self._names = {slot: name for name, slot in self._slots.items()}
        self._silence.renumber(new, self._is_active)
        self._anchors.renumber(new)
        self._pending.renumber(new)
        if self._learner is not None:
            self._learner.reached = {new[slot]: at for slot, at in self._learner.reached.items()}

    def _expire(self, now: int) -> None:
        """Mark partitions as idle that have been silent for ``idle_after`` or longer (G3)."""
        for slot in self._silence.expired(now):
            self._combined.set_idle(slot, now)

    def _evaluate(self, now: int, limit: int) -> tuple[Emission, ...]:
        """Return the emissions that are due; the clock does not raise watermarks above ``limit`` (G2)."""
        self._expire(now)
        self._follow_clock(now, limit)
        if self._discovery is not None:
            if now < self._discovery[1]:
                return ()
            self._discovery = None
        emissions: list[Emission] = []
        value = self._combined.current(self._key)
        if value is not None and self._frame:
            value = max(frame_floor(value, self._frame, self._frame_offset), BEGINNING_OF_TIME)
            emitted = self.current
            if emitted is None or value > emitted:
                self._combined.set_emitted(self._key, value)
                self._has_emitted = True
                emissions.append(Watermark(value, self._key))
        if self._combined.active == 0 and not self._combined.idle_emitted and not self._waits_for_first:
            self._combined.idle_emitted = True
            emissions.append(IDLE)
        return tuple(emissions)

    def _follow_clock(self, now: int, limit: int) -> None:
        """Raise every active partition to the watermark of the clock, at most to ``limit`` (G2)."""
        policy = self._policy
        if isinstance(policy, Lag | LagThenClock | LagLikeSpark | Learned):
            return
        if isinstance(policy, FixedDelay):
            value = now - policy.lag
        else:
            value = min(policy.value if isinstance(policy, Constant) else now - policy.lag, limit)
        value = max(value, BEGINNING_OF_TIME)
        if self._followed is not None and value <= self._followed:
            return
        for slot in self._slots.values():
            if self._is_active(slot):
                self._combined.raise_to(slot, self._key, value, now)
        self._followed = value

    def _set_missing_anchors(self) -> None:
        """Let the clock continue from the watermarks that partitions reached with another policy."""
        if isinstance(self._policy, LagThenClock):
            for slot in self._names:
                value = self._combined.value(slot, self._key)
                if value is not None and slot not in self._anchors.slots:
                    self._anchors.restart(slot, value, now=self._now)

    def _follow_clock_from_events(self, now: int) -> None:
        """Raise every active partition by the time since its highest event."""
        self._expire(now)
        for slot, value in self._anchors.at(now):
            if self._is_active(slot):
                self._combined.raise_to(slot, self._key, value, now)

    def _count(self, pending: Iterable[tuple[int, int]], now: int) -> None:
        """Raise partitions to the watermarks of events that waited for a tick."""
        for slot, value in pending:
            self._combined.raise_to(slot, self._key, value, now)
