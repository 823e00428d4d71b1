"""Columns that a query engine computes from an expression, such as a Spark Column, before the operator."""

from __future__ import annotations

import re
from typing import Any, Final, Protocol, runtime_checkable


@runtime_checkable
class ColumnExpression(Protocol):
    """An expression of a query engine that computes a column: a Spark Column, and not one of Polars.

    This package does not import Spark, so the two methods stand for the class.

    >>> import polars as pl
    >>> isinstance(pl.col("price"), ColumnExpression), isinstance("price", ColumnExpression)
    (False, False)
    """

    def alias(self, *names: str) -> Any:
        """The same expression under another name."""

    def isNotNull(self) -> Any:  # noqa: N802 - the name in Spark
        """Whether the value is not null."""


class ComputedColumn(str):
    """The name of a column that an expression computes: the text of the expression.

    A stream replaces it by a column of its rows, because an operator reads columns by name only.
    """

    __slots__ = ("expression",)

    expression: ColumnExpression


_SPARK_TEXT: Final = re.compile(r"Column<'(.*)'>", re.DOTALL)


def column_name(column: str | ColumnExpression) -> str:
    """The column that an accumulation reads: a name, or an expression under the name of its text.

    >>> column_name("price")
    'price'
    >>> from pyspark.sql.connect.functions import col
    >>> name = column_name(col("price") * 2)
    >>> "price" in name, name.expression is not None
    (True, True)
    """
    if not isinstance(column, ColumnExpression):
        return column  # the accumulation raises if it is not text
    text = str(column)
    written = _SPARK_TEXT.fullmatch(text)
    name = ComputedColumn(text if written is None else written[1])
    name.expression = column
    return name
