"""The calendar picture: its cells and the shares they show."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from slackwater.errors import InvalidArgument
from slackwater.plot.calendar_picture import Cell, calendar_of, save_calendar
from slackwater.time import DAY, HOUR, instant

START = instant("2020-02-28T00:00:00Z")


def test_a_day_is_divided_in_proportion() -> None:
    shown = calendar_of({(START, START + DAY, "read"): 2, (START + 12 * HOUR, START + DAY, "new"): 4}, UTC)
    assert shown.cells == (Cell("February 2020", 28, (("new", 0.5), ("read", 0.5))),)


def test_each_month_is_a_row() -> None:
    shown = calendar_of({(START, START + 3 * DAY, "new"): 1}, UTC)
    assert shown.rows == ("February 2020", "March 2020")
    assert [cell.column for cell in shown.cells] == [28, 29, 1]


def test_a_range_that_ends_at_midnight_does_not_include_the_next_day() -> None:
    assert len(calendar_of({(START, START + DAY, "new"): 1}, UTC).cells) == 1
    assert len(calendar_of({(START, START + DAY + 1, "new"): 1}, UTC).cells) == 2


def test_days_follow_the_timezone() -> None:
    shown = calendar_of({(START, START + DAY, "new"): 1}, ZoneInfo("Asia/Tokyo"))
    assert [cell.column for cell in shown.cells] == [28, 29]


def test_days_without_ranges_are_empty() -> None:
    shown = calendar_of({(START, START + DAY, "new"): 1, (START + 2 * DAY, START + 3 * DAY, "new"): 1}, UTC)
    assert [len(cell.shares) for cell in shown.cells] == [1, 0, 1]


def test_a_day_that_the_timezone_skipped_is_empty() -> None:
    begin, end = instant("2011-12-29T10:00:00Z"), instant("2011-12-31T10:00:00Z")
    shown = calendar_of({(begin, end, "new"): 1}, ZoneInfo("Pacific/Apia"))
    assert [(cell.column, len(cell.shares)) for cell in shown.cells] == [(29, 1), (30, 0), (31, 1)]


def test_many_years_are_drawn_by_months() -> None:
    shown = calendar_of({(START, START + 2_000 * DAY, "new"): 1}, UTC)
    assert (shown.columns, shown.rows[0], shown.rows[-1]) == (12, "2020", "2025")
    assert len(shown.cells) == 67


def test_too_long_ranges_and_unknown_suffixes_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="shorter range"):
        calendar_of({(START, START + 100_000 * DAY, "new"): 1}, UTC)
    with pytest.raises(InvalidArgument, match="suffix"):
        save_calendar({}, tmp_path / "a.gif", fates={}, timezone=UTC)


@pytest.mark.search
def test_the_picture_is_the_same_every_time(tmp_path: Path) -> None:
    stretches = {(START, START + 40 * DAY, "new"): 1, (START, START + 10 * DAY, "read"): 1}
    fates = {"new": "read for the first time", "read": "read before"}
    drawn = [
        save_calendar(stretches, tmp_path / name, fates=fates, timezone=UTC, title="orders").read_bytes()
        for name in ("a.svg", "b.svg")
    ]
    assert drawn[0] == drawn[1]
