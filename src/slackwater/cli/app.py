"""The root command; lists every command and command group, and imports each when it is used."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Annotated, Any, Final

import typer

from slackwater import __version__
from slackwater._extras import naming_extras
from slackwater.cli.console import Group, print_line


@dataclass(frozen=True)
class LazyCommand:
    """A command that is imported when it is used, so that the help and the version are printed at once."""

    home: str
    """The module and the attribute: a function, or the Typer app of a command group."""
    help: str
    """The first paragraph of its help, for the list of commands."""

    def load(self, name: str) -> Any:
        """Import the command, under its name."""
        module, _, attribute = self.home.partition(":")
        with naming_extras():
            target = getattr(import_module(f"slackwater.cli.{module}"), attribute)
        holder = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        if isinstance(target, typer.Typer):
            holder.add_typer(target, name=name)
        else:
            holder.command(name)(target)
        return typer.main.get_group(holder).commands[name]


COMMANDS: Final = {
    "controller": LazyCommand(
        "controller:controller", "Run a controller until it receives SIGINT (Ctrl-C) or SIGTERM."
    ),
    "plan": LazyCommand(
        "plan:plan", "Show what a run of JOB would read, what it would skip, and why. Nothing is executed."
    ),
    "state": LazyCommand(
        "checkpoint:state",
        "Show the state of a query on Spark: open windows, keys, bytes, watermarks and origins.",
    ),
    "rescale": LazyCommand(
        "checkpoint:rescale",
        "Distribute the state of a stopped query over another number of shuffle partitions.",
    ),
    "simulate": LazyCommand(
        "simulate:simulate",
        "Simulate streams, pipelines and ingestion runs under faults, and check every promise at each step.",
    ),
    "why": LazyCommand(
        "queries:why",
        "Show where the watermarks of queries are, what holds them back since when, and what waits.",
    ),
    "origins": LazyCommand(
        "queries:origins",
        "Show the origins of QUERY, such as partitions or files: their states and watermarks.",
    ),
    "windows": LazyCommand(
        "queries:windows",
        "Show the open windows of QUERY by end, when each closes, and those that were closed last.",
    ),
    "late": LazyCommand(
        "queries:late",
        "Show how late the rows of QUERY are, by origin, and a sample of those that were dropped.",
    ),
    "wait": LazyCommand(
        "wait:wait",
        "Wait until TABLE is complete: all windows that end at or before --until are written.",
    ),
    "metrics": LazyCommand(
        "metrics:metrics",
        "Print the metrics of queries, ingestion and streams in the text format of Prometheus.",
    ),
    "doctor": LazyCommand(
        "doctor:doctor",
        "Check Java, Spark, Python, the metadata store, leases, disks and checkpoints; nothing is changed.",
    ),
    "ui": LazyCommand(
        "ui:ui", "Serve the console, a page that shows watermarks, windows, late rows, ingestion and streams."
    ),
    "stream": LazyCommand("stream:app", "Create, inspect, configure, scale, write and read durable streams."),
    "ingest": LazyCommand(
        "ingest:app", "Run a job (slackwater ingest JOB), list its past runs, or reset its progress."
    ),
}
"""All commands by name, in the order of the help."""


@cache
def _loaded(name: str) -> Any:
    return COMMANDS[name].load(name)


class _LazyGroup(Group):
    """The root command, which imports a command when it is used."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Replace the entry of the help by the command itself, and select it."""
        if args and args[0] in COMMANDS:
            self.commands[args[0]] = _loaded(args[0])
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Event time that holds, on PySpark: how far are we, and what can safely be emitted?",
)


def _listed() -> None:
    """Stands for a command in the help."""


for _name, _command in COMMANDS.items():
    app.command(_name, help=_command.help)(_listed)


def _print_version(wanted: bool) -> None:
    if wanted:
        print_line(f"slackwater {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Declare the options of the root command, which are handled by their callbacks."""
