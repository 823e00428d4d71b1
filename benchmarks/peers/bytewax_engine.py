"""`python -m benchmarks.peers.bytewax_engine`: the windows in Bytewax, from Parquet files to CSV files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators import windowing
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

from benchmarks.announcements import announced_run
from benchmarks.peers.workloads import LAG, Job, Workload, parse_job

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


class Files(StatefulSourcePartition[Any, int]):
    """All files in their order, a batch of rows at a time."""

    def __init__(self, folder: Path) -> None:
        self._batches = (
            batch
            for path in sorted(folder.glob("*.parquet"))
            for batch in pq.ParquetFile(path).iter_batches(10_000)
        )

    def next_batch(self) -> list[Any]:
        """The next rows: the key, and the time with the price."""
        batch = next(self._batches, None)
        if batch is None:
            raise StopIteration
        auctions, prices, times = (column.to_pylist() for column in batch.columns)
        return [
            (str(auction), (EPOCH + time * MILLISECOND, price))
            for auction, price, time in zip(auctions, prices, times, strict=True)
        ]

    def snapshot(self) -> int:
        """Nothing: the run is not resumed."""
        return 0


class Source(FixedPartitionedSource[Any, int]):
    """One partition, so that rows are read in their order."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def list_parts(self) -> list[str]:
        """The partition."""
        return ["files"]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Files:
        """The files."""
        return Files(self._folder)


class Lines(StatelessSinkPartition[str]):
    """A file of lines."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="ascii")

    def write_batch(self, items: list[str]) -> None:
        """Write lines."""
        self._file.write("".join(items))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Sink(DynamicSink[str]):
    """A file of lines for each worker."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Lines:
        """The file of a worker."""
        return Lines(self._folder / f"{worker_index}.csv")


def windower(window: Workload) -> Any:
    """The window."""
    size = window.size * MILLISECOND
    if window.sessions:
        return windowing.SessionWindower(gap=size)
    if window.every is not None:
        return windowing.SlidingWindower(length=size, offset=window.every * MILLISECOND, align_to=EPOCH)
    return windowing.TumblingWindower(length=size, align_to=EPOCH)


def _empty() -> tuple[int, int, int, int]:
    return (0, 0, 0, 2**63 - 1)


def _fold(state: tuple[int, int, int, int], value: Any) -> tuple[int, int, int, int]:
    bids, total, best, first = state
    time, price = value
    millis = (time - EPOCH) // MILLISECOND
    return (bids + 1, total + price, max(best, price), min(first, millis))


def _merge(one: tuple[int, int, int, int], two: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    return (one[0] + two[0], one[1] + two[1], max(one[2], two[2]), min(one[3], two[3]))


def build(job: Job) -> Dataflow:
    """The dataflow."""
    flow = Dataflow("peers")
    rows = op.input("read", flow, Source(job.data / "parquet"))
    clock = windowing.EventClock(lambda value: value[0], wait_for_system_duration=LAG * MILLISECOND)
    folded = windowing.fold_window(
        "fold", rows, clock, windower(job.window), _empty, _fold, _merge, ordered=False
    )
    step = job.window.every or job.window.size

    def line(item: Any) -> str:
        key, (number, (bids, total, best, first)) = item
        start = first if job.window.sessions else number * step
        return f"{key},{start},{bids},{total},{best}\n"

    op.output("write", op.map("line", folded.down, line), Sink(job.output))
    return flow


if __name__ == "__main__":
    with announced_run():
        run_main(build(parse_job()))
