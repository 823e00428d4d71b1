"""Bars of seconds, one group a workload, on a logarithmic scale: what the tables say, at a glance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from matplotlib.figure import Figure

_COLOURS: Final = ("#1b6e8c", "#63a8bf", "#d98b3a", "#b9b4ab", "#7d6b9e", "#8aa05a")
_SHARE: Final = 0.8
"""Of the room between two groups, what their bars take."""


def draw(
    path: Path, groups: Sequence[str], series: Mapping[str, Sequence[float | None]], *, title: str
) -> None:
    """Write the picture; the first series is the one that the others are compared with, None has no bar."""
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    axes = figure.subplots()
    width = _SHARE / len(series)
    for (number, (name, values)), colour in zip(enumerate(series.items()), _COLOURS, strict=False):
        left = (number - (len(series) - 1) / 2) * width
        drawn = {place + left: value for place, value in enumerate(values) if value is not None}
        bars = axes.bar(list(drawn), list(drawn.values()), width * 0.92, label=name, color=colour)
        labels = [f"{value:.2f}" if value < 10 else f"{value:.0f}" for value in drawn.values()]
        axes.bar_label(bars, labels, padding=2, fontsize=8)
    axes.set_yscale("log")
    axes.set_xticks(range(len(groups)), groups, fontsize=8)
    axes.set_ylabel("seconds a batch (less is better)")
    axes.set_title(title, loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    path.parent.mkdir(exist_ok=True)
    # Nothing that changes from run to run: the same figures give the same file.
    figure.savefig(path, metadata={"Date": None, "Creator": None})
