"""The bounds ``from`` and ``to`` of the time axis: a date, a datetime, or a duration before now.

A bound is parsed with the job and becomes an instant when a plan is made, because only then is there a
current time. An impossible date is an error, never the nearest possible one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Final, Literal

from slackwater.errors import InvalidArgument, InvalidInstant
from slackwater.ingest.axis.timezones import floor_to, floored, instant_of, local_of, zone
from slackwater.time import HOUR, MINUTE

Precision = Literal["day", "hour", "minute"]

_LONGEST: Final = 1440 * 366 * 9999
"""Minutes: longer than the time from the year 1 to any current time."""

_DATE: Final = re.compile(r"(\d{4})-(\d{2})-(\d{2})", re.ASCII)
_DATETIME: Final = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})[ T](\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,6}))?(\S+)?", re.ASCII
)
_DURATION: Final = re.compile(r"P(\d+)D(?:T(\d+)H(?:(\d+)M)?)?(?:\.(\S+))?", re.ASCII)
_FIXED_FIX: Final = 'write it like "2020-01-31", "2020-01-31 10:30:00" or "2020-01-31T10:30:00+01:00"'
_FIX: Final = _FIXED_FIX + ', or as a time before now like "P1D", "P0DT6H" or "P0D.Europe/Berlin"'


@dataclass(frozen=True, slots=True)
class FixedBound:
    """A wall-clock time in a timezone, by default in that of the job."""

    local: datetime
    tz: tzinfo | None = None

    def resolve(self, now: int, tz: tzinfo, precision: Precision | None = None) -> int:
        """The instant; ``now`` and ``precision`` have no effect."""
        return instant_of(self.local, self.tz or tz)

    def clock(self, now: int, tz: tzinfo, precision: Precision | None = None) -> datetime:
        """The wall-clock time in ``tz``, even if it lies in a DST gap."""
        return self.local if self.tz in (None, tz) else local_of(self.resolve(now, tz), tz)


@dataclass(frozen=True, slots=True)
class Ago:
    """A duration before now: now is floored, then calendar days and elapsed hours are subtracted."""

    days: int
    hours: int
    minutes: int
    precision: Precision
    tz: tzinfo | None = None

    def __str__(self) -> str:
        hours = "" if self.precision == "day" else f"T{self.hours}H"
        minutes = f"{self.minutes}M" if self.precision == "minute" else ""
        return f"P{self.days}D{hours}{minutes}"

    def resolve(self, now: int, tz: tzinfo, precision: Precision | None = None) -> int:
        """The instant; ``precision`` overrides the unit to which now is floored."""
        here = self.tz or tz
        unit = precision or self.precision
        try:
            at = floor_to(now, here, unit)
            if self.days:  # back on the wall clock, from a midnight that may lie in a DST gap
                clock = floored(local_of(now, here), unit)
                at = instant_of(clock - timedelta(days=self.days), here)
            at -= self.hours * HOUR + self.minutes * MINUTE
            local_of(at, here)
        except (OverflowError, InvalidInstant):
            reason, fix = "is before the year 1", "use a shorter duration"
            raise InvalidInstant("duration", str(self), reason, fix=fix) from None
        return at

    def clock(self, now: int, tz: tzinfo, precision: Precision | None = None) -> datetime:
        """The wall-clock time in ``tz``, even if it lies in a DST gap."""
        if self.tz not in (None, tz) or self.hours or self.minutes:
            return local_of(self.resolve(now, tz, precision), tz)
        return floored(local_of(now, tz), precision or self.precision) - timedelta(days=self.days)


Bound = FixedBound | Ago
NOW: Final = Ago(0, 0, 0, "minute")
"""The bound that ``-`` means."""


def read_bound(text: str, *, open_end: bool = False) -> Bound:
    """Parse a bound; ``-`` is allowed only with ``open_end``.

    >>> read_bound("2020-01-31")
    FixedBound(local=datetime.datetime(2020, 1, 31, 0, 0), tz=None)
    >>> read_bound("P1DT6H")
    Ago(days=1, hours=6, minutes=0, precision='hour', tz=None)
    >>> read_bound("-", open_end=True) == NOW
    True
    >>> read_bound("2020-02-30")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: bound = '2020-02-30': is not a valid date; write it like \
"2020-01-31", "2020-01-31 10:30:00" or "2020-01-31T10:30:00+01:00", or as a time before now like "P1D", \
"P0DT6H" or "P0D.Europe/Berlin"
    """
    if open_end and text == "-":
        return NOW
    if duration := _DURATION.fullmatch(text):
        days, hours, minutes, name = duration.groups()
        precision: Precision = "day" if hours is None else "hour" if minutes is None else "minute"
        if 1440 * int(days) + 60 * int(hours or 0) + int(minutes or 0) > _LONGEST:
            raise InvalidArgument("bound", text, "is before the year 1", fix="use a shorter duration")
        return Ago(int(days), int(hours or 0), int(minutes or 0), precision, zone(name) if name else None)
    return read_fixed(text, fix=_FIX)


def read_fixed(text: str, *, fix: str = _FIXED_FIX) -> FixedBound:
    """Parse a date or a datetime.

    >>> read_fixed("2020-01-31 10:00:00.5Z").local
    datetime.datetime(2020, 1, 31, 10, 0, 0, 500000)
    """
    try:
        if date := _DATE.fullmatch(text):
            return FixedBound(datetime(*map(int, date.groups())))  # type: ignore[arg-type]  # noqa: DTZ001 - wall clock
        if match := _DATETIME.fullmatch(text):
            *numbers, fraction, name = match.groups()
            micros = int((fraction or "0").ljust(6, "0"))
            local = datetime(*map(int, numbers))  # type: ignore[arg-type]  # noqa: DTZ001 - wall clock
            return FixedBound(local.replace(microsecond=micros), zone(name) if name else None)
    except ValueError as error:
        if isinstance(error, InvalidArgument):
            raise
        raise InvalidArgument("bound", text, "is not a valid date", fix=fix) from None
    raise InvalidArgument("bound", text, "is not a date or a datetime", fix=fix)
