"""Windows on Spark compared with Spark's own, as a user starts them, after the results are compared.

Each side of a comparison is a new process with a new JVM on `sw.session()`: the same settings, the same
Parquet files in, the same sink out. Spark's `groupBy(window, key)` runs on RocksDB with changelog
checkpoints, and on the default state store. It also runs on RocksDB with the same settings in a session that
Spark creates, as without this library. Ours also runs with `append_to`, where its tasks write the files of
the sink. Two further sides compute nothing. In one, Spark reads the panes that we returned and writes them
again, which takes as long with every operator. The other has the stages of an operator in Python whose tasks
drop the rows, and write finished panes. The first batch contains what a new process pays once; the steady
state is the median of the batches after those that warm up. The sides alternate, and the spread over all runs
is given.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import msgspec  # after the number of threads is set, which Polars reads once
import numpy as np
import polars as pl
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.readwriter import DataStreamWriter

import slackwater as sw
from benchmarks import empty_stages
from benchmarks.bars import draw
from benchmarks.cold_process import in_new_process, print_result
from benchmarks.processes import Memory, MemoryWatch
from benchmarks.report import Report, spread
from slackwater.spark.api.panes import Panes
from slackwater.time import SECOND
from slackwater.windows import Window

BATCH: Final = 500_000
MILLION: Final = 1_000_000
RUNS: Final = 3
BIDS_A_SECOND: Final = 10_000
FIRST_PANES: Final = 1.5
"""How many times the seconds of Spark may pass until the first panes of a new process."""
DISORDER: Final = 4 * SECOND
LAG: Final = "5 seconds"
SCHEMA: Final = "auction bigint, bidder bigint, price bigint, ts timestamp"
PICTURE: Final = Path(__file__).parent.parent / "docs" / "images" / "benchmark-spark.svg"
PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
OURS: Final = "Slackwater"
APPENDED: Final = "Slackwater, append_to"
"""The side whose tasks write the files, always Parquet."""
WRITING: Final = "panes alone"
"""The side that reads finished panes and writes them, with all columns."""
STAGES: Final = "stages alone"
"""The side whose tasks drop all rows, and write finished panes; see `empty_stages`."""
LIMITS: Final = (WRITING, STAGES)
"""The sides that compute nothing."""
ROCKSDB: Final = "RocksDB"
PLAIN: Final = "RocksDB, plain session"
"""The side whose session has the settings of `sw.settings()`, on a JVM as Spark starts it."""
PANES: Final = "auction bigint, start bigint, end bigint, bids bigint, total bigint, best bigint"
ALL_COLUMNS: Final = (
    "auction",
    "struct(timestamp_micros(start) AS start, timestamp_micros(`end`) AS end) AS window",
    "bids",
    "total",
    "best",
    """struct('ON_TIME' AS timing, 0L AS index, 0L AS on_time_index, true AS is_first, true AS is_last,
    false AS retraction, 'pane' AS kind) AS pane""",
)
"""The columns of `windows`, as Spark expressions over the columns of `PANES`."""
STORES: Final = {
    ROCKSDB: "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    PLAIN: "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "default": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}
QUIET: Final = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}


@dataclass(frozen=True)
class Windows:
    """The same windows for both sides."""

    name: str
    ours: Window
    native: Callable[[], Column]


TUMBLING: Final = Windows("tumbling 10 s", sw.fixed("10 seconds"), lambda: sql.window("ts", "10 seconds"))
SLIDING: Final = Windows(
    "sliding 60 s every 10 s",
    sw.sliding("60 seconds", every="10 seconds"),
    lambda: sql.window("ts", "60 seconds", "10 seconds"),
)
SESSIONS: Final = Windows(
    "sessions, gap 10 s",
    # Spark joins sessions that are exactly the gap apart, and we do not. With an odd gap there are none: all
    # times are even.
    sw.sessions("10000001 microseconds"),
    lambda: sql.session_window("ts", "10000001 microseconds"),
)


@dataclass(frozen=True)
class Workload:
    """One comparison."""

    windows: Windows
    keys: int
    aim: float = 0
    """How many times faster than Spark on RocksDB we aim to be, in the steady state."""
    batches: int = 6
    warm: int = 3
    """The number of batches at the start of a run that warm up."""
    batch: int = BATCH
    """How many bids a micro-batch has."""
    sink: str = "parquet"
    heap: str = "1g"
    """The heap of the JVM; 1 GiB is Spark's default."""
    sides: tuple[str, ...] = (OURS, APPENDED, ROCKSDB, PLAIN, *LIMITS)

    def __str__(self) -> str:
        return f"{self.windows.name}, {self.keys:,} keys"


