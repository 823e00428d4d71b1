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
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from slackwater.ingest.spark.arrow import INSTANTS, instants, within
from slackwater.ingest.spark.shipping import Approve, Slice, Told, Written, fitted, ship
from slackwater.time import instant

_VERSIONS: Final = "_versions"
_ASIDE: Final = "_aside"
_SCHEMA: Final = "_schema"
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
_ROWS: Final = "rows"


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
    _used: list[Path] = field(default_factory=list, repr=False, compare=False)

    def replace(self, frame: DataFrame | None, where: Slice, approve: Approve) -> Written:
        """Put the rows of ``frame``, or none, in place of a slice."""
        aside = self._aside()
        try:
            told: list[Told] = []
            found: dict[str, str] = {}
            if frame is not None:
                shaped = frame.drop(*where.unit.as_dict())
                found = {one.name: str(one.type) for one in to_arrow_schema(shaped.schema, timezone="UTC")}
                known = _schema_of(self._shown(where))
                names = fitted(found, known, self.drift) if known else list(found)
                found = {name: found[name] for name in names}
                chosen = shaped.select(*(f"`{name}`" for name in names))
                told = ship(chosen, self._putting_aside(aside, where), self.watermark_column, self.zone)
            written = Written.of(told)
            approve(written)
            with self._turn:
                self._swap(where, aside, told, found)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        return written

    def _aside(self) -> Path:
        """A folder into which nobody looks; what a run that died left in such folders is removed."""
        mine = self.folder / _ASIDE / quote(self.job, safe="")
        with self._turn:
            if not self._used:
                shutil.rmtree(mine, ignore_errors=True)
                self._used.append(mine)
        aside = mine / uuid.uuid4().hex
        aside.mkdir(parents=True)
        return aside

    def _swap(self, where: Slice, aside: Path, told: list[Told], found: dict[str, str]) -> None:
        old = self._shown(where)
        home = self.folder / _VERSIONS / hashlib.sha256(where.unit.key.encode()).hexdigest()[:32]
        version = home / uuid.uuid4().hex
        version.mkdir(parents=True)
        self._keep_others(old, version, where)
        for one in told:
            name = f"{_stem(where)}-{one.place}.{self.format}"
            (aside / name).rename(version / name)
        (version / _SCHEMA).write_text(json.dumps({**found, **_schema_of(old)}), encoding="utf-8")
        _set_link(self._seen(where), version)
        for folder in home.iterdir():  # the one before stays: somebody may still read it
            if folder not in (old, version):
                shutil.rmtree(folder)

    def _shown(self, where: Slice) -> Path | None:
        seen = self._seen(where)
        return seen.resolve() if seen.is_symlink() else None

    def _seen(self, where: Slice) -> Path:
        """The folder that a reader sees: named after the unit, as Spark names partitions."""
        parts = [
            f"{quote(name, safe=' ')}={_NO_VALUE if not value else quote(value, safe=' ')}"
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
            return path.stat().st_size, None

        return put_aside

    def _keep_others(self, old: Path | None, version: Path, where: Slice) -> None:
        """The rows that are not of the slice, from what was seen so far."""
        for file in [] if old is None else sorted(old.iterdir()):
            if file.name == _SCHEMA:
                continue
            start, low, high = (int(text) for text in file.stem.split("_")[:3])
            apart = (
                start != where.start if self.time_column is None else high <= where.low or low >= where.high
            )
            if apart:
                os.link(file, version / file.name)
            elif self.time_column is not None and not (where.low <= low and high <= where.high):
                target = version / f"{start}_{low}_{high}_-{uuid.uuid4().hex}.{self.format}"
                _KEEPERS[self.format](file, target, self.time_column, where)


def _stem(where: Slice) -> str:
    """Which slice a file was written for, in its name."""
    return f"{where.start}_{where.low}_{where.high}_"


def _schema_of(version: Path | None) -> dict[str, str]:
    path = None if version is None else version / _SCHEMA
    if path is None or not path.exists():
        return {}
    found: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _set_link(seen: Path, version: Path) -> None:
    seen.parent.mkdir(parents=True, exist_ok=True)
    _synced(version)
    fresh = seen.parent / f"_{uuid.uuid4().hex}"
    fresh.symlink_to(os.path.relpath(version, seen.parent), target_is_directory=True)
    fresh.replace(seen)


def _synced(folder: Path) -> None:
    for path in [*folder.iterdir(), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# ---- the formats


def _write_parquet(path: Path, first: pa.RecordBatch, more: Iterator[pa.RecordBatch]) -> None:
    with pq.ParquetWriter(path, first.schema, compression="zstd") as writer:
        writer.write_batch(first)
        for batch in more:
            writer.write_batch(batch)


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


def _keep_parquet(old: Path, new: Path, time_column: str, where: Slice) -> None:
    with pq.ParquetFile(old) as file, pq.ParquetWriter(new, file.schema_arrow, compression="zstd") as writer:
        for batch in file.iter_batches():
            times = instants(batch.column(time_column), "UTC", time_column).cast(INSTANTS)
            inside = within(times, where.low, where.high)
            writer.write_batch(batch.filter(pa.compute.invert(inside)))


def _keep_json(old: Path, new: Path, time_column: str, where: Slice) -> None:
    with old.open(encoding="utf-8") as source, new.open("w", encoding="utf-8") as target:
        for line in source:
            if not where.low <= instant(json.loads(line)[time_column]) < where.high:
                target.write(line)


def _keep_csv(old: Path, new: Path, time_column: str, where: Slice) -> None:
    with (
        old.open(encoding="utf-8", newline="") as source,
        new.open("w", encoding="utf-8", newline="") as target,
    ):
        rows, writer = csv.reader(source), csv.writer(target)
        names = next(rows)
        writer.writerow(names)
        at = names.index(time_column)
        writer.writerows(row for row in rows if not where.low <= instant(row[at]) < where.high)


_WRITERS: Final[dict[str, Callable[[Path, pa.RecordBatch, Iterator[pa.RecordBatch]], None]]] = {
    "parquet": _write_parquet,
    "json": _write_json,
    "csv": _write_csv,
}
_KEEPERS: Final[dict[str, Callable[[Path, Path, str, Slice], None]]] = {
    "parquet": _keep_parquet,
    "json": _keep_json,
    "csv": _keep_csv,
}
