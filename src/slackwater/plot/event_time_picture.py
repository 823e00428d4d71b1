"""The event-time picture of a run; imports matplotlib only when a picture is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from slackwater._extras import naming_extras
from slackwater._suggestions import available
from slackwater.errors import InvalidArgument
from slackwater.plot.picture_files import check_picture_path
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
    r"""Draw the panes of one key of a run into an SVG or PNG file.

    If the clock never moved during the run, the y axis counts steps instead of processing time.

    Args:
        run: A run of a scripted stream.
        path: The file; its suffix decides the format.
        value: The accumulation that panes show.
        element: The column that elements show; without it they have no text.
        key: The key to draw. May be left out if the run has one key.
        unit: The unit of time of the axes, such as ``"s"``.
        title: The title above the picture.

    Returns:
        The path of the file.

    Raises:
        InvalidArgument: The suffix, the unit, the value or the key is not valid.
        MissingExtra: matplotlib is not installed.

    >>> import tempfile
    >>> import slackwater as sw
    >>> from slackwater.testing import TestStream
    >>> from slackwater.windows import Fixed, Sum
    >>> stream = TestStream().add("ts | price \n 3 | 5 \n 8 | 2").advance_watermark(10)
    >>> sums = {"total": Sum("price")}
    >>> run = stream.run(sw.WindowedOperator(window=Fixed(10), accumulations=sums, event_time="ts"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     drawn = save_picture(run, Path(folder) / "panes.svg", value="total", element="price", unit="us")
    ...     drawn.read_text(encoding="utf-8")[:5]
    '<?xml'
    """
    target = check_picture_path(path)
    if unit not in UNITS:
        raise InvalidArgument(
            "unit", unit, "is not a valid unit of time", fix=available(unit, UNITS, lead="use one of ")
        )
    shown = scene(run, value=value, element=element, key=key)
    with naming_extras():
        from slackwater.plot.event_time_drawing import draw
    draw(shown, target, unit=unit, title=title)
    return target
