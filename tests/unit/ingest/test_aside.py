"""Files of rows that are put aside: many small batches make few row groups, and every row is there once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.ingest.spark.aside import write_parquet


def test_small_batches_share_a_row_group(tmp_path: Path) -> None:
    texts = pa.array([f"{number:01024}" for number in range(1024)])  # a mebibyte
    batches = [pa.record_batch({"text": texts, "batch": pa.array([number] * 1024)}) for number in range(70)]
    write_parquet(tmp_path / "a", batches[0], iter(batches[1:]))
    with pq.ParquetFile(tmp_path / "a") as file:
        groups = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
        assert file.read().equals(pa.Table.from_batches(batches))
    assert groups == [32 * 1024, 32 * 1024, 6 * 1024]
