"""Colours, fonts and file metadata that all pictures share.

The colours are those of Okabe and Ito, which remain distinct with any common colour blindness. The same input
gives the same bytes: no dates, no random ids, text as shapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK: Final = "#26323d"
FAINT: Final = "#8a949e"
_METADATA: Final = {".svg": {"Date": None, "Creator": None}, ".png": {"Software": None}}
_SETTINGS: Final[dict[Any, Any]] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "hatch.linewidth": 0.7,
    "svg.fonttype": "path",
    "svg.hashsalt": "slackwater",
}


@contextmanager
def saved_axes(target: Path, *, width: float, height: float) -> Iterator[Axes]:
    """Axes of a new figure, which is saved to ``target`` when the block ends."""
    with mpl.rc_context():
        mpl.rcdefaults()  # settings made for other pictures must not change this one
        mpl.rcParams.update(_SETTINGS)
        figure = Figure(figsize=(width, height), dpi=150, facecolor="white", layout="constrained")
        yield figure.add_subplot()
        figure.savefig(target, metadata=_METADATA[target.suffix])


def add_legend(axes: Axes, handles: Sequence[Artist], *, y: float, columns: int, **options: Any) -> None:
    """Put a legend below the picture, ``y`` relative to the height of the axes."""
    axes.legend(
        handles=handles,
        loc="upper center",
        bbox_to_anchor=(0.5, y),
        ncols=columns,
        frameon=False,
        labelcolor=INK,
        fontsize=9,
        **options,
    )


def set_title(axes: Axes, title: str, *, pad: float) -> None:
    """Write a title above the picture, if there is one."""
    if title:
        axes.set_title(title, color=INK, fontsize=12, fontweight="bold", loc="left", pad=pad)
