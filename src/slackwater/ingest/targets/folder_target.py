"""A folder of Parquet, JSON or CSV files as a target, of which a slice is replaced in one step.

What a reader sees of a unit is a link to a folder that never changes. A slice is replaced by making the
next such folder: files without a row of the slice are linked into it, those with some are written again
without them, the new files join them, and then the link is set anew, which is one step for everybody. A
process that dies before leaves folders that nobody looks into, and the next run removes them.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from slackwater._durable_files import alone, synchronise
from slackwater.errors import InvalidArgument
from slackwater.ingest.sources.arrow_types import INSTANTS, instants, within
from slackwater.ingest.sources.extracted_rows import Rows
from slackwater.ingest.targets.replacement import Approve, Slice, Told, Written, ship
from slackwater.ingest.targets.schema_drift import Columns, Fit, fit
from slackwater.ingest.targets.staging import Aside, write_parquet
from slackwater.time import instant

_VERSIONS: Final = "_versions"
_LOCK: Final = "_lock"
"""Several jobs may write to one folder; they take turns."""
_ASIDE: Final = "_aside"
_COLUMNS: Final = "_columns"
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
_ROWS: Final = "rows"
_LONGEST_TEXT: Final = (1 << 31) - 1
_NOT_IN_PATHS: Final = re.compile(r"""[\x01-\x1f\x7f"#%'*/:=?\\{\[\]^]""")


@dataclass(frozen=True)
class DirectoryTarget:
    """Which folder is written, in which format, and by what its rows are known."""

    folder: Path
    format: str
    time_column: str | None
    watermark_column: str | None
    zone: str
    drift: str = "fail"
    job: str = "job"
    _turn: Any = field(default_factory=threading.Lock, repr=False, compare=False)
    _aside: Aside = field(default_factory=Aside, repr=False, compare=False)

    def replace(self, rows: Rows | None, where: Slice, approve: Approve) -> Written:
        """Put rows, or none, in place of a slice."""
        while True:
            with self._aside.folder(self.folder / _ASIDE, self.job) as aside:
                told: list[Told] = []
                fitting = Fit({})
                if rows is not None:
                    shaped = rows.without(where.unit.as_dict())
                    fitting = fit(shaped.columns, _columns_of(self.folder), self.drift)
                    chosen = shaped.fitted(fitting.whole)
                    told = ship(chosen, self._putting_aside(aside, where), self.watermark_column, self.zone)
                written = Written.of(told, fitting.told)
                approve(written)
                with self._turn, alone(self.folder / _LOCK):
                    known = _columns_of(self.folder)
                    # where nothing was read, the types of its columns may be unknown
                    again = fit(fitting.whole, known, self.drift) if told else Fit(known or {})
                    if not again.cast and not again.missing:
                        self._swap(where, aside, told, again.whole)
                        return written
                # another unit has made columns in the meantime, to which these rows do not fit

    def _swap(self, where: Slice, aside: Path, told: list[Told], columns: Columns) -> None:
        old = self._shown(where)
        home = self.folder / _VERSIONS / hashlib.sha256(where.unit.key.encode()).hexdigest()[:32]
        version = home / uuid.uuid4().hex
        version.mkdir(parents=True)
        _write_columns(version, columns, aside)
        self._keep_others(old, version, where, columns)
        for one in told:
            name = f"{_stem(where)}-{one.place}.{self.format}"
            (aside / name).rename(version / name)
        _write_columns(self.folder, columns, aside)
        _set_link(self._seen(where), version, aside)
        for folder in home.iterdir():  # the one before stays: somebody may still read it
            if folder not in (old, version):
                shutil.rmtree(folder)

    def _shown(self, where: Slice) -> Path | None:
        seen = self._seen(where)
        if not seen.is_symlink():
            return None
        if not seen.exists():
            reason, fix = f"links to {seen.readlink()}, which is gone", "remove it, and set ms.backfill"
            raise InvalidArgument("ms.target.path", str(seen), reason, fix=fix)
        return seen.resolve()

    def _seen(self, where: Slice) -> Path:
        """The folder that a reader sees: named after the unit, as Spark names partitions."""
        parts = [
            f"{_in_path(name)}={_NO_VALUE if value is None else _in_path(value)}"
            for name, value in where.unit.as_dict().items()
        ]
        return self.folder.joinpath(*parts or [_ROWS])

    def _putting_aside(self, aside: Path, where: Slice) -> Any:
        write, suffix, stem = _WRITERS[self.format], self.format, _stem(where)

        def put_aside(batches: Iterator[pa.RecordBatch], place: str) -> tuple[int, bytes | None]:
            first = next(batches, None)
            if first is None:
                return 0, None
            path = aside / f"{stem}-{place}.{suffix}"
            write(path, first, batches)
            synchronise(path)  # here, because it may be another machine than the one that swaps it in
            return path.stat().st_size, None

        return put_aside

    def _keep_others(self, old: Path | None, version: Path, where: Slice, columns: Columns) -> None:
        """The rows that are not of the slice, from what was seen so far, with all columns."""
        if old is None:
            return
        same = _columns_of(old) == dict(columns) or self.format == "json"
        for file in sorted(path for path in old.iterdir() if not path.name.startswith("_")):
            start, low, high = (int(text) for text in file.stem.split("_")[:3])
            apart = (
                start != where.start if self.time_column is None else high <= where.low or low >= where.high
            )
            if apart and same:
                os.link(file, version / file.name)
            elif apart:
                _KEEPERS[self.format](file, version / file.name, None, where, columns)
            elif self.time_column is not None and not (where.low <= low and high <= where.high):
                target = version / f"{start}_{low}_{high}_-{uuid.uuid4().hex}.{self.format}"
                _KEEPERS[self.format](file, target, self.time_column, where, columns)


