"""`slackwater plan`: what a run of a job would read, what it would not and why. Nothing is executed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import tzinfo
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from slackwater.cli.console import AsJson, write_json
from slackwater.errors import InvalidArgument
from slackwater.ingest import History, Job, Plan, load_job
from slackwater.ingest import plan as make_plan
from slackwater.ingest.axis.bounds import read_fixed
from slackwater.ingest.axis.timezones import local_of
from slackwater.ingest.ledger.progress_ledger import look_up_history
from slackwater.ingest.plan.plan_report import FATES, OMISSIONS, plan_as_json, stretches, warnings_of
from slackwater.ingest.plan.planner import RUN_REASONS, SKIP_REASONS
from slackwater.time import Range, now

JobFile = Annotated[Path, typer.Argument(metavar="JOB", help="the job file, as .properties or .yaml")]
Now = Annotated[
    str | None,
    typer.Option("--now", metavar="T", help="plan as if it were this time, such as 2020-01-31T10:00:00Z"),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="a value for ${NAME}, or for a key of the job"),
]
State = Annotated[
    str | None,
    typer.Option(
        "--state",
        metavar="URL",
        envvar="SLACKWATER_STORE",
        help="the store with the history of the job; without it, nothing was read before",
    ),
]
Plot = Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="draw a calendar, as .svg or .png")]
Rows = Annotated[int, typer.Option("--rows", min=0, help="most rows of a table; 0 is all")]


def plan(
    job: JobFile,
    at: Now = None,
    state: State = None,
    settings: Set = None,
    as_json: AsJson = False,
    plot: Plot = None,
    rows: Rows = 40,
) -> None:
    """Show what a run of JOB would read, what it would not read and why. Nothing is executed."""
    read = load_job(job, settings=settings_of(settings or []))
    name, watermark = read.settings.name, read.settings.axis.name
    history = History() if state is None else look_up_history(state, name, watermark)
    made = make_plan(read, history, now_of(at, read))
    if plot is not None:
        _draw(made, read, plot)
    if as_json:
        write_json(plan_as_json(made))
    else:
        _Shown(made, Console(), read.settings.timezone, rows).show()


def settings_of(given: list[str], option: str = "--set") -> dict[str, str]:
    """What an option such as ``--set`` gives, by name.

    >>> settings_of(["days=3"])
    {'days': '3'}
    """
    pairs = [text.partition("=") for text in given]
    for (name, equals, _), text in zip(pairs, given, strict=True):
        if not equals or not name.strip():
            raise InvalidArgument(option, text, "has no name or no =", fix=f"write {option} name=value")
    return {name.strip(): value for name, _, value in pairs}


def now_of(text: str | None, job: Job) -> int:
    """What ``--now`` gives, on the clocks of the job; without it, the wall clock.

    >>> from slackwater.ingest import parse_job
    >>> now_of("1970-01-01 00:00:01", parse_job({}))
    1000000
    """
    return now() if text is None else time_of(text, job, "--now")


def time_of(text: str, job: Job, option: str) -> int:
    """The time that an option gives, on the clocks of the job.

    >>> from slackwater.ingest import parse_job
    >>> time_of("1970-01-01 00:00:01", parse_job({}), "--since")
    1000000
    """
    try:
        return read_fixed(text).resolve(0, job.settings.timezone)
    except InvalidArgument as error:
        raise InvalidArgument(option, text, error.reason, fix=error.fix) from None


def _draw(made: Plan, job: Job, path: Path) -> None:
    from slackwater.plot.calendar_picture import save_calendar
    from slackwater.plot.picture_files import picture_file

    title = f"{made.job}: what a run would read"
    try:
        picture_file(path)
    except InvalidArgument as error:
        raise InvalidArgument("--plot", str(path), error.reason, fix=error.fix) from None
    try:
        save_calendar(stretches(made), path, fates=FATES, place=job.settings.timezone, title=title)
    except OSError as error:
        reason = f"cannot be written ({error.strerror or error})"
        fix = "name a file in a folder that is there, and that you may write to"
        raise InvalidArgument("--plot", str(path), reason, fix=fix) from None


# ---- the tables


class _Shown:
    """The tables of one plan, with times as clocks in the timezone of the job show them."""

    def __init__(self, made: Plan, console: Console, place: tzinfo, most: int) -> None:
        self._made = made
        self._console = console
        self._place = place
        self._most = most

    def show(self) -> None:
        """Everything."""
        made, say = self._made, self._console.print
        axis = f"{escape(made.watermark)} from {self._time(made.start)} to {self._time(made.end)}"
        say(
            f"[bold]{escape(made.job)}[/] at {self._time(made.now)} {self._place}, {axis}",
            highlight=False,
            emoji=False,
        )
        say(f"overall cut-off: {self._time(made.overall) or 'none, there is no history'}\n", highlight=False)
        self._table(
            f"would run: {len(made.units)}",
            ("#", "unit", "low", "high", "high watermark", "own cut-off", "owed from", "leaves out", "why"),
            [
                (str(number), str(work.unit), self._time(work.low), self._time(work.high),
                 self._time(work.previous) or "new", self._time(work.own), self._time(work.owed),
                 self._range(work.left_out), work.reason)
                for number, work in enumerate(made.units[: self._most or None])
            ],
            len(made.units),
        )  # fmt: skip
        self._counts(Counter(RUN_REASONS[work.reason] for work in made.units))
        self._table(
            f"would be skipped: {len(made.skipped)}",
            ("unit", "partition", "high watermark", "own cut-off", "leaves out", "why"),
            [
                (str(unit.unit), self._range(Range(unit.start, unit.end)), self._time(unit.previous) or "new",
                 self._time(unit.own), self._range(unit.left_out), unit.reason)
                for unit in made.skipped[: self._most or None]
            ],
            len(made.skipped),
        )  # fmt: skip
        self._counts(Counter(SKIP_REASONS[unit.reason] for unit in made.skipped))
        for each in made.omissions:
            stretch = self._range(Range(each.start, each.end))
            say(f"[yellow]left out:[/] {stretch}: {OMISSIONS[each.reason]}", highlight=False)
        for text in warnings_of(made):
            say(f"[yellow]warning:[/] {text}", highlight=False)

    def _table(self, title: str, columns: Sequence[str], rows: list[tuple[str, ...]], count: int) -> None:
        """A table without the columns in which nothing stands."""
        used = [number for number, _ in enumerate(columns) if any(row[number] for row in rows)]
        table = Table(title=title, title_justify="left")
        for number in used:
            side: Literal["left", "right"] = "right" if columns[number] == "#" else "left"
            table.add_column(columns[number], justify=side, overflow="fold")
        for row in rows:
            table.add_row(*(Text(row[number]) for number in used))
        self._console.print(table if rows else f"{title}")
        if count > len(rows):
            self._console.print(f"  … and {count - len(rows)} more; --rows 0 shows all")

    def _counts(self, reasons: Counter[str]) -> None:
        for reason, count in reasons.items():
            self._console.print(f"  {count}: {reason}")

    def _range(self, stretch: Range | None) -> str:
        return "" if stretch is None else f"{self._time(stretch.start)} to {self._time(stretch.end)}"

    def _time(self, at: int | None) -> str:
        """A date where the day begins, otherwise with the time of day."""
        if at is None:
            return ""
        return local_of(at, self._place).isoformat(" ").removesuffix(" 00:00:00")
