"""A table of SQLite or PostgreSQL as a target: a slice is deleted and inserted in one transaction.

Into PostgreSQL every task loads its rows into a table of its own, and the driver inserts from those; the
next run of the job drops what one that died has left. SQLite is a file beside the driver, so rows travel
there and wait in a temporary table. Readers see the old rows or the new ones. The fields of a unit are
columns of the table, as text.
"""

from __future__ import annotations

import hashlib
import io
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.types import is_nested
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from slackwater.errors import InvalidArgument
from slackwater.ingest.axis.timezones import zone
from slackwater.ingest.sources.extracted_rows import Rows
from slackwater.ingest.sources.queries import place_holder, posix_zone, time_value
from slackwater.ingest.targets.column_types import column_type, is_foreign, taken
from slackwater.ingest.targets.replacement import Approve, Slice, Told, Written, marks_of, ship
from slackwater.ingest.targets.schema_drift import Columns, column, fit
from slackwater.sql.adbc import adbc_connection
from slackwater.sql.identifiers import quote_identifier as quoted_part
from slackwater.sql.identifiers import quote_table as quoted
from slackwater.time import format_instant

_STAGED: Final = "slackwater_ingest_"
_ROW: Final = "slackwater_row"
_TO_THE_MICROSECOND: Final = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


