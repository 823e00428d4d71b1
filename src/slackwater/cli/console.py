"""Console output and exit codes shared by all commands.

Results go to standard output, as tables for people or as JSON for programs. Errors and notes go to standard
error. The exit code is 0 on success, 1 if the command failed, 2 if it was used incorrectly, and 130 if it
was interrupted with Ctrl-C.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from slackwater.errors import InvalidArgument, SlackwaterError

if TYPE_CHECKING:
    from slackwater.streams.log.catalog import Streams

USAGE_ERROR = 2
FAILURE = 1
INTERRUPTED = 130
"""The exit code that shells report for a command that Ctrl-C has ended."""
_MIN_COLUMN_WIDTH = 8
_UNLIMITED_WIDTH = 1_000_000

DEFAULT_STORE = "sqlite:///slackwater.db"
STORE_VARIABLE = "SLACKWATER_STORE"
"""The environment variable that sets the metadata store for every command."""
STORE_URLS = "sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE"
Store = Annotated[
    str,
    typer.Option(
        envvar=STORE_VARIABLE,
        help=f"URL of the metadata store: {STORE_URLS}.",
        show_default=True,
        show_envvar=True,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def use_utf8() -> None:
    """Write UTF-8 to files and pipes, whatever the locale; a terminal gets ``?`` for what it cannot show.

    Scheduled commands often run in the locale C, where a letter beyond ASCII would end the command.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            if stream.isatty():
                stream.reconfigure(errors="replace")
            else:
                stream.reconfigure(encoding="utf-8")


class Group(TyperGroup):
    """A command group that reports expected errors as one line, without a traceback."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]  # typer's own click is private
        """Run the command and turn Slackwater's own errors into a message and an exit code."""
        try:
            return super().invoke(ctx)
        except InvalidArgument as error:
            print_error(str(error))
            raise typer.Exit(USAGE_ERROR) from None
        except SlackwaterError as error:
            print_error(str(error))
            raise typer.Exit(FAILURE) from None
        except BrokenPipeError:
            # The reader closed the pipe, for example `head`. Discard what Python would flush at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except KeyboardInterrupt:
            print_error("interrupted")
            raise typer.Exit(INTERRUPTED) from None


def print_error(message: str) -> None:
    """Print an error as one line on standard error."""
    text = Text(f"error: {message}", style="red")
    Console(stderr=True).print(text, soft_wrap=True)


def print_note(message: str) -> None:
    """Print one line on standard error that is not an error, such as a warning."""
    Console(stderr=True).print(Text(message), soft_wrap=True)


def print_line(message: str) -> None:
    """Print one line of plain text on standard output.

    >>> print_line("done")
    done
    """
    Console().print(Text(message), soft_wrap=True)


def print_json(value: object) -> None:
    """Print a value as one line of JSON on standard output.

    >>> print_json({"a": 1})
    {"a": 1}
    """
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")


def print_result(message: str, value: object, *, as_json: bool) -> None:
    """Print the result of a command: ``message`` as text, or ``value`` as JSON.

    >>> print_result("2 events written", {"events": 2}, as_json=True)
    {"events": 2}
    """
    if as_json:
        print_json(value)
    else:
        print_line(message)


def print_table(
    rows: Sequence[Mapping[str, object]],
    columns: Sequence[str],
    *,
    as_json: bool,
    unwrapped: Collection[str] = (),
) -> None:
    """Print rows as a table, or as JSON with all their fields.

    Cell values are never truncated. In a narrow terminal they wrap, except in the ``unwrapped`` columns,
    whose values can always be copied. Where standard output is not a terminal, each row is one line.

    Args:
        rows: The rows, with at least a value for each column.
        columns: The fields to show in the table, in order. JSON shows all fields.
        as_json: Print JSON instead of a table.
        unwrapped: Columns whose values stay on one line.

    >>> print_table([{"name": "a", "more": 1}], ["name"], as_json=True)
    [{"name": "a", "more": 1}]
    """
    if as_json:
        print_json(list(rows))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        longest = max((len(_cell(row[column])) for row in rows), default=0)
        in_one_line = column in unwrapped
        width = max(longest, len(column)) if in_one_line else min(longest, _MIN_COLUMN_WIDTH)
        table.add_column(Text(column), overflow="fold", no_wrap=in_one_line, min_width=width)
    for row in rows:
        # Text, not str: values may contain what looks like markup.
        table.add_row(*(Text(_cell(row[column])) for column in columns))
    console = Console()
    if not sys.stdout.isatty():
        unlimited = console.options.update(width=_UNLIMITED_WIDTH)
        console.width = max(1, Measurement.get(console, unlimited, table).maximum)
    console.print(table, soft_wrap=True)


def _cell(value: object) -> str:
    # A cut is shown as JSON, so that it can be pasted into another command.
    return "" if value is None else json.dumps(value) if isinstance(value, dict) else str(value)


def counted(number: int, noun: str) -> str:
    """A number with its noun in the singular or the plural.

    >>> counted(1, "unit"), counted(1200, "row")
    ('1 unit', '1200 rows')
    """
    return f"{number} {noun if number == 1 else noun + 's'}"


def open_streams(store: str, *, create: bool = False) -> Streams:
    """Open the streams of a metadata store, which is created only if asked."""
    from slackwater.streams.log.catalog import (
        Streams,  # imports the database and Arrow, which few commands need
    )

    return Streams.open(store, create=create)
