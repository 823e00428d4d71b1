"""The command itself: every group is added here, by one line each."""

from __future__ import annotations

import typer

from slackwater.cli import controller, stream
from slackwater.cli import ingest as running
from slackwater.cli import plan as ingest
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
app.command("plan")(ingest.plan)
app.add_typer(running.app, name="ingest")


def main() -> None:
    """What the installed command runs."""
    app()
