"""Window assigners: which windows an element belongs to, by its event time.

A window is half-open, ``[start, end)``, in integer microseconds. Assigners are plain values; the lower-case
functions build them from durations such as ``"10 seconds"``. The operator that aggregates elements in windows
is `slackwater.windows.engine.windowed_operator`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Final, Literal, get_args, overload
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from slackwater._suggestions import available
from slackwater.errors import InvalidArgument, InvalidInstant
from slackwater.progress.values import is_text
from slackwater.time import (
    BEGINNING_OF_TIME,
    DAY,
    END_OF_TIME,
    DurationLike,
    check_int64,
    duration,
    frame_floor,
    instant,
    to_datetime,
)
from slackwater.windows.computed_columns import ColumnExpression

WindowBounds = tuple[int, int]
"""``(start, end)`` of one window."""
CalendarUnit = Literal["days", "weeks", "months", "years"]
Weekday = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
WEEKDAYS: Final[tuple[Weekday, ...]] = get_args(Weekday)

GLOBAL_BOUNDS: Final[WindowBounds] = (BEGINNING_OF_TIME, END_OF_TIME)
_CALENDAR_UNITS: Final = ("days", "weeks", "months", "years")


LONGEST: Final = 2**61
"""The maximum length of a window or gap: 73,000 years, so that sums with any instant fit into 64 bits."""


MOST_OVERLAPPING: Final = 10_000
"""How many sliding windows may contain an element: a day every ten seconds, an hour every second."""


def _positive(value: int, name: str) -> None:
    if check_int64(value, name) > LONGEST:
        fix = "use a shorter one, or none" if name == "ttl" else "use global_window()"
        raise InvalidArgument(name, value, "is longer than 73,000 years", fix=fix)
    if value <= 0:
        raise InvalidArgument(name, value, "must be greater than zero", fix=f'use {name}="10 seconds"')


@dataclass(frozen=True, slots=True, repr=False)
class Global:
    """A single window for all elements; complete only at the end of the input.

    With ``ttl``, the state of a key is purged when it has had no element for that long, in event time.

    >>> Global().windows_at(5) == [(BEGINNING_OF_TIME, END_OF_TIME)]
    True
    >>> Global(ttl=0)
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: ttl = 0: must be greater than zero; use ttl="10 seconds"
    """

    ttl: int | None = None

    def __post_init__(self) -> None:
        if self.ttl is not None:
            _positive(self.ttl, "ttl")

    def __repr__(self) -> str:
        return "Global()" if self.ttl is None else f"Global(ttl={self.ttl})"

    def windows_at(self, at: int) -> list[WindowBounds]:
        """The windows of an element with event time ``at``, in ascending order.

        Args:
            at: the event time, in microseconds since 1970.
        """
        return [GLOBAL_BOUNDS]


@dataclass(frozen=True, slots=True)
class Fixed:
    """Windows of one size without gaps; an element is in exactly one.

    >>> Fixed(10, offset=5).windows_at(-6)
    [(-15, -5)]
    >>> Fixed(0)
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: size = 0: must be greater than zero; use size="10 seconds"
    """

    size: int
    offset: int = 0

    def __post_init__(self) -> None:
        _positive(self.size, "size")
        check_int64(self.offset, "offset")

    def windows_at(self, at: int) -> list[WindowBounds]:
        """The windows of an element with event time ``at``, in ascending order.

        Args:
            at: the event time, in microseconds since 1970.
        """
        start = frame_floor(at, self.size, self.offset)
        return [(start, start + self.size)]


@dataclass(frozen=True, slots=True)
class Sliding:
    """Windows of one size that start every ``every``: they overlap, or leave gaps if ``every > size``.

    An element in a gap gets no window; that is not a drop. An element is in at most 10,000 windows: the cost
    of a window grows with their number.

    >>> Sliding(7, 5).windows_at(1)
    [(-5, 2), (0, 7)]
    >>> Sliding(3, 10).windows_at(5)
    []
    """

    size: int
    every: int
    offset: int = 0

    def __post_init__(self) -> None:
        _positive(self.size, "size")
        _positive(self.every, "every")
        check_int64(self.offset, "offset")
        overlapping = -(-self.size // self.every)
        if overlapping > MOST_OVERLAPPING:
            raise InvalidArgument(
                "every",
                self.every,
                f"puts each element into {overlapping:,} windows, of at most {MOST_OVERLAPPING:,}",
                fix=f"use at least size / {MOST_OVERLAPPING:,}, or a shorter size",
            )

    def slice_at(self, at: int) -> WindowBounds:
        """The slice that contains ``at``: the range between two adjacent bounds of any windows.

        Every window consists of whole slices, at most two per ``every``, so that an element is stored once
        even if it is in many windows.

        Args:
            at: the event time, in microseconds since 1970.

        >>> Sliding(60, 10).slice_at(25), Sliding(7, 5).slice_at(1), Sliding(7, 5).slice_at(3)
        ((20, 30), (0, 2), (2, 5))
        """
        base = frame_floor(at, self.every, self.offset)
        cut = base + self.size % self.every
        return (base, cut) if at < cut else (cut, base + self.every)

    def starts_at(self, at: int) -> range:
        """The starts of the windows of an element with event time ``at``.

        Args:
            at: the event time, in microseconds since 1970.

        >>> Sliding(60, 10).starts_at(25)
        range(-30, 21, 10)
        """
        last = frame_floor(at, self.every, self.offset)
        first = last - (self.size - 1 - (at - last)) // self.every * self.every
        return range(first, last + 1, self.every)

    def windows_at(self, at: int) -> list[WindowBounds]:
        """The windows of an element with event time ``at``, in ascending order.

        Args:
            at: the event time, in microseconds since 1970.
        """
        return [(start, start + self.size) for start in self.starts_at(at)]


@dataclass(frozen=True, slots=True)
class Sessions:
    """Periods of activity per key: ``[ts, ts + gap)`` of each element, merged where they overlap.

    Elements exactly ``gap`` apart are two sessions. If ``gap`` is the name of a column, each element has its
    own gap there: a duration, or microseconds.

    >>> Sessions(10).windows_at(3)
    [(3, 13)]
    >>> Sessions("timeout").column
    'timeout'
    """

    gap: int | str

    def __post_init__(self) -> None:
        if isinstance(self.gap, int):
            _positive(self.gap, "gap")
        elif not is_text(self.gap) or not self.gap:
            raise InvalidArgument(
                "gap", self.gap, "is neither a duration nor a column", fix='use sessions("30 minutes")'
            )

    @property
    def column(self) -> str | None:
        """The column with the gap of each element; None if all have the same gap."""
        return self.gap if isinstance(self.gap, str) else None

    def windows_at(self, at: int) -> list[WindowBounds]:
        """The window of an element with event time ``at``, before any merging.

        Args:
            at: the event time, in microseconds since 1970.
        """
        if isinstance(self.gap, str):
            raise InvalidArgument(
                "gap", self.gap, "is a column, so the window depends on the element", fix="use a duration"
            )
        return [(at, at + self.gap)]


@dataclass(frozen=True, slots=True)
class SessionsBy:
    """Sessions whose gap is an expression over the columns of an element; see `sessions`.

    Only a stream with these columns can compute it, so this is not a window of an operator.
    """

    gap: ColumnExpression


@dataclass(frozen=True, slots=True, repr=False)
class Calendar:
    """Windows that begin at local midnight: days, weeks, months or years.

    They follow the daylight saving time of the timezone, so a day may have 23 or 25 hours. With ``count``, a
    window has several units, counted from 1970: weeks from the first ``first_day`` of that year, months and
    years from its ``first_month``.

    >>> start, end = Calendar("days", timezone="Europe/Berlin").windows_at(instant("2024-03-31T12:00:00Z"))[0]
    >>> (end - start) // 3_600_000_000
    23
    >>> Calendar("years", first_month=4)
    Calendar(unit='years', count=1, timezone='UTC', first_month=4)
    """

    unit: CalendarUnit
    count: int = 1
    timezone: str = "UTC"
    first_day: Weekday = "monday"
    first_month: int = 1

    def __post_init__(self) -> None:
        if self.unit not in _CALENDAR_UNITS:
            raise InvalidArgument(
                "unit",
                self.unit,
                "is not a calendar unit",
                fix=available(self.unit, _CALENDAR_UNITS, lead="use one of "),
            )
        if check_int64(self.count, "count") <= 0:
            raise InvalidArgument("count", self.count, "must be greater than zero", fix="use count=1 or more")
        if not is_text(self.timezone):
            raise InvalidArgument(
                "timezone", self.timezone, "is not a string", fix='use a name such as "Europe/Berlin"'
            )
        zone(self.timezone)
        if self.first_day not in WEEKDAYS:
            raise InvalidArgument(
                "first_day",
                self.first_day,
                "is not a weekday",
                fix=available(self.first_day, WEEKDAYS, lead="use one of "),
            )
        if not 1 <= check_int64(self.first_month, "first_month") <= _MONTHS:
            raise InvalidArgument(
                "first_month", self.first_month, "is not a month", fix="use a number from 1 to 12"
            )
        if self.first_day != "monday" and self.unit != "weeks":
            raise InvalidArgument(
                "first_day", self.first_day, f"has no meaning for {self.unit}", fix='use unit="weeks"'
            )
        if self.first_month != 1 and self.unit not in ("months", "years"):
            raise InvalidArgument(
                "first_month", self.first_month, f"has no meaning for {self.unit}", fix='use unit="years"'
            )
        try:
            self._boundary(self.count)
        except (ValueError, OverflowError):
            raise InvalidArgument(
                "count",
                self.count,
                f"{self.unit} from 1970 on end after the year 9999",
                fix="use a smaller count, or a global window",
            ) from None

    def __repr__(self) -> str:
        settings = [f"unit={self.unit!r}", f"count={self.count}", f"timezone={self.timezone!r}"]
        settings += [f"first_day={self.first_day!r}"] if self.first_day != "monday" else []
        settings += [f"first_month={self.first_month}"] if self.first_month != 1 else []
        return f"Calendar({', '.join(settings)})"

    def windows_at(self, at: int) -> list[WindowBounds]:
        """The window of an element with event time ``at``.

        Args:
            at: the event time, in microseconds since 1970.
        """
        try:
            local = to_datetime(at).astimezone(zone(self.timezone)).date()
            number = self._number(local) // self.count * self.count
            start = self._boundary(number)
            if at < start:  # local time went back over midnight: the hour belongs to the earlier window
                number -= self.count
                start = self._boundary(number)
            return [(start, self._boundary(number + self.count))]
        except (ValueError, OverflowError):
            raise InvalidInstant(
                "event_time",
                at,
                "its calendar window is outside of the years 1 to 9999",
                fix="filter out such rows",
            ) from None

    @property
    def limits(self) -> tuple[int, int]:
        """The first and the last event time that has a window within the years 1 to 9999.

        Both are bounds of days in UTC, whose windows are found together.

        >>> from slackwater.time import format_instant
        >>> [format_instant(at)[:10] for at in Calendar("months").limits]
        ['0001-01-01', '9999-11-30']
        """
        first, last = (self._number(day) // self.count * self.count for day in (date.min, date.max))
        while not self._is_known(first):
            first += self.count
        while not self._is_known(last):
            last -= self.count
        return -(-self._boundary(first) // DAY) * DAY, self._boundary(last) // DAY * DAY - 1

    def _is_known(self, number: int) -> bool:
        """Whether a boundary is within the years 1 to 9999, in local time and in UTC."""
        try:
            to_datetime(self._boundary(number))
        except (ValueError, OverflowError):
            return False
        return True

    @property
    def _first_week(self) -> int:
        """The days from 1970-01-01 to the first week of that year."""
        return (WEEKDAYS.index(self.first_day) - _EPOCH_WEEKDAY) % len(WEEKDAYS)

    def _number(self, day: date) -> int:
        months = (day.year - 1970) * _MONTHS + day.month - self.first_month
        if self.unit == "years":
            return months // _MONTHS
        if self.unit == "months":
            return months
        days = day.toordinal() - _EPOCH_DAY
        return days if self.unit == "days" else (days - self._first_week) // 7

    def _boundary(self, number: int) -> int:
        if self.unit in ("months", "years"):
            months = number * (_MONTHS if self.unit == "years" else 1) + self.first_month - 1
            day = date(1970 + months // _MONTHS, months % _MONTHS + 1, 1)
        elif self.unit == "weeks":
            day = date(1970, 1, 1) + timedelta(days=self._first_week, weeks=number)
        else:
            day = date(1970, 1, 1) + timedelta(days=number)
        return instant(datetime(day.year, day.month, day.day, tzinfo=zone(self.timezone)))


@dataclass(frozen=True, slots=True)
class Inherited:
    """The windows of the incoming panes, in the columns ``window_start`` and ``window_end``.

    For an operator downstream of another windowed operator.

    >>> Inherited()
    Inherited()
    """


Window = Global | Fixed | Sliding | Sessions | Calendar | Inherited
"""Any window assigner."""

_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_EPOCH_WEEKDAY: Final = 3
"""1970-01-01 was a Thursday."""
_MONTHS: Final = 12


@lru_cache(maxsize=64)
def zone(name: str) -> ZoneInfo:
    """The timezone with this name; raises if there is none.

    >>> zone("Europe/Berlin").key
    'Europe/Berlin'
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidArgument(
            "timezone", name, "is not a known timezone", fix='use a name such as "Europe/Berlin" or "UTC"'
        ) from None


