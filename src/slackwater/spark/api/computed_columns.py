"""Columns that `key_by` and accumulations compute from expressions, in Spark and before the operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column

from slackwater.errors import InvalidArgument
from slackwater.spark.api.expression_sources import ProjectedSource, expression_name, is_reference
from slackwater.windows import ColumnarAccumulation
from slackwater.windows.computed_columns import ComputedColumn, column_name

if TYPE_CHECKING:
    from slackwater.spark.api.stream import Stream


def with_key_columns(stream: Stream, columns: Sequence[Any]) -> tuple[Stream, tuple[str, ...]]:
    """The stream with the key columns that are expressions, and the names of all key columns.

    Raises:
        InvalidArgument: An expression is invalid, or has the name of another column.
    """
    names: list[str] = []
    new: dict[str, Column] = {}
    for given in columns:
        if not isinstance(given, Column):
            names.append(given)
            continue
        name = _referenced(stream, given)
        if name is None:
            name = expression_name(stream.sources[0], "key_by", given)
            if any(name in source.available.names for source in stream.sources) or name in new:
                raise InvalidArgument(
                    "key_by",
                    str(given),
                    f"has the name of another column, {name!r}",
                    fix='give it another one with .alias("…"), or replace the column with with_columns first',
                )
            new[name] = given
        names.append(name)
    return _with_columns(stream, new, "key_by"), tuple(names)


def with_computed_columns(
    stream: Stream, accumulations: Mapping[str, ColumnarAccumulation]
) -> tuple[Stream, dict[str, ColumnarAccumulation]]:
    """The stream with the columns that accumulations compute, and accumulations that read them by name.

    Raises:
        InvalidArgument: An expression is invalid.
    """
    new: dict[str, Column] = {}
    plain: dict[str, ColumnarAccumulation] = {}
    for name, accumulation in accumulations.items():
        settings: Any = accumulation  # a dataclass, or a class of the user's
        names = {
            field.name: _column(stream, name, value, new)
            for field in (fields(settings) if is_dataclass(settings) else ())
            if isinstance(value := getattr(settings, field.name), ComputedColumn)
        }
        plain[name] = replace(settings, **names) if names else accumulation
    return _with_columns(stream, new, "agg"), plain


def _column(stream: Stream, argument: str, column: ComputedColumn, new: dict[str, Column]) -> str:
    """The name of the column that an accumulation reads; an expression is added to the new columns."""
    given = column.expression
    if not isinstance(given, Column):
        raise InvalidArgument(
            argument,
            given,
            "is neither a column name nor a Spark Column",
            fix='write F.col("price") * 2',
        )
    if (referenced := _referenced(stream, given)) is not None:
        return referenced
    for name, known in new.items():
        if known is given:
            return name
    taken = {*new, *(name for source in stream.sources for name in source.available.names)}
    name, number = str(column), 1
    while name in taken:
        number += 1
        name = f"{column} #{number}"
    new[name] = given
    return name


def _referenced(stream: Stream, column: Column) -> str | None:
    """The name of the column that an expression only refers to, as ``F.col("price")`` does; or None."""
    name = str(column_name(column))
    refers = all(
        name in source.available.names and is_reference(source, name, column) for source in stream.sources
    )
    return name if refers else None


def _with_columns(stream: Stream, new: Mapping[str, Column], argument: str) -> Stream:
    if not new:
        return stream
    sources = tuple(ProjectedSource.adding(source, new, argument=argument) for source in stream.sources)
    return replace(stream, sources=sources)
