"""A store with many queries, origins and batches, and a console in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from slackwater.metadata.store import MetadataStore
from slackwater.monitoring.events import BatchFinished, Event, RunStarted
from slackwater.monitoring.origins import OriginState, OriginSummary
from slackwater.monitoring.query_state import OperatorSnapshot, WatermarkState
from slackwater.monitoring.record_tables import RecordTables
from slackwater.time import SECOND

QUERIES, ORIGINS, BATCHES = 50, 10_000, 1_000
_FEW = 20
_AT_ONCE = 20
"""How many batches a transaction has, as a recorder that was held up writes them."""
_SERVE = """
import sys
from slackwater.ui.running_console import RunningConsole
from slackwater.ui.views import Views

console = RunningConsole(Views(sys.argv[1]), port=0, poll_seconds=float(sys.argv[2]))
print(console.address, flush=True)
console.run()
"""


def _name(number: int) -> str:
    return f"topic-{number % 7}/partition-{number:05}"


def _origins(count: int, at: int) -> OriginSummary:
    """Origins at different times, the slowest of them silent."""
    return OriginSummary.of(
        OriginState(
            _name(number),
            "silent" if number == 3 else "active",
            {"default": at - (count - number) * 1_000},
            since=at,
        )
        for number in range(count)
    )


@dataclass
class LoadedStore:
    """The writer of the store: queries that report batch by batch."""

    store: MetadataStore
    start: int
    tables: RecordTables = field(default_factory=RecordTables)
    batches: int = 0

    def fill(self) -> None:
        """Write `BATCHES` batches of `QUERIES` queries, the first of which has `ORIGINS` origins."""
        started = [
            RunStarted(f"q{number}", f"r{number}", f"query {number}", self.start) for number in range(QUERIES)
        ]
        self._write(started, self.start)
        few = _origins(_FEW, self.start)
        for _ in range(BATCHES // _AT_ONCE):
            numbers = range(self.batches, self.batches + _AT_ONCE)
            events = [self._batch(query, number, few) for number in numbers for query in range(QUERIES)]
            self.batches += _AT_ONCE
            self._write(events, events[-1].at)
        self.write_batch()

    def _write(self, events: Sequence[Event], at: int) -> None:
        self.store.write(lambda connection: self.tables.write(connection, events, now=at))

    def write_batch(self, query: int = 0) -> int:
        """Write the next batch of a query, by default the one with most origins, and return its number."""
        at = self.start + self.batches * SECOND
        event = self._batch(query, self.batches, _origins(_FEW if query else ORIGINS, at))
        self.batches += 1
        self._write([event], event.at)
        return event.number

    def _batch(self, query: int, number: int, origins: OriginSummary) -> BatchFinished:
        at = self.start + number * SECOND
        held = f"partition '{_name(number // 100)}'"
        key = WatermarkState("default", at - 20 * SECOND, "slowest", held)
        state = OperatorSnapshot(
            "0", at, at - 20 * SECOND, "slowest", held, None, f"held back by {held}", 20 * SECOND, None,
            open_windows=3, keys=(key,), origins=origins,
        )  # fmt: skip
        return BatchFinished(
            f"q{query}", f"r{query}", f"query {query}", at, number, 250_000, 800, 1_000, (replace(state),)
        )


@contextmanager
def served(url: str, *, poll_seconds: float) -> Iterator[tuple[str, int]]:
    """A console in another process: its address, and the id of the process."""
    command = [sys.executable, "-c", _SERVE, url, str(poll_seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip(), server.pid
        finally:
            server.terminate()


def resident_bytes(process: int) -> int:
    """The memory that a process has in use."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * 4_096
