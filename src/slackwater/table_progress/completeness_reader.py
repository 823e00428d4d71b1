"""Reads up to which time a table is complete, from what its commits state."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import sqlalchemy as sql

from slackwater.errors import InvalidArgument, MissingExtra, SlackwaterError, UnknownStream
from slackwater.progress.completeness import Completeness
from slackwater.sql.commit_owner import BATCH_JOB
from slackwater.sql.database import database_url, redacted_url, temporary_engine
from slackwater.sql.identifiers import split_table_name
from slackwater.sql.pane_table import LEDGER
from slackwater.sql.staging_table import is_embedded
from slackwater.sql.stated_completeness import stated_completeness
from slackwater.streams.log.catalog import Streams
from slackwater.streams.time import mark_store
from slackwater.tables.append_table import AppendTable
from slackwater.tables.folder_records import folder_completeness
from slackwater.tables.lake_table import LakeTable
from slackwater.tables.manifest import manifest_completeness
from slackwater.tables.object_store import (
    is_object_store,
    local_folder,
    object_store,
    shown_url,
    without_secret,
)
from slackwater.tables.table_address import append_table, lake_table

FORMS: Final = (
    "DATABASE_URL#TABLE, delta:LOCATION, iceberg:CATALOG/NAMESPACE.TABLE, parquet:FOLDER, json:FOLDER, "
    "csv:FOLDER or stream:SCOPE/NAME"
)
"""The forms of an address."""
_DATABASES: Final = ("postgresql", "sqlite", "env", "file")
_FOLDERS: Final = ("parquet", "json", "csv")
_FILES: Final = ("delta", "iceberg", "parquet")


class TableUnreadable(SlackwaterError):
    """The completeness of a table cannot be read: the database, the catalog or the files are not available.

    >>> str(TableUnreadable("delta:/data/totals", "permission denied"))
    'the completeness of delta:/data/totals cannot be read: permission denied; check the address and its \
credentials, and try again'
    """

    def __init__(self, table: str, reason: str) -> None:
        self.table = table
        super().__init__(
            f"the completeness of {table} cannot be read: {reason}; check the address and its credentials, "
            f"and try again"
        )


def complete_until(
    table: str, *, final: bool = False, identity: str | None = None, store: str | None = None
) -> int | None:
    """Read up to which event time a table is complete: all windows that end at or before it are written.

    Every commit of `Panes.upsert_to`, `Panes.merge_into`, `Panes.append_to` and `write_stream` states this
    time, which is the watermark of the query after everything that its last operator still holds. A table or
    a folder that ingestion jobs write states the time before which all units are read. Rows that arrive late
    may still correct the results, as long as the allowed lateness permits; with ``final`` the time is the one
    before which nothing changes any more.

    If several queries write to the table, the time is the earliest of theirs.

    Args:
        table: ``DATABASE_URL#TABLE``, as in ``postgresql://host/shop#totals``, ``sqlite:///shop.db#totals``
            or ``env:SHOP#totals``; ``delta:LOCATION``; ``iceberg:CATALOG/NAMESPACE.TABLE``;
            ``parquet:FOLDER``, or ``parquet:s3://…`` for a table with a manifest; ``json:FOLDER`` and
            ``csv:FOLDER``, which ingestion jobs write; or ``stream:SCOPE/NAME``.
        final: Return the time before which late rows cannot change the results any more. A stream does not
            state it.
        identity: Only consider the query that commits under this identity, see `upsert_to`; that of an
            ingestion job is ``ingest:`` and its name.
        store: The URL of the metadata store, for a stream; the variable ``SLACKWATER_STORE`` if omitted.

    Returns:
        Microseconds since 1970 in UTC, to be compared with `instant` or converted with `to_datetime`;
        `END_OF_TIME` if the query has ended its stream. None if the table does not exist, or states nothing.

    Raises:
        InvalidArgument: The address has another form.
        MissingExtra: The package that reads the table is not installed.
        TableUnreadable: The database, the catalog or the files cannot be reached.

    >>> import slackwater as sw
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     sw.complete_until(f"delta:{folder}/totals") is None
    True
    >>> sw.complete_until("totals")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: table = 'totals': is not the address of a table; write \
