"""Database source for SQLite and PostgreSQL: Spark tasks read ranges through ADBC, directly into Arrow.

Every part of the range is a task. The address is captured by the function that reads, so no query plan shows
it. A Python data source would start three more Python processes for planning, which is most of the time that
a small job takes.

The driver inspects a SQLite file with Python's own library, which also writes it. A second library in the
process, such as that of ADBC, would release the locks of the first whenever it closed the file.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from slackwater._suggestions import available
from slackwater.errors import InvalidArgument
from slackwater.ingest.sources.arrow_types import (
    INSTANTS,
    foreign_type,
    in_calendar,
    instants,
    names_zones,
    no_times,
    plain_column,
    plain_field,
    within,
)
from slackwater.ingest.sources.extracted_rows import RowPartitions, Rows
from slackwater.ingest.sources.sql_statements import Statement, setting
from slackwater.ingest.sources.sqlite_types import column_names, embedded_connection, found_types, typed
from slackwater.sql.adbc import adbc_connection
from slackwater.sql.identifiers import quote_identifier, quote_table

if TYPE_CHECKING:  # executors import this module, and need no SQLAlchemy
    from sqlalchemy.engine import URL

_COPY: Final = {"adbc.postgresql.batch_size_hint_bytes": str(8 << 20)}
"""The size of the batches that PostgreSQL streams by COPY; large ones have little overhead."""
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_SECOND: Final = re.compile(r":\d+$")
"""The suffix that SQLite adds to the second of two columns with the same name."""
_SQLITE_ROWS: Final = {"adbc.sqlite.query.batch_rows": "65536"}


@dataclass(frozen=True)
class RangeStatement:
    """A statement and the time range of the rows to keep; without a time column, all rows are kept."""

    statement: Statement
    low: int
    high: int


@dataclass(frozen=True)
class DatabaseReading:
    """The statements of a unit and the database they read; the representation does not show the address."""

    address: str = field(repr=False)
    backend: str
    zone: str
    """The timezone of times without one."""
    posix_zone: str
    time_column: str | None
    parts: tuple[RangeStatement, ...]
    table: str | None = None
    """The table that the statements read; None for a query."""
    on_clocks: bool = False
    """Whether the statements compare texts with wall-clock times in the timezone."""

    def read(self, part: RangeStatement, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Read the rows of a statement in the given schema."""
        with adbc_connection(self.address, self.backend) as connection, connection.cursor() as cursor:
            if self.backend == "sqlite":
                ahead = self._ask_sqlite(cursor, part.statement, schema)
            else:
                ahead = self._ask_postgresql(cursor, part.statement)
            for batch in _read_ahead(cursor.fetch_record_batch()):
                yield self._shaped(batch.slice(ahead), part, schema)
                ahead = 0

    def _ask_sqlite(self, cursor: Any, statement: Statement, schema: pa.Schema) -> int:
        kinds = {one.name: one.type for one in schema}
        if self.time_column is not None:
            kinds[self.time_column] = pa.string()
        cursor.adbc_statement.set_options(**_SQLITE_ROWS)
        cursor.execute(typed(statement, kinds), list(statement.parameters) or None)
        return 1  # skip the row that fixes the types

    def _ask_postgresql(self, cursor: Any, statement: Statement) -> int:
        text, settings = statement.without_parameters()
        self._set(cursor, settings)
        cursor.adbc_statement.set_options(**_COPY)
        cursor.execute(f"{text}\n")  # in case its last line is a comment
        return 0

    def schema(self) -> pa.Schema:
        """The schema of the result; for SQLite this scans the rows."""
        if self.backend == "sqlite":
            with embedded_connection(self.address) as connection:
                found = self._in_sqlite(connection)
        else:
            with adbc_connection(self.address, self.backend) as connection, connection.cursor() as cursor:
                found = self._in_postgresql(cursor)
        at = self.time_column
        if at is not None:
            if at not in found:
                fix = available(at, found, lead="use one of ")
                raise InvalidArgument("ms.time.column", at, "column not found", fix=fix)
            if self.backend == "sqlite" and found[at] not in (pa.string(), pa.null()):
                raise no_times(at, f"it has values of type {found[at]}")
            found[at] = INSTANTS
        return pa.schema(list(found.items()))

    def reject_intervals(self, schema: pa.Schema) -> None:
        """Raise `InvalidArgument` if a column is an interval, for which Spark has no type."""
        for one in schema:
            kind = one.type.value_type if pa.types.is_list(one.type) else one.type
            if pa.types.is_interval(kind):
                raise self._unreadable(one.name, "interval")

    def _in_sqlite(self, connection: sqlite3.Connection) -> dict[str, pa.DataType]:
        declared: dict[str, str] = {}
        if self.table is not None:
            columns = "SELECT name, type FROM pragma_table_info(?)"
            declared = dict(connection.execute(columns, [self.table.split(".")[-1]]))
        found = found_types(connection, (part.statement for part in self.parts), declared)
        self._reject_duplicates(list(found))
        return found

    def _in_postgresql(self, cursor: Any) -> dict[str, pa.DataType]:
        self._set(cursor)
        statement = self.parts[0].statement
        if self.table is not None:  # without the range: a missing time column is reported by `schema`
            statement = Statement((f"SELECT * FROM {quote_table(self.table)}",))  # noqa: S608 - a quoted name
        text = f"SELECT * FROM ({statement.text(self.backend)}\n) AS sample LIMIT 0"  # noqa: S608 - the job's own query
        cursor.execute(text, list(statement.parameters) or None)
        schema = cursor.fetch_arrow_table().schema
        self._reject_duplicates(schema.names)
        for one in schema:
            if (kind := foreign_type(one)) is not None:
                raise self._unreadable(one.name, _named(cursor, kind))
        return {one.name: plain_field(one) for one in schema}

    def _reject_duplicates(self, names: Sequence[str]) -> None:
        """Raise `InvalidArgument` if two columns have the same name."""
        if self.backend == "sqlite":  # names are compared without case, and the second `a` is `a:1`
            known = {name.lower() for name in names}
            bases = [_SECOND.sub("", name) for name in names if _SECOND.search(name) and self.table is None]
            repeated = [name for name in bases if name.lower() in known]
        else:
            repeated = [name for number, name in enumerate(names) if name in names[:number]]
        if repeated:
            fix = f"rename one of them, as in SELECT a.{repeated[0]} AS a_{repeated[0]}"
            raise InvalidArgument("ms.source.query", repeated[0], "is the name of two columns", fix=fix)

    @property
    def _key(self) -> str:
        return "ms.source.query" if self.table is None else "ms.source.table"

    def _unreadable(self, name: str, kind: str) -> InvalidArgument:
        fix = f"use ms.source.query with CAST({name} AS text) AS {name}"
        return InvalidArgument(self._key, name, f"has type {kind}, which Spark cannot read", fix=fix)

    def _set(self, cursor: Any, texts: Sequence[str] = ()) -> None:
        """Set the timezone and the text parameters of a statement for this transaction in PostgreSQL."""
        names = ["TimeZone", *(setting(number) for number in range(1, len(texts) + 1))]
        asked = ", ".join(f"set_config('{name}', ${number}, true)" for number, name in enumerate(names, 1))
        cursor.execute(f"SELECT {asked}", [self.posix_zone, *texts])
        cursor.fetchall()

    def _shaped(self, batch: pa.RecordBatch, part: RangeStatement, schema: pa.Schema) -> pa.RecordBatch:
        columns = []
        keep = None
        for column, name in zip(batch.columns, schema.names, strict=True):
            column = plain_column(column)
            if not in_calendar(column):
                reason = "contains infinity or a time after the year 294246, which Spark cannot represent"
                fix = f"use ms.source.query with NULLIF({name}, 'infinity') AS {name}"
                raise InvalidArgument(self._key, name, reason, fix=fix)
            if name == self.time_column:
                self._check_clocks(column, name)
                column = instants(column, self.zone, name)
                keep = within(column, part.low, part.high)
            columns.append(column.cast(schema.field(name).type))
        shaped = pa.RecordBatch.from_arrays(columns, schema=schema)
        return shaped if keep is None or pc.all(keep).as_py() else shaped.filter(keep)

    def _check_clocks(self, column: pa.Array, name: str) -> None:
        """Raise `InvalidArgument` if texts with timezones were compared with local times."""
        if self.on_clocks and self.zone != "UTC" and names_zones(column):
            reason = (
                f"has times with timezones, but {{{{low}}}} and {{{{high}}}} are local times in {self.zone}"
            )
            fix = "use ms.source.table, or compare it with parameters of ms.parameters"
            raise InvalidArgument("ms.time.column", name, reason, fix=fix)


