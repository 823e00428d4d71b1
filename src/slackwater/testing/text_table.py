"""Text tables as test data, and comparison of rows.

A small table, with a timeline drawn above it, shows what arrived and what is expected at a glance; a list of
dictionaries does not.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import polars as pl

from slackwater._suggestions import available
from slackwater.errors import InvalidArgument
from slackwater.time import HOUR, MILLISECOND, MINUTE, SECOND

UNITS: Final = {"us": 1, "ms": MILLISECOND, "s": SECOND, "min": MINUTE, "h": HOUR}
_HEADER: Final = re.compile(r"(?P<name>.*?)\s*(?:\[(?P<unit>\w+)\])?")
_RULE: Final = re.compile(r"[\s|:+]*(-{2,}[\s|:+]*)+")
_INTEGER: Final = re.compile(r"[+-]?\d+(_\d+)*")
_FLOAT: Final = re.compile(r"[+-]?(\d+\.\d*|\.\d+|\d+)(e[+-]?\d+)?", re.IGNORECASE)
_BAR: Final = re.compile(r'\|(?=(?:[^"]*"[^"]*")*[^"]*$)')
_WORDS: Final = {"true": True, "false": False, "null": None, "": None}
_SHOWN_ROWS: Final = 200


def T(text: str, schema: dict[str, Any] | None = None) -> pl.DataFrame:  # noqa: N802  # as short as a table needs it
    """Parse a small text table to a frame.

    The first line has the column names, ``|`` separates cells, and types are inferred from the cells:
    integers, floats, ``true`` and ``false``, ``[1, 2]`` for a list, and strings otherwise. An empty cell or
    ``null`` is null; text in double quotes stays a string. Empty lines, horizontal rules (``---|---``) and
    lines that start with ``#`` are skipped, so a timeline can be drawn above the rows.

    Args:
        text: the table.
        schema: types of columns, instead of the inferred ones.

    Raises:
        InvalidArgument: the text is not a table, or a column of the schema is not in it.

    >>> from slackwater.testing import T
    >>> T('''
    ...     #  0         10        20
    ...     #  |--a----b-|----a----|
    ...     key | ts | price
    ...     a   | 3  | 1.5
    ...     b   | 8  |
    ...     a   | 15 | 2
    ... ''').rows()
    [('a', 3, 1.5), ('b', 8, None), ('a', 15, 2.0)]

    A unit in brackets (``us``, ``ms``, ``s``, ``min``, ``h``) converts a column of times to microseconds:

    >>> T('''
    ...     name   | ts[s]
    ...     first  | 1
    ...     second | 2.5
    ... ''')["ts"].to_list()
    [1000000, 2500000]
    """
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#") and not _RULE.fullmatch(line)]
    if not lines:
        raise InvalidArgument(
            "text", text, "has no line with column names", fix='begin with a line such as "name | ts"'
        )
    framed = lines[0].startswith("|")
    headers = [_HEADER.fullmatch(cell) for cell in _cells(lines[0], framed=framed)]
    names = [header["name"] for header in headers if header]
    if len(set(names)) < len(names) or not all(names):
        raise InvalidArgument(
            "text", lines[0], "has an empty or duplicate column name", fix="rename the column"
        )
    rows = [_cells(line, framed=framed) for line in lines[1:]]
    for line, cells in zip(lines[1:], rows, strict=True):
        if len(cells) != len(names):
            raise InvalidArgument(
                "text",
                line,
                f"has {len(cells)} cells for {len(names)} columns",
                fix="use an empty cell for null",
            )
    if unknown := sorted(set(schema or {}) - set(names)):
        raise InvalidArgument(
            "schema", unknown[0], "is not a column of the table", fix=available(unknown[0], names)
        )
    columns = []
    for index, header in enumerate(headers):
        if header:
            values = _values([cells[index] for cells in rows])
            if header["unit"]:
                values = _microseconds(values, header["unit"], header["name"])
            dtype = (schema or {}).get(header["name"]) or (None if rows else pl.Null)
            columns.append(pl.Series(header["name"], values, dtype=dtype))
    return pl.DataFrame(columns)


def table(frame: pl.DataFrame) -> str:
    """Format a frame as a text table that `T` can parse.

    Args:
        frame: the frame.

    >>> from slackwater.testing import table
    >>> print(table(pl.DataFrame({"key": ["a", None], "total": [1, 20]})))
    key | total
    a   | 1
        | 20
    """
    return "\n".join(_lines(frame.columns, frame.rows()))


def assert_rows(got: pl.DataFrame, expected: pl.DataFrame, *, ordered: bool = False) -> None:
    """Assert that two frames have the same rows.

    Only the columns of ``expected`` are compared. Numbers are compared by value, independent of their type.

    Args:
        got: the actual rows.
        expected: the expected rows.
        ordered: whether the order of the rows is compared too.

    Raises:
        AssertionError: the rows differ; the message shows the difference as a table.

    >>> from slackwater.testing import T, assert_rows
    >>> panes = T('''
    ...     key | total | index
    ...     a   | 3     | 0
    ...     b   | 5     | 0
    ... ''')
    >>> assert_rows(
    ...     panes,
    ...     T('''
    ...     key | total
    ...     b   | 5
    ...     a   | 4
    ... '''),
    ... )
    Traceback (most recent call last):
    AssertionError: rows differ (- expected, + got)
      key | total
    + a   | 3
    - a   | 4
      b   | 5
    """
    if missing := [name for name in expected.columns if name not in got.columns]:
        raise AssertionError(f"no column {missing[0]!r}: got {', '.join(got.columns)}")
    names = expected.columns
    wanted = [_plain(row) for row in expected.rows()]
    found = [_plain(row) for row in got.select(names).rows()]
    if ordered and wanted == found:
        return
    missing_rows, unexpected = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
    if not ordered and not missing_rows and not unexpected:
        return
    if ordered and not missing_rows and not unexpected:
        marked = [("-", row) for row in wanted] + [("+", row) for row in found]
        raise AssertionError("rows are in a different order (- expected, + got)\n" + _marked(names, marked))
    marked = [("-", row) for row in missing_rows.elements()]
    marked += [("+", row) for row in unexpected.elements()]
    marked += [(" ", row) for row in (Counter(wanted) & Counter(found)).elements()]
    marked.sort(key=lambda line: ([_sortable(cell) for cell in line[1]], "-+ ".index(line[0])))
    raise AssertionError("rows differ (- expected, + got)\n" + _marked(names, marked))


# ---- parsing


def _cells(line: str, *, framed: bool) -> list[str]:
    """The cells of a line; a bar inside double quotes is text, and a framed line has one at each end."""
    inner = line.removeprefix("|").removesuffix("|") if framed else line
    return [cell.strip() for cell in _BAR.split(inner)]


def _values(cells: list[str]) -> list[Any]:
    """The cells of one column as values of one type."""
    given = [cell for cell in cells if cell not in ("", "null")]
    if given and all(_INTEGER.fullmatch(cell) for cell in given):
        return [None if cell in ("", "null") else int(cell) for cell in cells]
    if given and all(_INTEGER.fullmatch(cell) or _FLOAT.fullmatch(cell) for cell in given):
        return [None if cell in ("", "null") else float(cell) for cell in cells]
    if all(cell in _WORDS for cell in cells):
        return [_WORDS[cell] for cell in cells]
    if all(cell.startswith("[") and cell.endswith("]") for cell in given):
        return [None if cell in ("", "null") else json.loads(cell) for cell in cells]
    return [None if cell in ("", "null") else _unquoted(cell) for cell in cells]


def _unquoted(cell: str) -> str:
    return cell[1:-1] if len(cell) >= 2 and cell[0] == cell[-1] == '"' else cell


def _microseconds(values: list[Any], unit: str, name: str) -> list[int | None]:
    if unit not in UNITS:
        raise InvalidArgument(name, unit, "is not a unit of time", fix=f"use one of {', '.join(UNITS)}")
    if any(isinstance(value, (str, bool, list)) for value in values):
        raise InvalidArgument(
            name, values, f"cannot be converted from [{unit}]", fix="use numbers in this column"
        )
    return [None if value is None else round(value * UNITS[unit]) for value in values]


# ---- formatting


def _shown(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case list() | tuple():
            return (
                "["
                + ", ".join(_shown(item) if not isinstance(item, str) else json.dumps(item) for item in value)
                + "]"
            )
        case str() if _values([value]) != [value] or value != value.strip() or "|" in value:
            return f'"{value}"'
        case _:
            return str(value)


def _lines(names: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    single = len(names) == 1  # an empty cell would be an empty line
    return aligned(
        [names, *([(_shown(value) or "null") if single else _shown(value) for value in row] for row in rows)]
    )


def aligned(cells: Sequence[Sequence[str]]) -> list[str]:
    """Format rows of cells as lines with aligned bars between the cells.

    >>> aligned([("key", "total"), ("a", "1")])
    ['key | total', 'a   | 1']
    """
    widths = [max(len(line[index]) for line in cells) for index in range(len(cells[0]))]
    return [
        " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]


def _marked(names: Sequence[str], rows: Sequence[tuple[str, Sequence[object]]]) -> str:
    shown = rows[:_SHOWN_ROWS]
    header, *lines = _lines(names, [row for _, row in shown])
    text = [f"  {header}", *(f"{mark} {line}" for (mark, _), line in zip(shown, lines, strict=True))]
    if len(rows) > len(shown):
        text.append(f"  … and {len(rows) - len(shown)} more")
    return "\n".join(text)


def _plain(value: Any) -> Any:
    """Convert a value to a hashable one: lists to tuples, structs to tuples of pairs."""
    if isinstance(value, (list, tuple)):
        return tuple(_plain(item) for item in value)
    if isinstance(value, dict):
        return tuple((name, _plain(item)) for name, item in value.items())
    return value


def _sortable(value: object) -> tuple[str, Any]:
    if value is None:
        return ("", 0)
    if isinstance(value, (bool, int, float)):
        return ("number", value)
    return (type(value).__name__, str(value))