@dataclass(frozen=True)
class TableTarget:
    """Which table is written, and by what its rows are known; without the address when it is shown."""

    address: str = field(repr=False)
    backend: str
    table: str
    time_column: str | None
    watermark_column: str | None
    zone: str
    drift: str = "fail"
    key: tuple[str, ...] = ()
    """Rows with the same key are replaced, instead of those of the slice."""
    job: str = "job"
    _turn: Any = field(default_factory=threading.Lock, repr=False, compare=False)
    _used: list[str] = field(default_factory=list, repr=False, compare=False)

    def replace(self, rows: Rows | None, where: Slice, approve: Approve) -> Written:
        """Put rows, or none, in place of a slice."""
        self._clear()
        if rows is None:
            return self._emptied(where, approve)
        whole = _flat(rows).marked(marks_of(where, self.time_column))
        absent = [name for name in self.key if name not in whole.columns]
        if absent:
            known = ", ".join(whole.columns)
            raise InvalidArgument("ms.target.key", absent[0], "is not read", fix=f"there are {known}")
        while True:
            found = whole.columns
            fitting = fit(found, self._known_for(found), self.drift)
            columns = fitting.written
            staged = f"{self._staged_by}{uuid.uuid4().hex[:8]}_"
            try:
                putting = self._putting_aside(staged)
                told = ship(whole.fitted(columns), putting, self.watermark_column, self.zone)
                if not told:  # the types of its columns may be unknown
                    return self._emptied(where, approve)
                written = Written.of(told, fitting.told)
                approve(written)
                if self._swap([(staged + one.place[:16], one) for one in told], columns, where):
                    return written
                # another unit has made the table in the meantime, to which these rows do not fit
            finally:
                self._drop(staged)

    def _emptied(self, where: Slice, approve: Approve) -> Written:
        nothing = Written(0, 0, None)
        approve(nothing)
        self._swap([], {}, where)
        return nothing

    # ---- tables of tasks

    @property
    def _staged_by(self) -> str:
        """How the tables begin in which this job puts rows aside: PostgreSQL has 63 letters for a name."""
        told = f"{self.job}\0{self.table}".encode()
        return f"{_STAGED}{hashlib.sha256(told).hexdigest()[:12]}_"

    def _clear(self) -> None:
        """Drop the tables that a run of this job left when it died; there is one run of a job at a time."""
        with self._turn:
            if not self._used:
                self._drop(self._staged_by)
                self._used.append(self._staged_by)

    def _drop(self, beginning: str) -> None:
        if self.backend == "sqlite":
            return
        with adbc_connection(self.address, self.backend) as connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT c.oid::regclass::text FROM pg_class AS c WHERE c.relkind = 'r' "
                "AND starts_with(c.relname::text, $1) AND pg_table_is_visible(c.oid)",
                [beginning],
            )
            for (name,) in cursor.fetchall():
                cursor.execute(f"DROP TABLE IF EXISTS {name}")
            connection.commit()

    def _putting_aside(self, staged: str) -> Any:
        address, backend = self.address, self.backend

        def put_aside(batches: Iterator[pa.RecordBatch], place: str) -> tuple[int, bytes | None]:
            first = next(batches, None)
            if first is None:
                return 0, None
            size = 0

            def sized() -> Iterator[pa.RecordBatch]:
                nonlocal size
                for batch in chain([first], batches):
                    size += batch.nbytes
                    yield batch

            if backend == "sqlite":
                return _packed(sized(), first.schema)
            reader = pa.RecordBatchReader.from_batches(first.schema, sized())
            with adbc_connection(address, backend) as connection, connection.cursor() as cursor:
                cursor.adbc_ingest(staged + place[:16], reader, mode="create")
                connection.commit()
            return size, None

        return put_aside

    # ---- on the driver

    def _swap(self, told: Sequence[tuple[str, Told]], columns: Columns, where: Slice) -> bool:
        """Put what tasks have put aside in place of a slice; False if it does not fit any more."""
        with (
            self._turn,
            adbc_connection(self.address, self.backend) as connection,
            connection.cursor() as cursor,
        ):
            if self.backend == "postgresql":  # where times without a zone are on the clocks of the job
                cursor.execute("SELECT set_config('TimeZone', $1, true)", [posix_zone(zone(self.zone))])
                cursor.fetchall()
            declared = self._declared(cursor)
            if not declared and not columns:
                return True
            if columns and declared:
                known = {
                    name: taken(kind, columns.get(name), self.backend) for name, kind in declared.items()
                }
                again = fit(columns, known, self.drift)
                if again.cast:
                    return False
                for name in again.new:
                    self._add(cursor, name, columns[name])
            elif columns:
                self._create(cursor, columns, where)
            staged = self._staged(cursor, told)
            if self.key:
                self._merge(cursor, staged, columns, declared)
            else:
                self._delete_slice(cursor, where)
                self._insert(cursor, staged, columns, declared)
            for name in staged:
                cursor.execute(f"DROP TABLE {quoted_part(name)}")
            connection.commit()
            return True

    def _known_for(self, found: Columns) -> Columns | None:
        """The columns of the table; one that can hold what was found has the type of that."""
        with adbc_connection(self.address, self.backend) as connection, connection.cursor() as cursor:
            declared = self._declared(cursor)
        return {name: taken(kind, found.get(name), self.backend) for name, kind in declared.items()} or None

    def _declared(self, cursor: Any) -> dict[str, str]:
        """The columns of the table and their types, as this database calls them."""
        if self.backend == "sqlite":
            cursor.execute("SELECT name, type FROM pragma_table_info(?)", [self.table.split(".")[-1]])
            return dict(cursor.fetchall())
        cursor.execute(
            "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute "
            "WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped AND attgenerated = '' "
            "ORDER BY attnum",
            [quoted(self.table)],
        )
        return dict(cursor.fetchall())

    def _create(self, cursor: Any, columns: Columns, where: Slice) -> None:
        target = quoted(self.table)
        made = ", ".join(
            f"{quoted_part(name)} {column_type(kind, self.backend)}" for name, kind in columns.items()
        )
        cursor.execute(f"CREATE TABLE {target} ({made})")
        times = [self.time_column] if self.time_column else []
        by = list(self.key) or [*marks_of(where, self.time_column), *times]
        index = quoted_part(f"{self.table.split('.')[-1][:40]}_by_{'key' if self.key else 'slice'}")
        cursor.execute(f"CREATE INDEX {index} ON {target} ({', '.join(map(quoted_part, by))})")

    def _add(self, cursor: Any, name: str, kind: pa.DataType) -> None:
        added = f"{quoted_part(name)} {column_type(kind, self.backend)}"
        cursor.execute(f"ALTER TABLE {quoted(self.table)} ADD COLUMN {added}")

    def _staged(self, cursor: Any, told: Sequence[tuple[str, Told]]) -> list[str]:
        if self.backend == "sqlite":
            for name, one in told:
                with pa.ipc.open_stream(one.payload) as stream:
                    rows = pa.Table.from_batches([_as_sqlite(batch) for batch in stream])
                cursor.adbc_ingest(name, rows, mode="create", temporary=True)
        return [name for name, _ in told]

    def _insert(
        self, cursor: Any, staged: Sequence[str], columns: Columns, declared: Mapping[str, str]
    ) -> None:
        names = ", ".join(map(quoted_part, columns))
        values = self._values(columns, declared)
        for one in staged:
            cursor.execute(
                f"INSERT INTO {quoted(self.table)} ({names}) SELECT {values} FROM {quoted_part(one)} AS new"  # noqa: S608 - quoted names
            )

    def _values(self, columns: Columns, declared: Mapping[str, str]) -> str:
        """The columns of what was put aside, with a cast where a type is one that only this database has."""
        casts = {
            name: kind for name, kind in declared.items() if self.backend == "postgresql" and is_foreign(kind)
        }
        return ", ".join(
            f"CAST(new.{quoted_part(name)} AS {casts[name]})" if name in casts else f"new.{quoted_part(name)}"
            for name in columns
        )

    def _merge(
        self, cursor: Any, staged: Sequence[str], columns: Columns, declared: Mapping[str, str]
    ) -> None:
        """Put the newest rows in place of those with the same key; newer ones that are there stay."""
        if not staged:
            return
        keys = ", ".join(map(quoted_part, self.key))
        rows = " UNION ALL ".join(f"SELECT * FROM {quoted_part(one)}" for one in staged)  # noqa: S608 - quoted names
        self._check_keys(cursor, rows, keys)
        target, names = quoted(self.table), ", ".join(map(quoted_part, columns))
        same = " AND ".join(f"new.{quoted_part(name)} = old.{quoted_part(name)}" for name in self.key)
        at = None if self.time_column is None else quoted_part(self.time_column)
        newer = "" if at is None else f" AND (old.{at} IS NULL OR new.{at} >= old.{at})"
        cursor.execute(
            f"DELETE FROM {target} AS old WHERE EXISTS (SELECT 1 FROM ({rows}) AS new WHERE {same}{newer})"  # noqa: S608 - quoted names
        )
        order = "" if at is None else f" ORDER BY {at} DESC"
        row = quoted_part(_ROW)
        ranked = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY {keys}{order}) AS {row} FROM ({rows}) AS rows"  # noqa: S608 - quoted names
        cursor.execute(
            f"INSERT INTO {target} ({names}) SELECT {self._values(columns, declared)} FROM ({ranked}) AS new "  # noqa: S608 - quoted names
            f"WHERE new.{row} = 1 AND NOT EXISTS (SELECT 1 FROM {target} AS old WHERE {same})"
        )

    def _check_keys(self, cursor: Any, rows: str, keys: str) -> None:
        """Refuse rows that no key tells apart."""
        absent = " OR ".join(f"{quoted_part(name)} IS NULL" for name in self.key)
        cursor.execute(f"SELECT 1 FROM ({rows}) AS rows WHERE {absent} LIMIT 1")  # noqa: S608 - quoted names
        if cursor.fetchall():
            fix = "merge by columns that are never null"
            raise InvalidArgument("ms.target.key", list(self.key), "is null in some rows", fix=fix)
        if self.time_column is None:
            cursor.execute(f"SELECT 1 FROM ({rows}) AS rows GROUP BY {keys} HAVING COUNT(*) > 1 LIMIT 1")  # noqa: S608 - quoted names
            if cursor.fetchall():
                fix = "merge by more columns, or set ms.time.column, so that the newest row stays"
                raise InvalidArgument("ms.target.key", list(self.key), "several rows have the same", fix=fix)

    def _delete_slice(self, cursor: Any, where: Slice) -> None:
        conditions: list[str] = []
        values: list[str] = []

        def condition(column: str, comparison: str, value: str, wanted: str = "{}") -> None:
            values.append(value)
            place = wanted.format(place_holder(len(values), self.backend))
            conditions.append(f"{quoted_part(column)} {comparison} {place}")

        for name, value in marks_of(where, self.time_column).items():
            if value is None:
                conditions.append(f"{quoted_part(name)} IS NULL")
            else:
                condition(name, "=", value)
        if self.time_column is not None:
            for comparison, at in ((">=", where.low), ("<", where.high)):
                condition(self.time_column, comparison, *_bound(at, self.backend))
        cursor.execute(f"DELETE FROM {quoted(self.table)} WHERE {' AND '.join(conditions)}", values)  # noqa: S608 - quoted names


