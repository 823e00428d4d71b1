"""The Parquet writer of targets: few row groups, compact columns, and every row exactly once."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis.strategies import booleans, integers, lists, none, one_of

from slackwater.ingest.targets.parquet_writer import write_parquet


def encodings(path: Path) -> dict[str, set[str]]:
    with pq.ParquetFile(path) as file:
        group = file.metadata.row_group(0)
        columns = [group.column(index) for index in range(group.num_columns)]
    return {column.path_in_schema: set(column.encodings) for column in columns}


@given(lists(one_of(none(), integers(-(2**63), 2**63 - 1)), min_size=1), booleans())
def test_all_integers_and_times_round_trip(numbers: list[int | None], sorted_: bool) -> None:
    if sorted_:
        numbers.sort(key=lambda number: (number is None, number or 0))
    batch = pa.record_batch(
        {"number": pa.array(numbers, pa.int64()), "at": pa.array(numbers, pa.timestamp("us"))}
    )
    with TemporaryDirectory() as folder:
        path = Path(folder, "a")
        write_parquet(path, batch, iter([batch]))
        assert pq.read_table(path).equals(pa.Table.from_batches([batch, batch]))


def test_a_column_is_written_as_its_first_rows_suggest(tmp_path: Path) -> None:
    count = 20_000
    far = random.Random(1)
    columns = {
        "counted": pa.array(range(count)),
        "repeated": pa.array([number % 5 for number in range(count)]),
        "far": pa.array([far.randrange(-(2**63), 2**63) for _ in range(count)]),
        "text": pa.array([str(number) for number in range(count)]),
        "nothing": pa.nulls(count, pa.int64()),
    }
    write_parquet(tmp_path / "a", pa.record_batch(columns), iter([]))
    found = encodings(tmp_path / "a")
    assert "DELTA_BINARY_PACKED" in found["counted"]
    assert "RLE_DICTIONARY" in found["repeated"]
    for name in ("far", "text"):
        assert found[name] == {"PLAIN", "RLE"}
    assert pq.read_table(tmp_path / "a").equals(pa.table(columns))


@pytest.mark.search
def test_small_batches_share_a_row_group(tmp_path: Path) -> None:
    texts = pa.array([f"{number:01024}" for number in range(1024)])  # a mebibyte
    batches = [pa.record_batch({"text": texts, "batch": pa.array([number] * 1024)}) for number in range(70)]
    write_parquet(tmp_path / "a", batches[0], iter(batches[1:]))
    with pq.ParquetFile(tmp_path / "a") as file:
        groups = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
        assert file.read().equals(pa.Table.from_batches(batches))
    assert groups == [32 * 1024, 32 * 1024, 6 * 1024]