def global_window(*, ttl: DurationLike | None = None) -> Global:
    """A single window for all elements, which is complete only at the end of the input.

    Args:
        ttl: how long the state of a key is kept after its latest element, in event time. It is purged when
            the watermark reaches the latest event time of the key plus the ttl and the allowed lateness, with
            a last pane if elements were not emitted yet. A later element of the key begins anew. None keeps
            all keys until the end of the input.

    Raises:
        InvalidArgument: the ttl is not a positive duration.

    >>> import slackwater as sw
    >>> sw.global_window()
    Global()
    >>> sw.global_window(ttl="7 days")
    Global(ttl=604800000000)
    """
    return Global(None if ttl is None else duration(ttl, name="ttl"))


def fixed(size: DurationLike, *, offset: DurationLike | None = None) -> Fixed:
    """Windows of one size without gaps; an element is in exactly one.

    Args:
        size: the length of a window.
        offset: shifts the bounds, which are multiples of the size since 1970 otherwise.

    >>> import slackwater as sw
    >>> sw.fixed("10 seconds")
    Fixed(size=10000000, offset=0)
    """
    return Fixed(duration(size, name="size"), _offset(offset))


def tumbling(size: DurationLike, *, offset: DurationLike | None = None) -> Fixed:
    """Windows of one size without gaps: another name of `fixed`.

    Args:
        size: the length of a window.
        offset: shifts the bounds, which are multiples of the size since 1970 otherwise.

    >>> import slackwater as sw
    >>> sw.tumbling("10 seconds") == sw.fixed("10 seconds")
    True
    """
    return fixed(size, offset=offset)


