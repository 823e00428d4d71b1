"""One cycle of a controller, from the store and back to it, as writers and segments grow."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from sqlalchemy.engine import Connection

from benchmarks.report import Report, Timing, best, record
from slackwater.streams.log.catalog import Stream, Streams
from slackwater.streams.maintenance.mark_cycle import CycleRunner
from slackwater.streams.segments.positions import Position
from slackwater.streams.time import mark_store
from slackwater.time import SECOND

SIZES = ((10, 10), (100, 100), (1_000, 100), (100, 1_000), (1_000, 1_000))
CYCLES = 5
AIM = 100


def _note_all(connection: Connection, stream: Stream, writers: int, cycle: int) -> None:
    """Every writer is in every segment, and further than before."""
    draw = np.random.default_rng(cycle)
    ids = np.array(sorted(stream.epochs().segments), dtype=np.int64)
    for writer in range(writers):
        position = Position(ids, cycle * 1_000 + draw.integers(0, 1_000, ids.size))
        mark_store.note(connection, stream.id, f"writer-{writer}", cycle * 10_000 + writer, position, at=0)


def _measured(folder: Path, writers: int, segments: int) -> list[Timing]:
    now = 0
    with Streams.open(
        f"sqlite:///{folder}/{writers}-{segments}.db", create=True, clock=lambda: now
    ) as streams:
        stream = streams.create("bench/stream", segments=segments)
        runner = CycleRunner(streams.store, lambda: now)
        timings = []
        for cycle in range(1, CYCLES + 2):
            streams.store.write(lambda connection: _note_all(connection, stream, writers, cycle))  # noqa: B023 - run at once
            now = cycle * 10 * SECOND
            wall, cpu = time.perf_counter(), time.process_time()
            done = runner.run(stream.id)
            timings.append(Timing(time.perf_counter() - wall, time.process_time() - cpu))
            assert done is not None
            assert done.mark is not None
            assert (done.mark.lower, done.mark.upper) == (cycle * 10_000, cycle * 10_000 + writers - 1)
            assert len(done.mark.cut) == segments
        return timings[1:]  # the first one also reads the segments, and fills caches


def run(report: Report) -> None:
    """Cycles that write a mark each, on SQLite."""
    section = report.section(
        "Controller cycle",
        f"Read all positions, compute the watermark and write one mark, on SQLite; {CYCLES} cycles.",
        ["writers × segments", "CPU, median, ms", "wall, best, ms"],
    )
    with TemporaryDirectory() as folder:
        for writers, segments in SIZES:
            timings = _measured(Path(folder), writers, segments)
            record([timing.cpu_seconds for timing in timings])
            cpu = statistics.median(timing.cpu_seconds for timing in timings) * 1e3
            wall = best([timing.seconds for timing in timings]) * 1e3
            section.row(f"{writers:,} × {segments:,}", f"{cpu:.1f}", f"{wall:.1f}")
            if (writers, segments) == SIZES[-1]:
                said = "within" if max(cpu, wall) <= AIM else "not within"
                section.verdict(
                    f"{cpu:.0f} ms of CPU, {wall:.0f} ms of wall time: {said} the aim of {AIM} ms"
                )
    report.show(section)