def _in_path(text: str) -> str:
    """A part of the name of a folder, as Spark writes and reads it."""
    return _NOT_IN_PATHS.sub(lambda found: f"%{ord(found[0]):02X}", text)


def _stem(where: Slice) -> str:
    """Which slice a file was written for, in its name."""
    return f"{where.start}_{where.low}_{where.high}_"


def _columns_of(folder: Path) -> dict[str, pa.DataType] | None:
    """The columns of all units of a target, or of a version of one; None if there are none yet."""
    path = folder / _COLUMNS
    if not path.exists():
        return None
    return {one.name: one.type for one in pa.ipc.read_schema(pa.py_buffer(path.read_bytes()))}


def _write_columns(folder: Path, columns: Columns, aside: Path) -> None:
    if columns and _columns_of(folder) != dict(columns):
        fresh = aside / uuid.uuid4().hex
        fresh.write_bytes(pa.schema(list(columns.items())).serialize().to_pybytes())
        fresh.replace(folder / _COLUMNS)


def _set_link(seen: Path, version: Path, aside: Path) -> None:
    seen.parent.mkdir(parents=True, exist_ok=True)
    for path in [*version.iterdir(), version]:
        synchronise(path)
    fresh = aside / uuid.uuid4().hex
    fresh.symlink_to(os.path.relpath(version, seen.parent), target_is_directory=True)
    fresh.replace(seen)


# ---- the formats


def _write_json(path: Path, first: pa.RecordBatch, more: Iterator[pa.RecordBatch]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for batch in (first, *more):
            for row in batch.to_pylist():
                file.write(json.dumps(row, ensure_ascii=False, default=_text) + "\n")


def _write_csv(path: Path, first: pa.RecordBatch, more: Iterator[pa.RecordBatch]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(first.schema.names)
        for batch in (first, *more):
            for row in batch.to_pylist():
                writer.writerow(["" if value is None else _text(value) for value in row.values()])


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    return json.dumps(value, default=_text) if isinstance(value, (dict, list)) else str(value)


def _keep_parquet(old: Path, new: Path, time_column: str | None, where: Slice, columns: Columns) -> None:
    schema = pa.schema(list(columns.items()))

    def kept(file: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
        for batch in file.iter_batches():
            if time_column is not None:
                times = instants(batch.column(time_column), "UTC", time_column).cast(INSTANTS)
                batch = batch.filter(pa.compute.invert(within(times, where.low, where.high)))
            has = set(batch.schema.names)
            arrays = [
                batch.column(one.name) if one.name in has else pa.nulls(batch.num_rows, one.type)
                for one in schema
            ]
            if batch.num_rows:
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    with pq.ParquetFile(old) as file:
        batches = kept(file)
        write_parquet(new, next(batches, pa.RecordBatch.from_pylist([], schema)), batches)


def _keep_json(old: Path, new: Path, time_column: str | None, where: Slice, columns: Columns) -> None:
    """A column that a line does not have is null already."""
    with old.open(encoding="utf-8") as source, new.open("w", encoding="utf-8") as target:
        for line in source:
            if time_column is None or not where.low <= instant(json.loads(line)[time_column]) < where.high:
                target.write(line)


def _keep_csv(old: Path, new: Path, time_column: str | None, where: Slice, columns: Columns) -> None:
    csv.field_size_limit(_LONGEST_TEXT)
    with (
        old.open(encoding="utf-8", newline="") as source,
        new.open("w", encoding="utf-8", newline="") as target,
    ):
        writer = csv.DictWriter(target, list(columns), restval="")
        writer.writeheader()
        for row in csv.DictReader(source):
            if time_column is None or not where.low <= instant(row[time_column]) < where.high:
                writer.writerow(row)


_WRITERS: Final[dict[str, Callable[[Path, pa.RecordBatch, Iterator[pa.RecordBatch]], None]]] = {
    "parquet": write_parquet,
    "json": _write_json,
    "csv": _write_csv,
}
_KEEPERS: Final[dict[str, Callable[[Path, Path, str | None, Slice, Columns], None]]] = {
    "parquet": _keep_parquet,
    "json": _keep_json,
    "csv": _keep_csv,
}
