"""What every picture asks of the file it goes to, and of the library that draws it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from slackwater.errors import InvalidArgument, SlackwaterError

SUFFIXES: Final = (".svg", ".png")


class MissingExtra(SlackwaterError, ImportError):
    """A part of Slackwater needs a package that is not installed by default."""

    def __init__(self, extra: str, package: str) -> None:
        self.extra = extra
        self.package = package
        super().__init__(f"{package} is not installed; run: pip install slackwater[{extra}]")


def picture_file(path: str | Path) -> Path:
    """The file, if its suffix says how to draw it.

    >>> picture_file("plan.txt")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: path = 'plan.txt': has no known suffix; use one of .svg, .png
    """
    target = Path(path)
    if target.suffix not in SUFFIXES:
        raise InvalidArgument(
            "path", str(path), "has no known suffix", fix=f"use one of {', '.join(SUFFIXES)}"
        )
    return target


@contextmanager
def needing_matplotlib() -> Iterator[None]:
    """Around the import of what draws: says which extra is missing.

    >>> with needing_matplotlib():
    ...     import slackwater.plot.drawing
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "matplotlib":
            raise
        raise MissingExtra("plot", "matplotlib") from None
