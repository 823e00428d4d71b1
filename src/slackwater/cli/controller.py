"""`slackwater controller`: a process that computes stream watermarks and maintains streams."""

from __future__ import annotations

import logging
import signal
from typing import Annotated

import typer

from slackwater.cli.console import DEFAULT_STORE, Store, counted, open_streams, print_line
from slackwater.streams.maintenance.controller import Controller


def controller(
    store: Store = DEFAULT_STORE,
    name: Annotated[str | None, typer.Option(help="Name of this controller. Default: a random name.")] = None,
    lease: Annotated[
        str, typer.Option(help="How long other controllers wait before they take over from this one.")
    ] = "15 seconds",
    poll: Annotated[str, typer.Option(help="How often to check for work that is due.")] = "1 second",
    housekeeping: Annotated[
        str, typer.Option(help="How often to scale streams, apply retention, merge and delete files.")
    ] = "30 seconds",
    once: Annotated[bool, typer.Option("--once", help="Do the work that is due now and exit.")] = False,
) -> None:
    """Run a controller until it receives SIGINT (Ctrl-C) or SIGTERM.

    A controller computes the watermarks of streams from the times that their writers note. It also scales
    streams and applies retention. Several controllers can run at the same time and take over from each other.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    with open_streams(store) as streams:
        running = Controller(streams, name=name, lease=lease, poll=poll, housekeeping=housekeeping)
        if once:
            done = running.step()
            running.stop()
            running.run()
            marks = sum(cycle.mark is not None for cycle in done.cycles.values())
            print_line(f"{counted(len(done.cycles), 'stream')} checked, {counted(marks, 'mark')} written")
            return
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: running.stop())
        print_line(f"controller {running.name} is running; press Ctrl-C to stop it")
        running.run()
