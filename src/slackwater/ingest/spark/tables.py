"""A table of SQLite or PostgreSQL as a target: a slice is deleted and inserted in one transaction.

Into PostgreSQL every task loads its rows into a table of its own, without a log, and the driver inserts
from those. SQLite is a file beside the driver, so rows travel there and wait in a temporary table. Readers
see the old rows or the new ones. The fields of a unit are columns of the table, as text.
"""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, types
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows
from pyspark.sql.pandas.types import to_arrow_schema

from slackwater.ingest.queries import Parameter, place_holder, quoted, quoted_part, time_value
from slackwater.ingest.spark.arrow import plain_type
from slackwater.ingest.spark.databases import connected
from slackwater.ingest.spark.shipping import Approve, Slice, Told, Written, fitted, ship

PARTITION: Final = "slackwater_partition"
"""The column that tells partitions apart where no time column does."""
_STAGED: Final = "slackwater_ingest_"
_FAMILIES: Final[tuple[tuple[str, str, str], ...]] = (
    (r"u?int\d+", "BIGINT", "BIGINT"),
    (r"float|double|halffloat", "DOUBLE PRECISION", "DOUBLE PRECISION"),
    (r"bool", "BOOLEAN", "BIGINT"),
    (r"binary", "BYTEA", "BLOB"),
    (r"date32.*", "DATE", "TEXT"),
    (r"timestamp\[us, tz=UTC\]", "TIMESTAMPTZ", "TEXT"),
    (r"timestamp\[us\]", "TIMESTAMP", "TEXT"),
    (r"string", "TEXT", "TEXT"),
)


