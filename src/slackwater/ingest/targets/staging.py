"""Folders in which tasks put rows aside until they are swapped in, and what a run that died left in them."""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_SAMPLE: Final = 10_000
"""The rows by which is decided how a column is written."""
_NARROWEST: Final = 32
"""No number in a file takes fewer bits."""
_GROUP: Final = 32 << 20
"""So many bytes of batches become a row group: small ones cost whoever reads them, large ones memory here."""


class Aside:
    """Folders into which nobody looks, below one of each job, of which there is one run at a time.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with Aside().folder(Path(folder), "orders") as aside:
    ...         _ = aside.joinpath("a").write_text("x")
    ...     aside.exists()
    False
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._cleared = False

    @contextmanager
    def folder(self, home: Path, job: str) -> Iterator[Path]:
        """A new folder that is removed at the end; the first one removes what an earlier run left."""
        mine = home / quote(job, safe="")
        with self._turn:
            if not self._cleared:
                shutil.rmtree(mine, ignore_errors=True)
                self._cleared = True
        aside = mine / uuid.uuid4().hex
        aside.mkdir(parents=True)
        try:
            yield aside
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def write_parquet(path: Path, first: pa.RecordBatch, more: Iterator[pa.RecordBatch]) -> None:
    """Batches as one file.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_parquet(Path(folder, "a"), pa.record_batch({"a": [1]}), iter([]))
    ...     pq.read_table(Path(folder, "a")).num_rows
    1
    """
    repeated = [name for name in first.schema.names if _repeats(first.column(name))]
    near = [name for name in first.schema.names if name not in repeated and _near(first.column(name))]
    with pq.ParquetWriter(
        path,
        first.schema,
        compression="zstd",
        use_dictionary=repeated,
        column_encoding=dict.fromkeys(near, "DELTA_BINARY_PACKED"),
    ) as writer:
        for group in _groups(chain([first], more)):
            writer.write_table(pa.Table.from_batches(group))


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    group: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        group.append(batch)
        size += batch.nbytes
        if size >= _GROUP:
            yield group
            group, size = [], 0
    if group:
        yield group


def _repeats(column: pa.Array) -> bool:
    """Whether values come again often enough for a dictionary, which costs more than all else where not."""
    sample = column.slice(0, _SAMPLE)
    return not pa.types.is_nested(sample.type) and 2 * pc.count_distinct(sample).as_py() <= len(sample)


def _near(column: pa.Array) -> bool:
    """Whether values are so near to the ones before that differences take half of the room, or less.

    Numbers that are counted up and times in their order take next to none.

    >>> _near(pa.array([1_000_000, 1_000_001, 999_999])), _near(pa.array([2**62, 0, 2**62]))
    (True, False)
    """
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date32(kind)):
        return False
    sample = column.slice(0, _SAMPLE).drop_null()
    numbers = sample.view(f"int{kind.bit_width}").cast(pa.int64())
    if len(numbers) <= 1:
        return False
    steps = pc.min_max(pc.subtract(numbers[1:], numbers[:-1])).as_py()
    room = (steps["max"] - steps["min"]).bit_length()
    return bool(2 * room <= max(kind.bit_width, _NARROWEST))
