"""Names of datasets as OpenLineage defines them, without credentials."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from slackwater.errors import InvalidArgument
from slackwater.ingest.jobfile.job import Job
from slackwater.ingest.redaction import without_credentials
from slackwater.sql.database import database_url

_TABLE_ADDRESS: Final = re.compile(r"\A(delta|parquet|iceberg|stream):(?!//)(.+)\Z", re.DOTALL)
_SCHEME: Final = re.compile(r"\A[A-Za-z][A-Za-z0-9+.-]*:/")
_PORT: Final = 5432


@dataclass(frozen=True, slots=True)
class DatasetName:
    """A dataset: the namespace says where it is, and the name is unique there."""

    namespace: str
    name: str


def table_dataset(address: str) -> DatasetName:
    """The dataset of a table, by the address that `complete_until` and `merge_into` use.

    Args:
        address: ``DATABASE_URL#TABLE``, ``delta:LOCATION``, ``iceberg:CATALOG/NAMESPACE.TABLE``,
            ``parquet:FOLDER``, ``stream:SCOPE/NAME``, a path or a URL.

    Returns:
        Its name.

    >>> table_dataset("postgresql://app:secret@db.example/shop#totals")
    DatasetName(namespace='postgres://db.example:5432', name='shop.public.totals')
    >>> table_dataset("delta:s3://lake/totals?token=x")
    DatasetName(namespace='s3://lake', name='totals')
    >>> table_dataset("stream:shop/orders")
    DatasetName(namespace='slackwater', name='shop/orders')
    """
    found = _TABLE_ADDRESS.match(address)
    if found is not None:
        kind, rest = found.groups()
        if kind == "stream":
            return DatasetName("slackwater", rest)
        if kind == "iceberg":
            catalog, _, identifier = rest.partition("/")
            return DatasetName(f"iceberg://{catalog}", identifier)
        return path_dataset(rest)
    url, hash_, table = address.rpartition("#")
    return sql_dataset(url, table) if hash_ else path_dataset(address)


def path_dataset(path: str) -> DatasetName:
    """The dataset of a path or a URL.

    >>> path_dataset("/data/orders"), path_dataset("https://app:x@api.example/v1/orders?key=1")
    (DatasetName(namespace='file', name='/data/orders'), DatasetName(namespace='https://api.example', \
name='v1/orders'))
    """
    if not _SCHEME.match(path):
        return DatasetName("file", str(Path(path).absolute()))
    parts = urlsplit(path)
    if parts.scheme == "file":
        return DatasetName("file", parts.path)
    scheme = "s3" if parts.scheme == "s3a" else parts.scheme
    host = parts.netloc.rpartition("@")[2]
    return DatasetName(f"{scheme}://{host}", without_credentials(parts.path.strip("/")) or "/")


def sql_dataset(url: str, table: str) -> DatasetName:
    """The dataset of a table, or of the query of a job, in a database.

    >>> sql_dataset("sqlite:////data/shop.db", "orders")
    DatasetName(namespace='sqlite:///data/shop.db', name='orders')
    >>> sql_dataset("jdbc:derby:shop;password=x", "orders")
    DatasetName(namespace='jdbc:derby:shop', name='orders')
    """
    if url.startswith("env:"):
        return DatasetName(url, table)
    try:
        found = database_url(url)
    except InvalidArgument:
        return DatasetName(re.sub(r"//[^/@]*@", "//", re.split(r"[?;#]", url)[0]), table)
    if found.get_backend_name() == "sqlite":
        return DatasetName(f"sqlite://{Path(found.database or '').absolute()}", table)
    schema, _, name = table.rpartition(".")
    host = f"postgres://{found.host or 'localhost'}:{found.port or _PORT}"
    return DatasetName(host, f"{found.database}.{schema or 'public'}.{name}")


def source_dataset(job: Job) -> DatasetName:
    """The dataset that a job reads.

    >>> from slackwater.ingest.jobfile.job import parse_job
    >>> source_dataset(
    ...     parse_job({"ms.source.type": "files", "ms.source.path": "s3a://lake/in/{{shop}}/*.csv"})
    ... )
    DatasetName(namespace='s3://lake', name='in')
    """
    settings = job.settings
    if settings.source_type == "files":
        path = str(settings.source_path)
        fixed = re.split(r"[*?\[{]", path)[0]
        return _masked(job, path_dataset(fixed.rpartition("/")[0] if fixed != path else path))
    url = "" if settings.source_url is None else settings.source_url.get_secret_value()
    if settings.source_type == "http":
        return _masked(job, path_dataset(re.split(r"\{\{", url)[0]))
    return _masked(job, sql_dataset(url, settings.source_table or f"query of {settings.name}"))


def target_dataset(job: Job) -> DatasetName:
    """The dataset that a job writes.

    >>> from slackwater.ingest.jobfile.job import parse_job
    >>> target_dataset(parse_job({"ms.target.type": "delta", "ms.target.path": "s3://lake/orders"}))
    DatasetName(namespace='s3://lake', name='orders')
    """
    settings = job.settings
    url = "" if settings.target_url is None else settings.target_url.get_secret_value()
    if settings.target_type == "stream":
        return _masked(job, DatasetName("slackwater", str(settings.target_stream)))
    if settings.target_type == "sql":
        return _masked(job, sql_dataset(url, str(settings.target_table)))
    return _masked(job, path_dataset(str(settings.target_path)))


def _masked(job: Job, found: DatasetName) -> DatasetName:
    return DatasetName(job.secrets.mask(found.namespace), job.secrets.mask(found.name))
