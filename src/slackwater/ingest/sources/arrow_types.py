"""Arrow types of time columns, and the conversion of driver types to types that Spark supports."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.errors import InvalidArgument
from slackwater.ingest.axis.timezones import instant_of
from slackwater.ingest.axis.timezones import zone as zone_of
from slackwater.time import DAY

INSTANTS = pa.timestamp("us", tz="UTC")
"""The type of a time column after reading."""
_IN_CENTS: Final = ("money", "_money")
"""Types that the driver returns as integers of the smallest currency unit."""
_NAMED_ZONE: Final = r":\d\d.*(Z|[+-]\d\d(:?\d\d)?)$"
_LAST_RULES: Final = pa.scalar(datetime(2037, 1, 1), pa.timestamp("us"))  # noqa: DTZ001 - a wall clock
"""From here on Arrow does not apply DST rules."""
_LAST_YEAR: Final = pa.scalar(datetime(9999, 1, 1), pa.timestamp("us"))  # noqa: DTZ001 - a wall clock
_FIRST_DAY: Final = -2_440_588
"""Julian day 0: PostgreSQL has no earlier date, and the driver returns infinity as an earlier one."""
_DIGITS: Final = 38
"""The largest precision of a Spark decimal."""


def plain_type(given: pa.DataType) -> pa.DataType:
    """The Spark-compatible type for a type of a driver.

    >>> plain_type(pa.timestamp("ns", tz="Europe/Berlin")), plain_type(pa.large_string())
    (TimestampType(timestamp[us, tz=UTC]), DataType(string))
    """
    if isinstance(given, pa.UuidType):
        return pa.string()
    if isinstance(given, pa.BaseExtensionType):
        return plain_type(given.storage_type)
    if pa.types.is_list(given):
        return pa.list_(plain_type(given.value_type))
    if pa.types.is_timestamp(given):
        return INSTANTS if given.tz else pa.timestamp("us")
    if pa.types.is_time(given) or pa.types.is_null(given) or pa.types.is_large_string(given):
        return pa.string()
    if pa.types.is_unsigned_integer(given):
        return pa.int64()
    if pa.types.is_large_binary(given) or pa.types.is_fixed_size_binary(given):
        return pa.binary()
    return given


def plain_field(given: pa.Field) -> pa.DataType:
    """The Spark-compatible type of a PostgreSQL column: NUMERIC with precision is a decimal, otherwise text.

    >>> metadata = {"POSTGRESQL:type": "numeric", "POSTGRESQL:typmod": "589830"}
    >>> plain_field(pa.field("price", pa.string(), metadata=metadata))
    Decimal128Type(decimal128(9, 2))
    """
    metadata = {key.decode(): value.decode() for key, value in (given.metadata or {}).items()}
    if metadata.get("POSTGRESQL:type") == "numeric" and "POSTGRESQL:typmod" in metadata:
        digits = int(metadata["POSTGRESQL:typmod"]) - 4
        precision, scale = digits >> 16 & 0xFFFF, (digits & 0x7FF ^ 0x400) - 0x400
        if 0 <= scale <= precision <= _DIGITS:
            return pa.decimal128(precision, scale)
    return plain_type(given.type)


def foreign_type(given: pa.Field) -> str | None:
    """The PostgreSQL type of a column, or nested in it, that the driver cannot decode; None if there is none.

    >>> foreign_type(pa.field("price", pa.int64(), metadata={"POSTGRESQL:type": "money"}))
    'money'
    >>> foreign_type(pa.field("host", pa.list_(pa.opaque(pa.binary(), "inet", "PostgreSQL"))))
    'inet'
    """
    kind = given.type
    name = str((given.metadata or {}).get(b"POSTGRESQL:type", b""), "utf-8")
    if name in _IN_CENTS:
        return name
    if isinstance(kind, pa.OpaqueType):
        return str(kind.type_name) if pa.types.is_binary(kind.storage_type) else None
    within_it = [kind.field(number) for number in range(kind.num_fields)]
    return next((found for one in within_it if (found := foreign_type(one))), None)


def plain_column(column: pa.Array) -> pa.Array:
    """Convert the extension types of a driver to plain ones.

    >>> plain_column(pa.array([b"0" * 16], pa.uuid())).to_pylist()
    ['30303030-3030-3030-3030-303030303030']
    """
    if isinstance(column.type, pa.UuidType):
        return pa.array([None if value is None else str(value) for value in column.to_pylist()], pa.string())
    if isinstance(column, pa.ExtensionArray):
        return plain_column(column.storage)
    if pa.types.is_list(column.type) and isinstance(column.type.value_type, pa.BaseExtensionType):
        return pa.ListArray.from_arrays(column.offsets, plain_column(column.values), mask=column.is_null())
    return column


def in_utc(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert the instants of a batch to UTC; Spark returns them in the session timezone.

    >>> local = pa.record_batch({"at": pa.array([0], pa.timestamp("us", tz="Europe/Berlin"))})
    >>> in_utc(local).schema.types
    [TimestampType(timestamp[us, tz=UTC])]
    """
    schema = pa.schema([one.with_type(_utc_type(one.type)) for one in batch.schema])
    return batch if schema.equals(batch.schema) else batch.cast(schema)


