"""Validation of arguments that several classes of the package take: names, ids, times and durations."""

from __future__ import annotations

import re
from typing import Final

from slackwater.errors import InvalidArgument
from slackwater.time import DurationLike, InstantLike, check_int64, duration, instant

_STREAM_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}/[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_ID: Final = re.compile(r"[A-Za-z0-9.-]{1,250}")


def scope_and_name(name: str) -> tuple[str, str]:
    """Split the full name of a stream into its scope and its name.

    >>> scope_and_name("shop/bids")
    ('shop', 'bids')
    >>> scope_and_name("bids")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: stream = 'bids': is not a valid stream name; write scope and name, as \
in "shop/bids", with letters, digits, ".", "_" and "-"
    """
    if not _STREAM_NAME.fullmatch(name):
        fix = 'write scope and name, as in "shop/bids", with letters, digits, ".", "_" and "-"'
        raise InvalidArgument("stream", name, "is not a valid stream name", fix=fix)
    scope, _, stream = name.partition("/")
    return scope, stream


def check_id(identity: object, kind: str = "writer") -> str:
    """Return the id of a writer, reader, reader group or controller, if it is valid (N4).

    >>> check_id("host-7.eu")
    'host-7.eu'
    >>> check_id("host 7")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: writer = 'host 7': is not a valid writer id; use 1–250 letters, \
digits, '.' and '-'
    """
    if not isinstance(identity, str) or not _ID.fullmatch(identity):
        fix = "use 1–250 letters, digits, '.' and '-'"
        raise InvalidArgument(kind, identity, f"is not a valid {kind} id", fix=fix)
    return identity


def event_time(value: int | InstantLike) -> int:
    """Convert an event time to microseconds; an integer is microseconds since 1970-01-01T00:00:00Z.

    >>> event_time("1970-01-01T00:00:01Z"), event_time(7)
    (1000000, 7)
    >>> event_time(1714564800.5)
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: time = 1714564800.5: is a float; pass a datetime with tzinfo, a \
string like "2024-01-01T12:00:00Z", or an integer of microseconds since 1970-01-01T00:00:00Z
    """
    given: object = value
    if isinstance(given, float):
        fix = (
            'pass a datetime with tzinfo, a string like "2024-01-01T12:00:00Z", '
            "or an integer of microseconds since 1970-01-01T00:00:00Z"
        )
        raise InvalidArgument("time", value, "is a float", fix=fix)
    return check_int64(value, "time") if isinstance(value, int) else instant(value, name="time")


def positive_duration(value: DurationLike, name: str) -> int:
    """Convert a duration to microseconds, and reject zero and below.

    >>> positive_duration("1 second", "lease")
    1000000
    >>> positive_duration("0 seconds", "lease")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: lease = '0 seconds': must be greater than zero; write it like \
"10 seconds"
    """
    length = duration(value, name=name)
    if length <= 0:
        raise InvalidArgument(name, value, "must be greater than zero", fix='write it like "10 seconds"')
    return length


def check_positive(value: object, name: str, *, fix: str) -> int:
    """Return a 64-bit integer above zero, or raise.

    >>> check_positive(0, "rate", fix="give 1 or more")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: rate = 0: must be greater than zero; give 1 or more
    """
    number = check_int64(value, name)
    if number <= 0:
        raise InvalidArgument(name, value, "must be greater than zero", fix=fix)
    return number