def _named(cursor: Any, kind: str) -> str:
    """The name of a type for which the driver may give only the OID."""
    number = re.fullmatch(r"unnamed<oid:(\d+)>", kind)
    if number is None:
        return kind
    cursor.execute(f"SELECT format_type({number[1]}, NULL)")
    return str(cursor.fetchone()[0])


def _read_ahead(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Prefetch the next batch while the caller processes the current one.

    >>> list(_read_ahead(iter("abcd")))
    ['a', 'b', 'c', 'd']
    """
    with ThreadPoolExecutor(1) as other:
        coming = other.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = other.submit(next, batches, None)
            yield batch


def read_database(spark: SparkSession, reading: DatabaseReading) -> Rows:
    """The rows of a reading; the schema is determined now, the rows are read when a task runs.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> part = RangeStatement(Statement(("SELECT 7 AS id, '1970-01-01 00:00:05' AS at",)), 0, 10_000_000)
    >>> reading = DatabaseReading(":memory:", "sqlite", "UTC", "UTC", "at", (part,))
    >>> read_database(spark, reading).frame.select("id").collect()
    [Row(id=7)]
    """
    known = reading.schema()
    reading.reject_intervals(known)
    unknown = [one.name for one in known if pa.types.is_null(one.type)]
    found = pa.schema([(one.name, pa.string() if one.name in unknown else one.type) for one in known])

    def read(number: int) -> Iterator[pa.RecordBatch]:
        return reading.read(reading.parts[number], found)

    rows = Rows.of_partitions(spark, RowPartitions(len(reading.parts), found, read))
    if not unknown:
        return rows
    nothing = {name: F.lit(None) for name in unknown}  # all null: fits a target column of any type
    return rows.changed(rows.frame.withColumns(nothing))


def check_times(address: str, table: str, column: str) -> None:
    """Raise `InvalidArgument` if the times in a SQLite table are not texts that begin with a date.

    No range would select such rows. SQLite sorts numbers before texts and blobs after them, so the smallest
    and the largest value show whether there are any, and an index on the column finds both quickly.

    >>> import sqlite3
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     made = sqlite3.connect(f"{folder}/a.db")
    ...     _ = made.executescript("CREATE TABLE t (at); INSERT INTO t VALUES (1577836800);")
    ...     made.close()
    ...     check_times(f"{folder}/a.db", "t", "at")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: ms.time.column = 'at': contains numbers, not times as text; \
use ms.source.query with datetime(at, 'unixepoch') AS at
    """
    for kind, value in _extremes(address, table, column):
        if kind in ("integer", "real"):
            reason = "contains numbers, not times as text"
            fix = f"use ms.source.query with datetime({column}, 'unixepoch') AS {column}"
            raise InvalidArgument("ms.time.column", column, reason, fix=fix)
        if kind == "blob" or (kind == "text" and not _DATE.match(value)):
            reason = (
                f"contains {'blobs' if kind == 'blob' else repr(value)}, not times like 2020-01-31 10:00:00"
            )
            fix = "convert them to this format in ms.source.query"
            raise InvalidArgument("ms.time.column", column, reason, fix=fix)


def _extremes(address: str, table: str, column: str) -> list[tuple[str, str]]:
    """The type and the text of the smallest and the largest value of a column; empty without the column."""
    name, source = quote_identifier(column), quote_table(table)
    shown = "SELECT typeof(value), CASE typeof(value) WHEN 'text' THEN value ELSE '' END"
    asked = [
        f"{shown} FROM (SELECT {choose}({name}) AS value FROM {source})"  # noqa: S608 - quoted names
        for choose in ("min", "max")
    ]
    with embedded_connection(address) as connection:
        if column not in column_names(connection.execute(f"SELECT * FROM {source} LIMIT 0")):  # noqa: S608 - a quoted name
            return []  # SQLite would read its name as a text
        return list(connection.execute(" UNION ALL ".join(asked)))


def check_file(url: URL) -> None:
    """Raise `InvalidArgument` if a SQLite file does not exist; the driver would create an empty one.

    >>> from slackwater.sql.database import database_url
    >>> check_file(database_url("sqlite:////no/such.db"))
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: ms.source.url = 'sqlite:////no/such.db': does not exist; name an \
existing file
    """
    if url.get_backend_name() == "sqlite" and not Path(str(url.database)).is_file():
        from slackwater.sql.database import redacted_url

        raise InvalidArgument(
            "ms.source.url", redacted_url(url), "does not exist", fix="name an existing file"
        )
