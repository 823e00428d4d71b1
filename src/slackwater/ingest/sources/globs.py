"""Patterns of paths, as Hadoop reads them, and ``**`` for any folders, which it does not.

A file system is asked for what is below the part that it understands; the rest is an expression here.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Final

_SPECIAL: Final = re.compile(r"([\\*?\[\]{}])")
_WILD: Final = re.compile(r"(?<!\\)[*?\[{]")
_SCHEME: Final = re.compile(r"\A[A-Za-z][A-Za-z0-9+.-]*:(?://[^/]*)?(?=/)")
_IN_CLASS: Final = re.compile(r"(?<!\\)([\[^])")
_ALL_FOLDERS: Final = "**"
_TOKEN: Final = re.compile(r"\\(.)|\[(\^|!)?((?:\\.|[^\]\\])+)\]|([*?{},])", re.DOTALL)


def escaped(text: str) -> str:
    r"""``text`` as a pattern that means nothing but itself.

    >>> escaped("a[1]*")
    'a\\[1\\]\\*'
    """
    return _SPECIAL.sub(r"\\\1", text)


def inside(path: str) -> str:
    """A path within its file system.

    >>> inside("hdfs://host:8020/a/b"), inside("file:/a"), inside("a/b")
    ('/a/b', '/a', 'a/b')
    """
    return _SCHEME.sub("", path, count=1)


def local_folder(path: str) -> Path | None:
    """A folder of this machine, or None if the path names another file system.

    >>> local_folder("file:///a/b").as_posix(), local_folder("hdfs://host/a")
    ('/a/b', None)
    """
    scheme = _SCHEME.match(path)
    if scheme is not None and scheme[0].lower() not in ("file:", "file://"):
        return None
    return Path(inside(path)).absolute()


def root_of(pattern: str) -> str:
    """The part of a pattern that a file system understands: all before ``**``.

    >>> root_of("s3a://bucket/in/*/**/a.csv"), root_of("/in/*.csv")
    ('s3a://bucket/in/*', '/in/*.csv')
    """
    parts = pattern.split("/")
    if _ALL_FOLDERS not in parts:
        return pattern
    return "/".join(parts[: parts.index(_ALL_FOLDERS)]) or ("/" if pattern.startswith("/") else ".")


def home_of(template: str) -> str:
    """What of a path is the same for every unit and has no pattern in it: a folder, or the path itself.

    >>> home_of("/in/{{day}}/*.csv"), home_of("s3a://bucket/in/a*.csv"), home_of("/in/a.csv")
    ('/in', 's3a://bucket/in', '/in/a.csv')
    """
    wild = _WILD.search(template)
    if wild is None:
        return template
    return template[: wild.start()].rpartition("/")[0] or ("/" if template.startswith("/") else ".")


def expression_of(pattern: str) -> re.Pattern[str]:
    """What matches the files of a pattern, by their paths within the file system.

    A pattern that is relative matches at the end of a path. One whose last part is a plain name may be that
    of a folder, and then means the files in it.

    >>> bool(expression_of("/in/**/[a-c]?.{csv,json}").fullmatch("/in/2020/01/b1.json"))
    True
    >>> bool(expression_of("in/*.csv").fullmatch("/shop/in/deeper/a.csv"))
    False
    """
    path = inside(pattern)
    parts = posixpath.normpath(path).split("/")
    while parts and parts[0] in (".", ".."):
        parts.pop(0)
    text = "" if path.startswith("/") else "(?:.*/)?"
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if part == _ALL_FOLDERS:
            text += ".*" if last else "(?:[^/]+/)*"
        else:
            text += _translated(part) + ("" if last else "/")
    if parts and not _WILD.search(parts[-1]):
        text += "(?:/[^/]+)?"
    return re.compile(text, re.DOTALL)


def _translated(part: str) -> str:
    text, position, depth = "", 0, 0
    for token in _TOKEN.finditer(part):
        text += re.escape(part[position : token.start()])
        position = token.end()
        literal, negated, letters, sign = token.groups()
        if literal is not None:
            text += re.escape(literal)
        elif letters is not None:
            text += "[" + ("^" if negated else "") + _IN_CLASS.sub(r"\\\1", letters) + "]"
        elif sign == "{":
            depth += 1
            text += "(?:"
        elif sign == "}" and depth:
            depth -= 1
            text += ")"
        elif sign == "," and depth:
            text += "|"
        else:
            text += {"*": "[^/]*", "?": "[^/]"}.get(sign, re.escape(sign))
    return text + re.escape(part[position:]) + ")" * depth
