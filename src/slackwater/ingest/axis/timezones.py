"""Local time: the zone a job names, and the one instant that a time on a wall clock means.

Twice a year a wall clock is wrong by an hour. Here it is decided once what that means: a time that the
clock leaves out moves forward by what was left out, and a time that comes twice is the earlier one.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from slackwater._time_text import EPOCH
from slackwater.errors import InvalidArgument
from slackwater.time import DAY, to_datetime

_EARLIEST, _LATEST = ((day - EPOCH.date()).days * DAY for day in (date(1, 1, 4), date(9999, 12, 28)))
_OFFSET: Final = re.compile(r"([+-])(\d{2}):?(\d{2})", re.ASCII)
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*", re.ASCII)
_ABBREVIATIONS: Final = {
    "EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7,
}  # fmt: skip
"""What RFC 822 gives a fixed offset; other abbreviations mean different zones to different people."""
_NO_ZONES: Final = ("localtime", "Factory", "posixrules")
_MICRO: Final = timedelta(microseconds=1)
_FURTHEST: Final = 18
"""Hours that an offset may be away from UTC."""


def zone(text: str) -> tzinfo:
    """The timezone that ``text`` names: ``Z``, an offset, or a name of the zone database.

    >>> zone("+0530"), str(zone("Europe/Berlin"))
    (datetime.timezone(datetime.timedelta(seconds=19800)), 'Europe/Berlin')
    >>> zone("Mars/Olympus")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: timezone = 'Mars/Olympus': is not a timezone; write Z, an offset like \
+05:30, or a name like Europe/Berlin
    """
    if text == "Z":
        return timezone.utc  # noqa: UP017 - the module has its own name for this zone
    if offset := _OFFSET.fullmatch(text):
        sign, hours, minutes = offset[1], int(offset[2]), int(offset[3])
        if minutes < 60 and (hours, minutes) <= (_FURTHEST, 0):
            distance = timedelta(hours=hours, minutes=minutes)
            return timezone(-distance if sign == "-" else distance)
    elif text in _ABBREVIATIONS:
        return timezone(timedelta(hours=_ABBREVIATIONS[text]), text)
    elif (
        _NAME.fullmatch(text)
        and text not in _NO_ZONES
        and text.split("/", maxsplit=1)[0] not in {"posix", "right"}
    ):
        try:
            return ZoneInfo(text)
        except (KeyError, ValueError, OSError):  # no such name; a file that is no zone; a folder of zones
            pass
    fix = "write Z, an offset like +05:30, or a name like Europe/Berlin"
    raise InvalidArgument("timezone", text, "is not a timezone", fix=fix)


def instant_of(local: datetime, place: tzinfo) -> int:
    """The instant at which clocks in ``place`` show ``local``.

    >>> from slackwater.time import format_instant
    >>> berlin = zone("Europe/Berlin")
    >>> format_instant(instant_of(datetime(2020, 3, 29, 2, 30), berlin))  # left out: 03:30 in summer time
    '2020-03-29T01:30:00Z'
    >>> format_instant(instant_of(datetime(2020, 10, 25, 2, 30), berlin))  # comes twice
    '2020-10-25T00:30:00Z'
    """
    return (local.replace(tzinfo=place, fold=0) - EPOCH) // _MICRO


def local_of(at: int, place: tzinfo) -> datetime:
    """What clocks in ``place`` show at an instant, without the zone.

    >>> local_of(0, zone("+05:30"))
    datetime.datetime(1970, 1, 1, 5, 30)
    """
    return to_datetime(at).astimezone(place).replace(tzinfo=None)


def change_near(at: int, place: tzinfo) -> int:
    """By how much clocks change so near to ``at`` that a time on them may be before it or after it; else 0.

    >>> from slackwater.time import HOUR, instant
    >>> berlin = zone("Europe/Berlin")
    >>> change_near(instant("2020-10-25T00:30:00Z"), berlin) // HOUR  # half an hour before they change
    1
    >>> change_near(instant("2020-10-24T22:00:00Z"), berlin)  # midnight of that day
    0
    """
    if place.utcoffset(None) is not None or not _EARLIEST < at < _LATEST:
        return 0  # they never change, or the calendar ends there
    offsets = [_offset_at(when, place) for when in (at - DAY, at, at + DAY)]
    change = max(offsets) - min(offsets)
    return 0 if _offset_at(at - change, place) == _offset_at(at + change, place) else change


def _offset_at(at: int, place: tzinfo) -> int:
    return (to_datetime(at).astimezone(place).utcoffset() or timedelta()) // _MICRO


def floor_to(at: int, place: tzinfo, form: str) -> int:
    """The beginning of the local ``day``, ``hour`` or ``minute`` in which ``at`` lies.

    Of an hour that comes twice, the second begins an hour after the first.

    >>> from slackwater.time import format_instant, instant
    >>> berlin = zone("Europe/Berlin")
    >>> format_instant(floor_to(instant("2020-10-25T01:45:00Z"), berlin, "hour"))
    '2020-10-25T01:00:00Z'
    >>> format_instant(floor_to(instant("2020-10-25T01:45:00Z"), berlin, "day"))
    '2020-10-24T22:00:00Z'
    """
    there = to_datetime(at).astimezone(place)
    if form == "day":
        return instant_of(floored(there, form), place)
    began = (floored(there, form) - EPOCH) // _MICRO
    # a change in the middle of the hour: its beginning on the wall clock may lie in the time left out
    return began if began <= at else instant_of(floored(there, form), place)


def floored(clock: datetime, form: str) -> datetime:
    """What a clock showed when its ``day``, ``hour`` or ``minute`` began, whether or not it ever did.

    >>> floored(datetime(2020, 3, 29, 3, 30), "day")
    datetime.datetime(2020, 3, 29, 0, 0)
    """
    hour = 0 if form == "day" else clock.hour
    minute = clock.minute if form == "minute" else 0
    return clock.replace(hour=hour, minute=minute, second=0, microsecond=0)
