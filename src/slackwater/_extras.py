"""Errors for packages that `pip install slackwater` alone does not install: each names the extra to add."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Final

from slackwater.errors import MissingExtra

EXTRA_OF: Final = {
    "adbc_driver_manager": "ingest",
    "adbc_driver_postgresql": "postgres",
    "adbc_driver_sqlite": "ingest",
    "alembic": "sql",
    "deltalake": "delta",
    "fastapi": "ui",
    "fastavro": "ingest",
    "httpx": "ingest",
    "javaproperties": "ingest",
    "matplotlib": "plot",
    "obstore": "object-store",
    "openlineage": "lineage",
    "psycopg": "postgres",
    "pydantic": "ingest",
    "pyiceberg": "iceberg",
    "rich": "cli",
    "sqlalchemy": "sql",
    "starlette": "ui",
    "typer": "cli",
    "uvicorn": "ui",
    "yaml": "ingest",
}
"""The extra that installs each package, by the name under which the package is imported."""


@contextmanager
def naming_extras() -> Iterator[None]:
    """Turn a failed import of a package of an extra inside the block into `MissingExtra`.

    >>> with naming_extras():
    ...     raise ModuleNotFoundError(name="uvicorn.config")
    Traceback (most recent call last):
    slackwater.errors.MissingExtra: uvicorn is not installed; run: pip install "slackwater[ui]"
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        if package not in EXTRA_OF:
            raise
        raise MissingExtra(EXTRA_OF[package], package) from None


def require_extra(extra: str, *packages: str) -> None:
    """Raise if a package of an extra is not installed; for modules that are of no use without it.

    Raises:
        MissingExtra: One is not installed.

    >>> require_extra("streams", "json", "no_such_package")
    Traceback (most recent call last):
    slackwater.errors.MissingExtra: no_such_package is not installed; run: pip install "slackwater[streams]"
    """
    for package in packages:
        if find_spec(package) is None:
            raise MissingExtra(extra, package)
