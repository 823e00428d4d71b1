"""The latency of a pane: from the arrival of the row that completes its window to its commit in the sink.

A thread writes a small Parquet file every tenth of a second, 10,000 rows a second in all, with the current
time as their event time. The query reads them as fast as it can and appends panes to a Parquet sink, Spark's
or that of `append_to`, each side in a new process on `sw.session()`. A window is complete when the first row
arrives that moves the watermark to its end; a pane is committed when the sink's log names its file. Spark
needs one more batch to act on a watermark.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Set
from pathlib import Path
from statistics import median
from typing import Final

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import msgspec  # after the number of threads is set, which Polars reads once
import numpy as np
import polars as pl
from pyspark.sql import functions as sql

import slackwater as sw
from benchmarks.cold_process import in_new_process, print_result
from benchmarks.report import Report, spread
from slackwater.time import SECOND

RATE: Final = 10_000
INTERVAL: Final = SECOND // 10
"""Between two files, in microseconds."""
LAG: Final = SECOND // 10
WINDOW: Final = SECOND // 4
KEYS: Final = 1_000
WARM: Final = 25.0
"""Seconds before the first window that counts."""
MEASURED: Final = 30.0
TAIL: Final = 3.0
"""Seconds for which rows go on to arrive after the last window that counts."""
PATIENCE: Final = 120.0
GOAL: Final = 0.3
RUNS: Final = 3
SIDES: Final = ("Slackwater", "Slackwater, append_to", "Spark, RocksDB")


class Producer(threading.Thread):
    """Writes rows with the current time."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.folder = folder
        self.arrivals: list[tuple[int, int]] = []
        """For each file: its latest event time, and when it became visible, in microseconds."""
        self.over = threading.Event()
        (folder / "staged").mkdir(parents=True)
        (folder / "in").mkdir()

    def run(self) -> None:
        """Write a file in every interval until it is over."""
        rng = np.random.default_rng(7)
        rows = RATE * INTERVAL // SECOND
        for number in range(sys.maxsize):
            now = _now()
            times = np.linspace(now - INTERVAL + 1, now, rows).astype(np.int64)
            frame = pl.DataFrame(
                {
                    "auction": rng.integers(0, KEYS, rows),
                    "price": rng.integers(1, 10_000, rows),
                    "ts": pl.Series(times).cast(pl.Datetime("us", "UTC")),
                }
            )
            path = self.folder / "staged" / f"{number:06}.parquet"
            frame.write_parquet(path)
            path.rename(self.folder / "in" / path.name)
            self.arrivals.append((now, _now()))
            if self.over.wait((now + INTERVAL - _now()) / SECOND if now + INTERVAL > _now() else 0):
                return


def _now() -> int:
    return time.time_ns() // 1_000


