"""`slackwater ingest`: run a job, list its past runs, and reset its progress."""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack
from dataclasses import asdict
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slackwater.cli.console import (
    DEFAULT_STORE,
    FAILURE,
    INTERRUPTED,
    STORE_URLS,
    STORE_VARIABLE,
    AsJson,
    Group,
    counted,
    print_json,
    print_line,
    print_note,
    print_table,
)
from slackwater.cli.interrupts import InterruptHandler
from slackwater.cli.job_options import JobFile, Now, Set, parse_now, parse_settings, parse_time
from slackwater.cli.run_progress import ProgressBars, ProgressLines, unit_text
from slackwater.cli.watching import Interval, Watch, show_changes
from slackwater.errors import InvalidArgument
from slackwater.ingest import WHOLE, Job, Plan, load_job, unit_of
from slackwater.ingest import plan as make_plan
from slackwater.ingest.ledger.existing_stores import existing_store, look_up_history
from slackwater.ingest.ledger.job_ledger import adopt_history
from slackwater.ingest.ledger.progress_ledger import read_history
from slackwater.ingest.ledger.run_ledger import (
    OUTCOMES,
    Outcome,
    RunRecord,
    find_run,
    list_runs,
    outcomes_of,
    prune_runs,
    reset_history,
)
from slackwater.ingest.plan.plan_report import plan_as_json, warnings_of
from slackwater.ingest.plan.planner import RUN_REASONS
from slackwater.ingest.runner import Report, Watcher, Watchers, first_units, run_job
from slackwater.lineage.run_lineage import lineage_of_run
from slackwater.metadata.store import MetadataStore, open_store
from slackwater.time import SECOND, duration, format_instant, now

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RUN = "run"
_COLUMNS = ["unit", "low", "high", "rows", "bytes", "seconds", "outcome"]
State = Annotated[
    str,
    typer.Option(
        "--state",
        metavar="URL",
        envvar=STORE_VARIABLE,
        help=f"URL of the metadata store that holds the history of the job: {STORE_URLS}.",
    ),
]


class _RunByDefault(Group):
    """A command group in which `ingest JOB` is short for `ingest run JOB`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] != "--help":
            args = [_RUN, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_RunByDefault,
    no_args_is_help=True,
    help="Run a job (slackwater ingest JOB), list its past runs, or reset its progress.",
)


@app.command(_RUN)
def run(
    job: JobFile,
    state: State = DEFAULT_STORE,
    settings: Set = None,
    at: Now = None,
    only_failed: Annotated[
        bool,
        typer.Option(
            "--only-failed", help="Run only the units whose last attempt failed or was interrupted."
        ),
    ] = False,
    max_units: Annotated[
        int | None, typer.Option("--max-units", min=1, help="Run at most this many units.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the units that would run, without running them.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run JOB: read the missing time ranges from the source and write them to the target.

    The exit code is 0 only if all units succeeded.
    """
    loaded = load_job(job, settings=parse_settings(settings))
    at_time = parse_now(at, loaded)
    from slackwater.ingest.job_checks import check_runnable
    from slackwater.ingest.sources.jdbc_source import jar_settings
    from slackwater.spark.internals import without_query_log
    from slackwater.spark.session import session

    check_runnable(loaded)
    if dry_run:
        plan = _plan_without_run(loaded, state, at_time, only_failed=only_failed)
        _print_plan(first_units(plan, max_units), as_json=as_json)
        return
    with open_store(state, create=True) as store, InterruptHandler() as interrupt, ExitStack() as stack:
        # Errors of queries contain values of rows, which may be secret.
        stack.enter_context(without_query_log())
        config = {"spark.ui.showConsoleProgress": "false", **jar_settings(loaded)}
        # imported while the JVM starts; if that fails, the import below raises the error
        threading.Thread(target=import_module, args=("slackwater.ingest.extraction",), daemon=True).start()
        spark = session("slackwater ingest", config=config)
        stack.callback(_stop, spark, interrupt)
        interrupt.cancel_jobs_of(spark)
        spark.sparkContext.setLogLevel("OFF")
        if interrupt.requested.is_set():
            raise typer.Exit(INTERRUPTED)
        from slackwater.ingest.extraction import Extraction

        watcher, lineage = _watcher(stack, as_json=as_json), lineage_of_run(loaded)
        report = None
        try:
            report = run_job(
                loaded, store, Extraction(loaded, spark), now=at_time, only_failed=only_failed,
                max_units=max_units, watcher=Watchers([watcher, lineage]), stop=interrupt.requested,
            )  # fmt: skip
        finally:
            lineage.close(succeeded=report is not None and report.succeeded)
    _print_report(report, as_json=as_json)
    for text in warnings_of(report.plan):
        print_note(f"warning: {text}")
    if not report.succeeded:
        raise typer.Exit(INTERRUPTED if interrupt.requested.is_set() else FAILURE)


