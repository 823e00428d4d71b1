"""The root command; registers every command and command group."""

from __future__ import annotations

from typing import Annotated

import typer

from slackwater import __version__
from slackwater.cli import (
    checkpoint,
    controller,
    doctor,
    ingest,
    metrics,
    plan,
    queries,
    simulate,
    stream,
    ui,
)
from slackwater.cli.console import Group, print_line

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Event time that holds, on PySpark: how far are we, and what can safely be emitted?",
)
app.add_typer(stream.app, name="stream")
app.command("controller")(controller.controller)
app.command("plan")(plan.plan)
app.add_typer(ingest.app, name="ingest")
app.command("state")(checkpoint.state)
app.command("rescale")(checkpoint.rescale)
app.command("simulate")(simulate.simulate)
app.command("why")(queries.why)
app.command("windows")(queries.windows)
app.command("late")(queries.late)
app.command("metrics")(metrics.metrics)
app.command("doctor")(doctor.doctor)
app.command("ui")(ui.ui)


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


def main() -> None:
    """Entry point of the installed `slackwater` command."""
    app()
