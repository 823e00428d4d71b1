"""Copies of Parquet files without the rows of a slice, and with all columns of a target."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.ingest.sources.arrow_types import INSTANTS, instants, within
from slackwater.ingest.sources.spark_columns import Columns
from slackwater.ingest.targets.parquet_writer import write_parquet
from slackwater.ingest.targets.replacement import Slice


def copy_parquet(old: Path, new: Path, time_column: str | None, slice_: Slice, columns: Columns) -> None:
    """Copy a file to a path; a column that it does not have becomes null.

    Args:
        old: The file.
        new: The path of the copy.
        time_column: Leave out the rows of the slice by this column; None copies all rows.
        slice_: The slice.
        columns: The columns of the copy.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.ingest.units import WHOLE
    >>> with TemporaryDirectory() as folder:
    ...     old, new = Path(folder, "old"), Path(folder, "new")
    ...     pq.write_table(pa.table({"at": pa.array([1, 5], pa.timestamp("us", "UTC"))}), old)
    ...     columns = {"at": pa.timestamp("us", "UTC"), "id": pa.int64()}
    ...     copy_parquet(old, new, "at", Slice(WHOLE, 0, 3, 9), columns)
    ...     pq.read_table(new)["id"].to_pylist()
    [None]
    """
    schema = pa.schema(list(columns.items()))

    def kept(file: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
        for batch in file.iter_batches():
            if time_column is not None:
                times = instants(batch.column(time_column), "UTC", time_column).cast(INSTANTS)
                batch = batch.filter(pa.compute.invert(within(times, slice_.low, slice_.high)))
            present = set(batch.schema.names)
            arrays = [
                batch.column(field.name) if field.name in present else pa.nulls(batch.num_rows, field.type)
                for field in schema
            ]
            if batch.num_rows:
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    with pq.ParquetFile(old) as file:
        batches = kept(file)
        write_parquet(new, next(batches, pa.RecordBatch.from_pylist([], schema)), batches)
