"""Writers, readers and controllers killed at random, as real processes: nothing lost, doubled or reordered.

Meanwhile the stream is scaled, watermarks go on, and whenever the group says that it has read everything up
to a time, it has. In the end the histories of all processes are compared with each other.
"""

from __future__ import annotations

import os
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from slackwater.streams.log.catalog import Stream, Streams
from slackwater.streams.log.reader_group import ReaderGroup
from slackwater.streams.settings import MarkSettings, StreamSettings
from slackwater.streams.time.mark_store import writer_marks
from slackwater.streams.time.notes import WriterMark
from tests.streams.chaos import GROUP, ROLES, STREAM, Crew, SharedFolder
from tests.streams.histories import Event, load_histories
from tests.streams.history_checker import check_history
from tests.streams.logs import merge, split

KILLS_A_ROUND = 5
ROUNDS = 13
"""Rounds of kills on each kind of store; after each round everything must continue."""
WRITERS = ("writer-a", "writer-b", "writer-c")
READERS = ("reader-a", "reader-b")
CONTROLLERS = ("controller-a", "controller-b")
OBSERVERS = ("observer-a",)
KINDS = {"append", "note", "close", "cycle", "marks", "cut_at", "read", "window"}
ROOT = Path(__file__).parents[2]


pytestmark = pytest.mark.proof


@pytest.fixture
def crew(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Crew]:
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path))
    folder = tmp_path / "files"
    folder.mkdir()
    crew = Crew(SharedFolder(store_url, folder))
    yield crew
    for process in crew.processes.values():
        process.kill()
        process.join()


class Output:
    """The events that the readers have stored."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: dict[tuple[int, int], str] = {}
        self._known: set[str] = set()

    def look(self) -> None:
        for path in self.folder.glob("*.events"):
            if path.name in self._known:
                continue
            self._known.add(path.name)
            segment, first, end = (int(part) for part in path.stem.split("-"))
            lines = path.read_text(encoding="ascii").split("\n")
            assert len(lines) == end - first
            for offset, line in enumerate(lines, first):
                # events that are read again after a crash are the same
                assert self.events.setdefault((segment, offset), line) == line

    def numbers(self) -> dict[str, set[int]]:
        found: dict[str, set[int]] = defaultdict(set)
        for line in self.events.values():
            event = Event.parse(line)
            found[event.writer].add(event.number)
        return found


def check_window(stream: Stream, output: Output, shared: SharedFolder) -> int | None:
    """Check that all events up to the lower bound of the window were read; it is below their numbers."""
    lower = ReaderGroup(stream, GROUP).current_time_window().lower
    output.look()
    if lower is not None:
        for writer in WRITERS:
            # a writer that has ended does not hold the watermark back
            last = min(lower, shared.acknowledged(writer))
            missing = set(range(1, last + 1)) - output.numbers()[writer]
            assert not missing, f"{writer}: {sorted(missing)[:5]} not read, but the window says {lower}"
    return lower


def has_more_marks(stream: Stream, than: int) -> bool:
    return len(stream.marks()) > than


def has_moved(stream: Stream, output: Output, shared: SharedFolder, beyond: int) -> bool:
    return (check_window(stream, output, shared) or 0) > beyond


def scale(stream: Stream, chance: random.Random) -> None:
    active = len(stream.epochs().active)
    if active > 2 and (active > 5 or chance.random() < 0.5):
        merge(stream, chance.randrange(active - 1))
    else:
        split(stream, chance.randrange(active))


def victims(chance: random.Random) -> list[str]:
    kind = chance.random()
    if kind < 0.4:
        return [chance.choice(WRITERS)]
    if kind < 0.75:
        return [chance.choice(READERS)]
    if kind < 0.8:
        return list(OBSERVERS)
    return list(CONTROLLERS)


def noted(stream: Stream) -> list[WriterMark]:
    return stream.store.read(lambda connection: writer_marks(connection, stream.id))


def wait_for(what: str, condition: Callable[[], object], crew: Crew, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert not crew.failures(), crew.failures()
        assert time.monotonic() < deadline, f"waited too long for: {what}"
        time.sleep(0.05)


def test_nothing_is_lost_doubled_or_reordered(crew: Crew) -> None:
    chance = random.Random(5)
    with Streams.open(crew.shared.url, create=True) as streams:
        settings = StreamSettings(marks=MarkSettings(period="100 milliseconds", timeout="10 minutes"))
        stream = streams.create(STREAM, segments=2, data=str(crew.shared.folder / "data"), settings=settings)
        output = Output(crew.shared.folder)
        for name in (*WRITERS, *READERS):
            crew.start(name)
        # a writer that arrives after the first watermark may be late, by the rules
        wait_for("all writers", lambda: len(noted(stream)) == len(WRITERS), crew)
        for name in (*OBSERVERS, *CONTROLLERS):
            crew.start(name)
        wait_for("the first watermark", stream.marks, crew)
        for _ in range(ROUNDS):
            wanted = sum(crew.killed.values()) + KILLS_A_ROUND
            while sum(crew.killed.values()) < wanted:
                time.sleep(chance.uniform(0.1, 0.5))
                assert not crew.failures(), crew.failures()
                gone = [name for name in victims(chance) if crew.kill(name)]
                if chance.random() < 0.4:
                    scale(stream, chance)
                check_window(stream, output, crew.shared)
                for name in gone:
                    crew.start(name)
            # marks and the group continue after any kill
            marks, lower = len(stream.marks()), check_window(stream, output, crew.shared) or 0
            wait_for("a watermark", partial(has_more_marks, stream, marks), crew)
            wait_for("the window", partial(has_moved, stream, output, crew.shared, lower), crew)
        (crew.shared.folder / "stop").touch()
        for name in WRITERS:
            crew.processes[name].join(60)
            assert crew.processes[name].exitcode == 0, crew.failures()
        group = ReaderGroup(stream, GROUP)
        wait_for("the readers", lambda: group.position() == stream.tail(), crew)
        check_window(stream, output, crew.shared)
        lengths = {state.segment.id: state.length for state in stream.segments()}
        lowers = [mark.lower for mark in stream.marks()]
        epochs = len(stream.epochs())
        ranges = {state.segment.id: (state.segment.low, state.segment.high) for state in stream.segments()}
        head = dict(stream.head().items())
    assert not crew.failures(), crew.failures()

    # the kills hit all roles in the middle of their work
    assert sum(crew.killed.values()) >= ROUNDS * KILLS_A_ROUND
    assert {name.partition("-")[0] for name in crew.killed} == ROLES.keys()
    assert epochs > 3

    # every event of every segment was read
    assert sorted(output.events) == [
        (segment, offset) for segment, length in lengths.items() for offset in range(length)
    ]
    # every acknowledged event was stored exactly once
    numbers = defaultdict(list)
    by_key = defaultdict(list)
    for location in sorted(output.events):
        event = Event.parse(output.events[location])
        numbers[event.writer].append(event.number)
        by_key[event.key].append(event.number)
    for writer in WRITERS:
        last = max(numbers[writer])
        assert crew.shared.acknowledged(writer) <= last
        assert sorted(numbers[writer]) == list(range(1, last + 1))
    # in order per routing key: a successor has a higher id
    assert all(found == sorted(found) for found in by_key.values())
    # what each process did and saw contradicts nothing that another one did and saw
    history = load_histories(crew.shared.folder)
    assert {operation.kind for operation in history} == KINDS
    assert check_history(history, ranges, head) == []
    # marks continued while processes died, with strictly increasing lower bounds
    assert lowers == sorted(set(lowers))