def sliding(size: DurationLike, *, every: DurationLike, offset: DurationLike | None = None) -> Sliding:
    """Windows of one size that start at regular intervals, and overlap or leave gaps.

    Args:
        size: the length of a window.
        every: the time between the starts of two windows; gaps arise if it is longer than the size.
        offset: shifts the starts, which are multiples of ``every`` since 1970 otherwise.

    >>> import slackwater as sw
    >>> sw.sliding("60 seconds", every="10 seconds")
    Sliding(size=60000000, every=10000000, offset=0)
    """
    return Sliding(duration(size, name="size"), duration(every, name="every"), _offset(offset))


@overload
def sessions(gap: DurationLike) -> Sessions: ...
@overload
def sessions(gap: ColumnExpression) -> SessionsBy: ...
@overload
def sessions(*, column: str) -> Sessions: ...
def sessions(
    gap: DurationLike | ColumnExpression | None = None, *, column: str | None = None
) -> Sessions | SessionsBy:
    """Periods of activity per key, separated by gaps.

    Args:
        gap: elements that are at least this far apart are in different sessions. On Spark it may be a Column,
            so that each row has its own gap: an interval, or a number of seconds. A row whose gap is null or
            not positive is invalid.
        column: the column with the gap of each element. Without Spark it contains durations or microseconds.

    Raises:
        InvalidArgument: the gap is not positive, or neither or both arguments are given.

    >>> import slackwater as sw
    >>> sw.sessions("30 minutes")
    Sessions(gap=1800000000)
    >>> sw.sessions(column="timeout")
    Sessions(gap='timeout')
    """
    if column is not None and gap is None:
        return Sessions(column)
    if gap is None or column is not None:
        raise InvalidArgument(
            "gap", gap, "needs exactly one of gap and column", fix='write sessions("30 minutes")'
        )
    if isinstance(gap, ColumnExpression):
        return SessionsBy(gap)
    return Sessions(duration(gap, name="gap"))


