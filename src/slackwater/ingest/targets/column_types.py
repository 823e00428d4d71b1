"""Column types of SQLite and PostgreSQL for Arrow types: what is created, and what a column can store."""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa

from slackwater.ingest.sources.arrow_types import INSTANTS
from slackwater.ingest.targets.schema_drift import holds

_CREATED: Final[tuple[tuple[str, str, str], ...]] = (
    (r"int\d+", "BIGINT", "BIGINT"),
    (r"float|double|halffloat", "DOUBLE PRECISION", "DOUBLE PRECISION"),
    (r"bool", "BOOLEAN", "BIGINT"),
    (r"binary", "BYTEA", "BLOB"),
    (r"date32.*", "DATE", "TEXT"),
    (r"timestamp\[us, tz=UTC\]", "TIMESTAMPTZ", "TEXT"),
    (r"timestamp\[us\]", "TIMESTAMP", "TEXT"),
    (r"string", "TEXT", "TEXT"),
)
_POSTGRESQL: Final = {
    "smallint": pa.int64(),  # the database rejects a number that is too large
    "integer": pa.int64(),
    "bigint": pa.int64(),
    "real": pa.float32(),
    "double precision": pa.float64(),
    "boolean": pa.bool_(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "timestamp with time zone": INSTANTS,
    "timestamp without time zone": pa.timestamp("us"),
    "text": pa.string(),
    "character varying": pa.string(),
    "character": pa.string(),
    "name": pa.string(),
}
_AFFINITIES: Final[tuple[tuple[str, pa.DataType], ...]] = (
    ("INT", pa.int64()),
    ("CHAR|CLOB|TEXT", pa.string()),
    ("BLOB", pa.binary()),
    ("REAL|FLOA|DOUB", pa.float64()),
)


def column_type(kind: pa.DataType, backend: str) -> str:
    """Name the type of a new column for values of an Arrow type.

    >>> column_type(pa.decimal128(10, 2), "postgresql"), column_type(pa.bool_(), "sqlite")
    ('NUMERIC(10, 2)', 'BIGINT')
    """
    if pa.types.is_decimal(kind):
        return f"NUMERIC({kind.precision}, {kind.scale})" if backend == "postgresql" else "TEXT"
    for pattern, postgresql, sqlite in _CREATED:
        if re.fullmatch(pattern, str(kind)):
            return postgresql if backend == "postgresql" else sqlite
    return "TEXT"


def accepted_type(declared: str, found: pa.DataType | None, backend: str) -> pa.DataType:
    """Choose the type in which values are sent to a column: that of the values, if the column can store it.

    >>> accepted_type("character varying(20)", pa.string(), "postgresql")
    DataType(string)
    >>> accepted_type("integer", pa.string(), "postgresql")
    DataType(int64)
    >>> accepted_type("numeric", pa.decimal128(9, 2), "postgresql")
    Decimal128Type(decimal128(9, 2))
    >>> accepted_type("DATETIME", INSTANTS, "sqlite"), accepted_type("INTEGER", INSTANTS, "sqlite")
    (TimestampType(timestamp[us, tz=UTC]), DataType(int64))
    """
    if backend == "sqlite":
        return _accepted_by_sqlite(declared, found)
    base, _, rest = declared.partition("(")
    if base == "numeric":
        return _accepted_by_numeric(rest, found)
    known = _POSTGRESQL.get(re.sub(r"\(\d+\)", "", declared), pa.string())
    return known if found is None or not holds(known, found) else found


def needs_cast(declared: str) -> bool:
    """Whether a PostgreSQL type needs a cast from text.

    >>> needs_cast("jsonb"), needs_cast("character varying(20)"), needs_cast("numeric(9,2)")
    (True, False, False)
    """
    name = re.sub(r"\(\d+(,\d+)?\)", "", declared)
    return name not in _POSTGRESQL and name != "numeric"


def _accepted_by_numeric(rest: str, found: pa.DataType | None) -> pa.DataType:
    digits = [int(text) for text in re.findall(r"\d+", rest)]
    if not digits:
        exact = found is not None and (pa.types.is_decimal(found) or pa.types.is_signed_integer(found))
        return found if exact else pa.decimal128(38, 18)
    precision, scale = digits[0], digits[1] if len(digits) > 1 else 0
    known = pa.decimal128(min(precision, 38), min(scale, 38))
    # the database rejects an integer that is too large, but would silently round a fraction
    whole = found is not None and pa.types.is_signed_integer(found)
    return found if found is not None and (whole or holds(known, found)) else known


def _accepted_by_sqlite(declared: str, found: pa.DataType | None) -> pa.DataType:
    """A column without a type, or with NUMERIC affinity, stores any value unchanged."""
    known = next((kind for names, kind in _AFFINITIES if re.search(names, declared.upper())), None)
    if found is None:
        return known or pa.string()
    stored = _stored_by_sqlite(found)
    return found if known is None or holds(known, stored) else known


def _stored_by_sqlite(found: pa.DataType) -> pa.DataType:
    """The type that SQLite stores: times, dates and decimals as text, booleans as integers."""
    if pa.types.is_boolean(found) or pa.types.is_integer(found):
        return pa.int64()
    if pa.types.is_floating(found):
        return pa.float64()
    return pa.binary() if pa.types.is_binary(found) else pa.string()
