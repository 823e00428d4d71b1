"""Instants, durations, ranges and frames."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import InvalidArgument, InvalidDuration, InvalidInstant
from slackwater.time import (
    DAY,
    END_OF_TIME,
    HOUR,
    MINUTE,
    SECOND,
    Range,
    check_int64,
    duration,
    format_duration,
    format_instant,
    frame_floor,
    frame_higher,
    instant,
    to_datetime,
)


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("10 seconds", 10 * SECOND),
        ("1 second", SECOND),
        ("10seconds", 10 * SECOND),
        ("  2   MINUTES ", 2 * MINUTE),
        ("interval 1 hour 30 minutes", HOUR + 30 * MINUTE),
        ("1 day -1 hour", 23 * HOUR),
        ("-5 seconds", -5 * SECOND),
        ("0 seconds", 0),
        ("1.5 seconds", 1_500_000),
        ("500 ms", 500_000),
        ("7 us", 7),
        ("2 weeks", 14 * DAY),
        ("PT10S", 10 * SECOND),
        ("pt10s", 10 * SECOND),
        ("PT0.5S", 500_000),
        ("PT0,5S", 500_000),
        ("P1DT2H3M4S", DAY + 2 * HOUR + 3 * MINUTE + 4 * SECOND),
        ("P2W", 14 * DAY),
        ("-PT1M", -MINUTE),
        ("PT-1M", -MINUTE),
        ("PT36H", 36 * HOUR),
    ],
)
def test_valid_durations(text: str, microseconds: int) -> None:
    assert duration(text) == microseconds


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "is empty"),
        ("interval", "is empty"),
        ("10", "has no unit"),
        ("10.5", "has no unit"),
        ("seconds", "cannot be parsed"),
        ("10 parsecs", "unknown unit 'parsecs'"),
        ("10 seconds and more", "cannot be parsed from 'and more'"),
        ("1 month", "a month has no fixed length"),
        ("2 years", "a year has no fixed length"),
        ("P1M", "months and years have no fixed length"),
        ("P1Y2D", "months and years have no fixed length"),
        ("P", "is not an ISO 8601 duration"),
        ("PT", "is not an ISO 8601 duration"),
        ("P1DT", "is not an ISO 8601 duration"),
        ("P1H", "is not an ISO 8601 duration"),
        ("0.0000001 seconds", "is more precise than a microsecond"),
        ("9999999999 days", "longer than"),
        ("1" * 5000 + " seconds", "too long"),
        ("٣ seconds", "cannot be parsed"),
        (10, "a bare number has no unit"),
        (1.5, "a bare number has no unit"),
        (None, "is not a duration"),
    ],
)
def test_invalid_durations_are_rejected_with_reason_and_fix(value: Any, reason: str) -> None:
    with pytest.raises(InvalidDuration, match=reason) as caught:
        duration(value, name="gap")
    assert caught.value.name == "gap"
    assert caught.value.fix
    assert str(caught.value).startswith("gap = ")


@given(st.timedeltas(min_value=timedelta(days=-99999), max_value=timedelta(days=99999)))
def test_a_timedelta_is_converted_exactly(delta: timedelta) -> None:
    assert duration(delta) == delta // timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [
        (0, "0 s"),
        (1, "1 µs"),
        (1_500, "1 ms 500 µs"),
        (5 * SECOND, "5 s"),
        (HOUR + 30 * MINUTE, "1 h 30 min"),
        (-90 * SECOND, "-1 min 30 s"),
        (DAY + SECOND, "1 d"),
        (400 * DAY + 3 * HOUR, "400 d 3 h"),
    ],
)
def test_durations_are_formatted_in_their_largest_units(microseconds: int, text: str) -> None:
    assert format_duration(microseconds) == text


def test_an_instant_does_not_depend_on_the_timezone() -> None:
    utc = datetime(2024, 5, 1, 12, tzinfo=UTC)
    berlin = utc.astimezone(timezone(timedelta(hours=2)))
    assert (
        instant(utc)
        == instant(berlin)
        == instant("2024-05-01T12:00:00Z")
        == instant("2024-05-01 14:00:00+02:00")
    )


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("2024-05-01", "has no timezone"),
        (datetime(2024, 5, 1), "has no timezone"),  # noqa: DTZ001 - that it is refused is the point
        ("yesterday", "is not an ISO 8601 date and time"),
        ("2024-02-30T00:00:00Z", "is not an ISO 8601 date and time"),
        (date(2024, 5, 1), "a date without a time"),
        (1714564800, "of type int"),
        (None, "of type NoneType"),
    ],
)
def test_invalid_instants_are_rejected_with_the_reason(value: Any, reason: str) -> None:
    with pytest.raises(InvalidInstant, match=reason):
        instant(value)


@given(st.datetimes(timezones=st.just(UTC)))
def test_instants_round_trip(moment: datetime) -> None:
    assert to_datetime(instant(moment)) == moment
    assert instant(format_instant(instant(moment))) == instant(moment)


@pytest.mark.parametrize("value", [END_OF_TIME, -(2**63), 10**18, None])
def test_every_instant_can_be_formatted(value: int | None) -> None:
    assert format_instant(value)


def test_an_instant_outside_the_calendar_has_no_datetime() -> None:
    with pytest.raises(InvalidInstant, match="years 1 to 9999"):
        to_datetime(END_OF_TIME)


@given(st.integers(-(10**6), 10**6), st.integers(1, 1000), st.integers(-1000, 1000))
def test_a_frame_contains_its_time(at: int, size: int, offset: int) -> None:
    floor, higher = frame_floor(at, size, offset), frame_higher(at, size, offset)
    assert floor <= at < higher
    assert higher - floor == size
    assert (floor - offset) % size == 0


def test_a_range_includes_its_start_and_excludes_its_end() -> None:
    assert [at for at in range(12) if Range(5, 10).contains(at)] == [5, 6, 7, 8, 9]
    assert not Range(5, 5).contains(5)


def test_adjacent_ranges_do_not_overlap() -> None:
    assert not Range(0, 5).overlaps(Range(5, 9))
    assert Range(0, 6).overlaps(Range(5, 9))
    assert not Range(3, 3).overlaps(Range(0, 9))


def test_a_range_that_ends_before_it_starts_is_rejected() -> None:
    with pytest.raises(InvalidArgument, match="is before the start"):
        Range(5, 4)


@pytest.mark.parametrize("value", [True, 1.0, "1", None, 2**63, -(2**63) - 1])
def test_values_that_are_not_64_bit_integers_are_rejected(value: object) -> None:
    with pytest.raises(InvalidArgument, match="watermark = "):
        check_int64(value, "watermark")
