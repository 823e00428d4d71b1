"""Casts that keep every value exactly, or report it.

Spark's casts, also those of ANSI mode, cut values silently: 1.9 becomes 1 in a column of integers, 1.999
becomes 2.00 in a decimal, 1e300 becomes infinity in a 32-bit float, a time becomes its date, a number counts
as seconds since 1970, and the text ``12:30`` counts as a time of today. Here the row of such a value gets a
rejection: a struct in the column `REJECTED`, which is null for all other rows. The task that stages the rows
fails with it, or stores the row as a dead letter.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, types
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from slackwater.errors import InvalidArgument
from slackwater.ingest.sources.spark_columns import REJECTED, Columns, column, columns_of
from slackwater.spark.versions import from_arrow_type

MICROSECOND_FORMATS: Final = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Options of ``to_json`` that keep all digits of a time."""

_LONGEST_VALUE: Final = 200
_INFINITY: Final = r"(?i)^\s*[+-]?inf(inity)?\s*$"
_DATE: Final = r"^\s*[+-]?\d{4,}-\d"
_FINER: Final = r"\.\d{6}\d*[1-9]"
"""A fraction of a second that microseconds cannot represent."""
_MOST_DIGITS: Final = 38
_FLOATS: Final = (types.FloatType, types.DoubleType)
_TIMES: Final = (types.TimestampType, types.TimestampNTZType)
_MOMENTS: Final = (*_TIMES, types.DateType)
_PARSING_OPTIONS: Final = (
    "dateformat", "timestampformat", "timestampntzformat", "locale", "mode",
    "nanvalue", "positiveinf", "negativeinf",
)  # fmt: skip

Test = Callable[[Column], Column]
"""Whether a cast would change a value; false or null if not."""


def cast_exactly(frame: DataFrame, wanted: Mapping[str, types.DataType]) -> DataFrame:
    """Cast columns of a frame; a row with a value that its type cannot represent exactly gets a rejection.

    Args:
        frame: The frame; it may have rejections already.
        wanted: The new types by column, which the frame has in this case.

    Returns:
        The frame with the columns in the same order, and with `REJECTED` at the end if a cast can fail.

    Raises:
        InvalidArgument: Numbers would become times.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> prices = spark.sql("SELECT explode(array(2.0D, 1.9D)) AS price")
    >>> for row in cast_exactly(prices, {"price": types.LongType()}).collect():
    ...     print(row.price, row.slackwater_rejected and row.slackwater_rejected.content)
    2 None
    1 {"price":1.9}
    """
    found = {field.name: field.dataType for field in frame.schema}
    names = [name for name in frame.columns if name != REJECTED]
    content = F.to_json(F.struct(*map(column, names)), {"ignoreNullFields": "false", **MICROSECOND_FORMATS})
    rejections = [column(REJECTED)] if REJECTED in found else []
    for name, kind in wanted.items():
        test = _test(found[name], kind, name)
        if test is not None:
            reason = f"column {name!r} has a value that cannot be cast to {kind.simpleString()} without loss"
            value = F.substring(column(name).cast("string"), 1, _LONGEST_VALUE)
            parts = {"reason": F.lit(reason), "value": value, "content": content}
            rejection = F.struct(*(part.alias(label) for label, part in parts.items()))
            rejections.append(F.when(test(column(name)), rejection))
    casts = [
        column(name).try_cast(wanted[name]).alias(name)
        if name in wanted and found[name] != wanted[name]
        else column(name)
        for name in names
    ]
    first = [F.coalesce(*rejections).alias(REJECTED)] if rejections else []
    return frame.select(*casts, *first)


def fitted(frame: DataFrame, wanted: Columns) -> DataFrame:
    """Select the ``wanted`` columns, cast exactly to their types; missing columns are null.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> import pyarrow as pa
    >>> fitted(spark.range(1), {"id": pa.string(), "name": pa.string()}).collect()
    [Row(id='0', name=None)]
    """
    found = columns_of(frame.schema)
    kinds = {name: from_arrow_type(kind) for name, kind in wanted.items()}
    cast = cast_exactly(
        frame, {name: kind for name, kind in kinds.items() if name in found and found[name] != wanted[name]}
    )
    chosen = (
        column(name) if name in found else F.lit(None).cast(kind).alias(name) for name, kind in kinds.items()
    )
    return cast.select(*chosen, *([column(REJECTED)] if REJECTED in cast.columns else []))


def as_text(kind: types.DataType) -> types.DataType:
    """The type in which a reader of text leaves values unchanged, to be cast afterwards.

    >>> as_text(types.ArrayType(types.LongType())).simpleString()
    'array<string>'
    """
    if isinstance(kind, types.ArrayType):
        return types.ArrayType(as_text(kind.elementType))
    if isinstance(kind, types.MapType):
        return types.MapType(types.StringType(), as_text(kind.valueType))
    if isinstance(kind, types.StructType):
        return types.StructType([types.StructField(each.name, as_text(each.dataType)) for each in kind])
    return kind if isinstance(kind, (types.BinaryType, types.VariantType)) else types.StringType()


def readable_type(kind: types.DataType, form: str, options: Mapping[str, object]) -> types.DataType:
    """The type in which a reader of files keeps what the check of a cast needs.

    A reader of text files rounds decimals and turns large numbers into infinity, so it returns text, unless
    an option says how values are to be parsed.

    >>> readable_type(types.DecimalType(9, 2), "csv", {}), readable_type(types.LongType(), "parquet", {})
    (StringType(), LongType())
    """
    parses = {name.lower() for name in options}.intersection(_PARSING_OPTIONS)
    return as_text(kind) if form in ("csv", "json") and not parses else kind