def column_type(kind: pa.DataType, backend: str) -> str:
    """How a database calls a type of Arrow.

    >>> column_type(pa.decimal128(10, 2), "postgresql"), column_type(pa.bool_(), "sqlite")
    ('NUMERIC(10, 2)', 'BIGINT')
    """
    if pa.types.is_decimal(kind):
        return f"NUMERIC({kind.precision}, {kind.scale})" if backend == "postgresql" else "TEXT"
    for pattern, postgresql, sqlite in _FAMILIES:
        if re.fullmatch(pattern, str(kind)):
            return postgresql if backend == "postgresql" else sqlite
    return "TEXT"


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
    _turn: Any = field(default_factory=threading.Lock, repr=False, compare=False)

    def replace(self, frame: DataFrame | None, where: Slice, approve: Approve) -> Written:
        """Put the rows of ``frame``, or none, in place of a slice."""
        if frame is None:
            approve(Written(0, 0, None))
            self._swap([], None, where)
            return Written(0, 0, None)
        whole = self._widened(frame, where)
        schema = pa.schema([(name, plain_type(kind)) for name, kind in _fields(whole.schema)])
        told: list[Told] = []
        try:
            told = ship(whole, self._putting_aside(), self.watermark_column, self.zone)
            written = Written.of(told)
            approve(written)
            self._swap(told, schema, where)
        except BaseException:
            self._discard(told)
            raise
        return written

    def _widened(self, frame: DataFrame, where: Slice) -> DataFrame:
        nested = (types.ArrayType, types.MapType, types.StructType)
        for one in frame.schema.fields:
            if isinstance(one.dataType, nested):
                frame = frame.withColumn(one.name, F.to_json(F.col(f"`{one.name}`")))
        for name, value in self._marks(where).items():
            frame = frame.withColumn(name, F.lit(value).cast("string"))
        return frame

    def _marks(self, where: Slice) -> dict[str, str | None]:
        """The columns by which rows of a unit are known, apart from their time."""
        marks = where.unit.as_dict()
        if self.time_column is None:
            marks[PARTITION] = str(time_value(where.start, "sqlite"))
        return marks

    def _putting_aside(self) -> Any:
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
            with connected(address, backend) as connection, connection.cursor() as cursor:
                cursor.adbc_ingest(_STAGED + place, reader, mode="create")
                connection.commit()
            return size, None

        return put_aside

    # ---- on the driver

    def _swap(self, told: Sequence[Told], schema: pa.Schema | None, where: Slice) -> None:
        with self._turn, connected(self.address, self.backend) as connection, connection.cursor() as cursor:
            if self.backend == "sqlite":
                cursor.execute("PRAGMA busy_timeout = 60000")
                cursor.fetchall()
            known = self._known(cursor)
            if known is None and schema is None:
                return
            columns = [] if schema is None else self._prepared(cursor, schema, known, where)
            staged = self._staged(cursor, told)
            for one in staged if self.key else ():
                self._delete_same(cursor, one)
            if not self.key:
                self._delete_slice(cursor, where)
            names = ", ".join(quoted_part(name) for name in columns)
            for one in staged:
                target = quoted(self.table)
                cursor.execute(f"INSERT INTO {target} ({names}) SELECT {names} FROM {quoted_part(one)}")  # noqa: S608 - quoted names
                cursor.execute(f"DROP TABLE {quoted_part(one)}")
            connection.commit()

    def _known(self, cursor: Any) -> dict[str, str] | None:
        """The columns of the table and their types, as this database calls them; None if it is not there."""
        if self.backend == "sqlite":
            cursor.execute("SELECT name, type FROM pragma_table_info(?)", [self.table.split(".")[-1]])
            return dict(cursor.fetchall()) or None
        cursor.execute(
            "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute "
            "WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            [quoted(self.table)],
        )
        return dict(cursor.fetchall()) or None

    def _prepared(
        self, cursor: Any, schema: pa.Schema, known: dict[str, str] | None, where: Slice
    ) -> list[str]:
        """The columns to write, once the table has them."""
        wanted = {one.name: column_type(one.type, self.backend) for one in schema}
        target = quoted(self.table)
        if known is None:
            columns = ", ".join(f"{quoted_part(name)} {kind}" for name, kind in wanted.items())
            cursor.execute(f"CREATE TABLE {target} ({columns})")
            by = [*self._marks(where), *([self.time_column] if self.time_column else [])]
            if by:
                index = quoted_part(f"{self.table.split('.')[-1][:40]}_by_slice")
                cursor.execute(f"CREATE INDEX {index} ON {target} ({', '.join(map(quoted_part, by))})")
            return list(wanted)
        named = {name: _same_name(kind) for name, kind in known.items()}
        found = {name: _same_name(kind) for name, kind in wanted.items()}
        chosen = fitted(found, named, self.drift)
        for name in chosen:
            if name not in known:
                cursor.execute(f"ALTER TABLE {target} ADD COLUMN {quoted_part(name)} {wanted[name]}")
        return chosen

    def _staged(self, cursor: Any, told: Sequence[Told]) -> list[str]:
        names = [_STAGED + one.place for one in told]
        if self.backend == "sqlite":
            for one, name in zip(told, names, strict=True):
                with pa.ipc.open_stream(one.payload) as stream:
                    rows = pa.Table.from_batches([_as_sqlite(batch) for batch in stream])
                cursor.adbc_ingest(name, rows, mode="create", temporary=True)
        return names

    def _delete_slice(self, cursor: Any, where: Slice) -> None:
        conditions: list[str] = []
        values: list[Parameter] = []

        def condition(column: str, comparison: str, value: Parameter) -> None:
            values.append(value)
            place = place_holder(len(values), self.backend)
            conditions.append(f"{quoted_part(column)} {comparison} {place}")

        for name, value in self._marks(where).items():
            if value is None:
                conditions.append(f"{quoted_part(name)} IS NULL")
            else:
                condition(name, "=", value)
        if self.time_column is not None:
            condition(self.time_column, ">=", _bound(where.low, self.backend))
            condition(self.time_column, "<", _bound(where.high, self.backend))
        cursor.execute(f"DELETE FROM {quoted(self.table)} WHERE {' AND '.join(conditions)}", values)  # noqa: S608 - quoted names

    def _delete_same(self, cursor: Any, staged: str) -> None:
        same = " AND ".join(f"new.{quoted_part(name)} = old.{quoted_part(name)}" for name in self.key)
        target, source = quoted(self.table), quoted_part(staged)
        cursor.execute(
            f"DELETE FROM {target} AS old WHERE EXISTS (SELECT 1 FROM {source} AS new WHERE {same})"  # noqa: S608 - quoted names
        )

    def _discard(self, told: Sequence[Told]) -> None:
        if self.backend == "sqlite" or not told:
            return
        with connected(self.address, self.backend) as connection, connection.cursor() as cursor:
            for one in told:
                cursor.execute(f"DROP TABLE IF EXISTS {quoted_part(_STAGED + one.place)}")
            connection.commit()


def _fields(schema: types.StructType) -> list[tuple[str, pa.DataType]]:
    return [(one.name, one.type) for one in to_arrow_schema(schema, timezone="UTC")]


def _same_name(kind: str) -> str:
    """A type by one name: databases answer with another word than they were told."""
    words = {"timestamp with time zone": "timestamptz", "timestamp without time zone": "timestamp"}
    text = kind.lower().replace(", ", ",")
    text = words.get(text, text)
    return {"integer": "bigint", "int": "bigint", "smallint": "bigint", "real": "double precision"}.get(
        text, text
    )


def _bound(at: int, backend: str) -> Parameter:
    if backend == "postgresql":
        return time_value(at, backend)
    text = str(time_value(at, backend))
    return text if "." in text else f"{text}.000000"


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
