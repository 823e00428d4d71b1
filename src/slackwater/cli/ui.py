"""`slackwater ui`: serve the console for a metadata store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slackwater.cli.console import DEFAULT_STORE, Store, print_line, print_note
from slackwater.ui.running_console import DEFAULT_PORT, LOOPBACK, RunningConsole
from slackwater.ui.views import Views

TOKEN_VARIABLE = "SLACKWATER_UI_TOKEN"  # noqa: S105 - the name of a variable


def ui(
    store: Store = DEFAULT_STORE,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_535,
            help=f"Port to listen on; 0 for any free one. Default: {DEFAULT_PORT}, or any free one.",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Interface to listen on. One that other machines can reach needs a token.")
    ] = LOOPBACK,
    token: Annotated[
        str | None,
        typer.Option(
            envvar=TOKEN_VARIABLE,
            show_envvar=True,
            help="Token that requests must carry. Set the variable rather than the option, which other "
            "users of this machine can see.",
        ),
    ] = None,
    job: Annotated[
        list[Path] | None,
        typer.Option(help="Job file whose plan the Ingestion view shows; may be repeated."),
    ] = None,
) -> None:
    """Serve the console, a page that shows watermarks, windows, late rows, ingestion and streams.

    It reads the store and never changes it.
    """
    views = Views(store, jobs=job or ())
    if (problem := views.problem()) is not None:
        print_note(f"warning: {problem}")
    console = RunningConsole(views, host=host, port=port, token=token)
    print_line(f"console at {console.address}; press Ctrl-C to stop it")
    console.run()
