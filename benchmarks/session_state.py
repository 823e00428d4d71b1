"""The state that a small batch writes while many windows are open: session windows and fixed windows."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import polars as pl

from benchmarks.report import Report, best
from slackwater.time import SECOND
from slackwater.windows import Count, Fixed, Sessions, Sum, Window, WindowedOperator

KEYS: Final = 100_000
ROWS: Final = 100
RUNS: Final = 3
BATCHES: Final = 64
"""So many that deltas are compacted, and that the cost of compaction is in the mean."""


@dataclass
class CountingStore(MutableMapping[str, bytes]):
    """Blobs by name, with the number of bytes that were read and written."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    read: int = 0
    written: int = 0

    def __getitem__(self, name: str) -> bytes:
        self.read += len(self.blobs[name])
        return self.blobs[name]

    def __setitem__(self, name: str, blob: bytes) -> None:
        self.written += len(blob)
        self.blobs[name] = blob

    def __delitem__(self, name: str) -> None:
        del self.blobs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.blobs)

    def __len__(self) -> int:
        return len(self.blobs)


def run(report: Report) -> None:
    """The cost of each kind of window."""
    section = report.section(
        "Windowed operator: bytes that a small batch writes",
        f"{ROWS} rows of random keys, {BATCHES} times, while {KEYS:,} keys have an open window; count, sum. "
        "Mean and largest number of bytes written per batch, with the index, and CPU milliseconds per batch.",
        ("windows", "state bytes", "written, mean", "written, largest", "read, mean", "ms per batch"),
    )
    for name, window in (("sessions, gap 1 s", Sessions(SECOND)), ("fixed, 10 s", Fixed(10 * SECOND))):
        section.row(name, *_costs(window))
    report.show(section)


def _costs(window: Window) -> tuple[int, int, int, int, str]:
    """The cells of a row; the time is the best of several runs, the bytes are the same in all of them."""
    several = [_run(window) for _ in range(RUNS)]
    return *several[0][:4], f"{1_000 * best([run[4] for run in several]):.1f}"


def _run(window: Window) -> tuple[int, int, int, int, float]:
    """The bytes of the state, those of a batch, and the CPU seconds of a batch in the mean."""
    operator = WindowedOperator(
        window=window,
        accumulations={"bids": Count(), "total": Sum("price")},
        key=("auction",),
        event_time="ts",
        allowed_lateness=None,
    )
    random = np.random.default_rng(1)
    keys = random.integers(0, 2**60, KEYS)
    store = CountingStore()
    state, _ = operator.step(operator.initial_state(store), _bids(keys, 0), {}, now=0)
    size = len(operator.save(state)) + len(b"".join(store.blobs.values()))
    written, read, seconds = list[int](), list[int](), list[float]()
    for number in range(BATCHES):
        batch = _bids(random.choice(keys, ROWS, replace=False), SECOND // 20)
        saved = operator.save(state)
        store.read = store.written = 0
        start = time.process_time()
        state, _ = operator.step(operator.load(saved, store), batch, {}, now=1 + number)
        saved = operator.save(state)
        seconds.append(time.process_time() - start)
        written.append(store.written + len(saved))
        read.append(store.read + len(saved))
    mean = statistics.mean
    return size, int(mean(written)), max(written), int(mean(read)), mean(seconds)


def _bids(keys: np.ndarray[tuple[int], np.dtype[np.int64]], later: int) -> pl.DataFrame:
    return pl.DataFrame({"auction": keys, "ts": keys % (SECOND * 9 // 10) + later, "price": keys % 97})
