"""Table and column names: validation, and quoting for SQL text."""

from __future__ import annotations

from typing import Final

from slackwater.errors import InvalidArgument

MAX_IDENTIFIER_BYTES: Final = 63
"""PostgreSQL truncates longer names."""


def check_identifier(what: str, name: str) -> None:
    """Reject a name that is not a plain identifier; ``what`` names the parameter in the error.

    >>> check_identifier("column", "price")
    >>> check_identifier("column", "price; DROP TABLE orders")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: column = 'price; DROP TABLE orders': is not a plain identifier; use \
at most 63 bytes of letters, digits and underscores, not starting with a digit
    """
    if not name.isidentifier() or len(name.encode()) > MAX_IDENTIFIER_BYTES:
        raise InvalidArgument(
            what, name, "is not a plain identifier",
            fix=f"use at most {MAX_IDENTIFIER_BYTES} bytes of letters, digits and underscores, "
            f"not starting with a digit",
        )  # fmt: skip


def split_table_name(parameter: str, table: str) -> tuple[str | None, str]:
    """Split ``schema.table`` into schema and table; the schema is None if the name has no dot.

    >>> split_table_name("table", "sales.orders"), split_table_name("table", "orders")
    (('sales', 'orders'), (None, 'orders'))
    >>> split_table_name("table", "shop.sales.orders")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: table = 'shop.sales.orders': has more than one dot; write table or \
schema.table
    """
    if table.count(".") > 1:
        raise InvalidArgument(parameter, table, "has more than one dot", fix="write table or schema.table")
    schema, dot, name = table.rpartition(".")
    return schema if dot else None, name


def quote_identifier(name: str) -> str:
    """Quote one name, which may contain dots and quotes, as PostgreSQL, SQLite and Delta Lake do.

    >>> quote_identifier('a"b')
    '"a""b"'
    """
    if not name or "\0" in name:
        reason = "is empty" if not name else "contains a zero byte"
        raise InvalidArgument("name", name, reason, fix="rename the column or table")
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def quote_table(table: str) -> str:
    """Quote a table name, each part between dots separately.

    >>> quote_table("sales.orders")
    '"sales"."orders"'
    """
    return ".".join(quote_identifier(part) for part in table.split("."))
