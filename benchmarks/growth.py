"""A batch that touches one window, while more and more keys are remembered in others, on Spark.

One query goes through it all: keys are filled in until there are enough, then small batches go into one
window, then more keys are filled in. State is in RocksDB, as always.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from benchmarks.processes import read_batches, run_to_end, write_batch
from benchmarks.report import Report, record
from slackwater import windows
from slackwater.progress.watermark_policies import lag
from slackwater.spark.api.stream import stream
from slackwater.spark.session import session
from slackwater.spark.wire.clock_source import Ticks
from slackwater.time import SECOND

SIZES: Final = (1_000_000, 10_000_000, 100_000_000)
KEYS: Final = 100_000
"""In each window."""
AT_ONCE: Final = 50
"""Windows filled by one batch."""
TOUCHES: Final = 12
WARM: Final = 2
"""Touches that are not timed: the first makes the window."""
ROWS: Final = 1_000
WIDTH: Final = 10 * SECOND
FLAT: Final = 1.25

Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True)
class Stage:
    """So many keys are remembered, and these batches touch one window."""

    keys: int
    touches: range

    @property
    def timed(self) -> range:
        """All but the first of them."""
        return self.touches[WARM:]


def run(report: Report, sizes: tuple[int, ...] = SIZES) -> None:
    """Fill, touch, and see what a touch costs."""
    section = report.section(
        "On Spark: a batch that touches one window, by the number of keys in state",
        f"{KEYS:,} keys in each window, and no window is complete. The timed batches add {ROWS:,} rows to "
        "one more "
        "window. Median and fastest wall seconds of such a batch; the median is divided into tasks with "
        "their "
        "state, and planning and logs. State is the size in RocksDB.",
        ("keys", "windows", "seconds", "fastest", "tasks", "planning, logs", "times the first", "state MiB"),
    )
    with tempfile.TemporaryDirectory(prefix="slackwater-growth-") as name:
        folder = Path(name)
        stages = _write(folder / "in", sizes)
        batches = stages[-1].touches.stop
        spark = session(
            "growth",
            master="local[2]",
            partitions=2,
            config={
                "spark.ui.enabled": "false",
                "spark.driver.memory": "4g",
                "spark.driver.host": "127.0.0.1",
                "spark.local.dir": name,
                "spark.ui.showConsoleProgress": "false",
                "spark.sql.files.maxPartitionBytes": "16m",
                "spark.sql.streaming.numRecentProgressUpdates": str(batches + 1),
            },
        )
        spark.sparkContext.setLogLevel("ERROR")
        clock = Ticks(tuple(range(batches)))
        rows = read_batches(spark, folder / "in")
        keyed = stream(rows, event_time="at", watermark=lag("365 days"), clock=clock).key_by("key")
        panes = keyed.window(windows.Fixed(WIDTH)).agg(bids=windows.count(), total=windows.sum("value"))
        done = run_to_end(panes.to_df(), folder / "checkpoint")
        spark.stop()
    assert len(done.seconds) == batches
    medians = [_median(done.seconds, stage) for stage in stages]
    for stage, seconds in zip(stages, medians, strict=True):
        record([done.seconds[number] for number in stage.timed])
        tasks = _median([part["addBatch"] for part in done.parts], stage)
        section.row(
            stage.keys,
            stage.keys // KEYS,
            f"{seconds:.2f}",
            f"{min(done.seconds[number] for number in stage.timed):.2f}",
            f"{tasks:.2f}",
            f"{seconds - tasks:.2f}",
            f"{seconds / medians[0]:.2f}",
            done.states[stage.touches[-1]] >> 20,
        )
    assert done.states[-1] * sizes[0] > done.states[stages[0].touches[-1]] * sizes[-1] / 2, "keys were lost"
    growth = medians[-1] / medians[0]
    section.verdict(
        f"{sizes[-1] // sizes[0]} times the keys: a batch costs {growth:.2f} times as much"
        f" ({'flat' if growth <= FLAT else 'GROWS'}); at most {done.memory} of memory, JVM + Python workers"
    )
    report.show(section)


def _median(seconds: Sequence[float], stage: Stage) -> float:
    return statistics.median(seconds[number] for number in stage.timed)


def _write(folder: Path, sizes: tuple[int, ...]) -> list[Stage]:
    """The files of all batches; touches of nothing come first, until Spark is warm."""
    stages: list[Stage] = []
    number = window = 0
    random = np.random.default_rng(1)
    for size in (0, *sizes):
        while window * KEYS < size:
            count = min(AT_ONCE, size // KEYS - window)
            starts = np.repeat(np.arange(window, window + count) * WIDTH, KEYS)
            write_batch(_rows(np.tile(_keys(np.arange(KEYS)), count), starts), folder, number)
            window, number = window + count, number + 1
        at = -(1 + len(stages)) * WIDTH
        for touch in range(number, number + TOUCHES):
            write_batch(_rows(_keys(random.integers(0, KEYS, ROWS)), np.full(ROWS, at)), folder, touch)
        stages.append(Stage(size, range(number, number + TOUCHES)))
        number += TOUCHES
    return stages[1:]


def _keys(numbers: Numbers) -> Numbers:
    """Numbers as keys that no codec can pack."""
    return (numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)


def _rows(keys: Numbers, at: Numbers) -> pa.Table:
    return pa.table({"key": keys, "at": pa.array(at, pa.timestamp("us", "UTC")), "value": keys % 97})
