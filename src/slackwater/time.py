"""Instants, durations and ranges as integer microseconds in UTC.

Inside Slackwater a point in time is an ``int``: microseconds since 1970-01-01T00:00:00Z. Integers compare
exactly, survive every serialization and need no timezone. Only this module converts between these integers
and the strings, ``datetime`` and ``timedelta`` values of users, and only this module reads the wall clock.
"""

from __future__ import annotations

import operator
import re
import time as _time
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final

from slackwater._time_text import EPOCH, HIGHEST, LOWEST, instant_text
from slackwater.errors import InvalidArgument, InvalidDuration, InvalidInstant

MICROSECOND: Final = 1
MILLISECOND: Final = 1_000
SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
WEEK: Final = 7 * DAY

BEGINNING_OF_TIME: Final = LOWEST
"""The lowest instant that fits into 64 bits."""
END_OF_TIME: Final = HIGHEST
"""The watermark of an input that has ended: no rows follow, so every window is complete."""

DurationLike = str | timedelta
"""A duration: ``"10 seconds"``, ``"PT10S"`` or ``timedelta(seconds=10)``."""
InstantLike = str | datetime
"""An instant: an ISO 8601 string with a timezone, or an aware ``datetime``."""

_MICRO: Final = timedelta(microseconds=1)

_UNITS: Final = {
    "microsecond": MICROSECOND,
    "millisecond": MILLISECOND,
    "second": SECOND,
    "minute": MINUTE,
    "hour": HOUR,
    "day": DAY,
    "week": WEEK,
}
_SHORT_UNITS: Final = {
    "us": MICROSECOND,
    "ms": MILLISECOND,
    "s": SECOND,
    "min": MINUTE,
    "h": HOUR,
    "d": DAY,
}
_SPARK_PART: Final = re.compile(r"\s*([+-]?)\s*(\d+)(?:\.(\d+))?\s*([a-z]+)\s*", re.IGNORECASE | re.ASCII)
_ISO_NUMBER: Final = r"([+-]?)(\d+)(?:[.,](\d+))?"
_ISO: Final = re.compile(
    rf"([+-]?)P(?:{_ISO_NUMBER}W)?(?:{_ISO_NUMBER}D)?(?:T(?:{_ISO_NUMBER}H)?(?:{_ISO_NUMBER}M)?(?:{_ISO_NUMBER}S)?)?",
    re.IGNORECASE | re.ASCII,
)
_DURATION_FIX: Final = 'write it like "10 seconds", "1 hour 30 minutes", "PT10S" or timedelta(seconds=10)'
_LONGEST_TEXT: Final = 200
_CALENDAR_FIX: Final = 'write days ("30 days"), or use a calendar window'


def now() -> int:
    """Return the wall-clock time as an instant.

    This is the only function of Slackwater that reads the clock. All others take the time as an argument.

    >>> now() > instant("2024-01-01T00:00:00Z")
    True
    """
    return _time.time_ns() // 1_000


def instant(value: InstantLike, *, name: str = "instant") -> int:
    """Convert a point in time to microseconds since the epoch.

    Args:
        value: An ISO 8601 string with a timezone, or an aware ``datetime``.
        name: The name of the parameter, for the error message.

    Returns:
        Microseconds since 1970-01-01T00:00:00Z.

    Raises:
        InvalidInstant: The value is not a date and time, or has no timezone. A timezone is never guessed.

    >>> import slackwater as sw
    >>> sw.instant("1970-01-01T00:00:10Z")
    10000000
    >>> sw.instant("1970-01-01T01:00:00+01:00")
    0
    >>> sw.instant("2024-01-01")
    Traceback (most recent call last):
    slackwater.errors.InvalidInstant: instant = '2024-01-01': has no timezone; add it: "2024-01-01T00:00:00Z"
    """
    moment: object = value
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value.strip())
        except ValueError:
            raise InvalidInstant(
                name, value, "is not an ISO 8601 date and time", fix='write it like "2024-01-01T12:00:00Z"'
            ) from None
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise InvalidInstant(name, value, "has no timezone", fix=f'add it: "{moment.isoformat()}Z"')
        return (moment - EPOCH) // _MICRO
    fix = 'pass a datetime with tzinfo, or a string like "2024-01-01T12:00:00Z"'
    kind = "a date without a time" if isinstance(moment, date) else f"of type {type(moment).__name__}"
    raise InvalidInstant(name, value, f"is {kind}, not a point in time", fix=fix)


def to_datetime(value: int) -> datetime:
    """Convert an instant to an aware ``datetime`` in UTC.

    Args:
        value: Microseconds since 1970-01-01T00:00:00Z.

    Returns:
        The same point in time as a ``datetime`` with ``tzinfo=UTC``.

    Raises:
        InvalidInstant: The instant is outside the years 1 to 9999, which ``datetime`` cannot represent.

    >>> import slackwater as sw
    >>> sw.to_datetime(10_000_000).isoformat()
    '1970-01-01T00:00:10+00:00'
    """
    try:
        return EPOCH + timedelta(microseconds=value)
    except OverflowError:
        raise InvalidInstant(
            "instant", value, "is outside the years 1 to 9999", fix="use format_instant() to print it"
        ) from None


