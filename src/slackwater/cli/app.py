"""The root command; registers every command and command group."""

from __future__ import annotations

import typer

from slackwater.cli import checkpoint, controller, ingest, plan, stream
from slackwater.cli.console import Group

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


def main() -> None:
    """Entry point of the installed `slackwater` command."""
    app()
