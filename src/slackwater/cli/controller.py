"""``slackwater controller``: a process that turns what writers note into watermarks."""

from __future__ import annotations

import logging
import signal
from typing import Annotated

import typer

from slackwater.cli.console import DEFAULT_STORE, Store, open_streams, say
from slackwater.streams.maintenance.controller import Controller


def controller(
    store: Store = DEFAULT_STORE,
    name: Annotated[
        str | None, typer.Option(help="Its name among the controllers; drawn if not given.")
    ] = None,
    lease: Annotated[str, typer.Option(help="How long others wait before they take over.")] = "15 seconds",
    poll: Annotated[str, typer.Option(help="How often it looks whether something is due.")] = "1 second",
    housekeeping: Annotated[
        str, typer.Option(help="How often it scales, forgets and collects.")
    ] = "30 seconds",
    once: Annotated[bool, typer.Option("--once", help="Do what is due now, and end.")] = False,
) -> None:
    """Run a controller until it is stopped (Ctrl-C, or SIGTERM). Any number may run at a time."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    with open_streams(store) as streams:
        running = Controller(streams, name=name, lease=lease, poll=poll, housekeeping=housekeeping)
        if once:
            done = running.step()
            running.stop()
            running.run()
            marks = sum(cycle.mark is not None for cycle in done.cycles.values())
            say(f"{len(done.cycles)} streams looked at, {marks} marks written")
            return
        for ending in (signal.SIGINT, signal.SIGTERM):
            signal.signal(ending, lambda *_: running.stop())
        say(f"controller {running.name} is running; stop it by Ctrl-C")
        running.run()
