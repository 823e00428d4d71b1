"""Glob patterns of paths as in Hadoop, extended by ``**`` for any number of folders.

The file system lists everything below the part that it supports; a regular expression selects from that.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from slackwater.errors import InvalidArgument
from slackwater.ingest.jobfile.parameters import fill_in

_SPECIAL: Final = re.compile(r"([\\*?\[\]{}])")
_WILD: Final = re.compile(r"(?<!\\)[*?\[{]")
_SCHEME: Final = re.compile(r"\A[A-Za-z][A-Za-z0-9+.-]*:(?://[^/]*)?(?=/)")
_IN_CLASS: Final = re.compile(r"(?<!\\)([\[^])")
_ALL_FOLDERS: Final = "**"
_TOKEN: Final = re.compile(r"\\(.)|\[(\^|!)?((?:\\.|[^\]\\])+)\]|([*?{},])", re.DOTALL)


def escaped(text: str) -> str:
    r"""Escape ``text`` so that it matches only itself in a pattern.

    >>> escaped("a[1]*")
    'a\\[1\\]\\*'
    """
    return _SPECIAL.sub(r"\\\1", text)


def fill_path(template: str, values: Mapping[str, str]) -> str:
    r"""Fill in the parameters of a path so that each value matches only itself and stays below its folder.

    Raises:
        InvalidArgument: A value would lead to a parent folder.

    >>> fill_path("/in/{{shop}}/*.csv", {"shop": "a*"})
    '/in/a\\*/*.csv'
    >>> fill_path("/in/{{shop}}/*.csv", {"shop": "../secret"})
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: ms.source.path = '/in/../secret/*.csv': is outside the folder ...
    """
    path = fill_in(template, values, quote=escaped)
    if _steps_up(path) > _steps_up(template):
        fix = "use units and parameters without .."
        raise InvalidArgument("ms.source.path", path, "is outside the folder of the job", fix=fix)
    return path


def _steps_up(path: str) -> int:
    return path.split("/").count("..")


def inside(path: str) -> str:
    """A path without its scheme and authority.

    >>> inside("hdfs://host:8020/a/b"), inside("file:/a"), inside("a/b")
    ('/a/b', '/a', 'a/b')
    """
    return _SCHEME.sub("", path, count=1)


def local_folder(path: str) -> Path | None:
    """A path as a local folder; None if it is on another file system.

    >>> local_folder("file:///a/b").as_posix(), local_folder("hdfs://host/a")
    ('/a/b', None)
    """
    scheme = _SCHEME.match(path)
    if scheme is not None and scheme[0].lower() not in ("file:", "file://"):
        return None
    return Path(inside(path)).absolute()


def root_of(pattern: str) -> str:
    """The part of a pattern that Hadoop supports: everything before ``**``.

    >>> root_of("s3a://bucket/in/*/**/a.csv"), root_of("/in/*.csv")
    ('s3a://bucket/in/*', '/in/*.csv')
    """
    parts = pattern.split("/")
    if _ALL_FOLDERS not in parts:
        return pattern
    return "/".join(parts[: parts.index(_ALL_FOLDERS)]) or ("/" if pattern.startswith("/") else ".")


def home_of(template: str) -> str:
    """The folder of a path template above all patterns and parameters, or the path itself without any.

    >>> home_of("/in/{{day}}/*.csv"), home_of("s3a://bucket/in/a*.csv"), home_of("/in/a.csv")
    ('/in', 's3a://bucket/in', '/in/a.csv')
    """
    wild = _WILD.search(template)
    if wild is None:
        return template
    return template[: wild.start()].rpartition("/")[0] or ("/" if template.startswith("/") else ".")


def expression_of(pattern: str) -> re.Pattern[str]:
    """A regular expression for the paths that a pattern matches.

    A relative pattern matches at the end of a path. A pattern whose last part is a plain name may name a
    folder, and then matches the files in it.

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
