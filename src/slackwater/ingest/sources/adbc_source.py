"""Reading a range from SQLite or PostgreSQL: by ADBC, straight into Arrow, in the tasks of Spark.

Every part of the range is a task of its own. The address travels inside the function that reads, where no
plan shows it. A Python data source would do the same, after three more Python processes have planned it,
which is most of the time that a small job takes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows
from sqlalchemy.engine import URL

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
from slackwater.ingest.sources.extracted_rows import Parts, Rows
from slackwater.ingest.sources.queries import Statement, setting
from slackwater.ingest.sources.sqlite_types import found_types, typed
from slackwater.sql.adbc import adbc_connection
from slackwater.sql.database import shown
from slackwater.sql.identifiers import quote_identifier, quote_table

_COPY: Final = {"adbc.postgresql.batch_size_hint_bytes": str(8 << 20)}
"""What PostgreSQL streams by COPY comes in batches so large that handling each costs little."""
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_SECOND: Final = re.compile(r":\d+$")
"""What SQLite puts behind the second name of two that are the same."""
_SQLITE_ROWS: Final = {"adbc.sqlite.query.batch_rows": "65536"}


@dataclass(frozen=True)
class Part:
    """A statement, and the range of which its rows are wanted; without one, all."""

    statement: Statement
    low: int
    high: int


@dataclass(frozen=True)
class Reading:
    """What is read from which database; the address is no part of the representation."""

    address: str = field(repr=False)
    backend: str
    zone: str
    """The zone of times that name none."""
    posix_zone: str
    time_column: str | None
    parts: tuple[Part, ...]
    table: str | None = None
    """The table of which the statements are, if they are of one."""
    on_clocks: bool = False
    """Whether the statements compare texts with what clocks of the zone show."""

    def read(self, part: Part, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows of a part, as ``schema`` says."""
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
        return 1  # the row that shows the types

    def _ask_postgresql(self, cursor: Any, statement: Statement) -> int:
        text, settings = statement.without_parameters()
        self._set(cursor, settings)
        cursor.adbc_statement.set_options(**_COPY)
        cursor.execute(f"{text}\n")  # should its last line be a comment
        return 0

    def schema(self) -> pa.Schema:
        """The columns of what is read; SQLite has to be looked through for them."""
        with adbc_connection(self.address, self.backend) as connection, connection.cursor() as cursor:
            found = self._in_sqlite(cursor) if self.backend == "sqlite" else self._in_postgresql(cursor)
        at = self.time_column
        if at is not None:
            if at not in found:
                known = ", ".join(found)
                raise InvalidArgument("ms.time.column", at, "is not read", fix=f"there are {known}")
            if self.backend == "sqlite" and found[at] not in (pa.string(), pa.null()):
                raise no_times(at, f"there are values of the type {found[at]}")
            found[at] = INSTANTS
        return pa.schema(list(found.items()))

    def refuse_intervals(self, schema: pa.Schema) -> None:
        """Spark has no type for them."""
        for one in schema:
            kind = one.type.value_type if pa.types.is_list(one.type) else one.type
            if pa.types.is_interval(kind):
                raise self._unreadable(one.name, "interval")

    def _in_sqlite(self, cursor: Any) -> dict[str, pa.DataType]:
        declared: dict[str, str] = {}
        if self.table is not None:
            cursor.execute("SELECT name, type FROM pragma_table_info(?)", [self.table.split(".")[-1]])
            declared = dict(cursor.fetchall())
        found = found_types(cursor, (part.statement for part in self.parts), declared)
        self._refuse_repeated(list(found))
        return found

    def _in_postgresql(self, cursor: Any) -> dict[str, pa.DataType]:
        self._set(cursor)
        statement = self.parts[0].statement
        if self.table is not None:  # all of it: a time column that is not there is told by us
            statement = Statement((f"SELECT * FROM {quote_table(self.table)}",))  # noqa: S608 - a quoted name
        text = f"SELECT * FROM ({statement.text(self.backend)}\n) AS sample LIMIT 0"  # noqa: S608 - the job's own query
        cursor.execute(text, list(statement.parameters) or None)
        schema = cursor.fetch_arrow_table().schema
        self._refuse_repeated(schema.names)
        for one in schema:
            if (kind := foreign_type(one)) is not None:
                raise self._unreadable(one.name, _named(cursor, kind))
        return {one.name: plain_field(one) for one in schema}

    def _refuse_repeated(self, names: Sequence[str]) -> None:
        """Columns of one name would be taken for each other."""
        if self.backend == "sqlite":  # where capital letters are the same, and the second is a:1
            known = {name.lower() for name in names}
            bases = [_SECOND.sub("", name) for name in names if _SECOND.search(name) and self.table is None]
            repeated = [name for name in bases if name.lower() in known]
        else:
            repeated = [name for number, name in enumerate(names) if name in names[:number]]
        if repeated:
            fix = f"give one of them another name, as in SELECT a.{repeated[0]} AS a_{repeated[0]}"
            raise InvalidArgument("ms.source.query", repeated[0], "is the name of two columns", fix=fix)

    @property
    def _key(self) -> str:
        return "ms.source.query" if self.table is None else "ms.source.table"

    def _unreadable(self, name: str, kind: str) -> InvalidArgument:
        fix = f"read it by ms.source.query, with CAST({name} AS text) AS {name}"
        return InvalidArgument(
            self._key, name, f"is of the type {kind}, which cannot be read as it is", fix=fix
        )

    def _set(self, cursor: Any, texts: Sequence[str] = ()) -> None:
        """Tell PostgreSQL for this transaction where clocks stand, and the texts that a statement reads."""
        names = ["TimeZone", *(setting(number) for number in range(1, len(texts) + 1))]
        asked = ", ".join(f"set_config('{name}', ${place}, true)" for place, name in enumerate(names, 1))
        cursor.execute(f"SELECT {asked}", [self.posix_zone, *texts])
        cursor.fetchall()

    def _shaped(self, batch: pa.RecordBatch, part: Part, schema: pa.Schema) -> pa.RecordBatch:
        columns = []
        keep = None
        for column, name in zip(batch.columns, schema.names, strict=True):
            column = plain_column(column)
            if not in_calendar(column):
                reason = "holds infinity, or a time beyond the year 294246, which Spark has not"
                fix = f"read it by ms.source.query, with NULLIF({name}, 'infinity') AS {name}"
                raise InvalidArgument(self._key, name, reason, fix=fix)
            if name == self.time_column:
                self._check_clocks(column, name)
                column = instants(column, self.zone, name)
                keep = within(column, part.low, part.high)
            columns.append(column.cast(schema.field(name).type))
        shaped = pa.RecordBatch.from_arrays(columns, schema=schema)
        return shaped if keep is None or pc.all(keep).as_py() else shaped.filter(keep)

    def _check_clocks(self, column: pa.Array, name: str) -> None:
        """Texts of other clocks were compared with the wrong ones: some that are wanted may be missing."""
        if self.on_clocks and self.zone != "UTC" and names_zones(column):
            reason = f"names zones, and {{{{low}}}} and {{{{high}}}} are on the clocks of {self.zone}"
            fix = "read it by ms.source.table, or compare it with times of ms.parameters"
            raise InvalidArgument("ms.time.column", name, reason, fix=fix)


