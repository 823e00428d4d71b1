"""`slackwater plan`: tables, JSON, the calendar picture, and errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import sqlalchemy as sql
from typer.testing import CliRunner, Result

from slackwater.cli.app import app
from slackwater.cli.console import DEFAULT_STORE
from slackwater.ingest import WorkUnit, unit_of
from slackwater.ingest.ledger.progress_ledger import record_failed_read, record_success
from slackwater.metadata.store import open_store
from slackwater.time import instant

ROOT = Path(__file__).parents[2]
JOB = """
ms.watermark: [{name: system, type: datetime, range: {from: 2020-01-01, to: P0D}},
               {name: country, type: unit, units: [NO, SE]}]
ms.work.unit.partition: {monthly: [2020-01-01, 2020-02-01], daily: [2020-02-02, "-"]}
ms.grace.period.days: ${days}
days: 3
ms.source.url: ${env:SLACKWATER_TEST_SECRET}
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLACKWATER_TEST_SECRET", "hunter2")
    monkeypatch.setenv("COLUMNS", "200")
    path = tmp_path / "orders.yaml"
    path.write_text(JOB, encoding="utf-8")
    return path


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["plan", *(str(each) for each in arguments)])


def test_the_tables_show_what_would_run_and_what_is_left_out(job: Path) -> None:
    shown = invoke(job, "--now", "2020-02-04T10:00:00Z")
    assert shown.exit_code == 0
    assert "orders at 2020-02-04 10:00:00 UTC, system from 2020-01-01 to 2020-02-04" in shown.output
    assert "would run: 6" in shown.output
    assert "country=NO" in shown.output
    assert "2020-02-01 to 2020-02-02: in no sub-range of ms.work.unit.partition" in shown.output
    assert "hunter2" not in shown.output


def test_what_is_skipped_has_its_reason(job: Path) -> None:
    shown = invoke(job, "--now", "2020-02-04", "--set", "ms.work.unit.parallelism.max=2", "--rows", "1")
    assert "would run: 2" in shown.output
    assert "would be skipped: 4" in shown.output
    assert "4: more units than ms.work.unit.parallelism.max" in shown.output
    assert "… and 3 more; --rows 0 shows all" in shown.output


def test_json_is_the_complete_plan_and_nothing_else(job: Path) -> None:
    shown = invoke(job, "--now", "2020-02-04", "--json", "--set", "days=1")
    plan = json.loads(shown.stdout)
    assert [unit["unit"] for unit in plan["units"][:2]] == [{"country": "NO"}, {"country": "SE"}]
    assert plan["left_out"][0]["reason"] == "gap"


def test_an_owed_read_is_shown_with_its_reason(job: Path, tmp_path: Path) -> None:
    state = f"sqlite:///{tmp_path}/store.db"
    start, end, low = (instant(f"2020-{day}T00:00:00Z") for day in ("01-01", "02-01", "01-20"))
    work = WorkUnit(start, end, unit_of({"country": "NO"}), start)
    with open_store(state, create=True) as store:
        store.write(lambda connection: record_success(connection, "orders", "system", work))
        failed = work._replace(low=low)
        store.write(lambda connection: record_failed_read(connection, "orders", "system", failed))
    shown = invoke(job, "--now", "2020-02-01", "--state", state, "--set", "days=1")
    assert "1: a read failed after its last success: read again from where that read began" in shown.output
    [row] = [line for line in shown.output.splitlines() if "country=NO" in line]
    assert row.count("2020-01-20") == 2
    assert row.split("│")[-2].strip() == "owed"
    unit = json.loads(invoke(job, "--now", "2020-02-01", "--state", state, "--json").stdout)["units"][0]
    assert (unit["reason"], unit["owed_from"]) == ("owed", "2020-01-20T00:00:00Z")


