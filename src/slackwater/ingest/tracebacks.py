r"""Traceback analysis: the innermost cause in the errors of Python workers and of the JVM.

An error that reaches the driver wraps the one that matters in tracebacks of workers and in chains of Java
exceptions. The functions here find the cause that a user can act on, in a line or two.
"""

from __future__ import annotations

import re
from typing import Final

from slackwater.errors import SlackwaterError

_TRACEBACK: Final = "Traceback (most recent call last):"
_JAVA_CAUSE: Final = re.compile(r"(?:Caused by)?: (.+)")
_QUALIFIED_NAME: Final = re.compile(r"(?:[\w$]+\.)*([\w$]+)((?:: .*)?)", re.DOTALL)
_DETAILS: Final = ("DETAIL:", "Detail:")


def innermost_cause(error: Exception) -> str:
    r"""The innermost error: its class name without the package, and the first line or two of its message.

    >>> innermost_cause(
    ...     RuntimeError("Traceback (most recent call last):\n  File x\npyarrow.lib.ArrowInvalid: no 5")
    ... )
    'ArrowInvalid: no 5'
    >>> innermost_cause(RuntimeError("calling o1.collect\n: a.Job: failed\nCaused by: b.NoFile: no data"))
    'NoFile: no data'
    """
    if isinstance(error, SlackwaterError):
        return f"{type(error).__name__}: {error}"
    lines = str(error).splitlines()
    remote = _last_python_error(lines) or _last_java_cause(lines)
    if remote:
        named = _QUALIFIED_NAME.fullmatch(remote)
        return f"{named[1]}{named[2]}" if named else remote
    return f"{type(error).__name__}: {_message([line for line in lines if line.strip()])}"


def _last_python_error(lines: list[str]) -> str:
    """The error below the last Python traceback; empty if there is none."""
    starts = [number for number, line in enumerate(lines) if _TRACEBACK in line]
    below = lines[starts[-1] + 1 :] if starts else []
    return _message([line for line in below if line.strip() and not line.startswith((" ", "\t"))])


def _last_java_cause(lines: list[str]) -> str:
    """The last cause that has a message, otherwise the last cause; empty if there is none."""
    causes = [
        (found[1], lines[number + 1 : number + 2])
        for number, line in enumerate(lines)
        if (found := _JAVA_CAUSE.match(line.strip()))
    ]
    with_message = [cause for cause in causes if ": " in cause[0]] or causes
    return _message([with_message[-1][0], *with_message[-1][1]]) if with_message else ""


def _message(lines: list[str]) -> str:
    """The first line, together with the second if that continues it."""
    first, second = (line.strip() for line in [*lines, "", ""][:2])
    return f"{first} {second}" if first.endswith(":") or second.startswith(_DETAILS) else first