def _stop(spark: SparkSession, interrupt: InterruptHandler) -> None:
    if interrupt.requested.is_set():
        from slackwater.spark.internals import silence_standard_error

        silence_standard_error(spark)
    spark.stop()


def _watcher(stack: ExitStack, *, as_json: bool) -> Watcher:
    if as_json:
        return Watcher()
    return stack.enter_context(ProgressBars()) if sys.stderr.isatty() else ProgressLines()


@app.command()
def history(
    job: JobFile,
    state: State = DEFAULT_STORE,
    settings: Set = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="List at most this many runs.")] = 20,
    run_id: Annotated[
        str | None, typer.Option("--run", metavar="ID", help="Instead of runs, list the units of this run.")
    ] = None,
    owed: Annotated[
        bool,
        typer.Option("--owed", help="Instead of runs, list the failed reads that the next run will repeat."),
    ] = False,
    prune: Annotated[
        str | None,
        typer.Option("--prune", metavar="AGE", help='Delete runs older than this, for example "90 days".'),
    ] = None,
    as_json: AsJson = False,
    watch: Watch = False,
    interval: Interval = 2.0,
) -> None:
    """List the runs of JOB, newest first; the units of one run; or the failed reads."""
    loaded = load_job(job, settings=parse_settings(settings))
    name = loaded.settings.name
    if prune is not None and watch:
        raise InvalidArgument("--prune", prune, "cannot be combined with --watch", fix="prune first")
    with existing_store(state) as store:
        if prune is not None:
            deleted = prune_runs(store, name, before=now() - duration(prune, name="prune"))
            print_line(f"{counted(deleted, 'run')} deleted")
            return
        if run_id is not None:
            _check_run(store, name, run_id)

        def read() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
            if run_id is not None:
                return [_unit_row(outcome) for outcome in outcomes_of(store, run_id)], []
            runs = [] if owed else [_run_row(record) for record in list_runs(store, name, limit=limit)]
            return runs, _failed_reads(store, loaded)

        def show(found: tuple[list[dict[str, Any]], list[dict[str, Any]]]) -> None:
            rows, failed = found
            if run_id is not None:
                _print_units(rows, as_json=as_json)
            elif owed:
                print_table(failed, ["unit", "partition", "low", "high_watermark", "why"], as_json=as_json)
            else:
                _print_runs(rows, failed, as_json=as_json)

        show_changes(read, show, content=lambda found: found, watch=watch, interval=interval)


def _print_runs(rows: list[dict[str, Any]], failed: list[dict[str, Any]], *, as_json: bool) -> None:
    columns = ["id", "state", "started", "ended", "units", "outcomes", "rows"]
    columns += ["rejected"] if any(row["rejected"] for row in rows) else []
    print_table(rows, columns, as_json=as_json, unwrapped=["id"])
    if failed and not as_json:
        print_line(f"{counted(len(failed), 'failed read')} will be repeated; --owed lists them")


