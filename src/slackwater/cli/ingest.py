"""`slackwater ingest`: run a job, look back at its runs, and let it read again."""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from slackwater.cli.console import FAILED, INTERRUPTED, AsJson, Group, note, say, show, write_json
from slackwater.cli.interrupts import Stopping
from slackwater.cli.plan import JobFile, Now, Set, now_of, settings_of, time_of
from slackwater.errors import InvalidArgument
from slackwater.ingest import WHOLE, History, Job, Plan, WorkUnit, load_job, unit_of
from slackwater.ingest import plan as make_plan
from slackwater.ingest.ledger.progress_ledger import read_history
from slackwater.ingest.ledger.run_ledger import (
    Outcome,
    existing_store,
    find_run,
    list_runs,
    outcomes_of,
    prune_runs,
    reset_history,
    store_exists,
)
from slackwater.ingest.plan.plan_report import plan_as_json, warnings_of
from slackwater.ingest.plan.planner import RUN_REASONS
from slackwater.ingest.runner import Report, Watcher, first_units, run_job
from slackwater.metadata.store import MetadataStore, open_store
from slackwater.time import SECOND, duration, format_instant, now

_RUN = "run"
_COLUMNS = ["unit", "low", "high", "rows", "bytes", "seconds", "outcome"]
State = Annotated[
    str,
    typer.Option(
        "--state",
        metavar="URL",
        envvar="SLACKWATER_STORE",
        help="the store that keeps the history: sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE",
    ),
]
DEFAULT_STATE = "sqlite:///slackwater.db"


class _RunUnlessNamed(Group):
    """A group in which a job file in place of a command means that it is run."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] != "--help":
            args = [_RUN, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_RunUnlessNamed,
    no_args_is_help=True,
    help="Run a job (slackwater ingest JOB), or look after its history.",
)


@app.command(_RUN)
def run(
    job: JobFile,
    state: State = DEFAULT_STATE,
    settings: Set = None,
    at: Now = None,
    only_failed: Annotated[
        bool, typer.Option("--only-failed", help="only units whose last read failed or was stopped")
    ] = False,
    max_units: Annotated[int | None, typer.Option("--max-units", min=1, help="at most so many units")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show the ranges, and execute nothing")] = False,
    as_json: AsJson = False,
) -> None:
    """Run JOB: read what is missing, and put it in place. Exit code 0 only if all units succeeded."""
    read = load_job(job, settings=settings_of(settings or []))
    moment = now_of(at, read)
    from slackwater.ingest.extraction import Extraction, check_runnable
    from slackwater.ingest.sources.jdbc_source import jar_settings
    from slackwater.spark.session import session

    check_runnable(read)
    if dry_run:
        made = _planned(read, state, moment, only_failed=only_failed)
        _show_plan(first_units(made, max_units), as_json=as_json)
        return
    with open_store(state) as store, Stopping() as stopping, ExitStack() as stack:
        _silence_spark()
        config = {"spark.ui.showConsoleProgress": "false", **jar_settings(read)}
        spark = session("slackwater ingest", config=config)
        stack.callback(spark.stop)
        stopping.cancels(spark)
        spark.sparkContext.setLogLevel("OFF")
        if stopping.asked.is_set():
            raise typer.Exit(INTERRUPTED)
        watcher = stack.enter_context(_Progress()) if _watched(as_json=as_json) else _Lines(quiet=as_json)
        report = run_job(
            read, store, Extraction(read, spark), now=moment, only_failed=only_failed,
            max_units=max_units, watcher=watcher, stop=stopping.asked,
        )  # fmt: skip
    _show_report(report, as_json=as_json)
    for text in warnings_of(report.plan):
        note(f"warning: {text}")
    if not report.succeeded:
        raise typer.Exit(INTERRUPTED if stopping.asked.is_set() else FAILED)


def _silence_spark() -> None:
    """PySpark writes values of records to standard error, and with them what a server repeats of a secret."""
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


@app.command()
def history(
    job: JobFile,
    state: State = DEFAULT_STATE,
    settings: Set = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="the newest so many runs")] = 20,
    run_id: Annotated[str | None, typer.Option("--run", help="the units of this run instead")] = None,
    owed: Annotated[
        bool, typer.Option("--owed", help="the failed reads that the next run has to repeat, instead")
    ] = False,
    prune: Annotated[
        str | None, typer.Option("--prune", metavar="AGE", help='forget runs older than this, as "90 days"')
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the runs of JOB, the newest first, the units of one of them, or its failed reads."""
    read = load_job(job, settings=settings_of(settings or []))
    name = read.settings.name
    with existing_store(state) as store:
        if prune is not None:
            gone = prune_runs(store, name, before=now() - duration(prune, name="prune"))
            say(f"{gone} runs forgotten")
            return
        if run_id is not None:
            _check_run(store, name, run_id)
            _show_units([_row(outcome) for outcome in outcomes_of(store, run_id)], as_json=as_json)
            return
        failed = _failed_reads(store, read)
        if owed:
            show(failed, ["unit", "partition", "low", "high_watermark", "why"], as_json=as_json)
            return
        rows = [
            {
                **asdict(record),
                "started": format_instant(record.started_at),
                "ended": None if record.ended_at is None else format_instant(record.ended_at),
            }
            for record in list_runs(store, name, limit=limit)
        ]
    show(rows, ["id", "state", "started", "ended"], as_json=as_json, whole=["id"])
    if failed and not as_json:
        say(f"{len(failed)} reads failed and will be repeated; --owed lists them")


