"""Where the tasks of a micro-batch spend their time: reading, Arrow, Python, state, the sink.

Every side runs in a new process on `sw.session()`. A thread in the JVM looks at the stacks of the tasks at
regular moments, after the batches that warm up. A moment counts for the innermost method that `PARTS` names.
Looking costs time itself, so these figures are somewhat higher than those of an undisturbed batch.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final, cast

import msgspec
from pyspark.sql import SparkSession

import slackwater as sw
from benchmarks.breakdown import wait_for_commit
from benchmarks.cold_process import in_new_process, print_result
from benchmarks.report import Report, record
from benchmarks.spark_windows import (
    APPENDED,
    BATCH,
    OURS,
    QUIET,
    ROCKSDB,
    TUMBLING,
    Workload,
    bids,
    side_writer,
)
from slackwater.spark.internals import compile_java, define_classes

BATCHES: Final = 16
WARM: Final = 6
RUNS: Final = 3
KEYS: Final = (1_000, 200_000)
SIDES: Final = (OURS, APPENDED, ROCKSDB)
MILLISECONDS: Final = 3
"""Between two looks at the tasks."""
PARTS: Final = {
    "read files": ("VectorizedParquetRecordReader", "FileScanRDD", "ColumnarToRow"),
    "generated code": ("GeneratedIteratorForCodegenStage", "TungstenAggregationIterator"),
    "rows to Arrow": (
        "arrow.ArrowWriter",
        "arrow.ArrowFieldWriter",
        "PythonArrowInput",
        "ipc.message.Message",
    ),
    "wait for Python": ("BasePythonRunner$ReaderInputStream", "PythonWorkerFactory"),
    "Arrow to rows": ("ArrowOutputProcessor", "ArrowColumnVector", "ArrowStreamReader"),
    "state": (".streaming.state.", "org.rocksdb.", "TransformWithStateInPySparkStateServer"),
    "shuffle": ("org.apache.spark.shuffle.", "UnsafeExternalRowSorter", "ShuffleBlockFetcherIterator"),
    "sink": ("ParquetWriteSupport", "FileFormatDataWriter", "SingleDirectoryDataWriter"),
}
"""The columns of the table, and what the name of a method contains."""
OTHER: Final = "other"
STAGES: Final = {"map": "ShuffleMapTask.runTask", "stateful": "ResultTask.runTask"}
"""The stages, and the method that is in all stacks of their tasks."""


class StageTimes(msgspec.Struct):
    """A run of a side: seconds per batch."""

    wall: float
    tasks: dict[str, dict[str, float]]
    """The seconds of the tasks of each stage, added up, by part."""


def part_of(stack: str) -> str:
    """The column of a stack: methods by their full names, the innermost first.

    >>> part_of("java.lang.Object.wait;org.rocksdb.RocksDB.get;scala.Function1.apply;")
    'state'
    >>> part_of("java.lang.Object.wait;")
    'other'
    """
    for method in stack.split(";"):
        for part, names in PARTS.items():
            if any(name in method for name in names):
                return part
    return OTHER


def seconds_by_part(text: str) -> dict[str, dict[str, float]]:
    """The seconds of tasks in the output of the sampler, by stage and part."""
    interval, *lines = text.splitlines()
    counts = {stage: Counter[str]() for stage in STAGES}
    for line in lines:
        times, stack = line.split("\t")
        for stage, method in STAGES.items():
            if method in stack:
                counts[stage][part_of(stack)] += int(times)
    return {
        stage: {part: number * int(interval) / 1e9 for part, number in found.items()}
        for stage, found in counts.items()
    }


@contextmanager
def sampled(spark: SparkSession, output: Path) -> Iterator[None]:
    """Look at the stacks of tasks until the end of the block, and write how often each was seen."""
    source = Path(__file__).with_name("StackSampler.java").read_text(encoding="utf-8")
    define_classes("org.apache.spark.SparkEnv", compile_java(source))
    sampler = cast(Any, spark)._jvm.org.apache.spark.StackSampler(MILLISECONDS)  # noqa: SLF001
    sampler.start()
    try:
        yield
    finally:
        sampler.stop(str(output))


def measure(side: str, keys: int, work: Path) -> StageTimes:
    """Run a side in this process, and sample its tasks after the batches that warm up."""
    spark = sw.session(config=QUIET)
    spark.sparkContext.setLogLevel("ERROR")
    workload = Workload(TUMBLING, keys, batches=BATCHES, warm=WARM)
    bids(work / "in", keys, workload.batch, BATCHES)
    writer = side_writer(spark, workload, side, work).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(work / "checkpoint")).start()
    wait_for_commit(work / "checkpoint", WARM - 1)
    with sampled(spark, work / "stacks.txt"):
        query.awaitTermination()
    batches = [one for one in query.recentProgress if one.numInputRows > 0][WARM:]
    wall = median(one.durationMs["triggerExecution"] for one in batches) / 1000
    tasks = seconds_by_part((work / "stacks.txt").read_text(encoding="utf-8"))
    return StageTimes(
        wall,
        {
            stage: {part: took / len(batches) for part, took in found.items()}
            for stage, found in tasks.items()
        },
    )


def run(report: Report) -> None:
    """All sides, with few and with many keys."""
    parts = (*PARTS, OTHER)
    section = report.section(
        "On Spark: where the tasks of a micro-batch spend their time",
        f"Tumbling windows of 10 s, batches of {BATCH:,} bids, Parquet in and out. Milliseconds of the tasks "
        f"of a stage, added up, per batch over {BATCHES - WARM} batches after {WARM} that warm up; median of "
        f"{RUNS} runs in turns, each in a new process. A thread looks at the stacks of the tasks every "
        f"{MILLISECONDS} ms, which slows them down: compare columns, and take seconds from other tables. A "
        "task that waits for Python waits for its worker, which folds the rows, runs the operator and, with "
        "`append_to`, writes the files.",
        ("query", "keys", "stage", *parts, "all", "wall time of a batch"),
    )
    for keys in KEYS:
        runs: dict[str, list[StageTimes]] = defaultdict(list)
        for _ in range(RUNS):
            for side in SIDES:
                with tempfile.TemporaryDirectory(prefix="slackwater-bench-") as name:
                    runs[side].append(in_new_process("benchmarks.stage_times", StageTimes, side, keys, name))
        for side, found in runs.items():
            record([one.wall for one in found])
            for stage in STAGES:
                each = [median(one.tasks[stage].get(part, 0.0) for one in found) for part in parts]
                section.row(
                    f"Spark, {side}" if side == ROCKSDB else side,
                    keys,
                    stage,
                    *(
                        round(1000 * seconds)
                        for seconds in (*each, sum(each), median(one.wall for one in found))
                    ),
                )
    report.show(section)


if __name__ == "__main__":
    side_name, key_count, folder_name = sys.argv[1:]
    print_result(measure(side_name, int(key_count), Path(folder_name)))
