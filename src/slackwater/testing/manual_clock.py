"""A clock that is advanced by the test."""

from __future__ import annotations

from datetime import datetime, timedelta

from slackwater.errors import InvalidArgument
from slackwater.time import check_int64, duration, instant

Moment = int | str | timedelta | datetime
"""A time in a test: microseconds, a duration since zero (``"10 seconds"``), or an ISO 8601 instant."""


def moment(value: Moment, *, name: str = "time") -> int:
    """A time in a test as microseconds.

    Args:
        value: microseconds, a duration since zero, or an instant.
        name: the name of the argument in errors.

    >>> moment(5), moment("10 seconds"), moment("1970-01-01T00:00:10Z")
    (5, 10000000, 10000000)
    """
    if isinstance(value, datetime) or (isinstance(value, str) and value[:4].isdigit() and value[4:5] == "-"):
        return instant(value, name=name)
    if isinstance(value, (str, timedelta)):
        return duration(value, name=name)
    return check_int64(value, name)


class ManualClock:
    """Processing time that only advances when the test calls `advance` or `set`.

    An instance is callable and returns the time, so it can replace any function that reads the clock.

    Args:
        start: the initial time.

    >>> from slackwater.testing import ManualClock
    >>> clock = ManualClock("10 seconds")
    >>> clock.advance("5 seconds")
    15000000
    >>> clock()
    15000000
    """

    def __init__(self, start: Moment = 0) -> None:
        self._now = moment(start, name="start")

    def __call__(self) -> int:
        """The current time in microseconds."""
        return self._now

    def advance(self, by: int | str | timedelta) -> int:
        """Advance the clock by a duration; returns the new time.

        Args:
            by: a duration: microseconds, text such as "5 seconds", or a timedelta.
        """
        step = duration(by, name="by") if isinstance(by, (str, timedelta)) else check_int64(by, "by")
        if step < 0:
            raise InvalidArgument("by", by, "is negative", fix="use a duration that is not negative")
        self._now = check_int64(self._now + step, "by")
        return self._now

    def set(self, to: Moment) -> int:
        """Advance the clock to a time; returns the new time.

        Args:
            to: the new time, not before the current one.

        >>> from slackwater.testing import ManualClock
        >>> ManualClock(5).set(4)
        Traceback (most recent call last):
        slackwater.errors.InvalidArgument: to = 4: is before the current time 5; use a later time
        """
        at = moment(to, name="to")
        if at < self._now:
            raise InvalidArgument("to", to, f"is before the current time {self._now}", fix="use a later time")
        self._now = at
        return at
