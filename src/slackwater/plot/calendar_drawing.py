"""Draws the calendar with matplotlib; imported only when a picture is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from slackwater.plot.calendar_picture import Calendar
from slackwater.plot.drawing import FAINT, INK, METADATA, STYLE

_COLOURS: Final = ("#009e73", "#e69f00", "#c9d3dc", "#56b4e9", "#cc79a7", "#d55e00")
"""One for each fate in the order of the legend; told apart also without red and green."""
_HATCHES: Final = ("", "\\\\\\\\", "", "....", "////", "xxxx")
_GAP: Final = 0.06
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def draw_calendar(shown: Calendar, target: Path, *, fates: Mapping[str, str], title: str) -> None:
    """Draw ``shown`` into ``target``, whose suffix decides the format.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     draw_calendar(Calendar((), (), 31), Path(folder) / "empty.svg", fates={}, title="")
    ...     (Path(folder) / "empty.svg").stat().st_size > 0
    True
    """
    with mpl.rc_context():
        mpl.rcdefaults()  # what somebody set for other pictures must not change this one
        mpl.rcParams.update(STYLE)
        height = 1.6 + 0.3 * max(len(shown.rows), 1)
        figure = Figure(figsize=(10, height), dpi=150, facecolor="white", layout="constrained")
        axes = figure.add_subplot()
        colours = dict(zip(fates, _COLOURS, strict=False))
        hatches = dict(zip(fates, _HATCHES, strict=False))
        lines = {row: number for number, row in enumerate(shown.rows)}
        for cell in shown.cells:
            bottom = lines[cell.row] + _GAP / 2
            for fate, share in cell.shares:
                tall = share * (1 - _GAP)
                axes.add_patch(
                    Rectangle(
                        (cell.column - 0.5 + _GAP / 2, bottom), 1 - _GAP, tall,
                        facecolor=colours[fate], edgecolor="white", hatch=hatches[fate], linewidth=0,
                    )
                )  # fmt: skip
                bottom += tall
        axes.set_xlim(0.5, shown.columns + 0.5)
        axes.set_ylim(max(len(shown.rows), 1), 0)
        axes.set_xticks(
            range(1, shown.columns + 1),
            [str(day) for day in range(1, 32)] if shown.columns == 31 else _MONTHS,
        )
        axes.set_yticks([number + 0.5 for number in range(len(shown.rows))], shown.rows)
        axes.tick_params(colors=INK, length=0, labelsize=8, labeltop=True, labelbottom=False)
        for spine in axes.spines.values():
            spine.set_color(FAINT)
            spine.set_visible(False)
        if title:
            axes.set_title(title, color=INK, fontsize=12, fontweight="bold", loc="left", pad=20)
        seen = {fate for cell in shown.cells for fate, _ in cell.shares}
        axes.legend(
            handles=[
                Patch(facecolor=colours[fate], edgecolor="white", hatch=hatches[fate], label=words)
                for fate, words in fates.items()
                if fate in seen
            ],
            loc="upper center",
            bbox_to_anchor=(0.5, -0.02),
            ncols=3,
            frameon=False,
            labelcolor=INK,
            fontsize=9,
        )
        figure.savefig(target, metadata=METADATA[target.suffix])
