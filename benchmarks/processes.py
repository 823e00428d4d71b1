"""What a streaming query costs: seconds of its batches, bytes of its state, memory of its processes.

A query is three kinds of processes: this one, the JVM it started, and the Python workers that the JVM
started. What each of them ever held is read from the system, so nothing has to be installed and nothing
runs inside them. Workers are forked from one process and share part of their memory; it is counted in each.
"""

from __future__ import annotations

import json
import os
import statistics
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

_PROCESSES: Final = Path("/proc")
_MEBIBYTE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Memory:
    """The most that the JVM, and all Python workers alive at one time, ever held in memory, in bytes."""

    jvm: int = 0
    workers: int = 0

    @property
    def total(self) -> int:
        """Both together."""
        return self.jvm + self.workers

    def __str__(self) -> str:
        return f"{self.jvm // _MEBIBYTE:,} + {self.workers // _MEBIBYTE:,} MiB"


class MemoryWatch:
    """Watches the processes that this one has started, from its beginning to its end.

    >>> with MemoryWatch() as watch:
    ...     pass
    >>> watch.peak.total >= 0
    True
    """

    def __init__(self, interval: float = 0.2) -> None:
        self.peak = Memory()
        self._interval = interval
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> MemoryWatch:
        for process in _started_by(os.getpid()):
            process.forget_peak()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        # A worker that has nothing to do is ended, and what it held is known no more.
        while not self._over.wait(self._interval):
            self._look()

    def _look(self) -> None:
        processes = list(_started_by(os.getpid()))
        jvm = sum(process.peak() for process in processes if process.name == "java")
        workers = sum(process.peak() for process in processes if process.name.startswith("python"))
        self.peak = Memory(max(self.peak.jvm, jvm), max(self.peak.workers, workers))


@dataclass(frozen=True, slots=True)
class _Process:
    number: int
    name: str

    def peak(self) -> int:
        """The most it ever held, 0 if it has just ended."""
        for line in _text(self.number, "status").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        return 0

    def cpu(self) -> float:
        """The seconds of a processor that it has taken so far."""
        return self._ticks(11, 12)

    def cpu_with_ended_children(self) -> float:
        """The same with what its children had taken that have ended since."""
        return self._ticks(11, 12, 13, 14)

    def _ticks(self, *places: int) -> float:
        fields = _text(self.number, "stat").rpartition(")")[2].split()
        return sum(int(fields[place]) for place in places) / os.sysconf("SC_CLK_TCK") if fields else 0.0

    def forget_peak(self) -> None:
        """Begin again with what it holds now, where the system lets us."""
        try:
            (_PROCESSES / str(self.number) / "clear_refs").write_text("5", encoding="ascii")
        except OSError:
            return


def cpu_of_spark() -> float:
    """The seconds of a processor that the JVM and the workers of this process have taken so far.

    >>> cpu_of_spark() >= 0
    True
    """
    return sum(
        process.cpu()
        for process in _started_by(os.getpid())
        if process.name == "java" or process.name.startswith("python")
    )


def cpu_of_tree(ancestor: int) -> float:
    """The seconds of a processor that a process and all that it has started have taken so far.

    >>> cpu_of_tree(os.getpid()) > 0
    True
    """
    tree = (_Process(ancestor, ""), *_started_by(ancestor))
    return sum(process.cpu_with_ended_children() for process in tree)


def forget_peak_of_tree(ancestor: int) -> None:
    """Begin again with what a process, and each one that it has started, hold now.

    >>> forget_peak_of_tree(os.getpid())
    """
    for process in (_Process(ancestor, ""), *_started_by(ancestor)):
        process.forget_peak()


def peak_of_tree(ancestor: int) -> int:
    """The sum of the most bytes that a process, and each one alive that it has started, have held.

    >>> peak_of_tree(os.getpid()) > 0
    True
    """
    return sum(process.peak() for process in (_Process(ancestor, ""), *_started_by(ancestor)))


