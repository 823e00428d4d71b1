"""Column types of SQLite results, whose values may have any type in any row.

The types of a range follow from a scan of all its rows and from the declared types. The statement is then
rewritten so that each column has one type in all rows; otherwise a text after thousands of numbers would fail
in the middle of the read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Final

import pyarrow as pa

from slackwater.errors import InvalidArgument
from slackwater.ingest.sources.sql_statements import Statement
from slackwater.sql.identifiers import quote_identifier

_KINDS: Final = {"integer": pa.int64(), "real": pa.float64(), "text": pa.string(), "blob": pa.binary()}
"""The types of values; a column with several of them gets the last one, which can represent all."""
_BUSY_SECONDS: Final = 60
_EXACT: Final = 2**53
_AT_ONCE: Final = 100
_FIRST: Final[dict[pa.DataType, str]] = {
    pa.int64(): "0",
    pa.float64(): "0.0",
    pa.string(): "''",
    pa.binary(): "x''",
    pa.null(): "''",
}


def declared_type(declared: str) -> pa.DataType | None:
    """The Arrow type of a declared column type; None if the declaration implies none.

    >>> declared_type("VARCHAR(20)"), declared_type("DECIMAL(10,2)"), declared_type("DATETIME")
    (DataType(string), DataType(double), DataType(string))
    """
    name = declared.upper()
    words = (
        (("INT", "BOOL"), pa.int64()),
        (("CHAR", "CLOB", "TEXT", "DATE", "TIME"), pa.string()),
        (("BLOB",), pa.binary()),
        (("REAL", "FLOA", "DOUB", "NUM", "DEC"), pa.float64()),
    )
    return next((kind for parts, kind in words if any(part in name for part in parts)), None)


@contextmanager
def embedded_connection(address: str) -> Iterator[sqlite3.Connection]:
    """Open a SQLite file with the library of Python, and close it."""
    with closing(sqlite3.connect(address, timeout=_BUSY_SECONDS)) as connection:
        connection.text_factory = lambda text: text.decode(errors="replace")
        yield connection


def column_names(cursor: sqlite3.Cursor) -> list[str]:
    """The names of the columns of a result."""
    return [str(column[0]) for column in cursor.description]


def found_types(
    connection: sqlite3.Connection, statements: Iterable[Statement], declared: Mapping[str, str]
) -> dict[str, pa.DataType]:
    """The columns of statements, with types that fit all values; null for a column without values or type.

    >>> with embedded_connection(":memory:") as connection:
    ...     found_types(connection, [Statement(("SELECT 1 AS a, NULL AS b UNION ALL SELECT 'x', NULL",))], {})
    {'a': DataType(string), 'b': DataType(null)}
    """
    given = list(statements)
    sample = f"SELECT * FROM ({given[0].text('sqlite')}\n) AS sample LIMIT 0"  # noqa: S608 - the job's own query
    names = column_names(connection.execute(sample, given[0].parameters))
    seen: dict[str, set[str]] = {name: set() for name in names}
    for statement in given:
        for first in range(0, len(names), _AT_ONCE):
            _scan(connection, statement, names[first : first + _AT_ONCE], seen)
    return {name: _type_of(name, seen[name], declared.get(name, "")) for name in names}


def _scan(
    connection: sqlite3.Connection,
    statement: Statement,
    names: Sequence[str],
    seen: Mapping[str, set[str]],
) -> None:
    tests = {kind: "typeof({0}) = '" + kind + "'" for kind in _KINDS}
    tests["large"] = f"typeof({{0}}) = 'integer' AND {{0}} NOT BETWEEN -{_EXACT} AND {_EXACT}"
    asked = ", ".join(
        f"MAX({test.format(quote_identifier(name))})" for name in names for test in tests.values()
    )
    scan = f"SELECT {asked} FROM ({statement.text('sqlite')}\n) AS scanned"  # noqa: S608 - the job's own query
    (results,) = connection.execute(scan, statement.parameters)
    for index, found in enumerate(results):
        if found:
            seen[names[index // len(tests)]].add(list(tests)[index % len(tests)])


def _type_of(name: str, seen: set[str], declared: str) -> pa.DataType:
    kinds = [_KINDS[kind] for kind in _KINDS if kind in seen]
    base = declared_type(declared)
    order = list(_KINDS.values())
    chosen = max([*kinds, *([] if base is None else [base])], key=order.index, default=pa.null())
    if chosen == pa.float64() and "large" in seen:
        fix = f"use ms.source.query with CAST({name} AS TEXT) AS {name}"
        reason = "mixes integers beyond 2^53 with fractions, which no single type can represent"
        raise InvalidArgument("ms.source.table", name, reason, fix=fix)
    return chosen


def typed(statement: Statement, columns: Mapping[str, pa.DataType]) -> str:
    r"""Rewrite a statement so that each column has one type, with a first row that fixes the types.

    The driver infers column types from the first rows. The last line may be a comment.

    >>> typed(Statement(("SELECT a FROM t",)), {"a": pa.float64()})
    'SELECT 0.0 AS "a" UNION ALL SELECT CAST("a" AS REAL) FROM (SELECT a FROM t\n) AS given'
    """
    first = ", ".join(f"{_FIRST[kind]} AS {quote_identifier(name)}" for name, kind in columns.items())
    rows = ", ".join(_as(quote_identifier(name), kind) for name, kind in columns.items())
    given = statement.text("sqlite")
    return f"SELECT {first} UNION ALL SELECT {rows} FROM ({given}\n) AS given"  # noqa: S608 - the job's own query


def _as(name: str, kind: pa.DataType) -> str:
    if kind == pa.int64():
        return name
    if kind == pa.float64():
        return f"CAST({name} AS REAL)"
    if kind == pa.binary():
        return f"CAST({name} AS BLOB)"
    # SQLite itself would format a fraction with fifteen digits
    return f"CASE typeof({name}) WHEN 'real' THEN printf('%!.17g', {name}) ELSE CAST({name} AS TEXT) END"
