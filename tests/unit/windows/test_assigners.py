"""Window assigners: exact bounds, calendar windows across daylight saving time, invalid arguments."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest

from slackwater.errors import InvalidArgument
from slackwater.time import DAY, HOUR, instant
from slackwater.windows import Calendar, Fixed, Sessions, Sliding
from slackwater.windows.assigners import MOST_OVERLAPPING
from slackwater.windows.engine.slices import Slicing


@pytest.mark.parametrize(
    ("window", "at", "expected"),
    [
        (Fixed(10), 0, [(0, 10)]),
        (Fixed(10), -1, [(-10, 0)]),
        (Fixed(10, offset=3), 2, [(-7, 3)]),
        (Sliding(10, 5), 5, [(0, 10), (5, 15)]),
        (Sliding(10, 3), 9, [(0, 10), (3, 13), (6, 16), (9, 19)]),
        (Sliding(3, 10), 3, []),
        (Sessions(10), -4, [(-4, 6)]),
    ],
)
def test_windows_of_an_element(
    window: Fixed | Sliding | Sessions, at: int, expected: list[tuple[int, int]]
) -> None:
    assert window.windows_at(at) == expected


@pytest.mark.parametrize(
    "window", [Sliding(60, 10), Sliding(7, 5), Sliding(3, 10), Sliding(10, 3, -4), Sliding(4, 4)]
)
def test_windows_consist_of_whole_slices(window: Sliding) -> None:
    slicing = Slicing(window)
    times = list(range(-70, 70))
    starts = slicing.assign(pl.DataFrame({"time": times}))["start"].to_list()
    for at, start in zip(times, starts, strict=True):
        part = window.slice_at(at)
        assert part[0] == start
        assert part[0] <= at < part[1]
        assert list(slicing.windows(part)) == window.windows_at(at)
        assert not window.windows_at(at) or slicing.last_end(part) == window.windows_at(at)[-1][1]
        for bounds in window.windows_at(at):
            parts = list(slicing.slices(bounds))
            assert part in parts
            assert (parts[0][0], parts[-1][1]) == bounds


def test_too_many_overlapping_windows_raise() -> None:
    assert len(Sliding(MOST_OVERLAPPING, 1).windows_at(0)) == MOST_OVERLAPPING
    with pytest.raises(InvalidArgument, match="every = 1: puts each element into 10,001 windows, of at most"):
        Sliding(MOST_OVERLAPPING + 1, 1)


def test_a_local_day_has_23_or_25_hours() -> None:
    days = Calendar("days", timezone="Europe/Berlin")
    spring = days.windows_at(instant("2024-03-31T12:00:00Z"))[0]
    autumn = days.windows_at(instant("2024-10-27T12:00:00Z"))[0]
    assert [(end - start) // HOUR for start, end in (spring, autumn)] == [23, 25]


@pytest.mark.parametrize(
    ("window", "at", "start", "end"),
    [
        (Calendar("weeks", first_day="sunday"), "2024-05-05T00:00:00Z", "2024-05-05", "2024-05-12"),
        (Calendar("weeks", first_day="sunday"), "2024-05-04T23:59:59Z", "2024-04-28", "2024-05-05"),
        (Calendar("weeks", first_day="thursday"), "1969-12-31T12:00:00Z", "1969-12-25", "1970-01-01"),
        (Calendar("years", first_month=4), "2024-04-01T00:00:00Z", "2024-04-01", "2025-04-01"),
        (Calendar("years", first_month=4), "2024-03-31T23:59:59Z", "2023-04-01", "2024-04-01"),
        (Calendar("years", first_month=4), "1970-03-31T00:00:00Z", "1969-04-01", "1970-04-01"),
        (Calendar("months", count=3, first_month=2), "2024-01-31T00:00:00Z", "2023-11-01", "2024-02-01"),
    ],
)
def test_calendar_windows_with_another_beginning(window: Calendar, at: str, start: str, end: str) -> None:
    assert window.windows_at(instant(at)) == [(instant(f"{start}T00:00:00Z"), instant(f"{end}T00:00:00Z"))]


def test_a_fiscal_year_begins_at_local_midnight() -> None:
    ((start, end),) = Calendar("years", 1, "Europe/London", first_month=4).windows_at(
        instant("2024-06-01T00:00:00Z")
    )
    assert (start, end) == (instant("2024-03-31T23:00:00Z"), instant("2025-03-31T23:00:00Z"))


def test_calendar_bounds_belong_to_the_later_window() -> None:
    months = Calendar("months", timezone="America/New_York")
    boundary = instant("2024-03-01T05:00:00Z")
    assert months.windows_at(boundary)[0][0] == boundary
    assert months.windows_at(boundary - 1)[0][1] == boundary


def test_weeks_begin_on_monday() -> None:
    start, end = Calendar("weeks").windows_at(instant("2024-01-03T00:00:00Z"))[0]
    assert start == instant("2024-01-01T00:00:00Z")
    assert end - start == 7 * DAY


@pytest.mark.parametrize(
    "window",
    [
        Calendar("days", timezone="America/Sao_Paulo"),
        Calendar("months", 5),
        Calendar("weeks", 2),
        Calendar("years"),
    ],
)
def test_calendar_windows_of_a_column_equal_those_of_each_element(window: Calendar) -> None:
    first = instant("2017-10-01T00:00:00Z")
    times = [first + step * 7 * HOUR + step for step in range(400)]
    starts = Slicing(window).assign(pl.DataFrame({"time": times}))["start"].to_list()
    assert starts == [window.windows_at(at)[0][0] for at in times]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Fixed(0), "size = 0: must be greater than zero"),
        (lambda: Sliding(10, 0), "every = 0"),
        (lambda: Sliding(-1, 1), "size = -1"),
        (lambda: Sessions(0), "gap = 0"),
        (lambda: Calendar("hours"), "is not a calendar unit"),  # type: ignore[arg-type]
        (lambda: Calendar("weeks", first_day="Sunday"), "is not a weekday; use one of mon"),  # type: ignore[arg-type]
        (lambda: Calendar("days", first_day="sunday"), "has no meaning for days"),
        (lambda: Calendar("years", 10**6), "count = 1000000: years from 1970 on end after the year 9999"),
        (lambda: Calendar("days", 2**62), "days from 1970 on end after the year 9999; use a smaller count"),
        (lambda: Calendar("years", first_month=13), "is not a month; use a number from 1 to 12"),
        (lambda: Calendar("weeks", first_month=4), "has no meaning for weeks"),
        (lambda: Calendar("days", 0), "count = 0"),
        (lambda: Calendar("days", timezone="Mars/Olympus"), "is not a known timezone"),
        (lambda: Fixed(1.5), "is a float"),  # type: ignore[arg-type]
    ],
)
def test_invalid_windows_raise(make: Callable[[], object], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        make()
