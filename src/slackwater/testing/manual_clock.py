"""A clock that stands still until it is told otherwise."""

from __future__ import annotations

from datetime import datetime, timedelta

from slackwater.errors import InvalidArgument
from slackwater.time import check_int64, duration, instant

Moment = int | str | timedelta | datetime
"""A point in a test's time: microseconds, a time since zero (``"10 seconds"``), or an ISO instant."""


def moment(value: Moment, *, name: str = "time") -> int:
    """The microseconds of a point in a test's time.

    >>> moment(5), moment("10 seconds"), moment("1970-01-01T00:00:10Z")
    (5, 10000000, 10000000)
    """
    if isinstance(value, datetime) or (isinstance(value, str) and value[:4].isdigit() and value[4:5] == "-"):
        return instant(value, name=name)
    if isinstance(value, (str, timedelta)):
        return duration(value, name=name)
    return check_int64(value, name)


class ManualClock:
    """Processing time under the test's control: it only moves when told to, and never back.

    An instance is callable, so it can stand wherever a function that tells the time is wanted.

    >>> clock = ManualClock("10 seconds")
    >>> clock.advance("5 seconds")
    15000000
    >>> clock()
    15000000
    """

    def __init__(self, start: Moment = 0) -> None:
        self._now = moment(start, name="start")

    def __call__(self) -> int:
        """The time, in microseconds."""
        return self._now

    def advance(self, by: int | str | timedelta) -> int:
        """Move by a duration; the new time."""
        step = duration(by, name="by") if isinstance(by, (str, timedelta)) else check_int64(by, "by")
        if step < 0:
            raise InvalidArgument(
                "by", by, "would move the clock back", fix="give a duration that is not negative"
            )
        self._now = check_int64(self._now + step, "by")
        return self._now

    def set(self, to: Moment) -> int:
        """Move to a point in time; the new time.

        >>> ManualClock(5).set(4)
        Traceback (most recent call last):
        slackwater.errors.InvalidArgument: to = 4: lies before the clock's 5; a clock never goes back
        """
        at = moment(to, name="to")
        if at < self._now:
            raise InvalidArgument(
                "to", to, f"lies before the clock's {self._now}", fix="a clock never goes back"
            )
        self._now = at
        return at
