"""Columns by their names: which one is meant, and whether it can be a key.

Spark finds out late, and far from the line that named the column, that a name fits two of them or that
values of a type cannot be told apart. Here it is found out where the column is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.errors import ParseException
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
    VariantType,
    YearMonthIntervalType,
)

from slackwater.errors import InvalidArgument

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_named(spark: SparkSession, names: Sequence[str], argument: str, name: str) -> None:
    """Refuse a name that no column has, or that several have.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> check_named(spark, ["price", "auction"], "key_by", "auction")
    >>> check_named(spark, ["at", "At"], "key_by", "at")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: key_by = 'at': fits several columns (at, At); rename all but one
    """
    if not isinstance(name, str):
        raise InvalidArgument(
            argument, name, "is not the name of a column", fix="name one; make it with withColumn before"
        )
    if name not in names:
        raise InvalidArgument(
            argument, name, "is not a column of the input", fix=f"use one of {', '.join(names)}"
        )
    alike = [other for other in names if other.lower() == name.lower()]
    if len(alike) > 1 and spark.conf.get("spark.sql.caseSensitive", "false") == "true":
        alike = [other for other in alike if other == name]
    if len(alike) > 1:
        raise InvalidArgument(
            argument, name, f"fits several columns ({', '.join(alike)})", fix="rename all but one"
        )


def schema_of(schema: object) -> StructType:
    """The columns that a function gives, as a StructType or as text.

    >>> schema_of(5)
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: schema = 5: names no columns; write "rate double, currency string"
    """
    fix = 'write "rate double, currency string"'
    try:
        made = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    except ParseException as error:
        reason = str(error).strip().splitlines()[0]
        raise InvalidArgument("schema", schema, f"cannot be read: {reason}", fix=fix) from error
    if not isinstance(made, StructType):
        raise InvalidArgument("schema", schema, "names no columns", fix=fix)
    return made


def check_key(field: StructField) -> None:
    """Refuse a column whose values cannot be told apart in the same way everywhere.

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
            # Under another collation different texts are equal for Spark, but for nobody else.
            return kind.isUTF8BinaryCollation()
    return not isinstance(kind, MapType | VariantType | YearMonthIntervalType | CalendarIntervalType)
