"""The Parquet writer of targets: encodings that fit the values of each column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_SAMPLE: Final = 10_000
"""The number of rows that decide the encoding of a column."""
_MIN_BITS: Final = 32
"""The width of the narrowest integers in a Parquet file."""
_ROW_GROUP_BYTES: Final = 32 << 20
"""The size of a row group: small groups are slow to read, large ones take memory here."""


def write_parquet(path: Path, first: pa.RecordBatch, more: Iterator[pa.RecordBatch]) -> None:
    """Write batches to one Parquet file, with an encoding for each column that fits its values.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_parquet(Path(folder, "a"), pa.record_batch({"a": [1]}), iter([]))
    ...     pq.read_table(Path(folder, "a")).num_rows
    1
    """
    names = first.schema.names
    repeated = [name for name in names if _has_repeated_values(first.column(name))]
    close = [name for name in names if name not in repeated and _has_close_values(first.column(name))]
    with pq.ParquetWriter(
        path,
        first.schema,
        compression="zstd",
        use_dictionary=repeated,
        column_encoding=dict.fromkeys(close, "DELTA_BINARY_PACKED"),
    ) as writer:
        for group in _groups(chain([first], more)):
            writer.write_table(pa.Table.from_batches(group))


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    group: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        group.append(batch)
        size += batch.nbytes
        if size >= _ROW_GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _has_repeated_values(column: pa.Array) -> bool:
    """Whether values repeat often enough for a dictionary, which otherwise is the largest cost of writing."""
    sample = column.slice(0, _SAMPLE)
    return not pa.types.is_nested(sample.type) and 2 * pc.count_distinct(sample).as_py() <= len(sample)


def _has_close_values(column: pa.Array) -> bool:
    """Whether the differences between consecutive values take at most half the bits of the values.

    Counters and ordered times take almost none.

    >>> _has_close_values(pa.array([1_000_000, 1_000_001, 999_999]))
    True
    >>> _has_close_values(pa.array([2**62, 0, 2**62]))
    False
    """
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date32(kind)):
        return False
    sample = column.slice(0, _SAMPLE).drop_null()
    numbers = sample.view(f"int{kind.bit_width}").cast(pa.int64())
    if len(numbers) <= 1:
        return False
    steps = pc.min_max(pc.subtract(numbers[1:], numbers[:-1])).as_py()
    bits = (steps["max"] - steps["min"]).bit_length()
    return bool(2 * bits <= max(kind.bit_width, _MIN_BITS))