def _utc_type(given: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(given) and given.tz is not None:
        return INSTANTS
    if pa.types.is_list(given):
        return pa.list_(given.value_field.with_type(_utc_type(given.value_type)))
    if pa.types.is_struct(given):
        return pa.struct([one.with_type(_utc_type(one.type)) for one in given.fields])
    return given


def instants(column: pa.Array, zone: str, name: str) -> pa.Array:
    """Convert a column to instants; times without a timezone are local times in ``zone``.

    >>> instants(pa.array(["2020-01-01 01:00:00"]), "Europe/Berlin", "at")[0].as_py().isoformat()
    '2020-01-01T00:00:00+00:00'
    """
    kind = column.type
    if pa.types.is_null(kind):
        return pa.nulls(len(column), INSTANTS)
    if pa.types.is_timestamp(kind) and kind.tz:
        return pc.cast(column, INSTANTS)
    try:
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            try:
                local = pc.cast(column, pa.timestamp("us"))
            except pa.ArrowInvalid:
                return pc.cast(column, INSTANTS)  # its times have timezones
        elif pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            local = pc.cast(column, pa.timestamp("us"))
        else:
            raise no_times(name, str(kind))
    except pa.ArrowInvalid as error:
        raise no_times(name, str(error)) from None
    placed = pc.cast(pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="latest"), INSTANTS)
    late = pc.and_(pc.greater_equal(local, _LAST_RULES), pc.less(local, _LAST_YEAR))
    if not pc.any(late).as_py():
        return placed
    clocks = pc.if_else(late, local, None).to_pylist()
    there = zone_of(zone)
    known = [None if clock is None else instant_of(clock, there) for clock in clocks]
    return pc.if_else(
        pc.fill_null(late, fill_value=False), pa.array(known, pa.int64()).cast(INSTANTS), placed
    )


def in_calendar(column: pa.Array) -> bool:
    """Whether a column has no infinity, which the driver returns as a time before the calendar.

    >>> in_calendar(pa.array([0, None], pa.date32())), in_calendar(pa.array([-(2**63)], pa.timestamp("us")))
    (True, False)
    """
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        day = 1 if pa.types.is_date32(kind) else DAY
        first = pc.min(column.view(f"int{kind.bit_width}")).as_py()
        return first is None or bool(first >= _FIRST_DAY * day)
    return True


def names_zones(column: pa.Array) -> bool:
    """Whether any of these texts is a time with a timezone.

    >>> names_zones(pa.array(["2020-01-01 00:00:00", "2020-01-01"]))
    False
    >>> names_zones(pa.array(["2020-01-01 00:00:00", "2020-01-01T00:00:00+01:00"]))
    True
    """
    return pc.any(pc.match_substring_regex(column, _NAMED_ZONE)).as_py() is True


def no_times(name: str, reason: str) -> InvalidArgument:
    """The error for a time column that does not contain times.

    >>> no_times("at", "it is a boolean").fix
    'convert it to a timestamp in ms.source.query'
    """
    fix = "convert it to a timestamp in ms.source.query"
    return InvalidArgument("ms.time.column", name, f"does not contain times: {reason}", fix=fix)


def within(column: pa.Array, low: int, high: int) -> pa.Array:
    """A mask of the instants in ``[low, high)``; false for null.

    >>> within(pa.array([0, 5, 10, None], INSTANTS), 5, 10).to_pylist()
    [False, True, False, False]
    """
    bounds = (pa.scalar(low, INSTANTS), pa.scalar(high, INSTANTS))
    inside = pc.and_(pc.greater_equal(column, bounds[0]), pc.less(column, bounds[1]))
    return pc.fill_null(inside, fill_value=False)
