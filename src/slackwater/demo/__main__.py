"""`python -m slackwater.demo [FOLDER]`: the demo; the picture of its run goes into the folder."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time as waiting
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from slackwater import telemetry, time
from slackwater.demo.bids import AUCTIONS, SILENT, Feed
from slackwater.demo.demo_picture import Picture
from slackwater.demo.demo_pipeline import WINDOW, QuietSession, Run, counted
from slackwater.demo.demo_view import Moment, View, final_table
from slackwater.errors import SlackwaterError
from slackwater.spark.monitor.reports import OperatorReport

_PAUSE = 0.25


class Demo:
    """The story: what is done to the pipeline, when, and what is waited for."""

    def __init__(self, run: Run, feed: Feed, view: View) -> None:
        self._run = run
        self._feed = feed
        self._view = view

    def tell(self) -> None:
        """From the first bid to the end of the stream."""
        query = self._run.start(self._feed.arriving)
        self._go_on("The query starts; nobody has spoken yet.", lambda: self._report() is not None, 0, 180)
        self._feed.begin(time.now())
        self._go_on("Three origins send bids, out of order, up to two seconds late.", self._spoken, 8, 60)
        self._feed.fall_silent()
        self._go_on(
            f"{SILENT.capitalize()} has fallen silent: it holds everybody back until it is found to be idle.",
            self._left_out,
            1,
            60,
        )
        self._feed.speak_again(time.now())
        self._go_on(
            f"{SILENT.capitalize()} is back, with what it held: late panes correct what was said on time.",
            lambda: counted(self._run.said())["LATE"] > 0,
            3,
            60,
        )
        if query.exception() is not None:
            raise SlackwaterError(f"the query has failed: {query.exception()}")
        self._show("The query is stopped, and started again from its checkpoint to end the stream.")
        self._run.stop()
        self._run.start(self._feed.arriving, flush=True).awaitTermination()
        self._run.stop()
        self._show("The stream has ended: every window that was open has fired.")

    def _go_on(self, happening: str, until: Callable[[], bool], seconds: float, at_most: float) -> None:
        """Send bids and show what comes of them, until something has happened and some seconds more."""
        begun = waiting.monotonic()
        happened: float | None = None
        while happened is None or waiting.monotonic() < happened + seconds:
            self._feed.send(time.now())
            self._show(happening)
            if happened is None and (until() or waiting.monotonic() > begun + at_most):
                happened = waiting.monotonic()
            waiting.sleep(_PAUSE)

    def _show(self, happening: str) -> None:
        self._view.show(Moment(happening, self._report(), self._run.said(), len(self._feed.sent)))

    def _report(self) -> OperatorReport | None:
        for query in self._run.told.queries():
            if query.last is not None:
                return query.last.report.operators[0]
        return None

    def _spoken(self) -> bool:
        report = self._report()
        return report is not None and report.watermark is not None

    def _left_out(self) -> bool:
        """Whether a window has fired that the silent origin still has bids for: they will be late."""
        report, held = self._report(), self._feed.earliest_held()
        if held is None or report is None or report.watermark is None:
            return False
        length = time.duration(WINDOW)
        return report.watermark >= (held // length + 1) * length


def main() -> int:
    """Run the demo; the exit code is 0 if every bid was accounted for."""
    parser = argparse.ArgumentParser(prog="slackwater.demo", description="A pipeline on Spark, watched.")
    parser.add_argument("folder", nargs="?", default="demo-output", type=Path, help="where the picture goes")
    target = parser.parse_args().folder / "bids.svg"
    console = Console(highlight=False)
    begun = waiting.monotonic()
    console.print("\n[bold]How far are we, and who is holding it back?[/bold]")
    console.print("Starting Spark …", style="dim")
    try:
        with tempfile.TemporaryDirectory(prefix="slackwater-demo-") as made:
            folder = Path(made)
            with QuietSession(folder) as spark, telemetry(spark) as told, View(console) as view:
                feed = Feed(folder)
                run = Run(spark, folder, told)
                Demo(run, feed, view).tell()
                target.parent.mkdir(parents=True, exist_ok=True)
                Picture(run, feed.sent, AUCTIONS[0]).save(target)
    except SlackwaterError as error:
        console.print(f"[red]{error}[/red]")
        return 1
    last = run.last()
    console.print(final_table(last))
    panes = ", ".join(f"{n} {timing.lower().replace('_', ' ')}" for timing, n in counted(run.said()).items())
    dropped = sum(pane.kind == "late" for pane in run.said())
    kept = sum(pane.bids for pane in last)
    sent = len(feed.sent)
    console.print(f"Panes: {panes}.")
    console.print(f"Bids: {sent} sent, {kept} in windows, {dropped} dropped as too late.")
    console.print(f"The picture of the {AUCTIONS[0]}'s bids: {target}")
    console.print(f"{waiting.monotonic() - begun:.0f} seconds, with the start of Spark.\n", style="dim")
    return 0 if kept + dropped == sent else 1


if __name__ == "__main__":
    sys.exit(main())
