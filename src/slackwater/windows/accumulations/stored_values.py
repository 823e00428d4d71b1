"""Python values in the state: a closed set of types, as MessagePack, so that loading state runs no code.

A value of another type, such as a dataclass, is stored if its type is declared; msgspec then checks it
against the declaration. Everything else is refused before it gets into the state.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from slackwater.errors import InvalidArgument
from slackwater.time import instant, to_datetime

_PLAIN: Final = frozenset({type(None), bool, float, str, bytes})
_SMALLEST: Final = -(2**63)
_LARGEST: Final = 2**63 - 1
_ALLOWED: Final = (
    "use numbers, text, bytes, lists, tuples, sets, dicts, decimals, dates and times; or declare the type "
    "with accumulator_type=…: a dataclass, a msgspec.Struct, or a type such as tuple[int, Decimal]"
)


def store_value(value: Any, declared: Any = None) -> bytes:
    """Serialize a value, of its declared type or of the types that need no declaration.

    Raises:
        InvalidArgument: The value has another type.

    >>> load_value(store_value((1, {"a", "b"}, Decimal("1.50"))))[2]
    Decimal('1.50')
    >>> store_value(object())
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: accumulator = <class 'object'>: cannot be stored in the state; use \
numbers, text, bytes, lists, tuples, sets, dicts, decimals, dates and times; or declare the type with \
accumulator_type=…: a dataclass, a msgspec.Struct, or a type such as tuple[int, Decimal]
    """
    if declared is None:
        return _encoded(_outgoing(value))
    try:
        stored = msgspec.msgpack.encode(value)
        # A value that does not match would fail every later batch, when it is loaded.
        _decoder(declared).decode(stored)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
        raise InvalidArgument(
            "accumulator", type(value), f"is not a value of accumulator_type={declared}: {error}",
            fix="return values of that type, or declare another one",
        ) from error  # fmt: skip
    return stored


def load_value(stored: bytes, declared: Any = None) -> Any:
    """Load a value; raises `msgspec.MsgspecError` if it does not have the declared type.

    >>> load_value(store_value({1: date(2024, 1, 31)}))
    {1: datetime.date(2024, 1, 31)}
    >>> load_value(store_value((1, 2.5), tuple[int, float]), tuple[int, float])
    (1, 2.5)
    """
    return (_UNDECLARED if declared is None else _decoder(declared)).decode(stored)


def check_declaration(declared: Any) -> None:
    """Reject a type that msgspec cannot load.

    >>> check_declaration(tuple[int, float])
    >>> check_declaration(7)
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: accumulator_type = 7: is not a type that the state can store; write a \
type such as tuple[int, float], a dataclass or a msgspec.Struct
    """
    try:
        _decoder(declared)
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise InvalidArgument(
            "accumulator_type", declared, "is not a type that the state can store",
            fix="write a type such as tuple[int, float], a dataclass or a msgspec.Struct",
        ) from error  # fmt: skip


@lru_cache(maxsize=64)
def _decoder(declared: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(declared)


# ---- values without a declaration


def _outgoing(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN or (kind is int and _SMALLEST <= value <= _LARGEST):
        return value
    if kind is list:
        return [_outgoing(one) for one in value]
    if kind is dict and all(type(key) is str for key in value):
        return {key: _outgoing(one) for key, one in value.items()}
    for code, (known, parts, _) in _EXTENSIONS.items():
        if kind is known:
            return msgspec.msgpack.Ext(code, _encoded(_outgoing(parts(value))))
    raise InvalidArgument("accumulator", kind, "cannot be stored in the state", fix=_ALLOWED)


def _encoded(value: Any) -> bytes:
    return msgspec.msgpack.encode(value)


def _incoming(code: int, data: memoryview) -> Any:
    if code not in _EXTENSIONS:
        raise msgspec.ValidationError(f"unknown extension {code}")
    return _EXTENSIONS[code][2](_UNDECLARED.decode(data))


def _zone(zone: tzinfo | None) -> str | int | None:
    if zone is None:
        return None
    if isinstance(zone, ZoneInfo) and zone.key is not None:
        return zone.key
    offset = zone.utcoffset(None)
    if offset is None:
        raise InvalidArgument("accumulator", zone, "is a time zone that cannot be stored", fix="use ZoneInfo")
    return round(offset / timedelta(microseconds=1))


def _moment(value: datetime) -> list[Any]:
    # a local time is stored as if it were in UTC
    return [instant(value if value.tzinfo else value.replace(tzinfo=UTC)), _zone(value.tzinfo)]


def _from_moment(parts: list[Any]) -> datetime:
    at, zone = parts
    utc = to_datetime(at)
    if zone is None:
        return utc.replace(tzinfo=None)
    return utc.astimezone(ZoneInfo(zone) if isinstance(zone, str) else timezone(timedelta(microseconds=zone)))


_EXTENSIONS: Final[dict[int, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]]] = {
    1: (int, str, int),
    2: (tuple, list, tuple),
    3: (set, list, set),
    4: (frozenset, list, frozenset),
    5: (dict, lambda value: [list(item) for item in value.items()], dict),
    6: (Decimal, str, Decimal),
    7: (date, date.toordinal, date.fromordinal),
    8: (datetime, _moment, _from_moment),
    9: (time, time.isoformat, time.fromisoformat),
    10: (
        timedelta,
        lambda value: [value.days, value.seconds, value.microseconds],
        lambda parts: timedelta(*parts),
    ),
    11: (UUID, lambda value: value.bytes, lambda data: UUID(bytes=data)),
}
"""The types that MessagePack does not have, by the code of their extension: how they are taken apart and made
again from plain values. A code is never reused."""
_UNDECLARED: Final = msgspec.msgpack.Decoder(ext_hook=_incoming)
