"""Check before a picture is drawn: the suffix of the file."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from slackwater.errors import InvalidArgument

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
