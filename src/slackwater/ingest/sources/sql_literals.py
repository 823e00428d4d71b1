"""SQL literals for Spark's JDBC reader, which takes no parameters.

A value that every database reads in the same way is written as a literal; any other is rejected, because no
escaping is right for all databases. Times use the JDBC escape syntax, which drivers translate.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import tzinfo
from itertools import pairwise
from typing import Final

from slackwater.errors import InvalidArgument
from slackwater.ingest.axis.timezones import local_of
from slackwater.ingest.jobfile.parameters import unknown_parameter
from slackwater.time import DAY

Literal = str | int | None
"""A text, an instant, or null."""

_PIECE: Final = re.compile(
    r"""
      '(?:[^']|'')*'          # a text
    | "(?:[^"]|"")*"          # a name
    | `[^`]*`                 # a name, elsewhere
    | --[^\n]*                # a comment to the end of the line
    | /\*.*?\*/               # a comment
    | \$\w*\$                 # a quote of PostgreSQL
    | \\                      # its meaning depends on the database
    | \{\{\s*([^{}]*?)\s*\}\}
    """,
    re.VERBOSE | re.DOTALL,
)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)?", re.ASCII)
_UNSAFE: Final = re.compile(r"[\\\x00-\x1f\x7f-\x9f]")
_QUERY: Final = "ms.source.query"


def literal(value: Literal, tz: tzinfo) -> str:
    r"""A value as a SQL literal; an instant as the wall-clock time in ``tz``.

    >>> from slackwater.ingest.axis.timezones import zone
    >>> literal("o'clock", zone("Z")), literal(0, zone("+01:00")), literal(None, zone("Z"))
    ("'o''clock'", "{ts '1970-01-01 01:00:00.000000'}", 'NULL')
    >>> literal("two\tparts", zone("Z"))
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: value = 'two\tparts': has a backslash or a control character, which ...
    """
    if value is None:
        return "NULL"
    if isinstance(value, int):
        return f"{{ts '{local_of(value, tz):%Y-%m-%d %H:%M:%S.%f}'}}"
    if _UNSAFE.search(value):
        reason = "has a backslash or a control character, which databases read differently"
        raise InvalidArgument("value", value, reason, fix="remove it, or compare another column")
    doubled = value.replace("'", "''")
    return f"'{doubled}'"


def render(query: str, values: Mapping[str, Literal], tz: tzinfo) -> str:
    """Replace every ``{{name}}`` of a query by a literal; inside quotes and comments that is an error.

    >>> from slackwater.ingest.axis.timezones import zone
    >>> render("SELECT * FROM t WHERE a = {{id}}", {"id": "7' OR 'a' = 'a"}, zone("Z"))
    "SELECT * FROM t WHERE a = '7'' OR ''a'' = ''a'"
    >>> render("SELECT 'number {{id}}'", {"id": "7"}, zone("Z"))
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: ms.source.query = "'number {{id}}'": has a {{name}} in quotes or in a \
comment; move it out
    """

    def replace(found: re.Match[str]) -> str:
        name, piece = found[1], found[0]
        if name is None:
            if "{{" in piece:
                reason = "has a {{name}} in quotes or in a comment"
                raise InvalidArgument(_QUERY, piece, reason, fix="move it out")
            if piece[0] in "$\\":
                reason = "has different meanings in different databases"
                raise InvalidArgument(_QUERY, piece, reason, fix="rewrite the query without it")
            return piece
        if name not in values:
            raise unknown_parameter(_QUERY, name, values)
        return literal(values[name], tz)

    rest = _PIECE.sub("", query)
    if any(mark in rest for mark in ("'", '"', "`", "/*", "{{")):
        raise InvalidArgument(_QUERY, query, "has an unclosed quote or comment", fix="close it")
    return _PIECE.sub(replace, query)


def plain_name(name: str, key: str) -> str:
    """Check that a name needs no quotes, because databases quote names differently.

    >>> plain_name("sales.orders", "ms.source.table")
    'sales.orders'
    >>> plain_name('x" OR 1=1', "ms.time.column")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: ms.time.column = 'x" OR 1=1': is not a plain SQL name of letters, \
digits and _; rename it in ms.source.query
    """
    if not _NAME.fullmatch(name):
        reason = "is not a plain SQL name of letters, digits and _"
        raise InvalidArgument(key, name, reason, fix="rename it in ms.source.query")
    return name


def range_conditions(column: str, low: int, high: int, count: int, tz: tzinfo) -> list[str]:
    """Conditions that divide ``[low, high)`` into parts, the first and the last extended by two days.

    Databases differ in the timezone in which they compare times without one. The extra days cover all
    timezones, and the caller filters the rows by time. No row satisfies two of the conditions.

    >>> from slackwater.ingest.axis.timezones import zone
    >>> for condition in range_conditions("at", 0, 4 * DAY, 2, zone("Z")):
    ...     print(condition)
    at >= {ts '1969-12-30 00:00:00.000000'} AND at < {ts '1970-01-03 00:00:00.000000'}
    at >= {ts '1970-01-03 00:00:00.000000'} AND at < {ts '1970-01-07 00:00:00.000000'}
    """
    name = plain_name(column, "ms.time.column")
    between = {low + (high - low) * number // count for number in range(1, count)} - {low, high}
    # in an ambiguous hour equal texts would make an empty part
    texts = dict.fromkeys(literal(at, tz) for at in (low - 2 * DAY, *sorted(between), high + 2 * DAY))
    return [f"{name} >= {first} AND {name} < {second}" for first, second in pairwise(sorted(texts))]
