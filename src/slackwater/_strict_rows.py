"""Strict conversion of rows and columns to Arrow with a given schema: values are kept exactly, or rejected.

Arrow's own conversion cuts values silently: 1.9 becomes 1 in a column of integers, 1e300 becomes infinity in
a column of 32-bit floats, a datetime without a timezone counts as UTC, and an integer counts as a time. Here
each of these raises an `InvalidArgument` that names the row and the column. A float without a fractional part
is accepted as an integer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackwater._suggestions import available
from slackwater._utf8 import replace_invalid_bytes, unreadable_reason, unreadable_rows
from slackwater.errors import InvalidArgument

Convert = Callable[[Any], Any]
RowName = Callable[[int], str]

_UNFIT: Final = (pa.ArrowException, TypeError, ValueError, OverflowError)
_FLOATS: Final = (float, np.floating, Decimal)
_INTEGERS: Final = (int, np.integer)
_NUMBERS: Final = (*_FLOATS, *_INTEGERS)
_MICROSECONDS: Final = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}
_UNITS: Final = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_TEMPORAL: Final = (pa.types.is_timestamp, pa.types.is_date, pa.types.is_time, pa.types.is_duration)
_WHOLE: Final = "round it, or use double in the schema"
_WIDER: Final = "use double in the schema, or drop the value"
_ZONED: Final = "give it a timezone, as in datetime(2024, 1, 31, tzinfo=timezone.utc)"


class _Unfit(Exception):
    """A value does not fit its column: the reason as a predicate, and the fix."""

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fix = fix


def numbered(index: int) -> str:
    """The name of a row in errors, by its number.

    >>> numbered(0)
    'row 1'
    """
    return f"row {index + 1}"


def rows_to_table(
    rows: Sequence[Mapping[str, Any]],
    schema: pa.Schema,
    *,
    what: str,
    row_name: RowName = numbered,
) -> pa.Table:
    """Convert rows to a table; a column that a row does not have is null.

    Args:
        rows: the rows, as mappings from column names to values.
        schema: the columns of the table.
        what: what the rows are, for errors: ``"events"``, or the name of a function that returned them.
        row_name: returns what errors call the row with an index, which starts at 0.

    Returns:
        A table with this schema and one row for each of the rows.

    Raises:
        InvalidArgument: a value does not fit its column exactly, or a row has an unknown column.

    >>> schema = pa.schema([("price", pa.int64())])
    >>> rows_to_table([{"price": 3}, {"price": 4.0}, {}], schema, what="events")["price"].to_pylist()
    [3, 4, None]
    >>> rows_to_table([{"price": 3}, {"price": 1.9}], schema, what="events")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: events = 1.9: row 2, column 'price' of type int64: has a fractional \
part; round it, or use double in the schema
    """
    names = set(schema.names)
    for index, row in enumerate(rows):
        if not row.keys() <= names:
            unknown = next(name for name in row if name not in names)
            raise InvalidArgument(
                what,
                unknown,
                f"{row_name(index)}: unknown column",
                fix=available(unknown, schema.names),
            )
    columns = [
        to_array([row.get(field.name) for row in rows], field, what=what, row_name=row_name)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def to_array(values: Sequence[Any], field: pa.Field, *, what: str, row_name: RowName = numbered) -> pa.Array:
    """Convert the values of one column; see `rows_to_table`.

    >>> to_array([0.5, 1e300], pa.field("load", pa.float32()), what="events")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: events = 1e+300: row 2, column 'load' of type float: is too large; \
use double in the schema, or drop the value
    """
    try:
        array = _array(values, field)
    except (_Unfit, *_UNFIT):
        for index, value in enumerate(values):
            try:
                _array([value], field)
            except (_Unfit, *_UNFIT) as error:
                raise _error(what, value, f"{row_name(index)}, ", field, error) from None
        raise
    return array


def check_value(value: Any, field: pa.Field, *, what: str) -> None:
    """Raise unless a single value fits a column exactly.

    >>> check_value(None, pa.field("price", pa.int64(), nullable=False), what="event")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: event = None: column 'price' of type int64: is null, but the column \