def latencies(side: str, work: Path) -> list[float]:
    """The latency of every window in seconds, in a process that nothing has warmed up."""
    spark = sw.session(config={"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"})
    spark.sparkContext.setLogLevel("ERROR")
    producer = Producer(work)
    rows = spark.readStream.schema("auction bigint, price bigint, ts timestamp").parquet(str(work / "in"))
    out = work / "out"
    if side in SIDES[:2]:
        elements = sw.stream(rows, event_time="ts", watermark=sw.lag(f"{LAG} microseconds"))
        panes = elements.key_by("auction").window(sw.fixed(f"{WINDOW} microseconds"))
        totals = panes.agg(bids=sw.count(), total=sw.sum("price"))
        writer = (
            totals.to_df().writeStream.format("parquet").option("path", str(out))
            if side == SIDES[0]
            else totals.append_to(f"parquet:{out}", create=True)
        )
    else:
        marked = rows.withWatermark("ts", f"{LAG} microseconds")
        windows = marked.groupBy(sql.window("ts", f"{WINDOW} microseconds").alias("window"), "auction")
        result = windows.agg(sql.count("*").alias("bids"), sql.sum("price").alias("total"))
        writer = result.writeStream.format("parquet").option("path", str(out))
    producer.start()
    query = writer.option("checkpointLocation", str(work / "checkpoint")).start()
    begin = _now() + int(WARM * SECOND)
    ends = range(-(-begin // WINDOW) * WINDOW, begin + int(MEASURED * SECOND), WINDOW)
    sink = SinkLog(out)
    sink.watch(WARM + MEASURED + TAIL, set())
    producer.over.set()
    producer.join()
    sink.watch(PATIENCE, set(ends))
    commits = sink.windows
    query.stop()
    assert commits.keys() >= set(ends), "the sink has no pane for a window"
    complete = [next(seen for latest, seen in producer.arrivals if latest - LAG >= end) for end in ends]
    return [(commits[end] - at) / SECOND for end, at in zip(ends, complete, strict=True)]


class SinkLog:
    """When the sink committed the first pane of each window, by the end of the window, in microseconds.

    The log is read while the query runs, because `append_to` deletes entries that a later one repeats.
    """

    def __init__(self, out: Path) -> None:
        self._out = out
        self._read: set[str] = set()
        self._files: dict[str, int] = {}

    def watch(self, seconds: float, ends: Set[int]) -> None:
        """Read the log every second, until the time is over or there are panes of all windows given."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._read_new()
            if ends and self.windows.keys() >= ends:
                return
            time.sleep(1)

    def _read_new(self) -> None:
        logs = self._out / "_spark_metadata"
        named = [log for log in logs.iterdir() if log.name[0].isdigit()] if logs.is_dir() else []
        # Every tenth log repeats those before it.
        for log in sorted(named, key=lambda log: int(log.name.partition(".")[0])):
            if log.name in self._read:
                continue
            committed = log.stat().st_mtime_ns // 1_000
            lines = log.read_text(encoding="utf-8").splitlines()[1:]
            self._read.add(log.name)
            for entry in map(msgspec.json.decode, lines):
                if not entry["isDir"]:
                    self._files.setdefault(Path(entry["path"]).name, committed)

    @property
    def windows(self) -> dict[int, int]:
        """The times of the commits, read from the files that the log has named so far."""
        commits: dict[int, int] = {}
        for name, committed in self._files.items():
            window = pl.read_parquet(self._out / name, columns=["window"])["window"]
            for end in window.struct.field("end").dt.epoch("us").unique():
                commits[end] = min(committed, commits.get(end, committed))
        return commits


def _measure(side: str) -> list[float]:
    with tempfile.TemporaryDirectory(prefix="slackwater-bench-") as name:
        took = in_new_process("benchmarks.latency", list[float], side, name)
    assert all(later > 0 for later in took), "a pane before its window was complete"
    return took


def run(report: Report) -> None:
    """All sides."""
    section = report.section(
        "On Spark: latency of a pane",
        f"{RATE:,} rows per second in files of {RATE * INTERVAL // SECOND:,}, {KEYS:,} keys, windows of "
        f"{WINDOW / SECOND:g} s, lag {LAG / SECOND:g} s, Parquet sink, no trigger interval; "
        f"{MEASURED:g} s of windows after {WARM:g} s of warm-up. Seconds from the arrival of the row "
        "that completes a window to the commit of its pane. Every side is a new process on `sw.session()`; "
        f"median of {RUNS} runs in turns, lowest and highest.",
        ("query", "50 %", "99 %", "windows"),
    )
    took: dict[str, list[list[float]]] = {side: [] for side in SIDES}
    for _ in range(RUNS):
        for side in SIDES:
            took[side].append(_measure(side))
    for side, runs in took.items():
        cells = [spread([float(np.percentile(one, share)) for one in runs]) for share in (50, 99)]
        section.row(side, *cells, len(runs[0]))
    medians = {side: median(float(np.percentile(one, 50)) for one in runs) for side, runs in took.items()}
    theirs = medians.pop(SIDES[-1])
    for side, mine in medians.items():
        verdict = "met" if mine <= min(GOAL, theirs) else "MISSED"
        section.verdict(
            f"{side}: median {mine:.2f} s, Spark {theirs:.2f} s (goal: at most Spark's, and {GOAL} s: "
            f"{verdict})"
        )
    report.show(section)


if __name__ == "__main__":
    side_name, folder_name = sys.argv[1:]
    print_result(latencies(side_name, Path(folder_name)))
