"""What ``from`` and ``to`` may say: a date, a date and a time, or how long before now.

A bound is read once, when the job is; it becomes an instant when a plan is made, because only then is
there a now. An impossible date is an error, never the nearest possible one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Final, Literal

from slackwater.errors import InvalidArgument, InvalidInstant
from slackwater.ingest.axis.timezones import floor_to, floored, instant_of, local_of, zone
from slackwater.time import HOUR, MINUTE

Form = Literal["day", "hour", "minute"]

_LONGEST: Final = 1440 * 366 * 9999
"""Minutes: whatever is now, it is not so long since the year 1."""

_DATE: Final = re.compile(r"(\d{4})-(\d{2})-(\d{2})", re.ASCII)
_DATETIME: Final = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})[ T](\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,6}))?(\S+)?", re.ASCII
)
_DURATION: Final = re.compile(r"P(\d+)D(?:T(\d+)H(?:(\d+)M)?)?(?:\.(\S+))?", re.ASCII)
_FIXED_FIX: Final = 'write it like "2020-01-31", "2020-01-31 10:30:00" or "2020-01-31T10:30:00+01:00"'
_FIX: Final = _FIXED_FIX + ', or as a time before now like "P1D", "P0DT6H" or "P0D.Europe/Berlin"'


@dataclass(frozen=True, slots=True)
class Fixed:
    """A point on the wall clocks of a zone; without a zone, of the job's."""

    local: datetime
    place: tzinfo | None = None

    def resolve(self, now: int, place: tzinfo, form: Form | None = None) -> int:
        """The instant, which depends on neither now nor a form."""
        return instant_of(self.local, self.place or place)

    def clock(self, now: int, place: tzinfo, form: Form | None = None) -> datetime:
        """What clocks in ``place`` would show then, also where they leave that time out."""
        return self.local if self.place in (None, place) else local_of(self.resolve(now, place), place)


@dataclass(frozen=True, slots=True)
class Ago:
    """So long before now: now floored by the form of the text, days of the calendar back, then hours."""

    days: int
    hours: int
    minutes: int
    form: Form
    place: tzinfo | None = None

    def __str__(self) -> str:
        hours = "" if self.form == "day" else f"T{self.hours}H"
        minutes = f"{self.minutes}M" if self.form == "minute" else ""
        return f"P{self.days}D{hours}{minutes}"

    def resolve(self, now: int, place: tzinfo, form: Form | None = None) -> int:
        """The instant; ``form`` overrides what now is floored to."""
        here = self.place or place
        unit = form or self.form
        try:
            at = floor_to(now, here, unit)
            if self.days:  # back on the wall clock, from a midnight that was perhaps left out
                clock = floored(local_of(now, here), unit)
                at = instant_of(clock - timedelta(days=self.days), here)
            at -= self.hours * HOUR + self.minutes * MINUTE
            local_of(at, here)
        except (OverflowError, InvalidInstant):
            reason, fix = "lies before the year 1", "write a shorter duration"
            raise InvalidInstant("duration", str(self), reason, fix=fix) from None
        return at

    def clock(self, now: int, place: tzinfo, form: Form | None = None) -> datetime:
        """What clocks in ``place`` would show then, also where they leave that time out."""
        if self.place not in (None, place) or self.hours or self.minutes:
            return local_of(self.resolve(now, place, form), place)
        return floored(local_of(now, place), form or self.form) - timedelta(days=self.days)


Bound = Fixed | Ago
NOW: Final = Ago(0, 0, 0, "minute")
"""What ``-`` stands for."""


def read_bound(text: str, *, open_end: bool = False) -> Bound:
    """The bound that ``text`` writes; ``-`` only where it may be open.

    >>> read_bound("2020-01-31")
    Fixed(local=datetime.datetime(2020, 1, 31, 0, 0), place=None)
    >>> read_bound("P1DT6H")
    Ago(days=1, hours=6, minutes=0, form='hour', place=None)
    >>> read_bound("-", open_end=True) == NOW
    True
    >>> read_bound("2020-02-30")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: bound = '2020-02-30': is not a day of the calendar; write it like \
"2020-01-31", "2020-01-31 10:30:00" or "2020-01-31T10:30:00+01:00", or as a time before now like "P1D", \
"P0DT6H" or "P0D.Europe/Berlin"
    """
    if open_end and text == "-":
        return NOW
    if duration := _DURATION.fullmatch(text):
        days, hours, minutes, name = duration.groups()
        form: Form = "day" if hours is None else "hour" if minutes is None else "minute"
        if 1440 * int(days) + 60 * int(hours or 0) + int(minutes or 0) > _LONGEST:
            raise InvalidArgument("bound", text, "lies before the year 1", fix="write a shorter duration")
        return Ago(int(days), int(hours or 0), int(minutes or 0), form, zone(name) if name else None)
    return read_fixed(text, fix=_FIX)


def read_fixed(text: str, *, fix: str = _FIXED_FIX) -> Fixed:
    """A date, or a date and a time, and nothing else.

    >>> read_fixed("2020-01-31 10:00:00.5Z").local
    datetime.datetime(2020, 1, 31, 10, 0, 0, 500000)
    """
    try:
        if date := _DATE.fullmatch(text):
            return Fixed(datetime(*map(int, date.groups())))  # type: ignore[arg-type]  # noqa: DTZ001 - wall clock
        if match := _DATETIME.fullmatch(text):
            *numbers, fraction, name = match.groups()
            micros = int((fraction or "0").ljust(6, "0"))
            local = datetime(*map(int, numbers))  # type: ignore[arg-type]  # noqa: DTZ001 - wall clock
            return Fixed(local.replace(microsecond=micros), zone(name) if name else None)
    except ValueError as error:
        if isinstance(error, InvalidArgument):
            raise
        raise InvalidArgument("bound", text, "is not a day of the calendar", fix=fix) from None
    raise InvalidArgument("bound", text, "is not a date or a time", fix=fix)
