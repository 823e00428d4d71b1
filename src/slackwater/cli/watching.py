"""`--watch`: print a result again whenever it has changed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import sleep
from typing import Annotated, TypeVar

import typer
from rich.console import Console

Shown = TypeVar("Shown")

Watch = Annotated[bool, typer.Option("--watch", help="Print again whenever something changes, until Ctrl-C.")]
Interval = Annotated[float, typer.Option(min=0.1, help="Seconds between two refreshes with --watch.")]


def show_changes(
    read: Callable[[], Shown],
    show: Callable[[Shown], None],
    *,
    content: Callable[[Shown], object],
    watch: bool,
    interval: float,
) -> None:
    """Print a result once or, with ``watch``, whenever its content has changed.

    Args:
        read: Reads the result.
        show: Prints it.
        content: What a change is judged by: the result without clocks and ages.
        watch: Whether to go on until the command is interrupted.
        interval: Seconds between two refreshes.

    >>> show_changes(lambda: 5, print, content=str, watch=False, interval=1.0)
    5
    """
    known: object = None
    while True:
        result = read()
        found = content(result)
        if found != known:
            known = found
            if watch and sys.stdout.isatty():
                Console().clear()
            show(result)
            sys.stdout.flush()
        if not watch:
            return
        sleep(interval)