def _flat(rows: Rows) -> Rows:
    """Nested columns as JSON."""
    nested = {
        name: F.to_json(column(name), _TO_THE_MICROSECOND)
        for name, kind in rows.columns.items()
        if is_nested(kind)
    }
    return rows.changed(rows.frame.withColumns(nested)) if nested else rows


def _bound(at: int, backend: str) -> tuple[str, str]:
    """A time as text, and what makes a time of it. With a time itself, the driver sets all clocks to UTC."""
    if backend == "postgresql":
        return format_instant(at), "CAST({} AS TIMESTAMPTZ)"
    text = str(time_value(at, backend))
    return text if "." in text else f"{text}.000000", "{}"


def _packed(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> tuple[int, bytes]:
    output = io.BytesIO()
    with pa.ipc.new_stream(output, schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return output.tell(), output.getvalue()


def _as_sqlite(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns as SQLite keeps them: times as text of one length, so that they compare."""

    def kept(column: pa.Array) -> pa.Array:
        kind = column.type
        if pa.types.is_timestamp(kind):
            return pc.strftime(column, format="%Y-%m-%d %H:%M:%S")
        if pa.types.is_boolean(kind):
            return column.cast(pa.int64())
        if pa.types.is_date(kind) or pa.types.is_decimal(kind):
            return column.cast(pa.string())
        return column

    return pa.RecordBatch.from_arrays([kept(column) for column in batch.columns], names=batch.schema.names)
