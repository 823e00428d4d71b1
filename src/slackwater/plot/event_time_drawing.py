"""Drawing of a scene with matplotlib: event time on the x axis, processing time on the y axis.

The watermark is a line and panes are boxes. The hatching and the label of a pane also show its timing, so
that the picture works in greyscale.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from slackwater.plot.picture_style import FAINT, INK, add_legend, saved_axes, set_title
from slackwater.plot.scene import Box, Scene
from slackwater.testing.text_table import UNITS

_GRID: Final = "#e6eaee"
_WATERMARK: Final = "#0072b2"
_TIMINGS: Final = {
    "EARLY": ("#e69f00", "\\\\\\\\", "early"),
    "ON_TIME": ("#009e73", "", "on time"),
    "LATE": ("#cc79a7", "////", "late"),
}
"""Colour, hatching and label of each timing."""
_FATES: Final = {
    "on time": (INK, "white", "element"),
    "late": ("#a3447c", "#fbeaf3", "late element"),
    "dropped": (FAINT, "white", "dropped element"),
}
"""Edge colour, fill colour and label of each fate of an element."""
_LEGEND: Final = (
    *("element", "late element", "dropped element", "watermark"),
    *("early pane", "on time pane", "late pane", "ideal"),
)
_WATERMARK_LINE: Final[dict[str, Any]] = {"color": _WATERMARK, "linewidth": 3.0, "solid_capstyle": "round"}
_MAX_TICKS: Final = 12
_MIN_DISTANCE: Final = 0.008
"""Squared distance, as a share of the picture, at which a label no longer overlaps its neighbours."""
_DOT: Final = 17.0
_SMALL_DOT: Final = 7.0
_MAX_LABELLED_DOTS: Final = 30
"""With more elements than this, dots are small and have no labels, which would overlap."""


def draw(scene: Scene, target: Path, *, unit: str, title: str) -> None:
    """Draw a scene into ``target``, whose suffix decides the format.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     draw(Scene((), (), (), finish=0, clocked=False), Path(folder) / "empty.svg", unit="s", title="")
    ...     (Path(folder) / "empty.svg").stat().st_size > 0
    True
    """
    with saved_axes(target, width=8, height=5.6) as axes:
        _Drawing(axes, scene, unit).draw(title)


class _Drawing:
    """One picture: the scene, the axes, and the scale and limits of both axes."""

    def __init__(self, axes: Axes, scene: Scene, unit: str) -> None:
        self._axes = axes
        self._scene = scene
        self._unit = unit
        self._x_scale = UNITS[unit]
        self._y_scale = self._x_scale if scene.clocked else 1
        xs = [value / self._x_scale for value in scene.times()] or [0.0]
        moments = (
            [dot.arrival for dot in scene.dots] + [corner.at for corner in scene.watermark] + [scene.finish]
        )
        ys = [moment / self._y_scale for moment in moments]
        width, height = (max(xs) - min(xs)) or 1.0, (max(ys) - min(ys)) or 1.0
        self._left, self._right = min(xs) - 0.025 * width, max(xs) + 0.06 * width
        self._bottom, self._top = min(ys) - 0.09 * height, max(ys) + 0.07 * height
        self._legend: dict[str, Artist] = {}

    def draw(self, title: str) -> None:
        """Draw everything, from back to front."""
        axes = self._axes
        axes.set_xlim(self._left, self._right)
        axes.set_ylim(self._bottom, self._top)
        axes.set_xlabel(f"event time [{self._unit}]", color=INK, labelpad=6)
        axes.set_ylabel(f"processing time [{self._unit}]" if self._scene.clocked else "step", color=INK)
        finite = set(self._scene.times())
        bounds = sorted({bound for box in self._scene.boxes for bound in (box.start, box.end)} & finite)
        if 0 < len(bounds) <= _MAX_TICKS:
            axes.set_xticks([bound / self._x_scale for bound in bounds])
        axes.grid(color=_GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(colors=INK, length=0)
        for side, spine in axes.spines.items():
            spine.set_visible(side in ("left", "bottom"))
            spine.set_color(FAINT)
        set_title(axes, title, pad=12)
        for box in self._scene.boxes:
            self._draw_box(box)
        self._draw_lines()
        self._draw_dots()
        for box in self._scene.boxes:
            self._label_box(box)
        handles = [self._legend[label] for label in _LEGEND if label in self._legend]
        add_legend(axes, handles, y=-0.13, columns=4, handlelength=2.2, columnspacing=1.8)

    def _x(self, event_time: int) -> float:
        """The x coordinate of an event time; the ends of time lie at the edge of the picture."""
        return min(max(event_time / self._x_scale, self._left), self._right)

    def _draw_box(self, box: Box) -> None:
        colour, hatch, label = _TIMINGS[box.timing]
        gap = (self._right - self._left) * 0.005
        left, right = self._x(box.start) + gap, self._x(box.end) - gap
        bottom, top = box.since / self._y_scale, box.fired / self._y_scale
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
        self._legend[f"{label} pane"] = Patch(
            facecolor=to_rgba(colour, 0.2), edgecolor=colour, hatch=hatch, label=f"{label} pane"
        )

    def _label_box(self, box: Box) -> None:
        """Write timing and value on the upper edge of a box, where the pane fires, away from elements."""
        colour, _, label = _TIMINGS[box.timing]
        left, right, height = self._x(box.start), self._x(box.end), box.fired / self._y_scale
        width, tall = self._right - self._left, self._top - self._bottom
        obstacles = [
            (dot.event_time / self._x_scale, dot.arrival / self._y_scale) for dot in self._scene.dots
        ]
        obstacles += [(self._x(c.watermark), c.at / self._y_scale) for c in self._scene.watermark]
        obstacles += [
            (self._x(c.watermark), following.at / self._y_scale)
            for c, following in pairwise(self._scene.watermark)
        ]

        def distance(at: float) -> float:
            distances = (((x - at) / width) ** 2 + ((y - height) / tall) ** 2 for x, y in obstacles)
            return min(distances, default=1.0)

        candidates = [left + (right - left) * share for share in (0.5, 0.35, 0.65, 0.25, 0.75)]
        at = max(candidates, key=lambda x: min(distance(x), _MIN_DISTANCE))
        retracted = "".join(f"−{text} " for text in box.retracted)
        self._axes.text(
            at,
            height,
            f"{label}  {retracted}{'+' if box.retracted else ''}{box.text}",
            ha="center",
            va="center",
            color=INK,
            fontsize=9.5,
            fontweight="bold",
            zorder=8,
            bbox={"boxstyle": "round,pad=0.32", "facecolor": "white", "edgecolor": colour, "linewidth": 1.3},
        )

    def _draw_lines(self) -> None:
        corners = self._scene.watermark
        if self._scene.clocked:
            low, high = max(self._left, self._bottom), min(self._right, self._top)
            (ideal,) = self._axes.plot(
                [low, high], [low, high], color=FAINT, linewidth=1.2, linestyle=(0, (1, 2.2)), zorder=1.5,
                label="ideal: no delay",
            )  # fmt: skip
            self._legend["ideal"] = ideal
        if not corners:
            return
        moments = [corner.at / self._y_scale for corner in corners]
        values = [self._x(corner.watermark) for corner in corners]
        # The watermark is constant between two moves: bold where it stands, thin where it jumps.
        for value, since, until in zip(values, moments, [*moments[1:], self._top], strict=True):
            self._axes.plot([value, value], [since, until], zorder=5, **_WATERMARK_LINE)
        for (value, following), moment in zip(pairwise(values), moments[1:], strict=True):
            self._axes.plot([value, following], [moment, moment], color=_WATERMARK, linewidth=1.4, zorder=3.5)
        self._legend["watermark"] = Line2D([], [], label="watermark", **_WATERMARK_LINE)

    def _draw_dots(self) -> None:
        labelled = len(self._scene.dots) <= _MAX_LABELLED_DOTS
        size = _DOT if labelled else _SMALL_DOT
        for dot in self._scene.dots:
            edge, fill, label = _FATES[dot.fate]
            at = (dot.event_time / self._x_scale, dot.arrival / self._y_scale)
            style: dict[str, Any] = {
                "marker": "o",
                "markerfacecolor": fill,
                "markeredgecolor": edge,
                "linestyle": "none",
            }
            self._axes.plot(*at, markersize=size, markeredgewidth=1.5, zorder=6, **style)
            if dot.fate == "dropped":
                self._axes.plot(*at, marker=(2, 0, -45), markersize=size, color=FAINT, zorder=6.5)
            text_style: dict[str, Any] = {
                "ha": "center",
                "va": "center_baseline",
                "fontsize": 9,
                "fontweight": "bold",
            }
            if labelled:
                self._axes.text(*at, dot.text, color=edge, zorder=7, **text_style)
            self._legend[label] = Line2D([], [], markersize=9, markeredgewidth=1.5, label=label, **style)
