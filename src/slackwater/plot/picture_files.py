"""Checks before a picture is drawn: the suffix of the file, and that matplotlib is installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from slackwater.errors import InvalidArgument, MissingExtra

SUFFIXES: Final = (".svg", ".png")


def check_picture_path(path: str | Path) -> Path:
    """Return the path if its suffix is that of a supported format.

    >>> check_picture_path("plan.txt")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: path = 'plan.txt': has an unsupported suffix; use one of .svg, .png
    """
    target = Path(path)
    if target.suffix not in SUFFIXES:
        raise InvalidArgument(
            "path", str(path), "has an unsupported suffix", fix=f"use one of {', '.join(SUFFIXES)}"
        )
    return target


@contextmanager
def require_matplotlib() -> Iterator[None]:
    """Turn a failed import of matplotlib inside the block into `MissingExtra`.

    >>> with require_matplotlib():
    ...     import slackwater.plot.event_time_drawing
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "matplotlib":
            raise
        raise MissingExtra("plot", "matplotlib") from None
