"""The log of Spark's file sink: which files of a folder belong to it, for ``spark.read`` of the folder."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

from slackwater.sql.pane_targets import TableDoesNotFit
from slackwater.tables.object_store import ObjectStore

FOLDER: Final = "_spark_metadata"
_NAME: Final = re.compile(r"/(\d+)(\.compact)?\Z")
_VERSION: Final = "v1"


def log_key(version: int, *, complete: bool) -> str:
    """The key of an entry of the log: of one that lists all files, or only those that it adds.

    >>> log_key(9, complete=True), log_key(10, complete=False)
    ('_spark_metadata/9.compact', '_spark_metadata/10')
    """
    return f"{FOLDER}/{version}{'.compact' if complete else ''}"


def log_versions(keys: Iterable[str]) -> dict[int, bool]:
    """The versions among the keys of a folder, in order, each with whether it lists all files.

    >>> log_versions(["_spark_metadata/10", "_spark_metadata/9.compact", "_spark_metadata/.10.crc"])
    {9: True, 10: False}
    """
    found = (match for key in keys if (match := _NAME.search(key)) is not None)
    return dict(sorted((int(match[1]), match[2] is not None) for match in found))


def log_file(url: str, size: int, modified: int = 0, **further: Any) -> str:
    """A line of the log: a file.

    Args:
        url: Its URL.
        size: Its size in bytes.
        modified: When it was written, in milliseconds since 1970.
        further: Fields that Spark ignores.
    """
    return _line(url, size, modified, is_folder=False, **further)


def log_note(url: str, **fields: Any) -> str:
    """A line of the log that Spark ignores, because it is about a folder: fields of our own.

    >>> json.loads(log_note("file:///data", owner="5f1c"))["owner"]
    '5f1c'
    """
    return _line(url, 0, 0, is_folder=True, **fields)


def log_content(lines: Iterable[str]) -> bytes:
    """The content of an entry of the log."""
    return "\n".join([_VERSION, *lines]).encode()


def log_lines(content: bytes) -> list[str]:
    """The lines of an entry of the log.

    >>> log_lines(log_content(["{}"]))
    ['{}']
    """
    return content.decode().split("\n")[1:]


def check_no_file_log(store: ObjectStore, table: str) -> None:
    """Raise if a folder has a log of files, whose readers would not see other tables in the folder.

    Raises:
        TableDoesNotFit: It has one.

    >>> from slackwater.tables.object_store import object_store
    >>> check_no_file_log(object_store("file:///no/such/folder"), "parquet:/no/such/folder")
    """
    if log_versions(store.keys(FOLDER)):
        raise TableDoesNotFit(
            "table", table, "is a folder to which append_to or Spark's file sink writes",
            fix="write to another folder",
        )  # fmt: skip


def _line(url: str, size: int, modified: int, *, is_folder: bool, **further: Any) -> str:
    fields = {
        "path": url,
        "size": size,
        "isDir": is_folder,
        "modificationTime": modified,
        "blockReplication": 1,
        "blockSize": 32 << 20,
        "action": "add",
    }
    return json.dumps({**fields, **further}, separators=(",", ":"))
