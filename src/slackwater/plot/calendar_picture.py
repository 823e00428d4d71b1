"""The calendar picture: what happens to each day, months below each other.

A day in which several things happen is divided among them by their share. Many years are drawn by months
instead, one row a year.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Final

from slackwater.errors import InvalidArgument
from slackwater.plot.picture_files import needing_matplotlib, picture_file
from slackwater.time import instant, to_datetime

_MOST_MONTHS: Final = 36
_MOST_ROWS: Final = 200
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Cell:
    """A day or a month: its row and column, and the share of each fate in it."""

    row: str
    column: int
    shares: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Calendar:
    """All cells, the names of the rows from above, and how many columns they have."""

    cells: tuple[Cell, ...]
    rows: tuple[str, ...]
    columns: int


def calendar_of(stretches: Mapping[tuple[int, int, str], int], place: tzinfo) -> Calendar:
    """Stretches of time, each with its fate and its weight, laid out on the calendar of a timezone.

    >>> from datetime import UTC
    >>> day = 24 * 60 * 60 * 1_000_000
    >>> calendar_of({(0, day, "new"): 1, (day, 3 * day, "read"): 1, (2 * day, 3 * day, "new"): 3}, UTC).cells[
    ...     2
    ... ]
    Cell(row='January 1970', column=3, shares=(('new', 0.75), ('read', 0.25)))
    """
    if not stretches:
        return Calendar((), (), 31)
    first = _local(min(start for start, _, _ in stretches), place)
    last = _local(max(end for _, end, _ in stretches) - 1, place)
    months = (last.year - first.year) * 12 + last.month - first.month + 1
    by_day = months <= _MOST_MONTHS
    if last.year - first.year >= _MOST_ROWS:
        raise InvalidArgument(
            "range", f"{first} to {last}", f"has more than {_MOST_ROWS} years", fix="plan a shorter range"
        )
    edges = list(_edges(first, last, by_day=by_day))
    moments = [instant(datetime(edge.year, edge.month, edge.day, tzinfo=place)) for edge in edges]
    weights: list[dict[str, int]] = [{} for _ in edges[1:]]
    for (start, end, fate), weight in stretches.items():
        number = _index(moments, start)
        while number < len(weights) and moments[number] < end:
            covered = min(end, moments[number + 1]) - max(start, moments[number])
            if covered:  # a day that the calendar leaves out has no length
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
    return Calendar(cells, tuple(dict.fromkeys(cell.row for cell in cells)), 31 if by_day else 12)


def save_calendar(
    stretches: Mapping[tuple[int, int, str], int],
    path: str | Path,
    *,
    fates: Mapping[str, str],
    place: tzinfo,
    title: str = "",
) -> Path:
    """Draw the calendar into an SVG or PNG file; ``fates`` are the words of the legend, in its order.

    >>> import tempfile
    >>> from datetime import UTC
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     drawn = save_calendar({(0, 10, "new"): 1}, f"{folder}/a.svg", fates={"new": "read"}, place=UTC)
    ...     drawn.read_text(encoding="utf-8")[:5]
    '<?xml'
    """
    target = picture_file(path)
    shown = calendar_of(stretches, place)
    with needing_matplotlib():
        from slackwater.plot.calendar_drawing import draw_calendar
    draw_calendar(shown, target, fates=fates, title=title)
    return target


def _local(at: int, place: tzinfo) -> date:
    return to_datetime(at).astimezone(place).date()


def _edges(first: date, last: date, *, by_day: bool) -> Iterable[date]:
    """The first day of every cell, and of the cell after the last."""
    edge = first if by_day else first.replace(day=1)
    while edge <= last:
        yield edge
        edge = edge + _DAY if by_day else (edge.replace(day=28) + 4 * _DAY).replace(day=1)
    yield edge


def _index(moments: list[int], at: int) -> int:
    """The last cell that begins at or before ``at``."""
    return max(bisect_right(moments, at) - 1, 0)
