"""The sources behind `filter`, `select` and `with_columns`: Spark expressions over rows of another source.

The expressions run in the JVM, in the same stage as the columns that drive the operator, so no rows pass
through Python for them. Rows that are filtered out are marked as witnesses instead of being dropped, because
their event times still advance the watermark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import BooleanType, StructField, StructType

from slackwater.errors import InvalidArgument
from slackwater.spark.api.key_columns import check_free
from slackwater.spark.api.stream_inputs import DerivedSource, RowRequest, Source, quoted
from slackwater.spark.api.text_expressions import TextExpression
from slackwater.spark.internals import without_query_log
from slackwater.spark.versions import from_arrow_type
from slackwater.spark.wire.pane_schema import empty_frame
from slackwater.spark.wire.wire_columns import INVALID_REASON, TIME, WINDOW_BOUNDS, WITNESS

Expression = str | Column
"""A Spark Column, or SQL text."""


@dataclass(frozen=True)
class FilteredSource(DerivedSource):
    """The rows of another source for which a condition is true."""

    condition: Column | TextExpression
    inputs: tuple[str, ...]
    """The columns that the condition may read."""

    @classmethod
    def checked(cls, source: Source, condition: Expression) -> FilteredSource:
        """The filtered rows; raises if the condition is not a boolean expression over the columns."""
        column = _column(source, "filter", condition)
        resolved = _resolve(source, "filter", condition, column)
        if not isinstance(resolved.field.dataType, BooleanType):
            raise InvalidArgument(
                "filter",
                _text(condition),
                f"is of type {resolved.field.dataType.simpleString()}, not boolean",
                fix='write a condition, as in "price > 3"',
            )
        return cls(source, column, resolved.inputs)

    @property
    def schema(self) -> StructType:
        """The columns of the input rows."""
        return self.inner.schema

    @property
    def available(self) -> StructType:
        """The columns of the input rows that a user can name."""
        return self.inner.available

    def driven(self, request: RowRequest) -> tuple[DataFrame, list[Column]]:
        """All rows; those for which the condition is not true are witnesses."""
        needed = tuple(dict.fromkeys((*request.columns, *self.inputs)))
        rows, driving = chosen_rows(self.inner, replace(request, columns=needed))
        dropped = ~sql.coalesce(_on_spark(self.condition), sql.lit(0).cast("boolean"))
        if INVALID_REASON in driving:  # an invalid record is reported, whatever a filter finds in it
            dropped = dropped & quoted(INVALID_REASON).isNull()
        if WITNESS in driving:
            dropped = sql.col(WITNESS) | dropped
        return rows, [*(quoted(name) for name in driving if name != WITNESS), dropped.alias(WITNESS)]


@dataclass(frozen=True)
class Projection:
    """An output column: its expression, and the columns that the expression may read."""

    field: StructField
    column: Column | TextExpression
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class ProjectedSource(DerivedSource):
    """The rows of another source with other columns."""

    projections: tuple[Projection, ...]
    keeps_available: bool
    """Whether the columns that are available but not in the schema of the input stay available."""

    @classmethod
    def selecting(cls, source: Source, columns: Sequence[Expression]) -> ProjectedSource:
        """The rows with these columns only."""
        if not columns:
            raise InvalidArgument("select", columns, "is empty", fix='write select("auction", "price")')
        chosen: list[Projection] = []
        for given in columns:
            if isinstance(given, str) and given in source.available.names:
                chosen.append(_passed(source, "select", given))
                continue
            column = _column(source, "select", given)
            chosen.append(_resolve(source, "select", given, column))
        return cls(source, _distinct("select", chosen), keeps_available=False)

    @classmethod
    def adding(
        cls, source: Source, columns: Mapping[str, Expression], *, argument: str = "with_columns"
    ) -> ProjectedSource:
        """The rows with further columns; errors name ``argument``."""
        if not columns:
            raise InvalidArgument(argument, columns, "is empty", fix='write with_columns(twice="price * 2")')
        new: dict[str, Projection] = {}
        for name, given in columns.items():
            column = _column(source, argument, given).alias(_new_name(argument, name))
            new[name] = _resolve(source, argument, given, column)
        kept = [
            new.pop(name) if name in new else _passed(source, argument, name) for name in source.schema.names
        ]
        return cls(source, _distinct(argument, [*kept, *new.values()]), keeps_available=True)

    @property
    def schema(self) -> StructType:
        """The columns of the rows."""
        return StructType([one.field for one in self.projections])

    @property
    def available(self) -> StructType:
        """The same, with those that are available in the input and were not replaced."""
        hidden = self.inner.available.fields if self.keeps_available else []
        own = self.schema
        known = {*own.names, *self.inner.schema.names}
        return StructType([*own.fields, *(field for field in hidden if field.name not in known)])

    def driven(self, request: RowRequest) -> tuple[DataFrame, list[Column]]:
        """The rows with those of the columns that are needed."""
        needed, inputs = self.needed(request.columns)
        rows, driving = chosen_rows(self.inner, replace(request, columns=inputs))
        passed = [quoted(name) for name in (*driving, *self.inner.window_columns)]
        projected = rows.select(*passed, *(_on_spark(one.column).alias(one.field.name) for one in needed))
        return projected, [quoted(name) for name in driving]

    def needed(self, columns: Sequence[str]) -> tuple[list[Projection], tuple[str, ...]]:
        """How these columns are computed, and the columns of the input that they need."""
        by_name = {one.field.name: one for one in self.projections}
        needed = [by_name.get(name) or _passed(self.inner, "columns", name) for name in columns]
        return needed, tuple(dict.fromkeys(name for one in needed for name in one.inputs))


def expression_name(source: Source, argument: str, column: Column) -> str:
    """The name that Spark gives an expression over the columns of a source: its alias, or its text."""
    return _resolve(source, argument, column, column).field.name


def is_reference(source: Source, name: str, column: Column) -> bool:
    """Whether an expression whose text is the name of a column refers to it; a literal may have that text."""
    others = StructType([field for field in source.available.fields if field.name != name])
    try:
        _analyzed(source, others, column)
    except AnalysisException:
        return True
    return False


def chosen_rows(source: Source, request: RowRequest) -> tuple[DataFrame, list[str]]:
    """The rows with exactly these columns, their windows, and the columns that drive an operator by name."""
    rows, driving = source.driven(request)
    passed = [quoted(name) for name in (*source.window_columns, *request.columns)]
    chosen = rows.select(*driving, *passed)
    return chosen, chosen.columns[: len(driving)]


def _column(source: Source, argument: str, given: Expression) -> Column | TextExpression:
    if source.session is None:
        return TextExpression.parse(argument, given)
    if isinstance(given, str):
        try:
            with without_query_log():
                return sql.expr(given)
        except ParseException as error:
            raise _invalid(argument, given, error) from error
    if not isinstance(given, Column):
        raise InvalidArgument(
            argument, given, "is neither a Spark Column nor SQL text", fix='write F.col("price") > 3'
        )
    return given


def _passed(source: Source, argument: str, name: str) -> Projection:
    column = TextExpression.reference(name) if source.session is None else quoted(name)
    return Projection(source.field(argument, name), column, (name,))


def _on_spark(column: Column | TextExpression) -> Column:
    """The expression as a Spark Column, which it is unless the rows run in process."""
    if isinstance(column, TextExpression):
        raise TypeError(f"{column} is computed by Polars, not by Spark")
    return column


def _resolve(source: Source, argument: str, given: Expression, column: Column | TextExpression) -> Projection:
    """Analyze an expression over the columns of a source.

    Columns that go on only if they are named are read only if the expression does not resolve without them.
    """
    for name in source.schema.names:
        source.field(argument, name)  # raises if the name is ambiguous
    if isinstance(column, TextExpression):
        values = column.output(argument, empty_frame(source.available), named=argument == "select")
        kind = from_arrow_type(values.to_arrow(compat_level=pl.CompatLevel.oldest()).type)
        name = _new_name(argument, values.name)
        return Projection(StructField(name, kind), column, tuple(source.available.names))
    try:
        field, inputs = _analyzed(source, source.schema, column), source.schema
    except (AnalysisException, ParseException) as error:
        if source.available == source.schema:
            raise _invalid(argument, given, error) from error
        try:
            field, inputs = _analyzed(source, source.available, column), source.available
        except (AnalysisException, ParseException) as second:
            raise _invalid(argument, given, second) from second
    _new_name(argument, field.name)
    return Projection(field, column, tuple(inputs.names))


def _analyzed(source: Source, schema: StructType, column: Column) -> StructField:
    rows = source.spark.createDataFrame([], StructType([StructField(TIME, BooleanType()), *schema.fields]))
    # A condition cannot contain an aggregate, a window function or a generator such as explode: a row must
    # become exactly one row, and depend on no other, because the rows of an operator carry its watermarks.
    with without_query_log():
        rows.where(sql.struct(column).isNotNull()).schema  # noqa: B018 - analyzes it
        field, *others = rows.select(column).schema.fields
    if others:
        raise AnalysisException(message="it expands to several columns")
    return StructField(field.name, field.dataType)


def _invalid(argument: str, given: Expression, error: Exception) -> InvalidArgument:
    reason = str(error).strip().splitlines()[0]
    return InvalidArgument(
        argument,
        _text(given),
        f"is not an expression over the columns of the stream: {reason}",
        fix='name its columns as in F.col("price"), without aggregates, window functions or explode',
    )


def _new_name(argument: str, name: str) -> str:
    if not isinstance(name, str):
        raise InvalidArgument(argument, name, "is not a column name", fix="give a string")
    if not name or name in WINDOW_BOUNDS:
        raise InvalidArgument(argument, name, "is empty or reserved", fix="give the column another name")
    check_free(argument, name)
    return name


def _distinct(argument: str, projections: Sequence[Projection]) -> tuple[Projection, ...]:
    names = [one.field.name for one in projections]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise InvalidArgument(argument, name, "is used twice", fix="give one of the columns an alias")
    return tuple(projections)


def _text(given: Expression) -> str:
    return given if isinstance(given, str) else str(given)
