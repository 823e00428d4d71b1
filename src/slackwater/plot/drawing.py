"""Draws a scene: event time across, processing time up, the watermark as a line, panes as boxes.

Colours are those of Okabe and Ito, which people with any common colour blindness tell apart; the
timing of a pane is also in its hatching and in words, so that the picture works in grey as well.
The same scene gives the same bytes: no dates, no random ids, text as shapes.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from slackwater.plot.scene import Box, Scene
from slackwater.testing.text_table import UNITS

INK: Final = "#26323d"
FAINT: Final = "#8a949e"
_GRID: Final = "#e6eaee"
_WATERMARK: Final = "#0072b2"
_TIMINGS: Final = {
    "EARLY": ("#e69f00", "\\\\\\\\", "early"),
    "ON_TIME": ("#009e73", "", "on time"),
    "LATE": ("#cc79a7", "////", "late"),
}
"""Colour, hatching and wording of each timing."""
_FATES: Final = {
    "on time": (INK, "white", "element"),
    "late": ("#a3447c", "#fbeaf3", "late element"),
    "dropped": (FAINT, "white", "dropped element"),
}
"""Edge, fill and wording of each element."""
METADATA: Final = {".svg": {"Date": None, "Creator": None}, ".png": {"Software": None}}
_LEGEND: Final = (
    *("element", "late element", "dropped element", "watermark"),
    *("early pane", "on time pane", "late pane", "ideal"),
)
STYLE: Final[dict[Any, Any]] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "hatch.linewidth": 0.7,
    "svg.fonttype": "path",
    "svg.hashsalt": "slackwater",
}
_WATERMARK_LINE: Final[dict[str, Any]] = {"color": _WATERMARK, "linewidth": 3.0, "solid_capstyle": "round"}
_MOST_TICKS: Final = 12
_ENOUGH_ROOM: Final = 0.008
"""Squared share of the picture from which on a label does not touch what is beside it."""
_DOT: Final = 17.0
_SMALL_DOT: Final = 7.0
_MOST_WORDED: Final = 30
"""From more elements than this on they are small, and say nothing: the words would cover each other."""


def draw(shown: Scene, target: Path, *, unit: str, title: str) -> None:
    """Draw ``shown`` into ``target``, whose suffix decides the format.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     draw(Scene((), (), (), finish=0, clocked=False), Path(folder) / "empty.svg", unit="s", title="")
    ...     (Path(folder) / "empty.svg").stat().st_size > 0
    True
    """
    with mpl.rc_context():
        mpl.rcdefaults()  # what somebody set for other pictures must not change this one
        mpl.rcParams.update(STYLE)
        figure = Figure(figsize=(8, 5.6), dpi=150, facecolor="white", layout="constrained")
        _Drawing(figure.add_subplot(), shown, unit).draw(title)
        figure.savefig(target, metadata=METADATA[target.suffix])


class _Drawing:
    """One picture: the scene, the axes, and how far an hour reaches on each of them."""

    def __init__(self, axes: Axes, shown: Scene, unit: str) -> None:
        self._axes = axes
        self._shown = shown
        self._unit = unit
        self._scale = UNITS[unit]
        self._upwards = self._scale if shown.clocked else 1
        across = [value / self._scale for value in shown.times()] or [0.0]
        moments = (
            [dot.arrival for dot in shown.dots] + [corner.at for corner in shown.watermark] + [shown.finish]
        )
        upwards = [moment / self._upwards for moment in moments]
        wide, tall = (max(across) - min(across)) or 1.0, (max(upwards) - min(upwards)) or 1.0
        self._left, self._right = min(across) - 0.025 * wide, max(across) + 0.06 * wide
        self._bottom, self._top = min(upwards) - 0.09 * tall, max(upwards) + 0.07 * tall
        self._legend: dict[str, Artist] = {}

    def draw(self, title: str) -> None:
        """Everything, from the back to the front."""
        axes = self._axes
        axes.set_xlim(self._left, self._right)
        axes.set_ylim(self._bottom, self._top)
        axes.set_xlabel(f"event time [{self._unit}]", color=INK, labelpad=6)
        axes.set_ylabel(f"processing time [{self._unit}]" if self._shown.clocked else "step", color=INK)
        finite = set(self._shown.times())
        bounds = sorted({bound for box in self._shown.boxes for bound in (box.start, box.end)} & finite)
        if 0 < len(bounds) <= _MOST_TICKS:
            axes.set_xticks([bound / self._scale for bound in bounds])
        axes.grid(color=_GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(colors=INK, length=0)
        for side, spine in axes.spines.items():
            spine.set_visible(side in ("left", "bottom"))
            spine.set_color(FAINT)
        if title:
            axes.set_title(title, color=INK, fontsize=12, fontweight="bold", loc="left", pad=12)
        for box in self._shown.boxes:
            self._draw_box(box)
        self._draw_lines()
        self._draw_dots()
        for box in self._shown.boxes:
            self._label_box(box)
        axes.legend(
            handles=[self._legend[word] for word in _LEGEND if word in self._legend],
            loc="upper center",
            bbox_to_anchor=(0.5, -0.13),
            ncols=4,
            frameon=False,
            labelcolor=INK,
            fontsize=9,
            handlelength=2.2,
            columnspacing=1.8,
        )

    def _across(self, event_time: int) -> float:
        """An event time in units; the ends of time lie at the edge of the picture."""
        return min(max(event_time / self._scale, self._left), self._right)

    def _draw_box(self, box: Box) -> None:
        colour, hatch, word = _TIMINGS[box.timing]
        gap = (self._right - self._left) * 0.005
        left, right = self._across(box.start) + gap, self._across(box.end) - gap
        bottom, top = box.since / self._upwards, box.fired / self._upwards
        for fill, pattern, order in ((to_rgba(colour, 0.16), "", 2.0), ("none", hatch, 2.1)):
            self._axes.add_patch(
                Rectangle(
                    (left, bottom),
                    right - left,
                    top - bottom,
                    facecolor=fill,
                    edgecolor=to_rgba(colour, 0.55) if pattern else colour,
                    hatch=pattern,
                    linewidth=0 if pattern else 1.0,
                    zorder=order,
                )
            )
        self._axes.plot(
            [left, right], [top, top], color=colour, linewidth=2.6, solid_capstyle="butt", zorder=3
        )
        self._legend[f"{word} pane"] = Patch(
            facecolor=to_rgba(colour, 0.2), edgecolor=colour, hatch=hatch, label=f"{word} pane"
        )

    def _label_box(self, box: Box) -> None:
        """Timing and value on the upper edge, where the pane comes out, away from the elements there."""
        colour, _, word = _TIMINGS[box.timing]
        left, right, height = self._across(box.start), self._across(box.end), box.fired / self._upwards
        wide, tall = self._right - self._left, self._top - self._bottom
        obstacles = [(dot.event_time / self._scale, dot.arrival / self._upwards) for dot in self._shown.dots]
        obstacles += [(self._across(c.watermark), c.at / self._upwards) for c in self._shown.watermark]
        obstacles += [
            (self._across(c.watermark), following.at / self._upwards)
            for c, following in pairwise(self._shown.watermark)
        ]

        def room(at: float) -> float:
            distances = (((x - at) / wide) ** 2 + ((y - height) / tall) ** 2 for x, y in obstacles)
            return min(distances, default=1.0)

        places = [left + (right - left) * share for share in (0.5, 0.35, 0.65, 0.25, 0.75)]
        at = max(places, key=lambda place: min(room(place), _ENOUGH_ROOM))
        taken_back = "".join(f"−{text} " for text in box.retracted)
        self._axes.text(
            at,
            height,
            f"{word}  {taken_back}{'+' if box.retracted else ''}{box.text}",
            ha="center",
            va="center",
            color=INK,
            fontsize=9.5,
            fontweight="bold",
            zorder=8,
            bbox={"boxstyle": "round,pad=0.32", "facecolor": "white", "edgecolor": colour, "linewidth": 1.3},
        )

    def _draw_lines(self) -> None:
        corners = self._shown.watermark
        if self._shown.clocked:
            low, high = max(self._left, self._bottom), min(self._right, self._top)
            (ideal,) = self._axes.plot(
                [low, high], [low, high], color=FAINT, linewidth=1.2, linestyle=(0, (1, 2.2)), zorder=1.5,
                label="ideal: no delay",
            )  # fmt: skip
            self._legend["ideal"] = ideal
        if not corners:
            return
        moments = [corner.at / self._upwards for corner in corners]
        values = [self._across(corner.watermark) for corner in corners]
        # It stands still between two moves and jumps in no time: bold where it is, thin where it jumps.
        for value, since, until in zip(values, moments, [*moments[1:], self._top], strict=True):
            self._axes.plot([value, value], [since, until], zorder=5, **_WATERMARK_LINE)
        for (value, following), moment in zip(pairwise(values), moments[1:], strict=True):
            self._axes.plot([value, following], [moment, moment], color=_WATERMARK, linewidth=1.4, zorder=3.5)
        self._legend["watermark"] = Line2D([], [], label="watermark", **_WATERMARK_LINE)

    def _draw_dots(self) -> None:
        worded = len(self._shown.dots) <= _MOST_WORDED
        size = _DOT if worded else _SMALL_DOT
        for dot in self._shown.dots:
            edge, fill, word = _FATES[dot.fate]
            at = (dot.event_time / self._scale, dot.arrival / self._upwards)
            style: dict[str, Any] = {
                "marker": "o",
                "markerfacecolor": fill,
                "markeredgecolor": edge,
                "linestyle": "none",
            }
            self._axes.plot(*at, markersize=size, markeredgewidth=1.5, zorder=6, **style)
            if dot.fate == "dropped":
                self._axes.plot(*at, marker=(2, 0, -45), markersize=size, color=FAINT, zorder=6.5)
            words: dict[str, Any] = {
                "ha": "center",
                "va": "center_baseline",
                "fontsize": 9,
                "fontweight": "bold",
            }
            if worded:
                self._axes.text(*at, dot.text, color=edge, zorder=7, **words)
            self._legend[word] = Line2D([], [], markersize=9, markeredgewidth=1.5, label=word, **style)
