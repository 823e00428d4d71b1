"""Rows that leave a task as a Parquet file: only the name of the file goes to the JVM.

Rows that go to the JVM are copied several times and written by Spark row by row, which takes longer than all
the rest of a batch with many keys. The columns of an operator can be written as they are.

A file belongs to the table when the driver has committed the batch. Files of tasks that fail are deleted.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import pandas as pd  # type: ignore[import-untyped]  # its stubs are a package of their own
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from slackwater.spark.runtime.query_identity import running_query
from slackwater.spark.runtime.task_output import report_text
from slackwater.spark.wire.payload_reader import PayloadReader
from slackwater.tables.append_table import AppendTable, file_prefix, not_shared
from slackwater.tables.object_store import ObjectStore, local_folder

if TYPE_CHECKING:
    from slackwater.spark.runtime.bucket import BucketOutput

FILE_ROWS: Final = StructType(
    [
        StructField("bucket", IntegerType()),
        StructField("report", StringType()),
        StructField("file", StringType()),
        StructField("rows", LongType()),
        StructField("query", StringType()),
        StructField("run", StringType()),
    ]
)
"""What the driver gets from each bucket: its report, the file of its task with the number of rows that the
bucket has added, and the query and the run of the task."""
_ROW_GROUP: Final = 1 << 17
"""How many rows are collected before they are written."""
_MOST_BYTES: Final = 64 << 20
"""How many bytes are, if the rows are large."""


@dataclass
class FileOutput:
    """One Parquet file for the rows of all buckets of a task; none if there are no rows."""

    table: AppendTable
    reader: PayloadReader
    """Makes rows of the output from those of the operator."""
    columns: pa.Schema
    """The columns of the files."""
    _file: _OpenFile | None = field(default=None, init=False)
    _added: int = field(default=0, init=False)
    """The rows that the current bucket has added."""

    @property
    def schema(self) -> StructType:
        """The names of files."""
        return FILE_ROWS

    def encode(
        self, bucket: int, rows: pl.DataFrame | None, output: BucketOutput | None
    ) -> pd.DataFrame | None:
        """Add a piece of the rows to the file; with the last piece, return the report of the bucket."""
        query = running_query()
        if rows is not None and rows.height:
            if self._file is None:
                self._file = _OpenFile.create(self.table, query.run or query.query, self.columns)
            self._added += self._file.add(self.reader.rows(rows, self.columns))
        if output is None:
            return None
        added, self._added = self._added, 0
        return pd.DataFrame(
            {
                "bucket": pd.Series([bucket], dtype="int32"),
                "report": [report_text(output)],
                "file": [self._file.key if added and self._file is not None else None],
                "rows": pd.Series([added], dtype="int64"),
                "query": [query.query],
                "run": [query.run],
            }
        )

    def close(self) -> None:
        """Complete the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def abort(self) -> None:
        """Delete the file."""
        if self._file is not None:
            self._file.abort()
            self._file = None


@dataclass
class _OpenFile:
    store: ObjectStore
    key: str
    path: Path | None
    """Where it is written; None for an object, which is a file without a name until it is complete."""
    file: BinaryIO
    writer: pq.ParquetWriter
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    """How many rows are waiting."""
    bytes: int = 0

    @classmethod
    def create(cls, table: AppendTable, run: str, columns: pa.Schema) -> _OpenFile:
        task, store = TaskContext.get(), table.store
        partition = 0 if task is None else task.partitionId()
        key = f"{file_prefix(run)}{partition:05d}-{uuid.uuid4().hex}.parquet"
        folder = local_folder(store)
        path = None if folder is None else folder / table.staged(key)
        try:
            file = tempfile.TemporaryFile() if path is None else path.open("xb")  # noqa: SIM115 - closed later
        except FileNotFoundError as error:
            raise not_shared(table.name, "does not exist on the machine of this task") from error
        try:
            writer = pq.ParquetWriter(file, columns)
        except Exception:
            _remove(file, path)
            raise
        return cls(store, key, path, file, writer)

    def add(self, batches: list[pa.RecordBatch]) -> int:
        self.waiting += batches
        added = sum(int(batch.num_rows) for batch in batches)
        self.rows += added
        self.bytes += sum(batch.nbytes for batch in batches)
        if self.rows >= _ROW_GROUP or self.bytes >= _MOST_BYTES:
            self._write()
        return added

    def close(self) -> None:
        self._write()
        self.writer.close()
        self.file.flush()
        if self.path is None:
            self.store.upload(self.file, self.key)
        else:
            os.fsync(self.file.fileno())
        self.file.close()

    def abort(self) -> None:
        with suppress(OSError, pa.ArrowException):  # a full disk, for example
            self.writer.close()
        _remove(self.file, self.path)

    def _write(self) -> None:
        if self.waiting:
            self.writer.write_table(pa.Table.from_batches(self.waiting), row_group_size=_ROW_GROUP)
            self.waiting.clear()
            self.rows = self.bytes = 0


def _remove(file: BinaryIO, path: Path | None) -> None:
    with suppress(OSError):
        file.close()
    if path is not None:
        path.unlink(missing_ok=True)
