"""The addresses of tables of files that panes are merged into, or appended to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from slackwater.errors import InvalidArgument
from slackwater.tables.append_table import AppendTable
from slackwater.tables.appended_delta import AppendedDelta
from slackwater.tables.appended_folder import AppendedFolder
from slackwater.tables.delta_table import DeltaLakeTable
from slackwater.tables.iceberg_table import IcebergTable
from slackwater.tables.lake_table import LakeTable
from slackwater.tables.object_store import object_store, shown_url
from slackwater.tables.parquet_table import ParquetTable

_SCHEME: Final = re.compile(r"\A[A-Za-z][A-Za-z0-9+.-]+:")


def append_table(address: str) -> AppendTable:
    """The table that files are appended to, at an address.

    Args:
        address: ``delta:LOCATION`` or ``parquet:LOCATION``, each with a path or a URL.

    Raises:
        InvalidArgument: The address has another form.

    >>> append_table("parquet:s3://lake/panes").name
    'parquet:s3://lake/panes'
    >>> append_table("/data/panes")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: table = '/data/panes': is not the address of a table that files can \
be appended to; write "delta:LOCATION" or "parquet:LOCATION", with a path or a URL
    """
    kind, rest = _parts(address)
    if kind not in ("delta", "parquet") or not rest:
        raise InvalidArgument(
            "table", shown_url(str(address)), "is not the address of a table that files can be appended to",
            fix='write "delta:LOCATION" or "parquet:LOCATION", with a path or a URL',
        )  # fmt: skip
    if _SCHEME.match(rest):
        object_store(rest)  # raises if it is not a URL of an object store, or has credentials
    else:
        rest = str(Path(rest).absolute())  # tasks have other working folders
    return AppendedDelta(DeltaLakeTable(rest)) if kind == "delta" else AppendedFolder(rest)


def _parts(address: str) -> tuple[str, str]:
    """The kind of an address and the rest of it; the rest is empty if it is neither a path nor a URL.

    >>> _parts("parquet: s3://lake/panes"), _parts("parquet://lake/panes")
    (('parquet', 's3://lake/panes'), ('parquet', ''))
    """
    kind, _, rest = str(address).partition(":")
    rest = rest.strip()
    # Refuse a URL without its scheme or slashes: as a path, it would be shown with its account.
    is_url = rest.startswith("//") or (_SCHEME.match(rest) and "@" in rest and ":/" not in rest)
    return kind, "" if is_url and kind in ("delta", "parquet") else rest


def lake_table(address: str) -> LakeTable:
    """The table at an address.

    Args:
        address: ``delta:LOCATION``, a path or a URL; ``iceberg:CATALOG/NAMESPACE.TABLE``, with a catalog of
            pyiceberg's configuration; or ``parquet:FOLDER``.

    Raises:
        InvalidArgument: The address has another form.

    >>> lake_table("delta:/data/totals")
    DeltaLakeTable(location='/data/totals')
    >>> lake_table("totals")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: table = 'totals': is not the address of a table of files; \
write "delta:LOCATION", "iceberg:CATALOG/NAMESPACE.TABLE" or "parquet:FOLDER"
    """
    kind, rest = _parts(address)
    if kind == "delta" and rest:
        return DeltaLakeTable(rest)
    if kind == "iceberg" and rest:
        catalog, _, identifier = rest.partition("/")
        return IcebergTable(catalog, identifier).configured()
    if kind == "parquet" and "://" in rest:
        raise InvalidArgument(
            "table", shown_url(address),
            "is on an object store, where panes cannot be merged into Parquet files",
            fix=f'write "delta:{shown_url(rest)}"',
        )  # fmt: skip
    if kind == "parquet" and rest:
        return ParquetTable(rest)
    if kind.partition("+")[0] in ("postgresql", "sqlite"):
        raise InvalidArgument(
            "table", shown_url(str(address)), "is a table of a database, not of files", fix="use upsert_to"
        )
    raise InvalidArgument(
        "table", shown_url(str(address)), "is not the address of a table of files",
        fix='write "delta:LOCATION", "iceberg:CATALOG/NAMESPACE.TABLE" or "parquet:FOLDER"',
    )  # fmt: skip
