"""Checks of column names, key types and schemas that a user gives.

Spark reports an ambiguous name or an unsupported key type late and far from the line that named the column.
These checks report it on that line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, cast

from pyspark.errors import ParseException, PySparkRuntimeError
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    CalendarIntervalType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
    YearMonthIntervalType,
)

from slackwater._suggestions import available
from slackwater.errors import InvalidArgument
from slackwater.spark.wire.wire_columns import is_reserved

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COLUMN: Final = re.compile(r"\s*`?(?P<name>\w+)`?\s+(?P<kind>\w+)\s*")
_PLAIN_TYPES: Final[dict[str, DataType]] = {
    "bigint": LongType(),
    "int": IntegerType(),
    "smallint": ShortType(),
    "double": DoubleType(),
    "float": FloatType(),
    "string": StringType(),
    "boolean": BooleanType(),
    "timestamp": TimestampType(),
    "date": DateType(),
    "binary": BinaryType(),
}


def check_named(spark: SparkSession | None, names: Sequence[str], argument: str, name: str) -> None:
    """Raise if no column, or more than one, has this name.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> check_named(spark, ["price", "auction"], "key_by", "auction")
    >>> check_named(spark, ["at", "At"], "key_by", "at")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: key_by = 'at': is ambiguous: it matches the columns at, At; rename \
all but one
    """
    if not isinstance(name, str):
        raise InvalidArgument(
            argument, name, "is not a column name", fix="give a name; use withColumn to add a computed column"
        )
    if name not in names:
        raise InvalidArgument(argument, name, "column not found", fix=available(name, names))
    alike = _alike(spark, names, name)
    if len(alike) > 1:
        raise InvalidArgument(
            argument,
            name,
            f"is ambiguous: it matches the columns {', '.join(alike)}",
            fix="rename all but one",
        )


def check_distinct(spark: SparkSession | None, names: Sequence[str]) -> None:
    """Raise if two output columns of an operator have the same name in Spark.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> check_distinct(spark, ["price", "Price"])
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: output = ['price', 'Price']: Spark ignores case in names, so \
these columns are ambiguous; rename all but one before the operator
    """
    if len({name.lower() for name in names}) == len(names):
        return
    for name in names:
        alike = _alike(spark, names, name)
        if len(alike) > 1:
            raise InvalidArgument(
                "output",
                alike,
                "Spark ignores case in names, so these columns are ambiguous",
                fix="rename all but one before the operator",
            )


def _alike(spark: SparkSession | None, names: Sequence[str], name: str) -> list[str]:
    """The names that Spark treats as equal; without a session, by its default settings."""
    alike = [other for other in names if other.lower() == name.lower()]
    if len(alike) > 1 and spark is not None and spark.conf.get("spark.sql.caseSensitive", "false") == "true":
        return [other for other in alike if other == name]
    return alike


def check_free(argument: str, name: str) -> None:
    """Raise if a column name is used internally.

    >>> check_free("key_by", "event:time")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: key_by = 'event:time': is a reserved name: event:, header: and apply: \
are prefixes of internal columns; rename the column
    """
    if is_reserved(name):
        raise InvalidArgument(
            argument,
            name,
            "is a reserved name: event:, header: and apply: are prefixes of internal columns",
            fix="rename the column",
        )


def column_names(argument: str, names: object) -> tuple[str, ...]:
    """The names in a list of column names; a string is one name.

    >>> column_names("on", "auction"), column_names("on", ["auction", "site"])
    (('auction',), ('auction', 'site'))
    >>> column_names("on", None)
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: on = None: is not a list of column names; write on=["auction"]
    """
    if isinstance(names, str):
        return (names,)
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise InvalidArgument(
            argument, names, "is not a list of column names", fix=f'write {argument}=["auction"]'
        )
    return tuple(names)


def parse_schema(schema: object, argument: str = "schema") -> StructType:
    """Convert a schema that a user gives: a StructType, or a DDL string; errors name ``argument``.

    >>> parse_schema(5)
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: schema = 5: is neither a StructType nor a DDL string; write \
schema="rate double, currency string"
    """
    fix = f'write {argument}="rate double, currency string"'
    try:
        parsed = _from_ddl(schema) if isinstance(schema, str) else schema
    except ParseException as error:
        reason = str(error).strip().splitlines()[0]
        raise InvalidArgument(argument, schema, f"cannot be parsed: {reason}", fix=fix) from error
    if not isinstance(parsed, StructType):
        raise InvalidArgument(argument, schema, "is neither a StructType nor a DDL string", fix=fix)
    return parsed


def _from_ddl(schema: str) -> StructType:
    """Parse a DDL string with Spark's own parser; without a Spark session, only columns of plain types."""
    try:
        parsed = StructType.fromDDL(schema)
    except PySparkRuntimeError as error:
        columns = [_COLUMN.fullmatch(part) for part in schema.split(",")]
        found = [(one["name"], _PLAIN_TYPES.get(one["kind"].lower())) for one in columns if one]
        kinds = [StructField(name, kind) for name, kind in found if kind is not None]
        if len(kinds) < len(columns):
            raise InvalidArgument(
                "schema",
                schema,
                f"has other types than {', '.join(_PLAIN_TYPES)}, which need a Spark session to be parsed",
                fix="pass a StructType",
            ) from error
        return StructType(kinds)
    return cast(StructType, parsed)


def check_key(field: StructField) -> None:
    """Raise if a column has a type whose values cannot be compared the same way in Spark and in Polars.

    >>> check_key(StructField("tags", MapType(StringType(), StringType())))
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: key_by = 'tags': is of type map<string,string>, which cannot be a \
key; cast it to another type
    """
    if not _is_key(field.dataType):
        raise InvalidArgument(
            "key_by",
            field.name,
            f"is of type {field.dataType.simpleString()}, which cannot be a key",
            fix="cast it to another type",
        )


def _is_key(kind: DataType) -> bool:
    match kind:
        case StructType():
            return all(_is_key(field.dataType) for field in kind)
        case ArrayType():
            return _is_key(kind.elementType)
        case StringType():
            # Under other collations Spark treats different strings as equal, and Polars does not.
            return kind.isUTF8BinaryCollation()
    return not isinstance(kind, MapType | VariantType | YearMonthIntervalType | CalendarIntervalType)