def not_a_time(name: str, kind: types.DataType) -> InvalidArgument:
    """The error for a column of numbers that is to become a time.

    >>> print(not_a_time("at", types.LongType()))
    column = 'at': has type bigint, and a number is not a time: its unit and origin are unknown; convert it \
to a timestamp in the source
    """
    reason = f"has type {kind.simpleString()}, and a number is not a time: its unit and origin are unknown"
    return InvalidArgument("column", name, reason, fix="convert it to a timestamp in the source")


# ---- whether a cast changes a value


def _test(found: types.DataType, wanted: types.DataType, name: str) -> Test | None:
    """The test for the values of a column; None if all values of one type fit the other."""
    nested = _nested_test(found, wanted, name)
    if nested is not None or _is_nested(found):
        return nested
    if isinstance(found, types.NumericType) and isinstance(wanted, _MOMENTS):
        raise not_a_time(name, found)
    if found == wanted or isinstance(found, types.NullType) or isinstance(wanted, types.StringType):
        return None
    if _is_wider(found, wanted):
        return None

    def test(value: Column) -> Column:
        cast = value.try_cast(wanted)
        changed = _changed(value, cast, found, wanted)
        failed = value.isNotNull() & cast.isNull()
        return failed if changed is None else failed | F.coalesce(changed, F.lit(col=False))

    return test


def _nested_test(found: types.DataType, wanted: types.DataType, name: str) -> Test | None:
    if isinstance(found, types.ArrayType) and isinstance(wanted, types.ArrayType):
        return _any_element(_test(found.elementType, wanted.elementType, name))
    if isinstance(found, types.MapType) and isinstance(wanted, types.MapType):
        keys = _any_element(_test(found.keyType, wanted.keyType, name))
        values = _any_element(_test(found.valueType, wanted.valueType, name))
        return _any_of(
            [
                *([] if keys is None else [lambda value: keys(F.map_keys(value))]),
                *([] if values is None else [lambda value: values(F.map_values(value))]),
            ]
        )
    if isinstance(found, types.StructType) and isinstance(wanted, types.StructType):
        if len(found) != len(wanted):
            return None  # Spark reports it
        return _any_of([
            _of_field(each.name, test)
            for each, other in zip(found, wanted, strict=True)
            if (test := _test(each.dataType, other.dataType, name)) is not None
        ])  # fmt: skip
    return None


def _any_element(test: Test | None) -> Test | None:
    if test is None:
        return None
    return lambda value: F.coalesce(F.exists(value, test), F.lit(col=False))


def _of_field(name: str, test: Test) -> Test:
    return lambda value: test(value.getField(name))


def _any_of(tests: Collection[Test]) -> Test | None:
    if not tests:
        return None

    def test(value: Column) -> Column:
        first, *others = (each(value) for each in tests)
        for other in others:
            first = first | other
        return first

    return test


def _is_nested(kind: types.DataType) -> bool:
    return isinstance(kind, (types.ArrayType, types.MapType, types.StructType))


_INTEGERS: Final = (types.ByteType, types.ShortType, types.IntegerType, types.LongType)


def _is_wider(found: types.DataType, wanted: types.DataType) -> bool:
    """Whether a type represents all values of another one."""
    if isinstance(found, _INTEGERS) and isinstance(wanted, _INTEGERS):
        return _INTEGERS.index(type(wanted)) >= _INTEGERS.index(type(found))
    if isinstance(found, types.FloatType):
        return isinstance(wanted, types.DoubleType)
    if isinstance(found, types.DecimalType) and isinstance(wanted, types.DecimalType):
        whole = wanted.precision - wanted.scale >= found.precision - found.scale
        return whole and wanted.scale >= found.scale
    return isinstance(found, (types.DateType, *_TIMES)) and isinstance(wanted, _TIMES)


def _changed(value: Column, cast: Column, found: types.DataType, wanted: types.DataType) -> Column | None:
    """Whether a cast that does not fail changes a value; None if it cannot."""
    if isinstance(found, types.StringType):
        return _changed_text(value, cast, wanted)
    if isinstance(wanted, _FLOATS) and isinstance(found, (*_FLOATS, types.DecimalType)):
        infinite = F.abs(cast) == F.lit(float("inf"))
        return infinite & ~(F.abs(value.try_cast("double")) == F.lit(float("inf")))
    if isinstance(found, types.DecimalType) and isinstance(wanted, types.DecimalType):
        return cast != value
    comparable = (types.NumericType, types.BooleanType, *_MOMENTS)
    if isinstance(found, comparable) and isinstance(wanted, comparable):
        back = cast.try_cast(found)
        return value.isNotNull() & (back.isNull() | (back != value))
    return None


def _changed_text(value: Column, cast: Column, wanted: types.DataType) -> Column | None:
    if isinstance(wanted, _FLOATS):
        return (F.abs(cast) == F.lit(float("inf"))) & ~value.rlike(_INFINITY)
    if isinstance(wanted, types.DecimalType):
        whole = wanted.precision - wanted.scale
        return value.try_cast(types.DecimalType(_MOST_DIGITS, _MOST_DIGITS - whole)) != cast
    if isinstance(wanted, _TIMES):
        return ~value.rlike(_DATE) | value.rlike(_FINER)
    if isinstance(wanted, types.DateType):
        return ~value.rlike(_DATE) | (value.try_cast("timestamp_ntz") != cast.cast("timestamp_ntz"))
    return None
