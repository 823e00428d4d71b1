"""The calendar picture of a plan: one cell per day, one row per month.

A day with several fates is divided among them in proportion. Long ranges are drawn with one cell per month
and one row per year.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Final

from slackwater._extras import naming_extras
from slackwater.errors import InvalidArgument
from slackwater.plot.picture_files import check_picture_path
from slackwater.time import instant, to_datetime

_MAX_MONTHS: Final = 36
_MAX_YEARS: Final = 200
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Cell:
    """A day or a month: its row and column, and the share of each fate."""

    row: str
    column: int
    shares: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class CalendarPicture:
    """All cells, the row labels from top to bottom, and the number of columns."""

    cells: tuple[Cell, ...]
    rows: tuple[str, ...]
    columns: int


def calendar_of(stretches: Mapping[tuple[int, int, str], int], timezone: tzinfo) -> CalendarPicture:
    """Lay out time ranges on the calendar of a timezone.

    Args:
        stretches: Time ranges as (start, end, fate), each with its weight: the number of units it stands for.
        timezone: The timezone whose days are shown.

    >>> from datetime import UTC
    >>> day = 24 * 60 * 60 * 1_000_000
    >>> calendar_of({(0, day, "new"): 1, (day, 3 * day, "read"): 1, (2 * day, 3 * day, "new"): 3}, UTC).cells[
    ...     2
    ... ]
    Cell(row='January 1970', column=3, shares=(('new', 0.75), ('read', 0.25)))
    """
    if not stretches:
        return CalendarPicture((), (), 31)
    first = _local(min(start for start, _, _ in stretches), timezone)
    last = _local(max(end for _, end, _ in stretches) - 1, timezone)
    months = (last.year - first.year) * 12 + last.month - first.month + 1
    by_day = months <= _MAX_MONTHS
    if last.year - first.year >= _MAX_YEARS:
        raise InvalidArgument(
            "range", f"{first} to {last}", f"covers more than {_MAX_YEARS} years", fix="plan a shorter range"
        )
    edges = list(_edges(first, last, by_day=by_day))
    moments = [instant(datetime(edge.year, edge.month, edge.day, tzinfo=timezone)) for edge in edges]
    weights: list[dict[str, int]] = [{} for _ in edges[1:]]
    for (start, end, fate), weight in stretches.items():
        number = _index(moments, start)
        while number < len(weights) and moments[number] < end:
            covered = min(end, moments[number + 1]) - max(start, moments[number])
            if covered:  # a day that the timezone skipped has no length
                weights[number][fate] = weights[number].get(fate, 0) + covered * weight
            number += 1
    cells = tuple(
        Cell(
            f"{edge:%B %Y}" if by_day else f"{edge:%Y}",
            edge.day if by_day else edge.month,
            tuple((fate, share / sum(shares.values())) for fate, share in sorted(shares.items())),
        )
        for edge, shares in zip(edges, weights, strict=False)
    )
    return CalendarPicture(cells, tuple(dict.fromkeys(cell.row for cell in cells)), 31 if by_day else 12)


def save_calendar(
    stretches: Mapping[tuple[int, int, str], int],
    path: str | Path,
    *,
    fates: Mapping[str, str],
    timezone: tzinfo,
    title: str = "",
) -> Path:
    """Draw time ranges as a calendar into an SVG or PNG file.

    Args:
        stretches: Time ranges as (start, end, fate), each with its weight.
        path: The file; its suffix decides the format.
        fates: The legend text of each fate, in the order of the legend.
        timezone: The timezone whose days are shown.
        title: The title above the picture.

    >>> import tempfile
    >>> from datetime import UTC
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     drawn = save_calendar({(0, 10, "new"): 1}, f"{folder}/a.svg", fates={"new": "read"}, timezone=UTC)
    ...     drawn.read_text(encoding="utf-8")[:5]
    '<?xml'
    """
    target = check_picture_path(path)
    shown = calendar_of(stretches, timezone)
    with naming_extras():
        from slackwater.plot.calendar_drawing import draw_calendar
    draw_calendar(shown, target, fates=fates, title=title)
    return target


def _local(at: int, timezone: tzinfo) -> date:
    return to_datetime(at).astimezone(timezone).date()


def _edges(first: date, last: date, *, by_day: bool) -> Iterable[date]:
    """The first day of each cell, followed by the end of the last cell."""
    edge = first if by_day else first.replace(day=1)
    while edge <= last:
        yield edge
        edge = edge + _DAY if by_day else (edge.replace(day=28) + 4 * _DAY).replace(day=1)
    yield edge


def _index(moments: list[int], at: int) -> int:
    """The index of the last cell that begins at or before ``at``."""
    return max(bisect_right(moments, at) - 1, 0)
