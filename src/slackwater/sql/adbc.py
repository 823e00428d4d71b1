"""ADBC connections, which read and load whole Arrow batches without creating Python rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

import pyarrow as pa

from slackwater._extras import naming_extras

if TYPE_CHECKING:  # executors import this module, and need no SQLAlchemy
    from sqlalchemy.engine import URL

_BUSY_TIMEOUT: Final = "PRAGMA busy_timeout = 60000"
"""Without it SQLite fails at once while another process writes."""


def adbc_address(url: URL) -> str:
    """Format an address as an ADBC driver expects it, including the password.

    >>> from slackwater.sql.database import database_url
    >>> adbc_address(database_url("postgresql://app:secret@db.example/shop"))
    'postgresql://app:secret@db.example/shop'
    """
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    # libpq decodes neither a literal space nor a plus sign as a space
    account = ":".join(quote(part, safe="") for part in (url.username, url.password) if part is not None)
    host = f"[{url.host}]" if ":" in (url.host or "") else url.host or ""
    authority = f"{account}@{host}" if account else host
    port = "" if url.port is None else f":{url.port}"
    options = [(name, value) for name, values in url.normalized_query.items() for value in values]
    query = f"?{urlencode(options, quote_via=quote)}" if options else ""
    return f"postgresql://{authority}{port}/{quote(url.database or '', safe='')}{query}"


@contextmanager
def adbc_connection(address: str, backend: str) -> Iterator[Any]:
    """Open an ADBC connection; changes that are not committed are rolled back.

    >>> with adbc_connection(":memory:", "sqlite") as connection, connection.cursor() as cursor:
    ...     _ = cursor.execute("SELECT ?", [7])
    ...     cursor.fetchall()
    [(7,)]
    """
    with naming_extras():
        if backend == "sqlite":
            from adbc_driver_sqlite import dbapi
        else:
            from adbc_driver_postgresql import dbapi  # type: ignore[import-untyped, no-redef]
    with dbapi.connect(address) as connection:
        if backend == "sqlite":
            with connection.cursor() as cursor:
                cursor.execute(_BUSY_TIMEOUT)
                cursor.fetchall()
        yield connection


def create_loaded_table(url: URL, name: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    """Create a table from an Arrow schema and load batches into it, in a transaction of its own.

    This is binary COPY, twice as fast as `load_batches`, but it cannot take part in a transaction of
    SQLAlchemy, and cannot load into columns of types such as ``jsonb`` that Arrow does not have.
    """
    reader = pa.RecordBatchReader.from_batches(schema, batches)
    with (
        adbc_connection(adbc_address(url), url.get_backend_name()) as connection,
        connection.cursor() as cursor,
    ):
        cursor.adbc_ingest(name, reader, mode="create")
        connection.commit()