def format_instant(value: int | None) -> str:
    """Format an instant as ISO 8601 in UTC.

    Args:
        value: Microseconds since the epoch, or None.

    Returns:
        The ISO 8601 text; ``"unknown"`` for None, ``"beginning of time"`` and ``"end of time"`` for the
        bounds of 64-bit time.

    >>> import slackwater as sw
    >>> sw.format_instant(10_500_000)
    '1970-01-01T00:00:10.500000Z'
    >>> sw.format_instant(sw.END_OF_TIME)
    'end of time'
    >>> sw.format_instant(None)
    'unknown'
    """
    return instant_text(value)


def duration(value: DurationLike, *, name: str = "duration") -> int:
    """Convert a duration to microseconds.

    Args:
        value: Spark-style text (``"1 hour 30 minutes"``), ISO 8601 text (``"PT1H30M"``) or a ``timedelta``.
            Negative durations are allowed here; parameters that need a positive one check it themselves.
        name: The name of the parameter, for the error message.

    Returns:
        The number of microseconds.

    Raises:
        InvalidDuration: The text cannot be parsed, has no unit, or uses months or years, which have no
            fixed length.

    >>> import slackwater as sw
    >>> sw.duration("10 seconds"), sw.duration("1 hour 30 minutes"), sw.duration("PT0.5S")
    (10000000, 5400000000, 500000)
    >>> sw.duration("interval 2 days") == sw.duration(timedelta(days=2)) == sw.duration("P2D")
    True
    >>> sw.duration("10")
    Traceback (most recent call last):
    slackwater.errors.InvalidDuration: duration = '10': has no unit; write it like "10 seconds"
    """
    given: object = value
    if isinstance(given, timedelta):
        microseconds = given // _MICRO
    elif isinstance(given, str):
        text = given.strip()
        if len(text) > _LONGEST_TEXT:
            raise InvalidDuration(name, text[:20] + "…", "is too long to be a duration", fix=_DURATION_FIX)
        is_iso = text.lstrip("+-")[:1] in {"P", "p"}
        microseconds = _iso_duration(text, name) if is_iso else _spark_duration(text, name)
    else:
        what = "a bare number has no unit" if isinstance(given, (int, float)) else "is not a duration"
        raise InvalidDuration(name, given, what, fix=_DURATION_FIX)
    if not BEGINNING_OF_TIME < microseconds < END_OF_TIME:
        raise InvalidDuration(name, value, "is longer than 292,000 years", fix="use a shorter duration")
    return microseconds


def format_duration(microseconds: int) -> str:
    """Format a duration with at most its two largest units.

    Args:
        microseconds: The duration.

    Returns:
        The text, for example ``"1 h 30 min"``.

    >>> import slackwater as sw
    >>> sw.format_duration(5_400_000_000), sw.format_duration(250_000), sw.format_duration(0)
    ('1 h 30 min', '250 ms', '0 s')
    """
    if microseconds == 0:
        return "0 s"
    sign, rest = ("-" if microseconds < 0 else ""), abs(microseconds)
    parts: list[str] = []
    for unit, size in (
        ("d", DAY), ("h", HOUR), ("min", MINUTE), ("s", SECOND), ("ms", MILLISECOND), ("µs", MICROSECOND)
    ):  # fmt: skip
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}")
        elif parts:
            break
        if len(parts) == 2:
            break
    return sign + " ".join(parts)


def frame_floor(at: int, size: int, offset: int = 0) -> int:
    """Return the greatest frame boundary not above ``at``; boundaries are ``k * size + offset`` (G4).

    This is the mathematical floor, also for negative times. A boundary is its own floor.

    >>> frame_floor(-5, 4), frame_floor(-4, 4), frame_floor(3, 4)
    (-8, -4, 0)
    """
    return at - (at - offset) % size


def frame_higher(at: int, size: int, offset: int = 0) -> int:
    """Return the first frame boundary strictly above ``at``.

    >>> frame_higher(-5, 4), frame_higher(4, 4)
    (-4, 8)
    """
    return frame_floor(at, size, offset) + size


def check_now(now: object) -> int | None:
    """Validate an optional clock reading passed by a caller.

    >>> check_now(None), check_now(5)
    (None, 5)
    """
    return None if now is None else check_int64(now, "now")


