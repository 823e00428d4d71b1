"""Entry point of `python -m slackwater.demo [FOLDER]`; writes the picture of the run into the folder."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time as system_time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from slackwater import telemetry, time, ui
from slackwater.demo.bids import AUCTIONS, SILENT, Feed
from slackwater.demo.demo_picture import Picture
from slackwater.demo.demo_pipeline import WINDOW, DemoRun, QuietSession, panes_by_timing
from slackwater.demo.demo_view import Snapshot, View, final_table
from slackwater.errors import MissingExtra, SlackwaterError
from slackwater.spark.monitor.reports import OperatorReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_SECONDS = 0.25


class Demo:
    """The scenario: what happens to the pipeline, and what each phase waits for."""

    def __init__(self, run: DemoRun, feed: Feed, view: View) -> None:
        self._run = run
        self._feed = feed
        self._view = view

    def play(self) -> None:
        """Play the scenario from the first bid to the end of the stream."""
        query = self._run.start(self._feed.arriving)
        self._phase(
            "The query starts; no origin has sent anything yet.", lambda: self._report() is not None, 0, 180
        )
        self._feed.begin(time.now())
        self._phase(
            "Three origins send bids, out of order, up to two seconds late.", self._has_watermark, 8, 60
        )
        self._feed.silence()
        self._phase(
            f"{SILENT.capitalize()} has gone silent: it holds the watermark back until it counts as idle.",
            self._fired_without_silent_origin,
            1,
            60,
        )
        self._feed.resume(time.now())
        self._phase(
            f"{SILENT.capitalize()} is back with the bids it held: late panes correct the on-time results.",
            lambda: panes_by_timing(self._run.collected())["LATE"] > 0,
            3,
            60,
        )
        if query.exception() is not None:
            raise SlackwaterError(f"the query failed: {query.exception()}")
        self._show("The query is stopped and restarted from its checkpoint, to end the stream.")
        self._run.stop()
        self._run.start(self._feed.arriving, flush=True).awaitTermination()
        self._run.stop()
        self._show("The stream has ended: all open windows have fired.")

    def _phase(self, title: str, until: Callable[[], bool], seconds: float, at_most: float) -> None:
        """Send bids and show results until a condition holds, and for some seconds more."""
        started = system_time.monotonic()
        reached: float | None = None
        while reached is None or system_time.monotonic() < reached + seconds:
            self._feed.send(time.now())
            self._show(title)
            if reached is None and (until() or system_time.monotonic() > started + at_most):
                reached = system_time.monotonic()
            system_time.sleep(_POLL_SECONDS)

    def _show(self, title: str) -> None:
        self._view.show(Snapshot(title, self._report(), self._run.collected(), len(self._feed.sent)))

    def _report(self) -> OperatorReport | None:
        for query in self._run.telemetry.queries():
            if query.last is not None:
                return query.last.report.operators[0]
        return None

    def _has_watermark(self) -> bool:
        report = self._report()
        return report is not None and report.watermark is not None

    def _fired_without_silent_origin(self) -> bool:
        """Whether a window has fired for which the silent origin still holds bids, which will be late."""
        report, held = self._report(), self._feed.earliest_held()
        if held is None or report is None or report.watermark is None:
            return False
        length = time.duration(WINDOW)
        return report.watermark >= (held // length + 1) * length


def _web_console(spark: SparkSession, console: Console) -> AbstractContextManager[object]:
    """Serve the console for the run, and print where it is."""
    try:
        running = ui(spark)
    except MissingExtra as error:
        console.print(f"There is no console, because {error}.", style="dim")
        return nullcontext()
    console.print(f"Console, until the demo ends: [bold]{running.address}[/bold]")
    return running


def main() -> int:
    """Run the demo; return exit code 0 if every bid is in a window or counted as dropped."""
    parser = argparse.ArgumentParser(
        prog="slackwater.demo", description="Run a pipeline on Spark and show its progress live."
    )
    parser.add_argument(
        "folder", nargs="?", default="demo-output", type=Path, help="folder for the picture of the run"
    )
    target = parser.parse_args().folder / "bids.svg"
    console = Console(highlight=False)
    started = system_time.monotonic()
    console.print("\n[bold]How far are we, and what holds the watermark back?[/bold]")
    console.print("Starting Spark …", style="dim")
    try:
        with tempfile.TemporaryDirectory(prefix="slackwater-demo-") as temporary:
            folder = Path(temporary)
            with QuietSession(folder) as spark, telemetry(spark) as reports, _web_console(spark, console):
                feed = Feed(folder)
                run = DemoRun(spark, folder, reports)
                with View(console) as view:
                    Demo(run, feed, view).play()
                target.parent.mkdir(parents=True, exist_ok=True)
                Picture(run, feed.sent, AUCTIONS[0]).save(target)
    except SlackwaterError as error:
        console.print(f"[red]{error}[/red]")
        return 1
    final = run.final()
    console.print(final_table(final))
    panes = ", ".join(
        f"{n} {timing.lower().replace('_', ' ')}" for timing, n in panes_by_timing(run.collected()).items()
    )
    dropped = sum(pane.kind == "late" for pane in run.collected())
    kept = sum(pane.bids for pane in final)
    sent = len(feed.sent)
    console.print(f"Panes: {panes}.")
    console.print(f"Bids: {sent} sent, {kept} in windows, {dropped} dropped as too late.")
    console.print(f"Picture of the bids for the {AUCTIONS[0]}: {target}")
    console.print(
        f"{system_time.monotonic() - started:.0f} seconds, including the start of Spark.\n", style="dim"
    )
    return 0 if kept + dropped == sent else 1


if __name__ == "__main__":
    sys.exit(main())