def thread_cpu() -> dict[tuple[int, int], tuple[str, float]]:
    """The name and the seconds of a processor of every thread of the JVM and the workers of this process.

    >>> isinstance(thread_cpu(), dict)
    True
    """
    found: dict[tuple[int, int], tuple[str, float]] = {}
    for process in _started_by(os.getpid()):
        try:
            threads = [int(folder.name) for folder in (_PROCESSES / str(process.number) / "task").iterdir()]
        except OSError:
            continue
        for thread in threads:
            before, _, after = _text(process.number, f"task/{thread}/stat").rpartition(")")
            if fields := after.split():
                # The threads of a Python program have names of their own; its process counts.
                name = before.partition("(")[2] if process.name == "java" else process.name
                seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
                found[process.number, thread] = (name, seconds)
    return found


def _started_by(ancestor: int) -> Iterator[_Process]:
    """The children of a process, their children, and so on."""
    names, children = dict[int, str](), dict[int, list[int]]()
    for folder in _PROCESSES.iterdir():
        if folder.name.isdigit():
            before, _, after = _text(int(folder.name), "stat").rpartition(")")
            if after:
                names[int(folder.name)] = before.partition("(")[2]
                children.setdefault(int(after.split()[1]), []).append(int(folder.name))
    waiting = list(children.get(ancestor, []))
    while waiting:
        number = waiting.pop()
        waiting += children.get(number, [])
        yield _Process(number, names[number])


def _text(process: int, file: str) -> str:
    try:
        return (_PROCESSES / str(process) / file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class Run:
    """A query that has come to its end."""

    seconds: tuple[float, ...]
    """Of every batch, as Spark gives them."""
    states: tuple[int, ...]
    """Bytes in the state store, after every batch."""
    memory: Memory
    parts: tuple[dict[str, float], ...] = field(repr=False)
    """What the seconds of every batch were spent on, in Spark's words."""

    @property
    def state_bytes(self) -> int:
        """In the state store, after the last batch."""
        return self.states[-1]


def run_to_end(frame: DataFrame, checkpoint: Path) -> Run:
    """Run all that is available into nothing, and see what it costs."""
    with MemoryWatch() as watch:
        query = (
            frame.writeStream.format("noop")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    batches = {each["batchId"]: each for each in map(json.loads, (one.json for one in query.recentProgress))}
    assert batches, "nothing was there to be read"
    assert sorted(batches) == list(range(min(batches), min(batches) + len(batches))), (
        "batches are missing: raise spark.sql.streaming.numRecentProgressUpdates"
    )
    ordered = [batches[number] for number in sorted(batches)]
    parts = tuple({name: millis / 1_000 for name, millis in batch["durationMs"].items()} for batch in ordered)
    states = tuple(sum(map(_state_bytes, batch["stateOperators"])) for batch in ordered)
    return Run(tuple(part["triggerExecution"] for part in parts), states, watch.peak, parts)


def _state_bytes(operator: dict[str, Any]) -> int:
    return int(operator["customMetrics"].get("rocksdbSstFileSize", 0)) + int(operator["memoryUsedBytes"])


def empty_batch_seconds(
    spark: SparkSession,
    build: Callable[[DataFrame], DataFrame],
    schema: pa.Schema,
    folder: Path,
    batches: int = 20,
) -> float:
    """The median time of a batch without rows: what a query costs before it does anything.

    ``build`` makes the query from a stream with ``schema``; every batch of it is an empty file in ``folder``.
    """
    for number in range(batches):
        write_batch(schema.empty_table(), folder / "in", number)
    rows = read_batches(spark, folder / "in")
    run = run_to_end(build(rows), folder / "checkpoint")
    return statistics.median(run.seconds[batches // 4 :])


def write_batch(rows: pa.Table, folder: Path, number: int) -> None:
    """A file that is a micro-batch of its own; files are read in the order of their modification times."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{number:05}.parquet"
    pq.write_table(rows, path)
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def read_batches(spark: SparkSession, folder: Path) -> DataFrame:
    """The files as a stream, one a micro-batch."""
    schema = spark.read.parquet(str(folder)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))
