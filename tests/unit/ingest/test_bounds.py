"""Dates, times and durations of `from` and `to`, at the edges of the clock."""

from __future__ import annotations

import pytest

from slackwater.errors import InvalidArgument
from slackwater.ingest.axis.bounds import read_bound
from slackwater.ingest.axis.timezones import floor_to, zone
from slackwater.time import format_instant, instant


def resolved(text: str, *, now: str = "2020-01-15T10:59:59.5Z", timezone: str = "UTC") -> str:
    return format_instant(read_bound(text, open_end=True).resolve(instant(now), zone(timezone)))


@pytest.mark.parametrize(
    ("text", "timezone", "expected"),
    [
        ("2020-03-29 02:30:00", "Europe/Berlin", "2020-03-29T01:30:00Z"),  # left out: forward
        ("2020-10-25 02:30:00", "Europe/Berlin", "2020-10-25T00:30:00Z"),  # twice: the earlier
        ("2018-11-04", "America/Sao_Paulo", "2018-11-04T03:00:00Z"),  # midnight left out
        ("2020-11-01", "America/Havana", "2020-11-01T04:00:00Z"),  # midnight twice
        ("2011-12-30", "Pacific/Apia", "2011-12-30T10:00:00Z"),  # the whole day left out
        ("2020-01-01 00:00:00.000001Z", "Asia/Tokyo", "2020-01-01T00:00:00.000001Z"),
        ("2020-01-01T00:00:00+0530", "UTC", "2019-12-31T18:30:00Z"),
        ("2020-07-01 10:00:00PST", "UTC", "2020-07-01T18:00:00Z"),
        ("2020-07-01 10:00:00EST5EDT", "UTC", "2020-07-01T14:00:00Z"),
        ("P1D", "Europe/Berlin", "2020-01-13T23:00:00Z"),
        ("P1D.Asia/Tokyo", "Europe/Berlin", "2020-01-13T15:00:00Z"),
        ("P0DT0H", "Asia/Kolkata", "2020-01-15T10:30:00Z"),  # the hour of the wall clock
        ("P0DT0H0M", "UTC", "2020-01-15T10:59:00Z"),
        ("-", "UTC", "2020-01-15T10:59:00Z"),
    ],
)
def test_what_a_bound_means(text: str, timezone: str, expected: str) -> None:
    assert resolved(text, timezone=timezone) == expected


@pytest.mark.parametrize(
    ("text", "now", "expected"),
    [
        ("P1D", "2020-03-30T10:00:00Z", "2020-03-28T23:00:00Z"),  # the 29th had 23 hours
        ("P0DT12H", "2020-03-29T10:00:00Z", "2020-03-28T22:00:00Z"),  # hours are elapsed hours
        ("P1DT0H", "2020-03-30T00:30:00Z", "2020-03-29T01:00:00Z"),  # 02:00 was left out
        ("P1DT12H", "2020-03-30T10:00:00Z", "2020-03-28T22:00:00Z"),
        ("P0DT0H", "2020-10-25T00:45:00Z", "2020-10-25T00:00:00Z"),  # 02:45 for the first time
        ("P0DT0H", "2020-10-25T01:45:00Z", "2020-10-25T01:00:00Z"),  # and for the second
        ("P0D", "2020-10-25T01:45:00Z", "2020-10-24T22:00:00Z"),
    ],
)
def test_days_are_of_the_calendar_and_hours_elapse(text: str, now: str, expected: str) -> None:
    assert resolved(text, now=now, timezone="Europe/Berlin") == expected


@pytest.mark.parametrize(
    "text",
    [
        "2020-1-01",
        "20200101",
        "2020-01-01T10",
        "2020-01-01 10:00",
        "2020-01-01 24:00:00",
        "2020-01-01 10:00:60",
        "2020-01-01  10:00:00",
        "2020-01-01 10:00:00.",
        "2020-01-01 10:00:00.1234567",
        "2020-01-01Z",
        "2020-02-30",
        "2020-01-01 10:00:00+25:00",
        "2020-01-01 10:00:00+05:60",
        "2020-01-01 10:00:00+5",
        "2020-01-01 10:00:00Mars/X",
        "2020-01-01 10:00:00 UTC",
        "0000-01-01",
        "٢٠٢٠-01-01",
        "P",
        "PD",
        "P1",
        "P1W",
        "P1M",
        "P1Y",
        "PT1H",
        "P1DT",
        "P1D1H",
        "P1DT5M",
        "P1DT1H5M3S",
        "-P1D",
        "P-1D",
        "p1d",
        "P1.5D",
        "P1D.",
        "P1D.America",
        "P1D.localtime",
        "P1D.right/UTC",
        "P0D.Foo",
        "P9999999999D",
        "now",
        "",
        "+",
        "--",
    ],
)
def test_invalid_bounds_are_rejected(text: str) -> None:
    with pytest.raises(InvalidArgument):
        read_bound(text, open_end=True)


def test_only_the_end_may_be_open() -> None:
    with pytest.raises(InvalidArgument):
        read_bound("-")


@pytest.mark.parametrize("text", ["P999999D", "P0DT999999999H", "P0DT0H999999999M", "P737500DT0H"])
def test_a_duration_ends_in_the_year_1(text: str) -> None:
    if text == "P0DT0H999999999M":
        assert resolved(text).startswith("0118-")
    else:
        with pytest.raises(InvalidArgument, match=f"'{text}': is before the year 1"):
            resolved(text)


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("2020-10-03T15:40:00Z", "2020-10-03T15:30:00Z"),  # 02:40 is 10 minutes after 02:00 became 02:30
        (
            "2020-04-04T15:10:00Z",
            "2020-04-04T14:00:00Z",
        ),  # 01:40 for the second time: the hour began at 01:00
    ],
)
def test_an_hour_with_a_change_in_its_middle(at: str, expected: str) -> None:
    assert format_instant(floor_to(instant(at), zone("Australia/Lord_Howe"), "hour")) == expected
