"""Rows that a table cannot store, found column by column before they are loaded.

A database rejects a whole load because of one value, and a query that repeats the load fails again and again.
So the values are compared with what the columns of the table accept: one vectorized check for each column and
reason, and no work per row unless a value is rejected.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl
import sqlalchemy as sql
from sqlalchemy import types
from sqlalchemy.engine import Connection

_NUL: Final = "\0"
_ESCAPED_NUL: Final = r"(?:^|[^\\])(?:\\\\)*\\u0000"
"""A NUL inside JSON text; an escaped backslash before ``u0000`` is not one."""
_FIRST: Final = -62_135_596_800_000_000
"""0001-01-01 in microseconds: earlier years have no text form that the databases parse."""
_LAST: Final = 253_402_300_799_999_999
"""The end of the year 9999 in microseconds."""
_DIGITS_OF_A_SECOND: Final = 6
"""Times have microseconds."""
_NOISE: Final = 1e-12
"""The relative error of a float, such as a sum, that may be rounded away."""


@dataclass(frozen=True, slots=True)
class ColumnLimits:
    """What a column accepts, in addition to its type.

    >>> ColumnLimits(longest=10).nullable
    True
    """

    longest: int | None = None
    """The maximum number of characters."""
    digits: tuple[int, int] | None = None
    """Precision and scale of a NUMERIC column."""
    bits: int | None = None
    """The width of an integer column."""
    fraction: int | None = None
    """How many digits of a second a time column stores; PostgreSQL rounds the others away."""
    nullable: bool = True
    is_json: bool = False
    is_identity: bool = False
    """Whether the column is part of what identifies a row."""


def table_limits(connection: Connection, table: str, schema: str | None = None) -> dict[str, ColumnLimits]:
    """Look up the limits of the columns of an existing table.

    >>> with sql.create_engine("sqlite://").begin() as connection:
    ...     _ = connection.exec_driver_sql("CREATE TABLE t (name VARCHAR(3) NOT NULL)")
    ...     table_limits(connection, "t")["name"].longest
    3
    """
    columns = sql.inspect(connection).get_columns(table, schema=schema)
    return {column["name"]: _limits(column["type"], nullable=column["nullable"]) for column in columns}


def _limits(kind: types.TypeEngine[object], *, nullable: bool) -> ColumnLimits:
    numeric = isinstance(kind, types.Numeric) and not isinstance(kind, types.Float)
    precision = getattr(kind, "precision", None) if numeric else None
    return ColumnLimits(
        longest=getattr(kind, "length", None) if isinstance(kind, types.String) else None,
        digits=None if precision is None else (precision, getattr(kind, "scale", None) or 0),
        bits=_bits(kind),
        fraction=getattr(kind, "precision", None) if isinstance(kind, types.DateTime) else None,
        nullable=nullable,
        is_json=isinstance(kind, types.JSON),
    )


def _bits(kind: types.TypeEngine[object]) -> int | None:
    if not isinstance(kind, types.Integer) or isinstance(kind, types.BigInteger):
        return None
    return 16 if isinstance(kind, types.SmallInteger) else 32


def rejection_reasons(
    frame: pl.DataFrame, limits: Mapping[str, ColumnLimits], backend: str
) -> pl.Series | None:
    r"""Find the rows that a table cannot store.

    Args:
        frame: The rows. Columns that ``limits`` does not name are checked by their type only.
        limits: The limits of the table's columns, as `table_limits` returns them.
        backend: ``postgresql`` or ``sqlite``.

    Returns:
        The reason for each row that is rejected, null for the others; None if no row is rejected.

    >>> rejection_reasons(pl.DataFrame({"name": ["a", "b\0c"]}), {}, "postgresql").to_list()
    [None, "column 'name' contains the character U+0000, which PostgreSQL cannot store"]
    >>> rejection_reasons(pl.DataFrame({"name": ["a", "b\0c"]}), {}, "sqlite") is None
    True
    """
    problems = [
        (condition, f"column {name!r} {reason}")
        for name, kind in frame.schema.items()
        for condition, reason in _problems(name, kind, limits.get(name, ColumnLimits()), backend)
    ]
    if not problems or not any(frame.select(*_flags(condition for condition, _ in problems)).row(0)):
        return None
    reasons = (pl.when(condition).then(pl.lit(reason)) for condition, reason in problems)
    return frame.select(pl.coalesce(*reasons).alias("reason")).to_series()


def _flags(conditions: Iterable[pl.Expr]) -> list[pl.Expr]:
    return [condition.any().alias(str(number)) for number, condition in enumerate(conditions)]


def _problems(
    name: str, kind: pl.DataType, limits: ColumnLimits, backend: str
) -> Iterator[tuple[pl.Expr, str]]:
    column = pl.col(name)
    if not limits.nullable:
        yield column.is_null(), "is null, but the column of the table is NOT NULL"
    if kind == pl.String():
        yield from _text_problems(column, limits, backend)
    elif kind.is_float() and backend == "sqlite" and limits.is_identity:
        yield column.is_nan(), "is NaN, which SQLite stores as NULL, the key of other rows"
    elif kind.is_temporal() and isinstance(kind, (pl.Date, pl.Datetime)):
        at = column.dt.timestamp("us")
        yield at < _FIRST, "is earlier than the year 1"
        if backend == "sqlite":
            yield at > _LAST, "is later than the year 9999"
        elif limits.fraction is not None and limits.fraction < _DIGITS_OF_A_SECOND:
            cut = at % 10 ** (_DIGITS_OF_A_SECOND - limits.fraction) != 0
            yield cut, f"would be rounded: the column stores {limits.fraction} digits of a second"
    if kind.is_integer() and limits.bits is not None and backend == "postgresql":
        outside = ~column.is_between(-(2 ** (limits.bits - 1)), 2 ** (limits.bits - 1) - 1)
        yield outside, f"does not fit an integer of {limits.bits} bits"
    if kind.is_numeric() and limits.digits is not None and backend == "postgresql":
        precision, scale = limits.digits
        too_large = column.cast(pl.Float64).abs().round(max(scale, 0)) >= 10.0 ** (precision - scale)
        yield too_large & column.cast(pl.Float64).is_not_nan(), f"does not fit NUMERIC({precision}, {scale})"
        yield _is_rounded(column, kind, scale), f"would be rounded by NUMERIC({precision}, {scale})"


def _is_rounded(column: pl.Expr, kind: pl.DataType, scale: int) -> pl.Expr:
    """Whether a number has more digits after the point than a column; noise of a float is none."""
    if kind.is_float():
        rounded = column.round(max(scale, 0))
        return column.is_finite() & ((column - rounded).abs() > column.abs() * _NOISE)
    digits = kind.scale if isinstance(kind, pl.Decimal) else 0
    unit = pl.lit(10 ** max(digits - scale, 0), pl.Int128())
    rest: pl.Expr = column.to_physical().cast(pl.Int128) % unit
    return rest != 0


def _text_problems(column: pl.Expr, limits: ColumnLimits, backend: str) -> Iterator[tuple[pl.Expr, str]]:
    if backend != "postgresql":
        return
    yield (
        column.str.contains(_NUL, literal=True),
        "contains the character U+0000, which PostgreSQL cannot store",
    )
    if limits.is_json:
        yield (
            column.str.contains(_ESCAPED_NUL),
            "contains the character U+0000, which PostgreSQL cannot store in JSONB",
        )
    if limits.longest is not None:
        yield column.str.len_chars() > limits.longest, f"is longer than {limits.longest} characters"