def _failed_reads(store: MetadataStore, job: Job) -> list[dict[str, Any]]:
    """The reads that failed since the last success of their unit, oldest partition first."""
    name, watermark = job.settings.name, job.settings.axis.name
    known = store.read(lambda connection: read_history(connection, name, watermark))
    highs = {(start, unit): high for start, unit, high in known.rows()}
    rows: list[dict[str, Any]] = []
    for start, unit, low in sorted(known.failed_reads()):
        high = highs.get((start, unit))
        rows.append(
            {
                "unit": "" if unit == WHOLE.key else unit,
                "partition": format_instant(start),
                "low": format_instant(low),
                "high_watermark": None if high is None else format_instant(high),
                "why": RUN_REASONS["new" if high is None else "owed"],
            }
        )
    return rows


@app.command()
def reset(
    job: JobFile,
    state: State = DEFAULT_STATE,
    settings: Set = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="T", help="keep what was read before this time")
    ] = None,
    unit: Annotated[
        list[str] | None, typer.Option("--unit", metavar="NAME=VALUE", help="only this unit")
    ] = None,
) -> None:
    """Forget how far JOB was read, so that the next run reads it again. What was written stays."""
    read = load_job(job, settings=settings_of(settings or []))
    key = unit_of(settings_of(unit, "--unit")).key if unit else None
    start = None if since is None else time_of(since, read, "--since")
    with existing_store(state) as store:
        count = reset_history(store, read.settings.name, read.settings.axis.name, unit=key, since=start)
    say(f"{count} high watermarks forgotten or lowered")


def _check_run(store: MetadataStore, job: str, run_id: str) -> None:
    if find_run(store, job, run_id) is None:
        fix = "give an id that slackwater ingest history lists, all of it"
        raise InvalidArgument("--run", run_id, f"is no run of {job}", fix=fix)


# ---- the store, left as it is


def _planned(job: Job, state: str, moment: int, *, only_failed: bool) -> Plan:
    """What a run would do: the same plan, and nothing changed. A store that is not there yet is empty."""
    name, watermark = job.settings.name, job.settings.axis.name
    if not store_exists(state):
        return make_plan(job, History(), moment, only_failed=only_failed)
    with open_store(state, upgrade=False) as store:
        history = store.read(lambda connection: read_history(connection, name, watermark))
    return make_plan(job, history, moment, only_failed=only_failed)


# ---- while it runs


def _watched(*, as_json: bool) -> bool:
    return sys.stderr.isatty() and not as_json


class _Progress(Watcher):
    """A bar for the whole run, and a line for each unit that is under way."""

    def __init__(self) -> None:
        self._bars = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            console=Console(stderr=True),
        )  # fmt: skip
        self._whole: TaskID | None = None
        self._units: dict[int, TaskID] = {}
        self._turn = threading.Lock()

    def __enter__(self) -> _Progress:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def planned(self, made: Plan) -> None:
        self._whole = self._bars.add_task(escape(made.job), total=len(made.units))

    def started(self, number: int, work: WorkUnit) -> None:
        with self._turn:
            self._units[number] = self._bars.add_task(f"  {escape(_named(work))}", total=None)

    def ended(self, number: int, work: WorkUnit, outcome: Outcome) -> None:
        with self._turn:
            self._bars.remove_task(self._units.pop(number))
            if self._whole is not None:
                self._bars.advance(self._whole)


class _Lines(Watcher):
    """A line for each unit that has ended, for a console that is no terminal."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet

    def ended(self, number: int, work: WorkUnit, outcome: Outcome) -> None:
        if not self._quiet:
            say(f"{outcome.state}: {_named(work)}, {outcome.rows} rows")


def _named(work: WorkUnit) -> str:
    unit = f"{work.unit} " if work.unit.values else ""
    return f"{unit}{format_instant(work.low)} to {format_instant(work.high)}"


# ---- afterwards


def _row(outcome: Outcome) -> dict[str, Any]:
    return {
        "unit": "" if outcome.unit == "{}" else outcome.unit,
        "low": format_instant(outcome.low),
        "high": format_instant(outcome.high),
        "rows": outcome.rows,
        "bytes": outcome.bytes,
        "seconds": round((outcome.ended_at - outcome.started_at) / SECOND, 3),
        "outcome": outcome.state,
        "error": outcome.error,
        "drift": outcome.drift,
        "without_time": outcome.without_time,
    }


def _show_units(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    """A table, with what is seldom told only where there is something to tell, and the errors below it."""
    more = [name for name in ("drift", "without_time") if any(row[name] for row in rows)]
    show(rows, [*_COLUMNS, *more], as_json=as_json)
    for row in rows:
        if row["error"] is not None and not as_json:
            unit = f"{row['unit']} " if row["unit"] else ""
            say(f"{row['outcome']}: {unit}{row['low']} to {row['high']}: {row['error']}")


def _show_report(report: Report, *, as_json: bool) -> None:
    rows = [_row(outcome) for outcome in report.outcomes]
    if as_json:
        told = {"run": report.run, "job": report.plan.job, "succeeded": report.succeeded}
        write_json({**told, "not_begun": report.not_begun, "units": rows})
        return
    if rows:
        _show_units(rows, as_json=False)
    done = sum(outcome.state == "succeeded" for outcome in report.outcomes)
    left = f"; {report.not_begun} were not begun" if report.not_begun else ""
    say(f"{done} of {len(report.plan.units)} units succeeded, {sum(row['rows'] for row in rows)} rows{left}")


def _show_plan(made: Plan, *, as_json: bool) -> None:
    if as_json:
        write_json(plan_as_json(made))
        return
    for work in made.units:
        say(_named(work))
    say(f"{len(made.units)} units would run")
