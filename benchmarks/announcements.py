"""Lines by which an engine in a process of its own reports when a run begins and ends.

Uses nothing but the standard library, because other engines run in environments of their own.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

MARK: Final = "@run "
"""What a line begins with that is a report."""


@contextmanager
def announced_run(**labels: Any) -> Iterator[None]:
    """Report the begin and the end of a run with its wall-clock seconds, or the error that ended it.

    The run begins when the other side has written a line: it may still compare the result of the last one.
    """
    _print({"event": "begin", **labels})
    sys.stdin.readline()
    begin = time.perf_counter()
    error = None
    try:
        yield
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}"[:2_000]
    _print({"event": "end", "seconds": time.perf_counter() - begin, "error": error, **labels})


def announcement(line: str) -> dict[str, Any] | None:
    """The report in a line, or None for other output.

    >>> announcement('@run {"event": "begin"}')
    {'event': 'begin'}
    >>> announcement("hello")
    """
    if not line.startswith(MARK):
        return None
    fields: dict[str, Any] = json.loads(line.removeprefix(MARK))
    return fields


def _print(fields: dict[str, Any]) -> None:
    print(MARK + json.dumps(fields), flush=True)