def test_times_are_in_the_timezone_of_the_job(job: Path) -> None:
    shown = invoke(job, "--now", "2020-02-04", "--set", "ms.timezone=Asia/Tokyo", "--json")
    assert json.loads(shown.stdout)["now"] == "2020-02-03T15:00:00Z"
    assert (
        "2020-02-04 Asia/Tokyo"
        in invoke(job, "--now", "2020-02-04", "--set", "ms.timezone=Asia/Tokyo").output
    )


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_a_calendar_is_drawn(job: Path, tmp_path: Path, suffix: str) -> None:
    picture = tmp_path / f"plan.{suffix}"
    assert invoke(job, "--now", "2020-02-04", "--plot", picture).exit_code == 0
    assert picture.stat().st_size > 1_000


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--now", "yesterday"], 2, "--now = 'yesterday'"),
        (["--set", "days"], 2, "write --set NAME=VALUE"),
        (["--set", "days=-1", "--set", "ms.backfill=maybe"], 2, "orders has 2 problems"),
        (["--set", "ms.work.unit.min.units=1000000"], 1, "only"),
        (["--plot", "plan.gif"], 2, "use one of .svg, .png"),
        (["--set", "ms.watermark=${env:SLACKWATER_TEST_SECRET}"], 2, "${env:SLACKWATER_TEST_SECRET}"),
    ],
)
def test_an_error_message_names_the_fix(job: Path, arguments: list[str], code: int, said: str) -> None:
    shown = invoke(job, *arguments)
    assert shown.exit_code == code
    assert said in shown.stderr
    assert "Traceback" not in shown.stderr
    assert "hunter2" not in shown.output


@pytest.mark.search
def test_it_runs_as_a_program(job: Path) -> None:
    program = [sys.executable, "-m", "slackwater.cli", "plan", str(job), "--now", "2020-02-04", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    shown = subprocess.run(program, capture_output=True, text=True, check=True, env=environment)
    assert len(json.loads(shown.stdout)["units"]) == 6


@pytest.mark.search
def test_planning_imports_no_spark() -> None:
    program = "import sys, slackwater.cli.plan; sys.exit(bool({'pyspark', 'py4j'} & set(sys.modules)))"
    subprocess.run(
        [sys.executable, "-c", program], check=True, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}
    )


# ---- the picture


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nosuch/plan.svg", "cannot be written (No such file or directory)"),
        ("orders.yaml/plan.svg", "cannot be written (Not a directory)"),
        ("folder.svg", "cannot be written (Is a directory)"),
        ("shut/plan.png", "cannot be written (Permission denied)"),
        ("plan.gif", "has an unsupported suffix"),
    ],
)
def test_a_picture_that_cannot_be_written_is_an_error(
    job: Path, tmp_path: Path, name: str, said: str
) -> None:
    (tmp_path / "folder.svg").mkdir()
    (tmp_path / "shut").mkdir(mode=0o500)
    if "Permission" in said and os.access(tmp_path / "shut", os.W_OK):
        pytest.skip("this user may write everywhere")
    shown = invoke(job, "--now", "2020-02-03", "--plot", tmp_path / name)
    assert (shown.exit_code, type(shown.exception)) == (2, SystemExit)
    assert f"--plot = '{tmp_path / name}': {said}" in shown.stderr


# ---- the state


def test_history_comes_from_the_store(job: Path, store_url: str) -> None:
    norway = unit_of({"country": "NO"})
    january = WorkUnit(instant("2020-01-01T00:00:00Z"), instant("2020-02-01T00:00:00Z"), norway, 0)
    with open_store(store_url) as store:
        store.write(lambda connection: record_success(connection, "orders", "system", january))
        store.write(lambda connection: record_success(connection, "others", "system", january))
    shown = invoke(job, "--now", "2020-02-03", "--state", store_url, "--json", "--set", "days=0")
    plan = json.loads(shown.stdout)
    assert plan["overall_cut_off"] == "2020-02-01T00:00:00Z"
    assert [(unit["unit"]["country"], unit["low"][:10]) for unit in plan["units"]] == [
        ("SE", "2020-01-01"),
        ("NO", "2020-02-02"),
        ("SE", "2020-02-02"),
    ]
    assert [(unit["unit"], unit["reason"]) for unit in plan["skipped"]] == [({"country": "NO"}, "read")]


