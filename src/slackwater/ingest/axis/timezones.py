"""Timezones, and the conversion between wall-clock times and instants.

DST changes are resolved here, in one way for all of ingestion: a wall-clock time in a gap moves forward by
the length of the gap, and an ambiguous one is the earlier of the two.
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
"""The abbreviations with a fixed offset in RFC 822; all others are ambiguous."""
_NO_ZONES: Final = ("localtime", "Factory", "posixrules")
_MICRO: Final = timedelta(microseconds=1)
_FURTHEST: Final = 18
"""The largest offset from UTC, in hours."""


def zone(text: str) -> tzinfo:
    """Parse a timezone: ``Z``, an offset, or a name from the IANA timezone database.

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
        except (
            KeyError,
            ValueError,
            OSError,
        ):  # unknown name, a file that is not a zone, or a folder of zones
            pass
    fix = "write Z, an offset like +05:30, or a name like Europe/Berlin"
    raise InvalidArgument("timezone", text, "is not a timezone", fix=fix)


def instant_of(local: datetime, tz: tzinfo) -> int:
    """The instant of a wall-clock time in ``tz``.

    >>> from slackwater.time import format_instant
    >>> berlin = zone("Europe/Berlin")
    >>> format_instant(instant_of(datetime(2020, 3, 29, 2, 30), berlin))  # in the DST gap: 03:30
    '2020-03-29T01:30:00Z'
    >>> format_instant(instant_of(datetime(2020, 10, 25, 2, 30), berlin))  # ambiguous: the earlier one
    '2020-10-25T00:30:00Z'
    """
    return (local.replace(tzinfo=tz, fold=0) - EPOCH) // _MICRO


def local_of(at: int, tz: tzinfo) -> datetime:
    """The wall-clock time in ``tz`` at an instant, as a naive datetime.

    >>> local_of(0, zone("+05:30"))
    datetime.datetime(1970, 1, 1, 5, 30)
    """
    return to_datetime(at).astimezone(tz).replace(tzinfo=None)


def change_near(at: int, tz: tzinfo) -> int:
    """The size of a DST change so near to ``at`` that wall-clock times around it are ambiguous; otherwise 0.

    >>> from slackwater.time import HOUR, instant
    >>> berlin = zone("Europe/Berlin")
    >>> change_near(instant("2020-10-25T00:30:00Z"), berlin) // HOUR  # half an hour before the change
    1
    >>> change_near(instant("2020-10-24T22:00:00Z"), berlin)  # midnight of that day
    0
    """
    if tz.utcoffset(None) is not None or not _EARLIEST < at < _LATEST:
        return 0  # a fixed offset, or the end of the calendar
    offsets = [_offset_at(when, tz) for when in (at - DAY, at, at + DAY)]
    change = max(offsets) - min(offsets)
    return 0 if _offset_at(at - change, tz) == _offset_at(at + change, tz) else change


def _offset_at(at: int, tz: tzinfo) -> int:
    return (to_datetime(at).astimezone(tz).utcoffset() or timedelta()) // _MICRO


def floor_to(at: int, tz: tzinfo, precision: str) -> int:
    """Floor an instant to the start of its local ``day``, ``hour`` or ``minute``.

    Of an hour that occurs twice, the second starts an hour after the first.

    >>> from slackwater.time import format_instant, instant
    >>> berlin = zone("Europe/Berlin")
    >>> format_instant(floor_to(instant("2020-10-25T01:45:00Z"), berlin, "hour"))
    '2020-10-25T01:00:00Z'
    >>> format_instant(floor_to(instant("2020-10-25T01:45:00Z"), berlin, "day"))
    '2020-10-24T22:00:00Z'
    """
    there = to_datetime(at).astimezone(tz)
    if precision == "day":
        return instant_of(floored(there, precision), tz)
    began = (floored(there, precision) - EPOCH) // _MICRO
    # after a change in the middle of the hour, the start of the hour may lie in the DST gap
    return began if began <= at else instant_of(floored(there, precision), tz)


def floored(clock: datetime, precision: str) -> datetime:
    """Floor a wall-clock time to its ``day``, ``hour`` or ``minute``, even if the result lies in a DST gap.

    >>> floored(datetime(2020, 3, 29, 3, 30), "day")
    datetime.datetime(2020, 3, 29, 0, 0)
    """
    hour = 0 if precision == "day" else clock.hour
    minute = clock.minute if precision == "minute" else 0
    return clock.replace(hour=hour, minute=minute, second=0, microsecond=0)