def check_int64(value: object, name: str) -> int:
    """Convert ``value`` to a plain ``int`` that fits into 64 bits.

    Accepts integer types (also NumPy's) and rejects booleans, floats and larger numbers. ``name`` is the
    parameter in the error message.

    >>> check_int64(5, "watermark")
    5
    >>> check_int64(5.0, "watermark")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: watermark = 5.0: is a float; pass an integer
    """
    fix = "pass an integer"
    if isinstance(value, bool):
        raise InvalidArgument(name, value, "is a bool", fix=fix)
    try:
        number = operator.index(value)  # type: ignore[arg-type]  # a TypeError is handled below
    except TypeError:
        kind = type(value).__name__
        article = "an" if kind[0] in "aeiou" else "a"
        raise InvalidArgument(name, value, f"is {article} {kind}", fix=fix) from None
    if not BEGINNING_OF_TIME <= number <= END_OF_TIME:
        raise InvalidArgument(name, value, "does not fit into 64 bits", fix=fix)
    return number


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """A half-open range of instants ``[start, end)``: the start is included, the end is not.

    Args:
        start: The first instant of the range.
        end: The first instant after the range. Equal to ``start`` for an empty range.

    Raises:
        InvalidArgument: ``end`` is lower than ``start``.

    >>> import slackwater as sw
    >>> sw.Range(0, 10).contains(0), sw.Range(0, 10).contains(10)
    (True, False)
    """

    start: int
    end: int

    def __post_init__(self) -> None:
        if self.start > self.end:
            raise InvalidArgument(
                "end",
                self.end,
                f"is before the start {self.start}",
                fix="swap the two values",
            )

    def contains(self, at: int) -> bool:
        """Return whether ``at`` is in the range.

        Args:
            at: An instant, in microseconds since 1970.

        >>> import slackwater as sw
        >>> sw.Range(5, 6).contains(5)
        True
        """
        return self.start <= at < self.end

    def overlaps(self, other: Range) -> bool:
        """Return whether both ranges contain a common instant; adjacent ranges do not overlap.

        Args:
            other: The other range.

        >>> import slackwater as sw
        >>> sw.Range(0, 10).overlaps(sw.Range(10, 20)), sw.Range(0, 10).overlaps(sw.Range(9, 20))
        (False, True)
        """
        return max(self.start, other.start) < min(self.end, other.end)

    def __str__(self) -> str:
        return f"[{format_instant(self.start)}, {format_instant(self.end)})"


def _scaled(sign: str, whole: str, fraction: str | None, unit: int, name: str, value: str) -> int:
    """Convert ``whole.fraction`` units to microseconds without rounding."""
    digits = fraction or ""
    scale: int = 10 ** len(digits)
    microseconds, remainder = divmod(int(whole + digits) * unit, scale)
    if remainder:
        raise InvalidDuration(name, value, "is more precise than a microsecond", fix="round it")
    return -microseconds if sign == "-" else microseconds


def _spark_duration(text: str, name: str) -> int:
    body = re.sub(r"^interval\b", "", text, flags=re.IGNORECASE).strip()
    if not body:
        raise InvalidDuration(name, text, "is empty", fix=_DURATION_FIX)
    if re.fullmatch(r"[+-]?\d+(\.\d+)?", body, re.ASCII):
        raise InvalidDuration(name, text, "has no unit", fix=f'write it like "{body} seconds"')
    total = position = 0
    while position < len(body):
        part = _SPARK_PART.match(body, position)
        if part is None:
            raise InvalidDuration(
                name, text, f"cannot be parsed from {body[position:]!r} on", fix=_DURATION_FIX
            )
        sign, whole, fraction, word = part.groups()
        unit = word.lower()
        size = _SHORT_UNITS.get(unit) or _UNITS.get(unit.removesuffix("s"))
        if size is None:
            if unit.removesuffix("s") in {"month", "year", "quarter"}:
                raise InvalidDuration(
                    name, text, f"a {unit.removesuffix('s')} has no fixed length", fix=_CALENDAR_FIX
                )
            raise InvalidDuration(
                name, text, f"unknown unit {word!r}", fix=f"use one of {', '.join([*_UNITS, *_SHORT_UNITS])}"
            )
        total += _scaled(sign, whole, fraction, size, name, text)
        position = part.end()
    return total


def _iso_duration(text: str, name: str) -> int:
    match = _ISO.fullmatch(text)
    if match is None or text[-1] in "PpTt":
        date_part = text.upper().split("T")[0]
        if "Y" in date_part or "M" in date_part:
            raise InvalidDuration(name, text, "months and years have no fixed length", fix=_CALENDAR_FIX)
        raise InvalidDuration(name, text, "is not an ISO 8601 duration", fix=_DURATION_FIX)
    overall, *numbers = match.groups()
    total = 0
    for index, unit in enumerate((WEEK, DAY, HOUR, MINUTE, SECOND)):
        sign, whole, fraction = numbers[3 * index : 3 * index + 3]
        if whole is not None:
            total += _scaled(sign, whole, fraction, unit, name, text)
    return -total if overall == "-" else total