def _named(cursor: Any, kind: str) -> str:
    """The name of a type, of which the driver may know the number only."""
    number = re.fullmatch(r"unnamed<oid:(\d+)>", kind)
    if number is None:
        return kind
    cursor.execute(f"SELECT format_type({number[1]}, NULL)")
    return str(cursor.fetchone()[0])


def _read_ahead(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches, of which the next one is read while something is done with each.

    >>> list(_read_ahead(iter("abcd")))
    ['a', 'b', 'c', 'd']
    """
    with ThreadPoolExecutor(1) as other:
        coming = other.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = other.submit(next, batches, None)
            yield batch


def read_database(spark: SparkSession, reading: Reading) -> Rows:
    """The rows of what ``reading`` says; the columns are looked up now, the rows when a task runs.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> part = Part(Statement(("SELECT 7 AS id, '1970-01-01 00:00:05' AS at",)), 0, 10_000_000)
    >>> reading = Reading(":memory:", "sqlite", "UTC", "UTC", "at", (part,))
    >>> read_database(spark, reading).frame.select("id").collect()
    [Row(id=7)]
    """
    known = reading.schema()
    reading.refuse_intervals(known)
    unknown = [one.name for one in known if pa.types.is_null(one.type)]
    found = pa.schema([(one.name, pa.string() if one.name in unknown else one.type) for one in known])

    def read(number: int) -> Iterator[pa.RecordBatch]:
        return reading.read(reading.parts[number], found)

    rows = Rows.of_parts(spark, Parts(len(reading.parts), found, read))
    if not unknown:
        return rows
    nothing = {name: F.lit(None) for name in unknown}  # nothing but nulls: they go into a column of any type
    return rows.changed(rows.frame.withColumns(nothing))


def check_times(address: str, table: str, column: str) -> None:
    """Refuse a table of SQLite whose times are no texts that begin with a date: no range would have them.

    SQLite puts numbers before texts and bytes behind them, so the smallest value and the largest tell whether
    there are any, and an index on the column finds both at once.

    >>> import sqlite3
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     made = sqlite3.connect(f"{folder}/a.db")
    ...     _ = made.executescript("CREATE TABLE t (at); INSERT INTO t VALUES (1577836800);")
    ...     made.close()
    ...     check_times(f"{folder}/a.db", "t", "at")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: ms.time.column = 'at': holds numbers, not times as text; \
read it by ms.source.query, with datetime(at, 'unixepoch') AS at
    """
    for kind, value in _extremes(address, table, column):
        if kind in ("integer", "real"):
            reason = "holds numbers, not times as text"
            fix = f"read it by ms.source.query, with datetime({column}, 'unixepoch') AS {column}"
            raise InvalidArgument("ms.time.column", column, reason, fix=fix)
        if kind == "blob" or (kind == "text" and not _DATE.match(value)):
            reason = f"holds {'bytes' if kind == 'blob' else repr(value)}, not times like 2020-01-31 10:00:00"
            fix = "let ms.source.query write them so"
            raise InvalidArgument("ms.time.column", column, reason, fix=fix)


def _extremes(address: str, table: str, column: str) -> list[tuple[str, str]]:
    """The type and the text of the smallest value of a column and of the largest; none if it is not there."""
    name, place = quote_identifier(column), quote_table(table)
    shown = "SELECT typeof(value), CASE typeof(value) WHEN 'text' THEN value ELSE '' END"
    asked = [
        f"{shown} FROM (SELECT {choose}({name}) AS value FROM {place})"  # noqa: S608 - quoted names
        for choose in ("min", "max")
    ]
    with adbc_connection(address, "sqlite") as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {place} LIMIT 0")  # noqa: S608 - a quoted name
        if column not in cursor.fetch_arrow_table().column_names:
            return []  # SQLite would take its name for a text
        cursor.execute(" UNION ALL ".join(asked))
        return list(cursor.fetchall())


def check_file(url: URL) -> None:
    """Refuse a file of SQLite that is not there: the driver would make an empty one.

    >>> from slackwater.sql.database import database
    >>> check_file(database("sqlite:////no/such.db"))
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: ms.source.url = 'sqlite:////no/such.db': does not exist; name the \
file that does
    """
    if url.get_backend_name() == "sqlite" and not Path(str(url.database)).is_file():
        raise InvalidArgument("ms.source.url", shown(url), "does not exist", fix="name the file that does")
