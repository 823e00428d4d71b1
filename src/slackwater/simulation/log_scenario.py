"""Writers, transactional writers, controllers and readers of one stream, which is scaled and truncated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from slackwater.errors import EventsGone, InvalidArgument, StreamError
from slackwater.simulation.log_oracle import LogOracle, WrittenEvent
from slackwater.simulation.world import START, World
from slackwater.streams.log.catalog import Stream, Streams
from slackwater.streams.log.reader_group import Reader, ReaderGroup
from slackwater.streams.log.transactions import TransactionalWriter
from slackwater.streams.log.writer import Batching, Writer
from slackwater.streams.maintenance.controller import Controller
from slackwater.streams.segments.cuts import Standing, compare
from slackwater.streams.segments.epochs import split_range
from slackwater.streams.settings import MarkSettings, Retention, StreamSettings
from slackwater.streams.time.notes import NoteResult
from slackwater.time import MILLISECOND, MINUTE, SECOND

STREAM: Final = "shop/events"
GROUP: Final = "totals"
_KEYS: Final = 5
_STEP: Final = SECOND
_DISORDER: Final = 4
"""Event times are out of order by at most this many steps."""


@dataclass
class LogScenario:
    """One stream with its processes.

    Args:
        world: The world.
        minutes: How long faults are injected, in simulated minutes.
    """

    world: World
    minutes: int = 5
    quotas: dict[str, int] = field(default_factory=dict)
    ages: ClassVar[Sequence[str | None]] = (None, None, "20 seconds")
    """How long a stream may keep its events; the seed decides."""

    def run(self) -> None:
        """Run the processes with faults, then without, and check that everything arrived."""
        world, random = self.world, self.world.random
        period = random.choice(["5 seconds", "10 seconds"])
        timeout = random.choice(["30 seconds", "2 minutes"])
        age = random.choice(self.ages)
        settings = StreamSettings(
            marks=MarkSettings(period=period, timeout=timeout), retention=Retention(age=age)
        )
        with Streams(world.store()) as streams:
            created = streams.create(
                STREAM, segments=random.randint(1, 3), data=str(world.data), settings=settings
            )
        root = world.data / f"{STREAM}-{created.id}"
        self.oracle = LogOracle(world, created, root, settings)
        self.oracle.check({"slackwater_segments"})
        try:
            self._run()
        finally:
            self.oracle.close()

    def _run(self) -> None:
        world, random = self.world, self.world.random
        most = 10 + 10 * self.minutes
        for number in range(random.choice([1, 2, 2, 3])):
            name = f"writer-{number}"
            self.quotas[name] = random.randint(5, most)
            world.start(name, lambda name=name: self._write(name))  # type: ignore[misc]  # bound now
        if random.random() < 0.5:
            self.quotas["loader"] = random.randint(5, most)
            world.start("loader", self._load)
        for number in range(random.choice([1, 1, 2])):
            world.start(f"controller-{number}", self._control)
        self.start_readers()
        world.start("operator", self._operate)
        world.begin_faults()
        world.run_for(self.minutes * MINUTE, poll=MINUTE)
        world.heal()
        if not world.run_for(20 * MINUTE, until=self.has_arrived, poll=5 * SECOND):
            self.explain_end()

    def start_readers(self) -> None:
        """Start what reads the stream."""
        for number in range(self.world.random.randint(1, 2)):
            name = f"reader-{number}"
            self.world.start(name, lambda name=name: self._read(name))  # type: ignore[misc]  # bound now

    def _stream(self) -> Stream:
        return Streams(self.world.store()).get(STREAM)

    def event(self, writer: str, number: int) -> WrittenEvent:
        """The event of a number: the same after every restart."""
        behind = (number * 7919) % (_DISORDER + 1)
        return WrittenEvent(writer, f"k{number % _KEYS}", number, START + (number - behind) * _STEP)

    def time_after(self, number: int) -> int:
        """The time that a writer may note after an event: all later ones have this time or a later one."""
        return START + (number + 1 - _DISORDER) * _STEP

    def _pause(self) -> None:
        """Wait before the next events; without faults only for a moment, so that a seed is mostly faults."""
        self.world.sleep(10 * MILLISECOND, 20 * SECOND if self.world.is_faulty else SECOND)

    # ---- the processes

    def _write(self, name: str) -> None:
        world, random = self.world, self.world.random
        stream = self._stream()
        interval = random.choice(["20 milliseconds", "200 milliseconds", "2 seconds"])
        writer = Writer(stream, name, batching=Batching(interval=interval))
        number = writer.last_event_number
        world.tell(f"opens after event {number}")
        if random.random() < world.plan.resend:
            world.faults["resent message"] += 1
            number = random.randint(0, number)
        quota = self.quotas[name]
        while number < quota:
            count = random.randint(1, 8)
            for _ in range(min(count, quota - number)):
                number += 1
                event = self.event(name, number)
                writer.write(event.value(), event.key, number=number)
            if random.random() < 0.5:
                writer.flush()
            self.oracle.acknowledged(name, writer.acknowledged)
            if random.random() < 0.4:
                self._note(name, writer, max(number, writer.last_event_number))
            if random.random() < 0.03:
                writer.mark_idle()
                world.tell("is idle")
            self._pause()
        self._note(name, writer, number)
        writer.close()
        self.oracle.acknowledged(name, number)

    def _note(self, name: str, writer: Writer, number: int) -> None:
        result = writer.note_time(self.time_after(number))
        self.oracle.acknowledged(name, number)
        if result is not NoteResult.OK:
            self.world.violate(f"{name} could not note the time after event {number}: {result}")
        self.world.tell(f"notes the time after event {number}")

    def _load(self) -> None:
        world, random = self.world, self.world.random
        writer = TransactionalWriter(self._stream(), "loader")
        quota = self.quotas["loader"]
        number = self.oracle.stored["loader"]
        world.tell(f"opens after {writer.last_event_number} transactions")
        while number < quota:
            first = number
            transaction = writer.begin()
            for _ in range(min(random.randint(1, 8), quota - number)):
                number += 1
                event = self.event("loader", number)
                transaction.write(event.value(), event.key)
                if random.random() < 0.2:
                    transaction.flush()
            world.sleep(10 * MILLISECOND, 5 * SECOND)
            if random.random() < 0.15:
                transaction.abort()
                number = first
                continue
            try:
                result = transaction.commit(self.time_after(number))
            except StreamError as failure:
                if "collected" in str(failure):
                    world.tell("was slow: its files may have been collected")
                    number = first
                    continue
                raise
            if result is not NoteResult.OK:
                world.violate(f"loader could not note the time after event {number}: {result}")
            self.oracle.acknowledged("loader", number)
            world.tell(f"commits up to event {number}")
            self._pause()
        writer.close()

    def _control(self) -> None:
        name = self.world.scheduler.current.process.name
        controller = Controller(
            Streams(self.world.store()),
            name=name,
            lease="25 seconds",
            poll="10 seconds",
            housekeeping="40 seconds",
        )
        controller.run()

    def _read(self, name: str) -> None:
        world = self.world
        group = ReaderGroup(self._stream(), GROUP)
        # a new id after every start, so that others wait for the lease of a reader that was killed
        identity = f"{name}-{world.scheduler.current.process.pid}"
        reader = group.reader(identity, lease="25 seconds")
        while True:
            try:
                self._read_some(group, reader)
            except EventsGone:
                world.tell("starts again at the head: events were removed before they were read")
                group.reset(self._stream().head())
                reader = group.reader(identity, lease="25 seconds")

    def _read_some(self, group: ReaderGroup, reader: Reader) -> None:
        world, random = self.world, self.world.random
        batch = None
        for _ in range(random.randint(1, 4)):
            batch = reader.read()
            if batch is None:
                break
            world.point("deliver")
            self.oracle.deliver(batch)
        if random.random() < 0.7:
            reader.checkpoint()
        if random.random() < 0.3:
            resets = self.oracle.resets
            window = group.current_time_window()
            if self.oracle.resets == resets:
                self.oracle.window(window)
        world.sleep(100 * MILLISECOND, 15 * SECOND if batch is None else SECOND)

    def _operate(self) -> None:
        """Scale the stream, and truncate what the group has read."""
        world, random = self.world, self.world.random
        stream = self._stream()
        while True:
            world.sleep(SECOND, 40 * SECOND)
            if not world.is_faulty:
                return
            active = stream.epochs().active
            choice = random.random()
            try:
                if choice < 0.5 and len(active) < 6:
                    segment = random.choice(list(active))
                    stream.scale([segment.id], split_range((segment.low, segment.high), 2))
                    world.tell(f"splits segment {segment.id}")
                elif choice < 0.8 and len(active) > 1:
                    index = random.randrange(len(active) - 1)
                    left, right = active[index], active[index + 1]
                    stream.scale([left.id, right.id], [(left.low, right.high)])
                    world.tell(f"merges segments {left.id} and {right.id}")
                elif choice < 0.9:
                    self._truncate(stream)
            except InvalidArgument as refused:
                # a lost response: the segments have changed already
                world.tell(f"is refused: {refused.reason}")

    def _truncate(self, stream: Stream) -> None:
        position, segments = ReaderGroup(stream, GROUP).position(), stream.epochs().segments
        passed = [m for m in stream.marks() if compare(position, m.cut, segments) is Standing.PASSED]
        if passed:
            stream.truncate(self.world.random.choice(passed).cut)
            self.world.tell("truncates the stream")

    # ---- the end

    def have_writers_ended(self) -> bool:
        """Whether all events are stored, and the newest mark has the last time that was noted."""
        oracle = self.oracle
        return (
            all(oracle.stored[writer] == quota for writer, quota in self.quotas.items())
            and bool(oracle.marks)
            and oracle.marks[-1].lower == max(self.time_after(quota) for quota in self.quotas.values())
        )

    def has_arrived(self) -> bool:
        """Whether every event was stored, marked and read."""
        return self.have_writers_ended() and self.oracle.has_read_everything()

    def explain_end(self) -> None:
        """Report what has not arrived."""
        self.oracle.check_end(self.quotas)
        lower = self.oracle.marks[-1].lower if self.oracle.marks else None
        self.world.violate(f"20 minutes after the last fault the newest mark has the lower bound {lower}")
