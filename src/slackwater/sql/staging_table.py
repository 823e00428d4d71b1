"""Staging tables: where rows are bulk-loaded before a merge moves them into the target table.

In PostgreSQL every task loads its rows over a connection of its own into an unlogged table, which other
connections see; a crash of the server empties it, so a merge compares the number of rows (`check_row_count`).
SQLite has one writer, on the driver: tasks serialize their rows, and the driver loads them into a temporary
table within the transaction of the merge.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import sqlalchemy as sql
from sqlalchemy.engine import URL, Connection

from slackwater.errors import SlackwaterError
from slackwater.sql.identifiers import quote_identifier, quote_table

if TYPE_CHECKING:
    import psycopg


class StagedRowsLost(SlackwaterError):
    """Staged rows disappeared before the merge, as after a crash of the database server."""

    def __init__(self, table: str, expected: int, found: int) -> None:
        self.table = table
        self.expected = expected
        self.found = found
        super().__init__(
            f"only {found} of {expected} rows staged for {table} are left; the database server may have "
            f"crashed since. Nothing was merged; run it again"
        )


def is_embedded(url: URL) -> bool:
    """Whether tasks cannot write to the database, so that the driver loads the rows: true for SQLite.

    >>> from sqlalchemy.engine import make_url
    >>> is_embedded(make_url("sqlite:////data/a.db"))
    True
    """
    return url.get_backend_name() == "sqlite"


def staging_table(
    url: URL, name: str, columns: Sequence[sql.Column[Any]], *, schema: str | None = None
) -> sql.Table:
    """Describe a staging table: temporary in SQLite, unlogged in PostgreSQL.

    >>> from sqlalchemy.engine import make_url
    >>> table = staging_table(make_url("sqlite:////data/a.db"), "staged", [sql.Column("id", sql.BigInteger)])
    >>> print(" ".join(str(sql.schema.CreateTable(table)).split()))
    CREATE TEMPORARY TABLE staged ( id BIGINT )
    """
    embedded = is_embedded(url)
    return sql.Table(
        name,
        sql.MetaData(schema=None if embedded else schema),
        *columns,
        prefixes=["TEMPORARY" if embedded else "UNLOGGED"],
    )


def load_batches(connection: Connection, table: sql.Table, batches: Iterable[pa.RecordBatch]) -> None:
    """Bulk-load batches into a staging table, by column name.

    >>> engine = sql.create_engine("sqlite://")
    >>> table = sql.Table("staged", sql.MetaData(), sql.Column("id", sql.BigInteger))
    >>> with engine.begin() as connection:
    ...     table.create(connection)
    ...     load_batches(connection, table, [pa.record_batch({"id": [1, 2]})])
    ...     connection.execute(sql.select(table)).all()
    [(1,), (2,)]
    """
    iterator = iter(batches)
    first = next(iterator, None)
    if first is None:
        return
    name = (
        quote_identifier(table.name) if table.schema is None else quote_table(f"{table.schema}.{table.name}")
    )
    columns = ", ".join(map(quote_identifier, first.schema.names))
    if connection.dialect.name == "sqlite":
        values = ", ".join("?" * first.num_columns)
        statement = f"INSERT INTO {name} ({columns}) VALUES ({values})"  # noqa: S608 - quoted identifiers
        for batch in chain([first], iterator):
            rows = zip(*(column.to_pylist() for column in as_sqlite(batch).columns), strict=True)
            if batch.num_rows:
                connection.exec_driver_sql(statement, list(rows))
        return
    cursor: psycopg.Cursor[tuple[Any, ...]] = connection.connection.cursor()  # type: ignore[assignment]
    with cursor, cursor.copy(f"COPY {name} ({columns}) FROM STDIN (FORMAT csv)".encode()) as copy:
        for batch in chain([first], iterator):
            copy.write(_as_csv(batch))


def check_row_count(
    connection: Connection,
    table: str,
    rows: sql.FromClause,
    condition: sql.ColumnElement[bool],
    expected: int,
) -> None:
    """Raise `StagedRowsLost` unless as many rows are staged as the tasks reported.

    >>> engine = sql.create_engine("sqlite://")
    >>> with engine.begin() as connection:
    ...     check_row_count(connection, "totals", sql.select(sql.literal(1)).subquery(), sql.true(), 2)
    Traceback (most recent call last):
    slackwater.sql.staging_table.StagedRowsLost: only 1 of 2 rows staged for totals are left; the database \