WORKLOADS: Final = (
    Workload(TUMBLING, 1_000, aim=1.2, batches=16, warm=6, sides=(OURS, APPENDED, *STORES, *LIMITS)),
    Workload(TUMBLING, 200_000, aim=10, batches=16, warm=6, sides=(OURS, APPENDED, *STORES, *LIMITS)),
    Workload(SLIDING, 1_000, aim=3),
    Workload(SLIDING, 200_000, aim=12),
    Workload(SESSIONS, 200_000, aim=8),
)
END_TO_END: Final = tuple(
    Workload(
        TUMBLING,
        keys,
        batches=10,
        batch=MILLION,
        sink="csv",
        heap="4g",
        sides=(OURS, APPENDED, ROCKSDB, "default"),
    )
    for keys in (1_000, 200_000)
)
ALL: Final = (*WORKLOADS, *END_TO_END)


def bids(folder: Path, keys: int, batch: int, batches: int, seed: int = 7) -> Path:
    """Seeded bids as files, one for a batch, each row at most four seconds behind the latest before it."""
    rng = np.random.default_rng(seed)
    number = batch * batches
    arrival = np.arange(number, dtype=np.int64) * (SECOND // BIDS_A_SECOND)
    frame = pl.DataFrame(
        {
            "auction": rng.integers(0, keys, number),
            "bidder": rng.integers(0, 1_000_000, number),
            "price": rng.integers(1, 10_000, number),
            "ts": pl.Series(arrival + DISORDER - 2 * rng.integers(0, DISORDER // 2, number)).cast(
                pl.Datetime("us", "UTC")
            ),
        }
    )
    folder.mkdir(parents=True)
    for index in range(batches):
        path = folder / f"{index:03}.parquet"
        frame.slice(index * batch, batch).write_parquet(path)
        os.utime(path, (index, index))
    return folder


def read(spark: SparkSession, folder: Path) -> DataFrame:
    """The bids as a stream, one file a batch."""
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))