is not nullable; give a value
    """
    try:
        _array([value], field)
    except (_Unfit, *_UNFIT) as error:
        raise _error(what, value, "", field, error) from None


def table_to_schema(table: pa.Table, schema: pa.Schema, *, what: str) -> pa.Table:
    """Cast the columns of a table to those of a schema; the names must be the same.

    Args:
        table: columns of any types.
        schema: the columns to cast to.
        what: what the rows are, for errors.

    Returns:
        The table with the columns of the schema, in its order.

    Raises:
        InvalidArgument: a value does not fit exactly, or a time would be guessed from another type.

    >>> table = pa.table({"price": [3.0, 4.0], "shop": ["a", "b"]})
    >>> schema = pa.schema([("shop", pa.string()), ("price", pa.int64())])
    >>> table_to_schema(table, schema, what="events")["price"].to_pylist()
    [3, 4]
    """
    columns = [_cast(table.column(field.name), field, what) for field in schema]
    made = pa.Table.from_arrays(columns, schema=schema)
    first = 0
    for batch in made.to_batches():
        for row in unreadable_rows(batch)[:1]:
            shown = replace_invalid_bytes(batch.slice(row, 1)).to_pylist()[0]
            reason = f"{numbered(first + row)}, {unreadable_reason(batch, row)}"
            raise InvalidArgument(what, shown, reason, fix="decode it, or use binary in the schema")
        first += batch.num_rows
    return made


# ---- values


def _array(values: Sequence[Any], field: pa.Field) -> pa.Array:
    convert = _converter(field.type)
    if convert is not None and not _is_plain(values, field.type):
        values = [None if value is None else convert(value) for value in values]
    array = pa.array(values, field.type)
    if array.null_count and not field.nullable:
        raise _Unfit("is null, but the column is not nullable", "give a value")
    return array


def _is_plain(values: Sequence[Any], kind: pa.DataType) -> bool:
    """Whether all values have Python types that Arrow converts exactly, or rejects."""
    found = set(map(type, values)) - {type(None)}
    if pa.types.is_integer(kind):
        return found <= {int, bool}
    if kind == pa.float64():
        return found <= {float, int, bool}
    if kind == pa.date32():
        return found <= {date}
    return not found


def _converter(kind: pa.DataType) -> Convert | None:
    """The function that checks a value of a type and returns it; None if Arrow's own check is exact."""
    found: Convert | None = None
    if pa.types.is_integer(kind):
        found = _whole
    elif pa.types.is_floating(kind):
        limit = float(np.finfo(kind.to_pandas_dtype()).max)
        found = partial(_small, limit=limit)
    elif pa.types.is_timestamp(kind):
        found = partial(_timestamp, unit=kind.unit, zoned=kind.tz is not None)
    elif pa.types.is_date(kind):
        found = _day
    elif pa.types.is_time(kind):
        found = partial(_time, unit=kind.unit)
    elif pa.types.is_duration(kind):
        found = partial(_duration, unit=kind.unit)
    elif pa.types.is_dictionary(kind):
        found = _converter(kind.value_type)
    elif pa.types.is_struct(kind):
        found = partial(_struct, fields={each.name: _converter(each.type) for each in kind})
    elif pa.types.is_map(kind):
        found = partial(_map, keys=_converter(kind.key_type), items=_converter(kind.item_type))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        found = partial(_list, items=_converter(kind.value_type))
    return found


def _converted(value: Any, convert: Convert | None) -> Any:
    return value if value is None or convert is None else convert(value)


def _whole(value: Any) -> Any:
    if not isinstance(value, _FLOATS):
        return value
    if not np.isfinite(float(value)):
        raise _Unfit("is not an integer", _WIDER)
    if value != int(value):
        raise _Unfit("has a fractional part", _WHOLE)
    return int(value)


def _small(value: Any, *, limit: float) -> Any:
    if isinstance(value, _NUMBERS) and limit < abs(cast("float", value)) < float("inf"):
        raise _Unfit("is too large", _WIDER)
    return float(value) if isinstance(value, Decimal) else value


def _timestamp(value: Any, *, unit: str, zoned: bool) -> Any:
    if isinstance(value, np.datetime64):
        if zoned:
            raise _Unfit("has no timezone", _ZONED)
        return value
    if isinstance(value, _NUMBERS):
        raise _Unfit("is a number, whose unit and origin are unknown", _ZONED if zoned else "give a datetime")
    if not isinstance(value, datetime):
        raise _Unfit("is not a datetime", _ZONED if zoned else "give a datetime")
    if zoned and value.utcoffset() is None:
        raise _Unfit("has no timezone", _ZONED)
    if not zoned and value.utcoffset() is not None:
        raise _Unfit("has a timezone, which the column does not store", "use timestamp in the schema")
    _check_unit(value.microsecond, getattr(value, "nanosecond", 0), unit)
    return value


