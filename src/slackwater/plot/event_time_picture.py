"""The way to a picture: checks what is asked, and asks for the plotting library only when it is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from slackwater.errors import InvalidArgument
from slackwater.plot.picture_files import needing_matplotlib, picture_file
from slackwater.plot.scene import scene
from slackwater.testing.scripted_run import WindowRun
from slackwater.testing.text_table import UNITS


def save_picture(
    run: WindowRun,
    path: str | Path,
    *,
    value: str,
    element: str | None = None,
    key: tuple[Any, ...] | None = None,
    unit: str = "s",
    title: str = "",
) -> Path:
    """Draw the panes of one key of a run into an SVG or PNG file.

    Panes show the accumulation ``value``, elements their column ``element``. With one key it need
    not be named. If the clock never moved, processing time is counted in steps.

    >>> import tempfile
    >>> from slackwater.plot.examples import example
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     drawn = save_picture(example("panes"), Path(folder) / "panes.svg", value="total", element="price")
    ...     drawn.read_text(encoding="utf-8")[:5]
    '<?xml'
    """
    target = picture_file(path)
    if unit not in UNITS:
        raise InvalidArgument("unit", unit, "is not a unit of time", fix=f"use one of {', '.join(UNITS)}")
    shown = scene(run, value=value, element=element, key=key)
    with needing_matplotlib():
        from slackwater.plot.drawing import draw
    draw(shown, target, unit=unit, title=title)
    return target