def panes(folder: Path, found: pl.DataFrame, batches: int) -> None:
    """Panes as files, two for a batch: as many as there are tasks that write panes on two cores."""
    folder.mkdir()
    moments = (pl.col(name).dt.epoch("us") for name in ("start", "end"))
    found = found.with_columns(moments).sample(fraction=1, shuffle=True, seed=7)
    size = -(-found.height // (2 * batches))
    for number, part in enumerate(found.iter_slices(size)):
        part.write_parquet(folder / f"{number:03}.parquet")
        os.utime(folder / f"{number:03}.parquet", (number, number))


def read_panes(spark: SparkSession, folder: Path) -> DataFrame:
    """Finished panes as a stream, with the columns of `windows`."""
    rows = spark.readStream.schema(PANES).option("maxFilesPerTrigger", 2).parquet(str(folder))
    return rows.selectExpr(*ALL_COLUMNS)


def windows(rows: DataFrame, window: Window) -> Panes:
    """The windows of this library."""
    stream = sw.stream(rows, event_time="ts", watermark=sw.lag(LAG))
    keyed = stream.key_by("auction").window(window)
    return keyed.agg(bids=sw.count(), total=sw.sum("price"), best=sw.max("price"))


def spark_windows(rows: DataFrame, window: Column) -> DataFrame:
    """Spark's own windows."""
    grouped = rows.withWatermark("ts", LAG).groupBy(window.alias("window"), "auction")
    return grouped.agg(
        sql.count("*").alias("bids"), sql.sum("price").alias("total"), sql.max("price").alias("best")
    )


class Run(msgspec.Struct):
    """What one side took in a process of its own."""

    built: float
    """The seconds from the session to the start of the query."""
    batches: list[float]
    """The seconds of every batch."""
    silent: int
    """The number of batches before the one that gave the first results."""
    memory: Memory

    @property
    def first(self) -> float:
        """The seconds from the session to the first results."""
        return self.built + sum(self.batches[: self.silent + 1])

    def steady(self, warm: int) -> float:
        """The seconds of a batch after those that warm up."""
        return median(self.batches[warm:])

    @property
    def whole(self) -> float:
        """The seconds from the session to the last results."""
        return self.built + sum(self.batches)


def run_side(workload: Workload, side: str, work: Path) -> Run:
    """Run one side in this process, which nothing has warmed up."""
    spark = _session(side, QUIET | {"spark.driver.memory": workload.heap})
    spark.sparkContext.setLogLevel("ERROR")
    began = time.perf_counter()
    writer = side_writer(spark, workload, side, work).option(
        "checkpointLocation", str(work / f"{side}-checkpoint")
    )
    with MemoryWatch() as watch:
        query = writer.trigger(availableNow=True).start()
        built = time.perf_counter() - began
        query.awaitTermination()
    took = [one.durationMs["triggerExecution"] / 1000 for one in query.recentProgress if one.numInputRows > 0]
    assert len(took) == workload.batches, f"{workload}, {side}: {len(took)} batches"
    return Run(built, took, 0 if side == STAGES else _silent_batches(work / side), watch.peak)


def _session(side: str, config: Mapping[str, str]) -> SparkSession:
    """The session of a side."""
    if side != PLAIN:
        return sw.session(config=config)
    builder = SparkSession.builder.appName(side)
    for name, value in {**sw.settings(), **config}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def side_writer(spark: SparkSession, workload: Workload, side: str, work: Path) -> DataStreamWriter:
    """The query of a side, with its sink."""
    rows, flat = read(spark, work / "in"), workload.sink == "csv"
    if side == APPENDED:
        panes = windows(rows, workload.windows.ours)
        return panes.append_to(f"parquet:{work / side}", create=True, flat=flat)
    if side == STAGES:
        return empty_stages.empty_stages(rows, "auction", "price", "ts", work / side)
    if side == OURS:
        result = windows(rows, workload.windows.ours).to_df()
    elif side == WRITING:
        result = read_panes(spark, work / "panes")
    else:
        spark.conf.set(PROVIDER, STORES[side])
        result = spark_windows(rows, workload.windows.native())
    if flat:
        result = result.select("auction", "window.start", "window.end", "bids", "total", "best")
    return result.writeStream.format(workload.sink).option("path", str(work / side))


def _silent_batches(output: Path) -> int:
    """The number of batches at the start that gave no results, by the log of the sink."""
    silent = 0
    for number in range(len(list((output / "_spark_metadata").iterdir()))):
        entries = (output / "_spark_metadata" / str(number)).read_text(encoding="utf-8").splitlines()[1:]
        listed = [msgspec.json.decode(entry) for entry in entries]
        files = [output / Path(entry["path"]).name for entry in listed if not entry["isDir"]]
        if any(one.stat().st_size if one.suffix == ".csv" else pl.read_parquet(one).height for one in files):
            return silent
        # The first entry of append_to, which is older than the first batch, describes the table.
        silent += number > 0 or not any(entry["isDir"] for entry in listed)
    raise AssertionError(f"{output.name} gave no results")


def cold(number: int, side: str, work: Path) -> Run:
    """Run one side in a new process."""
    return in_new_process("benchmarks.spark_windows", Run, number, side, work)


def results(workload: Workload, work: Path, side: str) -> pl.DataFrame:
    """The panes of a side, in one order."""
    if workload.sink == "csv" and side == APPENDED:
        found = pl.read_parquet(work / side / "*.parquet")
        frame = found.rename({"window_start": "start", "window_end": "end"})
    elif workload.sink == "csv":
        files = sorted((work / side).glob("part-*.csv"))
        names = ["auction", "start", "end", "bids", "total", "best"]
        frames = [
            pl.read_csv(one, has_header=False, new_columns=names) for one in files if one.stat().st_size
        ]
        moments = (pl.col(name).str.to_datetime("%+", time_unit="us") for name in ("start", "end"))
        frame = pl.concat(frames).with_columns(moments)
    else:
        frame = pl.read_parquet(work / side / ("out/*.parquet" if side == STAGES else "*.parquet")).select(
            "auction",
            *(pl.col("window").struct.field(bound) for bound in ("start", "end")),
            "bids",
            "total",
            "best",
        )
    return frame.sort("auction", "start")


def check(workload: Workload, work: Path) -> None:
    """Every pane of Spark's own windows is ours too, with the same values."""
    mine = results(workload, work, OURS)
    for side in {APPENDED, *LIMITS} & set(workload.sides):
        same = results(workload, work, side)
        assert same.select(mine.columns).cast(mine.schema).equals(mine), f"{workload}: {side} differs"
    for side in workload.sides:
        if side not in STORES:
            continue
        theirs = results(workload, work, side)
        assert theirs.height > 0, f"{workload}: {side} gave nothing"
        # The side that is a batch ahead has closed a few windows more.
        limit = min(mine["end"].max(), theirs["end"].max())  # type: ignore[type-var]
        one, two = (frame.filter(pl.col("end") <= limit) for frame in (mine, theirs))
        assert one.cast(two.schema).equals(two), f"{workload}: {side} differs"


@dataclass(frozen=True)
class Comparison:
    """A workload that all sides have run several times, with equal results."""

    workload: Workload
    runs: dict[str, list[Run]]

    def steady(self, side: str) -> float:
        """The median over the runs of a batch in the steady state."""
        return median(run.steady(self.workload.warm) for run in self.runs[side])

    def memory(self, side: str) -> Memory:
        """The highest peak of all runs."""
        return max((run.memory for run in self.runs[side]), key=lambda one: one.total)

    def ratios(self, side: str, seconds: Callable[[Run], float], base: str = ROCKSDB) -> list[float]:
        """How many times faster a side is than another one, in each run, in ascending order."""
        pairs = zip(self.runs[side], self.runs[base], strict=True)
        return sorted(seconds(theirs) / seconds(mine) for mine, theirs in pairs)

    def steady_ratios(self, side: str, base: str = ROCKSDB) -> list[float]:
        """The ratios in the steady state."""
        return self.ratios(side, lambda run: run.steady(self.workload.warm), base)


def compare(number: int, runs: int = RUNS) -> Comparison:
    """Run all sides of a workload, each several times, in turns."""
    workload = ALL[number]
    took: dict[str, list[Run]] = {side: [] for side in workload.sides}
    for _ in range(runs):
        with tempfile.TemporaryDirectory(prefix="slackwater-bench-") as name:
            work = Path(name)
            bids(work / "in", workload.keys, workload.batch, workload.batches)
            for side in workload.sides:
                if side == WRITING:
                    panes(work / "panes", results(workload, work, OURS), workload.batches)
                elif side == STAGES:
                    empty_stages.prepare(work / side, work / APPENDED, workload.batches)
                took[side].append(cold(number, side, work))
                print(f"{workload}, {side}: {took[side][-1].batches}", flush=True)
            check(workload, work)
    return Comparison(workload, took)


def run(report: Report) -> None:
    """All workloads."""
    show_windows(report, [compare(number) for number in range(len(WORKLOADS))])


def show_windows(report: Report, comparisons: Sequence[Comparison]) -> None:
    """The table and the picture of all comparisons."""
    section = report.section(
        "On Spark: against Spark's own windows",
        f"Micro-batches of {BATCH:,} bids, {BIDS_A_SECOND:,} per second of event time, watermark lag {LAG}, "
        "count, sum and maximum, Parquet in and out. Every run is a new process; the results of all sides "
        "are equal.\n\n"
        f"- *Slackwater*: on `sw.session()`, with all columns of a pane, through Spark's sink.\n"
        "- *append_to*: the same, but its tasks write the files.\n"
        "- *Spark*: its own windows on `sw.session()`.\n"
        "- *Spark, plain session*: the same on a session with the same settings (`sw.settings()`), but "
        "without what `sw.session()` changes in the JVM and its file system.\n"
        "- *panes alone*: Spark reads the panes that Slackwater returned and writes them, with all columns, "
        "without windows, state and Python. No operator is faster through Spark's sink.\n"
        "- *stages alone*: the tasks of a stateful operator in Python drop the rows that they get, and write "
        "the panes that `append_to` wrote. No operator in Python that gets its rows from Spark is faster, "
        "within the spread.\n\n"
        f"Seconds are the median of {RUNS} runs in turns, with the lowest and the highest. A batch is the "
        "median of those after the first six (tumbling, 16 batches) or three (6 batches). Ratios are the "
        "seconds of RocksDB on `sw.session()` divided by those of the side in the same turn. First panes are "
        "the seconds from the session to the commit of the first batch with results: Spark needs a second "
        "batch for them. Memory is the highest peak of the JVM and of the Python workers, which share a part "
        "of theirs that is counted in each.",
        (
            "workload", "keys", "query", "a batch", "times RocksDB", "first batch",
            "first batch, times RocksDB", "first panes", "memory",
        ),
    )  # fmt: skip
    for each in comparisons:
        for side in each.runs:
            section.row(
                each.workload.windows.name,
                each.workload.keys,
                f"Spark, {side}" if side in STORES else side,
                spread([run.steady(each.workload.warm) for run in each.runs[side]]),
                spread(each.steady_ratios(side)),
                *(
                    (
                        spread([run.batches[0] for run in each.runs[side]], digits=1),
                        spread(each.ratios(side, _first_batch)),
                        spread([run.first for run in each.runs[side]], digits=1),
                        each.memory(side),
                    )
                    if side != WRITING
                    else ("–",) * 4
                ),
            )
        aim = each.workload.aim
        reached = {side: median(each.steady_ratios(side)) for side in (OURS, APPENDED, *LIMITS)}
        verdicts = {side: _verdict(times, aim) for side, times in reached.items()}
        firsts = {side: median(each.ratios(side, _first_batch)) for side in (OURS, APPENDED, STAGES)}
        section.verdict(
            f"{each.workload}, aim {aim:g} times Spark on RocksDB: {reached[OURS]:.2f} through Spark's sink "
            f"({verdicts[OURS]}), {reached[APPENDED]:.2f} with append_to ({verdicts[APPENDED]}); upper "
            f"bounds: {reached[WRITING]:.2f} (panes alone), {reached[STAGES]:.2f} (stages alone)"
        )
        section.verdict(
            f"first batch, aim 1: {firsts[OURS]:.2f} through Spark's sink ({_verdict(firsts[OURS], 1)}), "
            f"{firsts[APPENDED]:.2f} with append_to ({_verdict(firsts[APPENDED], 1)}); stages alone "
            f"{firsts[STAGES]:.2f}"
        )
        waits = {side: 1 / median(each.ratios(side, lambda run: run.first)) for side in (OURS, APPENDED)}
        section.verdict(
            f"first panes, aim at most {FIRST_PANES:g} times the seconds of RocksDB: {waits[OURS]:.2f} "
            f"through Spark's sink ({_verdict(FIRST_PANES, waits[OURS])}), {waits[APPENDED]:.2f} with "
            f"append_to ({_verdict(FIRST_PANES, waits[APPENDED])})"
        )
        plain = {
            side: (median(each.steady_ratios(side, PLAIN)), median(each.ratios(side, _first_batch, PLAIN)))
            for side in (OURS, APPENDED)
        }
        section.verdict(
            f"against Spark on RocksDB in a plain session: {plain[OURS][0]:.2f} through Spark's sink, first "
            f"batch {plain[OURS][1]:.2f}; {plain[APPENDED][0]:.2f} with append_to, first batch "
            f"{plain[APPENDED][1]:.2f}"
        )
    draw(
        PICTURE,
        [f"{each.workload.windows.name}\n{each.workload.keys:,} keys" for each in comparisons],
        {
            **{side: [each.steady(side) for each in comparisons] for side in (OURS, APPENDED)},
            **{
                f"Spark, {side}": [each.steady(side) if side in each.runs else None for each in comparisons]
                for side in STORES
            },
        },
        title="A micro-batch",
    )
    section.picture = f"images/{PICTURE.name}"
    report.show(section)


def _first_batch(run: Run) -> float:
    return run.batches[0]


def _verdict(times: float, aim: float) -> str:
    return "met" if times >= aim else "MISSED"


if __name__ == "__main__":
    workload_number, side_name, folder_name = sys.argv[1:]
    print_result(run_side(ALL[int(workload_number)], side_name, Path(folder_name)))
