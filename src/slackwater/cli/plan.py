"""`slackwater plan`: the ranges that a run of a job would read, and those it would skip, with reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import tzinfo
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from slackwater.cli.console import DEFAULT_STORE, STORE_VARIABLE, AsJson, print_json
from slackwater.cli.job_options import JobFile, Now, Set, parse_now, parse_settings
from slackwater.cli.watching import Interval, Watch, show_changes
from slackwater.errors import InvalidArgument
from slackwater.ingest import History, Job, Plan, load_job
from slackwater.ingest import plan as make_plan
from slackwater.ingest.axis.timezones import local_of
from slackwater.ingest.ledger.existing_stores import look_up_history
from slackwater.ingest.plan.plan_report import FATES, OMISSIONS, plan_as_json, stretches, warnings_of
from slackwater.ingest.plan.planner import RUN_REASONS, SKIP_REASONS
from slackwater.time import Range

State = Annotated[
    str | None,
    typer.Option(
        "--state",
        metavar="URL",
        envvar=STORE_VARIABLE,
        help="URL of the metadata store that holds the history of the job; by default "
        f"{DEFAULT_STORE}, if it exists.",
    ),
]
NoHistory = Annotated[
    bool, typer.Option("--no-history", help="Plan as if nothing was read before; no store is opened.")
]
Plot = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE", help="Also draw the plan as a calendar (.svg or .png)."),
]
Rows = Annotated[int, typer.Option("--rows", min=0, help="Show at most this many rows per table; 0 for all.")]


def plan(
    job: JobFile,
    at: Now = None,
    state: State = None,
    no_history: NoHistory = False,
    settings: Set = None,
    as_json: AsJson = False,
    plot: Plot = None,
    rows: Rows = 40,
    watch: Watch = False,
    interval: Interval = 10.0,
) -> None:
    """Show what a run of JOB would read, what it would skip, and why. Nothing is executed."""

    def read() -> tuple[Job, Plan]:
        loaded = load_job(job, settings=parse_settings(settings))
        if no_history:
            history = History()
        else:
            history = look_up_history(state or DEFAULT_STORE, loaded, must_exist=state is not None)
        return loaded, make_plan(loaded, history, parse_now(at, loaded))

    def show(found: tuple[Job, Plan]) -> None:
        loaded, made = found
        if plot is not None:
            _draw(made, loaded, plot)
        if as_json:
            print_json(plan_as_json(made))
        else:
            _PlanPrinter(made, Console(), loaded.settings.timezone, rows).print()

    show_changes(read, show, content=lambda found: replace(found[1], now=0), watch=watch, interval=interval)


def _draw(plan: Plan, job: Job, path: Path) -> None:
    from slackwater.plot.calendar_picture import save_calendar
    from slackwater.plot.picture_files import check_picture_path

    title = f"{plan.job}: what a run would read"
    try:
        check_picture_path(path)
    except InvalidArgument as error:
        raise InvalidArgument("--plot", str(path), error.reason, fix=error.fix) from None
    try:
        save_calendar(stretches(plan), path, fates=FATES, timezone=job.settings.timezone, title=title)
    except OSError as error:
        reason = f"cannot be written ({error.strerror or error})"
        fix = "name a file in an existing folder that you have permission to write to"
        raise InvalidArgument("--plot", str(path), reason, fix=fix) from None


# ---- output


class _PlanPrinter:
    """Prints the tables of one plan, with times in the timezone of the job."""

    def __init__(self, plan: Plan, console: Console, timezone: tzinfo, max_rows: int) -> None:
        self._plan = plan
        self._console = console
        self._timezone = timezone
        self._max_rows = max_rows

    def print(self) -> None:
        """Print the header, both tables, the ranges that no partition covers, and the warnings."""
        plan, write = self._plan, self._console.print
        axis = f"{escape(plan.watermark)} from {self._time(plan.start)} to {self._time(plan.end)}"
        header = f"[bold]{escape(plan.job)}[/] at {self._time(plan.now)} {self._timezone}, {axis}"
        write(header, highlight=False, emoji=False)
        write(f"overall cut-off: {self._time(plan.overall) or 'none (no history)'}\n", highlight=False)
        self._print_table(
            f"would run: {len(plan.units)}",
            ("#", "unit", "low", "high", "high watermark", "own cut-off", "owed from", "left out", "reason"),
            [
                (str(number), str(work.unit), self._time(work.low), self._time(work.high),
                 self._time(work.previous) or "new", self._time(work.own), self._time(work.owed),
                 self._range(work.left_out), work.reason)
                for number, work in enumerate(plan.units[: self._max_rows or None])
            ],
            len(plan.units),
        )  # fmt: skip
        self._print_counts(Counter(RUN_REASONS[work.reason] for work in plan.units))
        self._print_table(
            f"would be skipped: {len(plan.skipped)}",
            ("unit", "partition", "high watermark", "own cut-off", "left out", "reason"),
            [
                (str(unit.unit), self._range(Range(unit.start, unit.end)), self._time(unit.previous) or "new",
                 self._time(unit.own), self._range(unit.left_out), unit.reason)
                for unit in plan.skipped[: self._max_rows or None]
            ],
            len(plan.skipped),
        )  # fmt: skip
        self._print_counts(Counter(SKIP_REASONS[unit.reason] for unit in plan.skipped))
        for omission in plan.omissions:
            stretch = self._range(Range(omission.start, omission.end))
            write(f"[yellow]left out:[/] {stretch}: {OMISSIONS[omission.reason]}", highlight=False)
        for text in warnings_of(plan):
            write(f"[yellow]warning:[/] {text}", highlight=False)

    def _print_table(
        self, title: str, columns: Sequence[str], rows: list[tuple[str, ...]], total: int
    ) -> None:
        """Print a table without its empty columns, or only the title if there are no rows."""
        used = [number for number, _ in enumerate(columns) if any(row[number] for row in rows)]
        table = Table(title=title, title_justify="left")
        for number in used:
            side: Literal["left", "right"] = "right" if columns[number] == "#" else "left"
            table.add_column(columns[number], justify=side, overflow="fold")
        for row in rows:
            table.add_row(*(Text(row[number]) for number in used))
        self._console.print(table if rows else title)
        if total > len(rows):
            self._console.print(f"  … and {total - len(rows)} more; --rows 0 shows all")

    def _print_counts(self, reasons: Counter[str]) -> None:
        for reason, count in reasons.items():
            self._console.print(f"  {count}: {reason}")

    def _range(self, stretch: Range | None) -> str:
        return "" if stretch is None else f"{self._time(stretch.start)} to {self._time(stretch.end)}"

    def _time(self, at: int | None) -> str:
        """A local date, with the time of day unless it is midnight."""
        if at is None:
            return ""
        return local_of(at, self._timezone).isoformat(" ").removesuffix(" 00:00:00")