DATABASE_URL#TABLE, delta:LOCATION, iceberg:CATALOG/NAMESPACE.TABLE, parquet:FOLDER, json:FOLDER, csv:FOLDER \
or stream:SCOPE/NAME
    """
    found = read_completeness(table, identity=identity, store=store)
    return found.final_until if final else found.complete_until


def read_completeness(table: str, *, identity: str | None = None, store: str | None = None) -> Completeness:
    """Both times of `complete_until`; arguments as there."""
    if str(table).partition(":")[0] == "stream":
        if identity is not None:
            raise InvalidArgument(
                "identity", identity, "has no meaning for a stream, whose marks cover all writers",
                fix="omit it",
            )  # fmt: skip
        return _of_stream(table.removeprefix("stream:"), store)
    known = read_all_completeness(table)
    if identity is not None:
        return known.get(identity, Completeness())
    queries = [stated for owner, stated in known.items() if not is_job(owner)]
    return Completeness(
        Completeness.lowest(known.values()).complete_until, Completeness.lowest(queries).final_until
    )


def is_job(identity: str) -> bool:
    """Whether an identity is that of an ingestion job, which does not state when its rows are final.

    >>> is_job("ingest:orders"), is_job("totals")
    (True, False)
    """
    return identity.startswith("ingest:")


def read_all_completeness(table: str) -> dict[str, Completeness]:
    """What each query states about a table, by the identity under which it commits."""
    kind = str(table).partition(":")[0]
    if kind in _FOLDERS:
        location = table.removeprefix(f"{kind}:")
        folder = _local_folder(table, kind, location)
        with _readable(table):
            jobs = manifest_completeness(location) if kind == "parquet" else None
            if jobs is None:
                jobs = folder_completeness(folder) if folder is not None else {}
        if kind != "parquet":
            return jobs
        merged = {} if folder is None else _in_ledger(table, lake_table(f"parquet:{folder}"))
        return {**jobs, **merged, **_in_ledger(table, append_table(table))}
    if kind in _FILES:
        return _in_ledger(table, lake_table(table))
    if is_database(table):
        address, _, name = table.rpartition("#")
        with _readable(table):
            return _in_database(address, name)
    raise InvalidArgument(
        "table", shown_url(str(table)), "is not the address of a table", fix=f"write {FORMS}"
    )


def _local_folder(table: str, kind: str, location: str) -> Path | None:
    """The folder of a path or a ``file:`` URL; None for a Parquet table on an object store."""
    if location.startswith("file:"):
        return local_folder(object_store(location))
    if location and "://" not in location:
        return Path(location)
    if kind == "parquet" and is_object_store(location):
        return None
    raise InvalidArgument("table", shown_url(table), "is not a folder", fix=f"write {FORMS}")


def redacted_table(table: str) -> str:
    """The address of a table for messages and records: without a password.

    >>> redacted_table("postgresql://app:secret@db.example/shop#totals"), redacted_table("env:SHOP#totals")
    ('postgresql://app@db.example/shop#totals', 'env:SHOP#totals')
    >>> redacted_table("delta:s3://key:secret@lake/totals")
    'delta:s3://…@lake/totals'
    """
    address, hash_, name = str(table).rpartition("#")
    if not is_database(table):
        return without_secret(str(table))
    if address.partition(":")[0] in ("env", "file"):
        return str(table)
    return f"{redacted_url(database_url(address))}{hash_}{name}"


@contextmanager
def _readable(table: str) -> Iterator[None]:
    """Turn what libraries raise if they cannot read into one error."""
    try:
        yield
    except (SlackwaterError, MissingExtra):
        raise
    except Exception as error:  # each library has exceptions of its own
        lines = str(getattr(error, "orig", None) or error).strip().splitlines()
        reason = f"{type(error).__name__}: {lines[0] if lines else ''}".rstrip(": ")
        raise TableUnreadable(redacted_table(table), reason) from error


def is_database(table: str) -> bool:
    """Whether an address is that of a table in a database.

    >>> is_database("sqlite:///shop.db#totals"), is_database("delta:/data/totals")
    (True, False)
    """
    address, hash_, _ = str(table).rpartition("#")
    return bool(hash_) and address.partition(":")[0].partition("+")[0] in _DATABASES


def _in_ledger(table: str, target: LakeTable | AppendTable) -> dict[str, Completeness]:
    with _readable(table):
        ledger = target.ledger()
    # a batch job, which comes once, holds nothing back
    return {name: entry.completeness for name, entry in ledger.items() if entry.query != BATCH_JOB}


def _in_database(address: str, name: str) -> dict[str, Completeness]:
    url = database_url(address)
    schema, table = split_table_name("table", name)
    if is_embedded(url) and not Path(url.database or "").exists():
        return {}  # connecting would create the file
    with temporary_engine(url, read_only=True) as engine, engine.connect() as connection:
        inspector = sql.inspect(connection)
        stated = stated_completeness(connection, name) if inspector.has_table(table, schema=schema) else {}
        jobs = {owner: Completeness(until) for owner, until in stated.items()}
        if not inspector.has_table(LEDGER, schema=schema):
            return jobs
        ledger = sql.Table(LEDGER, sql.MetaData(schema=schema), autoload_with=connection)
        rows = connection.execute(sql.select(ledger).where(ledger.c.target == name)).mappings().all()
    # a batch job, which comes once, holds nothing back; an earlier release did not record the times
    queries = {
        row["identity"]: Completeness(row.get("complete_until"), row.get("final_until"))
        for row in rows
        if row.get("query") != BATCH_JOB
    }
    return {**jobs, **queries}


def _of_stream(name: str, store: str | None) -> Completeness:
    address = store or os.environ.get("SLACKWATER_STORE")
    if not address:
        raise InvalidArgument(
            "store", store, "is required for a stream", fix="pass store=, or set SLACKWATER_STORE"
        )
    with Streams.open(address) as streams:
        try:
            stream = streams.get(name)
        except UnknownStream:
            return Completeness()
        newest = stream.store.read(lambda connection: mark_store.newest_mark(connection, stream.id))
    return Completeness() if newest is None else Completeness(newest[1].lower)
