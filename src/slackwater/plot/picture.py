"""The way to a picture: checks what is asked, and asks for the plotting library only when it is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from slackwater.errors import InvalidArgument, SlackwaterError
from slackwater.plot.scene import scene
from slackwater.testing.run import WindowRun
from slackwater.testing.table import UNITS

_SUFFIXES: Final = (".svg", ".png")


class MissingExtra(SlackwaterError, ImportError):
    """A part of Slackwater needs a package that is not installed by default."""

    def __init__(self, extra: str, package: str) -> None:
        self.extra = extra
        self.package = package
        super().__init__(f"{package} is not installed; run: pip install slackwater[{extra}]")


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
    target = Path(path)
    if target.suffix not in _SUFFIXES:
        raise InvalidArgument(
            "path", str(path), "has no known suffix", fix=f"use one of {', '.join(_SUFFIXES)}"
        )
    if unit not in UNITS:
        raise InvalidArgument("unit", unit, "is not a unit of time", fix=f"use one of {', '.join(UNITS)}")
    shown = scene(run, value=value, element=element, key=key)
    try:
        from slackwater.plot.drawing import draw
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "matplotlib":
            raise
        raise MissingExtra("plot", "matplotlib") from None
    draw(shown, target, unit=unit, title=title)
    return target
