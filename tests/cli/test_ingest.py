"""`slackwater ingest`: jobs rejected before they run, dry runs, history and reset."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from slackwater.cli.app import app
from slackwater.ingest import WHOLE, WorkUnit, load_job
from slackwater.ingest.ledger.job_lease import JobLease
from slackwater.ingest.ledger.job_ledger import adopt_history
from slackwater.ingest.ledger.progress_ledger import read_history, record_failed_read, record_success
from slackwater.ingest.ledger.run_ledger import Outcome, Run
from slackwater.metadata.store import open_store

AXIS = "ms.watermark: [{name: system, type: datetime, range: {from: 2020-01-01, to: P0D}}]"
JOB = f"""
{AXIS}
ms.source.type: sql
ms.source.url: sqlite:///source.db
ms.source.table: orders
ms.time.column: at
ms.target.type: parquet
ms.target.path: copied
"""
LACKING = f"""
{AXIS}
ms.source.type: http
ms.target.type: sql
"""
ERROR = "RequestFailed: GET http://[::1]/all returned 500 [/a], and " + "so on " * 30


def job(folder: Path, text: str = JOB) -> tuple[str, str]:
    (folder / "orders.yaml").write_text(text, encoding="utf-8")
    return str(folder / "orders.yaml"), f"sqlite:///{folder}/store.db"


def ingest(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["ingest", *arguments])


def a_failed_run(state: str) -> str:
    with open_store(state, create=True) as store, JobLease(store, "orders") as lease:
        run = Run(store, lease, "system")
        run.record(
            WorkUnit(0, 10, WHOLE, 0), Outcome(0, 0, '{"a": "[/a]"}', 0, 10, "failed", 0, 0, 5, 7, ERROR)
        )
        run.end("failed")
    return run.id


@pytest.mark.parametrize("options", [[], ["--dry-run"]])
def test_a_job_that_cannot_run_lists_every_missing_key(tmp_path: Path, options: list[str]) -> None:
    file, state = job(tmp_path, LACKING)
    result = ingest(file, "--state", state, *options)
    assert result.exit_code == 2
    assert "ms.source.url: is missing; a http source requires it" in result.stderr
    assert "ms.target.url: is missing" in result.stderr
    assert "ms.target.table: is missing" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["orders.yaml"]


def test_a_dry_run_shows_the_plan_and_changes_nothing(tmp_path: Path) -> None:
    file, state = job(tmp_path)
    result = ingest(file, "--state", state, "--dry-run", "--json", "--now", "2020-01-03")
    assert [unit["high"] for unit in json.loads(result.stdout)["units"]] == ["2020-01-03T00:00:00Z"]
    failed = ingest(file, "--state", state, "--dry-run", "--only-failed")
    assert failed.stdout == "0 units would run\n"
    assert [path.name for path in tmp_path.iterdir()] == ["orders.yaml"]


def test_a_dry_run_of_failed_units_reads_them_from_the_store(tmp_path: Path) -> None:
    file, state = job(tmp_path)
    (tmp_path / "store.db").touch()
    options = ("--state", state, "--dry-run", "--only-failed", "--now", "2020-01-03")
    assert ingest(file, *options).stdout == "0 units would run\n"
    start = 1_577_836_800_000_000
    with open_store(state, create=True) as store, JobLease(store, "orders") as lease:
        work = WorkUnit(start, start + 10, WHOLE, start)
        outcome = Outcome(0, start, "{}", start, start + 10, "failed", 0, 0, 5, 7, "no answer")
        Run(store, lease, "system").record(work, outcome)
    assert ingest(file, *options).stdout.endswith("\n1 unit would run\n")


@pytest.mark.parametrize("command", ["history", "reset"])
def test_a_missing_store_is_an_error_and_is_not_created(tmp_path: Path, command: str) -> None:
    file, state = job(tmp_path)
    result = ingest(command, file, "--state", state)
    assert result.exit_code == 2
    assert f"state = '{state}': does not exist; correct it, or run the job first" in result.stderr
    away = ingest(command, file, "--state", f"sqlite:///{tmp_path}/none/store.db")
    assert "its folder does not exist" in away.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["orders.yaml"]
    (tmp_path / "store.db").touch()
    assert "is not a metadata store" in ingest(command, file, "--state", state).stderr


def test_an_id_printed_by_history_is_accepted_by_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    file, state = job(tmp_path)
    run = a_failed_run(state)
    listed = ingest("history", file, "--state", state)
    assert listed.stdout.splitlines()[1].split()[0] == run
    shown = ingest("history", file, "--state", state, "--run", run)
    assert "1970-01-01T00:00:00.000010Z" in shown.stdout
    assert f": {ERROR}" in shown.stdout
    assert '{"a": "[/a]"}' in shown.stdout


def test_history_lists_the_failed_reads_that_will_be_repeated(tmp_path: Path) -> None:
    file, state = job(tmp_path)
    work = WorkUnit(0, 20_000_000, WHOLE, 0)
    with open_store(state, create=True) as store:
        store.write(lambda connection: record_success(connection, "orders", "system", work))
        for read in (work._replace(low=5_000_000), WorkUnit(20_000_000, 30_000_000, WHOLE, 20_000_000)):
            store.write(partial(record_failed_read, job="orders", watermark="system", work=read))
    listed = ingest("history", file, "--state", state)
    assert listed.stdout.endswith("2 failed reads will be repeated; --owed lists them\n")
    shown = json.loads(ingest("history", file, "--state", state, "--owed", "--json").stdout)
    assert [(row["partition"], row["low"], row["high_watermark"]) for row in shown] == [
        ("1970-01-01T00:00:00Z", "1970-01-01T00:00:05Z", "1970-01-01T00:00:20Z"),
        ("1970-01-01T00:00:20Z", "1970-01-01T00:00:20Z", None),
    ]
    assert [row["why"].split(":")[0] for row in shown] == [
        "a read failed after its last success",
        "never read successfully",
    ]


def test_an_unknown_run_is_an_error(tmp_path: Path) -> None:
    file, state = job(tmp_path)
    cut = a_failed_run(state)[:20]
    result = ingest("history", file, "--state", state, "--run", cut)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"--run = '{cut}': is not the id of a run of job orders; give a complete id" in result.stderr


def test_reset_since_lowers_the_high_watermark_to_that_time(tmp_path: Path) -> None:
    file, state = job(tmp_path)
    with open_store(state, create=True) as store:
        work = WorkUnit(0, 20_000_000, WHOLE, 0)
        store.write(lambda connection: record_success(connection, "orders", "system", work))
        result = ingest("reset", file, "--state", state, "--since", "1970-01-01T00:00:05Z")
        assert result.stdout == "1 high watermark reset\n"
        history = store.read(lambda connection: read_history(connection, "orders", "system"))
    assert list(history.rows()) == [(0, "{}", 5_000_000)]


@pytest.mark.parametrize(
    ("option", "value", "fix"), [("--since", "foo", "'foo'"), ("--unit", "x", "write --unit NAME=VALUE")]
)
def test_a_wrong_option_of_a_reset_is_named(tmp_path: Path, option: str, value: str, fix: str) -> None:
    file, state = job(tmp_path)
    result = ingest("reset", file, "--state", state, option, value)
    assert result.exit_code == 2
    assert f"error: {option} = '{value}': " in result.stderr
    assert fix in result.stderr


def test_history_shows_units_outcomes_and_rows(tmp_path: Path) -> None:
    file, state = job(tmp_path)
    with open_store(state, create=True) as store, JobLease(store, "orders") as lease:
        run = Run(store, lease, "system")
        for number, end in enumerate(("succeeded", "succeeded", "failed")):
            rows = 0 if end == "failed" else 7
            outcome = Outcome(number, 0, "{}", 0, 10, end, rows, 0, 5, 7)  # type: ignore[arg-type]
            run.record(WorkUnit(0, 10, WHOLE, 0), outcome)
        run.end("failed")
    [row] = json.loads(ingest("history", file, "--state", state, "--json").stdout)
    assert (row["units"], row["succeeded"], row["failed"], row["rows"]) == (3, 2, 1, 14)
    assert "2 succeeded, 1 failed" in ingest("history", file, "--state", state).stdout


def test_watched_history_is_printed_again_after_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, state = job(tmp_path)
    a_failed_run(state)
    looks = 0

    def wait(_: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 2:
            a_failed_run(state)
        if looks == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr("slackwater.cli.watching.sleep", wait)
    shown = ingest("history", file, "--state", state, "--json", "--watch")
    assert shown.exit_code == 130
    assert [len(json.loads(line)) for line in shown.stdout.splitlines()] == [1, 2]
    refused = ingest("history", file, "--state", state, "--watch", "--prune", "1 day")
    assert "cannot be combined with --watch; prune first" in refused.output


def test_another_job_of_the_same_name_is_refused_until_it_adopts_the_history(tmp_path: Path) -> None:
    file, state = job(tmp_path)
    with open_store(state, create=True) as store:
        adopt_history(store, load_job(file))
        work = WorkUnit(0, 20_000_000, WHOLE, 0)
        store.write(lambda connection: record_success(connection, "orders", "system", work))
    changed = [file, "--state", state, "--set", "ms.source.table=returns"]
    for command in (["plan"], ["ingest", "--dry-run"]):
        refused = CliRunner().invoke(app, [*command, *changed])
        assert refused.exit_code == 1
        assert "ms.source.table = 'orders' (now 'returns')" in refused.stderr
    adopted = ingest("adopt", file, "--state", state, "--set", "ms.source.table=returns")
    assert adopted.stdout == "job orders continues its history with its new source and target\n"
    assert CliRunner().invoke(app, ["plan", file, "--state", state]).exit_code == 1
    assert CliRunner().invoke(app, ["plan", *changed]).exit_code == 0


def test_a_setting_without_a_value_shows_no_secret(tmp_path: Path) -> None:
    file, state = job(tmp_path)
    result = ingest(file, "--state", state, "--set", "ms.source.jdbc.pasword hunter2")
    assert result.exit_code == 2
    assert "hunter2" not in result.stderr
