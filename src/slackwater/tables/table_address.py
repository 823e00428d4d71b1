"""The addresses of tables that panes are merged into."""

from __future__ import annotations

from slackwater.errors import InvalidArgument
from slackwater.tables.delta_table import DeltaLakeTable
from slackwater.tables.iceberg_table import IcebergTable
from slackwater.tables.lake_table import LakeTable
from slackwater.tables.object_store import shown_url
from slackwater.tables.parquet_table import ParquetTable


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
    kind, _, rest = str(address).partition(":")
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
