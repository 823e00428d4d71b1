"""`slackwater ingest`: what it refuses before anything runs, and looking after the history."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from slackwater.cli.app import app
from slackwater.ingest import WHOLE, WorkUnit
from slackwater.ingest.state import read_history, record_success
from slackwater.metadata.store import open_store

JOB = """
ms.watermark: [{name: system, type: datetime, range: {from: 2020-01-01, to: P0D}}]
ms.source.type: http
ms.target.type: sql
"""


def job(folder: Path) -> tuple[str, str]:
    (folder / "orders.yaml").write_text(JOB, encoding="utf-8")
    return str(folder / "orders.yaml"), f"sqlite:///{folder}/store.db"


def test_a_job_that_cannot_be_run_says_all_that_it_lacks(tmp_path: Path) -> None:
    file, state = job(tmp_path)
    result = CliRunner().invoke(app, ["ingest", file, "--state", state])
    assert result.exit_code == 2
    assert "ms.source.url: is missing; a http source needs it" in result.stderr
    assert "ms.target.url: is missing" in result.stderr
    assert "ms.target.table: is missing" in result.stderr


def test_a_dry_run_shows_the_plan_and_runs_nothing(tmp_path: Path) -> None:
    file, state = job(tmp_path)
    result = CliRunner().invoke(
        app, ["ingest", file, "--state", state, "--dry-run", "--json", "--now", "2020-01-03"]
    )
    assert [unit["high"] for unit in json.loads(result.stdout)["units"]] == ["2020-01-03T00:00:00Z"]
    listed = CliRunner().invoke(app, ["ingest", "history", file, "--state", state, "--json"])
    assert json.loads(listed.stdout) == []


def test_a_reset_lets_the_job_read_again_from_a_time(tmp_path: Path) -> None:
    file, state = job(tmp_path)
    with open_store(state) as store:
        work = WorkUnit(0, 20_000_000, WHOLE, 0)
        store.write(lambda connection: record_success(connection, "orders", "system", work))
        result = CliRunner().invoke(
            app, ["ingest", "reset", file, "--state", state, "--since", "1970-01-01T00:00:05Z"]
        )
        assert result.stdout == "1 high watermarks forgotten or lowered\n"
        history = store.read(lambda connection: read_history(connection, "orders", "system"))
    assert list(history.rows()) == [(0, "{}", 5_000_000)]