def _run_row(record: RunRecord) -> dict[str, Any]:
    outcomes = {state: count for state in OUTCOMES if (count := getattr(record, state))}
    return {
        **asdict(record),
        "started": format_instant(record.started_at),
        "ended": None if record.ended_at is None else format_instant(record.ended_at),
        "units": sum(outcomes.values()),
        "outcomes": ", ".join(f"{count} {state}" for state, count in outcomes.items()),
    }


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
    state: State = DEFAULT_STORE,
    settings: Set = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Read again from this time on only.")
    ] = None,
    unit: Annotated[
        list[str] | None,
        typer.Option("--unit", metavar="NAME=VALUE", help="Reset this unit only; repeat for each field."),
    ] = None,
) -> None:
    """Reset the progress of JOB, so that the next run reads again. Data in the target is kept."""
    loaded = load_job(job, settings=parse_settings(settings))
    key = unit_of(parse_settings(unit, "--unit")).key if unit else None
    start = None if since is None else parse_time(since, loaded, "--since")
    with existing_store(state) as store:
        count = reset_history(store, loaded.settings.name, loaded.settings.axis.name, unit=key, since=start)
    print_line(f"{counted(count, 'high watermark')} reset")


@app.command()
def adopt(job: JobFile, state: State = DEFAULT_STORE, settings: Set = None) -> None:
    """Continue the history of JOB although its source or target has changed."""
    loaded = load_job(job, settings=parse_settings(settings))
    with existing_store(state) as store:
        adopt_history(store, loaded)
    print_line(f"job {loaded.settings.name} continues its history with its new source and target")


def _check_run(store: MetadataStore, job: str, run_id: str) -> None:
    if find_run(store, job, run_id) is None:
        fix = "give a complete id as listed by `slackwater ingest history`"
        raise InvalidArgument("--run", run_id, f"is not the id of a run of job {job}", fix=fix)


def _plan_without_run(job: Job, state: str, at_time: int, *, only_failed: bool) -> Plan:
    """The plan that a run would execute. The store is not changed; if it does not exist, history is empty."""
    history = look_up_history(state, job, must_exist=False)
    return make_plan(job, history, at_time, only_failed=only_failed)


# ---- output


def _unit_row(outcome: Outcome) -> dict[str, Any]:
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
        "rejected": outcome.rejected,
    }


def _print_units(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    """Print a table of units, followed by their errors. Optional columns appear only if one has a value."""
    optional = [name for name in ("drift", "without_time", "rejected") if any(row[name] for row in rows)]
    print_table(rows, [*_COLUMNS, *optional], as_json=as_json)
    for row in rows:
        if row["error"] is not None and not as_json:
            unit = f"{row['unit']} " if row["unit"] else ""
            print_line(f"{row['outcome']}: {unit}{row['low']} to {row['high']}: {row['error']}")


def _print_report(report: Report, *, as_json: bool) -> None:
    rows = [_unit_row(outcome) for outcome in report.outcomes]
    if as_json:
        header = {"run": report.run, "job": report.plan.job, "succeeded": report.succeeded}
        print_json({**header, "not_begun": report.not_begun, "units": rows})
        return
    if rows:
        _print_units(rows, as_json=False)
    succeeded = sum(outcome.state == "succeeded" for outcome in report.outcomes)
    total = counted(sum(row["rows"] for row in rows), "row")
    rejected = sum(outcome.rejected for outcome in report.outcomes)
    total += f", {rejected} rejected" if rejected else ""
    rest = f"; {report.not_begun} not started" if report.not_begun else ""
    print_line(f"{succeeded} of {counted(len(report.plan.units), 'unit')} succeeded, {total}{rest}")


def _print_plan(plan: Plan, *, as_json: bool) -> None:
    if as_json:
        print_json(plan_as_json(plan))
        return
    for work in plan.units:
        print_line(unit_text(work))
    print_line(f"{counted(len(plan.units), 'unit')} would run")
    for text in warnings_of(plan):
        print_note(f"warning: {text}")
