"""Metadata stores that must exist: commands that only read the history never create one."""

from __future__ import annotations

from pathlib import Path

from slackwater.errors import InvalidArgument
from slackwater.metadata.store import MetadataStore, open_store, schema_version
from slackwater.sql.database import database_url, redacted_url


def store_exists(url: str) -> bool:
    """Whether a store exists at an address; a SQLite file in a missing folder is an error.

    >>> store_exists("sqlite:////no-such-store.db")
    False
    """
    address = database_url(url)
    if address.get_backend_name() != "sqlite":
        return True
    file = Path(str(address.database))
    if not file.parent.is_dir():
        reason, fix = "its folder does not exist", "correct it, or create the folder"
        raise InvalidArgument("state", redacted_url(address), reason, fix=fix)
    return file.exists()


def existing_store(url: str) -> MetadataStore:
    """Open a store that must exist; unlike `open_store` it never creates one.

    >>> existing_store("sqlite:////no-such-store.db")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: state = 'sqlite:////no-such-store.db': does not exist; correct it, \
or run the job first
    """
    fix = "correct it, or run the job first"
    if not store_exists(url):
        raise InvalidArgument("state", redacted_url(database_url(url)), "does not exist", fix=fix)
    with open_store(url, upgrade=False) as store:
        if store.read(schema_version) is None:
            raise InvalidArgument("state", redacted_url(store.url), "is not a metadata store", fix=fix)
    return open_store(url)
