"""Folder names of units, as Spark names the folders of partitions: ``country=NO``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from slackwater.errors import InvalidArgument

VERSIONS: Final = "_versions"
"""The folder with the versions of all units, to which links refer."""
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED: Final = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{\[\]^]""")


def folder_names(values: Mapping[str, str | None]) -> list[str]:
    """Name the nested folders of a unit; different units have different folders.

    Raises:
        InvalidArgument: A value would be read back as null.

    >>> folder_names({"country": "NO", "path": "a/b", "day": None})
    ['country=NO', 'path=a%2Fb', 'day=__HIVE_DEFAULT_PARTITION__']
    """
    check_folder_values(values)
    return [
        f"{_escaped(name)}={_NULL if value is None else _escaped(value)}" for name, value in values.items()
    ]


def check_folder_values(values: Mapping[str, str | None]) -> None:
    """Raise `InvalidArgument` if the name of a folder cannot distinguish a value of a unit from null.

    >>> check_folder_values({"country": None})
    >>> check_folder_values({"country": ""})
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: ms.target.path = {'country': ''}: has an empty value, which Spark \
would read back from a folder name as null; use null, filter such units out, or use a sql or delta target
    """
    for taken, what in (("", "an empty value"), (_NULL, f"the value {_NULL}")):
        if taken in values.values():
            reason = f"has {what}, which Spark would read back from a folder name as null"
            fix = "use null, filter such units out, or use a sql or delta target"
            raise InvalidArgument("ms.target.path", dict(values), reason, fix=fix)


def _escaped(text: str) -> str:
    """Escape a part of a folder name as Spark does."""
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)
