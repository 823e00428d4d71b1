"""A table of Delta Lake as a target: a slice is replaced in one commit of its log.

Tasks write files beside the table, which no reader knows, and the driver streams them into the commit that
takes the old rows away. A process that dies before leaves a table as it was; one that dies after, and
before its success is on record, replaces the slice by the same rows once more.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.errors import InvalidArgument
from slackwater.ingest.sources.extracted_rows import Rows
from slackwater.ingest.targets.replacement import Approve, Slice, Written, marks_of, ship
from slackwater.ingest.targets.schema_drift import Columns, fit
from slackwater.ingest.targets.staging import Aside, write_parquet
from slackwater.sql.identifiers import quote_identifier
from slackwater.time import format_instant

_ASIDE: Final = "_slackwater"


@dataclass(frozen=True)
class DeltaTarget:
    """Which table is written, and by what its rows are known."""

    folder: Path
    time_column: str | None
    watermark_column: str | None
    zone: str
    drift: str = "fail"
    job: str = "job"
    _turn: Any = field(default_factory=threading.Lock, repr=False, compare=False)
    _aside: Aside = field(default_factory=Aside, repr=False, compare=False)

    def replace(self, rows: Rows | None, where: Slice, approve: Approve) -> Written:
        """Put rows, or none, in place of a slice."""
        if rows is None:
            return self._emptied(where, approve)
        whole = rows.marked(marks_of(where, self.time_column))
        while True:
            with self._aside.folder(self.folder / _ASIDE, self.job) as aside:
                fitting = fit(whole.columns, self._known(), self.drift)
                columns = fitting.whole
                told = ship(whole.fitted(columns), _putting_aside(aside), self.watermark_column, self.zone)
                if not told:  # the types of its columns may be unknown
                    return self._emptied(where, approve)
                written = Written.of(told, fitting.told)
                approve(written)
                with self._turn:
                    again = fit(columns, self._known(), self.drift)
                    if not again.cast and not again.missing:
                        self._commit([aside / one.place for one in told], columns, where)
                        return written
                # another unit has made the table in the meantime, to which these rows do not fit

    def _emptied(self, where: Slice, approve: Approve) -> Written:
        nothing = Written(0, 0, None)
        approve(nothing)
        with self._turn:
            self._commit([], {}, where)
        return nothing

    def _known(self) -> Columns | None:
        table = _library().DeltaTable
        if not table.is_deltatable(str(self.folder)):
            return None
        return {one.name: one.type for one in _plain(pa.schema(table(str(self.folder)).schema()))}

    def _commit(self, files: list[Path], columns: Columns, where: Slice) -> None:
        library, place = _library(), str(self.folder)
        there = library.DeltaTable.is_deltatable(place)
        known = f"{where.unit} [{format_instant(where.low)}, {format_instant(where.high)})".strip()
        told = library.CommitProperties(
            custom_metadata={"slackwater.job": self.job, "slackwater.slice": known}
        )
        if not columns:
            if there:
                library.DeltaTable(place).delete(self._predicate(where), commit_properties=told)
            return
        schema = pa.schema(list(columns.items()))
        rows = pa.RecordBatchReader.from_batches(schema, _batches(files))
        library.write_deltalake(
            place,
            rows,
            mode="overwrite" if there else "append",
            predicate=self._predicate(where) if there else None,
            schema_mode="merge" if there and self.drift == "add" else None,
            commit_properties=told,
        )

    def _predicate(self, where: Slice) -> str:
        conditions = [
            f"{quote_identifier(name)} IS NULL"
            if value is None
            else f"{quote_identifier(name)} = {_text(value)}"
            for name, value in marks_of(where, self.time_column).items()
        ]
        if self.time_column is not None:
            at = quote_identifier(self.time_column)
            conditions += [f"{at} >= {_text(format_instant(where.low))}"]
            conditions += [f"{at} < {_text(format_instant(where.high))}"]
        return " AND ".join(conditions)


def _text(value: str) -> str:
    doubled = value.replace("'", "''")
    return f"'{doubled}'"


def _plain(schema: pa.Schema) -> pa.Schema:
    """Texts and bytes as Spark has them, whatever width their offsets have."""
    wide = {pa.large_string(): pa.string(), pa.string_view(): pa.string(), pa.large_binary(): pa.binary()}
    return pa.schema([(one.name, wide.get(one.type, one.type)) for one in schema])


def _batches(files: list[Path]) -> Iterator[pa.RecordBatch]:
    for path in files:
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches()


def _putting_aside(aside: Path) -> Any:
    def put_aside(batches: Iterator[pa.RecordBatch], place: str) -> tuple[int, bytes | None]:
        first = next(batches, None)
        if first is None:
            return 0, None
        path = aside / place
        write_parquet(path, first, batches)
        return path.stat().st_size, None

    return put_aside


def _library() -> Any:
    try:
        import deltalake
    except ModuleNotFoundError:
        reason = "needs deltalake, which is not installed"
        raise InvalidArgument("ms.target.type", "delta", reason, fix='install "slackwater[delta]"') from None
    return deltalake
