"""A query with the stages of a window operator that computes nothing: the limit of operators in Python.

Spark reads the rows and sends them to Python, where a task drops them. A stateful task reads and writes a
small value for each bucket, and writes finished panes to a file. So what a batch takes is the cost of the
path: no operator that gets its rows through Spark is faster. Its workers start as early as ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pandas as pd  # type: ignore[import-untyped]  # its stubs are a package of their own
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from slackwater.spark.runtime.worker_start import start_processes
from slackwater.spark.wire.bucket_ids import bucket_ids

_BUCKETS: Final = 2
_SENT: Final = "bucket int, header binary"
_WRITTEN: Final = "bucket int, file string"
_SMALL: Final = ("",)
_STATE: Final = bytes(4096)


def prepare(folder: Path, appended: Path, batches: int) -> None:
    """Store panes that `append_to` has written as Arrow files, as many for each batch as there are tasks."""
    for path in (folder, folder / "out"):
        path.mkdir()
    panes = pq.read_table(sorted(appended.glob("*.parquet")))
    size = -(-panes.num_rows // (_BUCKETS * batches))
    for number in range(_BUCKETS * batches):
        part = panes.slice(number * size, size)
        with pa.ipc.new_file(folder / f"{number}.arrow", part.schema) as file:
            file.write_table(part)


def empty_stages(rows: DataFrame, key: str, value: str, time: str, folder: Path) -> DataStreamWriter:
    """A query that drops all rows, and writes the panes of `prepare`."""
    ids = bucket_ids(_BUCKETS)
    start_processes(rows.sparkSession, None, ids)
    number = sql.pmod(sql.hash(key), sql.lit(_BUCKETS))
    sent = rows.select(key, value, sql.unix_micros(time), number.cast("int")).mapInArrow(_Dropped(ids), _SENT)
    written = sent.groupBy("bucket").transformWithStateInPandas(
        _Writer(folder, ids), outputStructType=_WRITTEN, outputMode="append", timeMode="none"
    )

    def commit(batch: DataFrame, _: int) -> None:
        for row in batch.collect():
            (folder / row.file).rename(folder / "out" / Path(row.file).name)

    return written.writeStream.foreachBatch(commit).outputMode("append")


class _Dropped:
    """Drops the rows of a task, and sends a header to every bucket."""

    def __init__(self, ids: tuple[int, ...]) -> None:
        self._ids = ids

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if sum(batch.num_rows for batch in batches):
            columns = [pa.array(self._ids, pa.int32()), pa.array([b""] * len(self._ids), pa.binary())]
            yield pa.RecordBatch.from_arrays(columns, names=["bucket", "header"])


class _Writer(StatefulProcessor):
    """Writes the finished panes of a bucket to a file."""

    def __init__(self, folder: Path, ids: tuple[int, ...]) -> None:
        self._folder, self._ids = folder, ids

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getMapState("bucket", "name string", "bytes binary")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        for _ in rows:
            pass
        if self._state.containsKey(_SMALL):
            self._state.getValue(_SMALL)
        task = TaskContext.get()
        assert task is not None
        batch = int(task.getLocalProperty("streaming.sql.batchId") or 0)
        number = _BUCKETS * batch + self._ids.index(key[0])
        with pa.memory_map(str(self._folder / f"{number}.arrow")) as file:
            pq.write_table(pa.ipc.open_file(file).read_all(), self._folder / f"{number}.parquet")
        self._state.updateValue(_SMALL, (_STATE,))
        yield pd.DataFrame({"bucket": pd.Series([key[0]], dtype="int32"), "file": [f"{number}.parquet"]})

    def close(self) -> None:
        pass
