"""Random histories of a stream: writers, transactions, crashes, scaling, readers and controllers.

The model is a set of events and, for each mark, the events that were written before the writers noted their
times. In any history, every stored event is read once and in order per key, marks obey their rules, and a
group whose window has the lower bound T has read all events that T covers.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from tempfile import mkdtemp

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from slackwater.errors import ReaderReplaced
from slackwater.streams.log.catalog import Streams
from slackwater.streams.log.reader_group import Reader, ReaderGroup
from slackwater.streams.log.scan import Extent
from slackwater.streams.log.segment_reader import EventBatch
from slackwater.streams.log.transactions import TransactionalWriter
from slackwater.streams.log.writer import Batching, Writer
from slackwater.streams.maintenance.mark_cycle import CycleRunner
from slackwater.streams.segments.cut_traversal import spans_between
from slackwater.streams.segments.cuts import Standing, check_cut, compare
from slackwater.streams.time.mark_store import writer_marks
from slackwater.streams.time.marks import Mark
from slackwater.streams.time.notes import NoteResult
from slackwater.time import MINUTE, SECOND
from tests.stores import new_store
from tests.streams.logs import merge, split

WRITERS = ("a", "b")
READERS = ("x", "y", "z")
KEYS = 6
PATIENT = Batching(interval="1 hour")

names = st.sampled_from(WRITERS)
readers = st.sampled_from(READERS)


class StreamMachine(RuleBasedStateMachine):
    """A stream on SQLite with a manual clock."""

    @initialize(segments=st.integers(1, 3))
    def begin(self, segments: int) -> None:
        self.folder = Path(mkdtemp(prefix="slackwater-streams-"))
        self.writers: dict[str, Writer] = {}
        self.now = 1_000 * SECOND
        self.streams = Streams.open(new_store(self.folder), clock=lambda: self.now)
        self.stream = self.streams.create("a/b", segments=segments)
        self.cycles = CycleRunner(self.stream.store, lambda: self.now)
        self.group = ReaderGroup(self.stream, "g")
        self.writers = {name: Writer(self.stream, name, batching=PATIENT) for name in WRITERS}
        self.loader = TransactionalWriter(self.stream, "loader")
        self.loads = 0
        self.readers: dict[str, Reader] = {}
        self.unchecked: dict[str, list[EventBatch]] = {}
        self.stored: dict[str, int] = dict.fromkeys((*WRITERS, "loader"), 0)
        self.noted: dict[str, tuple[int, int]] = {}
        self.promised: dict[int, dict[str, int]] = {}
        self.marks: list[Mark] = []
        self.read: dict[tuple[int, int], str] = {}

    # ---- writers

    def events(self, name: str, first: int, count: int) -> tuple[list[bytes], list[str]]:
        keys = [f"{name}{number % KEYS}" for number in range(first, first + count)]
        return [f"{name} {key} {first + index}".encode() for index, key in enumerate(keys)], keys

    @rule(name=names, count=st.integers(1, 8))
    def write(self, name: str, count: int) -> None:
        self.writers[name].write_many(*self.events(name, self.stored[name] + 1, count))
        self.writers[name].flush()
        self.stored[name] += count

    @rule(name=names, count=st.integers(0, 5))
    def crash_writer(self, name: str, count: int) -> None:
        """Crash a writer with events that were queued but not stored."""
        dead = self.writers[name]
        if count:
            dead.write_many(*self.events(name, self.stored[name] + 1, count))
        dead._stop()
        again = self.writers[name] = Writer(self.stream, name, batching=PATIENT)
        assert again.last_event_number == self.stored[name]

    @rule(name=names, step=st.integers(-1, 5))
    def note(self, name: str, step: int) -> None:
        last = self.noted.get(name, (0, 0))[0]
        # the record was deleted, so the writer may note any time
        refused = step < 0 and name in self.on_record()
        result = self.writers[name].note_time(last + step)
        assert result is (NoteResult.INVALID_TIME if refused else NoteResult.OK)
        if result is NoteResult.OK:
            self.noted[name] = (last + step, self.stored[name])

    @rule(name=names)
    def idle(self, name: str) -> None:
        self.writers[name].mark_idle()

    @rule(count=st.integers(0, 8), scaled=st.booleans(), committed=st.booleans(), step=st.integers(0, 3))
    def load(self, count: int, scaled: bool, committed: bool, step: int) -> None:
        transaction = self.loader.begin()
        events, keys = self.events("loader", self.stored["loader"] + 1, count)
        transaction.write_many(events, keys)
        transaction.flush()
        if scaled:
            self.split(0, 2)
        if not committed:
            transaction.abort()
            return
        time = self.noted.get("loader", (0, 0))[0] + step
        assert transaction.commit(time) is NoteResult.OK
        self.stored["loader"] += count
        self.noted["loader"] = (time, self.stored["loader"])

    # ---- segments and time

    @rule(index=st.integers(0, 7), parts=st.integers(2, 3))
    def split(self, index: int, parts: int) -> None:
        active = len(self.stream.epochs().active)
        if active < 8:
            split(self.stream, index % active, parts)

    @rule(index=st.integers(0, 7))
    def merge(self, index: int) -> None:
        active = len(self.stream.epochs().active)
        if active > 1:
            merge(self.stream, index % (active - 1))

    def on_record(self) -> dict[str, int]:
        found = self.stream.store.read(lambda connection: writer_marks(connection, self.stream.id))
        return {mark.writer: mark.time for mark in found}

    @rule(wait=st.sampled_from([SECOND, 10 * SECOND, 2 * MINUTE]))
    def cycle(self, wait: int) -> None:
        self.now += wait
        newest = self.marks[-1] if self.marks else None
        taking_part = [
            name for name, time in self.on_record().items() if newest is None or time > newest.lower
        ]
        cycle = self.cycles.run(self.stream.id)
        if cycle is None or cycle.mark is None:
            return
        mark, epochs = cycle.mark, self.stream.epochs()
        check_cut(epochs, mark.cut)
        assert newest is None or mark.lower > newest.lower
        assert newest is None or compare(mark.cut, newest.cut, epochs.segments) is Standing.PASSED
        assert mark.lower == min(self.noted[name][0] for name in taking_part)
        self.marks.append(mark)
        self.promised[mark.lower] = {name: self.noted[name][1] for name in taking_part}

    @rule(number=st.integers(0, 20))
    def forget(self, number: int) -> None:
        """Truncate at a mark that the group has passed; its cut may be on both sides of a segment."""
        position, segments = self.group.position(), self.stream.epochs().segments
        passed = [m for m in self.stream.marks() if compare(position, m.cut, segments) is Standing.PASSED]
        if passed:
            cut = passed[number % len(passed)].cut
            head = self.stream.truncate(cut)
            check_cut(self.stream.epochs(), head)
            assert compare(position, head, segments) is Standing.PASSED

    # ---- readers

    @rule(name=readers)
    def open_reader(self, name: str) -> None:
        """Open a reader, possibly after a crash: events since its last checkpoint are read again."""
        self.readers[name] = self.group.reader(name, lease="1 minute")
        self.unchecked[name] = []

    @rule(name=readers)
    def kill_reader(self, name: str) -> None:
        if self.readers.pop(name, None):
            del self.unchecked[name]
            self.now += MINUTE

    @precondition(lambda self: self.readers)
    @rule(name=readers, batches=st.integers(1, 4))
    def read_some(self, name: str, batches: int) -> None:
        if reader := self.readers.get(name):
            try:
                for _ in range(batches):
                    if (batch := reader.read()) is not None:
                        self.unchecked[name].append(batch)
            except ReaderReplaced:
                del self.readers[name], self.unchecked[name]

    @precondition(lambda self: self.readers)
    @rule(name=readers)
    def checkpoint(self, name: str) -> None:
        if reader := self.readers.get(name):
            try:
                reader.checkpoint()
            except ReaderReplaced:
                # its lease has expired
                del self.readers[name], self.unchecked[name]
                return
            for batch in self.unchecked[name]:
                for offset, value in enumerate(batch.events.column("value").to_pylist(), batch.first_offset):
                    # between successful checkpoints no event is read twice
                    assert (batch.segment, offset) not in self.read
                    self.read[batch.segment, offset] = value.decode()
            self.unchecked[name] = []

    @precondition(lambda self: self.readers)
    @rule(name=readers)
    def renew(self, name: str) -> None:
        """Renew the lease as `Reader.read` does after a third of it: no segment is given up."""
        if reader := self.readers.get(name):
            try:
                reader._update(publish=False)
            except ReaderReplaced:
                del self.readers[name], self.unchecked[name]
                return
            assert {batch.segment for batch in self.unchecked[name]} <= reader.position.keys()

    @rule()
    def look_at_the_window(self) -> None:
        window = self.group.current_time_window()
        if window.lower is not None:
            assert window.upper is None or window.lower <= window.upper
            seen = self.numbers()
            for name, last in self.promised[window.lower].items():
                assert set(range(1, last + 1)) <= seen.get(name, set())

    def read_from(self, mark: Mark, name: str) -> None:
        """A group that starts at the cut of a mark reads all later events."""
        group = ReaderGroup(self.stream, name, start=mark.cut)
        with group.reader(lease="1 hour") as reader:
            found = {
                (batch.segment, offset) for batch in reader for offset in range(batch.first_offset, batch.end)
            }
        extent = Extent.of(self.stream)
        assert group.position() == self.stream.tail()
        for span in spans_between(extent.epochs, mark.cut, self.stream.tail(), extent.lengths):
            assert found >= {(span.segment, offset) for offset in range(span.start, span.end)}

    def numbers(self) -> dict[str, set[int]]:
        found: dict[str, set[int]] = {}
        for value in self.read.values():
            name, _, number = value.split(" ")
            found.setdefault(name, set()).add(int(number))
        return found

    def teardown(self) -> None:
        if not getattr(self, "writers", None):
            return
        try:
            self.open_reader("x")
            for name in READERS[1:]:
                self.kill_reader(name)
            self.now += MINUTE
            self.readers["x"] = self.group.reader("x", lease="1 hour")
            self.unchecked["x"] = []
            while self.group.position() != self.stream.tail():
                self.read_some("x", 100)
                self.checkpoint("x")
            self.look_at_the_window()
            for count, mark in enumerate(self.stream.marks()):
                self.read_from(mark, f"from-{count}")
            by_key: dict[str, list[int]] = {}
            for index in sorted(self.read):
                _, key, number = self.read[index].split(" ")
                by_key.setdefault(key, []).append(int(number))
            assert {name: len(numbers) for name, numbers in self.numbers().items()} == {
                name: count for name, count in self.stored.items() if count
            }
            assert len(self.read) == sum(self.stored.values())
            assert all(numbers == sorted(numbers) for numbers in by_key.values())
        finally:
            for writer in self.writers.values():
                with contextlib.suppress(Exception):
                    writer._stop()
            self.streams.close()
            shutil.rmtree(self.folder, ignore_errors=True)


TestStreamHistories = StreamMachine.TestCase
TestStreamHistories.settings = settings(max_examples=settings().max_examples // 6, stateful_step_count=30)