def test_planning_does_not_change_the_store(job: Path, tmp_path: Path, empty_url: str) -> None:
    if empty_url.startswith("sqlite"):
        (tmp_path / "store.db").touch()
    shown = invoke(job, "--now", "2020-02-03", "--state", empty_url, "--json")
    assert len(json.loads(shown.stdout)["units"]) == 4
    with open_store(empty_url, upgrade=False) as store:
        assert store.read(lambda connection: sql.inspect(connection).get_table_names()) == []


def test_a_missing_store_is_an_error(job: Path, tmp_path: Path) -> None:
    shown = invoke(job, "--state", f"sqlite:///{tmp_path}/none.db")
    assert shown.exit_code == 2
    assert "does not exist; correct it, or pass --no-history" in shown.stderr
    assert not (tmp_path / "none.db").exists()


def test_a_plan_without_room_for_new_units_has_a_warning(tmp_path: Path) -> None:
    state = f"sqlite:///{tmp_path}/state.db"
    job = tmp_path / "job.yaml"
    axis = '{"name": "system", "type": "datetime", "range": {"from": "2020-01-01", "to": "P0D"}}'
    job.write_text(
        f"ms.watermark: [{axis}]\nms.work.unit.partition: daily\nms.grace.period.days: 3\n"
        "ms.work.unit.parallelism.max: 2\n",
        encoding="utf-8",
    )
    days = [instant(f"2020-01-0{day}T00:00:00Z") for day in (1, 2, 3)]
    units = [WorkUnit(start, end, unit_of({}), start) for start, end in pairwise(days)]

    def read(connection: sql.Connection) -> None:
        for work in units:
            record_success(connection, "job", "system", work)

    with open_store(state, create=True) as store:
        store.write(read)
    shown = CliRunner().invoke(app, ["plan", str(job), "--state", state, "--now", "2020-01-04"])
    assert shown.exit_code == 0
    assert "warning: re-reads within the grace period use up the whole run" in " ".join(shown.output.split())


# ---- the store


def test_a_plan_reads_the_store_that_a_run_writes_by_default(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "overall cut-off: none (no history)" in invoke(job, "--now", "2020-02-04").output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["orders.yaml"]
    work = WorkUnit(
        instant("2020-01-01T00:00:00Z"), instant("2020-02-01T00:00:00Z"), unit_of({"country": "NO"}), 0
    )
    with open_store(DEFAULT_STORE, create=True) as store:
        store.write(lambda connection: record_success(connection, "orders", "system", work))
    assert "overall cut-off: 2020-01-29" in invoke(job, "--now", "2020-02-04").output
    without = invoke(job, "--now", "2020-02-04", "--no-history")
    assert "overall cut-off: none (no history)" in without.output


def test_a_start_after_the_end_is_a_warning(job: Path) -> None:
    assert "warning: ms.watermark[0].range: 'from'" in invoke(job, "--now", "2019-02-04").output


def test_watch_prints_the_plan_again_after_a_change(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = JOB.replace("[NO, SE]", "[NO, DK]")
    looks = iter([None, lambda: job.write_text(changed, encoding="utf-8"), None])

    def wait(_: float) -> None:
        try:
            change = next(looks)
        except StopIteration:
            raise KeyboardInterrupt from None
        if change is not None:
            change()

    monkeypatch.setattr("slackwater.cli.watching.sleep", wait)
    shown = invoke(job, "--now", "2020-02-04", "--json", "--watch")
    assert shown.exit_code == 130
    first, second = map(json.loads, shown.stdout.splitlines())
    assert [unit["unit"]["country"] for unit in first["units"][:2]] == ["NO", "SE"]
    assert [unit["unit"]["country"] for unit in second["units"][:2]] == ["NO", "DK"]
