"""SQL text over rows that run in process, in a test: evaluated by Polars instead of Spark.

Only what both compute in the same way is accepted: operators, literals, and a few functions. Anything else
raises, so that a test never passes with another result than the query has.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, Final

import polars as pl
from polars.exceptions import PolarsError

from slackwater.errors import InvalidArgument

_FUNCTIONS: Final = frozenset({"abs", "coalesce", "lower", "nullif", "upper"})
"""Functions that Spark and Polars compute in the same way, also for null."""
_WORDS: Final = frozenset(
    {"and", "as", "between", "case", "else", "in", "is", "like", "not", "or", "then", "when"}
)
"""Words of SQL that may stand before a bracket."""
_CALL: Final = re.compile(r"(\w+)\s*\(")
_TEXT: Final = re.compile(r"'(?:[^']|'')*'")
_ALIAS: Final = re.compile(r"\bas\s+`?\w+`?\s*$", re.IGNORECASE)


@dataclass(frozen=True)
class TextExpression:
    """An expression over the columns of rows, as SQL text.

    >>> doubled = TextExpression.parse("with_columns", "price * 2")
    >>> pl.DataFrame({"price": [3]}).select(doubled.alias("twice").column).rows(named=True)
    [{'twice': 6}]
    >>> TextExpression.parse("filter", "price > rand()")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: filter = 'price > rand()': uses rand(), which only Spark computes; \
in a TestStream use operators, literals and abs(), coalesce(), lower(), nullif(), upper(), or add the column \
to the rows of the test
    """

    text: str
    column: pl.Expr = field(compare=False)

    @classmethod
    def parse(cls, argument: str, given: Any) -> TextExpression:
        """The expression in some text; raises if it is not text, or if Spark may compute another value."""
        if not isinstance(given, str):
            raise InvalidArgument(
                argument,
                str(given),
                "is a Spark Column, which only Spark can compute",
                fix='in a TestStream write column names and SQL text, as in "price > 3"',
            )
        called = {name.lower() for name in _CALL.findall(_TEXT.sub("''", given))}
        if unknown := sorted(called - _FUNCTIONS - _WORDS):
            known = ", ".join(f"{name}()" for name in sorted(_FUNCTIONS))
            raise InvalidArgument(
                argument,
                given,
                f"uses {unknown[0]}(), which only Spark computes",
                fix=f"in a TestStream use operators, literals and {known}, or add the column to the rows of "
                "the test",
            )
        try:
            return cls(given, pl.sql_expr(given))
        except PolarsError as error:
            raise _invalid(argument, given, error) from error

    @classmethod
    def reference(cls, name: str) -> TextExpression:
        """The column of this name."""
        return cls(name, pl.col(name))

    def alias(self, name: str) -> TextExpression:
        """The same with another name."""
        return replace(self, column=self.column.alias(name))

    def output(self, argument: str, rows: pl.DataFrame, *, named: bool) -> pl.Series:
        """The values for some rows; raises if a column does not exist, or if a name is needed and missing."""
        if named and self.text not in rows.columns and not _ALIAS.search(self.text):
            raise InvalidArgument(
                argument, self.text, "has no name", fix='give it one, as in "price * 2 as twice"'
            )
        try:
            return rows.select(self.column).to_series()
        except PolarsError as error:
            raise _invalid(argument, self.text, error) from error

    def __str__(self) -> str:
        return self.text


def _invalid(argument: str, text: str, error: Exception) -> InvalidArgument:
    return InvalidArgument(
        argument,
        text,
        f"is not an expression over the columns of the stream: {str(error).strip().splitlines()[0]}",
        fix='write SQL text over its columns, as in "price > 3"',
    )
