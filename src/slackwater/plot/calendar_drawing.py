"""Drawing of the calendar with matplotlib; imported only when a picture is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from matplotlib.patches import Patch, Rectangle

from slackwater.plot.calendar_picture import CalendarPicture
from slackwater.plot.picture_style import FAINT, INK, add_legend, saved_axes, set_title

_COLOURS: Final = ("#009e73", "#e69f00", "#c9d3dc", "#56b4e9", "#cc79a7", "#d55e00")
"""One for each fate, in the order of the legend; distinct also with red-green colour blindness."""
_HATCHES: Final = ("", "\\\\\\\\", "", "....", "////", "xxxx")
_GAP: Final = 0.06
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def draw_calendar(calendar: CalendarPicture, target: Path, *, fates: Mapping[str, str], title: str) -> None:
    """Draw a calendar into ``target``, whose suffix decides the format.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     draw_calendar(CalendarPicture((), (), 31), Path(folder) / "empty.svg", fates={}, title="")
    ...     (Path(folder) / "empty.svg").stat().st_size > 0
    True
    """
    with saved_axes(target, width=10, height=1.6 + 0.3 * max(len(calendar.rows), 1)) as axes:
        colours = dict(zip(fates, _COLOURS, strict=False))
        hatches = dict(zip(fates, _HATCHES, strict=False))
        lines = {row: number for number, row in enumerate(calendar.rows)}
        for cell in calendar.cells:
            bottom = lines[cell.row] + _GAP / 2
            for fate, share in cell.shares:
                height = share * (1 - _GAP)
                axes.add_patch(
                    Rectangle(
                        (cell.column - 0.5 + _GAP / 2, bottom), 1 - _GAP, height,
                        facecolor=colours[fate], edgecolor="white", hatch=hatches[fate], linewidth=0,
                    )
                )  # fmt: skip
                bottom += height
        axes.set_xlim(0.5, calendar.columns + 0.5)
        axes.set_ylim(max(len(calendar.rows), 1), 0)
        axes.set_xticks(
            range(1, calendar.columns + 1),
            [str(day) for day in range(1, 32)] if calendar.columns == 31 else _MONTHS,
        )
        axes.set_yticks([number + 0.5 for number in range(len(calendar.rows))], calendar.rows)
        axes.tick_params(colors=INK, length=0, labelsize=8, labeltop=True, labelbottom=False)
        for spine in axes.spines.values():
            spine.set_color(FAINT)
            spine.set_visible(False)
        set_title(axes, title, pad=20)
        drawn = {fate for cell in calendar.cells for fate, _ in cell.shares}
        handles = [
            Patch(facecolor=colours[fate], edgecolor="white", hatch=hatches[fate], label=text)
            for fate, text in fates.items()
            if fate in drawn
        ]
        add_legend(axes, handles, y=-0.02, columns=3)
