"""`slackwater wait`: wait until a table is complete."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from slackwater._time_text import instant_text
from slackwater.cli.console import STORE_URLS, STORE_VARIABLE, AsJson, print_error, print_note, print_result
from slackwater.table_progress.completeness_reader import FORMS, redacted_table
from slackwater.table_progress.waiting import wait_until

NOT_YET: Final = 3
"""The exit code if the time was not reached before the timeout."""


def wait(
    table: Annotated[str, typer.Argument(metavar="TABLE", help=f"The table: {FORMS}.")],
    until: Annotated[
        str, typer.Option(help="Event time up to which TABLE must be complete, such as 2024-01-02T00:00:00Z.")
    ],
    timeout: Annotated[
        str | None,
        typer.Option(help="How long to wait, such as 2h; 0s checks once. Default: no limit."),
    ] = None,
    every: Annotated[str, typer.Option(help="Interval between two checks.")] = "5s",
    final: Annotated[
        bool, typer.Option("--final", help="Wait until late rows cannot change the results any more.")
    ] = False,
    identity: Annotated[
        str | None, typer.Option(help="Only wait for the query that commits under this identity.")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            envvar=STORE_VARIABLE,
            show_envvar=True,
            help=f"URL of the metadata store, for a stream: {STORE_URLS}.",
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Wait until TABLE is complete: all windows that end at or before --until are written.

    The exit code is 0 if the table is complete, 3 if it is not complete before --timeout, 1 if the table
    cannot be read, and 2 if the command was used incorrectly.
    """
    named = redacted_table(table)
    shown: list[int | None] = []

    def observe(found: int | None) -> None:
        if shown[-1:] != [found]:
            shown.append(found)
            print_note(
                f"{named} does not exist, or has no recorded completeness yet"
                if found is None
                else f"{named} is complete until {instant_text(found)}"
            )

    result = wait_until(
        table,
        until,
        timeout=timeout,
        every=every,
        final=final,
        identity=identity,
        store=store,
        observe=None if json else observe,
    )
    value = {
        "table": named,
        "reached": result.reached,
        "until": instant_text(result.until),
        "complete_until": None if result.complete_until is None else instant_text(result.complete_until),
    }
    if result.reached or json:
        print_result(f"complete until {instant_text(result.complete_until)}", value, as_json=json)
    if not result.reached:
        if not json:
            print_error(f"{named} is not complete until {instant_text(result.until)} yet")
        raise typer.Exit(NOT_YET)