server may have crashed since. Nothing was merged; run it again
    """
    count = sql.select(sql.func.count()).select_from(rows).where(condition)
    found = connection.execute(count).scalar_one()
    if found != expected:
        raise StagedRowsLost(table, expected, found)


def drop_staging_tables(connection: Connection, prefix: str) -> None:
    """Drop the tables of PostgreSQL whose names start with ``prefix``; SQLite's are temporary.

    >>> with sql.create_engine("sqlite://").begin() as connection:
    ...     drop_staging_tables(connection, "slackwater_ingest_")
    """
    if connection.dialect.name == "sqlite":
        return
    stale = sql.text(
        "SELECT c.oid::regclass::text FROM pg_class AS c WHERE c.relkind = 'r' "
        "AND starts_with(c.relname::text, :prefix) AND pg_table_is_visible(c.oid)"
    )
    for name in connection.execute(stale, {"prefix": prefix}).scalars().all():
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {name}")


# ---- rows that travel to the driver


def serialize_batches(batches: Iterable[pa.RecordBatch]) -> bytes | None:
    """Serialize batches as one compressed Arrow IPC stream; None if there are none.

    >>> payload = serialize_batches([pa.record_batch({"id": [1, 2]})])
    >>> [batch.num_rows for batch in deserialize_batches(payload)]
    [2]
    """
    iterator = iter(batches)
    first = next(iterator, None)
    if first is None:
        return None
    output = io.BytesIO()
    with pa.ipc.new_stream(output, first.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        for batch in chain([first], iterator):
            stream.write_batch(batch)
    return output.getvalue()


def deserialize_batches(payload: bytes | None) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an Arrow IPC stream.

    >>> list(deserialize_batches(None))
    []
    """
    if payload is not None:
        with pa.ipc.open_stream(payload) as stream:
            yield from stream


# ---- values as each database takes them


def as_sqlite(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert values to the types that SQLite stores.

    Times, dates and decimals become text (times of one length in UTC, so that they compare), booleans
    become integers.

    >>> moment = pa.array([0], pa.timestamp("us", "Europe/Berlin"))
    >>> as_sqlite(pa.record_batch({"at": moment, "paid": [True]})).to_pylist()
    [{'at': '1970-01-01 00:00:00.000000', 'paid': 1}]
    """
    columns = [_sqlite_column(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _sqlite_column(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_timestamp(kind):
        in_utc = pa.timestamp("us", "UTC" if kind.tz else None)
        return pc.strftime(column.cast(in_utc), format="%Y-%m-%d %H:%M:%S")
    if pa.types.is_boolean(kind):
        return column.cast(pa.int64())
    if pa.types.is_date(kind):
        return column.cast(pa.string())
    return _decimal_text(column) if pa.types.is_decimal(kind) else column


def _as_csv(batch: pa.RecordBatch) -> bytes:
    """Format a batch as CSV for COPY: null is nothing at all, and every other value is quoted."""
    columns = [_csv_column(column) for column in batch.columns]
    table = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
    output = pa.BufferOutputStream()
    options = arrow_csv.WriteOptions(include_header=False, quoting_style="all_valid")
    arrow_csv.write_csv(table, output, options)
    return bytes(output.getvalue().to_pybytes())


def _csv_column(column: pa.Array) -> pa.Array:
    """Convert the types that Arrow cannot write as CSV into text that PostgreSQL parses."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.tz:
        return column.cast(pa.timestamp(kind.unit, "UTC"))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        encoded = pl.Series(pl.from_arrow(column)).bin.encode("hex")
        return ("\\x" + encoded).to_arrow(compat_level=pl.CompatLevel.oldest())
    return _decimal_text(column) if pa.types.is_decimal(kind) else column


def _decimal_text(column: pa.Array) -> pa.Array:
    """Format decimals with all their digits; Arrow would write small ones in scientific notation."""
    text = pl.Series(pl.from_arrow(column)).cast(pl.String)
    return text.to_arrow(compat_level=pl.CompatLevel.oldest())
