"""How every command speaks: tables for people, JSON for programs, one line for an error.

Exit code 2 says that the command was used wrongly, 1 that it failed, 130 that it was stopped by Ctrl-C.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from slackwater.errors import InvalidArgument, SlackwaterError
from slackwater.streams.log.catalog import Streams

WRONG_USE = 2
FAILED = 1
INTERRUPTED = 130
"""What a shell says of a command that was ended by Ctrl-C."""
_NARROWEST = 8
_WIDEST = 1_000_000

Store = Annotated[
    str,
    typer.Option(
        envvar="SLACKWATER_STORE",
        help="Where the metadata is: sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE.",
        show_default=True,
        show_envvar=True,
    ),
]
DEFAULT_STORE = "sqlite:///slackwater.db"
AsJson = Annotated[bool, typer.Option("--json", help="Write JSON instead of a table.")]


class Group(TyperGroup):
    """A group of commands whose expected errors are one line, never a traceback."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]  # typer's own click is private
        """Runs the command; an error that Slackwater raises on purpose becomes a message and an exit code."""
        try:
            return super().invoke(ctx)
        except InvalidArgument as error:
            complain(str(error))
            raise typer.Exit(WRONG_USE) from None
        except SlackwaterError as error:
            complain(str(error))
            raise typer.Exit(FAILED) from None
        except BrokenPipeError:
            # whoever read our output has read enough; what is left must not be written at the exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except KeyboardInterrupt:
            complain("stopped")
            raise typer.Exit(INTERRUPTED) from None


def complain(message: str) -> None:
    """One line on standard error.

    >>> complain("nothing of this is on standard output")
    """
    text = Text(f"error: {message}", style="red")
    Console(stderr=True).print(text, soft_wrap=True)


def note(message: str) -> None:
    """One line on standard error that is no error.

    >>> note("nothing of this is on standard output")
    """
    Console(stderr=True).print(Text(message), soft_wrap=True)


def say(message: str) -> None:
    """One line for people.

    >>> say("done")
    done
    """
    Console().print(Text(message), soft_wrap=True)


def write_json(value: object) -> None:
    """A value for programs, as one line.

    >>> write_json({"a": 1})
    {"a": 1}
    """
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")


def show(
    rows: Sequence[Mapping[str, object]],
    columns: Sequence[str],
    *,
    as_json: bool,
    whole: Collection[str] = (),
) -> None:
    """Rows as a table with these columns, or with all they have as JSON.

    Nothing is cut: in a terminal that is too narrow cells go on in the next line, but for those of the
    ``whole`` columns, which can always be copied. For a program each row is one line, however long.

    >>> show([{"name": "a", "more": 1}], ["name"], as_json=True)
    [{"name": "a", "more": 1}]
    """
    if as_json:
        write_json(list(rows))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        longest = max((len(_cell(row[column])) for row in rows), default=0)
        narrowest = max(longest, len(column)) if column in whole else min(longest, _NARROWEST)
        table.add_column(Text(column), overflow="fold", no_wrap=column in whole, min_width=narrowest)
    for row in rows:
        table.add_row(*(Text(_cell(row[column])) for column in columns))  # no markup: it is not our text
    console = Console()
    if not sys.stdout.isatty():
        console.width = max(1, Measurement.get(console, console.options.update(width=_WIDEST), table).maximum)
    console.print(table, soft_wrap=True)


def _cell(value: object) -> str:
    # a cut as JSON, so that it can be given to another command
    return "" if value is None else json.dumps(value) if isinstance(value, dict) else str(value)


def answer(message: str, value: object, *, as_json: bool) -> None:
    """What a command has done: a line for people, or a value for programs.

    >>> answer("2 events written", {"events": 2}, as_json=True)
    {"events": 2}
    """
    if as_json:
        write_json(value)
    else:
        say(message)


def open_streams(store: str) -> Streams:
    """The streams of the store that was named.

    >>> open_streams("mysql://somewhere/else")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: url = 'mysql://somewhere/else': is neither PostgreSQL nor SQLite; \
write it like postgresql://user:password@host/database or sqlite:////folder/file.db
    """
    return Streams.open(store)