def _day(value: Any) -> Any:
    if isinstance(value, datetime) or not isinstance(value, date):
        raise _Unfit("is not a date", "give a date, as in date(2024, 1, 31)")
    return value


def _time(value: Any, *, unit: str) -> Any:
    if not isinstance(value, time):
        raise _Unfit("is not a time of day", "give a time, as in time(12, 30)")
    _check_unit(value.microsecond, 0, unit)
    return value


def _duration(value: Any, *, unit: str) -> Any:
    if isinstance(value, np.timedelta64):
        return value
    if not isinstance(value, timedelta):
        raise _Unfit("is not a duration", "give a timedelta, as in timedelta(seconds=10)")
    _check_unit(value.microseconds, getattr(value, "nanoseconds", 0), unit)
    return value


def _check_unit(microseconds: int, nanoseconds: int, unit: str) -> None:
    if microseconds % _MICROSECONDS[unit] or (nanoseconds and unit != "ns"):
        raise _Unfit(
            f"is not a whole number of {_UNITS[unit]}", "round it, or use a finer unit in the schema"
        )


def _struct(value: Any, *, fields: Mapping[str, Convert | None]) -> Any:
    if not isinstance(value, Mapping):
        return value
    if unknown := [name for name in value if name not in fields]:
        raise _Unfit(f"has an unknown field {unknown[0]!r}", available(unknown[0], fields))
    return {name: _converted(each, fields[name]) for name, each in value.items()}


def _map(value: Any, *, keys: Convert | None, items: Convert | None) -> Any:
    pairs = value.items() if isinstance(value, Mapping) else value
    return [(_converted(key, keys), _converted(item, items)) for key, item in pairs]


def _list(value: Any, *, items: Convert | None) -> Any:
    if items is None or isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        return value
    return [_converted(item, items) for item in value]


# ---- columns


def _cast(column: pa.ChunkedArray, field: pa.Field, what: str) -> pa.ChunkedArray:
    """Cast a column; one whose type has to be interpreted is rejected as a whole."""
    if column.type == field.type:
        made = column
    elif column.null_count == len(column):  # the type of a column without values was only a guess
        made = pa.chunked_array([pa.nulls(len(column), field.type)])
    elif _is_flat(field.type) and _is_flat(column.type):
        made = _cast_flat(column, field, what)
    else:
        made = to_array(column.to_pylist(maps_as_pydicts="strict"), field, what=what)
    if made.null_count and not field.nullable:
        raise InvalidArgument(
            what, None, f"column {field.name!r} has nulls, but is not nullable", fix="fill in a value"
        )
    return made


def _cast_flat(column: pa.ChunkedArray, field: pa.Field, what: str) -> pa.ChunkedArray:
    if pa.types.is_temporal(field.type) or pa.types.is_temporal(column.type):
        same = any(each(column.type) and each(field.type) for each in _TEMPORAL)
        if not same or (pa.types.is_timestamp(field.type) and bool(column.type.tz) != bool(field.type.tz)):
            fix = _ZONED if getattr(field.type, "tz", None) else f"give a column of type {field.type}"
            reason = f"column {field.name!r} of type {field.type}: cannot be made from this type"
            raise InvalidArgument(what, str(column.type), reason, fix=fix)
    try:
        made = column.cast(field.type)
        if not pa.types.is_floating(field.type) or pc.sum(pc.is_inf(made)).as_py() in (None, 0):
            return made
    except _UNFIT:
        pass
    # The slow way finds the row, and accepts values that Arrow cannot cast as a column.
    return pa.chunked_array([to_array(column.to_pylist(), field, what=what)])


def _is_flat(kind: pa.DataType) -> bool:
    return not pa.types.is_nested(kind) and not pa.types.is_dictionary(kind)


def _error(what: str, value: Any, where: str, field: pa.Field, error: Exception) -> InvalidArgument:
    reason, fix = str(error), f"give a value of type {field.type}"
    if isinstance(error, _Unfit):
        reason, fix = error.reason, error.fix
    return InvalidArgument(
        what, value, f"{where}column {field.name!r} of type {field.type}: {reason}", fix=fix
    )