def calendar(
    unit: CalendarUnit,
    *,
    count: int = 1,
    timezone: str = "UTC",
    first_day: Weekday = "monday",
    first_month: int = 1,
) -> Calendar:
    """Local calendar days, weeks, months or years.

    Args:
        unit: ``"days"``, ``"weeks"``, ``"months"`` or ``"years"``.
        count: the number of units per window, counted from 1970.
        timezone: the timezone whose midnight is the bound of a window.
        first_day: the weekday on which weeks begin.
        first_month: the month, 1 to 12, in which years begin, for fiscal years; windows of several months are
            counted from it too, so that ``count=3`` gives fiscal quarters.

    Raises:
        InvalidArgument: a value is invalid, or does not go with the unit.

    >>> import slackwater as sw
    >>> sw.calendar("months", timezone="Europe/Berlin")
    Calendar(unit='months', count=1, timezone='Europe/Berlin')
    >>> weeks = sw.calendar("weeks", first_day="sunday")
    >>> start, end = weeks.windows_at(sw.instant("2024-05-08T12:00:00Z"))[0]
    >>> sw.to_datetime(start).date().isoformat(), sw.to_datetime(end).date().isoformat()
    ('2024-05-05', '2024-05-12')
    """
    return Calendar(unit, count, timezone, first_day, first_month)


def inherited() -> Inherited:
    """The windows of the incoming panes, for an operator downstream of another windowed operator.

    >>> import slackwater as sw
    >>> sw.inherited()
    Inherited()
    """
    return Inherited()


def _offset(value: DurationLike | None) -> int:
    return 0 if value is None else duration(value, name="offset")
